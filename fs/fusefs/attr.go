package fusefs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// setAttr changes what in asks for, in the layer. The kernel has checked that
// the caller may.
func (t *tree) setAttr(n *node, in *fuse.SetAttrInCommon) error {
	size, cut := in.GetSize()
	if !n.isDir() {
		if err := t.copyUp(n, !cut || size > 0); err != nil {
			return err
		}
	}
	if cut {
		if err := t.truncate(n, int64(size)); err != nil {
			return err
		}
	}
	if shown := n.owner.Load(); shown != nil {
		uid, setUID := in.GetUID()
		gid, setGID := in.GetGID()
		if setUID && uid != shown.Uid || setGID && gid != shown.Gid {
			return unix.EPERM // it would be taken for what the copy lacks
		}
		in.Valid &^= fuse.FATTR_UID | fuse.FATTR_GID
	}
	if in.Valid&^(fuse.FATTR_SIZE|fuse.FATTR_FH|fuse.FATTR_LOCKOWNER) == 0 {
		return nil
	}
	t.RLock()
	defer t.RUnlock()
	if n.isDir() {
		if _, err := t.raise(n); err != nil {
			return err
		}
		defer n.changedAs()
	}
	at, err := t.where(n)
	if err != nil {
		return err
	}
	defer t.leave(at)
	return change(at, in)
}

// changedAs says that what a directory gives to new entries may be another.
func (n *node) changedAs() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dir.acl = inherit{}
}

func change(at spot, in *fuse.SetAttrInCommon) error {
	uid, setUID := in.GetUID()
	gid, setGID := in.GetGID()
	if setUID || setGID {
		u, g := -1, -1
		if setUID {
			u = int(uid)
		}
		if setGID {
			g = int(gid)
		}
		if err := at.dir.Chown(at.name, u, g); err != nil {
			return err
		}
	}
	mode, setMode := in.GetMode()
	if in.Valid&fuse.FATTR_KILL_SUIDGID != 0 && !setMode {
		s, err := at.dir.Stat(at.name)
		if err != nil {
			return err
		}
		mode = withoutIDs(s.Perm())
		setMode = mode != s.Perm()
	}
	if setMode {
		if err := at.dir.Chmod(at.name, mode); err != nil {
			return err
		}
	}
	if in.Valid&(fuse.FATTR_ATIME|fuse.FATTR_MTIME) == 0 {
		return nil
	}
	return at.dir.SetTimes(at.name,
		timeOf(in.Valid, fuse.FATTR_ATIME, fuse.FATTR_ATIME_NOW, in.Atime, in.Atimensec),
		timeOf(in.Valid, fuse.FATTR_MTIME, fuse.FATTR_MTIME_NOW, in.Mtime, in.Mtimensec))
}

// withoutIDs clears what a write by somebody else takes away (inode(7)).
func withoutIDs(perm uint32) uint32 {
	perm &^= unix.S_ISUID
	if perm&unix.S_IXGRP != 0 {
		perm &^= unix.S_ISGID
	}
	return perm
}

func timeOf(valid, set, now uint32, sec uint64, nsec uint32) sys.Time {
	switch {
	case valid&set == 0:
		return sys.KeepTime
	case valid&now != 0:
		return sys.Time(time.Now().UnixNano())
	}
	return sys.Time(int64(sec)*1e9 + int64(nsec))
}

// truncate sets the size of a file of the layer.
func (t *tree) truncate(n *node, size int64) error {
	h, err := t.content(n, true)
	if err != nil {
		return err
	}
	defer t.fds.done(h)
	return ftruncate(h.fd, size)
}
