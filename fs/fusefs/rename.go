package fusefs

import (
	"errors"

	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
)

// rename moves the entry as of p to the name to in q, or exchanges the two.
//
// The layer format, without redirects, cannot say that a directory of the base
// has another name. So before one is moved, all in it is copied up where it
// is: step by step, without a lock, and nobody sees a difference. Then it is a
// directory of the layer alone and moves in one step.
func (t *tree) rename(p *node, as string, q *node, to string, flags uint32) error {
	if flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 {
		return unix.EINVAL
	}
	for tries := 0; ; tries++ {
		err := t.renameOnce(p, as, q, to, flags)
		if !errors.Is(err, errAgain) {
			return err
		}
		if tries == 5 {
			return unix.EAGAIN
		}
	}
}

func (t *tree) renameOnce(p *node, as string, q *node, to string, flags uint32) error {
	src, err := t.flatten(p, as)
	defer t.release(src)
	if err != nil {
		return err
	}
	var dst flat
	if flags&unix.RENAME_EXCHANGE != 0 {
		dst, err = t.flatten(q, to)
		defer t.release(dst)
		if err != nil {
			return err
		}
	}
	t.Lock()
	defer t.Unlock()
	m := move{t: t, p: p, as: as, q: q, to: to, exchange: flags&unix.RENAME_EXCHANGE != 0}
	if m.src, err = t.entry(p, as); err != nil {
		return err
	}
	m.dst, err = t.entry(q, to)
	m.over = err == nil
	if err != nil && (m.exchange || !errors.Is(err, unix.ENOENT)) {
		return err
	}
	if err := m.allowed(src, dst, flags); err != nil {
		return err
	}
	// Before it moves: who finds the mark of a copy where the base has nothing,
	// after we were killed, would miss the base's.
	if err := errors.Join(t.unmark(src), t.unmark(dst)); err != nil {
		return err
	}
	if err := m.do(); err != nil {
		return err
	}
	m.note()
	return errors.Join(t.tidy(src), t.tidy(dst))
}

// move is one rename on its way.
type move struct {
	t        *tree
	p, q     *node
	as, to   string
	src, dst entry
	over     bool // dst is there
	exchange bool

	from, into *sys.Dir
}

func (m *move) allowed(src, dst flat, flags uint32) error {
	t := m.t
	if m.src.node == nil || !src.is(m.src) || m.exchange && !dst.is(m.dst) {
		return errAgain
	}
	if m.over && flags&unix.RENAME_NOREPLACE != 0 {
		return unix.EEXIST
	}
	if m.q.dir.hidden.has(m.to) {
		return unix.EPERM
	}
	if err := t.busy(m.p, m.as, m.src); err != nil {
		return err
	}
	if !m.over {
		return nil
	}
	if err := t.busy(m.q, m.to, m.dst); err != nil {
		return err
	}
	if m.exchange {
		return nil
	}
	switch {
	case m.src.dir && !m.dst.dir:
		return unix.ENOTDIR
	case !m.src.dir && m.dst.dir:
		return unix.EISDIR
	case !m.dst.dir:
		return t.keep(m.dst.node, m.q, m.to)
	}
	n := m.dst.node
	if n == nil {
		n = t.dirNode(m.q, m.to, m.dst.found)
		defer t.forgetLocked(n)
	}
	return t.empty(n)
}

