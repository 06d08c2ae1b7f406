package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

const (
	goalCommit = 1.5 // 1 MB against an fsynced rename
	goalMany   = 2.0 // 10,000 files against renaming them
	goalAbort  = time.Millisecond
)

// deed is what a session does before it is settled, or what a peer does.
type deed struct {
	name    string
	count   int
	size    int64
	fresh   bool // into an empty directory of the base, not over files
	settled string
	peer    func(l *lab, d deed, dir string) (time.Duration, error)
	goal    float64  // of its cost against the peer
	took    []ending // of try; or only settled, of a peer
}

// settle measures commits and aborts, beside doing the same by hand.
func settle(l *lab) error {
	l.table.head("Settling: from event “exited” to “settled” (--scope dir -q), less the end of the session itself = its cost")
	if l.try == "" {
		l.table.missing("commit and abort", l.noTry)
		return nil
	}
	small, large := 20, 3
	if l.short {
		small, large = 4, 1
	}
	one := func(size int64, name string) []*deed {
		d := []*deed{
			{name: "fsync and rename of " + name + ", by hand", peer: renameOne},
			{name: "commit of " + name, settled: "committed"},
		}
		for _, d := range d {
			d.count, d.size = 1, size
		}
		return d
	}
	few := []*deed{{name: "nothing changed", settled: "unchanged"}}
	few = append(few, one(1<<10, "1 KB")...)
	few = append(few, one(100<<10, "100 KB")...)
	mega := one(1<<20, "1 MB")
	mega[1].goal = goalCommit
	few = append(few, mega...)
	drop := &deed{name: "abort of 1 KB", count: 1, size: 1 << 10, settled: "aborted"}
	few = append(few, drop,
		&deed{name: "abort of 1 MB", count: 1, size: 1 << 20, settled: "aborted"})
	many := []*deed{
		{name: "rename of 10,000 files, durable: syncfs, rename, fsync both directories", fresh: true, peer: renameManyDurable},
		{name: "rename of 10,000 files to another directory, by hand", fresh: true, peer: renameMany},
		{name: "commit of 10,000 new files", fresh: true, settled: "committed", goal: goalMany},
		{name: "rename of 10,000 files over others, by hand", peer: renameMany},
		{name: "commit of 10,000 changed files", settled: "committed", goal: goalMany},
		{name: "abort of 10,000 files", fresh: true, settled: "aborted"},
	}
	for _, d := range many {
		d.count, d.size = 10_000, 100
	}
	err := l.rounds("few", small, few)
	if err == nil {
		err = l.rounds("many", large, many)
	}
	if err != nil {
		return err
	}
	// What every session takes to end: nothing to settle, or one rename to drop
	// it; a store that makes its next branch ready first takes longer for one.
	nothing := few[0].spans(ending.toSettled)
	end := min(median(nothing), median(drop.spans(ending.toSettled)))
	l.table.times(few[0].name, nothing)
	l.table.times("  to the end of the process", few[0].spans(ending.toEnd))
	l.table.value("end of the session itself: the less of this and of an abort of 1 KB", span(end), small)
	for _, list := range [][]*deed{few[1:], many} {
		var peer *deed
		for _, d := range list {
			if d.peer != nil {
				peer = d // of those that come next
			}
			l.judge(d, peer, end)
		}
	}
	return l.step(large)
}

// step measures what an abort itself takes, after the session is gone: that of
// a kept branch. What a session of 10,000 new files takes to end is the kernel's
// way to take an overlay with as many inodes down.
func (l *lab) step(n int) error {
	took := map[int][]time.Duration{}
	for range n {
		for _, count := range []int{1, 10_000} {
			dir, err := l.mkdir("kept")
			if err != nil {
				return err
			}
			if err := l.prepare(dir, l.try, "--keep", "-q", "-b", "kept", "--scope", "dir", "--",
				l.worker, workerWord, "put", dir, strconv.Itoa(count), "100"); err != nil {
				return err
			}
			if err := l.quiet(); err != nil {
				return err
			}
			began := time.Now()
			if err := l.prepare(dir, l.try, "abort", "kept"); err != nil {
				return err
			}
			took[count] = append(took[count], time.Since(began))
			reap()
		}
	}
	l.table.times("try abort of a kept branch with 1 file, the whole process", took[1])
	l.table.times("try abort of a kept branch with 10,000 files", took[10_000])
	cost := median(took[10_000]) - median(took[1])
	l.table.value("  its cost, less that with 1 file: the step", span(cost), n, limit(float64(cost), float64(goalAbort), "absolute", "1 ms"))
	return nil
}

func (e ending) toSettled() time.Duration { return e.settled }
func (e ending) toEnd() time.Duration     { return e.gone }

