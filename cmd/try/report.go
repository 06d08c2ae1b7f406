package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"

	"try/ns"
	"try/supervisor"
	"try/supervisor/printable"
)

// The rules of the terminal:
//
//   - stdout belongs to CMD and to what was asked for: a list, a document.
//     Summaries, errors, hints and warnings go to stderr, questions to
//     /dev/tty.
//   - What we say begins with "try: "; no capital at the start, no full stop.
//     What the user can do about it is a hint on a line of its own.
//   - Whatever we did not write ourselves goes through package printable.
//   - Once a branch is being settled, an output error changes nothing.

// The exit codes of `try` itself (DESIGN §3). Those of CMD pass unchanged.
const (
	statusNo     = 1                       // a reserved word's negative answer
	statusUsage  = 2                       // a reserved word used wrongly
	statusFailed = supervisor.StatusFailed // try itself failed
)

// statusOf is the exit code of an error. An error that wants another one than
// 125 says so; nothing else decides.
func statusOf(err error) int {
	if _, ok := errors.AsType[*supervisor.UnknownBranchError](err); ok {
		return statusNo
	}
	if _, ok := errors.AsType[*supervisor.NoMatchError](err); ok {
		return statusNo
	}
	if coded, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		return coded.ExitCode()
	}
	return statusFailed
}

// report prints an error with its hint and returns its exit code.
func (p *program) report(err error) int {
	p.complain(err)
	return statusOf(err)
}

// complain prints an error and its hint. Errors that were joined stand in
// lines of their own.
func (p *program) complain(err error) {
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for _, e := range list {
		fmt.Fprintln(p.stderr, paint(p.color, red, "try: "+printable.Text(e.Error())))
	}
	p.hint(hintOf(err))
}

// hintOf is what can be done about an error: what it says itself, or for a
// session that could not be set up the word that explains it.
func hintOf(err error) string {
	if hint := supervisor.Hint(err); hint != "" {
		return hint
	}
	if _, ok := errors.AsType[*ns.Failure](err); ok {
		return `"try doctor" says what is missing here and how to fix it`
	}
	return ""
}

// hint prints what the user can do; each line of it stands for itself.
func (p *program) hint(text string) {
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintln(p.stderr, "try: hint: "+printable.Text(line))
	}
}

// say prints one line of ours.
func say(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, "try: "+printable.Text(fmt.Sprintf(format, args...)))
}

// colors says whether f gets colours (https://no-color.org).
func (g globalFlags) colors(f *os.File) bool {
	switch g.Color {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(f)
}

// isTerminal says whether f is one.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// surviveBrokenPipes makes a closed stdout or stderr an error of the write
// instead of our end: the Go runtime dies of it otherwise, and a commit must
// not (H26). CMD gets the default again, since handlers end at execve(2).
func surviveBrokenPipes() {
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
}

// lateSignals are those that come when the run is over and only words are left
// to be said: they end us, with the status that is known (H26).
type lateSignals struct {
	c      chan os.Signal
	caught chan struct{} // closed when all are
}

// catchLate begins to listen before the run, so that there is no gap behind it,
// and survives broken pipes. Nobody waits for it before exit: os/signal changes
// threads twice for each signal, which takes half a millisecond in all.
func catchLate() *lateSignals {
	l := &lateSignals{make(chan os.Signal, 1), make(chan struct{})}
	go func() {
		surviveBrokenPipes()
		for _, sig := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
			if !signal.Ignored(sig) {
				signal.Notify(l.c, sig)
			}
		}
		close(l.caught)
	}()
	return l
}

// exit forgets what came during the run, which has dealt with it, and has the
// next one end us.
func (l *lateSignals) exit(status int) {
	<-l.caught
	select {
	case <-l.c:
	default:
	}
	go func() {
		<-l.c
		os.Exit(status) //lint:allow exit: nothing is left to be done
	}()
}
