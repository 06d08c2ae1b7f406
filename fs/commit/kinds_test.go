package commit

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/fs/vfs"
)

// TestKinds: an entry of the layer of any kind, with all that belongs to it, is
// one of the base after the commit, also when it had to be copied: no hole is
// filled and nothing is rounded.
func TestKinds(t *testing.T) {
	for _, copies := range []bool{false, true} {
		r := newRig(t)
		r.copy = copies
		script := `
			umask 022; truncate -s 1M holes; printf x | dd of=holes bs=1 seek=700000 conv=notrunc status=none
			mkfifo pipe; echo s > suid; chmod 6755 suid; mkdir sticky; chmod 3777 sticky; mkfifo sticky/in; ln -s '\esc' sticky/link
			setfattr -n user.overlay.overlay.mine -v own suid; setfattr -n user.k -v '' suid; setfattr -n user.d -v d sticky
			setfacl -m u:$(id -u):rx,g:$(id -g):r suid; setfacl -d -m u::rwx,g::r,o::- sticky
			echo c > closed; for a in 1 2 3 4 5 6; do setfattr -n user.$a -v $a closed; done; setfacl -m u:$(id -u):r closed; chmod 400 closed
			touch -d '1969-12-31 23:59:58.999999999' holes; touch -h -d '2001-09-09 01:46:40.123456789' sticky/link sticky/in sticky suid`
		if os.Getuid() == 0 {
			script += `
			mknod null c 1 3; mknod block b 7 200; chmod 640 block; mkdir owned; chown 1000:1001 owned suid; chmod 6755 suid
			cp suid capable; setcap cap_net_raw+ep capable; mknod owned/tty c 5 0; chown -h 3:4 sticky/link; touch -d '2100-01-01' owned suid`
		}
		cmd := exec.Command("sh", "-euc", script)
		cmd.Dir = r.layer()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		check(t, os.Chtimes(r.layer(), unixTime(past), unixTime(past)))
		want := r.want()
		check(t, os.WriteFile(r.layer()+"/huge", nil, 0o644)) // not to be read as a whole
		check(t, os.Truncate(r.layer()+"/huge", 5<<30))
		f, err := os.OpenFile(r.layer()+"/huge", os.O_WRONLY, 0)
		check(t, err)
		_, err = f.WriteAt([]byte("end"), 5<<30)
		check(t, err)
		check(t, f.Close())
		check(t, r.commit(vfs.Disk()))
		d, err := sys.OpenDir(r.base())
		check(t, err)
		huge, err := d.Stat("huge")
		check(t, err)
		holes, err := d.Stat("holes")
		check(t, err)
		if huge.Size != 5<<30+3 || huge.Blocks*512 > 1<<20 || holes.Blocks*512 > 1<<17 {
			t.Errorf("copy=%t: %d bytes in %d blocks, and %d in %d", copies, huge.Size, huge.Blocks, holes.Size, holes.Blocks)
		}
		f, err = os.Open(r.base() + "/huge")
		check(t, err)
		end := make([]byte, 3)
		_, err = f.ReadAt(end, 5<<30)
		check(t, err)
		check(t, f.Close())
		if string(end) != "end" {
			t.Errorf("copy=%t: ends with %q", copies, end)
		}
		check(t, unix.Unlinkat(d.FD(), "huge", 0))
		check(t, d.Close())
		got := look(t, r.base())
		delete(got, "") // its time moved with huge
		delete(want, "")
		same(t, "base", got, want)
	}
}
