package sys

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain takes away the descriptors that a tree of any depth must not need.
func TestMain(m *testing.M) {
	limit := unix.Rlimit{Cur: 256, Max: 256}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// got returns what a call returned, and ends the test if it failed: got(f())(t).
func got[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func tempDir(t *testing.T) *Dir {
	t.Helper()
	d, err := OpenDir(t.TempDir())
	check(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

func write(t *testing.T, d *Dir, name, content string) {
	t.Helper()
	f, err := d.OpenFile(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o644)
	check(t, err)
	_, err = f.WriteString(content)
	check(t, errors.Join(err, f.Close()))
}

func read(t *testing.T, d *Dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(d.Name(), name))
	check(t, err)
	return string(b)
}

func wantErrno(t *testing.T, what string, err error, want unix.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s = %v, want %v", what, err, want)
	}
}

func TestOpenFollowsNothing(t *testing.T) {
	d := tempDir(t)
	check(t, d.Mkdir("a", 0o755))
	a := got(d.Sub("a"))(t)
	defer a.Close()
	check(t, a.Mkdir("b", 0o755))
	check(t, d.Symlink("a", "link"))
	check(t, d.Symlink("/", "root"))
	check(t, d.Mknod("fifo", unix.S_IFIFO|0o644, 0))

	for _, tt := range []struct {
		rel  string
		want unix.Errno
	}{
		{"link", unix.ENOTDIR}, {"link/b", unix.ELOOP}, {"root/etc", unix.ELOOP},
		{"..", unix.EXDEV}, {"a/../..", unix.EXDEV}, {"fifo", unix.ENOTDIR}, {"no", unix.ENOENT},
	} {
		sub, err := d.Sub(tt.rel)
		wantErrno(t, "Sub("+tt.rel+")", err, tt.want)
		if err == nil {
			sub.Close()
		}
	}
	_, err := d.OpenFD("link", unix.O_RDONLY, 0)
	wantErrno(t, "OpenFD(link)", err, unix.ELOOP)
	_, err = OpenDir(d.Name() + "/link")
	wantErrno(t, "OpenDir(link)", err, unix.ENOTDIR)
	_, err = OpenDir("relative")
	wantErrno(t, "OpenDir(relative)", err, unix.EINVAL)
	proc := got(OpenDir("/proc"))(t)
	defer proc.Close()
	_, err = proc.Sub("self/fd")
	wantErrno(t, "Sub(self/fd)", err, unix.ELOOP)
	root := got(OpenDir("/"))(t)
	defer root.Close()
	_, err = root.Sub("proc/1")
	wantErrno(t, "Sub(proc/1) over a mount", err, unix.EXDEV)

	same := got(d.Sub(""))(t)
	defer same.Close()
	if x, y := got(d.Stat(""))(t), got(same.Stat(""))(t); x.Identity() != y.Identity() {
		t.Errorf(`Sub("") is %+v, want %+v`, y.Identity(), x.Identity())
	}
}

func TestOpenFIFODoesNotHang(t *testing.T) {
	d := tempDir(t)
	check(t, d.Mknod("fifo", unix.S_IFIFO|0o644, 0))
	fd, err := d.OpenFD("fifo", unix.O_RDONLY, 0)
	check(t, err)
	s, err := StatFD(fd)
	check(t, errors.Join(err, unix.Close(fd)))
	if s.Type() != unix.S_IFIFO {
		t.Errorf("type = %o, want a FIFO", s.Type())
	}
}

func TestRenameReplacesNothing(t *testing.T) {
	d := tempDir(t)
	check(t, d.Mkdir("sub", 0o755))
	sub := got(d.Sub("sub"))(t)
	defer sub.Close()
	write(t, d, "a", "A")
	write(t, sub, "b", "B")

	err := d.Rename("a", sub, "b")
	wantErrno(t, "Rename over b", err, unix.EEXIST)
	if link, ok := errors.AsType[*os.LinkError](err); !ok || link.Old != d.Name()+"/a" || link.New != d.Name()+"/sub/b" {
		t.Errorf("Rename error %v does not name both sides", err)
	}
	check(t, d.Exchange("a", sub, "b"))
	if a, b := read(t, d, "a"), read(t, sub, "b"); a != "B" || b != "A" {
		t.Errorf("after Exchange a, b = %q, %q", a, b)
	}
	wantErrno(t, "Exchange with nothing", d.Exchange("a", sub, "c"), unix.ENOENT)
	check(t, d.Rename("a", sub, "c"))
	check(t, sub.Replace("c", sub, "b"))
	if b := read(t, sub, "b"); b != "B" {
		t.Errorf("after Replace b = %q", b)
	}
	check(t, sub.Link("b", d, "hard"))
	wantErrno(t, "Link over a name", sub.Link("b", d, "hard"), unix.EEXIST)
	if s := got(d.Stat("hard"))(t); s.Nlink != 2 {
		t.Errorf("links = %d, want 2", s.Nlink)
	}
	check(t, d.Sync())
}

func TestMetadataOfTheEntryItself(t *testing.T) {
	d := tempDir(t)
	write(t, d, "file", "x")
	check(t, d.Symlink("file", "link"))
	check(t, d.Mkdir("dir", 0o755))

	for _, mode := range []uint32{0, 0o444, 0o4755, 0o600} {
		check(t, d.Chmod("file", mode))
		if s := got(d.Stat("file"))(t); s.Perm() != mode {
			t.Errorf("mode = %o, want %o", s.Perm(), mode)
		}
		check(t, d.chmodByProc("file", mode^0o100))
		if s := got(d.Stat("file"))(t); s.Perm() != mode^0o100 {
			t.Errorf("mode by /proc = %o, want %o", s.Perm(), mode^0o100)
		}
	}
	check(t, d.Chmod("file", 0o600))
	wantErrno(t, "Chmod of a link", d.Chmod("link", 0o600), unix.EOPNOTSUPP)
	check(t, d.Chmod("", 0o711))
	if s := got(d.Stat(""))(t); s.Perm() != 0o711 {
		t.Errorf("mode of the directory = %o, want 711", s.Perm())
	}

	for _, want := range []Time{0, -1, 1, -1_500_000_000, 1_700_000_000_123_456_789} {
		for _, name := range []string{"file", "link", ""} {
			check(t, d.SetTimes(name, KeepTime, want))
			if s := got(d.Stat(name))(t); s.Mtime != want {
				t.Errorf("mtime of %q = %d, want %d", name, s.Mtime, want)
			}
		}
	}
	before := got(d.Stat("file"))(t)
	check(t, d.SetTimes("file", KeepTime, KeepTime))
	if s := got(d.Stat("file"))(t); s.Mtime != before.Mtime || s.Atime != before.Atime {
		t.Errorf("KeepTime changed %+v to %+v", before, s)
	}
	check(t, d.Chown("link", os.Getuid(), os.Getgid()))
	check(t, d.Chown("", -1, -1))
	check(t, d.Access("file", unix.W_OK))
	check(t, d.Access("", unix.W_OK))
	wantErrno(t, "Access to execute", d.Access("file", unix.X_OK), unix.EACCES)
	if target := got(d.Readlink("link"))(t); target != "file" {
		t.Errorf("target = %q", target)
	}
	long := strings.Repeat("x/", 1500)
	check(t, d.Symlink(long, "long"))
	if target := got(d.Readlink("long"))(t); target != long {
		t.Errorf("long target has %d bytes, want %d", len(target), len(long))
	}
}

func TestXattrs(t *testing.T) { xattrs(t) }

func TestXattrsBefore613(t *testing.T) {
	before := olderThan613.Swap(true)
	defer olderThan613.Store(before)
	xattrs(t)
}

func xattrs(t *testing.T) {
	d := tempDir(t)
	write(t, d, "file", "x")
	check(t, d.Symlink("file", "link"))
	big := bytes.Repeat([]byte("v"), 3000)
	for _, name := range []string{"file", ""} {
		check(t, d.SetXattr(name, "user.a", []byte("1")))
		check(t, d.SetXattr(name, "user.empty", nil))
		if name != "" {
			check(t, d.SetXattr(name, "user.big", big))
		}
		attrs := got(d.Xattrs(name))(t)
		if string(attrs["user.a"]) != "1" || attrs["user.empty"] == nil || len(attrs["user.empty"]) != 0 {
			t.Errorf("Xattrs(%q) = %q", name, attrs)
		}
		if name != "" && !bytes.Equal(attrs["user.big"], big) {
			t.Errorf("big value has %d bytes, want %d", len(attrs["user.big"]), len(big))
		}
		check(t, d.RemoveXattr(name, "user.a"))
		wantErrno(t, "RemoveXattr twice", d.RemoveXattr(name, "user.a"), unix.ENODATA)
		_, err := d.Xattr(name, "user.a")
		wantErrno(t, "Xattr of none", err, unix.ENODATA)
	}
	if attrs := got(d.Xattrs("link"))(t); attrs["user.empty"] != nil {
		t.Errorf("the link shows its target's xattrs: %q", attrs)
	}
	proc := got(OpenDir("/proc"))(t)
	defer proc.Close()
	if attrs, err := proc.Xattrs("self"); err != nil || attrs["user.a"] != nil {
		t.Errorf("Xattrs on proc = %q, %v", attrs, err)
	}
}

func TestCopyFileKeepsHoles(t *testing.T) {
	d := tempDir(t)
	for name, make := range map[string]func(f *os.File) error{
		"empty": func(*os.File) error { return nil },
		"small": func(f *os.File) error { _, err := f.WriteString("content"); return err },
		"hole in the middle, at the end": func(f *os.File) error {
			_, err1 := f.WriteAt([]byte("first"), 0)
			_, err2 := f.WriteAt([]byte("later"), 64<<20)
			return errors.Join(err1, err2, f.Truncate(128<<20))
		},
		"only a hole": func(f *os.File) error { return f.Truncate(64 << 20) },
	} {
		t.Run(name, func(t *testing.T) {
			src := got(os.CreateTemp(d.Name(), "src"))(t)
			dst := got(os.CreateTemp(d.Name(), "dst"))(t)
			defer src.Close()
			defer dst.Close()
			check(t, make(src))
			check(t, CopyFile(dst, src))
			a, b := got(os.ReadFile(src.Name()))(t), got(os.ReadFile(dst.Name()))(t)
			if !bytes.Equal(a, b) {
				t.Fatalf("copy differs: %d and %d bytes", len(a), len(b))
			}
			if s := got(StatFD(int(dst.Fd())))(t); s.Blocks*512 > 1<<20 {
				t.Errorf("the copy takes %d bytes on disk", s.Blocks*512)
			}
			twin := got(os.CreateTemp(d.Name(), "dst"))(t)
			defer twin.Close()
			check(t, copyBytes(int(twin.Fd()), int(src.Fd()), 0, int64(min(len(a), 1<<16))))
			if c := got(os.ReadFile(twin.Name()))(t); !bytes.Equal(c, a[:min(len(a), 1<<16)]) {
				t.Errorf("copyBytes differs")
			}
		})
	}
}

func TestStatAgreesWithOS(t *testing.T) {
	d := tempDir(t)
	start := Time(time.Now().Add(-time.Minute).UnixNano())
	write(t, d, "file", "12345")
	s := got(d.Stat("file"))(t)
	fi := got(os.Lstat(d.Name() + "/file"))(t)
	if s.Size != 5 || s.Mtime != Time(fi.ModTime().UnixNano()) || s.Ctime < start || !s.IsRegular() || s.UID != uint32(os.Getuid()) || s.Nlink != 1 {
		t.Errorf("Stat = %+v", s)
	}
	var st unix.Stat_t
	check(t, unix.Lstat("/dev/null", &st))
	dev := got(OpenDir("/dev"))(t)
	defer dev.Close()
	if n := got(dev.Stat("null"))(t); n.Rdev != st.Rdev || n.Dev != st.Dev || n.Type() != unix.S_IFCHR {
		t.Errorf("null: rdev %#x dev %#x, want %#x %#x", n.Rdev, n.Dev, st.Rdev, st.Dev)
	}
	_, err := d.Stat("no")
	wantErrno(t, "Stat of nothing", err, unix.ENOENT)
	if pe, ok := errors.AsType[*os.PathError](err); !ok || pe.Path != d.Name()+"/no" {
		t.Errorf("Stat error %v does not name the path", err)
	}
}
