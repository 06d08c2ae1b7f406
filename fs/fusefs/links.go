package fusefs

import (
	"errors"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// One inode stays one. The layer format cannot say that two names of the
// layer and one of the base are the same file; so when a file with several
// names is copied up, all its names that are known become names of the copy,
// and every other one does when somebody comes upon it. Until then the node
// and the directories above it are remembered, whatever the kernel forgets.

// keepLinks gives the copy, which is at at, n's other names. Of those in the
// base that nobody has seen only the number is known.
func (t *tree) keepLinks(n *node, s sys.Stat, at name) error {
	n.mu.Lock()
	n.links += int32(s.Nlink) - 1
	others := append([]name{}, n.names...)
	n.mu.Unlock()
	t.ref(n)
	for d := at.in; d != nil; d = d.dir.parent {
		t.ref(d)
	}
	for _, other := range others {
		if other == at {
			continue
		}
		if err := t.linkCopy(n, at, other); err != nil {
			return err
		}
	}
	return nil
}

// keepHeld is keepLinks for a copy that has no name but one in the workshop,
// which is the place of one that nobody has come upon.
func (t *tree) keepHeld(n *node, s sys.Stat) {
	n.mu.Lock()
	n.links += int32(s.Nlink) - 1
	n.mu.Unlock()
	t.ref(n)
}

// linkCopy makes other, a name in the base, one of the copy at at; or, if that
// is nowhere, of the copy that is held.
func (t *tree) linkCopy(n *node, at, other name) error {
	if _, err := t.raise(other.in); err != nil {
		return err
	}
	link := func(to *sys.Dir) error { return n.gone.LinkHere(to, other.name) }
	if at.in != nil {
		h, err := t.open(at.in, at.in.upper())
		if err != nil {
			return err
		}
		defer t.fds.done(h)
		link = func(to *sys.Dir) error { return h.dir.Link(at.name, to, other.name) }
	}
	err := t.into(other.in, link)
	if errors.Is(err, unix.EEXIST) { // somebody else came upon it
		return nil
	}
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links--
	return nil
}

// joinLink is called when a name in the base leads to a node that was copied
// up under another name.
func (t *tree) joinLink(n *node, p *node, as string) error {
	at, _ := n.place()
	if at == (name{p, as}) {
		return nil
	}
	return t.linkCopy(n, at, name{p, as})
}

// pin has n remembered until it has no name any more: the number that it had in
// the base cannot be told from one of several names.
func (t *tree) pin(n *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.pinned {
		n.pinned = t.ref(n)
	}
}

func (t *tree) unpin(n *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pinned {
		n.pinned = false
		t.table.forget(n.id, 1) // which the kernel knows: it is removing it
	}
}
