package fusefs

import (
	"errors"

	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
)

// lookup finds or makes the node of a name in p, with one lookup more, and
// how it looks. The caller holds the tree.
func (t *tree) lookup(p *node, name string) (*node, sys.Stat, error) {
	if c := p.child(name); c != nil {
		if s, same := t.same(p, name, c); same && t.ref(c) {
			return c, s, nil
		}
	}
	f, err := t.find(p, name)
	if err != nil {
		return nil, sys.Stat{}, err
	}
	if f.st.IsDir() {
		return t.dirNode(p, name, f), f.st, nil
	}
	n, err := t.fileNode(p, name, f)
	if err == nil && f.level > 0 && n.level.Load() == 0 {
		f.st, err = t.stat(n)
	}
	if err != nil {
		return nil, sys.Stat{}, err
	}
	return n, f.st, nil
}

// same says whether c is still what is at name: of the layer, which nobody
// else writes, always; of what lies below, if it was not changed outside.
func (t *tree) same(p *node, name string, c *node) (sys.Stat, bool) {
	level := int(c.level.Load())
	var top *part
	if c.isDir() {
		if c.dir.mount {
			return sys.Stat{}, false
		}
		top = c.parts()[0]
		level = top.level
	}
	in := p.part(level)
	if in == nil {
		return sys.Stat{}, false
	}
	h, err := t.open(p, in)
	if err != nil {
		return sys.Stat{}, false
	}
	defer t.fds.done(h)
	s, err := h.dir.Stat(name)
	switch {
	case err != nil:
		return s, false
	case top != nil:
		return s, keyOf(s) == top.key && s.MntID == in.mnt
	case level == 0:
		return s, true
	}
	return s, stampOf(s) == c.was
}

func (t *tree) dirNode(p *node, name string, f found) *node {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.dir.children[name]; c != nil && c.isDir() && c.dir.mount == f.mount && sameParts(c.parts(), f.parts) && t.ref(c) {
		return c
	}
	n := &node{ino: f.ino, typ: unix.S_IFDIR, dir: &directory{parent: p, name: name, mount: f.mount, hidden: p.dir.hidden.below(name)}}
	n.dir.last = f.st
	n.setParts(f.parts...)
	n.owner.Store(f.owner)
	t.table.add(n, key{})
	if p.dir.children == nil {
		p.dir.children = make(map[string]*node)
	}
	p.dir.children[name] = n
	return n
}

func sameParts(a, b []*part) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].level != b[i].level || a[i].key != b[i].key {
			return false
		}
	}
	return true
}

func (t *tree) fileNode(p *node, name string, f found) (*node, error) {
	k := keyOf(f.st)
	n := t.table.find(k)
	if n != nil && n.level.Load() > 0 && n.was != stampOf(f.st) {
		// Changed outside: whoever opens it from now on gets a new inode, with
		// nothing of the old one in the kernel's cache.
		t.disown(n)
		t.table.forget(n.id, 1)
		n = nil
	}
	if n == nil {
		n = &node{ino: f.ino, typ: f.st.Type()}
		n.level.Store(int32(f.level))
		n.owner.Store(f.owner)
		if f.level > 0 {
			n.was = stampOf(f.st)
		}
		n = t.table.add(n, k)
	}
	if f.level > 0 && n.level.Load() == 0 {
		if err := t.joinLink(n, p, name); err != nil {
			t.table.forget(n.id, 1)
			return nil, err
		}
	}
	n.addName(p, name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir.children == nil {
		p.dir.children = make(map[string]*node)
	}
	p.dir.children[name] = n
	return n, nil
}

// forget is the kernel dropping its references to a node.
func (t *tree) forget(id, lookups uint64) {
	n, dead := t.table.forget(id, lookups)
	if !dead {
		return
	}
	t.RLock()
	defer t.RUnlock()
	if n.isDir() {
		t.watch.drop(n)
		for _, p := range n.parts() {
			t.fds.empty(&p.slot)
		}
		n.mu.Lock()
		for as, c := range n.dir.children {
			if !c.isDir() { // a hard link that is known by another name too
				c.dropName(n, as)
			}
		}
		n.dir.children = nil
		n.mu.Unlock()
		if p := n.dir.parent; p != nil {
			p.dropChild(n.dir.name, n)
			p.dir.near.CompareAndSwap(n, nil)
		}
		return
	}
	n.mu.Lock()
	names, gone := n.names, n.gone
	n.names, n.gone = nil, nil
	n.mu.Unlock()
	for _, at := range names {
		at.in.dropChild(at.name, n)
		if at.in == t.attic {
			t.work.dir.Unlink(at.name) // or close does
			defer t.room.free()
		}
	}
	t.fds.empty(&n.slot)
	if gone != nil {
		t.orphans.Add(-1)
		t.work.bury(gone, n.level.Load() == 0)
	}
}

func (n *node) dropChild(name string, c *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dir.children[name] == c {
		delete(n.dir.children, name)
	}
	if len(n.dir.children) == 0 {
		n.dir.children = nil // maps never shrink
	}
}

// spot is where calls reach an entry: by its name in a directory, or with the
// name "" what is held itself.
type spot struct {
	dir  *sys.Dir
	name string
	h    *held // nil: nothing to give back
}

func (t *tree) leave(s spot) {
	if s.h != nil {
		t.fds.done(s.h)
	}
}

// where finds the spot of n; leave gives it back. The caller holds the tree.
func (t *tree) where(n *node) (spot, error) {
	if n.isDir() {
		parts := n.parts()
		if len(parts) == 0 {
			return spot{}, errStale
		}
		h, err := t.open(n, parts[0])
		if err != nil {
			return spot{}, err
		}
		return spot{dir: h.dir, h: h}, nil
	}
	n.mu.Lock()
	gone := n.gone
	n.mu.Unlock()
	at, ok := n.place()
	if !ok {
		if gone == nil {
			return spot{}, errStale
		}
		return spot{dir: gone}, nil
	}
	in := at.in.part(int(n.level.Load()))
	if in == nil {
		return spot{}, errStale
	}
	h, err := t.open(at.in, in)
	if err != nil {
		return spot{}, err
	}
	return spot{dir: h.dir, name: at.name, h: h}, nil
}

// stat is how n looks now.
func (t *tree) stat(n *node) (sys.Stat, error) {
	if !n.isDir() {
		if h := t.fds.use(&n.slot, false); h != nil {
			defer t.fds.done(h)
			return sys.StatFD(h.fd)
		}
	} else if len(n.parts()) == 0 {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.dir.last, nil
	}
	at, err := t.where(n)
	if err != nil {
		return sys.Stat{}, err
	}
	defer t.leave(at)
	s, err := at.dir.Stat(at.name)
	if err != nil {
		return s, staleIfGone(err)
	}
	if !n.isDir() && n.level.Load() > 0 && at.name != "" && keyOf(s) != n.was.key {
		return s, errStale
	}
	return s, nil
}

// isWhiteout says whether the layer has a whiteout at name.
func isWhiteout(d *sys.Dir, name string) (bool, error) {
	s, err := d.Stat(name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil && layer.IsWhiteout(s), err
}
