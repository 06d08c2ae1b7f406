package ns

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The life of init once the session stands. The rules of child.go hold.

// Stages of the end of all processes.
const (
	stageNone = iota
	stageTerm // TERM was sent, the grace runs
	stageKill // KILL was sent
)

const (
	killAgain = 100e6 // ns; a KILL that found nobody to deliver to is repeated
	groupSpan = 2e9   // ns; for so long a signal that reached our group counts as delivered
	groupWait = 5e6   // ns; for so long the copy of a signal for our group may take
)

// main is the whole life of init, from operation pc on.
//
//go:nosplit
//go:norace
func (c *child) main(pc int) {
	if pc, errno := c.run(pc); errno != 0 {
		if c.guards {
			c.guard()
		}
		c.fail(pc, errno)
		c.exit(125)
	}
	c.start(0)
	for {
		c.serve()
	}
}

// serve waits for one event and deals with it.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) serve() {
	timeout := int64(-1)
	if c.stage != stageNone {
		timeout = max(c.deadline-c.clock(), 0)
	}
	c.wait(c.both, timeout)
	if c.orphaned() {
		c.over()
	}
	c.obey()
	c.readSignals()
	c.reap() // in every round: whoever reads signals may have read SIGCHLD
	if c.stage != stageNone && c.clock() >= c.deadline {
		c.kill(uintptr(unix.SIGKILL))
		c.stage, c.deadline = stageKill, c.clock()+killAgain
	}
}

// wait waits for events: of the control socket and the signals, or of the
// signals alone. By epoll, since poll fails once the limit of open files is
// below two, and any process of our uid may set the limits of this one
// (prlimit(2)).
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) wait(of slot, nanos int64) {
	millis := int64(-1)
	if nanos >= 0 {
		millis = min((nanos+1e6-1)/1e6, 1<<30)
	}
	fd := c.word(c.slots + 8*uintptr(of))
	_, errno := c.call(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(&c.buf)), 2, uintptr(millis), 0, 8)
	if errno != 0 && errno != uintptr(unix.EINTR) {
		c.over() // rather than to spin
	}
}

// clock is CLOCK_MONOTONIC in nanoseconds.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) clock() int64 {
	c.call(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&c.now)), 0, 0, 0, 0)
	return c.now[0]*1e9 + c.now[1]
}

// readSignals notes which signals were sent to us. Without a terminal of its
// own init is in the caller's process group: what it got, the whole group
// got, the command too (HAZARDS B29).
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) readSignals() {
	for {
		const size, senderAt = 128, 12 // struct signalfd_siginfo
		n, errno := c.call(unix.SYS_READ, c.events, uintptr(unsafe.Pointer(&c.buf)), size, 0, 0, 0)
		if errno != 0 || n != size {
			return
		}
		if sig := c.buf[0]; sig > 0 && sig <= 64 && sig != byte(unix.SIGCHLD) {
			c.raised[sig] = c.clock()
			c.inside &^= 1 << sig
			if *(*uint32)(unsafe.Pointer(&c.buf[senderAt])) != 0 { // 0: it has no number in this namespace
				c.inside |= 1 << sig
			}
		}
	}
}

// obey reads one request. The end of the socket means that the supervisor is
// gone.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) obey() {
	n, errno := c.call(unix.SYS_RECVFROM, c.control, uintptr(unsafe.Pointer(&c.in)), unsafe.Sizeof(c.in), unix.MSG_DONTWAIT, 0, 0)
	if errno == uintptr(unix.EAGAIN) || errno == uintptr(unix.EINTR) {
		return
	}
	if errno != 0 || n != unsafe.Sizeof(c.in) {
		c.over()
	}
	switch c.in.kind {
	case requestRun:
		if c.in.arg >= 0 && int(c.in.arg) < len(c.entry) {
			c.start(c.in.arg)
		}
	case requestSignal:
		c.pass(uintptr(c.in.arg))
		c.reap() // pass has read all signals, SIGCHLD too
	case requestEnd:
		c.end(c.in.nanos)
	case requestLinger:
		c.linger = true
		c.reap()
	case requestResume:
		c.signal(uintptr(unix.SIGCONT))
	case requestTerminal:
		c.saved, c.raw, c.isRaw = c.in.saved, c.in.raw, true
	}
}

