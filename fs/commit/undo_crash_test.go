package commit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/layer/layertest"
	"try/fs/sys"
	"try/fs/vfs"
)

// turns is the two directions with what the base is before and after each.
func turns(before, after map[string]entry) []struct {
	name     string
	redo     bool
	from, to map[string]entry
} {
	return []struct {
		name     string
		redo     bool
		from, to map[string]entry
	}{{"undo", false, after, before}, {"redo", true, before, after}}
}

// decide recovers an undoing or redoing that was cut short, as the supervisor
// does, and wants the tree before or the tree after.
func (r *rig) decide(number uint64, from, to map[string]entry) Outcome {
	r.t.Helper()
	o, err := RecoverRecord(vfs.Disk(), r.store(), number)
	if c, ok := errors.AsType[*ConflictError](err); ok && o == RolledBack {
		if len(c.Left) > 0 || c.Conflicts[0].Reason == "" {
			r.t.Errorf("recover: %+v", c)
		}
		err = nil
	}
	check(r.t, err)
	again, err := RecoverRecord(vfs.Disk(), r.store(), number)
	if err != nil || again != o {
		r.t.Errorf("second recovery: %v, %v, first was %v", again, err, o)
	}
	r.turned(o, number, from, to)
	return o
}

// turned wants the tree that belongs to an outcome, and a record that can be
// turned.
func (r *rig) turned(o Outcome, number uint64, from, to map[string]entry) {
	r.t.Helper()
	want := from
	if o == Committed {
		want = to
	} else if err := os.Remove(r.store() + "/" + JournalOf(number)); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	same(r.t, "base, "+o.String(), look(r.t, r.base()), want)
	rec, err := OpenRecord(r.store())
	check(r.t, err)
	if changed, err := rec.Changed(); err != nil || len(changed) > 0 {
		r.t.Errorf("the record, %v: %v, %v", o, changed, err)
	}
}

// TestUndoEachCallFails fails each call of an undo and of a redo in turn, and
// calls of the recovery from that.
func TestUndoEachCallFails(t *testing.T) {
	layertest.Skip(t)
	for _, errno := range []unix.Errno{unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EACCES} {
		for _, dir := range []string{"undo", "redo"} {
			said := map[string]int{}
			n := 0
			for more := true; more; n += step1() {
				t.Run(fmt.Sprintf("%s/%s/%d", dir, unix.ErrnoName(errno), n+1), func(t *testing.T) {
					r, before, after := committed(t, n%2 == 1)
					turn := turns(before, after)[0]
					number := uint64(1)
					if dir == "redo" {
						check(t, r.undo(vfs.Disk()))
						turn, number = turns(before, after)[1], 2
					}
					var failed vfs.Op
					count := 0
					_, _, err := r.reverse(&vfs.Fault{FS: vfs.Disk(), Before: func(op vfs.Op) error {
						if count++; count == n+1 {
							failed = op
							return errno
						}
						return nil
					}}, Reversal{Redo: turn.redo})
					if more = failed.Number > 0; !more {
						check(t, err)
						same(t, "base", look(t, r.base()), turn.to)
						return
					}
					said[r.afterUndoFault(err, failed, errno, number, turn.from, turn.to)]++
					if t.Failed() {
						return
					}
					// Whatever became of it, it can be had now.
					if _, _, err := r.reverse(vfs.Disk(), Reversal{Redo: turn.redo}); err != nil && !errors.Is(err, ErrNothing) {
						t.Errorf("once more: %v", err)
					}
					same(t, "base, once more", look(t, r.base()), turn.to)
				})
			}
			t.Logf("%s %s: %d calls: %v", dir, unix.ErrnoName(errno), n, said)
		}
	}
}

func (r *rig) afterUndoFault(err error, failed vfs.Op, errno unix.Errno, number uint64, from, to map[string]entry) string {
	r.t.Helper()
	c, conflict := errors.AsType[*ConflictError](err)
	switch {
	case err == nil:
		r.t.Errorf("%s failed with %v, and nobody heard", failed, errno)
		return "nothing"
	case !errors.Is(err, errno):
		r.t.Errorf("%s failed with %v: the error does not say so: %v", failed, errno, err)
	}
	if errors.Is(err, ErrUnfinished) {
		_, _ = RecoverRecord(&vfs.Fault{FS: vfs.Disk(), Before: func(op vfs.Op) error {
			if op.Number%5 == 0 {
				return errno
			}
			return nil
		}}, r.store(), number)
		return "unfinished, " + r.decide(number, from, to).String()
	}
	r.turned(Nothing, number, from, to)
	if conflict && len(c.Left) > 0 {
		r.t.Errorf("%s failed: left %v", failed, c.Left)
	}
	if conflict && c.RolledBack {
		return "rolled back"
	}
	return "refused"
}

