package fusefs

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
)

// inherit is what a directory of the layer gives to what is made in it.
type inherit struct {
	known bool
	group bool   // set-group-id: its group
	acl   []byte // its default ACL, before which the caller's umask does not count
}

func (t *tree) inherited(p *node, d *sys.Dir) (inherit, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir.acl.known {
		return p.dir.acl, nil
	}
	s, err := d.Stat("")
	if err != nil {
		return inherit{}, err
	}
	i := inherit{known: true, group: s.Mode&unix.S_ISGID != 0}
	if i.acl, err = d.Xattr("", sys.DefaultACL); err != nil && !errors.Is(err, unix.ENODATA) {
		return inherit{}, err
	}
	p.dir.acl = i
	return i, nil
}

// wanted is what a caller asked of a new entry.
type wanted struct {
	mode, umask uint32
	owner       fuse.Owner
}

// create makes an entry of the layer at as in p by make, which makes it in the
// directory and by the name that it is given, with that mode. The caller holds
// the tree.
func (t *tree) create(p *node, as string, want wanted, make func(d *sys.Dir, as string, mode uint32) error) (sys.Stat, error) {
	if p.dir.hidden.has(as) {
		return sys.Stat{}, unix.EPERM
	}
	up, err := t.raise(p)
	if err != nil {
		return sys.Stat{}, err
	}
	h, err := t.open(p, up)
	if err != nil {
		return sys.Stat{}, err
	}
	defer t.fds.done(h)
	inherit, err := t.inherited(p, h.dir)
	if err != nil {
		return sys.Stat{}, err
	}
	err = make(h.dir, as, want.create(inherit))
	if err == nil {
		return t.finish(h.dir, as, want, inherit)
	}
	if !errors.Is(err, unix.EEXIST) {
		return sys.Stat{}, err
	}
	if deleted, err := isWhiteout(h.dir, as); err != nil {
		return sys.Stat{}, err
	} else if !deleted {
		return sys.Stat{}, unix.EEXIST
	}
	return t.createOver(h.dir, as, want, inherit, make)
}

// createOver replaces a whiteout. What is new is made aside and moved over it
// in one step, or a crash in between would bring back what was deleted. It is
// made where it gets from its directory what it would get at its place.
func (t *tree) createOver(d *sys.Dir, as string, want wanted, inherit inherit, make func(d *sys.Dir, as string, mode uint32) error) (sys.Stat, error) {
	if inherit.acl == nil && !inherit.group {
		return t.createVia(t.work.dir, d, as, want, inherit, make)
	}
	stage := t.work.fresh()
	if err := t.work.dir.Mkdir(stage, 0o700); err != nil {
		return sys.Stat{}, err
	}
	defer t.work.scrap(stage)
	in, err := t.work.dir.Sub(stage)
	if err != nil {
		return sys.Stat{}, err
	}
	defer in.Close()
	if err := t.likeParent(in, d, inherit); err != nil {
		return sys.Stat{}, err
	}
	return t.createVia(in, d, as, want, inherit, make)
}

// createVia makes an entry in the directory in and moves it over the whiteout.
func (t *tree) createVia(in, d *sys.Dir, as string, want wanted, inherit inherit, make func(d *sys.Dir, as string, mode uint32) error) (sys.Stat, error) {
	aside := t.work.fresh()
	err := make(in, aside, want.create(inherit))
	if err != nil {
		return sys.Stat{}, err
	}
	s, err := t.finish(in, aside, want, inherit)
	switch {
	case err != nil:
	case s.IsDir():
		// What was deleted may have been a directory, and must not show in it.
		if err = layer.MakeOpaque(in, aside); err == nil {
			err = moveDir(in, aside, d, as, s.Perm(), in.Exchange)
		}
	default:
		if err = in.Replace(aside, d, as); err == nil {
			return s, nil
		}
	}
	// Aside is the whiteout, or what failed.
	if in.Unlink(aside) != nil {
		in.Rmdir(aside)
	}
	return s, err
}

// likeParent makes in give to new entries what d gives to them.
func (t *tree) likeParent(in, d *sys.Dir, inherit inherit) error {
	if inherit.acl != nil {
		if err := in.SetXattr("", sys.DefaultACL, inherit.acl); err != nil {
			return err
		}
	}
	if !inherit.group {
		return nil
	}
	s, err := d.Stat("")
	if err != nil {
		return err
	}
	return errors.Join(in.Chown("", -1, int(s.GID)), in.Chmod("", 0o2700))
}

func (w wanted) create(i inherit) uint32 {
	if i.acl != nil {
		return w.mode
	}
	return w.mode &^ w.umask
}

// finish mends what the kernel below did not do as the caller would have: its
// umask is this process's own, and so is the owner.
func (t *tree) finish(d *sys.Dir, as string, want wanted, inherit inherit) (sys.Stat, error) {
	s, err := d.Stat(as)
	if err != nil {
		return s, err
	}
	mend := false
	if t.owners == layer.All && want.owner.Uid|want.owner.Gid != 0 {
		gid := int(want.owner.Gid)
		if inherit.group {
			gid = -1
		}
		if err := d.Chown(as, int(want.owner.Uid), gid); err != nil {
			return s, err
		}
		mend = true
	}
	perm := s.Perm()
	if inherit.acl == nil && s.Type() != unix.S_IFLNK {
		perm = want.mode&0o7777&^want.umask | s.Perm()&unix.S_ISGID
	}
	if perm != s.Perm() || mend && perm&(unix.S_ISUID|unix.S_ISGID) != 0 {
		if err := d.Chmod(as, perm); err != nil {
			return s, err
		}
		mend = true
	}
	if mend {
		return d.Stat(as)
	}
	return s, nil
}