// over ends the session: the supervisor is gone, or the guard.
//
//go:nosplit
//go:norace
func (c *child) over() {
	c.restore()
	c.kill(uintptr(unix.SIGKILL))
	c.exit(0)
}

// restore gives the caller's terminal back its settings, if it still has
// those that the supervisor made: whoever set others since, a shell that is
// at its prompt already, knows better (HAZARDS B17).
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) restore() {
	if !c.isRaw || c.outer < 0 {
		return
	}
	if _, errno := c.call(unix.SYS_IOCTL, uintptr(c.outer), unix.TCGETS, uintptr(unsafe.Pointer(&c.buf)), 0, 0, 0); errno != 0 {
		return
	}
	for i := range c.raw {
		if c.buf[i] != c.raw[i] {
			return
		}
	}
	c.call(unix.SYS_IOCTL, uintptr(c.outer), unix.TCSETS, uintptr(unsafe.Pointer(&c.saved)), 0, 0, 0)
}

// kill sends sig to every process of the session. That is every process that
// this one may signal, so that must be proved to be no other: the check stands
// before each and every such call.
//
// Nothing that multiplies outruns a KILL: the kernel walks all processes under
// one lock (kill_something_info in kernel/signal.c), which a fork takes to add
// its child, and does not with a KILL pending (copy_process in kernel/fork.c).
// So one call takes all, and that it comes at all is what the limit of processes
// is for, which leaves us and the program room to run.
//
//go:nosplit
//go:norace
func (c *child) kill(sig uintptr) {
	if !c.bounded() {
		c.exit(125)
	}
	c.call(unix.SYS_KILL, ^uintptr(0), sig, 0, 0, 0, 0)
}

// end begins the end of all processes.
//
//go:nosplit
//go:norace
func (c *child) end(grace int64) {
	c.stage, c.deadline = stageTerm, c.clock()+grace
	if c.reap(); c.stage == stageNone {
		return // nobody was left
	}
	c.name()
	if grace > 0 {
		c.kill(uintptr(unix.SIGTERM))
		c.kill(uintptr(unix.SIGCONT)) // or what is stopped never sees it
	}
}

// reap takes the status of every child that ended, and tells.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) reap() {
	exited, left := false, int64(1)
	wall := uintptr(0x40000000) // __WALL: also children that do not signal SIGCHLD
	if c.witness != 0 {
		wall = 0 // which is one; whoever is adopted signals SIGCHLD (reparent_leader in kernel/exit.c)
	}
	for {
		pid, errno := c.call(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&c.stat)), unix.WNOHANG|unix.WUNTRACED|wall, 0, 0, 0)
		if errno == uintptr(unix.ECHILD) {
			left = 0
		}
		if errno != 0 || pid == 0 {
			break
		}
		if int32(pid) != c.cmd {
			continue
		}
		if c.stat&0xff == 0x7f {
			c.out.kind, c.out.code, c.out.at = reportStopped, c.stat>>8&0xff, int64(c.program)
			c.send(0)
			continue
		}
		exited, c.cmd = true, 0
		c.out.code = c.stat
	}
	if exited {
		c.readSignals() // one of them may have ended it
		c.out.notes[0], c.out.notes[1] = 0, c.inside
		for sig := uintptr(1); sig < 64; sig++ {
			if c.recent(sig) {
				c.out.notes[0] |= 1 << sig
			}
		}
		c.out.kind, c.out.at, c.out.flag = reportExited, int64(c.program), left
		c.send(0)
	}
	if left == 0 && (c.stage != stageNone || c.linger) {
		c.stage, c.linger = stageNone, false
		c.out.kind = reportEmpty
		c.send(0)
	}
}