// TestUndoKilledAtEachCall kills a process at the calls of an undo and of a
// redo, then the recovery, then two recoveries decide, one after the other.
func TestUndoKilledAtEachCall(t *testing.T) {
	layertest.Skip(t)
	for _, part := range []string{"undo", "redo"} {
		ready := func(t *testing.T) (*rig, map[string]entry, map[string]entry, uint64) {
			r, before, after := committed(t, false)
			if part == "undo" {
				return r, after, before, 1
			}
			check(t, r.undo(vfs.Disk()))
			return r, before, after, 2
		}
		r, _, _, _ := ready(t)
		list := points(t, r.dir, turnEnv+"="+part)
		outcomes := map[Outcome]int{}
		for i := 0; i < len(list); i += *every {
			t.Run(part+"/"+list[i], func(t *testing.T) {
				r, from, to, number := ready(t)
				if !run(t, command(part, r.dir, "TRY_TEST_CRASH="+list[i])) {
					t.Fatal("the child was not killed")
				}
				run(t, command("recover", r.dir, fmt.Sprintf("TRY_TEST_CRASH=recover:%d", 1+i%40), fmt.Sprintf("%s=%d", turnEnv, number)))
				outcomes[r.decide(number, from, to)]++
			})
		}
		t.Logf("%s: %d of %d points: %v", part, (len(list)+*every-1) / *every, len(list), outcomes)
		if outcomes[Committed] == 0 || outcomes[Nothing] == 0 {
			t.Errorf("%s: outcomes %v: both must occur", part, outcomes)
		}
	}
}

// TestUndoPower cuts the power before a call of an undo or a redo, draws a disk
// that this can leave, recovers it, and wants the tree before or the one after.
func TestUndoPower(t *testing.T) {
	layertest.Skip(t)
	rng := rand.New(rand.NewPCG(*seed, 3))
	for _, inOrder := range []bool{true, false} {
		for _, redo := range []bool{false, true} {
			outcomes := map[Outcome]int{}
			points := 0
			for n, more := 0, true; more; n += *step2 {
				points++
				for disk := range *disks + 2 {
					r, before, after := committed(t, disk%2 == 1)
					number := uint64(1)
					turn := turns(before, after)[0]
					if redo {
						check(t, r.undo(vfs.Disk()))
						number, turn = 2, turns(before, after)[1]
					}
					grave := r.dir + "/grave"
					check(t, os.Mkdir(grave, 0o755))
					l, err := vfs.NewLossy(grave, inOrder)
					check(t, err)
					count := 0
					_, _, err = r.reverse(&vfs.Fault{FS: l, Before: func(vfs.Op) error {
						if count++; count > n {
							return errCut
						}
						return nil
					}}, Reversal{Redo: redo})
					cut := errors.Is(err, errCut)
					if err != nil && !cut {
						t.Fatalf("cut before call %d: %v", n, err)
					}
					more = more && cut
					check(t, l.Crash(func() bool { return disk == 1 || disk > 1 && rng.IntN(2) == 0 }))
					r.forgetCtimes()
					o, err := RecoverRecord(vfs.Disk(), r.store(), number)
					if c, ok := errors.AsType[*ConflictError](err); ok && o == RolledBack && len(c.Left) == 0 {
						t.Errorf("rolled back: %v", c)
						err = nil
					}
					check(t, err)
					if !cut && o != Committed {
						t.Errorf("it was done, and is %v after the power went", o)
					}
					want := turn.from
					if o == Committed {
						want = turn.to
					}
					same(t, fmt.Sprint("base, ", o), look(t, r.base()), want)
					outcomes[o]++
					if t.Failed() {
						t.Fatalf("in order %t, redo %t, before call %d, disk %d, -seed %d", inOrder, redo, n, disk, *seed)
					}
				}
			}
			t.Logf("in order %t, redo %t: %d points, %d disks each: %v", inOrder, redo, points, *disks+2, outcomes)
		}
	}
}