// added is the node of what was just made in the layer, with one lookup.
func (t *tree) added(p *node, as string, s sys.Stat) (*node, error) {
	f := found{st: s, ino: t.inoOf(s)}
	defer p.changed()
	if !s.IsDir() {
		return t.fileNode(p, as, f)
	}
	f.parts = []*part{{level: 0, key: keyOf(s), mnt: p.upper().mnt}}
	return t.dirNode(p, as, f), nil
}

// makeFile makes a regular file and keeps it open, since it will be written.
func (t *tree) makeFile(p *node, as string, want wanted) (*node, sys.Stat, error) {
	t.RLock()
	defer t.RUnlock()
	fd := -1
	s, err := t.create(p, as, want, func(d *sys.Dir, as string, mode uint32) (err error) {
		fd, err = d.OpenFD(as, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, mode&0o7777)
		return err
	})
	var n *node
	if err == nil {
		n, err = t.added(p, as, s)
	}
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, s, err
	}
	n.fresh.Store(true)
	t.fds.done(t.fds.put(&n.slot, &held{fd: fd, write: true}))
	return n, s, nil
}

func (t *tree) mknod(p *node, as string, want wanted, dev uint64) (*node, sys.Stat, error) {
	if want.mode&unix.S_IFMT == unix.S_IFCHR && dev == 0 {
		return nil, sys.Stat{}, unix.EPERM // would be a whiteout
	}
	if isRegular(want.mode & unix.S_IFMT) {
		return t.makeFile(p, as, want)
	}
	return t.makeEntry(p, as, want, func(d *sys.Dir, as string, mode uint32) error { return d.Mknod(as, mode, dev) })
}

func (t *tree) mkdir(p *node, as string, want wanted) (*node, sys.Stat, error) {
	return t.makeEntry(p, as, want, func(d *sys.Dir, as string, mode uint32) error { return d.Mkdir(as, mode) })
}

func (t *tree) symlink(p *node, as, target string, owner fuse.Owner) (*node, sys.Stat, error) {
	return t.makeEntry(p, as, wanted{owner: owner}, func(d *sys.Dir, as string, _ uint32) error { return d.Symlink(target, as) })
}

func (t *tree) makeEntry(p *node, as string, want wanted, make func(d *sys.Dir, as string, mode uint32) error) (*node, sys.Stat, error) {
	t.RLock()
	defer t.RUnlock()
	s, err := t.create(p, as, want, make)
	if err != nil {
		return nil, s, err
	}
	n, err := t.added(p, as, s)
	return n, s, err
}

// tmpfile makes a file that has no name yet.
func (t *tree) tmpfile(p *node, want wanted) (*node, sys.Stat, error) {
	t.RLock()
	defer t.RUnlock()
	up, err := t.raise(p)
	if err != nil {
		return nil, sys.Stat{}, err
	}
	h, err := t.open(p, up)
	if err != nil {
		return nil, sys.Stat{}, err
	}
	defer t.fds.done(h)
	inherit, err := t.inherited(p, h.dir)
	if err != nil {
		return nil, sys.Stat{}, err
	}
	fd, err := h.dir.Tmpfile(want.create(inherit) & 0o7777)
	if err != nil {
		return nil, sys.Stat{}, err
	}
	gone, err := sys.HeldFD(fd, "a file without a name")
	if err != nil {
		unix.Close(fd)
		return nil, sys.Stat{}, err
	}
	s, err := t.finish(gone, "", want, inherit)
	if err != nil {
		unix.Close(fd)
		gone.Close()
		return nil, s, err
	}
	t.orphans.Add(1)
	t.room.hold()
	n := t.add(&node{ino: t.inoOf(s), typ: s.Type(), gone: gone, open: opened{cached: 1}}, keyOf(s))
	t.fds.done(t.fds.put(&n.slot, &held{fd: fd, write: true}))
	return n, s, nil
}

// link gives n, copied up by the caller, one more name.
func (t *tree) link(n, p *node, as string) (sys.Stat, error) {
	if err := t.copyUp(n, true); err != nil {
		return sys.Stat{}, err
	}
	t.Lock()
	defer t.Unlock()
	from, err := t.where(n)
	if err != nil {
		return sys.Stat{}, err
	}
	defer t.leave(from)
	if p.dir.hidden.has(as) {
		return sys.Stat{}, unix.EPERM
	}
	up, err := t.raise(p)
	if err != nil {
		return sys.Stat{}, err
	}
	h, err := t.open(p, up)
	if err != nil {
		return sys.Stat{}, err
	}
	defer t.fds.done(h)
	link := func(to *sys.Dir, as string) error {
		if from.name == "" {
			return from.dir.LinkHere(to, as)
		}
		return from.dir.Link(from.name, to, as)
	}
	err = link(h.dir, as)
	if errors.Is(err, unix.EEXIST) {
		if deleted, err := isWhiteout(h.dir, as); err != nil {
			return sys.Stat{}, err
		} else if !deleted {
			return sys.Stat{}, unix.EEXIST
		}
		tmp := t.work.fresh()
		if err = link(t.work.dir, tmp); err == nil {
			err = t.work.dir.Replace(tmp, h.dir, as)
		}
	}
	if err != nil {
		return sys.Stat{}, err
	}
	n.addName(p, as)
	p.setChild(as, n)
	if !t.ref(n) {
		return sys.Stat{}, errStale
	}
	s, err := t.stat(n)
	if err == nil && n.ino != t.inoOf(s) {
		t.pin(n)
	}
	return s, err
}
