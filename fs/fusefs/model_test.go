package fusefs

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var (
	seed  = flag.Uint64("seed", 1, "of the model test")
	steps = flag.Int("steps", 600, "of the model test")
)

const (
	seedEnv  = "TRY_TEST_FUSEFS_SEED"
	stepsEnv = "TRY_TEST_FUSEFS_STEPS"
)

// TestModel does random operations on a mount and on a plain directory that
// began alike: each must give the same answer, and both must end alike, on
// this mount, on a new one of the same layer, and in the kernel's overlay of it.
// In every other run the kernel is asked to forget things all the time.
func TestModel(t *testing.T) {
	for i := range uint64(4) {
		t.Run(strconv.FormatUint(*seed+i, 10), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.known = int(i%2) * 8
			fixture(t, l.base(""))
			plain := l.dir + "/plain"
			if err := os.Mkdir(plain, 0o755); err != nil {
				t.Fatal(err)
			}
			fixture(t, plain)
			before := snapshot(t, l.base(""))
			env := []string{seedEnv + "=" + strconv.FormatUint(*seed+i, 10), stepsEnv + "=" + strconv.Itoa(*steps)}
			l.inside(t, "model", env...)
			l.inside(t, "likePlain")
			l.overlay(t, "likePlain")
			if after := snapshot(t, l.base("")); after != before {
				t.Errorf("the base was changed:\n%s", difference(before, after))
			}
		})
	}
}

func init() {
	cases["model"] = model
	cases["likePlain"] = func(t *testing.T, mnt string) {
		want, got := snapshot(t, plainOf(mnt)), snapshot(t, mnt)
		if got != want {
			t.Errorf("not like the plain directory:\n%s", difference(want, got))
		}
	}
}

func plainOf(mnt string) string { return filepath.Join(filepath.Dir(mnt), "plain") }

// fixture is what a base holds.
func fixture(t *testing.T, dir string) {
	t.Helper()
	for _, d := range []string{"d", "d/sub", "d/sub/deep", "e", "empty", "many"} {
		check(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	for name, content := range map[string]string{
		"a": "alpha\n", "b": "beta\n", "d/x": "x", "d/y": strings.Repeat("y", 10000), "d/sub/z": "z\n", "d/sub/deep/w": "w",
		"e/one": "1", "h1": "hard", "zero": "",
	} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	for i := range 40 {
		check(t, os.WriteFile(fmt.Sprintf("%s/many/%02d", dir, i), []byte{byte(i)}, 0o600))
	}
	check(t, os.Link(filepath.Join(dir, "h1"), filepath.Join(dir, "h2")))
	check(t, os.Link(filepath.Join(dir, "h1"), filepath.Join(dir, "d/h3")))
	check(t, os.Symlink("a", filepath.Join(dir, "link")))
	check(t, os.Symlink("nowhere", filepath.Join(dir, "d/broken")))
	check(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	check(t, unix.Setxattr(filepath.Join(dir, "b"), "user.kept", []byte("v"), 0))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// snapshot renders a tree: all that a program can see but times and numbers.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	inodes := make(map[uint64]string)
	check(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var s unix.Stat_t
		if err := unix.Lstat(path, &s); err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %o", rel, s.Mode)
		switch s.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if int64(len(data)) != s.Size {
				return fmt.Errorf("%s: %d bytes, size %d", rel, len(data), s.Size)
			}
			fmt.Fprintf(&b, " %d %x", s.Size, sha256.Sum256(data))
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " -> %s", target)
		}
		if s.Mode&unix.S_IFMT != unix.S_IFDIR {
			if s.Nlink > 1 {
				if first := inodes[s.Ino]; first != "" {
					fmt.Fprintf(&b, " = %s", first)
				} else {
					inodes[s.Ino] = rel
				}
			}
			if s.Mode&unix.S_IFMT == unix.S_IFREG {
				fmt.Fprintf(&b, " links %d", s.Nlink)
			}
		}
		for _, attr := range xattrs(path) {
			fmt.Fprintf(&b, " %s", attr)
		}
		b.WriteByte('\n')
		return nil
	}))
	return b.String()
}

func xattrs(path string) []string {
	buf := make([]byte, 4096)
	n, err := unix.Llistxattr(path, buf)
	if err != nil {
		return nil
	}
	var list []string
	for attr := range strings.SplitSeq(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
		if strings.HasPrefix(attr, "user.") {
			value := make([]byte, 1024)
			n, err := unix.Lgetxattr(path, attr, value)
			list = append(list, fmt.Sprintf("%s=%q,%v", attr, value[:max(n, 0)], err))
		}
	}
	slices.Sort(list)
	return list
}