// pass hands a signal on so that the program gets it once: not at all if it
// came to our process group, of which the program is one; with a terminal to
// the program's own group.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) pass(sig uintptr) {
	if sig == 0 || sig > 64 {
		return
	}
	if c.word(c.slots+8*uintptr(c.tty)) == 0 {
		c.readSignals()
		if !c.recent(sig) {
			c.wait(c.alone, groupWait)
			c.readSignals()
		}
		seen := c.recent(sig)
		c.raised[sig] = 0
		if seen {
			sig = 0
		}
	}
	if sig != 0 {
		c.signal(sig)
	}
	if c.in.nanos != 0 { // TERM and HUP: what is stopped must wake to see them
		c.signal(uintptr(unix.SIGCONT))
	}
}

//go:nosplit
//go:norace
func (c *child) recent(sig uintptr) bool {
	return c.raised[sig] != 0 && c.clock()-c.raised[sig] < groupSpan
}

// signal sends to the running program: its process group if it leads one.
//
//go:nosplit
//go:norace
func (c *child) signal(sig uintptr) {
	if c.cmd == 0 {
		return
	}
	pid := uintptr(c.cmd)
	if c.word(c.slots+8*uintptr(c.tty)) != 0 {
		pid = -pid
	}
	c.call(unix.SYS_KILL, pid, sig, 0, 0, 0, 0)
}

// start forks program i. In a root session it gets a user namespace of its
// own, whose maps only a process of the outer one may write.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) start(i int32) {
	flags := uintptr(unix.CLONE_VM | unix.SIGCHLD)
	if len(c.maps) > 0 {
		flags |= unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	}
	c.program = i
	pid, errno := fork(flags, c.fresh.stack(), 0, c.enter, c.fresh, i)
	if errno == 0 && len(c.maps) > 0 {
		if errno = c.writeMaps(pid); errno != 0 {
			c.call(unix.SYS_KILL, pid, uintptr(unix.SIGKILL), 0, 0, 0, 0)
		}
	}
	if errno != 0 {
		c.fail(c.entryOf(i), errno)
		return
	}
	c.cmd = int32(pid)
}

// entryOf is where program i begins; that it exists, obey and Start saw to.
//
//go:nosplit
//go:norace
func (c *child) entryOf(i int32) int {
	if i < 0 || int(i) >= len(c.entry) {
		c.exit(125)
		return 0
	}
	return int(c.entry[i])
}

// become is the program's side of start.
//
//go:nosplit
//go:norace
func (c *child) become(i int32) {
	c.program, c.stat = i, 0
	pc, errno := c.run(c.entryOf(i))
	if errno != 0 {
		c.fail(pc, errno)
		c.exit(125)
	}
	c.out.kind, c.out.at, c.out.code = reportExec, int64(i), c.stat
	c.send(0)
	if c.stat == int32(unix.ENOENT) {
		c.exit(127)
	}
	c.exit(126)
}

//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) writeMaps(pid uintptr) uintptr {
	for i := range c.maps {
		m := &c.maps[i]
		c.procPath(pid, m.name)
		fd, errno := c.call(unix.SYS_OPENAT, atCwd, uintptr(unsafe.Pointer(&c.path)), unix.O_WRONLY|unix.O_CLOEXEC, 0, 0, 0)
		if errno != 0 {
			return errno
		}
		_, errno = c.call(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.StringData(m.text))), uintptr(len(m.text)), 0, 0, 0)
		c.call(unix.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
		if errno != 0 {
			return errno
		}
	}
	c.now[0] = 1
	_, errno := c.call(unix.SYS_WRITE, c.word(c.slots+8*uintptr(c.gate)), uintptr(unsafe.Pointer(&c.now)), 8, 0, 0, 0)
	return errno
}

// procPath makes c.path /proc/PID/NAME.
//
//go:nosplit
//go:norace
func (c *child) procPath(pid uintptr, name string) {
	const dir = "/proc/"
	n := 0
	for ; n < len(dir); n++ {
		c.path[n] = dir[n]
	}
	digits := 1
	for v := pid; v >= 10; v /= 10 {
		digits++
	}
	for i := digits - 1; i >= 0; i-- {
		c.path[n+i] = '0' + byte(pid%10)
		pid /= 10
	}
	n += digits
	c.path[n] = '/'
	for i := 0; i < len(name); i++ {
		c.path[n+1+i] = name[i]
	}
	c.path[n+1+len(name)] = 0
}

const atCwd = ^uintptr(99) // AT_FDCWD
