package changes

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/layer/layertest"
)

var (
	seed   = flag.Uint64("seed", 1, "first seed of the model test")
	rounds = flag.Int("rounds", 40, "rounds of the model test")
)

// TestPlanIsTheDifference does random operations in real overlays, with
// remounts in between, and natively on a copy: the plan of the layer must be
// the difference of the two trees, and applied it must make one of the other.
func TestPlanIsTheDifference(t *testing.T) {
	layertest.Skip(t)
	for round := range uint64(*rounds) {
		t.Run(fmt.Sprintf("seed=%d", *seed+round), func(t *testing.T) {
			r := rand.New(rand.NewPCG(*seed+round, 0))
			w := newWorld(t)
			for range 30 {
				layertest.Do(w.dir+"/base", randomOp(r, false)) // some fail, on nothing there
			}
			w.age(w.base)
			var done []layertest.Op
			var errs []unix.Errno
			for range 1 + r.IntN(3) {
				ops := make([]layertest.Op, 1+r.IntN(15))
				for i := range ops {
					ops[i] = randomOp(r, true)
				}
				done = append(done, ops...)
				errs = append(errs, layertest.Session(t, w.dir+"/base", w.dir+"/layer", ops...)...)
			}
			p := w.plan()
			w.applied(p, done, errs)
			if t.Failed() {
				for i, op := range done {
					t.Logf("%q: %d", op, errs[i])
				}
			}
		})
	}
}

// randomOp is an operation on one of few paths, so that they meet. Links only
// inside: an overlay parts those of the base.
func randomOp(r *rand.Rand, inside bool) layertest.Op {
	name := func() string {
		path := string("ab\n\xff"[r.IntN(4)])
		for r.IntN(3) > 0 && len(path) < 7 {
			path += "/" + string("abc"[r.IntN(3)])
		}
		return path
	}
	content := func() string { return "content"[r.IntN(3) : 4+r.IntN(3)] }
	// Those behind close a directory to a user natively, and not to the
	// capabilities of a session's. No set-id bits: a write by root keeps them
	// natively and clears them in a session.
	modes := []string{"755", "700", "711", "1777", "600", "644", "444"}
	if os.Getuid() != 0 {
		modes = modes[:4]
	}
	switch n := r.IntN(20); {
	case n < 4:
		return layertest.Op{"write", name(), content()}
	case n < 7:
		return layertest.Op{"mkdir", name()}
	case n < 8:
		return layertest.Op{"append", name(), content()}
	case n < 9:
		return layertest.Op{"quietly", name(), content()}
	case n < 10:
		return layertest.Op{"touch", name(), fmt.Sprint(past + r.Int64N(3)*1e9)}
	case n < 12:
		return layertest.Op{"rm", name()}
	case n < 14:
		return layertest.Op{"rmtree", name()}
	case n < 15:
		return layertest.Op{"symlink", name(), name()}
	case n < 16:
		return layertest.Op{"fifo", name()}
	case n < 17:
		return layertest.Op{"chmod", name(), modes[r.IntN(len(modes))]}
	case n < 18:
		attr := []string{"user.a", "user.overlay.x"}[r.IntN(2)]
		if r.IntN(3) == 0 {
			return layertest.Op{"rmxattr", name(), attr}
		}
		if !inside {
			attr = "user.a"
		}
		return layertest.Op{"setxattr", name(), attr, content()}
	case n < 19 && inside:
		return layertest.Op{"link", name(), name()}
	}
	return layertest.Op{"rename", name(), name()}
}
