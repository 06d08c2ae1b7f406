package commit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"testing"

	"try/fs/sys"
	"try/fs/vfs"
)

// sample is a journal with every kind of step and field.
func sample(n int) *journal {
	id := sys.Identity{Ino: 7, Btime: -5, Type: 0o100000}
	full := side{
		id: id, perm: 0o4755, uid: 1, gid: 1 << 31, size: 1 << 40, mtime: -1, ctime: 1 << 60, rdev: 9, opened: true, open: 0o700, shared: true,
		marks: []mark{{from: "user.overlay.origin"}, {from: "user.overlay.overlay.x", to: "user.overlay.x", value: []byte{0, 255}}},
		tree:  tree{count: 3, sum: [16]byte{1, 2}},
	}
	perm, owner := uint32(0o644), [2]uint32{1, 2}
	j := &journal{id: newJournalID(), state: applying, branch: "b1", roots: []journalRoot{
		{path: "/r", id: id, layer: "layer", slots: "slots"}, {path: "/m", id: id, layer: "/x/layer", boot: "b"},
	}}
	j.steps = []step{
		{kind: move, from: place{0, inLayer, "a/\xff\n"}, to: place{0, inBase, "a"}, new: full},
		{kind: swap, from: place{1, inSlots, "1.2"}, to: place{1, inBase, "b"}, new: full, old: side{id: id}},
		{kind: strip, from: place{0, inLayer, "c"}, to: place{0, inBase, "c"}, new: full},
		{kind: mode, from: place{0, inBase, ""}, to: place{0, inBase, ""}, before: 0o555, after: 0o755},
		{kind: meta, from: place{0, inBase, "d"}, meta: &change{
			oldPerm: &perm, newPerm: &perm, oldOwner: &owner, newOwner: &owner,
			oldTimes: &[2]sys.Time{1, sys.KeepTime}, newTimes: &[2]sys.Time{3, 4},
			xattrs: []xattr{{"user.a", nil, []byte{}}, {"user.b", []byte("x"), nil}},
		}},
		{kind: times, from: place{0, inBase, "e"}, to: place{0, inBase, "e"}, oldTime: [2]sys.Time{1, 2}, newTime: keepTimes},
	}
	for i := range n {
		j.steps = append(j.steps, step{kind: move, from: place{0, inLayer, fmt.Sprint(i)}, to: place{0, inBase, fmt.Sprint(i)}})
	}
	return j
}

func TestJournalIsWhatWasPrinted(t *testing.T) {
	for _, s := range []state{applying, rollingBack, doneCommitted, doneRolledBack} {
		j := sample(3)
		j.state = s
		if s == rollingBack || s == doneRolledBack {
			j.cause = causeOf(Conflict{"/r", "a", "changed"})
		}
		b := j.print()
		got, err := parse(append(b, "an older one's tail"...))
		check(t, err)
		if got.cause != j.cause || got.state != s || len(got.steps) != len(j.steps) || !bytes.Equal(got.print(), b) {
			t.Errorf("state %d: %d steps in state %d", s, len(got.steps), got.state)
		}
	}
}

// TestJournalDamage: no part of a journal passes, and none with a flipped bit.
func TestJournalDamage(t *testing.T) {
	j := sample(0)
	j.state = rollingBack
	b := j.print()
	for n := range b {
		if got, err := parse(b[:n]); got != nil || err == nil && n > 0 {
			t.Fatalf("the first %d bytes of %d pass: %v", n, len(b), err)
		}
	}
	for n := range len(b) * 8 {
		b[n/8] ^= 1 << (n % 8)
		if got, err := parse(b); got != nil || err == nil {
			t.Fatalf("bit %d passes", n)
		}
		b[n/8] ^= 1 << (n % 8)
	}
}

// TestShortOverLong: a short journal over a long one's bytes, torn at each
// sector: it is the new one, or nothing, or refused; never any of the old one.
func TestShortOverLong(t *testing.T) {
	long, short := sample(40), sample(1)
	over := append([]byte{}, long.print()...)
	b := short.print()
	copy(over, b)
	got, err := parse(over)
	check(t, err)
	if got.id != short.id || len(got.steps) != len(short.steps) {
		t.Fatalf("%d steps of %v", len(got.steps), got.id)
	}
	for cut := 0; cut < len(b); cut += sector {
		torn := append([]byte{}, long.print()...)
		copy(torn[:sector], make([]byte, sector)) // a spare's head is blank
		copy(torn[cut:], b[cut:])
		switch got, err := parse(torn); {
		case err == nil && got != nil && got.id == long.id:
			t.Errorf("from %d on: the old journal passes", cut)
		case err == nil && got == nil && cut == 0:
			t.Errorf("the whole journal is none")
		}
		head := append([]byte{}, long.print()...)
		copy(head, b[:cut])
		if got, err := parse(head); cut > 0 && (err == nil || got != nil) {
			t.Errorf("up to %d, then the old one's: it passes", cut)
		}
	}
}