// difference names the lines that only one of two texts has.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	var b strings.Builder
	for _, line := range w {
		if !slices.Contains(g, line) {
			fmt.Fprintf(&b, "- %s\n", line)
		}
	}
	for _, line := range g {
		if !slices.Contains(w, line) {
			fmt.Fprintf(&b, "+ %s\n", line)
		}
	}
	return b.String()
}

// actor does the operations in one of the two directories.
type actor struct {
	dir  string
	open map[int]*os.File
}

func model(t *testing.T, mnt string) {
	unix.Umask(0o022)
	n, err := strconv.ParseUint(os.Getenv(seedEnv), 10, 64)
	check(t, err)
	count, err := strconv.Atoi(os.Getenv(stepsEnv))
	check(t, err)
	rng := rand.New(rand.NewPCG(n, 0))
	engine := &actor{mnt, make(map[int]*os.File)}
	oracle := &actor{plainOf(mnt), make(map[int]*os.File)}
	var done []string
	for range count {
		op := randomOp(rng)
		done = append(done, op.String())
		want, got := oracle.do(op), engine.do(op)
		if got != want {
			t.Fatalf("seed %d: %v = %s, natively %s\nbefore that:\n%s", n, op, got, want, strings.Join(done[max(0, len(done)-40):], "\n"))
		}
	}
	for _, a := range []*actor{engine, oracle} {
		for _, k := range slices.Sorted(maps.Keys(a.open)) {
			check(t, a.open[k].Close())
		}
	}
	if want, got := snapshot(t, oracle.dir), snapshot(t, engine.dir); got != want {
		t.Fatalf("seed %d: after %d operations:\n%s\n%s", n, count, difference(want, got), strings.Join(done, "\n"))
	}
}

type op struct {
	name   string
	a, b   string
	n, m   int64
	handle int
}

func (o op) String() string {
	return fmt.Sprintf("%s %q %q %d %d #%d", o.name, o.a, o.b, o.n, o.m, o.handle)
}

var opNamesOfModel = []string{
	"create", "create", "write", "write", "write", "append", "truncate", "unlink", "unlink", "mkdir", "mkdir", "rmdir", "rename", "rename", "rename",
	"renameNoReplace", "exchange", "link", "link", "symlink", "chmod", "setxattr", "rmxattr", "list", "list", "stat", "read", "read", "readlink",
	"open", "open", "fwrite", "fread", "ftruncate", "fstat", "close", "punch", "rmtree", "fifo", "copyrange",
}

// randomOp draws from few names, so that operations meet.
func randomOp(rng *rand.Rand) op {
	return op{
		name: opNamesOfModel[rng.IntN(len(opNamesOfModel))], a: randomPath(rng), b: randomPath(rng),
		n: int64(rng.IntN(20000)), m: int64(rng.IntN(3000)), handle: rng.IntN(6),
	}
}

func randomPath(rng *rand.Rand) string {
	dirs := []string{"", "", "d", "d", "d/sub", "d/sub/deep", "e", "empty", "new", "new/sub", "e/sub", "many"}
	names := []string{"a", "b", "x", "y", "z", "w", "one", "h1", "h2", "h3", "link", "broken", "d", "e", "sub", "deep", "new", "empty", "00", "01", "n1", "n2", "zero", "fifo"}
	return filepath.Join(dirs[rng.IntN(len(dirs))], names[rng.IntN(len(names))])
}

// do returns what came of an operation, in words that do not depend on where.
func (c *actor) do(o op) string {
	out, err := c.result(o)
	if err != nil {
		if errno, ok := errors.AsType[unix.Errno](err); ok {
			return "error " + errno.Error()
		}
		return "error " + err.Error()
	}
	return out
}

