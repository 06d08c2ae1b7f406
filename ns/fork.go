package ns

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Init works in our memory (CLONE_VM), on a stack of its own: a fork would copy
// the page tables, and each page that either of us writes from then on: a tenth
// of the processor time of `try true`. The programs begin in the same way, each
// on a stack and in a child of its own; their exec leaves our memory. See
// clone(2).
//
// What is shared:
//   - the child, its arena and its stacks. The supervisor holds them, and does
//     not touch them, until init is reaped.
//   - the flag that says who may look into the memory (PR_SET_DUMPABLE). Init
//     clears it; a second session could not write its id maps then. So the memory
//     is shared with one init at a time, and any other gets a copy of it.
//
// Nothing else is: descriptors, signal handlers, working directory, umask and
// credentials belong to the process.

// fork is clone(2) for a child that begins at entry, the address of enter, on
// the stack that ends at stack.
//
//go:noescape
func fork(flags, stack, pidfd, entry uintptr, c *child, program int32) (pid, errno uintptr)

// enter is where a forked process begins, as init or as a program. It is called
// by address: by name, assembly would reach it through a wrapper, in which the
// race detector calls the runtime, and the linker would see a recursion.
//
//go:nosplit
//go:norace
func enter(c *child, program int32) {
	if program == asInit {
		c.main(int(c.begin))
	}
	c.become(program)
}

const asInit = -1

// A stack of a child. What is below enter takes less than 800 bytes, which the
// linker proves.
type stack [4096]byte

// stack is the address at which the stack of c begins, downwards: aligned as
// calls want it, with room where enter may keep its arguments.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) stack() uintptr {
	return (uintptr(unsafe.Pointer(&c.space)) + unsafe.Sizeof(c.space) - 32) &^ 15
}

// sharer is whose init works in our memory.
var sharer atomic.Pointer[child]

// breed makes the child that programs will begin with.
func (c *child) breed() {
	f := enter
	c.enter = **(**uintptr)(unsafe.Pointer(&f))
	c.fresh = new(child)
	*c.fresh = *c
}

// launch makes init, in new namespaces. All signals are blocked around it, and
// so in init: a Go signal handler must never run there. ForkLock keeps
// descriptors out that another goroutine has opened and not yet marked
// close-on-exec.
func (c *child) launch(flags uintptr, share bool) (pid, pidfd int, err error) {
	c.breed()
	if share && sharer.CompareAndSwap(nil, c) {
		flags |= unix.CLONE_VM
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	result := new(int32)
	syscall.ForkLock.Lock()
	mask := blockSignals()
	r, errno := fork(flags|uintptr(unix.SIGCHLD), c.stack(), uintptr(unsafe.Pointer(result)), c.enter, c, asInit)
	setSignals(mask)
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(result)
	if errno != 0 {
		c.gone()
		step := "make namespaces"
		if flags&namespaces == 0 {
			step = "start the guard"
		}
		return 0, -1, &Failure{Step: step, Errno: unix.Errno(errno)}
	}
	return int(r), int(*result), nil
}

// gone says that no process works in the memory of c any more.
func (c *child) gone() { sharer.CompareAndSwap(c, nil) }
