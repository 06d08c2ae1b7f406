package fusefs

import (
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// With Options.Passthrough files are opened after all, and what is in the
// layer is then read, written and mapped by the kernel without us (fuse.rst,
// "FUSE passthrough"). A file of the base is not: when it is copied up, those
// that have it open must see the copy, and the kernel knows only one file
// behind an inode at a time.

// What an OPEN was answered with, as its file handle.
const (
	openCached = 1
	openPassed = 2
)

// opened are the openings of a node, guarded by its mu.
type opened struct {
	cached  int // through us, and the kernel's cache
	passed  int // to the file behind backing
	backing int32
}

// Open opens a file. ENOSYS means that we need not be asked again.
func (f *files) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	n, st := f.any(in.NodeId)
	if st != fuse.OK {
		return st
	}
	write := in.Flags&unix.O_ACCMODE != unix.O_RDONLY
	if write {
		if err := f.t.copyUp(n, in.Flags&unix.O_TRUNC == 0); err != nil {
			return status(err)
		}
	}
	h, err := f.t.content(n, write)
	if err != nil {
		return status(err)
	}
	defer f.t.fds.done(h)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.level.Load() > 0 || n.open.cached > 0 || write && n.open.passed == 0 && f.t.room.scarce() {
		n.open.cached++
		out.Fh, out.OpenFlags = openCached, fuse.FOPEN_KEEP_CACHE|fuse.FOPEN_NOFLUSH
		return fuse.OK
	}
	if n.open.passed == 0 {
		id, errno := f.conn.back(h.fd)
		if errno != 0 {
			// Not privileged, or not on this kernel. All goes on as if without.
			f.conn.passthrough.Store(false)
			return fuse.ENOSYS
		}
		n.open.backing = id
	}
	n.open.passed++
	out.Fh, out.OpenFlags, out.BackingID = openPassed, fuse.FOPEN_PASSTHROUGH|fuse.FOPEN_NOFLUSH, n.open.backing
	return fuse.OK
}

// Release ends what Open began.
func (f *files) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	n := f.t.get(in.NodeId)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch in.Fh {
	case openCached:
		n.open.cached--
	case openPassed:
		if n.open.passed--; n.open.passed == 0 {
			f.conn.unback(n.open.backing)
		}
	}
}

// The requests of include/uapi/linux/fuse.h.
const (
	backingOpen  = 0x4010e501
	backingClose = 0x4004e502
)

// back makes fd a file that may stand behind an inode.
func (c *conn) back(fd int) (int32, unix.Errno) {
	m := fuse.BackingMap{Fd: int32(fd)}
	id, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(c.fd), backingOpen, uintptr(unsafe.Pointer(&m)))
	return int32(id), errno
}

func (c *conn) unback(id int32) {
	unix.Syscall(unix.SYS_IOCTL, uintptr(c.fd), backingClose, uintptr(unsafe.Pointer(&id)))
}
