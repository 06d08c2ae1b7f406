package ns

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file and pid1.go run in a process that was forked from a Go program
// without an exec, in its memory or in a copy of that (fork.go). The scheduler,
// the garbage collector and the allocator belong to the other threads, which
// know nothing of this one, or do not exist here. So the code keeps these rules:
//
//   - every function is a nosplit method of *child, so that no stack ever
//     grows, and the linker proves that the deepest chain fits;
//   - nothing allocates, nothing stores a pointer (a write barrier may be
//     on): addresses are uintptr, all memory is in the child struct, its
//     stack too, or in the arena, both made before the fork;
//   - nothing is called but the methods here and the raw system calls, which
//     do not tell the scheduler that they block.
//
// TestChildCallsNothingElse reads the machine code and proves the last two.
//
// All signals are blocked, so no Go signal handler runs. The same code runs
// init where this binary was executed again (reexec.go); there it is an
// ordinary, single-minded goroutine on the main thread.
type child struct {
	ops         []op
	arena       []byte
	slot        []uintptr
	base, slots uintptr // addresses of arena and slot,
	first       uintptr // and ops

	control uintptr  // descriptor of the socket to the supervisor
	events  uintptr  // signals are read from here
	views   []uint16 // slots of descriptors that go out with the ready report
	entry   []int32  // where each Program starts
	maps    []idMap  // of the programs' own user namespace; none: they stay in init's
	gate    slot     // event counter by which a program waits for its maps
	both    slot     // epoll descriptor of control and events
	alone   slot     // and of events alone
	tty     slot     // session side of the terminal; 0: none
	// Without namespaces:
	children slot    // descriptor by which the guard hears of its children
	after    int32   // what the guard does last
	witness  uintptr // pidfd of a process that this one must not be able to signal; 0: none
	parent   uintptr // of init: the guard; 0: none
	begin    int32   // of init: the operation that it begins with
	guards   bool    // this process is the guard, no longer init

	outer int // the caller's terminal, for restoring it; -1: none

	notes [4]uint64
	out   report
	in    request
	buf   [4096]byte
	cmsg  [160]uint64
	msg   [7]uint64
	iov   [2]uint64
	path  [40]byte
	sig   [4]uint64 // a struct sigaction of the kernel: handler, flags, restorer, mask
	stat  int32

	cmd      int32 // the program that runs, 0: none
	program  int32
	stage    int32 // of the end: stageNone …
	linger   bool
	deadline int64     // of the stage, CLOCK_MONOTONIC
	raised   [65]int64 // when a signal to our process group was seen
	inside   uint64    // bit n: the last signal n was a process's of the session
	now      [2]int64
	saved    [terminalSize]byte // the caller's terminal as it was,
	raw      [terminalSize]byte // and as the supervisor set it; empty: not set
	isRaw    bool

	enter uintptr // address of enter
	fresh *child  // what each program begins with: a copy from before the fork
	space stack
}

// An idMap is one of /proc/PID/uid_map and gid_map, ready to be written.
type idMap struct {
	name string // "uid_map"
	text string
}

// A report is what init and the programs tell the supervisor, in one packet
// of fixed size.
type report struct {
	kind  uint32
	code  int32 // errno, wait status or signal
	at    int64 // index of the op, program or descriptor count
	flag  int64
	notes [4]uint64
	text  [128]byte
}

// Kinds of report.
const (
	reportReady   = 1 + iota // the session stands; descriptors come along
	reportFailed             // an op failed: at, code
	reportStarted            // a program is about to be executed; the sender's pid is its
	reportExec               // and could not be: code
	reportExited             // the program ended: code is the wait status, flag: others are left, notes: signals as in Exit.Heard, and inside
	reportStopped            // the program was stopped (terminal only)
	reportProcess            // one process that is about to be killed
	reportEmpty              // no process is left but init
	reportServe              // the descriptor of FUSE mount at comes along
)

// A request is what the supervisor asks of init.
type request struct {
	kind  uint32
	arg   int32
	nanos int64
	saved [terminalSize]byte
	raw   [terminalSize]byte
}

// Kinds of request.
const (
	requestRun      = 1 + iota // start program arg
	requestSignal              // pass signal arg on
	requestEnd                 // end all processes, nanos grace
	requestLinger              // say when none is left
	requestResume              // continue the program in the foreground
	requestTerminal            // this is how to restore the caller's terminal
)

