package supervisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// blocks adds to each regular file how much of it is there, and where the first
// hole begins: a copy keeps both.
func (s snapshot) blocks(dir string) error {
	for rel := range s {
		path := filepath.Join(dir, rel)
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size < 1<<16 {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		hole, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_HOLE)
		f.Close()
		if err != nil {
			return err
		}
		s[rel] += fmt.Sprintf(" %d bytes, a hole at %d, sparse %t", st.Size, hole, st.Blocks*512 < st.Size/2)
	}
	return nil
}

// kinds is a script of everything that a file can be, for a user and, at the
// end, for root. Times are set, so that they can be compared.
const (
	kindsBase = `
		umask 022
		truncate -s 64M holes; printf x | dd of=holes bs=1 seek=500000 conv=notrunc status=none
		truncate -s 300K filled; echo old > plain; echo old > acl; echo old > attr; echo old > suid; mkdir dir box; echo x > box/x
		mkfifo pipe; echo target > target; ln -s target link; echo same > same
		printf '\303\204' > 'Ä'; echo a > case; echo b > CASE; echo c > "$(printf 'A\314\210')"; printf 'no utf' > "$(printf '\377\376')"
		setfattr -n user.overlay.mine -v base attr; setfattr -n user.k -v base attr`
	kindsInside = `
		umask 022
		truncate -s 2M fresh; printf end >> fresh; printf y | dd of=holes bs=1 seek=900000 conv=notrunc status=none; head -c 300K /dev/zero | tr '\0' z > filled
		fallocate -p -o 65536 -l 131072 filled
		mkdir made; mkfifo made/pipe pipe2; rm pipe; chmod 4755 suid; cp suid made/sgid; chmod 2755 made/sgid; mkdir sticky; chmod 1777 sticky; chmod 2755 dir
		setfacl -m u:$(id -u):r acl; setfacl -d -m g:$(id -g):rx dir; setfacl -m m::rw plain; mkdir dir/inherits; echo i > dir/inherits/f
		setfattr -n user.overlay.mine -v inside attr; setfattr -n user.overlay.other -v "$(printf 'a\001b')" attr; setfattr -n user.k2 attr; setfattr -x user.k attr
		setfattr -n user.overlay.in -v dir made; setfattr -n user.big -v "$(head -c 1000 /dev/zero | tr '\0' v)" made
		rm link; ln -s nowhere link; ln -s "$(head -c 4000 /dev/zero | tr '\0' l)" made/long; ln -s 'esc[0m' made/esc
		echo Ä2 > 'Ä'; echo b2 > CASE; rm case; echo d > "$(printf '\375\n\t')"; mv "$(printf '\377\376')" "$(printf '\200')"
		printf x > 'new
line'; printf x > '-rf'; printf x > 'back\slash'; printf x > ' lead'; printf x > "$(head -c 255 /dev/zero | tr '\0' n)"
		mv box/x box/y; touch same
		touch -d '1969-12-31 23:59:58.999999999' plain; touch -d '2038-01-19 03:14:08.000000001' suid; touch -h -d '2001-09-09 01:46:40.123456789' link
		touch -d '2011-11-11 11:11:11.111111111' dir box made; touch -d '2100-01-01 00:00:00.5' fresh holes filled acl attr same
		find made pipe2 sticky dir -exec touch -h -d '2022-02-22 22:22:22.222222222' {} +
		find . -newermt 2026-01-01 ! -name . -exec touch -h -d '2023-03-03 03:03:03.333333333' {} + ; touch -d '2024-04-04 04:04:04.444444444' .`
	kindsRoot = `
		rm device
		echo bin > capable; chown 1000:1001 capable plain; chmod 755 capable; setcap cap_net_raw+ep capable
		mkdir owned; chown 1002:3 owned; echo o > owned/f; chown -h 4:4 link; chmod 6755 suid
		chown 77 acl; setfacl -m u:9:rw acl
		touch -h -d '2025-05-05 05:05:05.555555555' capable made owned/f owned link plain suid acl .`
	// Copy-up keeps holes of a megabyte. Nobody can make a device in a user namespace (mknod(2)): an overlay, that
	// is written in one, cannot hold any.
)

// TestKinds: every kind of entry, and all that can be said of one, is after a
// commit what it is natively; by rename, and by copy.
func TestKinds(t *testing.T) {
	asEach(t, func(t *testing.T, r *rig) {
		inside := kindsInside
		if r.uid == 0 {
			inside += kindsRoot
		}
		n := makeRig(t)
		if r.uid != os.Getuid() {
			n.become(r.uid)
		}
		base := kindsBase
		if r.uid == 0 {
			base += "; mknod device c 1 3; mknod stays b 7 200; chmod 640 stays; mkdir gone; mknod gone/null c 1 3"
			inside += "; rm -r gone"
		}
		for _, which := range []*rig{r, n} {
			which.outside(base + fixed)
		}
		n.outside(inside)
		o := r.sh("-y", inside+`
			python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'; touch -d "$(stat -c %y made)" made; touch -d '2024-04-04 04:04:04.444444444' .`).want(0)
		if r.uid == 0 {
			n.outside("touch -d '2024-04-04 04:04:04.444444444' .")
		}
		if strings.Contains(o.stderr, "mine") && strings.Contains(o.stderr, "left out") {
			t.Errorf("a user's own attribute is left out: %s", o.stderr)
		}
		want, got := n.project(), r.project()
		r.must(want.blocks(n.proj))
		r.must(got.blocks(r.proj))
		if diff := want.differs(got); diff != "" {
			t.Fatalf("(native, then branch):%s", diff)
		}
		r.clean()
	})
}

