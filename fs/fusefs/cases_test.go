package fusefs

import (
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func ino(t *testing.T, path string) uint64 {
	t.Helper()
	var s unix.Stat_t
	check(t, unix.Lstat(path, &s))
	return s.Ino
}

// TestNumbers: an inode keeps its number across copy-up and renames, and a
// copied-up file that is where it was keeps it in the next session, too.
func TestNumbers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	write(t, l.base("a"), "alpha")
	write(t, l.base("b"), "beta")
	check(t, os.MkdirAll(l.base("d/sub"), 0o755))
	var want string
	for _, name := range []string{"a", "b", "d", "d/sub"} {
		want += fmt.Sprintf(" %d", ino(t, l.base(name)))
	}
	l.inside(t, "numbers", "WANT="+want)
	if ino(t, l.layer("a")) == ino(t, l.base("a")) {
		t.Error("a was not copied up")
	}
	l.inside(t, "numbers", "WANT="+want, "AGAIN=1")
}

func numbers(t *testing.T, mnt string) {
	look := func(b, d string) (got string) {
		for _, name := range []string{"a", b, d, d + "/sub"} {
			got += fmt.Sprintf(" %d", ino(t, mnt+"/"+name))
		}
		return got
	}
	want := os.Getenv("WANT")
	if os.Getenv("AGAIN") != "" {
		if got := ino(t, mnt+"/a"); fmt.Sprintf(" %d", got) != want[:len(fmt.Sprintf(" %d", got))] {
			t.Errorf("number %d, want the first of%s", got, want)
		}
		return
	}
	if got := look("b", "d"); got != want {
		t.Errorf("numbers are%s, want%s", got, want)
	}
	write(t, mnt+"/a", "A")
	check(t, os.Chmod(mnt+"/b", 0o600))
	check(t, os.Rename(mnt+"/b", mnt+"/B"))
	check(t, os.Rename(mnt+"/d", mnt+"/D"))
	if got := look("B", "D"); got != want {
		t.Errorf("then numbers are%s, want%s", got, want)
	}
}

// TestOpenRemoved: what is open goes on when its last name is removed, in the
// base or the layer, and when it is copied up after that.
func TestOpenRemoved(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	write(t, l.base("a"), "alpha")
	l.inside(t, "openRemoved")
}

func openRemoved(t *testing.T, mnt string) {
	f, err := os.OpenFile(mnt+"/a", os.O_RDWR, 0)
	check(t, err)
	defer f.Close()
	check(t, os.Remove(mnt+"/a"))
	write(t, mnt+"/a", "another")
	_, err = f.WriteAt([]byte("A"), 0)
	check(t, err)
	got, err := io.ReadAll(f)
	if err != nil || string(got) != "Alpha" {
		t.Errorf("the removed file holds %q, %v", got, err)
	}
	var s unix.Stat_t
	check(t, unix.Fstat(int(f.Fd()), &s))
	if s.Nlink != 0 || s.Size != 5 {
		t.Errorf("%d links, size %d, want 0 and 5", s.Nlink, s.Size)
	}
	check(t, f.Chmod(0o400))
	_, err = f.WriteAt([]byte("!"), 5)
	check(t, err)
	wantContent(t, mnt+"/a", "another")

	// Who may write keeps that right when the mode changes.
	g, err := os.OpenFile(mnt+"/ro", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	check(t, err)
	_, err = g.WriteString("made so")
	check(t, err)
	check(t, g.Close())
	wantContent(t, mnt+"/ro", "made so")
}

// TestLayers reads a chain of layers: each hides what lies below it.
func TestLayers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	write(t, l.base("a"), "base")
	write(t, l.base("b"), "base")
	write(t, l.base("c"), "base")
	check(t, os.Mkdir(l.base("d"), 0o755))
	write(t, l.base("d/x"), "base")
	l.inside(t, "layers", "LEVEL=1")
	l.root.Layers = append([]string{l.dir + "/second"}, l.root.Layers...)
	check(t, os.Mkdir(l.dir+"/second", 0o755))
	before := snapshot(t, l.layer(""))
	l.inside(t, "layers", "LEVEL=2")
	if after := snapshot(t, l.layer("")); after != before {
		t.Errorf("the parent's layer was changed:\n%s", difference(before, after))
	}
}

