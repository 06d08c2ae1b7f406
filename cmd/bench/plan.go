package main

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"try/fs/changes"
	"try/fs/sys"
)

const (
	goalPlanMemory = 1 << 10 // bytes a change
	goalPlanLinear = 1.25    // time a change, of ten times as many against few
)

// planning measures the plan alone, in this process: layers of small new files
// over an empty base.
func planning(l *lab) error {
	l.table.head("Planning: layers of small new files, %d in a directory", perDir)
	counts, rounds := []int{1_000, 10_000, 100_000}, 5
	if l.short {
		counts, rounds = []int{100, 1_000}, 3
	}
	var each []time.Duration // time a change, of the count before
	for _, n := range counts {
		base, err := l.mkdir(fmt.Sprintf("plan/base-%d", n))
		if err != nil {
			return err
		}
		layer, err := l.mkdir(fmt.Sprintf("plan/layer-%d", n))
		if err != nil {
			return err
		}
		if err := l.fill(layer, n); err != nil {
			return err
		}
		var took, per []time.Duration
		var kept uint64
		for range rounds {
			t, bytes, changed, err := plan(l, base, layer)
			if err != nil {
				return err
			}
			took, per, kept = append(took, t), append(per, t/time.Duration(changed)), bytes/uint64(changed)
		}
		name := fmt.Sprintf("%d new files", n)
		if each == nil {
			l.table.times(name, took)
		} else {
			q := float64(median(per)) / float64(median(each))
			l.table.times(name, took, limit(q, goalPlanLinear, fmt.Sprintf("%.2f × a change", q), fmt.Sprint(goalPlanLinear)))
		}
		each = per
		l.table.value("  memory a change", fmt.Sprintf("%d B", kept), rounds, limit(float64(kept), goalPlanMemory, "absolute", "1 KB"))
	}
	return nil
}

// plan plans once: the time, what stays on the heap, how many changes.
func plan(l *lab, base, layer string) (took time.Duration, heap uint64, changed int, err error) {
	root := changes.Root{Path: base}
	if root.Base, err = sys.OpenDir(base); err != nil {
		return 0, 0, 0, err
	}
	if root.Layer, err = sys.OpenDir(layer); err != nil {
		return 0, 0, 0, errors.Join(err, root.Base.Close())
	}
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, began := inUse(), time.Now()
	p, err := changes.Make(l.ctx, []changes.Root{root})
	took = time.Since(began)
	if err == nil {
		heap, changed = inUse()-before, p.Counts().Total()
		runtime.KeepAlive(p)
	}
	return took, heap, changed, errors.Join(err, root.Base.Close(), root.Layer.Close())
}
