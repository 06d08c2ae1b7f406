package fusefs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// cases run on a mount, in the process that has mounted it.
var cases = map[string]func(t *testing.T, mnt string){
	"freeze": freeze, "stale": stale, "closed": closed, "closedBusy": closedBusy,
	"outside": outside, "mixture": mixture, "descriptors": descriptors, "linkedAndGone": linkedAndGone, "forget": forgotten, "prune": pruned,
	"hidden": hiddenPaths, "reads": tracked, "numbers": numbers, "openRemoved": openRemoved, "layers": chain, "private": private, "passthrough": passed, "roundTrips": roundTrips, "inPlace": inPlace,
}

// TestInside is run by the process that has the mount, one case at a time.
func TestInside(t *testing.T) {
	if os.Getenv(insideEnv) == "" {
		t.Skip("only on a mount, run by the other tests")
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(t, mountPoint()) })
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	check(t, os.WriteFile(path, []byte(content), 0o644))
}

func wantContent(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s holds %.40q, %v, want %.40q", path, got, err, want)
	}
}

func wantErr(t *testing.T, what string, err error, want unix.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s = %v, want %v", what, err, want)
	}
}

// until waits for what an event from outside brings about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%s: not within ten seconds", what)
		}
	}
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	write(t, l.base("a"), "alpha")
	l.do = map[string]func(*Server) error{
		"freeze": func(s *Server) error { s.Freeze(); return nil },
		"thaw":   func(s *Server) error { s.Thaw(); return nil },
	}
	l.inside(t, "freeze")
}

func freeze(t *testing.T, mnt string) {
	a := mnt + "/a"
	f, err := os.OpenFile(mnt+"/b", os.O_RDWR|os.O_CREATE, 0o644)
	check(t, err)
	defer f.Close()
	ask(t, "freeze")
	wantContent(t, a, "alpha")
	_, err = f.WriteString("x")
	wantErr(t, "write to an open file", err, unix.EROFS)
	wantErr(t, "truncate", os.Truncate(a, 0), unix.EROFS)
	wantErr(t, "create", os.WriteFile(mnt+"/c", nil, 0o644), unix.EROFS)
	wantErr(t, "unlink", os.Remove(a), unix.EROFS)
	wantErr(t, "mkdir", os.Mkdir(mnt+"/d", 0o755), unix.EROFS)
	wantErr(t, "rename", os.Rename(a, mnt+"/z"), unix.EROFS)
	wantErr(t, "link", os.Link(a, mnt+"/z"), unix.EROFS)
	wantErr(t, "symlink", os.Symlink(a, mnt+"/z"), unix.EROFS)
	wantErr(t, "chmod", os.Chmod(a, 0o600), unix.EROFS)
	wantErr(t, "setxattr", unix.Setxattr(a, "user.x", nil, 0), unix.EROFS)
	ask(t, "thaw")
	check(t, os.Remove(a))
}

func TestStale(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	write(t, l.base("a"), strings.Repeat("a", 3*4096))
	check(t, os.Mkdir(l.base("d"), 0o755))
	l.do = map[string]func(*Server) error{"stale": func(s *Server) error { s.Stale(); return nil }}
	l.inside(t, "stale")
}

func stale(t *testing.T, mnt string) {
	wantContent(t, mnt+"/a", strings.Repeat("a", 3*4096)) // all of it is in the kernel's cache
	f, err := os.Open(mnt + "/a")
	check(t, err)
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	check(t, err)
	if m[0] != 'a' {
		t.Fatal("the mapping is wrong from the beginning")
	}
	check(t, os.Chdir(mnt+"/d"))
	ask(t, "stale")
	_, err = os.Lstat(mnt + "/a")
	wantErr(t, "lstat", err, unix.ESTALE)
	_, err = f.ReadAt(make([]byte, 10), 0)
	wantErr(t, "read of an open file", err, unix.ESTALE)
	_, err = os.ReadDir(".")
	wantErr(t, "list the working directory", err, unix.ESTALE)
	wantErr(t, "create", os.WriteFile("new", nil, 0o644), unix.ESTALE)
	var s unix.Statfs_t
	wantErr(t, "statfs", unix.Statfs(mnt, &s), unix.ESTALE)
	if !faults(m) {
		t.Error("a mapping can still be read")
	}
}

// faults says whether reading m is SIGBUS.
func faults(m []byte) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	return m[0] == 0
}

