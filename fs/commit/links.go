package commit

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/sys"
	"try/fs/vfs"
)

// A further name of a file is made in the slots while staging, and brought into
// the base by a move or a swap like a copy: so link(2) needs no step of its own,
// and neither has its way back. A roll-back brings the name back into the
// slots, and unstage removes it. In an undo record the displaced names of one
// file are names of one file still.

// linked is one name to be staged.
type linked struct {
	file *sys.Node // brings says which step brings the file; nil: it is at
	at   place     // in the base
	slot place
	step int // in moves
}

// linkable notes which files get further names: their link counts and change
// times move before anything else is done, and prove nothing from then on.
func (c *compiler) linkable() {
	for i := range c.plan {
		for k := range c.plan[i].Changes {
			ch := &c.plan[i].Changes[k]
			switch {
			case ch.Link == nil:
			case ch.Link.Base == nil:
				if c.brings == nil {
					c.brings = map[*sys.Node]int{}
				}
				c.brings[ch.Link.Node] = -1
			default:
				c.names[ch.Link.Base.Identity()] = true
			}
		}
	}
}

// link is ch's, if the kernel would let the caller make it (link(2)); otherwise
// the layer's copy does.
func (c *compiler) link(ch *changes.Change) *changes.Link {
	l := ch.Link
	if l == nil || l.Base == nil {
		return l
	}
	owned := c.uid == 0 || l.Base.UID == c.uid // /proc/sys/fs/protected_hardlinks
	if !owned || l.Base.Attributes&fixed != 0 || l.Changed && !c.alters(l.Node) {
		return nil
	}
	return l
}

// alters says that the plan, of which something may have been left out, still
// has the change of the metadata of a file that gets a further name.
func (c *compiler) alters(file *sys.Node) bool {
	for i := range c.plan {
		for k := range c.plan[i].Changes {
			if o := &c.plan[i].Changes[k]; o.Node == file && o.Fields != nil {
				return true
			}
		}
	}
	return false
}

// further compiles a change that is a further name.
func (c *compiler) further(l *changes.Link, base place, ch *changes.Change, old side) error {
	if err := c.needSlots(base.root, base.path); err != nil {
		return err
	}
	s := step{kind: move, from: c.newSlot(base.root), to: base, new: sideOf(*ch.Layer)}
	if ch.Base != nil {
		s.kind, s.old = swap, old
	}
	k := linked{slot: s.from, step: len(c.moves)}
	if l.Base != nil {
		ok, err := c.stays(l, &k, &s, base.root)
		if err != nil || !ok {
			return err
		}
	} else {
		k.file = l.Node
	}
	c.links = append(c.links, k)
	c.moves = append(c.moves, s)
	return nil
}

// stays makes a step bring the file that is in the base already.
func (c *compiler) stays(l *changes.Link, k *linked, s *step, root uint32) (bool, error) {
	k.at = place{root, inBase, l.Node.Path()}
	ok, err := c.agrees(k.at, l.Base)
	s.new = sideOf(*l.Base)
	s.new.shared = true
	return ok, err
}

// link compiles a further name in a directory that goes as a whole: the layer's
// copy goes aside, the name comes in its place, and then the directory is moved.
func (t *treeWalk) link(v sys.Visit, l *changes.Link) error {
	c := t.c
	from, _ := t.at(v.Node)
	if t.dark == nil {
		t.top.tree.add(t.in.of(v.Node), l.Base, false)
	}
	if t.copy {
		if c.within == nil {
			c.within = map[place]place{}
		}
		c.within[from] = place{from.root, inBase, l.Node.Path()}
		return nil
	}
	if err := t.putAside(v); err != nil {
		return err
	}
	s := step{kind: move, from: c.newSlot(from.root), to: from}
	k := linked{slot: s.from, step: len(c.moves)}
	ok, err := c.stays(l, &k, &s, from.root)
	t.fine = t.fine && ok
	c.links = append(c.links, k)
	c.moves = append(c.moves, s)
	return err
}

// stageLinks makes the further names: after the copies, and when nothing of the
// layer is open for looking any more. But for link counts it alters nothing.
func (c *compiler) stageLinks() error {
	for i := range c.links {
		k := &c.links[i]
		from := k.at
		if k.file != nil {
			at := c.brings[k.file]
			if at < 0 {
				return fmt.Errorf("stage a name of %s: its other name is not in the plan", c.w.path(c.journal.steps[k.step].to))
			}
			from = c.journal.steps[at].from
		}
		s := &c.journal.steps[k.step]
		if err := c.stageLink(from, k, s); err != nil {
			return fmt.Errorf("stage %s as a name of %s: %w", c.w.path(s.to), c.w.path(from), err)
		}
	}
	return nil
}

func (c *compiler) stageLink(from place, k *linked, s *step) error {
	st, d, name, err := c.w.look(from)
	if err != nil {
		return err
	}
	if k.file == nil {
		if why := s.new.difference(st); why != "" {
			return fmt.Errorf("%s: %w", why, unix.ESTALE)
		}
	}
	slots := c.w.roots[k.slot.root].slots
	if err := c.w.fs.Make(slots, k.slot.path, vfs.New{From: d, Name: name}); err != nil {
		return err
	}
	now, err := slots.Stat(k.slot.path)
	if err != nil {
		return err
	}
	if st == nil || now.Identity() != st.Identity() {
		return errors.Join(fmt.Errorf("replaced by another: %w", unix.ESTALE), c.w.fs.Remove(slots, k.slot.path, false))
	}
	shared := s.new.shared
	s.new = sideOf(now)
	s.new.shared = shared
	return nil
}

// copyName makes an entry of a copy a name of the file of the base that it is
// one of inside.
func (c *compiler) copyName(to *sys.Dir, toName string, at linkAt) (bool, error) {
	file, ok := c.within[place{at.root, inLayer, at.in}]
	if !ok {
		return false, nil
	}
	_, d, name, err := c.w.look(file)
	if err != nil {
		return false, err
	}
	return true, c.w.fs.Make(to, toName, vfs.New{From: d, Name: name})
}