func (c *actor) result(o op) (string, error) {
	a, b := filepath.Join(c.dir, o.a), filepath.Join(c.dir, o.b)
	data := []byte(strings.Repeat(string(rune('A'+o.n%26)), int(o.m)))
	switch o.name {
	case "create":
		f, err := os.OpenFile(a, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NONBLOCK, os.FileMode(0o600+o.m%0o100))
		if err != nil {
			return "", err
		}
		return "", f.Close()
	case "write", "append":
		flags := os.O_WRONLY | unix.O_NONBLOCK | unix.O_NOFOLLOW
		if o.name == "append" {
			flags |= os.O_APPEND
		}
		f, err := os.OpenFile(a, flags, 0)
		if err != nil {
			return "", err
		}
		defer f.Close()
		if o.name == "append" {
			_, err = f.Write(data)
		} else {
			_, err = f.WriteAt(data, o.n)
		}
		return "", err
	case "truncate":
		var s unix.Stat_t // a FIFO: an overlay answers otherwise than a plain file system
		if err := unix.Lstat(a, &s); err != nil || s.Mode&unix.S_IFMT != unix.S_IFREG {
			return "", err
		}
		return "", unix.Truncate(a, o.n)
	case "unlink":
		return "", unix.Unlink(a)
	case "mkdir":
		return "", unix.Mkdir(a, 0o755)
	case "rmdir":
		return "", unix.Rmdir(a)
	case "rmtree":
		if fi, err := os.Lstat(a); o.m > 500 || err != nil || !fi.IsDir() { // not every time, or nothing is left
			return "", err
		}
		return "", os.RemoveAll(a)
	case "rename":
		return "", unix.Rename(a, b)
	case "renameNoReplace":
		return "", unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_NOREPLACE)
	case "exchange":
		return "", unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	case "link":
		return "", unix.Link(a, b)
	case "symlink":
		return "", unix.Symlink(o.b, a)
	case "fifo":
		return "", unix.Mkfifo(a, 0o600)
	case "chmod":
		if fi, err := os.Lstat(a); err != nil || fi.IsDir() || fi.Mode()&fs.ModeSymlink != 0 {
			return "", err
		}
		return "", unix.Chmod(a, uint32(0o600+o.m%0o200))
	case "setxattr":
		return "", unix.Lsetxattr(a, "user.m"+strconv.Itoa(int(o.m%3)), data[:min(len(data), 100)], 0)
	case "rmxattr":
		return "", unix.Lremovexattr(a, "user.m"+strconv.Itoa(int(o.m%3)))
	case "list":
		if fi, err := os.Stat(a); err != nil || !fi.IsDir() {
			return "", err
		}
		d, err := os.OpenFile(a, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
		if err != nil {
			return "", err
		}
		defer d.Close()
		entries, err := d.ReadDir(-1)
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		var names []string
		for _, e := range entries {
			names = append(names, e.Name()+e.Type().String())
		}
		return strings.Join(names, " "), err
	case "stat":
		var s unix.Stat_t
		err := unix.Lstat(a, &s)
		return look(s), err
	case "read":
		if fi, err := os.Lstat(a); err != nil || !fi.Mode().IsRegular() {
			return "", err
		}
		f, err := os.OpenFile(a, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return "", err
		}
		defer f.Close()
		data, err := io.ReadAll(f)
		return fmt.Sprintf("%x", sha256.Sum256(data)), err
	case "readlink":
		return os.Readlink(a)
	case "copyrange":
		return c.copyRange(a, b, o)
	}
	return c.onHandle(o, a, data)
}

func look(s unix.Stat_t) string {
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		return fmt.Sprintf("%o", s.Mode)
	}
	return fmt.Sprintf("%o %d %d", s.Mode, s.Nlink, s.Size)
}

func (c *actor) copyRange(a, b string, o op) (string, error) {
	in, err := os.OpenFile(a, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer in.Close()
	out, err := os.OpenFile(b, os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer out.Close()
	var x, y unix.Stat_t
	if err := errors.Join(unix.Fstat(int(in.Fd()), &x), unix.Fstat(int(out.Fd()), &y)); err != nil || x.Mode&unix.S_IFMT != unix.S_IFREG || y.Mode&unix.S_IFMT != unix.S_IFREG || x.Ino == y.Ino {
		return "", err
	}
	from, to := int64(0), o.n
	n, err := unix.CopyFileRange(int(in.Fd()), &from, int(out.Fd()), &to, int(o.m), 0)
	return strconv.Itoa(n), err
}

// onHandle does what is done to a file that was opened before, which may have
// been removed, renamed or copied up meanwhile.
func (c *actor) onHandle(o op, a string, data []byte) (string, error) {
	f := c.open[o.handle]
	if o.name == "open" {
		if f != nil {
			return "", nil
		}
		if fi, err := os.Lstat(a); err != nil || !fi.Mode().IsRegular() {
			return "", err
		}
		flags := os.O_RDWR | unix.O_NONBLOCK
		if o.m%2 == 0 {
			flags = os.O_RDONLY | unix.O_NONBLOCK
		}
		f, err := os.OpenFile(a, flags, 0)
		if err == nil {
			c.open[o.handle] = f
		}
		return "", err
	}
	if f == nil {
		return "", nil
	}
	switch o.name {
	case "fwrite":
		n, err := f.WriteAt(data, o.n)
		return strconv.Itoa(n), err
	case "fread":
		buf := make([]byte, o.m)
		n, err := unix.Pread(int(f.Fd()), buf, o.n)
		return fmt.Sprintf("%x", sha256.Sum256(buf[:max(n, 0)])), err
	case "ftruncate":
		return "", f.Truncate(o.n)
	case "fstat":
		var s unix.Stat_t
		err := unix.Fstat(int(f.Fd()), &s)
		return look(s), err
	case "punch":
		return "", unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, o.n, o.m+1)
	case "close":
		delete(c.open, o.handle)
		return "", f.Close()
	}
	panic("unknown operation " + o.name)
}
