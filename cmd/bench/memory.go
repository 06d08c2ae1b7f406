package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// memory looks at supervisor and init while a command sleeps inside. The peak
// of resident pages counts shared ones twice (init is forked from the
// supervisor), so it is the upper bound and the one judged.
func memory(l *lab) error {
	const goal = 20 << 10 // KB
	l.table.head("Memory of supervisor and init, while `sleep` runs inside (default scope)")
	if l.try == "" {
		l.table.missing("supervisor + init", l.noTry)
		return nil
	}
	sleep, err := l.look("sleep", "coreutils")
	if err != nil {
		return err
	}
	n := 5
	if l.short {
		n = 2
	}
	var outer, inner, both, share []int
	for range n {
		s, err := l.session([]string{"--abort", "-q"}, l.home+"/project", sleep, "600")
		if err != nil {
			return err
		}
		o, i, p, err := s.memory()
		if err := errors.Join(err, s.cmd.Process.Signal(unix.SIGTERM)); err != nil {
			return errors.Join(err, s.cmd.Wait())
		}
		for range s.events { // until try has ended
		}
		// Its status is that of the signal that ended sleep: no error here.
		if err := s.cmd.Wait(); s.cmd.ProcessState == nil {
			return err
		}
		outer, inner, both = append(outer, o), append(inner, i), append(both, o+i)
		if p > 0 {
			share = append(share, p)
		}
	}
	reap()
	show := func(kb []int) (string, float64) {
		v := float64(medianOf(kb))
		return fmt.Sprintf("%.1f MB", v/1024), v
	}
	text, _ := show(outer)
	l.table.value("supervisor, peak resident", text, n)
	text, _ = show(inner)
	l.table.value("init, peak resident", text, n)
	text, v := show(both)
	l.table.value("both", text, n, limit(v, goal, "absolute", "20 MB"))
	if len(share) > 0 {
		text, _ = show(share)
		l.table.value("both, shared pages counted once (PSS)", text, len(share))
	}
	return nil
}

func medianOf(kb []int) int {
	d := make([]time.Duration, len(kb))
	for i, k := range kb {
		d[i] = time.Duration(k)
	}
	return int(median(d))
}

// memory is the peak of supervisor and init in KB, and the proportional share
// of both now, 0 if it may not be read: init is not dumpable.
func (s *session) memory() (outer, inner, share int, err error) {
	var cmd int
	for e := range s.events {
		if e.Event == "started" {
			cmd = e.PID
			break
		}
	}
	if cmd == 0 {
		return 0, 0, 0, errors.New("no event “started”")
	}
	try := s.cmd.Process.Pid
	init, err := number(cmd, "status", "PPid:")
	if err != nil {
		return 0, 0, 0, err
	}
	if parent, err := number(init, "status", "PPid:"); err != nil || parent != try {
		return 0, 0, 0, fmt.Errorf("process %d is not init: its parent is %d, not try (%d): %w", init, parent, try, err)
	}
	outer, err1 := number(try, "status", "VmHWM:")
	inner, err2 := number(init, "status", "VmHWM:")
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, 0, err
	}
	o, err1 := number(try, "smaps_rollup", "Pss:")
	i, err2 := number(init, "smaps_rollup", "Pss:")
	if err1 != nil || err2 != nil {
		return outer, inner, 0, nil
	}
	return outer, inner, o + i, nil
}

// number is the first number behind key in a file of /proc/PID.
func number(pid int, file, key string) (int, error) {
	name := fmt.Sprintf("/proc/%d/%s", pid, file)
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		if rest, ok := strings.CutPrefix(s.Text(), key); ok {
			return strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	return 0, fmt.Errorf("%s: no %s: %w", name, key, s.Err())
}