// TestACLOfOthers: what an ACL gives to somebody whom a session does not know is
// kept through everything that is done to the file, and inherited; it hinders
// nobody inside, who only cannot set such an ACL anew.
func TestACLOfOthers(t *testing.T) {
	const (
		base = `umask 022; mkdir d closed; echo old | tee f mine gone > closed/f
			setfacl -m u:3:rw,g:4:r f; setfacl -m u:3:r,u:$(id -u):rw mine; setfacl -m u:3:rwx gone
			setfacl -m u:3:rwx d; setfacl -d -m u:3:rx,g:4:r d; setfacl -m u:3:rwx closed; chmod 700 closed`
		inside = `getfacl f mine gone d closed > /dev/null; ls -ld f mine d >/dev/null; cat f mine closed/f > /dev/null
			chmod 640 f; echo new >> mine; echo new > closed/f; chmod 755 closed; mv gone went
			echo new > d/new; mkdir d/sub; echo new > d/sub/f; setfacl -b went; setfacl -k d/sub`
		refused = `; for f in f mine d; do if setfacl -m u:$(id -u):rwx $f 2>/dev/null; then exit 9; fi; done`
	)
	asEach(t, func(t *testing.T, r *rig) {
		want := r.native(base+fixed, inside+fixed)
		r.outside(base + fixed)
		script := inside
		if r.uid != 0 {
			script += refused
		}
		r.sh("-y", script+fixed).want(0)
		if diff := want.differs(r.project()); diff != "" {
			t.Errorf("(native, then branch):%s", diff)
		}
		r.clean()
	})
	t.Run("another's", func(t *testing.T) {
		r := newTeam(t)
		r.asRoot(fmt.Sprintf("mkdir shared; echo theirs > shared/f; chmod 750 shared; setfacl -m u:%d:rwx,u:3:rwx shared", account))
		r.sh("-y", "cat shared/f; echo x > shared/new").want(0)
		r.wantFile("shared/new", "x\n")
		cmd := r.shell("--abort", "--engine", "fuse", "PATH=$path; cat shared/f; getfacl -n shared")
		cmd.Env = append(cmd.Env, "path="+os.Getenv("PATH"), "PATH=/nowhere") // no fusermount3
		if o := r.finish(cmd).want(0); !strings.Contains(o.stdout, "theirs\n") || !strings.Contains(o.stdout, fmt.Sprintf("user:%d:rwx\n", account)) {
			t.Errorf("inside is\n%s", o.stdout)
		}
	})
}

// TestAttributesTogether: an ACL that closes a file to its owner, a change of
// owner that takes capabilities, and user attributes, which only who may write
// can set, do not get in each other's way, on whichever way they go.
func TestAttributesTogether(t *testing.T) {
	const all = `all() { setfattr -n user.k -v $2 $1; setfacl -m u:$(id -u):r $1; setfattr -n user.a -v $2 $1; chmod $3 $1; }; umask 022; `
	base := all + `mkdir d e; echo old | tee plain closed more both gone d/f > e/f; all closed 1 400; all more 2 400; all both 3 000; echo old > shut; all shut 5 000; touch empty; all empty 7 000
		all d 4 500; all e 5 555; all gone 6 400`
	inside := all + `all plain 7 400; chmod 440 closed; chmod 640 shut; chmod 600 empty; setfattr -n user.k -v new empty; touch -d 2001-01-01 both; chmod 600 more; echo new >> more; chmod 400 more
		chmod u+w d; echo new > d/new; chmod u-w d; echo new >> e/f; rm -f gone; echo new > new; all new 8 400; mkdir made; all made 9 500`
	asEach(t, func(t *testing.T, r *rig) {
		base, inside := base, inside
		if r.uid == 0 {
			base += `; cp /bin/true capable; chown 1000:1001 capable; setcap cap_net_raw+ep capable; cp -a capable other; setcap cap_net_raw+ep other`
			inside += `; touch -d 2001-01-01 capable; chmod 711 other; setfattr -n user.k -v 1 other`
		}
		if !onFuse() { // which reads a directory of the base by the user's own rights, whatever became of it inside
			base += `; mkdir blind; all blind 6 300`
			inside += `; chmod 700 blind; setfattr -n user.k -v new blind`
		}
		was, want := r.native(base+fixed), r.native(base+fixed, inside+fixed)
		r.outside(base + fixed)
		same := func(what string, want snapshot) {
			t.Helper()
			if diff := want.differs(r.project()); diff != "" {
				t.Errorf("%s (native, then branch):%s", what, diff)
			}
		}
		r.sh("-y", inside+fixed).want(0)
		same("committed", want)
		r.try("undo").want(0)
		same("undone", was)
		r.sh("--keep", "-q", "-b", "mine", inside+fixed).want(0)
		for _, path := range []string{"closed", "d", "made", "plain"} {
			r.try("commit", "-q", "mine", "--", path).want(0)
		}
		r.try("commit", "-q", "mine").want(0)
		same("committed in parts", want)
		r.clean()
	})
}
