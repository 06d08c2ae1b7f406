package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	goalRace  = 20 * time.Millisecond // winner's exit to its commit, 8 variants
	goalCache = 1.2                   // growth of the page cache against the file that 8 variants read
)

// raced is one race, followed through its events.
type raced struct {
	made      time.Duration // fork to the first event: every branch is there
	committed time.Duration // the winner's exit to its commit
	ended     time.Duration // the winner's exit to the end of try
	whole     time.Duration
}

// follow runs a race whose winner is known, or 0 if nothing is to be committed.
func (l *lab) follow(dir string, winner int, args ...string) (raced, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return raced{}, err
	}
	defer r.Close()
	args = append([]string{"--race", "--scope", "dir", "-q", "--output", "none", "--status-fd", "3"}, args...)
	cmd := exec.CommandContext(l.ctx, l.try, args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr, cmd.ExtraFiles = dir, l.env, &stderr, []*os.File{w}
	began := time.Now()
	err = cmd.Start()
	if err := errors.Join(err, w.Close()); err != nil {
		return raced{}, err
	}
	var got raced
	var exited time.Time
	var settled string
	for in := bufio.NewScanner(r); in.Scan(); {
		now := time.Now()
		var e struct {
			Event, Settled string
			Index          int
		}
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			return raced{}, errors.Join(err, cmd.Wait())
		}
		if got.made == 0 {
			got.made = now.Sub(began)
		}
		if e.Index == 0 || e.Index != winner {
			continue
		}
		switch e.Event {
		case "exited":
			exited = now
		case "settled":
			got.committed, settled = now.Sub(exited), e.Settled
		}
	}
	if err := cmd.Wait(); err != nil {
		return raced{}, fmt.Errorf("try: %w: %s", err, lastLine(stderr.Bytes()))
	}
	got.ended, got.whole = time.Since(exited), time.Since(began)
	if winner > 0 && settled != "committed" {
		return raced{}, fmt.Errorf("variant %d settled %q, want “committed”: %s", winner, settled, lastLine(stderr.Bytes()))
	}
	reap()
	return got, nil
}

// racing measures races: what losers cost the winner, and what many variants
// cost.
func racing(l *lab) error {
	if l.try == "" {
		l.table.head("Race")
		l.table.missing("race", l.noTry)
		return nil
	}
	for _, part := range []func(*lab) error{raceLatency, raceCreation, raceCache} {
		if err := part(l); err != nil {
			return err
		}
	}
	return nil
}

// raceLatency races a winner that writes one small file against seven losers.
func raceLatency(l *lab) error {
	l.table.head("Race: from the winner's exit to its commit of 1 KB (events “exited” → “settled”), 8 variants, seven losers that …")
	n := 15
	if l.short {
		n = 3
	}
	dir, err := l.mkdir("race")
	if err != nil {
		return err
	}
	const win = `head -c 1000 /dev/urandom >file`
	kinds := []struct{ name, script, wait string }{
		{"(there are none)", "", "0.2"},
		{"sleep", "exec sleep 600", "0.2"},
		{"ignore TERM, and fork ten that do", `trap "" TERM; for i in 1 2 3 4 5 6 7 8 9 10; do (trap "" TERM; while :; do sleep 1; done) & done; while :; do sleep 1; done`, "0.4"},
		{"use all processors", "while :; do :; done", "0.2"},
		{"hold 256 MB each", "exec " + l.worker + " " + workerWord + " hold 256", "1.5"},
	}
	if l.short {
		kinds = kinds[:3]
	}
	took := make([][]raced, len(kinds))
	for range n {
		for i, k := range kinds {
			args := []string{"-c", "sleep " + k.wait + "; " + win}
			for range 7 {
				if k.script != "" {
					args = append(args, "-c", k.script)
				}
			}
			got, err := l.follow(dir, 1, args...)
			if err != nil {
				return fmt.Errorf("losers that %s: %w", k.name, err)
			}
			took[i] = append(took[i], got)
		}
	}
	of := func(list []raced, what func(raced) time.Duration) (all []time.Duration) {
		for _, r := range list {
			all = append(all, what(r))
		}
		return all
	}
	commit := func(r raced) time.Duration { return r.committed }
	for i, k := range kinds {
		all := of(took[i], commit)
		if i == 0 {
			l.table.times(k.name, all)
			continue
		}
		l.table.times(k.name, all, limit(float64(median(all)), float64(goalRace), "absolute", "20 ms"),
			against(all, of(took[0], commit), "without losers", 0, 0))
		l.table.times("  to the end of try: all losers are gone", of(took[i], func(r raced) time.Duration { return r.ended }))
	}
	return nil
}

