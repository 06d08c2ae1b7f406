// Package examples_test runs the examples as a user would, with the real `try`.
package examples_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bin is the directory that holds the `try` under test.
var bin string

func TestMain(m *testing.M) {
	code, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// build makes `try`, unless TRY_BIN names one, and runs the tests.
func build(m *testing.M) (code int, err error) {
	dir, err := scratch()
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bin = filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return 1, err
	}
	target := filepath.Join(bin, "try")
	if given := os.Getenv("TRY_BIN"); given != "" {
		if given, err = filepath.Abs(given); err != nil {
			return 1, err
		}
		if err := os.Symlink(given, target); err != nil {
			return 1, err
		}
		return m.Run(), nil
	}
	cmd := exec.Command("go", "build", "-o", target, "../cmd/try")
	if out, err := cmd.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build ../cmd/try: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// scratch makes a directory outside those that a session captures: in TMPDIR,
// as `make test` sets it, else in HOME.
func scratch() (string, error) {
	parent := os.TempDir()
	for _, captured := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		if parent == captured || strings.HasPrefix(parent, captured+"/") {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", err
			}
			parent = home
		}
	}
	return os.MkdirTemp(parent, "try-examples-")
}

// user is somebody with a HOME of his own who has copied an example.
type user struct {
	t         *testing.T
	home, dir string
	env       []string
}

// copied copies an example into the HOME of a new user.
func copied(t *testing.T, example string) *user {
	t.Helper()
	top, err := scratch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, top) })
	u := &user{t: t, home: filepath.Join(top, "home")}
	u.dir = filepath.Join(u.home, example)
	if err := os.MkdirAll(u.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(u.dir, os.DirFS(example)); err != nil {
		t.Fatal(err)
	}
	u.env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "XDG_") || strings.HasPrefix(name, "GIT_") || strings.HasPrefix(name, "TRY_") ||
			slices.Contains([]string{"HOME", "PATH", "TMPDIR", "GOTMPDIR", "PWD", "LANG", "LC_ALL"}, name)
	})
	u.env = append(u.env, "HOME="+u.home, "PATH="+bin+":"+os.Getenv("PATH"), "LANG=C.UTF-8",
		"TRY_SYNC=1", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=u", "GIT_AUTHOR_EMAIL=u@example.org", "GIT_COMMITTER_NAME=u", "GIT_COMMITTER_EMAIL=u@example.org")
	return u
}

// remove deletes a tree in which an overlay's work directory of mode 000 may lie.
func remove(t *testing.T, top string) {
	if err := os.RemoveAll(top); err == nil {
		return
	}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil && d != nil && d.IsDir() {
			return errors.Join(os.Chmod(path, 0o700), os.RemoveAll(path))
		}
		return err
	})
	if err := errors.Join(err, os.RemoveAll(top)); err != nil {
		t.Errorf("remove %s: %v", top, err)
	}
}

// own runs its arguments in a mount namespace where /tmp, /var/tmp and /dev/shm
// are its own: the default scope captures, and a commit writes to, the real ones.
const own = `
set -eu
test "$(readlink /proc/self/ns/mnt)" != "$1"; shift
for d in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o mode=1777 examples "$d"; done
cd "$1"; shift
exec setpriv --inh-caps=-all --ambient-caps=-all "$@"
`

// run runs a command in the example's directory and returns what it said.
func (u *user) run(argv ...string) (string, error) {
	u.t.Helper()
	here, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		u.t.Fatal(err)
	}
	unshare := []string{"-m"}
	if os.Getuid() != 0 {
		unshare = []string{"-Ucm", "--keep-caps"}
	}
	unshare = append(unshare, "sh", "-c", own, "own", here, u.dir)
	cmd := exec.CommandContext(u.t.Context(), "unshare", append(unshare, argv...)...)
	cmd.Dir, cmd.Env = u.dir, u.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must runs a command that has to succeed.
func (u *user) must(argv ...string) string {
	u.t.Helper()
	out, err := u.run(argv...)
	if err != nil {
		u.t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return out
}

func (u *user) write(name, content string) {
	u.t.Helper()
	if err := os.WriteFile(filepath.Join(u.dir, name), []byte(content), 0o644); err != nil {
		u.t.Fatal(err)
	}
}

func (u *user) read(name string) string {
	u.t.Helper()
	b, err := os.ReadFile(filepath.Join(u.dir, name))
	if err != nil {
		u.t.Fatal(err)
	}
	return string(b)
}

// files is everything below HOME with its content, but what git and try keep
// for themselves.
func (u *user) files() map[string]string {
	u.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(u.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(u.home, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && (d.Name() == ".git" || name == ".local"):
			return fs.SkipDir
		case d.Type().IsRegular():
			b, err := os.ReadFile(path)
			all[name] = string(b)
			return err
		default:
			all[name] = d.Type().String()
			return nil
		}
	})
	if err != nil {
		u.t.Fatal(err)
	}
	return all
}

// same fails unless HOME holds what it held before.
func (u *user) same(before map[string]string) {
	u.t.Helper()
	after := u.files()
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if content, was := before[name]; !was {
			u.t.Errorf("%s: was not there before", name)
		} else if content != after[name] {
			u.t.Errorf("%s: changed from %q to %q", name, content, after[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, is := after[name]; !is {
			u.t.Errorf("%s: is gone", name)
		}
	}
}
