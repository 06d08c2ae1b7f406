package fusefs

import (
	"errors"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// files answers the kernel's requests: each method finds the nodes, has the
// tree do it, and says how things look then.
type files struct {
	fuse.RawFileSystem // all that is not here: ENOSYS, after which the kernel does not ask again
	t                  *tree
	conn               *conn
}

var _ fuse.RawFileSystem = (*files)(nil)

// status is what the kernel is told of an error.
func status(err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return fuse.Status(errno)
	}
	return fuse.EIO
}

// forever is how long the kernel may believe what only the session can change.
const forever = 365 * 24 * time.Hour

// shortly is how long it may believe what somebody outside may change without
// our hearing of it.
const shortly = time.Second

// lasts is how long the kernel may believe how n looks.
func (t *tree) lasts(n *node) time.Duration {
	if n.isDir() {
		if watched(n.dir.watched.Load()) == cannotWatch && n.part(t.base) != nil {
			return shortly // for the sake of its list, see relist
		}
		if parts := n.parts(); len(parts) > 0 && parts[0].level == 0 || t.lasting(n.dir.parent) {
			return forever
		}
		return shortly
	}
	if n.level.Load() == 0 {
		return forever
	}
	if at, ok := n.place(); ok && t.lasting(at.in) {
		return forever
	}
	return shortly
}

// attr is how n looks.
func (t *tree) attr(n *node, s sys.Stat, out *fuse.Attr) {
	nlink := int64(s.Nlink)
	if n.isDir() {
		if len(n.parts()) > 1 {
			nlink = min(nlink, 1) // of a merged directory nobody knows more
		}
	} else {
		n.mu.Lock()
		nlink += int64(n.links)
		n.mu.Unlock()
	}
	*out = fuse.Attr{
		Ino: n.ino, Size: uint64(s.Size), Blocks: uint64(s.Blocks), Mode: s.Mode,
		Nlink: uint32(max(nlink, 0)), Owner: fuse.Owner{Uid: s.UID, Gid: s.GID},
		Rdev: uint32(s.Rdev), Blksize: 4096,
	}
	if shown := n.owner.Load(); shown != nil {
		out.Owner = *shown
	}
	out.Atime, out.Atimensec = split(s.Atime)
	out.Mtime, out.Mtimensec = split(s.Mtime)
	out.Ctime, out.Ctimensec = split(s.Ctime)
}

func split(t sys.Time) (sec uint64, nsec uint32) {
	s, n := int64(t)/1e9, int64(t)%1e9
	if n < 0 {
		s, n = s-1, n+1e9
	}
	return uint64(s), uint32(n)
}

func (f *files) entry(n *node, s sys.Stat, out *fuse.EntryOut) {
	f.t.attr(n, s, &out.Attr)
	out.NodeId, out.Generation = n.id, 1
	lasts := f.t.lasts(n)
	out.SetEntryTimeout(lasts)
	out.SetAttrTimeout(lasts)
}

// answer is entry for what was just made, or the error.
func (f *files) answer(n *node, s sys.Stat, err error, out *fuse.EntryOut) fuse.Status {
	if err != nil {
		return status(err)
	}
	f.entry(n, s, out)
	return fuse.OK
}

// dir is the node of a directory that the kernel named.
func (f *files) dir(id uint64) (*node, fuse.Status) {
	n := f.t.get(id)
	switch {
	case n == nil:
		return nil, fuse.Status(unix.ESTALE)
	case !n.isDir():
		return nil, fuse.ENOTDIR
	}
	return n, fuse.OK
}

// any is any node that the kernel named.
func (f *files) any(id uint64) (*node, fuse.Status) {
	n := f.t.get(id)
	if n == nil {
		return nil, fuse.Status(unix.ESTALE)
	}
	return n, fuse.OK
}

func (f *files) String() string { return "try" }

// Lookup finds a name. That there is none is an answer that lasts, too.
func (f *files) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	p, st := f.dir(in.NodeId)
	if st != fuse.OK {
		return st
	}
	f.t.RLock()
	defer f.t.RUnlock()
	if len(name) > unix.NAME_MAX {
		return fuse.Status(unix.ENAMETOOLONG)
	}
	n, s, err := f.t.lookup(p, name)
	if errors.Is(err, unix.ENOENT) {
		f.t.absent(p, name)
		out.SetEntryTimeout(shortly)
		if f.t.lasting(p) {
			out.SetEntryTimeout(forever)
		}
		return fuse.OK
	}
	if err == nil && n.isDir() {
		f.relist(n)
	} else if err == nil {
		f.t.readAs(p, name, s)
	}
	return f.answer(n, s, err, out)
}

