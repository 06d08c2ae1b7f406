package branch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/engine"
	"try/fs/overlay"
	"try/fs/sys"
)

// world is a test's own home: a store, a base, and what the default scope
// needs, on one file system outside the system's temporary directories.
type world struct {
	t      testing.TB
	dir    string
	store  *Store
	mounts []sys.Mount
	roots  []Root
}

func newWorld(t testing.TB) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"home/proj", "tmp", "vartmp", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, dir: dir}
	w.store = w.open()
	if w.mounts, err = sys.Mounts(); err != nil {
		t.Fatal(err)
	}
	w.roots = w.coverage().Roots
	return w
}

func (w *world) open() *Store {
	w.t.Helper()
	s, err := OpenStore(filepath.Join(w.dir, "store"))
	if err != nil {
		w.t.Fatalf("OpenStore: %v", err)
	}
	w.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			w.t.Errorf("Close of the store: %v", err)
		}
	})
	return s
}

func (w *world) path(rel string) string { return filepath.Join(w.dir, rel) }

// coverage is home, the two temporary directories and one more.
func (w *world) coverage() *Coverage {
	w.t.Helper()
	c, err := Roots(CoverageOptions{
		Scope: ScopeUser, Dir: w.path("home/proj"), Home: w.path("home"), Cover: []string{w.path("other")},
		Engines: []engine.Engine{overlay.Overlay{}}, Mounts: w.mounts, Temp: []string{w.path("tmp"), w.path("vartmp")},
	})
	if err != nil {
		w.t.Fatalf("Roots: %v", err)
	}
	return c
}

func (w *world) options(name string) CreateOptions {
	return CreateOptions{
		Name: name, Roots: w.roots, Mounts: w.mounts,
		Command: []string{"sh", "-c", "echo \xff"}, Dir: w.path("home/proj"), Scope: "user",
	}
}

func (w *world) create(name string) *Branch {
	w.t.Helper()
	b, err := w.store.Create(w.options(name))
	if err != nil {
		w.t.Fatalf("Create(%q): %v", name, err)
	}
	w.t.Cleanup(func() { b.Close() })
	return b
}

// state is what the listing says of a branch.
func (w *world) state(id string) State {
	w.t.Helper()
	list, err := w.store.Branches()
	if err != nil {
		w.t.Fatalf("Branches: %v", err)
	}
	for _, info := range list {
		if info.ID == id {
			if info.Err != nil {
				w.t.Fatalf("Branches: %v", info.Err)
			}
			return info.State
		}
	}
	return 0
}

// left lists what is in the store, relative to it, but for what may stay.
func (w *world) left() []string {
	w.t.Helper()
	var list []string
	root := w.store.Path()
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		depth := strings.Count(rel, "/")
		switch {
		case depth == 0 && slices.Contains([]string{".", branchesName, spareName, trashName, commitsName, groupsName, storesName, undoName, formatName, lockName, "trash.lock", "commit.lock", spareJournal}, rel):
			return nil
		case strings.HasPrefix(rel, spareName+"/"):
			if depth == 1 {
				list = append(list, "spare")
			}
			return nil
		}
		list = append(list, rel)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

func TestCreateKeepsWhatItWasTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.create("")
	if err := CheckName(b.Name); err != nil {
		t.Errorf("the default name: %v", err)
	}
	if got := w.state(b.ID); got != Running {
		t.Errorf("state = %v, want running", got)
	}
	if len(b.Roots) != 4 {
		t.Fatalf("Create made %d roots, want 4", len(b.Roots))
	}
	for i, r := range b.Roots {
		if r.Copy || r.Store != "" {
			t.Errorf("%s: layer in store %q, copy %v; want the home store", r.Path, r.Store, r.Copy)
		}
		m, err := b.Mount(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{m.Upper, m.Work} {
			if st, err := os.Stat(dir); err != nil || !st.IsDir() {
				t.Errorf("%s: %v", dir, err)
			}
		}
		base, err := os.Stat(r.Path)
		if err != nil {
			t.Fatal(err)
		}
		if up, err := os.Stat(m.Upper); err != nil || up.Mode() != base.Mode() || !up.ModTime().Equal(base.ModTime()) {
			t.Errorf("layer of %s: %v %v, want mode and time of the base, %v", r.Path, up.Mode(), up.ModTime(), base.ModTime())
		}
		if b.SyncFD(i) == nil {
			t.Errorf("%s: no descriptor to sync with", r.Path)
		}
		if err := b.CheckRoot(i); err != nil {
			t.Errorf("CheckRoot(%d): %v", i, err)
		}
	}
	name := b.Name
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got := w.state(b.ID); got != Interrupted {
		t.Errorf("state after its holder is gone = %v, want interrupted", got)
	}
	again, err := w.store.Open(name)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	defer again.Close()
	if !slices.Equal(again.Command, []string{"sh", "-c", "echo \xff"}) {
		t.Errorf("command = %q, want the bytes as they were", again.Command)
	}
	if again.Roots[0].ID != b.Roots[0].ID || again.Roots[0].Stamp != b.Roots[0].Stamp {
		t.Errorf("root read as %+v, written as %+v", again.Roots[0], b.Roots[0])
	}
}

func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("otter")
	if _, err := w.store.Create(w.options("otter")); !errors.Is(err, ErrExists) {
		t.Errorf("Create of a name that is taken = %v, want ErrExists", err)
	}
	if _, err := w.store.CreateGroup(w.options("otter"), 2); !errors.Is(err, ErrExists) {
		t.Errorf("CreateGroup of a name that is taken = %v, want ErrExists", err)
	}
	if _, err := w.store.Open("nobody"); !errors.Is(err, ErrUnknown) {
		t.Errorf("Open of an unknown name = %v, want ErrUnknown", err)
	}
	if _, err := w.store.Open("otter"); !errors.Is(err, ErrLocked) {
		t.Errorf("Open of a running branch = %v, want ErrLocked", err)
	}
}

func TestDiscardLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for round := range 3 {
		b := w.create("otter")
		layer, err := b.Layer(0)
		if err != nil {
			t.Fatal(err)
		}
		// What a Go module cache and a mode of 0 look like to the trash.
		deep := filepath.Join(layer, "mod", "a", "b")
		if err := os.MkdirAll(deep, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(deep, "f"), []byte("x"), 0); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(filepath.Join(deep, "fifo"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, d := range []string{deep, filepath.Dir(deep), layer} {
			if err := os.Chmod(d, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Discard(); err != nil {
			t.Fatalf("round %d: Discard: %v", round, err)
		}
		if got := w.state(b.ID); got != 0 {
			t.Errorf("round %d: the branch is still listed, as %v", round, got)
		}
		if err := w.store.Tidy(context.Background()); err != nil {
			t.Fatalf("round %d: Tidy: %v", round, err)
		}
		if left := w.left(); !slices.Equal(left, []string{"spare"}) {
			t.Errorf("round %d: left behind: %q", round, left)
		}
		spare := names(t, w.store.spare)
		if err := w.store.Tidy(context.Background()); err != nil {
			t.Fatal(err)
		}
		if again := names(t, w.store.spare); !slices.Equal(again, spare) {
			t.Errorf("round %d: Tidy made another skeleton: %q, then %q", round, spare, again)
		}
		if st, err := os.Stat(w.store.SpareJournal()); err != nil || st.Size() != journalSize {
			t.Errorf("round %d: no spare journal: %v", round, err)
		}
	}
}

func names(t *testing.T, d *sys.Dir) []string {
	t.Helper()
	entries, err := d.Entries()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name)
	}
	return list
}

// TestTrashTouchesNoFile: what lies in the trash may have another name in the
// base, which must stay as it is (H15).
func TestTrashTouchesNoFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.create("")
	layer, err := b.Layer(0)
	if err != nil {
		t.Fatal(err)
	}
	base := w.path("home/precious")
	if err := os.WriteFile(base, []byte("mine"), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(base, filepath.Join(layer, "twin")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(w.path("home"), filepath.Join(layer, "link")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Discard(), w.store.Tidy(context.Background())); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(base)
	if err != nil || st.Mode().Perm() != 0o400 {
		t.Fatalf("the base file with a name in the trash: %v, %v; want mode 0400", st, err)
	}
	if text, err := os.ReadFile(base); string(text) != "mine" {
		t.Errorf("its content = %q, %v", text, err)
	}
}

// TestBranchesAreSpread: where branches begin, ext4 is asked to put each one
// elsewhere.
func TestBranchesAreSpread(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var st unix.Statfs_t
	if err := unix.Statfs(w.store.Path(), &st); err != nil {
		t.Fatal(err)
	}
	if st.Type != unix.EXT4_SUPER_MAGIC {
		t.Skipf("only ext4 can be asked, and this is %#x", st.Type)
	}
	for name, want := range map[string]bool{"spare": true, "trash": true, "undo": false} {
		f, err := os.Open(filepath.Join(w.store.Path(), name))
		if err != nil {
			t.Fatal(err)
		}
		flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if got := flags&0x20000 != 0; got != want {
			t.Errorf("%s has FS_TOPDIR_FL: %t, want %t", name, got, want)
		}
	}
}

func TestStatesFollowTheTable(t *testing.T) {
	t.Parallel()
	for s := Running; s <= Aborted; s++ {
		text, err := s.MarshalText()
		if err != nil {
			t.Errorf("MarshalText(%d): %v", s, err)
		}
		var back State
		if err := back.UnmarshalText(text); err != nil || back != s {
			t.Errorf("UnmarshalText(%q) = %v, %v; want %v", text, back, err, s)
		}
	}
	var s State
	if err := s.UnmarshalText([]byte("unknown")); err == nil {
		t.Error("UnmarshalText(unknown) = nil, want an error")
	}
	w := newWorld(t)
	b := w.create("")
	if err := b.SetState(Committing); err != nil {
		t.Fatal(err)
	}
	if err := b.Discard(); err == nil {
		t.Error("a branch whose commit is not decided was discarded")
	}
	if err := b.SetState(Committed); err != nil {
		t.Fatal(err)
	}
	if err := b.SetState(Kept); err == nil {
		t.Error("committed became kept, which is no move")
	}
}
