package fusefs

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
)

// raise makes sure that a directory is in the layer, with all those above it.
// The caller holds the tree.
func (t *tree) raise(n *node) (*part, error) {
	var way []*node
	for at := n; at.upper() == nil; at = at.dir.parent {
		if at.dir.mount {
			return nil, unix.EROFS
		}
		if at.dir.parent == nil || len(at.parts()) == 0 {
			return nil, errStale
		}
		way = append(way, at)
	}
	for _, at := range slices.Backward(way) {
		if err := t.copyUpDir(at); err != nil {
			return nil, err
		}
	}
	return n.upper(), nil
}

// copyUpDir makes n in the layer, where its parent is already, as it is below.
// It is made aside and moved in whole.
func (t *tree) copyUpDir(n *node) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.upper() != nil {
		return nil
	}
	from, err := t.open(n, n.parts()[0])
	if err != nil {
		return err
	}
	defer t.fds.done(from)
	as := t.work.fresh()
	made, err := layer.Prepare(t.work.dir, as, from.dir, t.owners)
	if err != nil {
		return err
	}
	if err := t.work.dir.SetXattr(as, layer.OriginAttr, nil); err != nil && !errors.Is(err, unix.EACCES) {
		return err
	}
	parent := n.dir.parent
	err = t.into(parent, func(to *sys.Dir) error {
		return moveDir(t.work.dir, as, to, n.dir.name, made.Perm(), t.work.dir.Rename)
	})
	if err != nil {
		return err
	}
	if n.parts()[0].level == t.base {
		was, err := from.dir.Stat("")
		if err != nil {
			return err
		}
		if t.merged != nil {
			t.merged(rel(n), was)
		}
		n.owner.Store(t.ownerOf(was))
	}
	up := &part{level: 0, key: keyOf(made), mnt: parent.upper().mnt}
	n.setParts(append([]*part{up}, n.parts()...)...)
	return nil
}

// moveDir moves a directory of that mode into another, by Rename or Exchange of
// the one that it is in. One that its owner may not write cannot change its
// parent (rename(2)), and is opened for it.
func moveDir(from *sys.Dir, as string, to *sys.Dir, name string, perm uint32, move func(as string, to *sys.Dir, name string) error) error {
	if perm&0o200 != 0 {
		return move(as, to, name)
	}
	if err := from.Chmod(as, perm|0o200); err != nil {
		return err
	}
	if err := move(as, to, name); err != nil {
		return errors.Join(err, from.Chmod(as, perm))
	}
	return to.Chmod(name, perm)
}

// into does something to the layer's part of p that no session did: its mode
// does not stand in the way, and its time stays.
func (t *tree) into(p *node, do func(to *sys.Dir) error) error {
	h, err := t.open(p, p.upper())
	if err != nil {
		return err
	}
	defer t.fds.done(h)
	before, err := h.dir.Stat("")
	if err != nil {
		return err
	}
	err = do(h.dir)
	if errors.Is(err, unix.EACCES) {
		err = layer.Opened(h.dir, "", before, func() error { return do(h.dir) })
	}
	if err != nil {
		return err
	}
	return h.dir.SetTimes("", sys.KeepTime, before.Mtime)
}

// errAgain says that the base's file was written while it was copied.
var errAgain = errors.New("changed while it was copied up")

