package supervisor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests of this file and of escape_*_test.go are attacks and accidents of
// HAZARDS.md, against the real program, built once. Each says by which line
// the attack is stopped; without that line it fails. The attacker is
// testdata/attack.
//
// An attack runs as an ordinary user: as the one who runs the tests, or as
// user 1001 if that is root. Root sessions are attacked as well where they
// differ, and what an attack does if it succeeds is a marker file in the
// test's own directory. All of it happens in a mount namespace of the test's
// own (attack private) with its own /tmp, /var/tmp and /dev/shm.

// attacker is where testdata/attack was built: beside the program, so that
// what removes that removes it.
var attacker = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(binary), "attack")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./testdata/attack")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the attacker: %w\n%s", err, out)
	}
	return path, nil
})

// A lab is a user's machine: directories home, proj (the cwd), out (outside of
// every root, the user's) and run (like /run/user/UID).
type lab struct {
	t    *testing.T
	dir  string
	uid  int      // of the user, or 0
	with []string // flags of attack private
	env  []string
	fds  []*os.File // 3 and up of what runs
	in   *os.File
}

// newLab is for an attack by an ordinary user.
func newLab(t *testing.T) *lab {
	t.Helper()
	uid := os.Getuid()
	if uid == 0 {
		uid = 1001
	}
	return labOf(t, uid)
}

// each runs an attack on a session of an ordinary user, and on one of root if
// root runs the tests.
func each(t *testing.T, attack func(t *testing.T, l *lab)) {
	t.Helper()
	t.Parallel()
	t.Run("user", func(t *testing.T) {
		t.Parallel()
		attack(t, newLab(t))
	})
	if os.Getuid() == 0 {
		t.Run("root", func(t *testing.T) {
			t.Parallel()
			attack(t, labOf(t, 0))
		})
	}
}

// rootLab is for an attack on root's sessions only.
func rootLab(t *testing.T) *lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a root session needs root, as whom the suite runs too")
	}
	return labOf(t, 0)
}

func labOf(t *testing.T, uid int) *lab {
	t.Helper()
	if _, err := attacker(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "try-escape-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeAll(dir); err != nil {
			t.Error(err)
		}
	})
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	for _, covered := range []string{"/tmp/", "/var/tmp/", "/dev/shm/"} {
		if strings.HasPrefix(dir, covered) {
			t.Fatalf("work directories would lie in %s; run the tests by make test, or set TMPDIR", covered)
		}
	}
	l := &lab{t: t, dir: dir, uid: uid}
	for _, d := range []string{"", "home", "proj", "out", "run"} {
		path := filepath.Join(dir, d)
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, 0o755), os.Lchown(path, uid, -1)); err != nil {
			t.Fatal(err)
		}
		if uid != os.Getuid() {
			if err := os.Lchown(path, uid, uid); err != nil {
				t.Fatal(err)
			}
		}
	}
	for up := filepath.Dir(dir); uid != os.Getuid() && up != "/"; up = filepath.Dir(up) {
		if st, err := os.Stat(up); err != nil || st.Mode()&1 == 0 {
			t.Skipf("user %d cannot enter %s; the suite runs as a user too", uid, up)
		}
	}
	l.env = []string{
		"PATH=" + filepath.Dir(binary) + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + l.path("home"), "XDG_RUNTIME_DIR=" + l.path("run"),
		"TRY_SYNC=1", withoutEngine(), "LANG=C.UTF-8", "SHELL=/bin/sh", "TERM=dumb", "D=" + dir,
	}
	return l
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

// sh runs a script on the machine, in proj, and returns what it wrote. In the
// script $D is the lab.
func (l *lab) sh(script string) string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	argv := []string{"private", "fds:" + strconv.Itoa(len(l.fds))}
	if l.uid != os.Getuid() {
		argv = append(argv, "uid:"+strconv.Itoa(l.uid))
	}
	argv = append(append(argv, l.with...), "--", "sh", "-c", script)
	c := exec.CommandContext(ctx, filepath.Join(filepath.Dir(binary), "attack"), argv...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.Env, c.Dir, c.ExtraFiles = l.env, l.path("proj"), l.fds
	if l.in != nil {
		c.Stdin = l.in
	}
	if err := c.Run(); err != nil {
		l.t.Errorf("%v; it wrote:\n%s", err, &out)
	}
	return out.String()
}

// want runs a script and compares what it wrote.
func (l *lab) want(script, want string) {
	l.t.Helper()
	if got := l.sh(script); got != want {
		l.t.Errorf("wrote:\n%s\nwant:\n%s\nfrom: %s", got, want, script)
	}
}

// says runs a script and wants each of the lines, or parts of lines, in what
// it wrote, in this order.
func (l *lab) says(script string, lines ...string) string {
	l.t.Helper()
	got := l.sh(script)
	rest := got
	for _, line := range lines {
		_, after, ok := strings.Cut(rest, line)
		if !ok {
			l.t.Errorf("%q is not (in this order) in what was written:\n%s\nfrom: %s", line, got, script)
			return got
		}
		rest = after
	}
	return got
}

// none wants that no file of that name is anywhere in the lab.
func (l *lab) none(names ...string) {
	l.t.Helper()
	err := filepath.WalkDir(l.dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && slices.Contains(names, e.Name()) {
			l.t.Errorf("%s: the attack left its mark", path)
		}
		return nil
	})
	if err != nil {
		l.t.Error(err)
	}
}

func (l *lab) write(name, text string) string {
	l.t.Helper()
	path := l.path(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		l.t.Fatal(err)
	}
	for p := path; p != l.dir && l.uid != os.Getuid(); p = filepath.Dir(p) {
		if err := os.Lchown(p, l.uid, l.uid); err != nil {
			l.t.Fatal(err)
		}
	}
	return path
}

// picture is what a tree is, byte for byte, without access times.
func (l *lab) picture(names ...string) string {
	l.t.Helper()
	var b strings.Builder
	for _, name := range names {
		err := filepath.WalkDir(l.path(name), func(path string, e os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			var st unix.Stat_t
			if err := unix.Lstat(path, &st); err != nil {
				return err
			}
			attrs := make([]byte, 1024)
			n, err := unix.Llistxattr(path, attrs)
			if err != nil {
				n = 0
			}
			fmt.Fprintf(&b, "%s %o %d %d %d %d.%09d %q", path, st.Mode, st.Ino, st.Nlink, st.Uid, st.Mtim.Sec, st.Mtim.Nsec, attrs[:n])
			if e.Type().IsRegular() {
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				fmt.Fprintf(&b, " %q", text)
			}
			b.WriteByte('\n')
			return nil
		})
		if err != nil {
			l.t.Fatal(err)
		}
	}
	return b.String()
}

// unchanged runs f and wants the trees as they were.
func (l *lab) unchanged(f func(), names ...string) {
	l.t.Helper()
	before := l.picture(names...)
	f()
	if after := l.picture(names...); after != before {
		l.t.Errorf("changed outside of the branch, before:\n%safter:\n%s", before, after)
	}
}
