package fusefs

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
)

// content opens the content of n, for writing too if asked: n is in the layer
// then. The caller holds no lock and ends with fds.done.
func (t *tree) content(n *node, write bool) (*held, error) {
	if h := t.fds.use(&n.slot, write); h != nil {
		return h, nil
	}
	if !isRegular(n.typ) {
		return nil, unix.EINVAL
	}
	t.RLock()
	defer t.RUnlock()
	at, err := t.where(n)
	if err != nil {
		return nil, err
	}
	defer t.leave(at)
	level := n.level.Load()
	flags := unix.O_RDONLY
	if write {
		flags = unix.O_RDWR
	}
	fd, err := openAs(at, flags)
	if errors.Is(err, unix.EACCES) && level == 0 {
		// Who opened it was allowed to then, and the mode is another now.
		var s sys.Stat
		if s, err = at.dir.Stat(at.name); err == nil {
			err = layer.Opened(at.dir, at.name, s, func() (err error) {
				fd, err = openAs(at, flags)
				return err
			})
		}
	}
	if err != nil {
		return nil, staleIfGone(err)
	}
	h := &held{fd: fd, write: write}
	if level > 0 {
		s, err := sys.StatFD(fd)
		if err == nil && keyOf(s) != n.was.key {
			err = errStale
		}
		if err != nil {
			unix.Close(fd)
			return nil, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.level.Load() != level { // copied up meanwhile: the old content is no more
		unix.Close(fd)
		return nil, errStale
	}
	return t.fds.put(&n.slot, h), nil
}

func openAs(at spot, flags int) (int, error) {
	return quietly(flags, func(flags int) (int, error) {
		if at.name == "" {
			return at.dir.Reopen(flags)
		}
		return at.dir.OpenFD(at.name, flags, 0)
	})
}

// quietly opens something so that reading it does not move its access time,
// where that is allowed (open(2), O_NOATIME). By that time a commit knows what
// began as a copy of the base.
func quietly(flags int, open func(flags int) (int, error)) (int, error) {
	fd, err := open(flags | unix.O_NOATIME)
	if errors.Is(err, unix.EPERM) {
		fd, err = open(flags)
	}
	return fd, err
}

// writable is content for writing, in the layer.
func (t *tree) writable(n *node) (*held, error) {
	if err := t.copyUp(n, true); err != nil {
		return nil, err
	}
	return t.content(n, true)
}

// Read reads straight into the answer.
func (f *files) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n, st := f.any(in.NodeId)
	if st != fuse.OK {
		return nil, st
	}
	h, err := f.t.content(n, false)
	if errors.Is(err, errStale) && n.level.Load() == 0 {
		h, err = f.t.content(n, false)
	}
	if err != nil {
		return nil, status(err)
	}
	defer f.t.fds.done(h)
	got, err := pread(h.fd, buf[:min(len(buf), int(in.Size))], int64(in.Offset))
	return result(buf[:got]), status(err)
}

// result is data that is in the answer's buffer already.
type result []byte

func (r result) Bytes([]byte) ([]byte, fuse.Status) { return r, fuse.OK }
func (r result) Size() int                          { return len(r) }
func (r result) Done()                              {}

// Readv is asked to fill the place where the data is.
func (r result) Readv(dst [][]byte) (int, fuse.Status) {
	n := 0
	for _, d := range dst {
		if len(r) > n && &d[0] != &r[n] {
			copy(d, r[n:])
		}
		n += min(len(d), len(r)-n)
	}
	return n, fuse.OK
}

// Write writes all or says how far it came.
func (f *files) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	n, st := f.any(in.NodeId)
	if st != fuse.OK {
		return 0, st
	}
	h, err := f.t.writable(n)
	if err != nil {
		return 0, status(err)
	}
	defer f.t.fds.done(h)
	if in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0 {
		if err := killIDs(h.fd); err != nil {
			return 0, status(err)
		}
	}
	done, err := pwrite(h.fd, data, int64(in.Offset))
	if done > 0 {
		err = nil
	}
	return uint32(done), status(err)
}

// killIDs takes set-user-id away, as root's own write would not (inode(7)).
func killIDs(fd int) error {
	s, err := sys.StatFD(fd)
	if err != nil {
		return err
	}
	if perm := withoutIDs(s.Perm()); perm != s.Perm() {
		return unix.Fchmod(fd, perm)
	}
	return nil
}

// Fallocate reserves, punches or zeroes.
func (f *files) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	n, st := f.any(in.NodeId)
	if st != fuse.OK {
		return st
	}
	h, err := f.t.writable(n)
	if err != nil {
		return status(err)
	}
	defer f.t.fds.done(h)
	return status(interrupted(func() error {
		return unix.Fallocate(h.fd, in.Mode, int64(in.Offset), int64(in.Length))
	}))
}

// Lseek finds data and holes.
func (f *files) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	n, st := f.any(in.NodeId)
	if st != fuse.OK {
		return st
	}
	h, err := f.t.content(n, false)
	if err != nil {
		return status(err)
	}
	defer f.t.fds.done(h)
	// The offset of the descriptor, which others move at the same time, plays
	// no part in these two.
	at, err := unix.Seek(h.fd, int64(in.Offset), int(in.Whence))
	out.Offset = uint64(at)
	return status(err)
}

// CopyFileRange copies below, where blocks may be shared.
func (f *files) CopyFileRange(_ <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	from, st := f.any(in.NodeId)
	if st != fuse.OK {
		return 0, st
	}
	to, st := f.any(in.NodeIdOut)
	if st != fuse.OK {
		return 0, st
	}
	dst, err := f.t.writable(to)
	if err != nil {
		return 0, status(err)
	}
	defer f.t.fds.done(dst)
	src, err := f.t.content(from, false)
	if err != nil {
		return 0, status(err)
	}
	defer f.t.fds.done(src)
	in64, out64 := int64(in.OffIn), int64(in.OffOut)
	var n int
	err = interrupted(func() (err error) {
		n, err = unix.CopyFileRange(src.fd, &in64, dst.fd, &out64, int(min(in.Len, 1<<30)), int(in.Flags))
		return err
	})
	return uint32(max(n, 0)), status(err)
}

func interrupted(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func ftruncate(fd int, size int64) error {
	return interrupted(func() error { return unix.Ftruncate(fd, size) })
}

// pread reads until buf is full or the file ends.
func pread(fd int, buf []byte, at int64) (done int, err error) {
	for done < len(buf) {
		var n int
		err = interrupted(func() (err error) {
			n, err = unix.Pread(fd, buf[done:], at+int64(done))
			return err
		})
		if err != nil || n == 0 {
			break
		}
		done += n
	}
	if done > 0 {
		err = nil
	}
	return done, err
}

func pwrite(fd int, buf []byte, at int64) (done int, err error) {
	for done < len(buf) {
		var n int
		err = interrupted(func() (err error) {
			n, err = unix.Pwrite(fd, buf[done:], at+int64(done))
			return err
		})
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}