// raceCreation starts races of more and more variants over 10,000 files.
func raceCreation(l *lab) error {
	nop, err := l.look("true", "coreutils")
	if err != nil {
		return err
	}
	dir, err := l.mkdir(filepath.Join("race", "base"))
	if err != nil {
		return err
	}
	if err := l.fill(dir, 10_000); err != nil {
		return err
	}
	counts, n := []int{1, 2, 4, 8, 16, 32, 64}, 9
	if l.short {
		counts, n = []int{1, 4, 16}, 3
	}
	made, whole, inTurn := map[int][]time.Duration{}, map[int][]time.Duration{}, map[int][]time.Duration{}
	single := contender{argv: []string{l.try, "--abort", "--scope", "dir", "-q", "--", nop}, dir: dir}
	for range n {
		for _, count := range counts {
			// All fail, or the first would end the race.
			got, err := l.follow(dir, 0, "--on-none", "0", "-n", strconv.Itoa(count), "sh", "-c", "exit 1")
			if err != nil {
				return err
			}
			made[count], whole[count] = append(made[count], got.made), append(whole[count], got.whole)
			began := time.Now()
			for range count {
				if _, _, err := l.spawn(single); err != nil {
					return err
				}
			}
			inTurn[count] = append(inTurn[count], time.Since(began))
		}
	}
	l.table.head("Race: creating N branches over 10,000 files, from fork to the first event")
	for _, count := range counts {
		var ratios []ratio
		if count > 1 {
			ratios = append(ratios, against(made[count], made[1], "N = 1", float64(count), 0))
		}
		l.table.times(fmt.Sprintf("N = %d", count), made[count], ratios...)
	}
	l.table.head("Race: N variants of a short command, the whole, beside `try` N times in turn")
	for _, count := range counts {
		l.table.times(fmt.Sprintf("N = %d", count), whole[count], against(whole[count], inTurn[count], "in turn", 0, 0))
	}
	return nil
}

// raceCache has eight variants read the same file, which is in no cache.
func raceCache(l *lab) error {
	l.table.head("Race: the page cache after 8 variants have read the same file")
	size := int64(500 << 20)
	if l.short {
		size = 50 << 20
	}
	dir, err := l.mkdir(filepath.Join("race", "big"))
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "file"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		return fmt.Errorf("make a file of %d bytes: %w", size, err)
	}
	chunk := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	for at := int64(0); at < size; at += int64(len(chunk)) {
		if _, err := f.WriteAt(chunk[:min(int64(len(chunk)), size-at)], at); err != nil {
			return err
		}
	}
	if err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
		return err
	}
	before, err := cached()
	if err != nil {
		return err
	}
	if _, err := l.follow(dir, 0, "--on-none", "0", "-n", "8", "sh", "-c", "cat file >/dev/null; exit 1"); err != nil {
		return err
	}
	after, err := cached()
	if err != nil {
		return err
	}
	l.table.value(fmt.Sprintf("growth, file of %d MB", size>>20), fmt.Sprintf("%d MB", (after-before)>>10), 1,
		compare(float64((after-before)<<10), float64(size), "the file", goalCache, 0))
	return nil
}

// cached is the page cache of the machine in KB.
func cached() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Cached:"); ok {
			return strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, errors.New("no Cached in /proc/meminfo")
}

// hold takes so many MB of memory and keeps them until it is killed.
func hold(text string) error {
	mb, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	memory := make([]byte, mb<<20)
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	for {
		if err := unix.Pause(); !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("pause with %d bytes: %w", len(memory), err)
		}
	}
}
