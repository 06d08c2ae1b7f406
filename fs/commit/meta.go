package commit

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/fs/vfs"
)

// change brings the metadata of a base entry from the old values to the new
// ones, in place: its inode stays, and so do the descriptors that others have.
func (w *world) change(s *step, again bool) error {
	st, d, name, err := w.look(s.from)
	if err != nil {
		return err
	}
	why := ""
	switch {
	case !s.new.is(st):
		why = s.new.difference(st)
	case again || s.new.shared || st.IsDir():
		// Some of it may be done, or other steps have acted in the directory:
		// each field decides for itself.
	default:
		why = s.new.untouched(st)
	}
	if why != "" {
		return w.refuse(s, why, nil)
	}
	h, err := hold(d, name, s.new.id)
	if err != nil {
		return w.refuse(s, errnoText(err), err)
	}
	defer h.Close()
	if why, err := s.meta.foreign(h, &s.new); why != "" || err != nil {
		if err != nil {
			why = errnoText(err)
		}
		return w.refuse(s, why, err)
	}
	if err := w.set(h, s.meta, &s.new, false); err != nil {
		return w.refuse(s, errnoText(err), err)
	}
	return nil
}

// foreign says which field has neither its old nor its new value, and so was
// set by somebody else.
func (c *change) foreign(h *sys.Dir, is *side) (string, error) {
	st, err := h.Stat("")
	if err != nil {
		return "", err
	}
	// Setting an owner clears set-id bits, setting an ACL alters the mode: in
	// between it may be something else, and is ours all the same.
	mixed := c.newOwner != nil
	for _, x := range c.xattrs {
		mixed = mixed || sys.IsACL(x.name)
	}
	if c.newPerm != nil && st.Perm() != *c.oldPerm && st.Perm() != *c.newPerm && !mixed &&
		(!is.opened || st.Perm() != is.open) {
		return "its mode changed", nil
	}
	if c.newOwner != nil {
		o := [2]uint32{st.UID, st.GID}
		if o != *c.oldOwner && o != *c.newOwner {
			return "its owner changed", nil
		}
	}
	if c.newTimes != nil && st.Mtime != c.oldTimes[1] && st.Mtime != c.newTimes[1] {
		return "modified", nil
	}
	for _, x := range c.xattrs {
		v, err := h.Xattr("", x.name)
		if errors.Is(err, unix.ENODATA) {
			v, err = nil, nil
		}
		if errors.Is(err, unix.EACCES) {
			continue // unreadable until its mode is opened
		}
		if err != nil {
			return "", err
		}
		if !equal(v, x.old) && !equal(v, x.new) {
			return "its attribute " + x.name + " changed", nil
		}
	}
	return "", nil
}

// equal tells an absent value from an empty one.
func equal(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// set sets all fields to the new values, or back to the old ones. What is so
// already is not set, since each call moves the ctime. Owner before xattrs and
// mode (chown(2) clears set-id bits and capabilities), ACLs before the mode,
// which they alter; times last.
func (w *world) set(h *sys.Dir, c *change, is *side, back bool) error {
	st, err := h.Stat("")
	if err != nil {
		return err
	}
	perm, owner, stamp := c.newPerm, c.newOwner, c.newTimes
	if back {
		perm, owner, stamp = c.oldPerm, c.oldOwner, c.oldTimes
	}
	want := is.perm // if the mode is no field, it must be as it was in the end
	if perm != nil {
		want = *perm
	}
	if owner != nil && [2]uint32{st.UID, st.GID} != *owner {
		if err := w.fs.Set(h, "", vfs.Attr{Owner: &vfs.Owner{UID: int(owner[0]), GID: int(owner[1])}}); err != nil {
			return err
		}
	}
	if len(c.xattrs) > 0 {
		if is.opened && st.Perm()&0o600 != 0o600 {
			if err := w.fs.Set(h, "", vfs.Attr{Mode: &is.open}); err != nil {
				return err
			}
		}
		for _, x := range c.xattrs {
			if err := w.setXattr(h, x, back); err != nil {
				return err
			}
		}
	}
	if st, err = h.Stat(""); err != nil {
		return err
	}
	if st.Type() != unix.S_IFLNK && st.Perm() != want && (perm != nil || owner != nil || len(c.xattrs) > 0) {
		if err := w.fs.Set(h, "", vfs.Attr{Mode: &want}); err != nil {
			return err
		}
	}
	if stamp != nil && (st.Mtime != stamp[1] || !back) {
		return w.fs.Set(h, "", vfs.Attr{Times: &vfs.Times{Access: stamp[0], Modify: stamp[1]}})
	}
	return nil
}

func (w *world) setXattr(h *sys.Dir, x xattr, back bool) error {
	value := x.new
	if back {
		value = x.old
	}
	if value == nil {
		err := w.fs.Set(h, "", vfs.Attr{Xattr: x.name, Remove: true})
		if errors.Is(err, unix.ENODATA) {
			return nil
		}
		return err
	}
	return w.fs.Set(h, "", vfs.Attr{Xattr: x.name, Value: value})
}
