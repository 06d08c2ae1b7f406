package commit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"try/fs/layer/layertest"
	"try/fs/vfs"
)

// reverse undoes or redoes what the rig's store holds, with the number that
// follows the last.
func (r *rig) reverse(fs vfs.FS, o Reversal) ([]Change, []Conflict, error) {
	r.t.Helper()
	rec, err := OpenRecord(r.store())
	check(r.t, err)
	if o.Announce == nil {
		o.Announce = func([]Change) (uint64, error) { return rec.Last + 1, nil }
	}
	o.Protected = []string{r.dir + "/store"}
	return rec.Reverse(context.Background(), fs, o)
}

func (r *rig) undo(fs vfs.FS) error { _, _, err := r.reverse(fs, Reversal{}); return err }
func (r *rig) redo(fs vfs.FS) error { _, _, err := r.reverse(fs, Reversal{Redo: true}); return err }

// committed is a rig whose mixed session is committed, and its base before and
// after.
func committed(t testing.TB, copies bool) (r *rig, before, after map[string]entry) {
	t.Helper()
	r = newRig(t, mixedBase...)
	r.copy = copies
	r.session(mixed...)
	before, after = look(t, r.base()), r.want()
	check(t, r.commit(vfs.Disk()))
	same(t, "base after the commit", look(t, r.base()), after)
	return r, before, after
}

// TestUndo turns a commit with every kind of step back and forth.
func TestUndo(t *testing.T) {
	layertest.Skip(t)
	for _, copies := range []bool{false, true} {
		t.Run(fmt.Sprintf("copy=%t", copies), func(t *testing.T) {
			r, before, after := committed(t, copies)
			for round := range 3 {
				check(t, r.undo(vfs.Disk()))
				same(t, fmt.Sprint("base, undone ", round), look(t, r.base()), before)
				r.wantNames("lk/a = lk2")
				if err := r.undo(vfs.Disk()); !errors.Is(err, ErrNothing) {
					t.Errorf("a second undo: %v, want %v", err, ErrNothing)
				}
				check(t, r.redo(vfs.Disk()))
				same(t, fmt.Sprint("base, redone ", round), look(t, r.base()), after)
				r.wantNames(mixedNames...)
			}
			rec, err := OpenRecord(r.store())
			check(t, err)
			if changed, err := rec.Changed(); err != nil || len(changed) > 0 {
				t.Errorf("changed in the record: %v, %v", changed, err)
			}
		})
	}
}

// TestUndoModel commits random changes, undoes and redoes them, and wants the
// tree before and the tree after, exactly.
func TestUndoModel(t *testing.T) {
	layertest.Skip(t)
	turned := 0
	for round := range uint64(*rounds) {
		t.Run(fmt.Sprintf("seed=%d", *seed+round), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(*seed+round, 7))
			var base, session []op
			for range 30 {
				base = append(base, randomOp(rng, false))
			}
			r := newRig(t)
			layertest.Do(r.base(), base...) // some fail, on nothing there
			age(t, r.base())
			r.root.Stamp = stamp(t, r.dir)
			r.copy = rng.IntN(4) == 0
			for range 2 + rng.IntN(20) {
				session = append(session, randomOp(rng, true))
			}
			layertest.Session(t, r.base(), r.layer(), session...)
			if r.unreadable() || r.plan().Empty() {
				return
			}
			before := look(t, r.base())
			check(t, r.commit(vfs.Disk()))
			after := look(t, r.base())
			for i := range 2 {
				check(t, r.undo(vfs.Disk()))
				same(t, fmt.Sprint("base, undone ", i), look(t, r.base()), before)
				check(t, r.redo(vfs.Disk()))
				same(t, fmt.Sprint("base, redone ", i), look(t, r.base()), after)
			}
			turned++
			if t.Failed() {
				t.Logf("base %q\nsession %q", base, session)
			}
		})
	}
	t.Logf("%d of %d sessions undone and redone", turned, *rounds)
	if turned == 0 {
		t.Error("nothing was ever undone")
	}
}

