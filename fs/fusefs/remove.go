package fusefs

import (
	"errors"

	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
)

// entry is what is at a name, found for a change of names.
type entry struct {
	node  *node // nil if the kernel does not know it
	level int   // the topmost on which it is
	dir   bool
	found found
}

// entry looks name up in p, under tree.Lock. Without a node the kernel is
// about to change what it has not looked up, or what changed outside.
func (t *tree) entry(p *node, as string) (entry, error) {
	if c := p.child(as); c != nil && c.onlyInLayer() {
		return entry{node: c}, nil
	} else if c != nil && !c.isDir() {
		if level := int(c.level.Load()); level > 0 {
			if s, same := t.same(p, as, c); same { // and nothing is above it
				return entry{node: c, level: level, found: found{level: level, st: s}}, nil
			}
		}
	}
	f, err := t.find(p, as)
	if err != nil {
		return entry{}, err
	}
	e := entry{level: f.level, dir: f.st.IsDir(), found: f}
	if c := p.child(as); c != nil && c.isDir() == e.dir {
		e.node = c
	}
	return e, nil
}

// busy says why a directory may not be removed or moved: what is hidden in it
// would go with it.
func (t *tree) busy(p *node, as string, e entry) error {
	if e.dir && (p.dir.hidden.below(as) != nil || e.found.mount) {
		return unix.EBUSY
	}
	return nil
}

// unlink removes a name of anything but a directory.
func (t *tree) unlink(p *node, as string) error {
	t.Lock()
	defer t.Unlock()
	e, err := t.entry(p, as)
	if err != nil {
		return err
	}
	if e.dir {
		return unix.EISDIR
	}
	if err := t.keep(e.node, p, as); err != nil {
		return err
	}
	if err := t.remove(p, as, e); err != nil {
		return err
	}
	t.dropped(e.node, p, as, e)
	return nil
}

// keep holds what is about to lose its last known name, since somebody may
// have it open; or has it get one more, in the attic, if very many are held. Its name is dropped later, by dropped.
func (t *tree) keep(n, p *node, as string) error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	if len(n.names) > 1 || n.gone != nil {
		n.mu.Unlock()
		return nil
	}
	n.mu.Unlock()
	at, err := t.where(n)
	if err != nil {
		return err
	}
	defer t.leave(at)
	if n.level.Load() == 0 && int(t.orphans.Load()) >= t.fds.most/2 {
		up := t.work.fresh()
		if err := at.dir.Link(at.name, t.work.dir, up); err != nil {
			return err
		}
		t.room.hold()
		n.addName(t.attic, up)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.links-- // for that one, which nobody sees
		return nil
	}
	held, err := at.dir.Entry(at.name)
	if err != nil {
		return staleIfGone(err)
	}
	t.orphans.Add(1)
	t.room.hold()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = held
	if n.links <= 0 || n.level.Load() > 0 {
		return nil
	}
	// The base has more names of it, see links.go: what has none in the end
	// cannot be given one again.
	n.links--
	return at.dir.Link(at.name, t.work.dir, t.work.fresh())
}

// dropped notes that n has lost a name, where e was.
func (t *tree) dropped(n, p *node, as string, e entry) {
	p.setChild(as, nil)
	if e.level > 0 && e.found.st.Nlink > 1 {
		t.table.unlinked(keyOf(e.found.st)) // it still has the name below
	}
	if n == nil {
		return
	}
	n.dropName(p, as)
	if at, ok := n.place(); !ok || at.in == t.attic {
		t.unpin(n)
	}
	if e.level > 0 {
		n.mu.Lock()
		n.links--
		n.mu.Unlock()
	}
}

