// Package layertest lets tests make layers as the kernel makes them: it runs a
// list of operations inside a real overlay, mounted in a user and mount
// namespace that lives for that list only. The same operations can be done on
// an ordinary directory, as the truth to compare with.
package layertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

const helper = "TRY_TEST_LAYER" // holds the mount namespace that the helper must not be in

// Op is one operation: its name, then paths below the directory and other
// arguments; see do.
type Op []string

// Main runs the tests, or, in the process that Session has started, the
// session. A package that uses Session calls it from TestMain.
func Main(m *testing.M) {
	if err := EnterVolume(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv(helper) != "" {
		if err := inside(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type spec struct {
	Base, Layer, Work, Target string
	Ops                       [][][]byte // JSON would mend strings that are no UTF-8
}

// Skip skips the test, with the reason, where user namespaces or overlays in
// them are not to be had.
func Skip(t testing.TB) {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"base", "layer"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := session(t.TempDir(), filepath.Join(dir, "base"), filepath.Join(dir, "layer"), nil); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("no overlay in a user namespace, and CI must not pass without: %v", err)
		}
		t.Skipf("no overlay in a user namespace here: %v", err)
	}
}

// Session does ops in an overlay of layer over base and returns what went
// wrong with each of them: 0 for nothing. Several sessions on one layer behave
// like one with a remount in between. Root is mapped as in a root session, all
// ids; anybody else to root, with the one id there is.
func Session(t testing.TB, base, layer string, ops ...Op) []unix.Errno {
	t.Helper()
	errs, err := session(t.TempDir(), base, layer, ops)
	if err != nil {
		t.Fatal(err)
	}
	return errs
}

func session(scratch, base, layer string, ops []Op) ([]unix.Errno, error) {
	s := spec{Base: base, Layer: layer, Work: layer + ".work", Target: filepath.Join(scratch, "view")}
	for _, op := range ops {
		words := make([][]byte, len(op))
		for i, word := range op {
			words[i] = []byte(word)
		}
		s.Ops = append(s.Ops, words)
	}
	if err := errors.Join(os.Mkdir(s.Work, 0o700), os.Mkdir(s.Target, 0o700)); err != nil {
		return nil, err
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil, err
	}
	in, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	uid, gid, size := os.Getuid(), os.Getgid(), 1
	if uid == 0 {
		uid, gid, size = 0, 0, 4294967295
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helper+"="+own)
	cmd.Stdin = bytes.NewReader(in)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:                 unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings:                []syscall.SysProcIDMap{{HostID: uid, Size: size}},
		GidMappings:                []syscall.SysProcIDMap{{HostID: gid, Size: size}},
		GidMappingsEnableSetgroups: os.Getuid() == 0,
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err := errors.Join(Empty(s.Work), os.Remove(s.Work)); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("session on %s: %w: %s", base, err, stderr.Bytes())
	}
	var errs []unix.Errno
	if err := json.Unmarshal(out, &errs); err != nil {
		return nil, fmt.Errorf("session on %s: %w", base, err)
	}
	return errs, nil
}

// inside is the helper process: it mounts in its own namespace only.
func inside() error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	if own == os.Getenv(helper) {
		return errors.New("not in a mount namespace of its own: nothing is mounted")
	}
	var s spec
	if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, path := range []string{s.Base, s.Layer, s.Work} {
		if strings.ContainsAny(path, `:,\`) {
			return fmt.Errorf("path %q would need escaping", path)
		}
	}
	options := fmt.Sprintf("userxattr,volatile,lowerdir=%s,upperdir=%s,workdir=%s", s.Base, s.Layer, s.Work)
	if err := unix.Mount("overlay", s.Target, "overlay", unix.MS_NOATIME, options); err != nil {
		return fmt.Errorf("mount overlay on %s: %w", s.Target, err)
	}
	unix.Umask(0o022)
	ops := make([]Op, len(s.Ops))
	for i, words := range s.Ops {
		for _, word := range words {
			ops[i] = append(ops[i], string(word))
		}
	}
	return json.NewEncoder(os.Stdout).Encode(Do(s.Target, ops...))
}

// Empty removes all below a test's directory, also what is too deep or has a
// mode that t.TempDir cannot cope with, such as an overlay's work directory.
func Empty(dir string) error {
	d, err := sys.OpenDir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return sys.Walk(d, func(v sys.Visit) (bool, error) {
		if v.Stat.IsDir() {
			return true, v.Dir.Chmod(v.Node.Name, 0o700)
		}
		return false, v.Dir.Unlink(v.Node.Name)
	}, func(v sys.Visit) error { return v.Dir.Rmdir(v.Node.Name) })
}

// Do does ops in the directory dir and returns what went wrong with each.
func Do(dir string, ops ...Op) []unix.Errno {
	errs := make([]unix.Errno, len(ops))
	for i, op := range ops {
		if err := do(dir, op); err != nil {
			errs[i] = unix.EIO
			if errno, ok := errors.AsType[unix.Errno](err); ok {
				errs[i] = errno
			}
		}
	}
	return errs
}

func do(dir string, op Op) error {
	at := func(i int) string { return dir + "/" + op[i] }
	switch op[0] {
	case "write": // path content: cut and written, or made
		return open(at(1), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, op[2])
	case "append": // path content
		return open(at(1), os.O_APPEND|os.O_WRONLY, op[2])
	case "open": // path: for writing, which copies up, and nothing written
		return open(at(1), os.O_RDWR, "")
	case "quietly": // path content: written with the time put back
		fi, err := os.Stat(at(1))
		if err != nil {
			return err
		}
		return errors.Join(open(at(1), os.O_WRONLY|os.O_TRUNC, op[2]), os.Chtimes(at(1), fi.ModTime(), fi.ModTime()))
	case "touch": // path nanoseconds
		n, err := strconv.ParseInt(op[2], 10, 64)
		if err != nil {
			return err
		}
		ts := []unix.Timespec{unix.NsecToTimespec(n), unix.NsecToTimespec(n)}
		return unix.UtimesNanoAt(unix.AT_FDCWD, at(1), ts, unix.AT_SYMLINK_NOFOLLOW)
	case "mkdir":
		return os.Mkdir(at(1), 0o755)
	case "rm": // a file or an empty directory
		return os.Remove(at(1))
	case "rmtree":
		if _, err := os.Lstat(at(1)); err != nil {
			return err
		}
		return os.RemoveAll(at(1))
	case "rename":
		return os.Rename(at(1), at(2))
	case "link":
		return os.Link(at(1), at(2))
	case "symlink": // target path
		return os.Symlink(op[1], at(2))
	case "fifo":
		return unix.Mkfifo(at(1), 0o644)
	case "socket": // bound by the working directory: addresses are short
		return bind(at(1))
	case "chmod": // path octal
		mode, err := strconv.ParseUint(op[2], 8, 32)
		if err != nil {
			return err
		}
		return unix.Chmod(at(1), uint32(mode))
	case "chown": // path uid gid
		uid, err1 := strconv.Atoi(op[2])
		gid, err2 := strconv.Atoi(op[3])
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		return os.Lchown(at(1), uid, gid)
	case "setxattr": // path name value
		return unix.Lsetxattr(at(1), op[2], []byte(op[3]), 0)
	case "rmxattr": // path name
		return unix.Lremovexattr(at(1), op[2])
	}
	return fmt.Errorf("unknown operation %q", op)
}

// open writes content; to a FIFO, which has no reader, nothing: ENXIO.
func open(path string, flags int, content string) error {
	f, err := os.OpenFile(path, flags|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

func bind(path string) error {
	old, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := os.Chdir(filepath.Dir(path)); err != nil {
		return err
	}
	defer os.Chdir(old)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Base(path)})
}
