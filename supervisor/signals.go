package supervisor

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// signals are those that the supervisor passes on or acts on, from before
// there is a branch until it is settled.
type signals struct {
	c chan os.Signal
}

// caught are the signals of DESIGN §3. PIPE is among them so that a reader of
// our messages who goes away does not end us in the middle of a commit (H26).
var caught = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE}

// ending are those that end an exploration.
var ending = []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}

func catch() *signals {
	s := &signals{make(chan os.Signal, 16)}
	for _, sig := range caught {
		// What the caller ignores (nohup, a background job's INT) stays so, for
		// CMD too: a child inherits it.
		if !signal.Ignored(sig) {
			signal.Notify(s.c, sig)
		}
	}
	return s
}

// catching is catch behind one's back, for as long as nothing is made that a
// signal must not leave: os/signal changes threads twice for each of them.
func catching() func() *signals {
	c := make(chan *signals, 1)
	go func() { c <- catch() }()
	return func() *signals { return <-c }
}

func (s *signals) release() { signal.Stop(s.c) }

// shield makes the process fit to apply a commit: no stop by the terminal, and
// the largest files it may write. It returns the way back. Other signals are
// noted already and are looked at afterwards, or never.
func shield() (func(), error) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &lim); err != nil {
		return nil, fmt.Errorf("read the file size limit: %w", err)
	}
	if lim.Cur != lim.Max {
		raised := syscall.Rlimit{Cur: lim.Max, Max: lim.Max}
		if err := syscall.Setrlimit(unix.RLIMIT_FSIZE, &raised); err != nil {
			return nil, fmt.Errorf("raise the file size limit: %w", err)
		}
	}
	stops := !signal.Ignored(unix.SIGTSTP)
	if stops {
		signal.Ignore(unix.SIGTSTP)
	}
	return func() {
		if stops {
			signal.Reset(unix.SIGTSTP)
		}
	}, nil
}