// remove takes away an entry that is no directory or an empty one: from the
// layer, and below it by a whiteout.
func (t *tree) remove(p *node, as string, e entry) error {
	whiteout := e.level > 0
	if !whiteout {
		var err error
		if whiteout, _, err = t.below(p, as); err != nil {
			return err
		}
	}
	up, err := t.raise(p)
	if err != nil {
		return err
	}
	h, err := t.open(p, up)
	if err != nil {
		return err
	}
	defer t.fds.done(h)
	switch {
	case e.level > 0:
		return t.work.putWhiteout(h.dir, as)
	case !e.dir && !whiteout:
		return h.dir.Unlink(as)
	case !e.dir:
		wh, err := t.work.aside()
		if err != nil {
			return err
		}
		return t.work.dir.Replace(wh, h.dir, as)
	}
	return t.removeDir(h.dir, as, whiteout, e.found.st)
}

// removeDir takes a directory with nothing but whiteouts in it out of the
// layer: aside, where it is emptied by and by.
func (t *tree) removeDir(d *sys.Dir, as string, whiteout bool, s sys.Stat) error {
	if !whiteout {
		err := d.Rmdir(as)
		if !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	if !whiteout {
		gone := t.work.fresh()
		if err := moveDir(d, as, t.work.dir, gone, s.Perm(), d.Rename); err != nil {
			return err
		}
		t.work.scrap(gone)
		return nil
	}
	wh, err := t.work.aside()
	if err != nil {
		return err
	}
	if err := moveDir(d, as, t.work.dir, wh, s.Perm(), d.Exchange); err != nil {
		return err
	}
	t.work.scrap(wh)
	return nil
}

// rmdir removes an empty directory.
func (t *tree) rmdir(p *node, as string) error {
	t.Lock()
	defer t.Unlock()
	e, err := t.entry(p, as)
	if err != nil {
		return err
	}
	if !e.dir {
		return unix.ENOTDIR
	}
	if err := t.busy(p, as, e); err != nil {
		return err
	}
	n := e.node
	if n == nil {
		n = t.dirNode(p, as, e.found)
		defer t.forgetLocked(n)
	}
	if err := t.empty(n); err != nil {
		return err
	}
	last, err := t.stat(n)
	if err != nil {
		return err
	}
	if err := t.remove(p, as, e); err != nil {
		return err
	}
	p.setChild(as, nil)
	t.bury(n, last)
	return nil
}

// forgetLocked gives back the one lookup of a node made on the way.
func (t *tree) forgetLocked(n *node) { t.table.forget(n.id, 1) }

// bury makes n, a directory that is nowhere any more, look empty to those
// that are still in it.
func (t *tree) bury(n *node, last sys.Stat) {
	t.watch.drop(n)
	for _, part := range n.parts() {
		t.fds.empty(&part.slot)
	}
	n.setParts()
	if p := n.dir.parent; p != nil {
		p.dir.near.CompareAndSwap(n, nil)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	last.Nlink = 0
	n.dir.last, n.dir.parent, n.dir.mount = last, nil, true
	n.dir.children, n.dir.listing = nil, nil
}

// empty says whether a session sees nothing in a directory.
func (t *tree) empty(n *node) error {
	deleted := make(map[string]bool)
	for _, p := range n.parts() {
		h, err := t.open(n, p)
		if err != nil {
			return err
		}
		look := func(e sys.Dirent) error {
			if deleted[e.Name] {
				return nil
			}
			if e.Type == unix.DT_CHR || e.Type == unix.DT_REG || e.Type == unix.DT_UNKNOWN {
				s, err := h.dir.Stat(e.Name)
				if errors.Is(err, unix.ENOENT) {
					return nil
				}
				if err != nil {
					return err
				}
				hidden, err := layer.Hidden(h.dir, e.Name, s)
				if err != nil {
					return err
				}
				if hidden {
					deleted[e.Name] = true
					return nil
				}
			}
			return unix.ENOTEMPTY
		}
		read := func() error { return h.dir.Each(look) }
		if err = read(); errors.Is(err, unix.EACCES) && p.level < t.base { // closed to its owner, who can remove it all the same
			var s sys.Stat
			if s, err = h.dir.Stat(""); err == nil {
				err = layer.Opened(h.dir, "", s, read)
			}
		}
		t.fds.done(h)
		if err != nil {
			return err
		}
	}
	return nil
}