// copyUp makes sure that what is no directory is in the layer; without its
// content if that is about to be cut off. Nothing but n.copying is held while
// data is copied. The caller holds no lock.
func (t *tree) copyUp(n *node, content bool) error {
	if n.level.Load() == 0 {
		return nil
	}
	n.copying.Lock()
	defer n.copying.Unlock()
	for tries := 0; n.level.Load() != 0; tries++ {
		err := t.copyUpOnce(n, content)
		if errors.Is(err, errAgain) && tries < 5 {
			continue
		}
		if errors.Is(err, errAgain) {
			err = unix.EAGAIN
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) copyUpOnce(n *node, content bool) error {
	from, s, err := t.source(n)
	if err != nil {
		return err
	}
	defer from.Close()
	as := t.work.fresh()
	dst, err := t.duplicate(from, s, as, content)
	if err != nil {
		return errors.Join(err, t.work.discard(as))
	}
	err = t.install(n, s, as, dst)
	if err == nil || n.level.Load() == 0 { // the latter: it is there, only another name of it is not
		return err
	}
	if dst >= 0 {
		unix.Close(dst)
	}
	return errors.Join(err, t.work.discard(as))
}

// source holds the entry to be copied.
func (t *tree) source(n *node) (*sys.Dir, sys.Stat, error) {
	t.RLock()
	defer t.RUnlock()
	at, err := t.where(n)
	if err != nil {
		return nil, sys.Stat{}, err
	}
	defer t.leave(at)
	var from *sys.Dir
	if at.name == "" {
		from, err = at.dir.Sub("")
	} else {
		from, err = at.dir.Entry(at.name)
	}
	if err != nil {
		return nil, sys.Stat{}, staleIfGone(err)
	}
	s, err := from.Stat("")
	if err == nil && keyOf(s) != n.was.key {
		err = errStale
	}
	if err != nil {
		from.Close()
		return nil, s, err
	}
	return from, s, nil
}

// duplicate makes in the workshop what from is, attributes and all. Of a
// regular file it returns a descriptor for reading and writing, else −1.
func (t *tree) duplicate(from *sys.Dir, s sys.Stat, as string, content bool) (int, error) {
	w := t.work.dir
	dst := -1
	var err error
	switch s.Type() {
	case unix.S_IFREG:
		if dst, err = w.OpenFD(as, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOATIME, 0o600); err == nil && content && s.Size > 0 {
			err = t.copyData(dst, from)
		}
	case unix.S_IFLNK:
		var target string
		if target, err = from.Readlink(""); err == nil {
			err = w.Symlink(target, as)
		}
	default:
		err = w.Mknod(as, s.Type()|0o600, s.Rdev)
	}
	if err == nil {
		err = t.dress(from, s, as)
	}
	if err == nil {
		var now sys.Stat
		if now, err = from.Stat(""); err == nil && stampOf(now) != stampOf(s) {
			err = errAgain
		}
	}
	if err != nil && dst >= 0 {
		unix.Close(dst)
		dst = -1
	}
	return dst, err
}

func (t *tree) copyData(dst int, from *sys.Dir) error {
	src, err := quietly(unix.O_RDONLY, from.Reopen)
	if errors.Is(err, unix.EACCES) && t.openOwn != nil {
		src, err = t.openOwn(from.FD())
	}
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(src), from.Name())
	defer in.Close()
	dup, err := unix.FcntlInt(uintptr(dst), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(dup), from.Name())
	defer out.Close()
	return sys.CopyFile(out, in)
}

// dress gives a copy the attributes, owner, mode and times of s, and the mark
// that says where it came from.
func (t *tree) dress(from *sys.Dir, s sys.Stat, as string) error {
	w := t.work.dir
	if err := t.owners.Give(w, as, s); err != nil {
		return err
	}
	if s.IsRegular() && s.Nlink == 1 { // as the kernel does (fs/overlayfs/copy_up.c)
		if err := w.SetXattr(as, layer.OriginAttr, nil); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	if s.Type() != unix.S_IFLNK { // which has none that a session could set
		if err := t.copyXattrs(w, as, from); err != nil {
			return err
		}
		if err := w.Chmod(as, s.Perm()); err != nil {
			return err
		}
	}
	return w.SetTimes(as, s.Atime, s.Mtime)
}

// copyXattrs copies all that a session can see: with the copy, which takes the
// place of the file in a commit, what is missing in it would be lost.
func (t *tree) copyXattrs(w *sys.Dir, as string, from *sys.Dir) error {
	names, err := from.XattrNames("")
	if err != nil {
		return err
	}
	slices.SortFunc(names, sys.SetOrder)
	for _, raw := range names {
		if _, visible := layer.Visible(raw); !visible {
			continue
		}
		value, err := from.Xattr("", raw)
		if errors.Is(err, unix.EACCES) && t.ownAttr != nil {
			value, err = t.ownAttr(from.FD(), raw)
		}
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return err
		}
		if err := w.SetXattr(as, raw, value); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	return nil
}

// install moves the copy to where n is now and makes n be there. dst is n's
// from then on.
func (t *tree) install(n *node, s sys.Stat, as string, dst int) error {
	t.RLock()
	defer t.RUnlock()
	copied, err := t.work.dir.Stat(as)
	if err != nil {
		return err
	}
	at, ok := n.place()
	if !ok { // removed meanwhile, and still open somewhere
		held, err := t.work.dir.Entry(as)
		if err != nil {
			return err
		}
		n.mu.Lock()
		n.gone, held = held, n.gone
		n.mu.Unlock()
		if held != nil {
			held.Close()
		}
		if s.Nlink > 1 { // the base has other names of it: see links.go
			t.keepHeld(n, s)
		} else if err := t.work.dir.Unlink(as); err != nil {
			return err
		}
	} else {
		if _, err := t.raise(at.in); err != nil {
			return err
		}
		err := t.into(at.in, func(to *sys.Dir) error { return t.work.dir.Rename(as, to, at.name) })
		if err != nil {
			return err
		}
	}
	t.alias(n, keyOf(copied))
	n.owner.Store(t.ownerOf(s))
	n.mu.Lock()
	n.level.Store(0)
	t.fds.empty(&n.slot)
	if dst >= 0 {
		t.fds.done(t.fds.put(&n.slot, &held{fd: dst, write: true}))
	}
	n.mu.Unlock()
	if ok && s.Nlink > 1 {
		return t.keepLinks(n, s, at)
	}
	return nil
}

// discard removes what was made in the workshop in vain; it may not be there.
func (w *workshop) discard(as string) error {
	if err := w.dir.Unlink(as); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}
