package commit

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/layer"
	"try/fs/sys"
)

// tree walks a directory of the layer that goes as a whole: pins it, sums it
// up, strips what is marked, and puts aside what must not come along.
func (c *compiler) tree(from, base place, d *sys.Dir, name string, st *sys.Stat, s *side, ch *changes.Change, below []changes.Change) (bool, error) {
	t := &treeWalk{
		c: c, from: from, base: base, top: s, stat: *st, fine: true, copy: c.jobs[base.root].Copy,
		listed: make(map[key]*sys.Stat, len(below)), in: newKeys(key{}),
	}
	paths := newKeys(key{})
	t.here = newKeys(paths.of(ch.Node))
	for i := range below {
		if below[i].Layer != nil {
			t.listed[paths.of(below[i].Node)] = below[i].Layer
		}
		if l := c.link(&below[i]); l != nil {
			if t.links == nil {
				t.links = map[key]*changes.Link{}
			}
			t.links[paths.of(below[i].Node)] = l
		}
	}
	if ch.Carry != nil {
		for i := range ch.Carry.Kept { // what came back identical may be in the layer too
			t.listed[paths.of(ch.Carry.Kept[i].Node)] = nil
		}
		t.leave = map[key]bool{}
		for _, n := range ch.Carry.Leave {
			t.leave[paths.of(n)] = true
		}
	}
	if s.opened && (!c.jobs[base.root].Copy || !readable(d, name)) {
		h, err := inode(d, name)
		if err != nil {
			return false, err
		}
		defer h.Close()
		if err := c.openNow(h, s.perm); err != nil {
			return false, err
		}
	}
	top, err := d.Sub(name)
	if err != nil {
		return false, err
	}
	defer top.Close()
	start := len(c.moves)
	if s.opened && s.perm&0o500 != 0o500 {
		t.dark = ch.Node // not one of the walk's, so it stays
	}
	if err := sys.Walk(top, t.visit, t.end); err != nil {
		return false, err
	}
	if len(c.moves) == start {
		return t.fine, nil
	}
	if t.aside[from.path] {
		t.keepTimes(from, base, *st)
	}
	if s.opened {
		self := *s
		self.marks, self.tree = nil, tree{}
		open := step{kind: mode, from: from, to: base, new: self, before: s.perm, after: s.open}
		shut := step{kind: mode, from: from, to: base, new: self, before: s.open, after: s.perm}
		c.moves = append(slices.Insert(c.moves, start, open), shut)
		for i := range c.links {
			if c.links[i].step >= start {
				c.links[i].step++
			}
		}
	}
	return t.fine, nil
}

// treeWalk is the state of that walk.
type treeWalk struct {
	c          *compiler
	from, base place
	top        *side
	stat       sys.Stat // of the top directory
	fine, copy bool
	listed     map[key]*sys.Stat // nil: kept, not a change
	links      map[key]*changes.Link
	leave      map[key]bool
	here, in   *keys           // by the path from the root, and from the top directory
	dark       *sys.Node       // the unreadable directory that the walk is below
	aside      map[string]bool // directories out of which something goes aside
}

func (t *treeWalk) at(n *sys.Node) (from, to place) {
	rel := n.Path()
	from, to = t.from, t.base
	from.path, to.path = from.path+"/"+rel, to.path+"/"+rel
	return from, to
}

func (t *treeWalk) refuse(n *sys.Node, why string) (bool, error) {
	_, to := t.at(n)
	t.c.refuse(to.root, to.path, "%s", why)
	t.fine = false
	return false, nil
}

