package branch

import (
	"os"
	"testing"
)

func TestRecycleMakesTheSpareAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.create("otter")
	id, path := b.ID, b.Path()
	// What a kernel overlay leaves in the work directory of a root that was
	// mounted, with the attribute that it sets on the layer.
	if err := os.MkdirAll(path+"/w0/work/incompat/volatile", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+"/w0/work/incompat/volatile/dirty", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/w0/work/incompat/volatile", "/w0/work/incompat", "/w0/work"} {
		if err := os.Chmod(path+dir, 0); err != nil {
			t.Fatal(err)
		}
	}
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