func TestClose(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	write(t, l.base("a"), "alpha")
	l.do = map[string]func(*Server) error{"close": (*Server).Close}
	l.inside(t, "closed")
	l.inside(t, "closedBusy")
}

func closed(t *testing.T, mnt string) {
	f, err := os.Open(mnt + "/a")
	check(t, err)
	defer f.Close()
	ask(t, "close")
	_, err = os.Lstat(mnt + "/b")
	wantErr(t, "lstat", err, unix.ENOTCONN)
	_, err = f.ReadAt(make([]byte, 10), 0)
	wantErr(t, "read", err, unix.ENOTCONN)
}

// closedBusy closes while many calls are under way: none hangs.
func closedBusy(t *testing.T, mnt string) {
	done := make(chan error)
	for i := range 8 {
		go func() {
			for n := 0; ; n++ {
				name := fmt.Sprintf("%s/%d-%d", mnt, i, n)
				if err := errors.Join(os.WriteFile(name, []byte(name), 0o644), os.Remove(name)); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	until(t, "the first files", func() bool {
		entries, err := os.ReadDir(mnt)
		return err == nil && len(entries) > 1
	})
	ask(t, "close")
	for range 8 {
		if err := <-done; !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.ECONNABORTED) {
			t.Errorf("a call ends with %v, want ENOTCONN", err)
		}
	}
}

// TestOutside changes the base behind the mount's back, under what the kernel
// has cached.
func TestOutside(t *testing.T) {
	t.Run("watched", func(t *testing.T) { changeOutside(t, false) })
	t.Run("unwatched", func(t *testing.T) { changeOutside(t, true) })
}

func changeOutside(t *testing.T, unwatched bool) {
	t.Parallel()
	l := newLab(t)
	l.unwatched = unwatched
	check(t, os.MkdirAll(l.base("d/sub"), 0o755))
	for _, name := range []string{"edited", "replaced", "removed", "d/sub/x", "copied", "mode"} {
		write(t, l.base(name), "old")
	}
	replace := func(name, content string) error {
		return errors.Join(os.WriteFile(l.dir+"/tmp", []byte(content), 0o644), os.Rename(l.dir+"/tmp", l.base(name)))
	}
	l.do = map[string]func(*Server) error{
		"change": func(*Server) error {
			return errors.Join(
				os.WriteFile(l.base("edited"), []byte("edited outside"), 0o644), replace("replaced", "replaced outside"),
				os.Remove(l.base("removed")), os.WriteFile(l.base("added"), []byte("added"), 0o644),
				os.Rename(l.base("d"), l.base("e")), replace("copied", "too late"), os.Chmod(l.base("mode"), 0o600))
		},
	}
	l.inside(t, "outside")
}

func outside(t *testing.T, mnt string) {
	for _, name := range []string{"edited", "replaced", "removed", "d/sub/x", "copied", "mode"} {
		wantContent(t, filepath.Join(mnt, name), "old")
	}
	_, err := os.Lstat(mnt + "/added")
	wantErr(t, "lstat", err, unix.ENOENT)
	if entries, err := os.ReadDir(mnt); err != nil || len(entries) != 6 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	write(t, mnt+"/copied", "mine")
	open, err := os.Open(mnt + "/replaced")
	check(t, err)
	defer open.Close()
	ask(t, "change")
	for name, want := range map[string]string{
		"edited": "edited outside", "replaced": "replaced outside", "added": "added", "e/sub/x": "old", "copied": "mine",
	} {
		until(t, name, func() bool {
			got, err := os.ReadFile(filepath.Join(mnt, name))
			return err == nil && string(got) == want
		})
	}
	for _, name := range []string{"removed", "d"} {
		until(t, name+" is gone", func() bool {
			_, err := os.Lstat(filepath.Join(mnt, name))
			return errors.Is(err, unix.ENOENT)
		})
	}
	until(t, "the mode", func() bool {
		fi, err := os.Lstat(mnt + "/mode")
		return err == nil && fi.Mode().Perm() == 0o600
	})
	until(t, "the list", func() bool {
		entries, err := os.ReadDir(mnt)
		return err == nil && len(entries) == 6 && entries[0].Name() == "added"
	})
	got := make([]byte, 3)
	if _, err := open.ReadAt(got, 0); err != nil || string(got) != "old" {
		t.Errorf("what was open holds %q, %v", got, err)
	}
}

const mixed = 40 * 4096

// TestNoMixture replaces a file of the base again and again while it is read:
// it is always one of the two.
func TestNoMixture(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	put := func(c byte) error {
		return errors.Join(os.WriteFile(l.dir+"/tmp", bytes.Repeat([]byte{c}, mixed), 0o644), os.Rename(l.dir+"/tmp", l.base("f")))
	}
	check(t, put('a'))
	n := byte(0)
	l.do = map[string]func(*Server) error{"again": func(*Server) error { n++; return put('a' + n%26) }}
	l.inside(t, "mixture")
}

func mixture(t *testing.T, mnt string) {
	stop, done := make(chan bool), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			got, err := os.ReadFile(mnt + "/f")
			if err != nil && !errors.Is(err, unix.ESTALE) {
				done <- err
				return
			}
			if err == nil && (len(got) != mixed || bytes.Count(got, got[:1]) != mixed) {
				done <- fmt.Errorf("%d bytes, of which %d are %c", len(got), bytes.Count(got, got[:1]), got[0])
				return
			}
		}
	}()
	for range 300 {
		ask(t, "again")
	}
	close(stop)
	check(t, <-done)
}

