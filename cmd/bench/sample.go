package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// contender is one of the commands whose starts are compared.
type contender struct {
	name string
	argv []string // argv[0] is a path; nil: not to be had, and why says so
	dir  string
	why  string
}

// starts are the samples of one contender.
type starts struct {
	contender
	took   []time.Duration // fork to wait
	behind []time.Duration // from then until nothing of it is left
}

// race starts the contenders in turn, n times each. Whoever cannot be started
// at all gets no samples but the reason.
func (l *lab) race(n int, contenders []contender) ([]*starts, error) {
	var all, runners []*starts
	for _, c := range contenders {
		r := &starts{contender: c}
		all = append(all, r)
		if r.argv == nil {
			continue
		}
		if out, err := l.output(c.dir, c.argv...); err != nil {
			r.why = fmt.Sprintf("%v: %s", err, out)
			continue
		}
		runners = append(runners, r)
	}
	reap()
	if err := l.quiet(); err != nil {
		return nil, err
	}
	// A collection in the middle of a sample would be ours, not theirs.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const warm = 3
	for i := range n + warm {
		for _, r := range runners {
			if err := l.ctx.Err(); err != nil {
				return nil, err
			}
			took, behind, err := l.spawn(r.contender)
			if err != nil {
				return nil, err
			}
			if i >= warm {
				r.took, r.behind = append(r.took, took), append(r.behind, behind)
			}
		}
	}
	return all, nil
}

// spawn starts one command as posix_spawn does (syscall.ForkExec shares the
// memory until exec), waits for it, then for what it left running.
func (l *lab) spawn(c contender) (took, behind time.Duration, err error) {
	fd := l.null.Fd()
	attr := &syscall.ProcAttr{Dir: c.dir, Env: l.env, Files: []uintptr{fd, fd, fd}}
	began := time.Now()
	pid, err := syscall.ForkExec(c.argv[0], c.argv, attr)
	if err != nil {
		return 0, 0, fmt.Errorf("start %s: %w", c.argv[0], err)
	}
	var status syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	ended := time.Now()
	if err != nil {
		return 0, 0, fmt.Errorf("wait for %s: %w", c.argv[0], err)
	}
	if status != 0 {
		out, again := l.output(c.dir, c.argv...)
		return 0, 0, fmt.Errorf("%s: exit status %d; once more: %v: %s", strings.Join(c.argv, " "), status.ExitStatus(), again, out)
	}
	reap()
	return ended.Sub(began), time.Since(ended), nil
}

// reap waits until this process has no children. As their subreaper it gets
// the orphans of everything that it started.
func reap() {
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// look finds a program, as root after installing its package if need be.
func (l *lab) look(program, pkg string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	hint := "apt-get install " + pkg
	if os.Getuid() != 0 {
		return "", fmt.Errorf("%w; as root: %s", err, hint)
	}
	apt, noApt := exec.LookPath("apt-get")
	if noApt != nil {
		return "", fmt.Errorf("%w, and no apt-get to install %s", err, pkg)
	}
	for _, argv := range [][]string{
		{apt, "-qq", "update"},
		{apt, "-qq", "-y", "--no-install-recommends", "install", pkg},
	} {
		if out, err := l.output("/", argv...); err != nil {
			return "", fmt.Errorf("%s: %w: %s", hint, err, out)
		}
	}
	return exec.LookPath(program)
}