// TestDamagedJournalIsRefused: recovery touches nothing, and works once the
// file is restored.
func TestDamagedJournalIsRefused(t *testing.T) {
	r := newRig(t)
	many(t, r, 40)
	before, want := look(t, r.base()), r.want()
	cut := false
	err := r.commit(&vfs.Fault{FS: vfs.Disk(), Before: func(op vfs.Op) error {
		if cut = cut || op.Part == "apply" && op.Number > 20; cut {
			return errCut
		}
		return nil
	}})
	if !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	half := look(t, r.base())
	path := r.store() + "/" + journalName
	good, err := os.ReadFile(path)
	check(t, err)
	bad := append([]byte{}, good...)
	bad[bodyAt+100] ^= 4
	check(t, os.WriteFile(path, bad, 0o600))
	if o, err := Recover(vfs.Disk(), r.store()); !errors.Is(err, ErrDamaged) {
		t.Errorf("recover: %v, %v", o, err)
	}
	same(t, "base", look(t, r.base()), half)
	check(t, os.WriteFile(path, good, 0o600))
	if o := r.settle(before, want); o != Committed {
		t.Errorf("recover: %v", o)
	}
}

// TestLostDone: the mark of the end is lost, and the base has moved on: nothing
// that was saved since is touched (H17).
func TestLostDone(t *testing.T) {
	r := newRig(t)
	many(t, r, 40)
	check(t, r.commit(vfs.Disk()))
	path := r.store() + "/" + journalName
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	check(t, err)
	_, err = f.WriteAt(make([]byte, sector), 2*sector)
	check(t, errors.Join(err, f.Close()))
	check(t, os.WriteFile(r.base()+"/saved", []byte("saved"), 0o644))
	check(t, os.Rename(r.base()+"/saved", r.base()+"/d2/2"))
	check(t, os.WriteFile(r.base()+"/d3/3", []byte("edited"), 0o644))
	check(t, os.Remove(r.base()+"/d0/0"))
	after := look(t, r.base())
	if o, err := Recover(vfs.Disk(), r.store()); o != Committed || err != nil {
		t.Fatalf("recover: %v, %v", o, err)
	}
	got := look(t, r.base())
	for _, d := range []string{"d0", "d2", ""} { // a directory's time is set again
		got[d] = after[d]
	}
	same(t, "base", got, after)
}

// sealed is a journal with these records, its sums right whatever they hold: fuzzing
// finds no sums.
func sealed(turn bool, done byte, cause string, records ...[]byte) []byte {
	id := journalID{1}
	var body []byte
	for i, r := range records {
		body = appendRecord(body, id, uint32(i), r)
	}
	n := uint32(len(records))
	b := headSector(id, int64(len(body)), n, sha256.Sum256(body))
	mark := make([]byte, sector)
	if turn {
		mark = turnSector(id, n, cause[:min(most, len(cause))])
	}
	b = append(b, mark...)
	mark = make([]byte, sector)
	if done != 0 {
		mark = doneSector(id, n, state(done))
	}
	return append(append(b, mark...), body...)
}

// recordsOf adds j's header, and its steps two by two, to what is fuzzed.
func recordsOf(j *journal, add func(header, first, second []byte)) {
	header := encoder{}
	header.header(j)
	for i := range j.steps {
		first, second := encoder{}, encoder{}
		first.step(&j.steps[i])
		second.step(&j.steps[(i+1)%len(j.steps)])
		add(header.b, first.b, second.b)
	}
}

func FuzzJournal(f *testing.F) {
	recordsOf(sample(0), func(header, first, second []byte) {
		f.Add(false, byte(0), "", header, first, second)
		f.Add(true, byte(doneRolledBack), "/r\x00a\x00changed", header, first, second)
	})
	f.Fuzz(func(t *testing.T, turn bool, done byte, cause string, header, first, second []byte) {
		b := sealed(turn, done, cause, header, first, second)
		if j, err := parse(b); err == nil && !bytes.Equal(j.print(), b) {
			t.Fatal("it prints otherwise")
		}
	})
}

// FuzzStep is the same for a single step, without what a journal checks.
func FuzzStep(f *testing.F) {
	for _, s := range sample(0).steps {
		e := encoder{}
		e.step(&s)
		f.Add(e.b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := decoder{b: b}
		var s step
		d.step(&s, 2)
		if d.bad || len(d.b) > 0 {
			return
		}
		e := encoder{}
		e.step(&s)
		again := decoder{b: e.b}
		var s2 step
		again.step(&s2, 2)
		e2 := encoder{}
		e2.step(&s2)
		if again.bad || !bytes.Equal(e.b, e2.b) {
			t.Fatal("what was decoded cannot be decoded again")
		}
	})
}
