package ns

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func ioctlByte(fd, request uintptr) error {
	var buf [64]byte
	buf[0] = 'x'
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(&buf))); errno != 0 {
		return errno
	}
	return nil
}

// marked are pidfds of the processes of a session, to wait for their end.
type marked []int

// sessionsOf finds the inits that a supervisor has made.
func sessionsOf(t *testing.T, supervisor int) (m marked) {
	t.Helper()
	for _, pid := range childrenOf(t, supervisor) {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			m = append(m, fd)
		}
	}
	return m
}

func childrenOf(t *testing.T, pid int) (pids []int) {
	t.Helper()
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, f := range tasks {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for s := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(s); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// gone waits for the end of all of them. The kernel announces the end of a
// PID 1 when the rest of its namespace is gone.
func (m marked) gone(t *testing.T) {
	t.Helper()
	if len(m) == 0 {
		t.Error("no process of the session was found")
	}
	for _, fd := range m {
		deadline := time.Now().Add(20 * time.Second)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(deadline).Milliseconds()))
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n != 1 {
				t.Error("a process of the session is left")
			}
			break
		}
		unix.Close(fd)
	}
}