// Forget is the kernel dropping references.
func (f *files) Forget(id, lookups uint64) { f.t.forget(id, lookups) }

// GetAttr says how an inode looks.
func (f *files) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n, st := f.any(in.NodeId)
	if st != fuse.OK {
		return st
	}
	return f.attrOut(n, out)
}

func (f *files) attrOut(n *node, out *fuse.AttrOut) fuse.Status {
	f.t.RLock()
	defer f.t.RUnlock()
	s, err := f.t.stat(n)
	if err != nil {
		return status(err)
	}
	f.t.attr(n, s, &out.Attr)
	out.SetTimeout(f.t.lasts(n))
	f.relist(n)
	return fuse.OK
}

// SetAttr changes mode, owner, size and times.
func (f *files) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	n, st := f.any(in.NodeId)
	if st != fuse.OK {
		return st
	}
	if err := f.t.setAttr(n, &in.SetAttrInCommon); err != nil {
		return status(err)
	}
	return f.attrOut(n, out)
}

// Readlink reads a symbolic link. The kernel keeps the answer.
func (f *files) Readlink(_ <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	n, st := f.any(in.NodeId)
	if st != fuse.OK {
		return nil, st
	}
	f.t.RLock()
	defer f.t.RUnlock()
	at, err := f.t.where(n)
	if err != nil {
		return nil, status(err)
	}
	defer f.t.leave(at)
	target, err := at.dir.Readlink(at.name)
	return []byte(target), status(staleIfGone(err))
}

// Mknod makes a file, FIFO, socket or device.
func (f *files) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	p, st := f.dir(in.NodeId)
	if st != fuse.OK {
		return st
	}
	n, s, err := f.t.mknod(p, name, wanted{in.Mode, in.Umask, in.Owner}, uint64(in.Rdev))
	return f.answer(n, s, err, out)
}

// Mkdir makes a directory.
func (f *files) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	p, st := f.dir(in.NodeId)
	if st != fuse.OK {
		return st
	}
	n, s, err := f.t.mkdir(p, name, wanted{in.Mode, in.Umask, in.Owner})
	return f.answer(n, s, err, out)
}

// Symlink makes a symbolic link.
func (f *files) Symlink(_ <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	p, st := f.dir(in.NodeId)
	if st != fuse.OK {
		return st
	}
	n, s, err := f.t.symlink(p, name, target, in.Owner)
	return f.answer(n, s, err, out)
}

// Link gives a file one more name.
func (f *files) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	p, st := f.dir(in.NodeId)
	if st != fuse.OK {
		return st
	}
	n, st := f.any(in.Oldnodeid)
	if st != fuse.OK {
		return st
	}
	s, err := f.t.link(n, p, name)
	return f.answer(n, s, err, out)
}

// Unlink removes a name.
func (f *files) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	p, st := f.dir(in.NodeId)
	if st != fuse.OK {
		return st
	}
	return status(f.t.unlink(p, name))
}

// Rmdir removes an empty directory.
func (f *files) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	p, st := f.dir(in.NodeId)
	if st != fuse.OK {
		return st
	}
	return status(f.t.rmdir(p, name))
}

// Rename moves or exchanges entries.
func (f *files) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	p, st := f.dir(in.NodeId)
	if st != fuse.OK {
		return st
	}
	q, st := f.dir(in.Newdir)
	if st != fuse.OK {
		return st
	}
	return status(f.t.rename(p, from, q, to, in.Flags))
}

// Tmpfile makes a file without a name.
func (f *files) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	p, st := f.dir(in.NodeId)
	if st != fuse.OK {
		return st
	}
	n, s, err := f.t.tmpfile(p, wanted{in.Mode, in.Umask, in.Owner})
	out.Fh, out.OpenFlags = openCached, fuse.FOPEN_KEEP_CACHE|fuse.FOPEN_NOFLUSH
	return f.answer(n, s, err, &out.EntryOut)
}

// StatFs tells the room on the layer's file system, where what is written goes.
func (f *files) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	s, err := f.t.work.dir.StatFS()
	if err != nil {
		return status(err)
	}
	*out = fuse.StatfsOut{
		Blocks: s.Blocks, Bfree: s.Bfree, Bavail: s.Bavail, Files: s.Files, Ffree: s.Ffree,
		Bsize: uint32(s.Bsize), NameLen: uint32(s.Namelen), Frsize: uint32(s.Frsize),
	}
	return fuse.OK
}
