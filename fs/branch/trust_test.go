package branch

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"try/fs/sys"
)

func TestStoreIsRefusedWhereOthersCanReachIt(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name string
		make func(dir string) string // returns the store's path
		want string                  // in the message; "" is no error
	}{
		{"new", func(dir string) string { return filepath.Join(dir, "a/b/store") }, ""},
		{"empty", func(dir string) string { return mkdir(dir, "store", 0o700) }, ""},
		{"open to all", func(dir string) string { return mkdir(dir, "store", 0o755) }, "mode is 0755"},
		{"open to the group", func(dir string) string { return mkdir(dir, "store", 0o710) }, "mode is 0710"},
		{"parent open to all", func(dir string) string { return filepath.Join(mkdir(dir, "p", 0o777), "store") }, "others can write"},
		{"sticky parent", func(dir string) string { return filepath.Join(mkdir(dir, "p", 0o1777), "store") }, ""},
		{"parent of the own group", func(dir string) string { return filepath.Join(mkdir(dir, "p", 0o775), "store") }, ""},
		{"relative", func(dir string) string { return "store" }, "not absolute"},
		{"a link of our own", func(dir string) string {
			mkdir(dir, "real", 0o700)
			return symlink("real", filepath.Join(dir, "link"))
		}, ""},
		{"a link up", func(dir string) string {
			mkdir(dir, "d", 0o700)
			mkdir(dir, "real", 0o700)
			return symlink("../d/../real", filepath.Join(dir, "d", "link"))
		}, ""},
		{"a link to a place open to all", func(dir string) string {
			mkdir(mkdir(dir, "open", 0o777), "real", 0o700)
			return symlink("open/real", filepath.Join(dir, "link"))
		}, "others can write"},
		{"a ring of links", func(dir string) string { return symlink("link", filepath.Join(dir, "link")) }, "too many levels"},
		{"a file", func(dir string) string {
			path := filepath.Join(dir, "store")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				panic(err)
			}
			return path
		}, "not a directory"},
		{"something else in it", func(dir string) string {
			path := mkdir(dir, "store", 0o700)
			mkdir(path, "photos", 0o700)
			return path
		}, "is no store"},
		{"newer", func(dir string) string {
			path := mkdir(dir, "store", 0o700)
			if err := os.WriteFile(filepath.Join(path, "format"), []byte("try store 9\n"), 0o600); err != nil {
				panic(err)
			}
			return path
		}, "newer try"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, err := OpenStore(row.make(t.TempDir()))
			switch {
			case row.want == "" && err != nil:
				t.Errorf("OpenStore = %v, want no error", err)
			case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
				t.Errorf("OpenStore = %v, want an error with %q", err, row.want)
			}
			if s != nil {
				s.Close()
			}
		})
	}
}

func TestStoreOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to another user")
	}
	for _, what := range []string{"store", "parent", "link"} {
		dir := t.TempDir()
		path := mkdir(mkdir(dir, "p", 0o755), "store", 0o700)
		given := path
		switch what {
		case "parent":
			given = filepath.Dir(path)
		case "link":
			path = symlink("p/store", filepath.Join(dir, "link"))
			given = path
		}
		if err := os.Lchown(given, 1001, 1001); err != nil {
			t.Fatal(err)
		}
		s, err := OpenStore(path)
		if _, ok := errors.AsType[*Untrusted](err); !ok {
			t.Errorf("OpenStore with a %s of user 1001 = %v, want *Untrusted", what, err)
		}
		if s != nil {
			s.Close()
		}
	}
}

func TestIsUnmapped(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"         0          0 4294967295\n":                 false,
		"      1001       1001          1\n":                 true,
		"         0       1000          1\n1 100000 65536\n": false,
		"         0       1000          1\n1 100000 65533\n": true,
		"     65534      65534          1\n":                 false,
		"not a map\n":                                        false,
		"0 0 x\n":                                            false,
	} {
		file := filepath.Join(t.TempDir(), "map")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := isUnmapped(file, overflowID); got != want {
			t.Errorf("isUnmapped of %q = %v, want %v", text, got, want)
		}
	}
	if isUnmapped("/nowhere", overflowID) {
		t.Error("isUnmapped without a map = true")
	}
}

func mkdir(dir, name string, mode uint32) string {
	path := filepath.Join(dir, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		panic(err)
	}
	full := os.FileMode(mode & 0o777)
	if mode&0o1000 != 0 {
		full |= os.ModeSticky
	}
	if err := os.Chmod(path, full); err != nil {
		panic(err)
	}
	return path
}

