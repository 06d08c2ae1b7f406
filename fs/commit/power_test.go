package commit

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"try/fs/layer/layertest"
	"try/fs/sys"
	"try/fs/vfs"
)

var (
	disks = flag.Int("disks", 2, "disks that are drawn for each point at which the power goes")
	step2 = flag.Int("power", 9, "the power goes at each n-th call")
)

// TestPower cuts the power before a call of a commit, draws a disk that this
// can leave, recovers it, and wants all of the change or none.
func TestPower(t *testing.T) {
	layertest.Skip(t)
	rng := rand.New(rand.NewPCG(*seed, 1))
	for _, inOrder := range []bool{true, false} {
		for _, small := range []bool{true, false} {
			outcomes := map[Outcome]int{}
			points := 0
			step := *step2
			if small {
				step = 1
			}
			for n, more := 0, true; more; n += step {
				points++
				for disk := range *disks + 2 {
					r := newRig(t, mixedBase...)
					if small {
						r.session(op{"write", "d/a", "new a"}, op{"write", "d/b", "new b"})
					} else {
						r.session(mixed...)
					}
					keep := func() bool { return disk == 1 || disk > 1 && rng.IntN(2) == 0 }
					o, cut := r.losePower(n, inOrder, keep)
					outcomes[o]++
					more = more && cut
					if t.Failed() {
						t.Fatalf("in order %t, small %t, before call %d, disk %d, -seed %d", inOrder, small, n, disk, *seed)
					}
				}
			}
			t.Logf("in order %t, small %t: %d points, %d disks each: %v", inOrder, small, points, *disks+2, outcomes)
		}
	}
}

// losePower commits until the n-th call, crashes, and recovers; false if there
// were not so many calls. Then the power goes after the commit.
func (r *rig) losePower(n int, inOrder bool, keep func() bool) (Outcome, bool) {
	t := r.t
	t.Helper()
	before, want := look(t, r.base()), r.want()
	grave := r.dir + "/grave"
	check(t, os.Mkdir(grave, 0o755))
	l, err := vfs.NewLossy(grave, inOrder)
	check(t, err)
	in, err := sys.OpenDir(r.layer())
	check(t, err)
	defer in.Close()
	check(t, sys.Walk(in, func(v sys.Visit) (bool, error) {
		if v.Stat.IsRegular() && v.Stat.Size > 0 && v.Stat.Perm()&0o400 != 0 {
			return true, l.Unsynced(v.Dir, v.Node.Name)
		}
		return !v.Stat.IsDir() || readable(v.Dir, v.Node.Name), nil
	}, nil))
	count := 0
	err = r.commit(&vfs.Fault{FS: l, Before: func(vfs.Op) error {
		if count++; count > n {
			return errCut
		}
		return nil
	}})
	cut := errors.Is(err, errCut)
	if err != nil && !cut {
		t.Fatalf("cut before call %d: %v", n, err)
	}
	check(t, l.Crash(keep))
	r.forgetCtimes()
	o, err := Recover(vfs.Disk(), r.store())
	c, ok := errors.AsType[*ConflictError](err)
	if ok && o == RolledBack && len(c.Left) == 0 {
		err = nil
	}
	check(t, err)
	if !cut && o != Committed {
		t.Errorf("the commit was done, and is %v after the power went", o)
	}
	if o == Nothing {
		// The layer was never synced, so it may be anything: that is what the state
		// “damaged” is for.
		same(t, "base, nothing", look(t, r.base()), before)
		return o, cut
	}
	if o == RolledBack {
		t.Errorf("rolled back: %v", c)
		same(t, "base, rolled back", look(t, r.base()), before)
		return o, cut
	}
	same(t, fmt.Sprint("base, ", o), look(t, r.base()), want)
	return o, cut
}

// forgetCtimes puts the present ctimes of the base into the journal: on a real
// disk a change that was lost has its ctime lost too, but here it was undone by
// another.
func (r *rig) forgetCtimes() {
	t := r.t
	t.Helper()
	d, err := sys.OpenDir(r.store())
	check(t, err)
	defer d.Close()
	now := map[sys.Identity]sys.Time{}
	for _, dir := range []string{r.base(), r.store()} {
		top, err := sys.OpenDir(dir)
		check(t, err)
		check(t, sys.Walk(top, func(v sys.Visit) (bool, error) {
			now[v.Stat.Identity()] = v.Stat.Ctime
			return !v.Stat.IsDir() || readable(v.Dir, v.Node.Name), nil
		}, nil))
		check(t, top.Close())
	}
	names := []string{journalName}
	numbers, err := flips(d)
	check(t, err)
	for _, n := range numbers {
		names = append(names, JournalOf(n))
	}
	for _, name := range names {
		j, err := readJournal(d, name)
		check(t, err)
		if j == nil {
			continue
		}
		for i := range j.steps {
			s := &j.steps[i]
			for _, side := range []*side{&s.new, &s.old} {
				if c, ok := now[side.id]; ok {
					side.ctime = c
				}
			}
		}
		check(t, os.WriteFile(r.store()+"/"+name, j.print(), 0o600))
	}
}