// call is the raw system call.
//
//go:nosplit
//go:norace
func (c *child) call(nr, a, b, d, e, f, g uintptr) (uintptr, uintptr) {
	r, _, errno := syscall.RawSyscall6(nr, a, b, d, e, f, g)
	return r, uintptr(errno)
}

//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) argument(o *op, i uintptr) uintptr {
	v := c.word(uintptr(unsafe.Pointer(&o.arg)) + 8*i)
	switch c.word(uintptr(unsafe.Pointer(&o.kind))) >> (8 * i) & 0xff {
	case argArena:
		return c.base + v
	case argSlot:
		return c.word(c.slots + 8*v)
	case argAddress:
		return c.slots + 8*v
	}
	return v
}

// run carries out operations from pc on. It returns where and why it stopped.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) run(pc int) (int, uintptr) {
	for {
		o := c.op(pc)
		r, errno := c.do(o, pc)
		if o.nr == opEnd {
			return pc, 0
		}
		if errno != 0 && errno != uintptr(o.tolerate[0]) && errno != uintptr(o.tolerate[1]) {
			if o.to == 0 {
				return pc, errno
			}
			pc = int(o.to)
			continue
		}
		if o.out != 0 {
			c.set(c.slots+8*uintptr(o.out), r)
		}
		pc++
	}
}

//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) do(o *op, pc int) (uintptr, uintptr) {
	a, b, d := c.argument(o, 0), c.argument(o, 1), c.argument(o, 2)
	switch o.nr {
	case opEnd:
		return 0, 0
	case opJump:
		return 0, uintptr(unix.EXDEV) // an error, so that it goes on at to
	case opNote:
		c.notes[a/64%uintptr(len(c.notes))] |= 1 << (a % 64)
		return 0, 0
	case opEqual:
		if c.word(a)&b != d {
			return 0, uintptr(unix.EXDEV)
		}
		return 0, 0
	case opSome:
		if a == 0 {
			return 0, uintptr(unix.EPIPE)
		}
		return a, 0
	case opExec:
		return 0, c.exec(a, b, d, c.argument(o, 3), o.arg[4] != 0)
	case opTell:
		c.out.kind, c.out.at = reportStarted, int64(c.program)
		return 0, c.send(0)
	case opReady:
		return 0, c.ready()
	case opHand:
		return 0, c.hand(a, b)
	case opReset:
		return 0, c.resetSignals(a)
	case opEvents:
		if c.events != 0 {
			return c.events, 0
		}
		r, errno := c.call(unix.SYS_SIGNALFD4, ^uintptr(0), a, 8, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK, 0, 0)
		c.events = r
		return r, errno
	case opWitness:
		return c.testify()
	case opProve:
		return 0, c.prove(a)
	case opGuard:
		return 0, c.standGuard(pc)
	}
	return c.call(uintptr(o.nr), a, b, d, c.argument(o, 3), c.argument(o, 4), c.argument(o, 5))
}

// exec tries one path as a shell does: what has no format that the kernel
// knows is a script for /bin/sh, and while searching PATH a directory that
// may not be entered is one where the file is not.
//
//go:nosplit
//go:norace
func (c *child) exec(path, argv, envp, shell uintptr, search bool) uintptr {
	_, errno := c.call(unix.SYS_EXECVE, path, argv, envp, 0, 0, 0)
	if errno == uintptr(unix.ENOEXEC) {
		// argv[0] of shell is the path of the shell.
		_, errno = c.call(unix.SYS_EXECVE, c.word(shell), shell, envp, 0, 0, 0)
	}
	if search && errno == uintptr(unix.EACCES) {
		if _, e := c.call(unix.SYS_FACCESSAT, atCwd, path, unix.F_OK, 0, 0, 0); e != 0 {
			errno = uintptr(unix.ENOENT)
		}
	}
	// The verdict on all candidates is the first that is more than “not here”.
	if c.stat == 0 || c.stat == int32(unix.ENOENT) {
		switch errno {
		case uintptr(unix.ENOTDIR), uintptr(unix.ESTALE), uintptr(unix.ENODEV), uintptr(unix.ETIMEDOUT):
			errno = uintptr(unix.ENOENT)
		}
		c.stat = int32(errno)
	}
	return 0
}

// word reads and set writes memory by its address, op finds an operation.
// Indexing a slice would do the same with a check that can call the runtime.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) word(addr uintptr) uintptr { return **(**uintptr)(unsafe.Pointer(&addr)) }

