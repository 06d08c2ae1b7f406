package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// lab is where one run happens: its directories, its environment, its table.
type lab struct {
	ctx     context.Context
	short   bool
	try     string // absolute; empty: there is none, and noTry says why
	noTry   string
	top     string // everything below is removed at the end
	scratch string // where it all happens, in top
	home    string // HOME's stand-in, in scratch
	worker  string // a copy of this program, outside HOME
	env     []string
	null    *os.File
	lock    *os.File // the marker, locked while we live
	table   table
	sets    int // of places: a section that has some has its own
}

// open makes the scratch directory and finds what is measured.
func open(ctx context.Context, try string, short bool) (_ *lab, err error) {
	l := &lab{ctx: ctx, short: short}
	dir, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return nil, err
	}
	if !outside(dir) { // make sets TMPDIR to another one
		if dir, err = os.UserHomeDir(); err != nil || !outside(dir) {
			return nil, fmt.Errorf("neither TMPDIR nor HOME (%s) lies outside /tmp, /var/tmp and /dev/shm, which a session captures: %w", dir, err)
		}
	}
	if err := sweep(dir); err != nil {
		return nil, err
	}
	if l.top, err = os.MkdirTemp(dir, scratchPrefix); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.lock, err = os.OpenFile(filepath.Join(l.top, marker), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	if err := unix.Flock(int(l.lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", l.lock.Name(), err)
	}
	if err := scatter(l.top); err != nil {
		return nil, err
	}
	if l.scratch, err = os.MkdirTemp(l.top, ""); err != nil {
		return nil, err
	}
	l.home = filepath.Join(l.scratch, "home")
	for _, d := range []string{"bin", "home/tmp", "home/project", "home/src", "home/run", "overlay"} {
		if err := os.MkdirAll(filepath.Join(l.scratch, d), 0o755); err != nil {
			return nil, err
		}
	}
	l.worker = filepath.Join(l.scratch, "bin", "worker")
	if err := copyFile(l.worker, "/proc/self/exe", 0o755); err != nil {
		return nil, err
	}
	if l.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	l.env = environment(l.home)
	if l.try, err = filepath.Abs(try); err != nil {
		return nil, err
	}
	if out, err := l.output(l.home, l.try, "version"); err != nil {
		l.try, l.noTry = "", strings.TrimSpace(fmt.Sprintf("%s version: %v %s", try, err, out))
	}
	// What outlives a measured command becomes our child, see reap.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become a subreaper: %w", err)
	}
	return l, nil
}

const (
	scratchPrefix = "try-bench-"
	marker        = ".scratch-of-try-bench"
)

// scatter has ext4 put each directory made in dir into a block group picked by
// its name (chattr +T), so that a run does not meet the inodes that the run
// before has just deleted, see the package comment. Others may not know it.
func scatter(dir string) error {
	const topDir = 0x20000 // FS_TOPDIR_FL
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|topDir)
	}
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("set the flags of %s: %w", dir, err)
	}
	return errors.Join(err, f.Close())
}

// outside says whether a directory is none that a session captures or drops.
func outside(dir string) bool {
	for _, d := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		if dir == d || strings.HasPrefix(dir, d+"/") {
			return false
		}
	}
	return true
}

// environment is the caller's, with everything that leads out of home removed.
func environment(home string) []string {
	drop := []string{
		"HOME", "TMPDIR", "GOTMPDIR", "GOCACHE", "GOMODCACHE", "GOPATH", "GOENV", "GOFLAGS", "GOMAXPROCS",
		"CGO_ENABLED", "LANG", "PWD", "OLDPWD", "MAKEFLAGS", "MAKELEVEL", "MFLAGS",
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		for _, p := range []string{"XDG_", "TRY_", "GIT_", "LC_"} {
			if strings.HasPrefix(name, p) {
				return true
			}
		}
		return slices.Contains(drop, name)
	})
	return append(env,
		"HOME="+home, "TMPDIR="+filepath.Join(home, "tmp"), "LANG=C.UTF-8",
		"CGO_ENABLED=0", "GOTOOLCHAIN=local", "GOPROXY=off", "GOTELEMETRY=off", "GOFLAGS=-buildvcs=false",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=bench@example.org",
		"GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=bench@example.org")
}

// output runs a command that is not measured and returns what it printed.
func (l *lab) output(dir string, argv ...string) (string, error) {
	cmd := exec.CommandContext(l.ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, l.env
	out, err := cmd.CombinedOutput()
	return lastLine(out), err
}

// prepare runs a command that must succeed and is not measured.
func (l *lab) prepare(dir string, argv ...string) error {
	if out, err := l.output(dir, argv...); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
	}
	return nil
}

func lastLine(out []byte) string {
	lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// mkdir makes directories below HOME's stand-in and returns the path.
func (l *lab) mkdir(name string) (string, error) {
	path := filepath.Join(l.home, name)
	return path, os.MkdirAll(path, 0o755)
}

// quiet writes out what is dirty, so that no sample pays for the one before.
func (l *lab) quiet() error {
	d, err := os.Open(l.scratch)
	if err != nil {
		return err
	}
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(d.Fd()))), d.Close())
}

// close removes all that the run made.
func (l *lab) close() error {
	reap()
	err := remove(l.top)
	for _, f := range []*os.File{l.null, l.lock} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// sweep removes what killed runs left in dir: scratch directories whose marker
// nobody holds locked.
func sweep(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, scratchPrefix+"*"))
	if err != nil {
		return err
	}
	for _, d := range old {
		f, err := os.Open(filepath.Join(d, marker))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue // not ours
		}
		if err != nil {
			return err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			err = remove(d)
		} else if errors.Is(err, unix.EWOULDBLOCK) {
			err = nil // in use
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a scratch directory, if it is one: the marker is in it. An
// overlay's work directory has mode 000, so its owner has to open it first.
func remove(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, marker)); err != nil {
		return fmt.Errorf("remove %s: not a scratch directory of this program: %w", dir, err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d == nil || !d.IsDir() {
			return err
		}
		if err != nil { // could not be listed; WalkDir does not come back
			return errors.Join(os.Chmod(path, 0o700), os.RemoveAll(path))
		}
		if i, err := d.Info(); err != nil || i.Mode().Perm()&0o700 != 0o700 {
			return errors.Join(err, os.Chmod(path, 0o700))
		}
		return nil
	})
	return errors.Join(err, os.RemoveAll(dir))
}

func copyFile(dst, src string, mode os.FileMode) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
