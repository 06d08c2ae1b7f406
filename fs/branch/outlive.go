package branch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A session whose supervisor was killed ends on its own, a moment later: init
// has to hear of it, its processes have to die, and its mounts to go. Until then
// they may write to the layers, though the branch's lock is free.

// outliveTimeout is long for a kill, also on a machine that is busy.
const outliveTimeout = 10 * time.Second

// Began writes into the branch's lock file that the session ends with process
// init, of this boot and PID namespace: when it is gone, so is all that it had.
// Where the process cannot be seen (proc(5), hidepid) there is nothing to write.
func (b *Branch) Began(init int) error {
	since, err := startTime(init)
	if err != nil {
		return nil
	}
	if _, err := b.lock.file.WriteAt(fmt.Appendf(nil, "%d %s\n", init, since), 0); err != nil {
		return fmt.Errorf("note the session's first process: %w", err)
	}
	return nil
}

// outlive waits until nothing is left of the session that Began was told of.
func (b *Branch) outlive() error {
	buf := make([]byte, 64)
	n, _ := b.lock.file.ReadAt(buf, 0)
	var pid int
	var since string
	if _, err := fmt.Sscanf(string(buf[:n]), "%d %s\n", &pid, &since); err != nil {
		return nil // nothing has begun
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // gone, or of another PID namespace
	}
	defer unix.Close(fd)
	if now, err := startTime(pid); err != nil || now != since {
		return nil // the number was given to another
	}
	deadline := time.Now().Add(outliveTimeout)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("%w: process %d, the first of its session, does not end", ErrLocked, pid)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", pid, err)
		}
		if n == 1 {
			return nil
		}
	}
}

// startTime is when a process began, in clock ticks since the boot (proc_pid_stat(5),
// field 22): with its number it is the process itself.
func startTime(pid int) (string, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	const fields = 22 - 3 // the second, a name, may hold anything but ends with the last bracket
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) <= fields {
		return "", fmt.Errorf("%s: %d fields", path, len(f))
	}
	return string(f[fields]), nil
}