// TestDescriptors lets a client hold more files open than the server may, of
// which a part has no name any more.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for i := range 600 {
		write(t, l.base(fmt.Sprint(i)), fmt.Sprint(i))
	}
	var most int
	l.do = map[string]func(*Server) error{"count": func(s *Server) error {
		s.tree.fds.mu.Lock()
		defer s.tree.fds.mu.Unlock()
		if most = s.tree.fds.n + int(s.tree.orphans.Load()); most > 100 {
			return fmt.Errorf("%d descriptors", most)
		}
		return nil
	}}
	l.most = 60
	l.inside(t, "descriptors")
}

func descriptors(t *testing.T, mnt string) {
	var open []*os.File
	for i := range 1200 {
		name := fmt.Sprintf("%s/%d", mnt, i)
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		check(t, err)
		defer f.Close()
		_, err = f.WriteAt([]byte(fmt.Sprint(i)), 0)
		check(t, err)
		if i%2 == 0 {
			check(t, os.Remove(name))
		}
		open = append(open, f)
	}
	ask(t, "count")
	for i, f := range open {
		got := make([]byte, 10)
		if n, _ := f.ReadAt(got, 0); string(got[:n]) != fmt.Sprint(i) {
			t.Fatalf("file %d holds %q", i, got[:n])
		}
		_, err := f.WriteAt([]byte("x"), 0)
		check(t, err)
	}
	ask(t, "count")
}

// TestLinkedAndGone: of files of the base that were copied up, got one more
// name, and lost both, nothing is left when nobody has them open any more.
func TestLinkedAndGone(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for i := range 60 {
		write(t, l.base(fmt.Sprint(i)), fmt.Sprint(i))
	}
	l.most = 20 // and so for most of them there are too few descriptors
	l.do = map[string]func(*Server) error{"left": func(s *Server) error {
		left := 0
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
			entries, err := os.ReadDir(l.root.Work + "/" + s.tree.work.name)
			if err != nil {
				return err
			}
			left = len(entries)
			if n := s.tree.orphans.Load(); n == 0 && left <= 1 { // a whiteout
				return nil
			}
		}
		return fmt.Errorf("%d entries in the workshop and %d descriptors are left", left, s.tree.orphans.Load())
	}}
	l.inside(t, "linkedAndGone")
}

func linkedAndGone(t *testing.T, mnt string) {
	var open []*os.File
	for i := range 60 {
		name := fmt.Sprintf("%s/%d", mnt, i)
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		check(t, err)
		defer f.Close()
		_, err = f.WriteString("x")
		check(t, errors.Join(err, os.Link(name, name+"+"), os.Remove(name), os.Remove(name+"+")))
		open = append(open, f)
	}
	for _, f := range open {
		check(t, f.Close())
	}
	ask(t, "left")
}

