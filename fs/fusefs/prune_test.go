package fusefs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPrune has the kernel forget what nobody uses of a tree, and nothing else.
func TestPrune(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for d := range 20 {
		dir := l.base(fmt.Sprint(d))
		check(t, os.Mkdir(dir, 0o755))
		for f := range 50 {
			write(t, fmt.Sprintf("%s/%d", dir, f), fmt.Sprint(d, f))
			write(t, fmt.Sprintf("%s-%d", dir, f), "")
		}
	}
	known := func(s *Server) int {
		s.tree.table.mu.Lock()
		defer s.tree.table.mu.Unlock()
		return len(s.tree.byID)
	}
	l.do = map[string]func(*Server) error{"prune": func(s *Server) error {
		if n := known(s); n < 2_000 {
			return fmt.Errorf("only %d nodes", n)
		}
		s.tree.table.mu.Lock()
		s.tree.limits.quiet = 10
		s.tree.table.mu.Unlock()
		s.conn.prune(true)
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
			if s.conn.cannotPrune.Load() {
				return errCannotPrune
			}
			if known(s) < 20 {
				return nil
			}
		}
		return fmt.Errorf("%d nodes are left", known(s))
	}}
	l.inside(t, "prune")
}

func olderThan618(t *testing.T) bool {
	var u unix.Utsname
	check(t, unix.Uname(&u))
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	check(t, err)
	return major < 6 || major == 6 && minor < 18
}

var errCannotPrune = errors.New("the kernel knows no FUSE_NOTIFY_PRUNE")

func pruned(t *testing.T, mnt string) {
	check(t, unix.Mount(mnt+"/1/1", mnt+"/2/2", "", unix.MS_BIND, ""))
	defer unix.Unmount(mnt+"/2/2", unix.MNT_DETACH)
	f, err := os.Open(mnt + "/3/3")
	check(t, err)
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 2, unix.PROT_READ, unix.MAP_SHARED)
	check(t, err)
	check(t, os.Chdir(mnt+"/4"))
	write(t, "new", "new")
	check(t, os.Rename("new", "moved"))
	gone, err := os.Open("5")
	check(t, err)
	defer gone.Close()
	check(t, os.Remove("5"))
	walk := func() (list string) {
		check(t, filepath.WalkDir(mnt, func(path string, _ os.DirEntry, err error) error {
			var s unix.Stat_t
			err = errors.Join(err, unix.Lstat(path, &s))
			list += fmt.Sprintln(path, s.Ino, s.Mode, s.Size)
			return err
		}))
		return list
	}
	before := walk()
	if msg := try(t, "prune"); msg == errCannotPrune.Error() && olderThan618(t) {
		t.Skip(msg)
	} else if msg != "" {
		t.Fatal(msg)
	}
	wantContent(t, mnt+"/2/2", "1 1")
	if m[0] != '3' {
		t.Error("the mapping changed")
	}
	if path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err != nil || path != mnt+"/3/3" {
		t.Errorf("the open file is at %s, %v", path, err)
	}
	if cwd, err := os.Getwd(); err != nil || cwd != mnt+"/4" {
		t.Errorf("the working directory is %s, %v", cwd, err)
	}
	wantContent(t, "moved", "new")
	if data, err := io.ReadAll(gone); err != nil || string(data) != "4 5" {
		t.Errorf("the removed file holds %q, %v", data, err)
	}
	if after := walk(); after != before {
		t.Errorf("the tree looks different:\n%s", difference(before, after))
	}
}