func (d *deed) spans(of func(ending) time.Duration) []time.Duration {
	var list []time.Duration
	for _, e := range d.took {
		list = append(list, of(e))
	}
	return list
}

// judge writes the rows of one deed.
func (l *lab) judge(d, peer *deed, end time.Duration) {
	total := d.spans(ending.toSettled)
	if d.peer != nil {
		l.table.times(d.name, total)
		return
	}
	cost := slices.Clone(total)
	for i := range cost {
		cost[i] -= end
	}
	if d.settled == "aborted" {
		l.table.times(d.name+", exited → settled", total)
		if median(total) == end {
			return // measured against itself
		}
		if d.count > 1 {
			l.table.times("  its cost, of which the step is measured below", cost)
			return
		}
		l.table.times("  its cost", cost, limit(float64(median(cost)), float64(goalAbort), "absolute", "1 ms"))
		return
	}
	l.table.times(d.name+", exited → settled", total, against(total, peer.spans(ending.toSettled), "by hand", 0, 0))
	l.table.times("  its cost", cost, against(cost, peer.spans(ending.toSettled), "by hand", d.goal, 0))
	l.table.times("  exited → end of the process", d.spans(ending.toEnd))
}

// rounds takes each deed in turn, n times and once more to warm up if small.
func (l *lab) rounds(name string, n int, deeds []*deed) error {
	warm := 1
	if n < 4 {
		warm = 0
	}
	for round := range n + warm {
		for i, d := range deeds {
			dir, err := l.mkdir(filepath.Join("settle", fmt.Sprintf("%s-%d-%d", name, i, round)))
			if err != nil {
				return err
			}
			if d.count > 0 && !d.fresh {
				if err := lay(dir, d.count, d.size); err != nil {
					return err
				}
			}
			if err := l.quiet(); err != nil {
				return err
			}
			e, err := l.take(d, dir)
			if err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			if round >= warm {
				d.took = append(d.took, e)
			}
		}
	}
	return nil
}

// take does one deed once and checks what came of it.
func (l *lab) take(d *deed, dir string) (ending, error) {
	if d.peer != nil {
		took, err := d.peer(l, *d, dir)
		return ending{settled: took, gone: took}, err
	}
	fate := "--commit"
	if d.settled == "aborted" {
		fate = "--abort"
	}
	s, err := l.session([]string{fate, "-q", "--scope", "dir"}, dir,
		l.worker, workerWord, "put", dir, strconv.Itoa(d.count), strconv.FormatInt(d.size, 10))
	if err != nil {
		return ending{}, err
	}
	e, err := s.finish(d.settled)
	reap()
	if err != nil {
		return e, err
	}
	want := d.count
	if d.fresh && d.settled == "aborted" {
		want = 0
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != want {
		return e, errors.Join(err, fmt.Errorf("%d files in the base afterwards, want %d", len(entries), want))
	}
	return e, nil
}

// renameOne replaces a file as careful programs do: the data is written
// beforehand, as it is in a session; fsync, rename, fsync of the directory.
func renameOne(_ *lab, d deed, dir string) (time.Duration, error) {
	staged := dir + ".new"
	if err := errors.Join(os.Mkdir(staged, 0o755), put(staged, 1, d.size)); err != nil {
		return 0, err
	}
	from, to := filepath.Join(staged, "f00000"), filepath.Join(dir, "f00000")
	began := time.Now()
	err := errors.Join(fsync(from), os.Rename(from, to), fsync(dir))
	return time.Since(began), err
}

// renameMany renames files one by one into another directory.
func renameMany(_ *lab, d deed, dir string) (time.Duration, error) {
	return renames(d, dir, func(string) error { return nil }, func(string) error { return nil })
}

// renameManyDurable does so such that a crash afterwards loses none of them.
func renameManyDurable(l *lab, d deed, dir string) (time.Duration, error) {
	return renames(d, dir,
		func(string) error { return l.quiet() },
		func(staged string) error { return errors.Join(fsync(staged), fsync(dir)) })
}

func renames(d deed, dir string, before, after func(staged string) error) (time.Duration, error) {
	staged := dir + ".new"
	if err := errors.Join(os.Mkdir(staged, 0o755), put(staged, d.count, d.size)); err != nil {
		return 0, err
	}
	entries, err := os.ReadDir(staged)
	if err != nil {
		return 0, err
	}
	from, to := make([]string, len(entries)), make([]string, len(entries))
	for i, e := range entries {
		from[i], to[i] = filepath.Join(staged, e.Name()), filepath.Join(dir, e.Name())
	}
	began := time.Now()
	if err := before(staged); err != nil {
		return 0, err
	}
	for i := range from {
		if err := os.Rename(from[i], to[i]); err != nil {
			return 0, err
		}
	}
	err = after(staged)
	return time.Since(began), err
}

// fsync opens a file or directory and writes it out.
func fsync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
