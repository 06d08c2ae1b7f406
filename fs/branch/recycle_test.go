package branch

import (
	"os"
	"testing"
)

func TestRecycleMakesTheSpareAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.create("otter")
	id := b.ID
	mounted(t, b.Path()+"/w0")
	if err := b.Recycle(); err != nil {
		t.Fatal(err)
	}
	if untidy, err := w.store.Untidy(); err != nil {
		t.Fatal(err)
	} else if _, err := os.Lstat(w.store.Path() + "/" + spareJournal); err == nil && untidy {
		t.Error("a recycled branch left something to tidy")
	}
	again := w.create("badger")
	defer again.Close()
	if again.ID != id {
		t.Errorf("the next branch has id %s, want the recycled %s", again.ID, id)
	}
	if again.Name != "badger" || again.State != Running {
		t.Errorf("the next branch is %q, %v", again.Name, again.State)
	}
}

func TestRecycleDiscardsWhatWasWrittenTo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.create("otter")
	id := b.ID
	if err := os.WriteFile(b.Path()+"/u0/file", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Recycle(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(w.store.Path() + "/trash/" + id); err != nil {
		t.Errorf("a branch with a file in its layer is not in the trash: %v", err)
	}
}

// mounted makes in the work directory of a root what a kernel overlay leaves
// there.
func mounted(t *testing.T, work string) {
	t.Helper()
	if err := os.MkdirAll(work+"/work/incompat/volatile", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(work+"/work/incompat/volatile/dirty", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/work/incompat/volatile", "/work/incompat", "/work"} {
		if err := os.Chmod(work+dir, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMeanwhile: what a run has left in the skeleton is removed in the next one; if
// that is too short, in one that comes later; and never more than once is there.
func TestMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var id string
	for i, clear := range []bool{false, false, true, true} {
		b := w.create("otter")
		if id == "" {
			id = b.ID
		}
		if b.ID != id {
			t.Fatalf("run %d has another skeleton", i)
		}
		work := b.Path() + "/w0"
		if clear {
			b.Meanwhile(true)
			<-b.errand.done
			if left, err := os.ReadDir(work); err != nil || len(left) != 0 {
				t.Errorf("run %d: the work directory holds %v, %v", i, left, err)
			}
		}
		mounted(t, work)
		if err := b.Recycle(); err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(w.store.Path() + "/" + spareName + "/" + id + "/w0")
		if err != nil || len(left) != 1 || left[0].Name() != asideName {
			t.Errorf("run %d leaves %v in the work directory, %v", i, left, err)
		}
		for _, below := range []string{"", "/incompat", "/incompat/volatile"} {
			if st, err := os.Stat(w.store.Path() + "/" + spareName + "/" + id + "/w0/" + asideName + below); err != nil || st.Mode().Perm() != 0o700 {
				t.Errorf("run %d leaves %s%s closed: %v, %v", i, asideName, below, st, err)
			}
		}
	}
}

// TestKeepBesideErrand: what is removed beside a command is out of the way before
// the work directory is emptied.
func TestKeepBesideErrand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 50 {
		b := w.create("otter")
		mounted(t, b.Path()+"/w0")
		if err := b.Recycle(); err != nil {
			t.Fatal(err)
		}
		b = w.create("otter")
		b.Meanwhile(false)
		if err := b.Keep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.Discard(); err != nil {
			t.Fatal(err)
		}
	}
}