// TestUndoDrift: what somebody changed since the commit is a conflict and
// stays; with Partial the rest is undone, and can be redone.
func TestUndoDrift(t *testing.T) {
	layertest.Skip(t)
	for _, c := range []struct {
		name   string
		theirs []op
		at     string
		why    string
	}{
		{"written", []op{{"append", "d/a", " by others"}}, "d/a", "modified since the commit"},
		{"replaced", []op{{"rm", "d/a"}, {"write", "d/a", "theirs"}}, "d/a", "replaced by another since the commit"},
		{"removed", []op{{"rm", "d/n"}}, "d/n", "no longer there since the commit"},
		{"remade", []op{{"write", "d/b", "theirs"}}, "d/b", "made by somebody else since the commit"},
		{"mode", []op{{"chmod", "d/n", "600"}}, "d/n", "its mode changed since the commit"},
		{"below a new directory", []op{{"write", "anew/theirs", "x"}}, "anew", "modified since the commit"},
		{"deep below a new directory", []op{{"chmod", "mod/sub/f", "600"}}, "mod", "something below it was added or changed since the commit"},
		{"metadata", []op{{"chmod", "meta", "640"}}, "meta", "its mode changed since the commit"},
		{"attribute", []op{{"setxattr", "meta", "user.a", "3"}}, "meta", "its attribute user.a changed since the commit"},
		{"parent", []op{{"rename", "d", "d2"}, {"mkdir", "d"}}, "d/a", "the directory was moved or replaced since the commit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, before, after := committed(t, false)
			r.must(r.base(), c.theirs)
			now := look(t, r.base())
			err := r.undo(vfs.Disk())
			conflict, ok := errors.AsType[*ConflictError](err)
			if !ok || conflict.RolledBack {
				t.Fatalf("undo: %v, want a conflict", err)
			}
			if !slices.ContainsFunc(conflict.Conflicts, func(f Conflict) bool { return f.Path == c.at && f.Reason == c.why }) {
				t.Errorf("conflicts %v, want %s: %s", conflict.Conflicts, c.at, c.why)
			}
			same(t, "base after a refusal", look(t, r.base()), now)

			done, left, err := r.reverse(vfs.Disk(), Reversal{Partial: true})
			check(t, err)
			if len(done) == 0 || len(left) != len(conflict.Conflicts) {
				t.Errorf("partly: %d done, left %v, want %v", len(done), left, conflict.Conflicts)
			}
			got := look(t, r.base())
			theirs := func(path string) bool {
				if c.name == "parent" { // theirs lies beside, with all that was committed in it
					return path == "" || path == "d" || strings.HasPrefix(path, "d/") || strings.HasPrefix(path, "d2")
				}
				up, _ := split(c.at)
				return path == c.at || strings.HasPrefix(path, c.at+"/") || path == up
			}
			for path := range now {
				if path != "" && path != "d" && theirs(path) && !got[path].equal(now[path]) {
					t.Errorf("%s: %v, want %v as they left it", path, got[path], now[path])
				}
			}
			drop := func(m map[string]entry) map[string]entry {
				rest := map[string]entry{}
				for path, e := range m {
					if !theirs(path) {
						rest[path] = e
					}
				}
				return rest
			}
			same(t, "the rest, undone", drop(got), drop(before))
			if up, _ := split(c.at); up == "d" && c.name != "parent" && got["d"].mtime == before["d"].mtime {
				t.Errorf("%s has its time from before, but not all that was in it", up)
			}
			check(t, r.redo(vfs.Disk()))
			same(t, "the rest, redone", drop(look(t, r.base())), drop(after))
		})
	}
}

