package fusefs

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStress has several do random operations at once, in the same few places:
// none hangs, and what they leave is the same on this mount, on a new one of
// the layer, and in the kernel's overlay of it; also if the kernel forgets
// things all the time.
func TestStress(t *testing.T) {
	t.Run("known", func(t *testing.T) { stressed(t, 0) })
	t.Run("pruned", func(t *testing.T) { stressed(t, 8) })
}

func stressed(t *testing.T, known int) {
	t.Parallel()
	l := newLab(t)
	l.known = known
	fixture(t, l.base(""))
	before := snapshot(t, l.base(""))
	l.inside(t, "stress", seedEnv+"="+strconv.FormatUint(*seed, 10), stepsEnv+"="+strconv.Itoa(*steps))
	l.inside(t, "likeThen")
	l.overlay(t, "likeThen")
	if after := snapshot(t, l.base("")); after != before {
		t.Errorf("the base was changed:\n%s", difference(before, after))
	}
}

func init() {
	cases["stress"] = stress
	cases["likeThen"] = func(t *testing.T, mnt string) {
		want, err := os.ReadFile(thenOf(mnt))
		check(t, err)
		if got := snapshot(t, mnt); got != string(want) {
			t.Errorf("not as it was left:\n%s", difference(string(want), got))
		}
	}
}

func thenOf(mnt string) string { return filepath.Join(filepath.Dir(mnt), "then") }

func stress(t *testing.T, mnt string) {
	unix.Umask(0o022)
	n, err := strconv.ParseUint(os.Getenv(seedEnv), 10, 64)
	check(t, err)
	count, err := strconv.Atoi(os.Getenv(stepsEnv))
	check(t, err)
	var all sync.WaitGroup
	for i := range uint64(6) {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(n, i))
			a := &actor{mnt, make(map[int]*os.File)}
			for range count {
				if op := randomOp(rng); op.name != "rmtree" { // which opens by names, and a FIFO may be there by then
					a.do(op)
				}
			}
			for _, f := range a.open {
				f.Close()
			}
		})
	}
	all.Wait()
	check(t, os.WriteFile(thenOf(mnt), []byte(snapshot(t, mnt)), 0o644))
}
