package fusefs

import (
	"errors"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"try/fs/layer"
)

const capability = "security.capability"

// GetXAttr reads an attribute. Marks of the format are not to be seen, and a
// session's own of such names are kept under others (see package layer).
func (f *files) GetXAttr(_ <-chan struct{}, in *fuse.InHeader, attr string, dest []byte) (uint32, fuse.Status) {
	n, st := f.any(in.NodeId)
	if st != fuse.OK {
		return 0, st
	}
	if attr == capability && n.fresh.Load() {
		return 0, fuse.ENODATA // which the kernel asks before it writes to a file first
	}
	f.t.RLock()
	defer f.t.RUnlock()
	at, err := f.t.where(n)
	if err != nil {
		return 0, status(err)
	}
	defer f.t.leave(at)
	value, err := at.dir.Xattr(at.name, layer.Escape(attr))
	if err != nil {
		return 0, status(staleIfGone(err))
	}
	return fill(dest, f.t.shown(attr, value))
}

func fill(dest, value []byte) (uint32, fuse.Status) {
	if len(dest) < len(value) {
		return uint32(len(value)), fuse.ERANGE
	}
	return uint32(copy(dest, value)), fuse.OK
}

// ListXAttr lists what GetXAttr reads.
func (f *files) ListXAttr(_ <-chan struct{}, in *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	n, st := f.any(in.NodeId)
	if st != fuse.OK {
		return 0, st
	}
	f.t.RLock()
	defer f.t.RUnlock()
	at, err := f.t.where(n)
	if err != nil {
		return 0, status(err)
	}
	defer f.t.leave(at)
	names, err := at.dir.XattrNames(at.name)
	if err != nil {
		return 0, status(staleIfGone(err))
	}
	var list strings.Builder
	for _, raw := range names {
		if attr, visible := layer.Unescape(raw); visible {
			list.WriteString(attr)
			list.WriteByte(0)
		}
	}
	return fill(dest, []byte(list.String()))
}

// SetXAttr sets an attribute, in the layer.
func (f *files) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, attr string, data []byte) fuse.Status {
	if n := f.t.get(in.NodeId); n != nil && attr == capability {
		n.fresh.Store(false)
	}
	return f.changeXattr(in.NodeId, func(at spot) error {
		raw := layer.Escape(attr)
		if in.Flags != 0 { // XATTR_CREATE or XATTR_REPLACE
			_, err := at.dir.Xattr(at.name, raw)
			if there := err == nil; there && in.Flags&unix.XATTR_CREATE != 0 {
				return unix.EEXIST
			} else if errors.Is(err, unix.ENODATA) && in.Flags&unix.XATTR_REPLACE != 0 {
				return unix.ENODATA
			}
		}
		if f.t.loses(at, attr, data) {
			return unix.EINVAL
		}
		return at.dir.SetXattr(at.name, raw, data)
	})
}

// RemoveXAttr removes an attribute, in the layer.
func (f *files) RemoveXAttr(_ <-chan struct{}, in *fuse.InHeader, attr string) fuse.Status {
	return f.changeXattr(in.NodeId, func(at spot) error { return at.dir.RemoveXattr(at.name, layer.Escape(attr)) })
}

func (f *files) changeXattr(id uint64, do func(at spot) error) fuse.Status {
	n, st := f.any(id)
	if st != fuse.OK {
		return st
	}
	if !n.isDir() {
		if err := f.t.copyUp(n, true); err != nil {
			return status(err)
		}
	}
	f.t.RLock()
	defer f.t.RUnlock()
	if n.isDir() {
		if _, err := f.t.raise(n); err != nil {
			return status(err)
		}
		defer n.changedAs()
	}
	at, err := f.t.where(n)
	if err != nil {
		return status(err)
	}
	defer f.t.leave(at)
	return status(do(at))
}