// TestUndoRollsBack: somebody else comes between the check and the step. What
// is theirs stays, what was done is taken back, and the record is whole.
func TestUndoRollsBack(t *testing.T) {
	layertest.Skip(t)
	for _, at := range []int{1, 8, 15} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			r, _, after := committed(t, false)
			theirs := false
			err := func() error {
				_, _, err := r.reverse(&vfs.Fault{FS: vfs.Disk(), Before: func(op vfs.Op) error {
					if !theirs && op.Part == "apply" && op.Number == at {
						theirs = true
						check(t, os.WriteFile(r.base()+"/meta", []byte("theirs"), 0o600))
					}
					return nil
				}}, Reversal{})
				return err
			}()
			c, ok := errors.AsType[*ConflictError](err)
			if !ok || !c.RolledBack || len(c.Left) > 0 {
				t.Fatalf("undo: %v, want all of it taken back", err)
			}
			now := look(t, r.base())
			if got := now["meta"].content; got != "theirs" {
				t.Errorf("meta is %q", got)
			}
			delete(now, "meta")
			delete(after, "meta")
			same(t, "the rest", now, after)
			check(t, os.Remove(r.store()+"/"+JournalOf(1)))
			rec, err := OpenRecord(r.store())
			check(t, err)
			if changed, err := rec.Changed(); err != nil || len(changed) > 0 {
				t.Errorf("the record: %v, %v", changed, err)
			}
			_, left, err := r.reverse(vfs.Disk(), Reversal{Partial: true})
			if err != nil || len(left) != 1 || left[0].Path != "meta" {
				t.Errorf("partly: left %v, %v", left, err)
			}
		})
	}
}

// TestUndoOfRootThatIsGone: a root that is gone is a conflict of each of its
// paths, and nothing else is touched.
func TestUndoOfRootThatIsGone(t *testing.T) {
	layertest.Skip(t)
	r, before, after := committed(t, false)
	check(t, os.Rename(r.base(), r.dir+"/away"))
	rec, err := OpenRecord(r.store())
	check(t, err)
	c, ok := errors.AsType[*ConflictError](r.undo(vfs.Disk()))
	if !ok || len(c.Conflicts) != len(rec.Changes(false)) {
		t.Fatalf("undo: %v, want a conflict for each of %d paths", c, len(rec.Changes(false)))
	}
	check(t, os.Mkdir(r.base(), 0o755)) // another directory of the same name
	if c, ok := errors.AsType[*ConflictError](r.undo(vfs.Disk())); !ok {
		t.Fatalf("undo: %v, want a conflict", c)
	}
	check(t, os.Remove(r.base()))
	check(t, os.Rename(r.dir+"/away", r.base()))
	same(t, "base", look(t, r.base()), after)
	check(t, r.undo(vfs.Disk()))
	same(t, "base", look(t, r.base()), before)
}

// TestUndoDamaged: a record whose journals do not verify is refused, and nothing
// is touched.
func TestUndoDamaged(t *testing.T) {
	layertest.Skip(t)
	r, before, after := committed(t, false)
	check(t, r.undo(vfs.Disk()))
	for _, name := range []string{journalName, JournalOf(1)} {
		path := r.store() + "/" + name
		whole, err := os.ReadFile(path)
		check(t, err)
		for _, at := range []int{0, 100, sector + 3, 2*sector + 3, bodyAt + 5, bodyAt + 700} {
			damaged := append([]byte{}, whole...)
			damaged[at] ^= 0x20
			check(t, os.WriteFile(path, damaged, 0o600))
			if _, err := OpenRecord(r.store()); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s, byte %d: %v, want %v", name, at, err, ErrDamaged)
			}
		}
		check(t, os.WriteFile(path, whole, 0o600))
	}
	same(t, "base", look(t, r.base()), before)
	check(t, r.redo(vfs.Disk()))
	same(t, "base", look(t, r.base()), after)
}