// TestForget walks a large tree, with few descriptors and little memory for
// each file; when the kernel has forgotten it, so have we. It runs alone, for it
// looks at the heap of this process.
func TestForget(t *testing.T) {
	const entries = 8_080
	l := newLab(t)
	for d := range 80 {
		dir := l.base(fmt.Sprint(d))
		check(t, os.Mkdir(dir, 0o755))
		for f := range 100 {
			check(t, os.WriteFile(fmt.Sprintf("%s/%d", dir, f), nil, 0o644))
		}
	}
	l.most = 100
	var before int64
	l.do = map[string]func(*Server) error{"begin": func(s *Server) error {
		before = heap(s)
		return nil
	}, "walked": func(s *Server) error {
		if n := len(s.tree.all()); n <= entries {
			return fmt.Errorf("only %d nodes", n)
		}
		if n := s.tree.fds.n; n > l.most {
			return fmt.Errorf("%d descriptors, want at most %d", n, l.most)
		}
		if each := (heap(s) - before) / entries; each > 1<<10 {
			return fmt.Errorf("%d bytes of memory for each file", each)
		}
		return nil
	}, "drop": func(s *Server) error {
		var left error
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
			s.conn.dropCaches(s.tree)
			s.tree.table.mu.Lock()
			nodes, keys := len(s.tree.byID), len(s.tree.byKey)
			s.tree.table.mu.Unlock()
			if nodes > 1 || keys > 0 {
				left = fmt.Errorf("%d nodes and %d keys are left", nodes, keys)
				continue
			}
			s.tree.trim() // unless the guard was faster
			now := heap(s) - before
			if now <= entries*128+bufSize {
				return nil
			}
			left = fmt.Errorf("%d bytes of memory are left", now)
		}
		return left
	}}
	l.inside(t, "forget")
}

// heap is how much memory is in use, but for the buffers of readers, who come
// and go.
func heap(s *Server) int64 {
	buffers := func() int64 {
		s.conn.mu.Lock()
		defer s.conn.mu.Unlock()
		return int64(s.conn.readers+len(s.conn.free)) * 2 * bufSize
	}
	before := buffers()
	runtime.GC()
	runtime.GC() // what only finalizers or pools have held is gone then, too
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) - max(before, buffers())
}

func forgotten(t *testing.T, mnt string) {
	ask(t, "begin")
	n := 0
	check(t, filepath.WalkDir(mnt, func(path string, _ os.DirEntry, err error) error {
		n++
		_, err2 := os.Lstat(path)
		return errors.Join(err, err2)
	}))
	if n != 8081 {
		t.Errorf("%d entries, want 8081", n)
	}
	ask(t, "walked")
	ask(t, "drop")
}

func TestHidden(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	check(t, os.MkdirAll(l.base("state/try/x"), 0o755))
	write(t, l.base("state/other"), "o")
	l.opts.Hidden = []string{l.base("state/try"), "/elsewhere"}
	l.inside(t, "hidden")
}

func hiddenPaths(t *testing.T, mnt string) {
	_, err := os.Lstat(mnt + "/state/try")
	wantErr(t, "lstat", err, unix.ENOENT)
	if entries, err := os.ReadDir(mnt + "/state"); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	wantErr(t, "mkdir of a hidden name", os.Mkdir(mnt+"/state/try", 0o755), unix.EPERM)
	wantErr(t, "rename over it", os.Rename(mnt+"/state/other", mnt+"/state/try"), unix.EPERM)
	wantErr(t, "rename of its parent", os.Rename(mnt+"/state", mnt+"/away"), unix.EBUSY)
	check(t, os.Remove(mnt+"/state/other"))
	wantErr(t, "rmdir of its parent", os.Remove(mnt+"/state"), unix.EBUSY)
}

func TestReads(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	check(t, os.MkdirAll(l.base("d/e"), 0o755))
	write(t, l.base("d/read"), "r")
	write(t, l.base("d/not"), "n")
	seen := make(chan string, 100)
	l.opts.Reads = func(rel string, st sys.Stat) {
		if st.Ino == 0 {
			rel = "!" + rel
		}
		seen <- rel
	}
	l.inside(t, "reads")
	close(seen)
	got := make(map[string]bool)
	for rel := range seen {
		got[rel] = true
	}
	if want := "map[!d/e/mine:true !d/e/none:true d/e:true d/read:true]"; fmt.Sprint(got) != want {
		t.Errorf("read were %v, want %s", got, want)
	}
}

func tracked(t *testing.T, mnt string) {
	wantContent(t, mnt+"/d/read", "r")
	_, err := os.ReadDir(mnt + "/d/e")
	check(t, err)
	_, err = os.Lstat(mnt + "/d/e/none")
	wantErr(t, "lstat", err, unix.ENOENT)
	write(t, mnt+"/d/e/mine", "m")
}