func symlink(target, path string) string {
	if err := os.Symlink(target, path); err != nil {
		panic(err)
	}
	return path
}

// TestForgedStoreIsNotRead puts well-formed stores where one might be looked
// for, and one in the place of a further store that is known: nothing of them
// is listed, opened or deleted (H1).
func TestForgedStoreIsNotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	real := w.create("real")
	forge := func(dir string) []string {
		if err := os.CopyFS(dir, os.DirFS(w.store.Path())); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		return tree(t, dir)
	}
	id := newID()
	places := []string{w.path("home/.try-" + id), w.path("home/.local/state/try"), w.path("tmp/.try-1001"), w.path("other/.try-" + newID())}
	before := map[string][]string{}
	for _, p := range places {
		before[p] = forge(p)
	}
	// The entry of a store that was here once, and has been replaced.
	e := entry{Version: storeFormat, ID: id, Path: text(places[0]), Dir: sys.Identity{Ino: 1, Btime: 1, Type: 1}}
	if err := w.store.writeEntry(e); err != nil {
		t.Fatal(err)
	}
	s := w.open()
	list, err := s.Branches()
	if err != nil || len(list) != 1 || list[0].ID != real.ID {
		t.Errorf("Branches = %v, %v; want the one that was made", list, err)
	}
	if _, err := s.openFurther(id); err == nil {
		t.Error("a store that was replaced was opened")
	}
	if err := errors.Join(real.Discard(), s.Tidy(t.Context()), s.Tidy(t.Context())); err != nil {
		t.Errorf("Discard and Tidy: %v", err)
	}
	if _, err := s.readEntry(id); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the entry of a store that is gone was not forgotten: %v", err)
	}
	for _, p := range places {
		if after := tree(t, p); !slices.Equal(after, before[p]) {
			t.Errorf("%s changed:\n%q\n%q", p, before[p], after)
		}
	}
}

// TestEntryCannotLeadElsewhere: an entry names a directory whose last part is
// made of its own random id, so that no other directory can be meant.
func TestEntryCannotLeadElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	st, err := w.store.dir.Stat("")
	if err != nil {
		t.Fatal(err)
	}
	id := newID()
	for _, e := range []entry{
		{Version: storeFormat, ID: id, Path: text(w.path("home")), Dir: st.Identity()},
		{Version: storeFormat, ID: newID(), Path: text(w.path("home/.try-" + id)), Dir: st.Identity()},
		{Version: storeFormat + 1, ID: id, Path: text(w.path("home/.try-" + id)), Dir: st.Identity()},
	} {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := replaceFile(w.store.stores, id, data, false); err != nil {
			t.Fatal(err)
		}
		if got, err := w.store.readEntry(id); err == nil {
			t.Errorf("readEntry(%s) = %+v, want an error", data, got)
		}
	}
}

// tree lists a directory with modes, times and content.
func tree(t *testing.T, root string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		line := path + " " + st.Mode().String() + " " + st.ModTime().String()
		if st.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += " " + string(text)
		}
		list = append(list, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestAliases(t *testing.T) {
	t.Parallel()
	mounts := []sys.Mount{
		{ID: 1, Dev: "8:1", Root: "/", Target: "/"},
		{ID: 2, Dev: "8:2", Root: "/", Target: "/data"},
		{ID: 3, Dev: "8:2", Root: "/users", Target: "/home"},
		{ID: 4, Dev: "8:1", Root: "/srv", Target: "/mnt"},
	}
	rows := []struct {
		path string
		want []string
	}{
		{"/home/u/.local/state/try", []string{"/data/users/u/.local/state/try"}},
		{"/data/users", []string{"/home"}},
		{"/data/usersx", nil},
		{"/srv/a", []string{"/mnt/a"}},
		{"/etc", nil},
	}
	for _, row := range rows {
		got := Aliases(row.path, mounts)
		if !slices.Equal(got, row.want) {
			t.Errorf("Aliases(%s) = %q, want %q", row.path, got, row.want)
		}
	}
}

// TestFirstRuns: a store that many open for the first time at once, each going
// on at once, is one for all of them.
func TestFirstRuns(t *testing.T) {
	for range 40 {
		path := t.TempDir() + "/store"
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				s, err := OpenStore(path)
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(holding(s.dir, lockName, func() error { return nil }), s.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}
