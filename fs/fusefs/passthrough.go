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
	return f.open(n, write, out)
}

// Create makes a file and opens it, in one round trip.
func (f *files) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	p, st := f.dir(in.NodeId)
	if st != fuse.OK {
		return st
	}
	n, s, err := f.t.makeFile(p, name, wanted{in.Mode, in.Umask, in.Owner})
	if st := f.answer(n, s, err, &out.EntryOut); st != fuse.OK {
		return st
	}
	st = f.open(n, true, &out.OpenOut)
	if st != fuse.OK {
		f.t.forget(n.id, 1) // the kernel does not know it, then
	}
	return st
}

// open opens n, which is in the layer if it is to be written.
func (f *files) open(n *node, write bool, out *fuse.OpenOut) fuse.Status {
	h, err := f.t.content(n, write)
	if err != nil {
		return status(err)
	}
	defer f.t.fds.done(h)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.level.Load() == 0 && n.open.cached == 0 && (n.open.passed > 0 || !write || !f.t.room.scarce()) {
		if n.open.passed > 0 || f.back(n, h.fd) {
			n.open.passed++
			out.Fh, out.OpenFlags, out.BackingID = openPassed, fuse.FOPEN_PASSTHROUGH|fuse.FOPEN_NOFLUSH, n.open.backing
			return fuse.OK
		}
	}
	n.open.cached++
	out.Fh, out.OpenFlags = openCached, fuse.FOPEN_KEEP_CACHE|fuse.FOPEN_NOFLUSH
	return fuse.OK
}

// back puts fd behind n. If that does not work, we have not the privilege, or
// not on this kernel, and files are not opened from now on.
func (f *files) back(n *node, fd int) bool {
	id, errno := f.conn.back(fd)
	if errno != 0 {
		f.conn.passthrough.Store(false)
		return false
	}
	n.open.backing = id
	return true
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
