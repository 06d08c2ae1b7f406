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
		o := r.sh("--engine", "fuse", "-y", "--json", "echo new > f; rm g; mv d moved; mkdir d; echo y > d/y; grep -q ' fuse ' /proc/self/mounts").want(0)
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
		if r.uid == 0 {
			locked = "rmdir locked || :" // nothing is locked to root, but a mount is busy
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
