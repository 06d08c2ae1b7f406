package supervisor_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// meanwhile is a script in which a session runs inside, tells when it has come
// to its end, waits while outside is done, and ends.
func meanwhile(flags, inside, outside string) string {
	return `mkfifo "$HOME/a" "$HOME/b"; exec 3<>"$HOME/a" 4<>"$HOME/b"
		"$TRY" -y -b mine ` + flags + ` -- sh -euc '` + inside + `
			echo ready >&3; read x <&4' & 
		read x <&3
		` + outside + `
		echo go >&4
		wait $! && code=0 || code=$?; rm "$HOME/a" "$HOME/b"
		`
}

// TestMountsThatCome: what was mounted since the fork, or is read-only by now,
// is found before the journal, and nothing is touched (B38).
func TestMountsThatCome(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount in the namespace that the program runs in")
	}
	for _, c := range []struct{ name, inside, outside, reason, after string }{
		{"below what is removed", "rm -r d", "mount -t tmpfs t d/m/n", "d/m/n: ", "umount d/m/n"},
		{"below what is made anew", "rm -r d; mkdir d; echo x > d/x", "mount -t tmpfs t d/m/n; echo y > d/m/n/y", "d/m/n: ", "test -e d/m/n/y; umount d/m/n"},
		{"on a directory of a change", "echo x > d/m/x", "mount -t tmpfs t d", "proj/d: ", "umount d; test ! -e d/m/x"},
		{"on a changed file", "echo x > d/f", "mount --bind other d/f", "d/f: ", "umount d/f"},
		{"read-only", "echo x > d/f; chmod 600 other; rm d/m/g", `mount --bind . .; mount -o remount,bind,ro "$PWD"`, "nowhere on its file system", `cd /; umount "$root"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			o := r.inPrivate("", `mkdir -p d/m/n; echo old | tee d/f d/m/g > other; root=$PWD; find . | sort > "$HOME/before"
				`+meanwhile("", c.inside, c.outside)+`
				test $code = 125; cd "$root"; `+c.after+`
				cd /; cd "$root"; find . | sort | cmp - "$HOME/before"; test "$(cat d/f d/m/g other)" = "old
old
old"
				"$TRY" abort mine; "$TRY" branches --json`).want(0)
			if !strings.Contains(o.stderr, c.reason) || !strings.HasSuffix(strings.TrimSpace(o.stdout), "[]") {
				t.Errorf("stdout %s, stderr %s", o.stdout, o.stderr)
			}
		})
	}
}

// TestRootGone: the root is removed during the run.
func TestRootGone(t *testing.T) {
	r := newRig(t)
	r.write("f", "old")
	s := r.open("-y", "-b", "mine", "echo mine > new; rm f\nWAIT")
	r.must(os.RemoveAll(r.proj))
	r.must(os.Mkdir(r.proj+".stay", 0o755))
	s.end().want(125).says(r.proj)
	if _, err := os.Stat(r.proj); err == nil {
		t.Error("the root is there again")
	}
	r.proj += ".stay" // a working directory for what follows
	if got := r.branches(); got["mine"] == "" {
		t.Errorf("the branch is gone: %v", got)
	}
	r.try("abort", "mine").want(0)
	r.clean()
}

// TestOnOverlay: home and project on an overlay, as in a container: layers lie
// on a volume, and are committed by copy (B27).
func TestOnOverlay(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount an overlay that is no session's")
	}
	asEach(t, func(t *testing.T, r *rig) {
		r.write("old", "old")
		r.write("d/f", "old")
		r.write("d/h", "linked")
		r.must(os.Link(r.at("old"), r.at("name")))
		if r.uid != os.Getuid() {
			r.become(r.uid)
		}
		as := r.uid
		r.uid = os.Getuid() // who mounts
		run := ""
		if as != r.uid {
			run = "setpriv --reuid=" + fmt.Sprint(as) + " --regid=" + fmt.Sprint(as) + " --clear-groups "
		}
		image := t.TempDir() // on one file system with what is below, as a container's
		o := r.inPrivate("", `mkdir -m 755 `+image+`/u `+image+`/w; dir=$(dirname "$PWD"); chown `+fmt.Sprint(as)+` `+image+`/u
			mount -t overlay c -o lowerdir="$dir",upperdir=`+image+`/u,workdir=`+image+`/w "$dir"; cd "$dir/proj"
			mkdir -m 1777 /dev/shm/volume
			`+run+`env -u XDG_RUNTIME_DIR "$TRY" -y -- sh -euc 'echo new >> old; echo new > d/g; rm d/f; mkdir n; truncate -s 10M n/hole; ln d/h n/name'
			test "$(cat old)" = "oldnew"; test "$(cat d/g)" = new; test ! -e d/f; test $(stat -c %b n/hole) -lt 100; test "$(cat name n/name)" = "oldnew
linked"; test old -ef name; test d/h -ef n/name
			`+run+`"$TRY" --keep -q -b mine -- sh -euc 'echo kept > kept'; `+run+`"$TRY" commit -q mine; test "$(cat kept)" = kept
			# A directory of the image cannot be renamed (redirect_dir is off): refused, and all is as it was.
			`+run+`"$TRY" -y -q -b gone -- rm -r d && code=0 || code=$?; test $code = 125; test "$(cat d/g d/h)" = "new
linked"; `+run+`"$TRY" abort gone`)
		o.want(0)
	})
}
