package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"try/supervisor"
)

const askHelp = `  c, commit   apply the changes to the real files
  a, abort    drop them
  d, diff     show them in full
  k, keep     keep the branch for later (try changes, try commit, try abort)
  end of input keeps the branch too
`

// ask puts the question until a line is exactly one of the choices. The end of
// the input, an interrupt or a lost terminal keeps the branch: nothing is lost
// by it. diff shows the changes in full.
//
// No process of the session is left, but answers of the terminal to its
// queries may still come, and one of them can look like a choice: ESC [ c is
// answered by ESC [ ? 1 ; 2 c (H10). So what comes before the question is
// thrown away, and a line with anything else in it than a choice is none.
func (t *tty) ask(name string, diff func() error) (fate supervisor.Fate, err error) {
	err = t.watched(func(interrupted <-chan struct{}) error {
		fate, err = t.askUntil(interrupted, name, diff)
		return err
	})
	return fate, err
}

// watched calls f with a channel that is closed when the user or the system
// wants an end; a read of the terminal is woken then.
func (t *tty) watched(f func(interrupted <-chan struct{}) error) error {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	answered := make(chan struct{})
	watched := make(chan struct{})
	defer func() {
		signal.Stop(interrupts)
		close(answered)
		<-watched
	}()
	interrupted := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-interrupts:
			close(interrupted)
			_ = t.f.SetReadDeadline(time.Unix(1, 0)) // wakes the read
		case <-answered:
		}
	}()
	return f(interrupted)
}

// isEnd says that a read of the terminal ended without a line: the end of the
// input, an interrupt or a lost terminal.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, unix.EIO)
}

func (t *tty) askUntil(interrupted <-chan struct{}, name string, diff func() error) (supervisor.Fate, error) {
	for {
		line, err := t.question(name+": [c]ommit [a]bort [d]iff [k]eep, ? for help: ", interrupted)
		switch {
		case isEnd(err):
			t.print("\n")
			return supervisor.Keep, nil
		case err != nil:
			return supervisor.Keep, fmt.Errorf("ask on the terminal: %w", err)
		}
		switch line {
		case "c", "commit":
			return supervisor.Commit, nil
		case "a", "abort":
			return supervisor.Abort, nil
		case "k", "keep":
			return supervisor.Keep, nil
		case "d", "diff":
			if err := diff(); err != nil {
				t.print("try: " + strings.ReplaceAll(err.Error(), "\n", " ") + "\n")
			}
		case "?", "h", "help":
			t.print(askHelp)
		case "":
		default:
			t.slow = t.slow || strings.Contains(line, "\x1b")
			t.print("try: that is none of c, a, d, k\n")
		}
	}
}

// question puts one and reads one line.
func (t *tty) question(text string, interrupted <-chan struct{}) (string, error) {
	if err := t.drain(); err != nil {
		return "", err
	}
	if err := t.canonical(); err != nil {
		return "", err
	}
	select {
	case <-interrupted: // drain took the deadline that was to wake the read
		return "", os.ErrDeadlineExceeded
	default:
	}
	t.print("try: " + text)
	return t.readLine()
}