func (t *treeWalk) visit(v sys.Visit) (bool, error) {
	c, st, at := t.c, &v.Stat, t.here.of(v.Node)
	if t.leave[at] || st.Type() == unix.S_IFSOCK || layer.IsWhiteout(*st) {
		if t.copy {
			return false, nil
		}
		return false, t.putAside(v)
	}
	was, known := t.listed[at]
	if !known {
		return t.refuse(v.Node, "added in the branch since the changes were listed")
	}
	if was != nil {
		pin := sideOf(*was)
		if why := c.pinned(&pin, st); why != "" {
			return t.refuse(v.Node, why)
		}
	}
	if l := t.links[at]; l != nil {
		return false, t.link(v, l)
	}
	n := &c.needs[t.base.root]
	n.inodes++
	n.bytes += st.Blocks * 512
	s := sideOf(*st)
	if why, err := c.entry(v.Dir, v.Node.Name, st, &s); err != nil {
		return false, err
	} else if why != "" {
		return t.refuse(v.Node, why)
	}
	if t.dark == nil {
		t.top.tree.add(t.in.of(v.Node), st, false)
	}
	closed := false
	if st.IsDir() {
		err := v.Dir.Access(v.Node.Name, unix.R_OK|unix.W_OK|unix.X_OK)
		if closed = errors.Is(err, unix.EACCES) && st.UID == c.uid; closed {
			s.opened, s.open = true, st.Perm()|0o700 // for its own marks
		} else if err != nil {
			return false, err
		}
	}
	if len(s.marks) > 0 && !t.copy {
		from, to := t.at(v.Node)
		c.moves = append(c.moves, step{kind: strip, from: from, to: to, new: s})
	}
	if closed && (!t.copy || !readable(v.Dir, v.Node.Name)) {
		return true, t.unlock(v, s)
	}
	return true, nil
}

// unlock opens a directory of the layer, now and by a step, for what is below
// it.
func (t *treeWalk) unlock(v sys.Visit, s side) error {
	if t.dark == nil && s.perm&0o500 != 0o500 {
		t.dark = v.Node
	}
	if !t.copy {
		s.marks = nil
		from, to := t.at(v.Node)
		t.c.moves = append(t.c.moves, step{
			kind: mode, from: from, to: to, new: s, before: s.perm, after: s.open,
		})
	}
	h, err := inode(v.Dir, v.Node.Name)
	if err != nil {
		return err
	}
	defer h.Close()
	return t.c.openNow(h, s.perm)
}

// end closes a directory that visit opened, and emits its closing step.
func (t *treeWalk) end(v sys.Visit) error {
	if t.dark == v.Node {
		t.dark = nil
	}
	if len(t.aside) > 0 {
		if from, to := t.at(v.Node); t.aside[from.path] {
			t.keepTimes(from, to, v.Stat)
		}
	}
	if now, err := v.Dir.Stat(v.Node.Name); err != nil || now.Perm() == v.Stat.Perm() {
		return err
	}
	if !t.copy {
		from, to := t.at(v.Node)
		t.c.moves = append(t.c.moves, step{
			kind: mode, from: from, to: to, new: sideOf(v.Stat), before: v.Stat.Perm() | 0o700, after: v.Stat.Perm(),
		})
	}
	last := len(t.c.parted) - 1
	r := t.c.parted[last]
	t.c.parted = t.c.parted[:last]
	return errors.Join(r.d.Chmod("", r.perm), r.d.Close())
}

// putAside takes what must not come along out of the tree, into the slots.
func (t *treeWalk) putAside(v sys.Visit) error {
	from, _ := t.at(v.Node)
	up, _ := from.split()
	if !t.aside[up.path] {
		if t.aside == nil {
			t.aside = map[string]bool{}
		}
		t.aside[up.path] = true
		to, st := t.base, t.stat
		if v.Node.Parent != nil {
			var err error
			if st, err = v.Dir.Stat(""); err != nil {
				return err
			}
			_, to = t.at(v.Node.Parent)
		}
		t.keepTimes(up, to, st)
	}
	s := sideOf(v.Stat)
	s.shared = true
	t.c.moves = append(t.c.moves, step{kind: move, from: from, to: t.c.newSlot(from.root), new: s})
	if t.c.w.roots[from.root].slots == nil {
		t.refuse(v.Node, "the store has no place on this file system")
	}
	return nil
}

// keepTimes emits a step that sets a directory's times to what they are: after
// its entries went aside, and, before that, for the way back.
func (t *treeWalk) keepTimes(from, to place, st sys.Stat) {
	s := t.c.timesStep(from, st)
	s.to, s.newTime = to, s.oldTime
	t.c.moves = append(t.c.moves, s)
}