//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) set(addr, v uintptr) { **(**uintptr)(unsafe.Pointer(&addr)) = v }

//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) op(pc int) *op {
	addr := c.first + uintptr(pc)*unsafe.Sizeof(op{})
	return *(**op)(unsafe.Pointer(&addr))
}

// resetSignals makes the program start with what the caller had: handlers of
// ours gone, ignored signals ignored, the caller's mask.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) resetSignals(mask uintptr) uintptr {
	at := uintptr(unsafe.Pointer(&c.sig))
	for sig := uintptr(1); sig <= 64; sig++ {
		if sig == uintptr(unix.SIGKILL) || sig == uintptr(unix.SIGSTOP) {
			continue
		}
		if _, errno := c.call(unix.SYS_RT_SIGACTION, sig, 0, at, 8, 0, 0); errno != 0 {
			return errno
		}
		if c.sig[0] == 0 || c.sig[0] == 1 { // SIG_DFL, SIG_IGN
			continue
		}
		c.sig[0], c.sig[1], c.sig[2], c.sig[3] = 0, 0, 0, 0
		if _, errno := c.call(unix.SYS_RT_SIGACTION, sig, at, 0, 8, 0, 0); errno != 0 {
			return errno
		}
	}
	_, errno := c.call(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, mask, 0, 8, 0, 0)
	return errno
}

// send sends c.out, with the control message of size n in c.cmsg.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) send(n uintptr) uintptr {
	c.iov[0], c.iov[1] = uint64(uintptr(unsafe.Pointer(&c.out))), uint64(unsafe.Sizeof(c.out))
	c.msg = [7]uint64{}
	c.msg[2], c.msg[3] = uint64(uintptr(unsafe.Pointer(&c.iov))), 1
	if n != 0 {
		c.msg[4], c.msg[5] = uint64(uintptr(unsafe.Pointer(&c.cmsg))), uint64(n)
	}
	_, errno := c.call(unix.SYS_SENDMSG, c.control, uintptr(unsafe.Pointer(&c.msg)), unix.MSG_NOSIGNAL, 0, 0, 0)
	return errno
}

// fail reports the operation that failed, and what else the kernel said: the
// log of a file system context (fsopen(2)) is read from its descriptor.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) fail(pc int, errno uintptr) {
	c.out.kind, c.out.at, c.out.code = reportFailed, int64(pc), int32(errno)
	o := c.op(pc)
	if o.nr == unix.SYS_FSCONFIG || o.nr == unix.SYS_FSMOUNT {
		c.call(unix.SYS_READ, c.argument(o, 0), uintptr(unsafe.Pointer(&c.out.text)), unsafe.Sizeof(c.out.text)-1, 0, 0, 0)
	}
	c.send(0)
}

// ready reports that the session stands and hands out the views, which the
// supervisor keeps and init does not need.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) ready() uintptr {
	c.out.kind, c.out.at = reportReady, int64(len(c.views))
	c.out.notes = c.notes
	n := uintptr(0)
	if len(c.views) > 0 {
		n = 16 + 4*uintptr(len(c.views))
		c.cmsg[0] = uint64(n)
		c.cmsg[1] = unix.SOL_SOCKET | unix.SCM_RIGHTS<<32
		for i, v := range c.views { // two to a word, the first in its lower half
			fd := uint64(c.word(c.slots + 8*uintptr(v)))
			if at := &c.cmsg[(2+i/2)%len(c.cmsg)]; i%2 == 0 {
				*at = fd
			} else {
				*at |= fd << 32
			}
		}
		n = (n + 7) &^ 7
	}
	if errno := c.send(n); errno != 0 {
		return errno
	}
	for _, v := range c.views {
		c.call(unix.SYS_CLOSE, c.word(c.slots+8*uintptr(v)), 0, 0, 0, 0, 0)
	}
	return 0
}

// hand sends the descriptor of a FUSE mount to its server.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) hand(fd, mount uintptr) uintptr {
	c.out.kind, c.out.at = reportServe, int64(mount)
	c.cmsg[0] = 16 + 4
	c.cmsg[1] = unix.SOL_SOCKET | unix.SCM_RIGHTS<<32
	c.cmsg[2] = uint64(fd)
	return c.send(24)
}

//go:nosplit
//go:norace
func (c *child) exit(code uintptr) {
	for {
		c.call(unix.SYS_EXIT_GROUP, code, 0, 0, 0, 0, 0)
	}
}