// TestUndoOfOtherNames: what lies in a record and is written to under another
// name, as through a descriptor that was open, is not brought back (H9, H15).
func TestUndoOfOtherNames(t *testing.T) {
	layertest.Skip(t)
	r := newRig(t, op{"write", "a", "old"}, op{"write", "log", "1"}, op{"mkdir", "gone"}, op{"write", "gone/log", "1"}, op{"write", "c", "old"})
	names := []string{"a", "log", "gone/log"}
	for i, name := range names {
		check(t, os.Link(r.base()+"/"+name, fmt.Sprint(r.dir, "/outside", i)))
	}
	r.root.Stamp = stamp(t, r.dir)
	r.session(op{"write", "b", "new"}, op{"rename", "b", "a"}, op{"rm", "log"}, op{"rmtree", "gone"}, op{"append", "c", " new"})
	check(t, r.commit(vfs.Disk()))
	after := look(t, r.base())
	for i := range names {
		check(t, os.WriteFile(fmt.Sprint(r.dir, "/outside", i), []byte("edited in place"), 0o644))
	}
	rec, err := OpenRecord(r.store())
	check(t, err)
	changed, err := rec.Changed()
	check(t, err)
	if len(changed) != 3 {
		t.Errorf("changed in the record: %v, want a, gone and log", changed)
	}
	conflict, ok := errors.AsType[*ConflictError](r.undo(vfs.Disk()))
	if !ok || len(conflict.Conflicts) != 3 || !strings.Contains(conflict.Error(), "is not what it was") {
		t.Fatalf("undo: %v, want three conflicts", conflict)
	}
	same(t, "base after a refusal", look(t, r.base()), after)
	done, left, err := r.reverse(vfs.Disk(), Reversal{Partial: true})
	if err != nil || len(done) != 1 || len(left) != 3 {
		t.Fatalf("partly: %v, %v, %v", done, left, err)
	}
	if got, err := os.ReadFile(r.base() + "/c"); err != nil || string(got) != "old" {
		t.Errorf("c is %q, %v", got, err)
	}
	if got, err := os.ReadFile(r.dir + "/outside0"); err != nil || string(got) != "edited in place" {
		t.Errorf("the other name holds %q, %v", got, err)
	}
}

// TestUndoInOrder: two commits to the same files are undone one after the
// other, and the older not before the newer.
func TestUndoInOrder(t *testing.T) {
	layertest.Skip(t)
	first := newRig(t, op{"mkdir", "d"}, op{"write", "d/f", "0"}, op{"write", "d/g", "0"})
	first.session(op{"append", "d/f", "1"}, op{"chmod", "d/g", "600"}, op{"write", "d/n", "1"})
	zero := look(t, first.base())
	check(t, first.commit(vfs.Disk()))
	one := look(t, first.base())
	second := *first // another branch of the same base
	second.root.Stamp = stamp(t, first.dir)
	second.root.Layer, second.root.Slots = first.dir+"/store/c/layer", first.dir+"/store/c/slots"
	for _, d := range []string{"/store/c", "/store/c/layer", "/store/c/slots"} {
		check(t, os.Mkdir(first.dir+d, 0o755))
	}
	two := commitBeside(t, &second, op{"append", "d/f", "2"}, op{"append", "d/g", "2"}, op{"append", "d/n", "2"})
	if conflict, ok := errors.AsType[*ConflictError](first.undo(vfs.Disk())); !ok || len(conflict.Conflicts) != 3 {
		t.Fatalf("undoing the first: %v, want three conflicts", conflict)
	}
	same(t, "base after a refusal", look(t, first.base()), two)
	turn := func(store string, redo bool, want map[string]entry) {
		t.Helper()
		rec, err := OpenRecord(store)
		check(t, err)
		_, _, err = rec.Reverse(context.Background(), vfs.Disk(), Reversal{Redo: redo, Announce: func([]Change) (uint64, error) { return rec.Last + 1, nil }})
		check(t, err)
		same(t, "base", look(t, first.base()), want)
	}
	for range 2 {
		turn(first.dir+"/store/c", false, one)
		turn(first.store(), false, zero)
		turn(first.store(), true, one)
		turn(first.dir+"/store/c", true, two)
	}
}

// commitBeside commits a session of another branch of r's base.
func commitBeside(t *testing.T, r *rig, ops ...op) map[string]entry {
	t.Helper()
	for i, errno := range layertest.Session(t, r.base(), r.root.Layer, ops...) {
		if errno != 0 {
			t.Fatalf("operation %q: %v", ops[i], errno)
		}
	}
	plan := r.planOf(r.root.Layer)
	job := &Job{Dir: r.dir + "/store/c", ID: "b2", Roots: []Root{r.root}}
	check(t, job.Commit(context.Background(), vfs.Disk(), plan, nil))
	return look(t, r.base())
}
