package supervisor_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// needFuse skips where the rig's user cannot open /dev/fuse. CI sets
// TRY_TEST_FUSE: there it must be.
func (r *rig) needFuse() {
	r.t.Helper()
	st, err := os.Stat("/dev/fuse")
	if err == nil && (r.uid == 0 || st.Mode().Perm()&0o006 == 0o006) {
		return
	}
	if os.Getenv("TRY_TEST_FUSE") != "" {
		r.t.Fatalf("user %d cannot open /dev/fuse (%v)", r.uid, err)
	}
	r.t.Skipf("user %d cannot open /dev/fuse (%v)", r.uid, err)
}

// withFuse runs f as each user for whom the fuse engine can serve.
func withFuse(t *testing.T, f func(t *testing.T, r *rig)) {
	asEach(t, func(t *testing.T, r *rig) {
		r.needFuse()
		f(t, r)
	})
}

func TestFuseCommit(t *testing.T) {
	withFuse(t, func(t *testing.T, r *rig) {
		r.outside("mkdir -p d/e; echo old > f; echo gone > g; echo x > d/e/x")
		o := r.sh("--engine", "fuse", "-y", "--json", "echo new > f; rm g; mv d moved; mkdir d; echo y > d/y; grep -q ' fuse[ .]' /proc/self/mounts").want(0)
		if !strings.Contains(o.stdout, `"engine":"fuse"`) {
			t.Errorf("the document does not name the engine: %s", o.stdout)
		}
		r.outside(`test "$(cat f d/y moved/e/x)" = "new
y
x"; test ! -e g; test ! -e d/e; test "$(ls -A | tr '\n' ' ')" = "d f moved "`)
		r.clean()
	})
}

func TestFuseAbortAndKeep(t *testing.T) {
	withFuse(t, func(t *testing.T, r *rig) {
		r.outside("printf old > f")
		r.sh("--engine", "fuse", "--abort", "echo new > f").want(0)
		r.wantFile("f", "old")
		r.sh("--engine", "fuse", "--keep", "-b", "mine", "echo new > f; mkdir d; mv f d").want(0)
		r.wantFile("f", "old")
		if got := r.branches()["mine"]; got != "kept" {
			t.Errorf("branch mine is %q", got)
		}
		r.try("commit", "mine").want(0)
		r.wantFile("d/f", "new\n")
		r.clean()
	})
}

// TestFuseServerKilled: with the supervisor every call ends with an error, no
// process hangs, no mount is left, and what was written can be committed.
func TestFuseServerKilled(t *testing.T) {
	withFuse(t, func(t *testing.T, r *rig) {
		p, _ := r.underReaper(nil, binary, "--engine", "fuse", "--keep", "-b", "mine", "--", "/bin/sh", "-euc",
			`echo new > f; exec 5<f; (while :; do cat f f; ls -l; done) >/dev/null 2>&1 &
			(while :; do echo more >> g; done) 2>/dev/null &
			echo ready >&3; wait`)
		p.untilReady()
		r.must(unix.Kill(p.pid, unix.SIGKILL))
		p.wait().want(137) // no process of the session is left
		mounts, err := os.ReadFile("/proc/self/mounts")
		r.must(err)
		if strings.Contains(string(mounts), r.dir) {
			t.Errorf("a mount is left:\n%s", mounts)
		}
		if got := r.branches()["mine"]; got != "interrupted" {
			t.Errorf("branch mine is %q", got)
		}
		r.try("commit", "mine").want(0)
		r.wantFile("f", "new\n")
		r.clean()
	})
}

// TestMountsBelowARoot: auto takes fuse for a root with mounts below it. Each
// that can be written is captured in a layer of its own and committed with the
// rest; the others are to be read.
func TestMountsBelowARoot(t *testing.T) {
	withFuse(t, func(t *testing.T, r *rig) {
		r.outside("mkdir -p own/in locked; echo base > f")
		locked := "! (echo no > locked/f) 2>/dev/null"
		if r.uid == os.Getuid() { // who made the mount may write to it; it is busy
			locked = "! rmdir locked 2>/dev/null"
		}
		o := r.inPrivate(r.at("own")+" mode=1777,size=1m\n"+r.at("locked")+" mode=755,size=1m", `
			echo base > own/f
			"$TRY" -y --json -- sh -euc 'echo new > f; echo new > own/f; mkdir own/d; ls locked
				`+locked+`; mv f g; cat own/f > h; test "$(stat -c %d .)" != "$(stat -c %d own)"'
			test "$(cat g h own/f)" = "new
new
new"; test -d own/d; test ! -e locked/f; test ! -e f
			"$TRY" --abort -- sh -euc 'rm -r own/d; echo x > own/f'
			test "$(cat own/f)" = new; test -d own/d
			`).want(0)
		if !strings.Contains(o.stdout, `"engine":"fuse+overlay"`) && !strings.Contains(o.stdout, `"engine":"fuse"`) {
			t.Errorf("the document does not name the engines: %s", o.stdout)
		}
		// The store that was made on a mount went with it.
	})
}

// TestSerializable: what the command has read, found missing or listed must be
// as it was when its branch is committed, at once or later.
func TestSerializable(t *testing.T) {
	const before = "mkdir d e; echo 1 > read; echo 1 > other; echo 1 > d/x; ln -s read l"
	for _, c := range []struct {
		name, script, outside, conflict string
	}{
		{"nothing", "cat read > out", "echo 2 > other", ""},
		{"a file", "cat read > out", "echo 2 > read", "read"},
		{"a file replaced", "cat d/x > out", "mv d f; mkdir d; echo 1 > d/x", "d/x"},
		{"metadata", "test -x read || echo no > out", "chmod +x read", "read"},
		{"a missing name", "test -e config || echo no > out", "echo 2 > config", "config"},
		{"a name that stays missing", "test -e config || echo no > out", "echo 2 > config2", ""},
		{"a listing", "ls d > out", "echo 2 > d/y", "d"},
		{"another listing", "ls d > out", "echo 2 > e/y", ""},
		{"a link", "cat l > out", "rm l; ln -s other l", "l"},
		{"what it wrote itself", "echo 2 > d/new; cat d/new > out", "echo 2 > other", ""},
	} {
		for _, later := range []bool{false, true} {
			t.Run(c.name+map[bool]string{true: ", later"}[later], func(t *testing.T) {
				r := newRig(t)
				r.needFuse()
				r.outside(before)
				var o *outcome
				if later {
					r.sh("--serializable", "--keep", "-b", "mine", c.script).want(0)
					r.outside(c.outside)
					o = r.try("commit", "mine")
				} else {
					p, in := r.underReaper(nil, binary, "--serializable", "-y", "-b", "mine", "--", "/bin/sh", "-euc", c.script+"; echo ready >&3; read line")
					p.untilReady()
					r.outside(c.outside)
					_, err := in.(interface{ Write([]byte) (int, error) }).Write([]byte("go\n"))
					r.must(err)
					o = p.wait()
				}
				if c.conflict == "" {
					o.want(0)
					return
				}
				o.want(125).says(r.at(c.conflict)+": the command has read it", "has changed since")
				if _, err := os.Lstat(r.at("out")); err == nil {
					t.Error("it was committed")
				}
			})
		}
	}
	t.Run("overlay", func(t *testing.T) {
		r := newRig(t)
		r.sh("--serializable", "--engine", "overlay", "true").want(125).says("--engine fuse")
	})
}
