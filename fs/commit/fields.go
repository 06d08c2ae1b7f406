package commit

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/sys"
)

// meta compiles a change of metadata.
func (c *compiler) meta(base place, ch *changes.Change) error {
	st, d, name, err := c.w.look(base)
	if err != nil {
		return err
	}
	if st == nil || ch.Fields == nil {
		c.refuse(base.root, base.path, "no longer there")
		return nil
	}
	s := step{kind: meta, from: base, to: base, new: sideOf(*st), meta: &change{}}
	f, m := ch.Fields, s.meta
	if f.Mode {
		old, now := st.Perm(), ch.Layer.Perm()
		m.oldPerm, m.newPerm = &old, &now
	}
	if f.Owner {
		m.oldOwner = &[2]uint32{st.UID, st.GID}
		m.newOwner = &[2]uint32{ch.Layer.UID, ch.Layer.GID}
	}
	if f.Mtime && !c.timed(base) {
		m.oldTimes = &[2]sys.Time{sys.KeepTime, st.Mtime}
		m.newTimes = &[2]sys.Time{sys.KeepTime, ch.Layer.Mtime}
	}
	for _, x := range f.Xattrs {
		m.xattrs = append(m.xattrs, xattr{name: x.Name, old: x.Old, new: x.New})
	}
	slices.SortFunc(m.xattrs, func(a, b xattr) int { return sys.SetOrder(a.name, b.name) })
	if ok, err := c.alterable(base, d, name, st, m); err != nil || !ok {
		return err
	}
	if len(m.xattrs) > 0 && st.Type() != unix.S_IFLNK && c.uid != 0 {
		s.new.opened, s.new.open = true, st.Perm()|0o600 // where neither mode allows it
	}
	if st.IsDir() {
		c.dirs = append(c.dirs, s)
		return nil
	}
	s.new.shared = c.names[s.new.id]
	if st.Nlink > 1 {
		c.names[s.new.id] = true
	}
	c.metas = append(c.metas, s)
	return nil
}

// timed says that the directory's times are set by its own step in the end.
func (c *compiler) timed(p place) bool {
	_, ok := c.w.known[p]
	return ok
}

// alterable asks what the kernel would ask (chmod(2), chown(2), utimensat(2)).
func (c *compiler) alterable(base place, d *sys.Dir, name string, st *sys.Stat, m *change) (bool, error) {
	no := func(why string) (bool, error) {
		c.refuse(base.root, base.path, "%s", why)
		return false, nil
	}
	if st.Attributes&fixed != 0 {
		return no("it is immutable or append-only (chattr -i -a)")
	}
	if c.uid != 0 && st.UID != c.uid {
		return no("it belongs to another user")
	}
	if c.uid != 0 && m.newOwner != nil && m.newOwner[0] != st.UID {
		return no("only root may give it to another user")
	}
	// A read-only mount refuses all of it; the owner's permissions do not count.
	if err := d.Access(name, unix.W_OK); errors.Is(err, unix.EROFS) {
		return no("read-only file system")
	}
	return true, nil
}
