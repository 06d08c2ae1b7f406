package changes

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// push goes into the directory at, an entry of the directories in and from, on
// the sides that f has. A directory of the layer is opened if its own mode
// forbids reading.
func (m *maker) push(f frame, in, from *sys.Dir, at string) error {
	if f.layer != nil {
		perm := f.layer.Perm()
		if perm&0o700 != 0o700 {
			m.shut = append(m.shut, Closed{f.node, perm})
		}
		if m.locked(f.layer, 0o500) {
			if err := in.Chmod(at, perm|0o700); err != nil {
				return err
			}
			f.opened = true
		}
	}
	if f.layer != nil && f.base != nil {
		fields, err := m.compareDir(&f, in, from, at)
		if err != nil {
			return errors.Join(err, m.shutAgain(&f, in, at))
		}
		f.fields = fields
	}
	if f.node != nil {
		if err := m.enter(&f, in, at); err != nil {
			return err
		}
	}
	// From here on unwind puts the mode back.
	m.stack = append(m.stack, f)
	top := &m.stack[len(m.stack)-1]
	if err := m.list(top); err != nil {
		return err
	}
	return nil
}

// locked says that the owner, the caller, lacks one of bits: the only case in
// which a session, or a commit, can do what the caller cannot without opening.
func (m *maker) locked(s *sys.Stat, bits uint32) bool {
	return m.uid != 0 && int(s.UID) == m.uid && s.Perm()&bits != bits
}

func (m *maker) shutAgain(f *frame, in *sys.Dir, at string) error {
	if !f.opened {
		return nil
	}
	return in.Chmod(at, f.layer.Perm())
}

// enter goes down on the sides that f has. A base directory that cannot be
// entered is noted as unknown, and f goes on without it.
func (m *maker) enter(f *frame, in *sys.Dir, at string) error {
	if f.base != nil {
		err := m.base.Enter(at)
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EXDEV) {
			m.giveUp(f, err)
			f.base = nil
		} else if err != nil {
			return errors.Join(changing(err), m.shutAgain(f, in, at))
		}
	}
	if f.layer == nil {
		return nil
	}
	if err := m.layer.Enter(at); err != nil {
		err = errors.Join(err, m.shutAgain(f, in, at))
		if f.base != nil {
			err = errors.Join(err, m.base.Leave())
		}
		return err
	}
	return nil
}

// giveUp marks the change of f, a directory whose base cannot be read.
func (m *maker) giveUp(f *frame, cause error) {
	i := f.own
	if i < 0 { // the directory's own change is the last one
		i = len(m.changes) - 1
	} else {
		c := &m.changes[i]
		c.Node, c.Kind, c.Type, c.Base, c.Layer, c.Within = f.node, Modified, Dir, f.base, f.layer, f.top >= 0 && f.top != i
		f.own = -1
		if f.top < 0 {
			f.top = i
		}
		if parent := m.parent(); parent != nil {
			parent.changed, parent.steps = true, true
		}
	}
	m.changes[i].Unknown, m.changes[i].Err = true, cause
}

// parent is the top frame while its successor is not on the stack yet.
func (m *maker) parent() *frame {
	if len(m.stack) == 0 {
		return nil
	}
	return &m.stack[len(m.stack)-1]
}

// list fills in the names that f has to visit, in order.
func (m *maker) list(f *frame) error {
	if f.layer != nil {
		err := m.layer.Dir().Each(func(e sys.Dirent) error {
			f.names = append(f.names, name{e.Name, true, false})
			return nil
		})
		if err != nil {
			return err
		}
		slices.SortFunc(f.names, byName)
	}
	if f.base == nil || f.layer != nil && !f.alone {
		return nil
	}
	inLayer := len(f.names)
	err := m.base.Dir().Each(func(e sys.Dirent) error {
		if i, found := slices.BinarySearchFunc(f.names[:inLayer], name{string: e.Name}, byName); found {
			f.names[i].base = true
		} else {
			f.names = append(f.names, name{e.Name, false, true})
		}
		return nil
	})
	if errors.Is(err, unix.EACCES) {
		if f.own >= 0 {
			c := &m.changes[f.own]
			c.Unknown, c.Err = true, err
		} else {
			m.unreadable(f, err)
		}
		return nil
	}
	slices.SortFunc(f.names, byName)
	return changing(err)
}

