package commit

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"try/fs/layer/layertest"
	"try/fs/vfs"
)

var rounds = flag.Int("rounds", 25, "rounds of the model test")

// TestModel does random operations in real overlays, with remounts in between,
// and commits: by rename and by copy, after a refusal, and with a power switch
// somewhere in the middle. The base must become what the session saw.
func TestModel(t *testing.T) {
	layertest.Skip(t)
	for round := range uint64(*rounds) {
		t.Run(fmt.Sprintf("seed=%d", *seed+round), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(*seed+round, 0))
			var base []op
			for range 30 {
				base = append(base, randomOp(rng, false))
			}
			r := newRig(t)
			layertest.Do(r.base(), base...) // some fail, on nothing there
			age(t, r.base())
			r.root.Stamp = stamp(t, r.dir)
			r.copy = rng.IntN(4) == 0
			var ops []op
			defer func() {
				if t.Failed() {
					t.Logf("base %q\nsession %q", base, ops)
					for _, c := range r.plan().Roots[0].Changes {
						t.Logf("%c %q base %v layer %v fields %v", c.Kind.Letter(), c.Path(), c.Base, c.Layer, c.Fields)
					}
				}
			}()
			for range 1 + rng.IntN(3) {
				session := make([]op, 1+rng.IntN(15))
				for i := range session {
					session[i] = randomOp(rng, true)
				}
				ops = append(ops, session...)
				layertest.Session(t, r.base(), r.layer(), session...)
			}
			if r.unreadable() {
				return // refused, rightly
			}
			if found := r.drift(); len(found) > 0 { // before looking, which opens what is closed
				t.Errorf("drift: %v", found)
			}
			before, want := look(t, r.base()), r.want()
			switch rng.IntN(3) {
			case 0:
				check(t, r.commit(vfs.Disk()))
				same(t, "base", look(t, r.base()), want)
			case 1:
				r.cutAt(rng.IntN(60), before, want)
			case 2:
				r.refusedAt(rng.IntN(40), before, want)
			}
		})
	}
}

// unreadable says that the session deleted or replaced what the caller may not
// read, so that the plan cannot say what that was.
func (r *rig) unreadable() bool {
	for _, c := range r.plan().Roots[0].Changes {
		if c.Unknown {
			return true
		}
	}
	return false
}

var errCut = errors.New("the power is gone")

// cutAt stops everything from the n-th call on, then recovers.
func (r *rig) cutAt(n int, before, want map[string]entry) {
	r.t.Helper()
	count := 0
	err := r.commit(&vfs.Fault{FS: vfs.Disk(), Before: func(vfs.Op) error {
		if count++; count > n {
			return errCut
		}
		return nil
	}})
	if err == nil {
		same(r.t, "base", look(r.t, r.base()), want)
		return
	}
	if !errors.Is(err, errCut) {
		r.t.Fatalf("cut before call %d: %v", n, err)
	}
	r.settle(before, want)
}

// refusedAt lets the n-th step be refused: all must be as before, and a second
// try work.
func (r *rig) refusedAt(n int, before, want map[string]entry) {
	r.t.Helper()
	refused := false
	err := r.commit(&vfs.Fault{FS: vfs.Disk(), Before: func(op vfs.Op) error {
		if op.Part == "apply" && op.Number == n+1 {
			refused = true
			return os.ErrPermission
		}
		return nil
	}})
	if !refused {
		check(r.t, err)
		same(r.t, "base", look(r.t, r.base()), want)
		return
	}
	c, ok := errors.AsType[*ConflictError](err)
	if !ok || len(c.Left) > 0 {
		r.t.Fatalf("call %d refused: %v", n, err)
	}
	r.whole(RolledBack, before, want)
	check(r.t, r.commit(vfs.Disk()))
	same(r.t, "base, second commit", look(r.t, r.base()), want)
}

// randomOp is an operation on one of few paths, so that they meet.
func randomOp(r *rand.Rand, inside bool) op {
	name := func() string {
		path := string("ab\n\xff"[r.IntN(4)])
		for r.IntN(3) > 0 && len(path) < 7 {
			path += "/" + string("abc"[r.IntN(3)])
		}
		return path
	}
	content := func() string { return "content"[r.IntN(3) : 4+r.IntN(3)] }
	modes := []string{"755", "700", "4755", "1777", "555", "000", "600", "444"}
	switch n := r.IntN(24); {
	case n < 4:
		return op{"write", name(), content()}
	case n < 8:
		return op{"mkdir", name()}
	case n < 9:
		return op{"append", name(), content()}
	case n < 10:
		return op{"quietly", name(), content()}
	case n < 11:
		return op{"touch", name(), fmt.Sprint(past + r.Int64N(3)*1e9)}
	case n < 13:
		return op{"rm", name()}
	case n < 15:
		return op{"rmtree", name()}
	case n < 16:
		return op{"symlink", name(), name()}
	case n < 17:
		return op{"fifo", name()}
	case n < 19:
		return op{"chmod", name(), modes[r.IntN(len(modes))]}
	case n < 21:
		attr := []string{"user.a", "user.overlay.x"}[r.IntN(2)]
		if r.IntN(3) == 0 {
			return op{"rmxattr", name(), attr}
		}
		if !inside {
			attr = "user.a"
		}
		return op{"setxattr", name(), attr, content()}
	case n < 22 && inside:
		return op{"link", name(), name()}
	case n < 23 && inside && os.Getuid() == 0:
		return op{"chown", name(), "0", fmt.Sprint(r.IntN(2))}
	}
	return op{"rename", name(), name()}
}
