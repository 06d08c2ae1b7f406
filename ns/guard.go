package ns

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// A session without namespaces: its guard, and the proof that kill(-1) reaches
// no one else. The rules of child.go hold.

// guardWait is how long init has, in ns, to end by itself when the supervisor
// is gone: it gives the terminal back.
const guardWait = 1e9

// testify forks a process that ends at once and stays a zombie: without an exit
// signal it is no child for a wait that does not ask for such (__WCLONE).
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) testify() (uintptr, uintptr) {
	c.now[0] = 0
	pid, errno := c.call(unix.SYS_CLONE, unix.CLONE_PIDFD, 0, uintptr(unsafe.Pointer(&c.now)), 0, 0, 0)
	if errno == 0 && pid == 0 {
		c.exit(0)
	}
	return uintptr(uint32(c.now[0])), errno
}

// prove takes the witness, which could be signalled before this process entered
// a domain, for one that it may not signal any more.
//
//go:nosplit
//go:norace
func (c *child) prove(witness uintptr) uintptr {
	if !c.keptFrom(witness) {
		return uintptr(unix.EXDEV)
	}
	c.witness = witness
	return 0
}

//go:nosplit
//go:norace
func (c *child) keptFrom(witness uintptr) bool {
	_, errno := c.call(unix.SYS_PIDFD_SEND_SIGNAL, witness, 0, 0, 0, 0, 0)
	return errno == uintptr(unix.EPERM)
}

// bounded says whether kill(-1) reaches the session only: as PID 1 of a
// namespace that the clone made, or in a domain that this process has entered
// (prove) and that keeps it, now, from a process of its own user and outside of
// it.
//
//go:nosplit
//go:norace
func (c *child) bounded() bool {
	if c.witness != 0 {
		return c.keptFrom(c.witness)
	}
	pid, _ := c.call(unix.SYS_GETPID, 0, 0, 0, 0, 0, 0)
	return pid == 1
}

// standGuard makes init, which goes on behind the operation pc, in a copy of the
// guard's memory; the guard leaves the program.
//
//go:nosplit
//go:norace
func (c *child) standGuard(pc int) uintptr {
	c.parent, _ = c.call(unix.SYS_GETPID, 0, 0, 0, 0, 0, 0)
	witness := c.witness
	c.begin, c.witness = int32(pc)+1, 0 // it has proved nothing yet
	pid, errno := fork(uintptr(unix.SIGCHLD), c.stack(), 0, c.enter, c, asInit)
	c.parent, c.witness = 0, witness
	if errno != 0 {
		return errno
	}
	c.cmd, c.guards = int32(pid), true
	return uintptr(unix.EINTR)
}

// orphaned says whether the guard is gone.
//
//go:nosplit
//go:norace
func (c *child) orphaned() bool {
	if c.parent == 0 {
		return false
	}
	pid, _ := c.call(unix.SYS_GETPPID, 0, 0, 0, 0, 0, 0)
	return pid != c.parent
}

// guard waits for the end of init, and sees to it that it is the end of all.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) guard() {
	watched, ended := true, false // the supervisor is there; init is not
	deadline := int64(0)          // when all are killed, if either holds no more
	for c.bury() {
		if c.cmd == 0 && !ended {
			ended, deadline = true, 0
		}
		if (ended || !watched) && c.clock() >= deadline {
			c.kill(uintptr(unix.SIGKILL))
			deadline = c.clock() + killAgain
		}
		// Two struct pollfd: the supervisor's socket, of which only the end is
		// news, and the children.
		none := ^uint32(0)
		if watched {
			none = uint32(c.control)
		}
		c.iov[0] = uint64(none)
		c.iov[1] = uint64(uint32(c.word(c.slots+8*uintptr(c.children)))) | unix.POLLIN<<32
		timeout := uintptr(0)
		if ended || !watched {
			left := max(deadline-c.clock(), 0)
			c.now[0], c.now[1] = left/1e9, left%1e9
			timeout = uintptr(unsafe.Pointer(&c.now))
		}
		_, errno := c.call(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&c.iov)), 2, timeout, 0, 8, 0)
		if errno != 0 && errno != uintptr(unix.EINTR) {
			watched, deadline = false, 0 // rather than to wait for nothing
		}
		if watched && c.iov[0]>>48&unix.POLLHUP != 0 {
			watched, deadline = false, c.clock()+guardWait
		}
		c.call(unix.SYS_READ, c.word(c.slots+8*uintptr(c.children)), uintptr(unsafe.Pointer(&c.buf)), unsafe.Sizeof(c.buf), 0, 0, 0)
	}
	c.run(int(c.after))
	// The witness, which otherwise the machine's init would have to bury.
	const wall = 0x40000000
	c.call(unix.SYS_WAIT4, ^uintptr(0), 0, unix.WNOHANG|wall, 0, 0, 0)
	c.exit(0)
}

// bury takes the status of all who have ended, and says whether anybody is left.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) bury() bool {
	for {
		pid, errno := c.call(unix.SYS_WAIT4, ^uintptr(0), 0, unix.WNOHANG, 0, 0, 0)
		if errno != 0 {
			return false
		}
		if pid == 0 {
			return true
		}
		if int32(pid) == c.cmd {
			c.cmd = 0
		}
	}
}