// unreadable marks the change of a directory taken out that cannot be listed.
func (m *maker) unreadable(f *frame, cause error) {
	for i := len(m.changes) - 1; i >= 0; i-- {
		if m.changes[i].Node == f.node {
			m.changes[i].Unknown, m.changes[i].Err = true, cause
			return
		}
	}
}

// leave ends the top frame: goes up, puts the mode back, and decides about the
// directory's own change.
func (m *maker) leave() error {
	f := m.stack[len(m.stack)-1]
	if err := m.up(); err != nil {
		return err
	}
	if f.own < 0 {
		return nil
	}
	last := f.own == len(m.changes)-1
	c := &m.changes[f.own]
	known := *c // Carry, Unknown
	*c = Change{Node: f.node, Type: Dir, Base: f.base, Layer: f.layer, CopiedUp: f.copied, Within: f.top >= 0 && f.top != f.own}
	if f.top == f.own && (!last || known.Unknown) { // stands alone, and something below differs
		c.Kind, c.Opaque, c.Carry = Modified, true, known.Carry
		c.Unknown, c.Err = known.Unknown, known.Err
		if f.marked {
			c.Carry = m.carry(f.own)
			c.Carry.Marked = append([]*sys.Node{f.node}, c.Carry.Marked...)
		}
	} else if m.decide(c, &f); known.Unknown {
		c.Kind, c.Unknown, c.Err = Modified, true, known.Err
	}
	parent := m.parent()
	switch {
	case c.Kind == 0:
		if c.Within {
			m.keep(&frame{top: f.top}, f.node, f.base)
		}
		if last {
			m.changes = m.changes[:f.own]
		}
	case parent != nil:
		parent.changed = true
		parent.steps = parent.steps || c.Kind == Modified
	}
	return nil
}

// decide compares the directory itself: its mode and such, and its times if
// they are a change of their own.
func (m *maker) decide(c *Change, f *frame) {
	fields := f.fields
	if fields == nil {
		fields = &Fields{}
	}
	owns := m.uid == 0 || int(f.base.UID) == m.uid // another user's times cannot be set
	inside := f.layer.Mtime != f.base.Mtime && f.moved && owns
	neighbour := m.root.Stamp != 0 && f.base.Mtime >= m.root.Stamp
	fields.Mtime = inside && !f.changed && !neighbour
	if f.changed && !c.Within && (f.steps || inside) {
		m.dirs = append(m.dirs, Touch{f.node, *f.base, *f.layer, f.steps})
	}
	if c.Kind = fields.kind(); c.Kind != 0 {
		c.Fields = fields
	}
}

// up leaves the top frame's directory on its sides and puts the mode back. It
// takes the frame off the stack, whatever happens.
func (m *maker) up() error {
	f := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	var err error
	in, at := m.root.Layer, ""
	if f.node != nil {
		if f.base != nil {
			err = changing(m.base.Leave())
		}
		if f.layer != nil {
			err = errors.Join(err, m.layer.Leave())
		}
		in, at = m.layer.Dir(), f.node.Name
	}
	if f.opened {
		err = errors.Join(err, in.Chmod(at, f.layer.Perm()))
		if s, serr := in.Stat(at); serr == nil {
			*f.layer = s // the change times as they are now are what is pinned
		} else {
			err = errors.Join(err, serr)
		}
	}
	return err
}

// unwind puts back the modes of the directories that are open when a plan is
// given up.
func (m *maker) unwind() error {
	var err error
	for len(m.stack) > 0 && err == nil {
		err = m.up()
	}
	return err
}
