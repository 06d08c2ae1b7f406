package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// event is a line of --status-fd and when it came.
type event struct {
	Event   string `json:"event"`
	PID     int    `json:"pid"`
	Settled string `json:"settled"`
	Reason  string `json:"reason"`
	at      time.Time
}

// session is one run of try whose events are followed.
type session struct {
	cmd    *exec.Cmd
	events <-chan event // closed when try has closed its end
	stderr bytes.Buffer
}

// session starts try with flags and a command.
func (l *lab) session(flags []string, dir string, argv ...string) (*session, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &session{}
	args := append(append([]string{"--status-fd", "3"}, flags...), "--")
	s.cmd = exec.CommandContext(l.ctx, l.try, append(args, argv...)...)
	s.cmd.Dir, s.cmd.Env, s.cmd.Stderr = dir, l.env, &s.stderr
	s.cmd.ExtraFiles = []*os.File{w}
	err = s.cmd.Start()
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	events := make(chan event, 16)
	s.events = events
	go func() {
		defer close(events)
		defer r.Close()
		for in := bufio.NewScanner(r); in.Scan(); {
			e := event{at: time.Now()}
			if err := json.Unmarshal(in.Bytes(), &e); err != nil {
				e.Event, e.Reason = "unreadable", err.Error()
			}
			events <- e
		}
	}()
	return s, nil
}

// said is what try wrote to stderr, in one line.
func (s *session) said() string {
	return strings.Join(strings.Split(strings.TrimSpace(s.stderr.String()), "\n"), "; ")
}

// ending is how long it took from the end of the command.
type ending struct {
	settled time.Duration // to the event
	gone    time.Duration // to the end of the process
}

// finish waits for the end of a session that must have settled as said.
func (s *session) finish(settled string) (ending, error) {
	var exited, done event
	for e := range s.events {
		switch e.Event {
		case "exited":
			exited = e
		case "settled":
			done = e
		}
	}
	err := s.cmd.Wait()
	gone := time.Now()
	if err != nil {
		return ending{}, fmt.Errorf("try: %w: %s", err, s.said())
	}
	if done.Settled != settled {
		return ending{}, fmt.Errorf("settled %q (%s), want %q: %s", done.Settled, done.Reason, settled, s.said())
	}
	if exited.at.IsZero() {
		return ending{}, fmt.Errorf("no event “exited”")
	}
	return ending{settled: done.at.Sub(exited.at), gone: gone.Sub(exited.at)}, nil
}
