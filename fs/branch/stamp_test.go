package branch

import (
	"context"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

func ctimeOf(t *testing.T, path string) sys.Time {
	t.Helper()
	dir, err := sys.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	st, err := dir.Stat("")
	if err != nil {
		t.Fatal(err)
	}
	return st.Ctime
}

// TestStampTellsBeforeFromAfter writes right before and right after a stamp,
// and holds the change times against it by the rule that the stamp names.
func TestStampTellsBeforeFromAfter(t *testing.T) {
	w := newWorld(t)
	for _, without := range []string{"", "multigrain"} {
		t.Run("without "+without, func(t *testing.T) {
			t.Setenv("TRY_TEST_NO", without)
			wrong := 0
			for range 100 {
				before, after := mkdir(t.TempDir(), "a", 0o700), mkdir(t.TempDir(), "b", 0o700)
				if err := os.Chmod(before, 0o700); err != nil {
					t.Fatal(err)
				}
				b := w.create("")
				if err := b.WaitStamp(context.Background()); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(after, 0o700); err != nil {
					t.Fatal(err)
				}
				for _, r := range b.Roots {
					drifted := func(c sys.Time) bool { return c > r.Stamp || c == r.Stamp && !r.Strict }
					if drifted(ctimeOf(t, before)) {
						wrong++ // a conflict that is none: allowed, but rare
					}
					if !drifted(ctimeOf(t, after)) {
						t.Fatalf("a write after the fork, at %d, counts as before it: stamp %d, strict %v", ctimeOf(t, after), r.Stamp, r.Strict)
					}
					if without == "multigrain" && !r.Strict {
						t.Fatal("without exact times the stamp is not strict")
					}
				}
				if err := b.Discard(); err != nil {
					t.Fatal(err)
				}
			}
			if wrong > 8 {
				t.Errorf("%d of 400 writes before the fork count as after it", wrong)
			}
		})
	}
}

// fakeFile is a stamp file on a file system with another clock.
type fakeFile struct {
	times []sys.Time // one for each touch; the last stays
	at    int
}

func (f *fakeFile) touch() error {
	f.at = min(f.at+1, len(f.times))
	return nil
}

func (f *fakeFile) ctime() (sys.Time, error) { return f.times[max(f.at-1, 0)], nil }

func TestStampOfOtherClocks(t *testing.T) {
	t.Parallel()
	coarse, err := Now(unix.CLOCK_REALTIME_COARSE)
	if err != nil {
		t.Fatal(err)
	}
	second := coarse - coarse%1e9
	if second == coarse {
		second -= 1e9
	}
	for _, want := range []sys.Time{second, coarse - 5e9, coarse + 3600e9} {
		got, err := takeStamp(&fakeFile{times: []sys.Time{want}})
		if err != nil || got != (stamp{time: want}) {
			t.Errorf("takeStamp on a file system that says %d = %+v, %v; want that time, not strict", want, got, err)
		}
	}
}

func TestStampInLeavesNoTrace(t *testing.T) {
	t.Parallel()
	dir, err := sys.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	before, err := dir.Stat("")
	if err != nil {
		t.Fatal(err)
	}
	first, err := stampIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := stampIn(dir)
	if err != nil || second.time < first.time {
		t.Errorf("stamps %d, then %d, %v", first.time, second.time, err)
	}
	after, err := dir.Stat("")
	if err != nil || after.Mtime != before.Mtime {
		t.Errorf("stampIn moved the directory's time")
	}
	if entries, err := dir.Entries(); err != nil || len(entries) > 0 {
		t.Errorf("stampIn left %v, %v", entries, err)
	}
}

// TestOtherBootOtherMachine: what was never synced is damaged after a boot; a
// kept branch is not; another machine's is left alone.
func TestOtherBootOtherMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kept, lost, foreign := w.create("kept"), w.create("lost"), w.create("foreign")
	if err := kept.Keep(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*Branch{kept, lost} {
		b.Boot = "of-another-boot"
		if err := b.Save(); err != nil {
			t.Fatal(err)
		}
	}
	foreign.Machine = "another"
	if err := foreign.Save(); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*Branch{kept, lost, foreign} {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.state(kept.ID); got != Kept {
		t.Errorf("a kept branch of another boot is %v", got)
	}
	if got := w.state(lost.ID); got != Damaged {
		t.Errorf("a running branch of another boot is %v, want damaged", got)
	}
	machine, err := machineID()
	if err != nil {
		t.Fatal(err)
	}
	if machine != "" {
		if b, err := w.store.Open("foreign"); err == nil {
			b.Close()
			t.Error("a branch of another machine was opened")
		}
	}
	b, err := w.store.Open("lost")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if b.State != Damaged {
		t.Errorf("opened as %v, want damaged", b.State)
	}
	if err := b.SetState(Committing); err == nil {
		t.Error("a damaged branch became committing without being kept first")
	}
	if err := b.Keep(context.Background()); err != nil || b.State != Kept {
		t.Errorf("Keep of a damaged branch = %v, state %v", err, b.State)
	}
}

func TestJournalMakesItCommitting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.create("otter")
	if err := os.WriteFile(b.Path()+"/"+journalName, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got := w.state(b.ID); got != Committing {
		t.Errorf("state with a journal = %v, want committing", got)
	}
	if ids, err := w.store.Pending(); err != nil || !slices.Equal(ids, []string{b.ID}) {
		t.Errorf("Pending = %v, %v; want the branch", ids, err)
	}
	again, err := w.store.Open("otter")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Discard(); err == nil {
		t.Error("a branch with a journal was discarded")
	}
}

// TestRootIsStillItself: a root of the same name that is another directory is
// not the branch's any more (H19).
func TestRootIsStillItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.create("")
	i := slices.IndexFunc(b.Roots, func(r Root) bool { return r.Path == w.path("other") })
	if err := os.Rename(w.path("other"), w.path("other.old")); err != nil {
		t.Fatal(err)
	}
	if err := b.CheckRoot(i); err == nil {
		t.Error("CheckRoot of a root that is gone = nil")
	}
	mkdir(w.dir, "other", 0o755)
	if err := b.CheckRoot(i); err == nil {
		t.Error("CheckRoot of another directory of that name = nil")
	}
	if _, err := w.store.Create(w.options("")); err == nil {
		t.Error("Create over a root that was replaced = nil error")
	}
}

func TestTrashIsDeep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.create("")
	layer, err := b.Layer(0)
	if err != nil {
		t.Fatal(err)
	}
	at, err := sys.OpenDir(layer)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 { // a path of 15,000 bytes; sys tests the walk much deeper
		if err := at.Mkdir("deep", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := at.Sub("deep")
		if err != nil {
			t.Fatal(err)
		}
		at.Close()
		at = next
	}
	at.Close()
	if err := b.Discard(); err != nil {
		t.Fatal(err)
	}
	w.checkTidy()
}
