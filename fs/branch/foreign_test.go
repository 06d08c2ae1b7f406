package branch

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

func TestForeign(t *testing.T) {
	t.Parallel()
	me := ids{1000, 1000, []int{1000, 50}}
	for _, row := range []struct {
		mode     uint32
		uid, gid uint32
		want     bool
	}{
		{unix.S_IFREG | 0o644, 1000, 1000, false},
		{unix.S_IFREG | 0o644, 1000, 50, true},
		{unix.S_IFREG | 0o644, 1000, 51, true}, // one's own of a group that is not one's
		{unix.S_IFDIR | 0o755, 0, 0, false},
		{unix.S_IFDIR | 0o1777, 0, 0, true},
		{unix.S_IFREG | 0o666, 0, 0, true},
		{unix.S_IFREG | 0o664, 0, 50, true},
		{unix.S_IFREG | 0o664, 0, 51, false},
		{unix.S_IFREG | 0o664, 0, 1000, true},
		{unix.S_IFLNK | 0o777, 0, 0, false},
		{unix.S_IFSOCK | 0o777, 0, 0, false},
	} {
		if got := me.foreign(sys.Stat{Mode: row.mode, UID: row.uid, GID: row.gid}); got != row.want {
			t.Errorf("foreign(%o, %d:%d) = %v, want %v", row.mode, row.uid, row.gid, got, row.want)
		}
	}
}

// TestFindForeign: what the root gives to files and its first entries are looked
// at.
func TestFindForeign(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	find := func() string {
		t.Helper()
		d, err := sys.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		st, err := d.Stat("")
		if err != nil {
			t.Fatal(err)
		}
		what, err := findForeign(d, st)
		if err != nil {
			t.Fatal(err)
		}
		return what
	}
	for i := range foreignLook + 10 {
		if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if what := find(); what != "" {
		t.Errorf("findForeign of what is one's own = %q", what)
	}
	if err := os.Chmod(dir, 0o300); err != nil {
		t.Fatal(err)
	}
	if what := find(); what != "" {
		t.Errorf("findForeign of what cannot be listed = %q", what)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		return // nobody else can give files away
	}
	for i := range foreignLook + 10 {
		if err := os.Chown(filepath.Join(dir, strconv.Itoa(i)), 0, 4321); err != nil {
			t.Fatal(err)
		}
	}
	if what := find(); !strings.HasPrefix(what, dir+"/") {
		t.Errorf("findForeign of files of another group = %q", what)
	}
	for i := range foreignLook + 10 {
		if err := os.Remove(filepath.Join(dir, strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	for mode, want := range map[uint32]string{0o1777: "", 0o775: "", 0o2775: dir + " gives files another group"} {
		if err := errors.Join(os.Chown(dir, 4321, 4321), unix.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		if what := find(); what != want {
			t.Errorf("findForeign of a directory of mode %o of another user and group = %q, want %q", mode, what, want)
		}
	}
}