func chain(t *testing.T, mnt string) {
	if os.Getenv("LEVEL") == "1" {
		write(t, mnt+"/a", "first")
		check(t, os.Remove(mnt+"/b"))
		check(t, os.RemoveAll(mnt+"/d"))
		check(t, os.Mkdir(mnt+"/d", 0o755))
		write(t, mnt+"/d/y", "first")
		return
	}
	wantContent(t, mnt+"/a", "first")
	wantContent(t, mnt+"/c", "base")
	for _, name := range []string{"/b", "/d/x"} {
		_, err := os.Lstat(mnt + name)
		wantErr(t, "lstat "+name, err, unix.ENOENT)
	}
	check(t, os.Remove(mnt+"/a"))
	write(t, mnt+"/b", "second")
	check(t, os.Rename(mnt+"/d", mnt+"/e"))
	wantContent(t, mnt+"/e/y", "first")
	write(t, mnt+"/e/y", "second")
	if entries, err := os.ReadDir(mnt); err != nil || len(entries) != 3 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestModeInTheWay: directories and files whose mode forbids their own owner
// to write are copied up, removed and replaced all the same.
func TestModeInTheWay(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	check(t, os.MkdirAll(l.base("mod/pkg"), 0o755))
	write(t, l.base("mod/pkg/go.mod"), "m")
	check(t, os.Chmod(l.base("mod/pkg/go.mod"), 0o444))
	write(t, l.base("mod/pkg/w"), "w")
	check(t, os.Mkdir(l.base("empty"), 0o555))
	check(t, os.Chmod(l.base("mod/pkg"), 0o555))
	t.Cleanup(func() {
		os.Chmod(l.base("mod/pkg"), 0o755)
		os.Chmod(l.layer("mod/pkg"), 0o755)
	})
	l.inside(t, "private")
	for _, d := range []string{l.base("mod/pkg"), l.layer("mod/pkg")} {
		if fi, err := os.Stat(d); err != nil || fi.Mode().Perm() != 0o555 {
			t.Errorf("%s: %v, %v, want mode 0555", d, fi, err)
		}
	}
}

func private(t *testing.T, mnt string) {
	write(t, mnt+"/mod/pkg/w", "written") // a copy-up into a directory of mode 0555
	check(t, os.Chmod(mnt+"/mod/pkg/go.mod", 0o644))
	write(t, mnt+"/mod/pkg/go.mod", "new")
	wantContent(t, mnt+"/mod/pkg/w", "written")
	check(t, os.Remove(mnt+"/empty"))
	_, err := os.Lstat(mnt + "/empty")
	wantErr(t, "lstat", err, unix.ENOENT)
}

// TestPassthrough: what is in the layer is read and written without us, and
// what was opened before it was copied up sees the copy.
func TestPassthrough(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	write(t, l.base("log"), "one\n")
	l.opts.Passthrough = true
	s := l.inside(t, "passthrough")
	if s == nil || t.Failed() || os.Getuid() != 0 {
		return
	}
	if calls := s.Calls(); calls["WRITE"] > 1 || calls["OPEN"] < 4 {
		t.Errorf("%v: want one WRITE, to what was open before it was copied up", calls)
	}
	if calls := s.Calls(); calls["CREATE"] != 2 || calls["MKNOD"] > 0 {
		t.Errorf("%v: want two files made and opened at once", calls)
	}
}

func passed(t *testing.T, mnt string) {
	reader, err := os.Open(mnt + "/log")
	check(t, err)
	defer reader.Close()
	f, err := os.OpenFile(mnt+"/log", os.O_WRONLY|os.O_APPEND, 0)
	check(t, err)
	_, err = f.WriteString("two\n")
	check(t, err)
	got, err := io.ReadAll(reader)
	if err != nil || string(got) != "one\ntwo\n" {
		t.Errorf("the earlier reader sees %q, %v", got, err)
	}
	check(t, f.Close())

	n, err := os.OpenFile(mnt+"/new", os.O_RDWR|os.O_CREATE, 0o644)
	check(t, err)
	defer n.Close()
	for range 100 {
		_, err = n.WriteString("0123456789")
		check(t, err)
	}
	m, err := unix.Mmap(int(n.Fd()), 0, 1000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check(t, err)
	m[0] = 'X'
	check(t, unix.Munmap(m))
	check(t, os.Remove(mnt+"/new"))
	head := make([]byte, 3)
	if _, err := n.ReadAt(head, 0); err != nil || string(head) != "X12" {
		t.Errorf("the mapped file begins with %q, %v", head, err)
	}
	var s unix.Stat_t
	check(t, unix.Fstat(int(n.Fd()), &s))
	if s.Size != 1000 {
		t.Errorf("size %d, want 1000", s.Size)
	}
	write(t, mnt+"/again", "a")
	write(t, mnt+"/again", "bb")
	wantContent(t, mnt+"/again", "bb")
}

// TestRoundTrips counts what the kernel asks us for what programs do most.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	check(t, os.MkdirAll(l.base("d"), 0o755))
	for i := range 10 {
		write(t, fmt.Sprintf("%s/%d", l.base("d"), i), "content")
	}
	last := make(map[string]uint64)
	want := func(calls string) func(*Server) error {
		return func(s *Server) error {
			now, got := s.Calls(), make(map[string]uint64)
			for name, n := range now {
				// What a test binary's runtime asks is no part of it, nor is what the
				// kernel asks once, or forgets.
				if n > last[name] && name != "FORGET" && name != "BATCH_FORGET" && name != "INTERRUPT" && name != "POLL" {
					got[name] = n - last[name]
				}
			}
			last = now
			if fmt.Sprint(got) != calls && calls != "" {
				return fmt.Errorf("%v, want %s", got, calls)
			}
			return nil
		}
	}
	l.do = map[string]func(*Server) error{
		"begin":             want(""),
		"list and look":     want("map[READDIRPLUS:2]"),
		"read each":         want("map[READ:10]"),
		"do all that again": want("map[]"),
		"look for nothing":  want("map[LOOKUP:1]"),
		"and again":         want("map[]"),
		"make a small file": want("map[GETXATTR:1 MKNOD:1 WRITE:1]"),
		// A change makes the kernel ask for the directory's mode the next time.
		"remove it":        want("map[GETATTR:1 UNLINK:1]"),
		"remove one of d":  want("map[GETATTR:1 UNLINK:1]"),
		"make a directory": want("map[GETATTR:1 LOOKUP:1 MKDIR:1]"),
		"write to one":     want("map[GETATTR:1 GETXATTR:1 WRITE:1]"),
	}
	l.inside(t, "roundTrips")
}

func roundTrips(t *testing.T, mnt string) {
	d := mnt + "/d"
	look := func() {
		fd, err := unix.Open(d, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		check(t, err)
		defer unix.Close(fd)
		for buf := make([]byte, 32<<10); ; {
			n, err := unix.Getdents(fd, buf)
			check(t, err)
			if n == 0 {
				break
			}
		}
		for i := range 10 {
			var s unix.Stat_t
			check(t, unix.Lstat(fmt.Sprintf("%s/%d", d, i), &s))
		}
	}
	read := func() {
		for i := range 10 {
			fd, err := unix.Open(fmt.Sprintf("%s/%d", d, i), unix.O_RDONLY, 0)
			check(t, err)
			_, err = unix.Read(fd, make([]byte, 100))
			check(t, err)
			check(t, unix.Close(fd))
		}
	}
	put := func(name string, flags int) {
		fd, err := unix.Open(d+name, unix.O_WRONLY|flags, 0o644)
		check(t, err)
		_, err = unix.Write(fd, []byte("new"))
		check(t, err)
		check(t, unix.Close(fd))
	}
	var s unix.Stat_t
	check(t, unix.Lstat(d, &s))
	put("/once", unix.O_CREAT) // the kernel learns what it need not ask
	_, err := os.ReadDir(mnt)
	check(t, err)
	check(t, unix.Lstat(d, &s))
	ask(t, "begin")
	look()
	ask(t, "list and look")
	read()
	ask(t, "read each")
	unixLook(t, d)
	read()
	ask(t, "do all that again")
	wantErr(t, "lstat", unix.Lstat(d+"/none", &s), unix.ENOENT)
	ask(t, "look for nothing")
	wantErr(t, "lstat", unix.Lstat(d+"/none", &s), unix.ENOENT)
	ask(t, "and again")
	put("/none", unix.O_CREAT)
	ask(t, "make a small file")
	check(t, unix.Unlink(d+"/none"))
	ask(t, "remove it")
	check(t, unix.Unlink(d+"/1"))
	ask(t, "remove one of d")
	check(t, unix.Mkdir(d+"/sub", 0o755))
	ask(t, "make a directory")
	put("/2", 0)
	ask(t, "write to one")
}

// unixLook opens and looks, but at no time of access, which reading moves.
func unixLook(t *testing.T, d string) {
	t.Helper()
	for i := range 10 {
		var x unix.Statx_t
		check(t, unix.Statx(unix.AT_FDCWD, fmt.Sprintf("%s/%d", d, i), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_SIZE|unix.STATX_MTIME, &x))
	}
}

// TestInPlace: directories in the place of one of the base are not merged with
// it, made there or moved there, in this session and later, by either engine.
func TestInPlace(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, d := range []string{"made", "moved", "over"} {
		check(t, os.Mkdir(l.base(d), 0o755))
		write(t, l.base(d)+"/old", "old")
	}
	l.inside(t, "inPlace", "FIRST=1")
	l.inside(t, "inPlace")
	l.overlay(t, "inPlace")
}

func inPlace(t *testing.T, mnt string) {
	if os.Getenv("FIRST") != "" {
		for _, d := range []string{"/made", "/moved"} {
			check(t, os.RemoveAll(mnt+d))
		}
		check(t, os.Remove(mnt+"/over/old"))
		check(t, os.Mkdir(mnt+"/made", 0o755))
		check(t, os.Mkdir(mnt+"/a", 0o755))
		check(t, os.Mkdir(mnt+"/b", 0o755))
		check(t, unix.Rename(mnt+"/a", mnt+"/moved"))
		check(t, unix.Rename(mnt+"/b", mnt+"/over")) // os.Rename would not even try
	}
	entries, err := os.ReadDir(mnt)
	if err != nil || len(entries) != 3 {
		t.Errorf("%v, %v", entries, err)
	}
	for _, d := range []string{"/made", "/moved", "/over"} {
		if entries, err := os.ReadDir(mnt + d); err != nil || len(entries) != 0 {
			t.Errorf("%s has %v, %v", d, entries, err)
		}
	}
}
