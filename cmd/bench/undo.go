package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

const (
	goalUndo    = 1.0 // 10,000 changes against their commit
	goalRecover = 2.0
)

// undoing measures what taking a commit back costs, and finishing one that was
// killed at its commit point, beside the same commit uninterrupted. All are
// whole processes that settle what lies on disk, so they compare.
func undoing(l *lab) error {
	l.table.head("Undo: 10,000 changed files (--scope dir -q), whole processes")
	if l.try == "" {
		l.table.missing("undo", l.noTry)
		return nil
	}
	n, count := 5, 10_000
	if l.short {
		n, count = 2, 1000
	}
	var committed, undone, redone, recovered []time.Duration
	for round := range n {
		dir, err := l.mkdir(fmt.Sprintf("undo-%d", round))
		if err != nil {
			return err
		}
		if err := lay(dir, count, 100); err != nil {
			return err
		}
		name := fmt.Sprintf("u%d", round)
		keep := func() error {
			return l.prepare(dir, l.try, "--keep", "-q", "-b", name, "--scope", "dir", "--", l.worker, workerWord, "put", dir, strconv.Itoa(count), "100")
		}
		timed := func(into *[]time.Duration, args ...string) error {
			if err := l.quiet(); err != nil {
				return err
			}
			began := time.Now()
			err := l.prepare(dir, append([]string{l.try}, args...)...)
			*into = append(*into, time.Since(began))
			return err
		}
		err = errors.Join(
			keep(),
			timed(&committed, "commit", "-q", name), timed(&undone, "undo", "-q", name), timed(&redone, "redo", "-q", name),
			keep(), l.killed(dir, "commit", "-q", name), timed(&recovered, "recover"))
		if err != nil {
			return err
		}
		reap()
	}
	by := "the commit"
	l.table.times("commit of a kept branch", committed)
	l.table.times("undo", undone, against(undone, committed, by, goalUndo, 0))
	l.table.times("redo", redone, against(redone, committed, by, goalUndo, 0))
	l.table.times("recovery of one that was killed at its commit point", recovered, against(recovered, committed, by, goalRecover, 0))
	return nil
}

// killed runs try, which ends by SIGKILL before the first step of its commit.
func (l *lab) killed(dir string, args ...string) error {
	cmd := exec.CommandContext(l.ctx, l.try, args...)
	cmd.Dir, cmd.Env = dir, append(l.env, "TRY_TEST_CRASH=apply:1")
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && !exit.Exited() {
		return nil
	}
	return fmt.Errorf("a commit that was to be killed: %w", err)
}