// do changes the layer.
func (m *move) do() error {
	t := m.t
	belowSrc, dirBelowSrc, err := t.below(m.p, m.as)
	if err != nil {
		return err
	}
	_, dirBelowDst, err := t.below(m.q, m.to)
	if err != nil {
		return err
	}
	for _, d := range []*node{m.p, m.q} {
		if _, err := t.raise(d); err != nil {
			return err
		}
	}
	from, err := t.open(m.p, m.p.upper())
	if err != nil {
		return err
	}
	defer t.fds.done(from)
	into, err := t.open(m.q, m.q.upper())
	if err != nil {
		return err
	}
	defer t.fds.done(into)
	m.from, m.into = from.dir, into.dir

	// A directory must not be merged with what the base has in its new place.
	if m.src.dir && dirBelowDst {
		if err := layer.MakeOpaque(m.from, m.as); err != nil {
			return err
		}
	}
	if m.exchange {
		if m.dst.dir && dirBelowSrc {
			if err := layer.MakeOpaque(m.into, m.to); err != nil {
				return err
			}
		}
		return m.from.Exchange(m.as, m.into, m.to)
	}
	if m.src.dir {
		return m.directory(belowSrc)
	}
	return m.single(belowSrc)
}

// single moves over whatever is at the new name, nothing or a whiteout or a
// file, and leaves a whiteout if the base's entry would show.
func (m *move) single(whiteout bool) error {
	if !whiteout {
		return m.from.Replace(m.as, m.into, m.to)
	}
	err := m.from.RenameAway(m.as, m.into, m.to)
	if errors.Is(err, unix.EINVAL) { // a file system without: in two steps
		if err = m.from.Replace(m.as, m.into, m.to); err == nil {
			err = m.t.work.putWhiteout(m.from, m.as)
		}
	}
	return err
}

// directory moves a directory, which can replace only an empty one: what is
// at the new name changes places with it and is removed then.
func (m *move) directory(whiteout bool) error {
	t := m.t
	s, err := m.into.Stat(m.to)
	switch {
	case errors.Is(err, unix.ENOENT):
		return m.single(whiteout)
	case err != nil:
		return err
	}
	if s.IsDir() {
		err = moveDir(m.into, m.to, m.from, m.as, s.Perm(), m.into.Exchange)
	} else {
		err = m.from.Exchange(m.as, m.into, m.to)
	}
	if err != nil {
		return err
	}
	switch {
	case s.IsDir():
		return t.removeDir(m.from, m.as, whiteout, s)
	case !whiteout:
		return m.from.Unlink(m.as)
	}
	return nil
}

// note lets the nodes be where their entries are.
func (m *move) note() {
	t := m.t
	if m.exchange {
		t.movedTo(m.src.node, m.p, m.as, m.q, m.to)
		t.movedTo(m.dst.node, m.q, m.to, m.p, m.as)
		m.p.setChild(m.as, m.dst.node)
		m.q.setChild(m.to, m.src.node)
		return
	}
	if n := m.dst.node; m.over && !m.dst.dir {
		t.dropped(n, m.q, m.to, m.dst)
	} else if m.over && n != nil {
		t.bury(n, m.dst.found.st)
	}
	t.movedTo(m.src.node, m.p, m.as, m.q, m.to)
	m.p.setChild(m.as, nil)
	m.q.setChild(m.to, m.src.node)
}

func (t *tree) movedTo(n, p *node, as string, q *node, to string) {
	if n == nil {
		return
	}
	if !n.isDir() {
		n.dropName(p, as)
		n.addName(q, to)
		return
	}
	p.dir.near.CompareAndSwap(n, nil)
	n.dir.parent, n.dir.name, n.dir.hidden = q, to, q.dir.hidden.below(to)
	t.cut(n)
}

// cut makes n, and every directory in it, one of the layer alone.
func (t *tree) cut(n *node) {
	for stack := []*node{n}; len(stack) > 0; {
		d := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		d.mu.Lock()
		up := d.upper()
		for _, p := range d.parts() {
			if p != up {
				t.fds.empty(&p.slot)
			}
		}
		t.watch.drop(d)
		d.setParts(up)
		for as, c := range d.dir.children {
			switch {
			case c.isDir() && c.upper() != nil:
				stack = append(stack, c)
			case c.isDir() || c.level.Load() > 0:
				// Came into the base while the rest was copied up.
				delete(d.dir.children, as)
				if !c.isDir() {
					t.disown(c)
					c.dropName(d, as)
				}
			}
		}
		d.mu.Unlock()
	}
}

