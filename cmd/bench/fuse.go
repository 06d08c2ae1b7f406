package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	goalPeer  = 1.0 // against fuse-overlayfs, on every row,
	goalTwice = 0.5 // and on those of many small files

	// Against native, of its speed:
	goalReads      = 1 / 0.6 // warm reads,
	goalPassReads  = 1 / 0.8 // and with passthrough reads
	goalPassWrites = 1 / 0.9 // and writes of what is in the layer
)

// behindFUSE does the same work natively, in a session on either engine, and
// behind the peer; then it counts round trips.
func behindFUSE(l *lab) error {
	l.table.head("Behind FUSE: a session with --engine fuse against native, one with overlay, and Debian's fuse-overlayfs on HOME")
	kinds := []string{native, branch, fuse, peer}
	passthrough := os.Geteuid() == 0 // others have none
	if passthrough {
		kinds = append(kinds, plain)
	}
	err := l.works(kinds, func(w workload, took map[string][]time.Duration) {
		for _, kind := range kinds {
			d := took[kind]
			if len(d) == 0 {
				continue
			}
			switch kind {
			case native:
				l.table.times(w.name, d)
			case fuse, plain:
				goal := w.native
				if passthrough && kind == fuse {
					goal = cmp.Or(w.passed, goal)
				}
				l.table.times("  … in "+kind, d, against(d, took[native], native, goal, 0),
					against(d, took[peer], peer, cmp.Or(w.peer, goalPeer), 0))
			default:
				l.table.times("  … in "+kind, d, against(d, took[native], native, 0, 0))
			}
		}
	})
	if err != nil {
		return err
	}
	return errors.Join(l.roundTrips(), l.largeTree())
}

// roundTrips counts the requests that the kernel sends for one file of some
// work on a thousand.
func (l *lab) roundTrips() error {
	if l.try == "" {
		l.table.missing("round trips", l.noTry)
		return nil
	}
	const files = 1000
	l.table.head("Round trips for each of %d files, --engine fuse", files)
	dir, err := l.mkdir("run/trips")
	if err != nil {
		return err
	}
	base := filepath.Join(dir, "base")
	if err := os.MkdirAll(base, 0o755); err != nil {
		return err
	}
	if err := put(base, files, 1000); err != nil {
		return err
	}
	const twice = "find base -type f -size +0 >/dev/null; "
	idle, err := l.calls(dir, ":")
	if err != nil {
		return err
	}
	for _, w := range []struct{ name, script, before string }{
		{"look at each", "find base -type f -size +0 >/dev/null", ":"},
		{"once more", twice + twice, twice},
		{"read", "cat base/* >/dev/null", ":"},
		{"read once more", "cat base/* >/dev/null; cat base/* >/dev/null", "cat base/* >/dev/null"},
		{"create and write", "mkdir new; cp base/* new/", "mkdir new; cat base/* >/dev/null"},
		{"change", "for f in base/*; do echo x >> $f; done", "for f in base/*; do :; done"},
		{"remove", "rm -r base", ":"},
	} {
		counts, err := l.calls(dir, w.script)
		if err != nil {
			return err
		}
		before := idle
		if w.before != ":" {
			if before, err = l.calls(dir, w.before); err != nil {
				return err
			}
		}
		total, parts := 0.0, []string{}
		for _, op := range slices.Sorted(maps.Keys(counts)) {
			n := float64(counts[op]) - float64(before[op])
			total += n
			if n >= files/20 {
				parts = append(parts, fmt.Sprintf("%s %.2f", op, n/files))
			}
		}
		l.table.value(w.name, fmt.Sprintf("%.2f", total/files), 1)
		l.table.note("%s", strings.Join(parts, ", "))
	}
	return nil
}

// calls runs a script in a session and returns what its servers were asked.
func (l *lab) calls(dir, script string) (map[string]uint64, error) {
	path := filepath.Join(l.scratch, "calls")
	if err := os.RemoveAll(path); err != nil {
		return nil, err
	}
	argv := []string{"/usr/bin/env", "TRY_TEST_CALLS=" + path, l.try, "--engine", "fuse", "--scope", "dir", "--abort", "-q", "--", "/bin/sh", "-c", script}
	if err := l.prepare(dir, argv...); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[string]uint64{}
	for in := bufio.NewScanner(f); in.Scan(); {
		counts := map[string]uint64{}
		if err := json.Unmarshal(in.Bytes(), &counts); err != nil {
			return nil, err
		}
		for op, n := range counts {
			all[op] += n
		}
	}
	return all, nil
}

// largeTree looks at what a supervisor holds when a session has gone through
// very many files: descriptors and memory.
func (l *lab) largeTree() error {
	files, wait := 200_000, 12 // seconds: more than the supervisor takes for a pause
	if l.short {
		files, wait = 2_000, 1
	}
	l.table.head("What the supervisor holds of %d files, --engine fuse", files)
	if l.try == "" {
		l.table.missing("memory and descriptors", l.noTry)
		return nil
	}
	dir, err := l.mkdir("run/large")
	if err != nil {
		return err
	}
	if err := l.fill(dir, files); err != nil {
		return err
	}
	script := fmt.Sprintf("echo; find . -size +0 >/dev/null; echo; sleep %d; echo; read end || :", wait)
	cmd := exec.CommandContext(l.ctx, l.try, "--engine", "fuse", "--scope", "dir", "--abort", "-q", "--", "/bin/sh", "-c", script)
	cmd.Dir, cmd.Env = dir, l.env
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	hold, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	in := bufio.NewReader(out)
	for _, when := range []string{"before", "when `find -size` has looked at each", fmt.Sprintf("… and %d s later", wait)} {
		_, err := in.ReadString('\n')
		kb, err1 := number(cmd.Process.Pid, "status", "VmRSS:")
		fds, err2 := os.ReadDir(fmt.Sprintf("/proc/%d/fd", cmd.Process.Pid))
		if err := errors.Join(err, err1, err2); err != nil {
			return errors.Join(err, hold.Close(), cmd.Wait())
		}
		l.table.value(when, fmt.Sprintf("%d MB", kb>>10), 1)
		l.table.note("%d descriptors", len(fds))
	}
	return errors.Join(hold.Close(), cmd.Wait(), os.RemoveAll(dir))
}