// FuzzRecord reads any journal as that of a record: it is refused, or it can be
// folded, and whatever it says leads nowhere but into its roots.
func FuzzRecord(f *testing.F) {
	at := func(a area, path string) place { return place{0, a, path} }
	id := sys.Identity{Ino: 7, Btime: 8, Type: unix.S_IFREG}
	j := &journal{branch: "b", roots: []journalRoot{{path: "/base", layer: "u0", slots: "undo0"}}, steps: []step{
		{kind: move, from: at(inLayer, "a"), to: at(inBase, "a"), new: side{id: id}},
		{kind: swap, from: at(inSlots, "1"), to: at(inBase, "a"), new: side{id: id}, old: side{id: id}},
		{kind: times, from: at(inBase, ""), to: at(inBase, ""), newTime: [2]sys.Time{sys.KeepTime, 3}},
		{kind: meta, from: at(inBase, "m"), to: at(inBase, "m"), meta: &change{}},
	}}
	recordsOf(j, func(header, first, second []byte) { f.Add(header, first, second) })
	f.Fuzz(func(t *testing.T, header, first, second []byte) {
		b := sealed(false, byte(doneCommitted), "", header, first, second)
		dir := t.TempDir()
		check(t, os.WriteFile(dir+"/"+journalName, b, 0o600))
		check(t, os.WriteFile(dir+"/"+JournalOf(1), b, 0o600))
		rec, err := OpenRecord(dir)
		if err != nil {
			return
		}
		for _, c := range append(rec.Changes(false), rec.Changes(true)...) {
			if !clean(c.Path) || c.Kind == 0 {
				t.Errorf("change %+v", c)
			}
		}
		if n := len(rec.Changes(false)) + len(rec.Changes(true)); n != len(rec.Summary()) || n != len(rec.Paths()) {
			t.Errorf("%d of %d changes", n, len(rec.Summary()))
		}
	})
}

// TestUndoWithoutItsEnd: the mark of a commit's end may be lost with the power
// after the record was made; it was done all the same.
func TestUndoWithoutItsEnd(t *testing.T) {
	layertest.Skip(t)
	r, before, after := committed(t, false)
	f, err := os.OpenFile(r.store()+"/"+journalName, os.O_WRONLY, 0)
	check(t, err)
	_, err = f.WriteAt(make([]byte, sector), 2*sector)
	check(t, errors.Join(err, f.Close()))
	check(t, r.undo(vfs.Disk()))
	same(t, "base, undone", look(t, r.base()), before)
	check(t, r.redo(vfs.Disk()))
	same(t, "base, redone", look(t, r.base()), after)
}

// TestUndoRollBackCut: the way back of an undo is cut short, and recovery goes
// it to its end: the record still holds all that it held.
func TestUndoRollBackCut(t *testing.T) {
	layertest.Skip(t)
	for _, part := range []string{"rollback", "seal"} {
		r, before, after := committed(t, false)
		refused, cut := false, false
		_, _, err := r.reverse(&vfs.Fault{FS: vfs.Disk(), Before: func(op vfs.Op) error {
			refused = refused || op.Part == "apply" && op.Number == 20
			cut = cut || refused && op.Part == part
			switch {
			case cut:
				return errCut
			case op.Part == "apply" && op.Number == 20:
				return unix.EACCES
			}
			return nil
		}}, Reversal{})
		if !errors.Is(err, ErrUnfinished) || !errors.Is(err, errCut) {
			t.Fatalf("cut in %s: %v", part, err)
		}
		if o := r.decide(1, after, before); o != RolledBack {
			t.Errorf("cut in %s: %v", part, o)
		}
		check(t, r.undo(vfs.Disk()))
		same(t, "base, undone after all", look(t, r.base()), before)
	}
}

// TestUndoEndsDurably: once an undo has returned, its journal says so after a
// loss of power too: what else says that it is over may be durable by then, and
// recovery would not look.
func TestUndoEndsDurably(t *testing.T) {
	layertest.Skip(t)
	r := newRig(t, op{"mkdir", "d"}, op{"write", "d/a", "old"})
	r.session(op{"write", "d/a", "new"}, op{"write", "d/b", "new"})
	check(t, r.commit(vfs.Disk()))
	grave := r.dir + "/grave"
	check(t, os.Mkdir(grave, 0o755))
	l, err := vfs.NewLossy(grave, true)
	check(t, err)
	check(t, r.undo(l))
	check(t, l.Crash(func() bool { return false }))
	if _, err := OpenRecord(r.store()); err != nil {
		t.Errorf("after the power went: %v", err)
	}
}