// flat are the directories that flatten has copied up, with one lookup each;
// the first is the one that was asked for, unless that is no directory or
// needed nothing.
type flat struct {
	top  *node // the entry itself, with a lookup
	dirs []*node
}

// is says whether e is what was made ready: on the layer alone.
func (f flat) is(e entry) bool {
	if e.node != f.top || e.level > 0 {
		return false
	}
	return !e.dir || len(e.found.parts) == 1 || len(f.dirs) > 0
}

func (t *tree) release(f flat) {
	if f.top != nil {
		t.forget(f.top.id, 1)
	}
	for _, d := range f.dirs {
		t.forget(d.id, 1)
	}
}

// flatten copies up an entry of p and all below it.
func (t *tree) flatten(p *node, as string) (flat, error) {
	n, err := t.look(p, as)
	if err != nil {
		return flat{}, err
	}
	f := flat{top: n}
	if !n.isDir() {
		return f, t.copyUp(n, true)
	}
	if n.dir.mount || n.dir.hidden != nil {
		return f, unix.EBUSY
	}
	if len(n.parts()) == 1 && n.upper() != nil {
		return f, nil
	}
	t.ref(n)
	f.dirs = append(f.dirs, n)
	for i := 0; i < len(f.dirs); i++ {
		more, err := t.flattenDir(f.dirs[i])
		f.dirs = append(f.dirs, more...)
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

// look is lookup with the tree held for just that.
func (t *tree) look(p *node, as string) (*node, error) {
	t.RLock()
	defer t.RUnlock()
	n, _, err := t.lookup(p, as)
	return n, err
}

// flattenDir copies up one directory and the files in it, and returns the
// directories in it that are not of the layer alone.
func (t *tree) flattenDir(d *node) (dirs []*node, err error) {
	names, err := t.names(d)
	if err != nil {
		return nil, err
	}
	for _, as := range names {
		c, err := t.look(d, as)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return dirs, err
		}
		switch {
		case !c.isDir():
			err = t.copyUp(c, true)
		case c.dir.mount:
			err = unix.EBUSY
		case len(c.parts()) > 1 || c.upper() == nil:
			dirs = append(dirs, c)
			continue
		}
		t.forget(c.id, 1)
		if err != nil && !errors.Is(err, errStale) {
			return dirs, err
		}
	}
	return dirs, nil
}

// names raises d and lists it.
func (t *tree) names(d *node) ([]string, error) {
	t.RLock()
	defer t.RUnlock()
	if _, err := t.raise(d); err != nil {
		return nil, err
	}
	entries, err := t.merge(d)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names, nil
}

// unmark takes the mark of a copy from directories that are about to be of the
// layer alone.
func (t *tree) unmark(f flat) error {
	return t.eachFlat(f, func(in *sys.Dir) error {
		if err := in.RemoveXattr("", layer.OriginAttr); err != nil && !errors.Is(err, unix.ENODATA) {
			return err
		}
		return nil
	})
}

// tidy makes of directories that are of the layer alone now what the format
// calls new ones: without whiteouts, which overlayfs would list.
func (t *tree) tidy(f flat) error {
	return t.eachFlat(f, func(in *sys.Dir) error {
		return in.Each(func(e sys.Dirent) error {
			if e.Type != unix.DT_CHR {
				return nil
			}
			wh, err := isWhiteout(in, e.Name)
			if err != nil || !wh {
				return err
			}
			return in.Unlink(e.Name)
		})
	})
}

// eachFlat does something to the layer's part of each directory of f.
func (t *tree) eachFlat(f flat, do func(in *sys.Dir) error) error {
	for _, d := range f.dirs {
		if d.upper() == nil {
			continue
		}
		if err := t.into(d, do); err != nil {
			return err
		}
	}
	return nil
}
