package branch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// A session whose supervisor was killed ends on its own, a moment later: init
// has to hear of it, its processes have to die, and its mounts to go. Until then
// they may write to the layers, though the branch's lock is free.

const (
	ownEnd    = 3 * time.Second  // for init to put the terminal right and end; a guard (package ns) gives it one
	killedEnd = 10 * time.Second // for what has been killed, also on a busy machine
)

// Began writes into the branch's lock file that the session ends with process
// init, of this boot and PID namespace: when it is gone, so is all that it had.
// Where the process cannot be seen (proc(5), hidepid) there is nothing to write.
func (b *Branch) Began(init int) error {
	who, err := identity(init)
	if err != nil {
		return nil
	}
	if _, err := b.lock.file.WriteAt(fmt.Appendf(nil, "%d %s\n", init, who), 0); err != nil {
		return fmt.Errorf("note the session's first process: %w", err)
	}
	return nil
}

// outlive waits until nothing is left of the session that Began was told of,
// and kills what does not end, as when init is stopped.
func (b *Branch) outlive() error {
	buf := make([]byte, 128)
	n, _ := b.lock.file.ReadAt(buf, 0)
	line, _, _ := strings.Cut(string(buf[:n]), "\n")
	number, was, _ := strings.Cut(line, " ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		return nil // nothing has begun
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // gone, or of another PID namespace
	}
	defer unix.Close(fd)
	if who, err := identity(pid); err != nil || who != was {
		return nil // the number was given to another
	}
	gone, err := hasEnded(fd, ownEnd)
	if err == nil && !gone {
		if err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err == nil || errors.Is(err, unix.ESRCH) {
			gone, err = hasEnded(fd, killedEnd)
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("end process %d, the first of its session: %w", pid, err)
	case !gone:
		return fmt.Errorf("%w: process %d, the first of its session, does not end", ErrLocked, pid)
	}
	return nil
}

// hasEnded waits that long for the end of a process (pidfd_open(2)).
func hasEnded(pidfd int, limit time.Duration) (bool, error) {
	for deadline := time.Now().Add(limit); ; {
		left := max(0, time.Until(deadline))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, err
		}
		if n == 1 || left == 0 {
			return n == 1, nil
		}
	}
}

// identity is what tells a process from any other that has had its number: its
// name, and when it began, in clock ticks since the boot (proc_pid_stat(5),
// fields 2 and 22).
func identity(pid int) (string, error) {
	const start = 22 - 3
	name, fields, err := sys.Process(pid)
	if err == nil && len(fields) <= start {
		err = fmt.Errorf("process %d has no start in %q", pid, fields)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%q %s", name, fields[start]), nil
}
