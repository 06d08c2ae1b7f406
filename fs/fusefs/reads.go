package fusefs

import (
	"slices"
	"strings"

	"try/fs/sys"
)

// Read tracking is exact because the kernel then asks for each name: listings
// come without what is in them (see Serve).

// read tells that a directory that is in the base, too, was listed.
func (t *tree) read(n *node) {
	in := n.part(t.base)
	if t.reads == nil || in == nil {
		return
	}
	if h, err := t.open(n, in); err == nil {
		defer t.fds.done(h)
		if s, err := h.dir.Stat(""); err == nil {
			t.reads(rel(n), s)
		}
	}
}

// readAs tells that something of the base that is no directory was looked at.
func (t *tree) readAs(p *node, name string, s sys.Stat) {
	if t.reads == nil {
		return
	}
	if c := p.child(name); c != nil && int(c.level.Load()) == t.base {
		t.reads(below(p, name), s)
	}
}

// absent tells that something was looked for in vain.
func (t *tree) absent(p *node, name string) {
	if t.reads != nil && p.part(t.base) != nil {
		t.reads(below(p, name), sys.Stat{})
	}
}

// rel is where a directory is, from the root; "" for the root.
func rel(n *node) string { return strings.Join(names(n), "/") }

func below(p *node, name string) string { return strings.Join(append(names(p), name), "/") }

// names are those on the way from the root to n.
func names(n *node) []string {
	var way []string
	for ; n.dir.parent != nil; n = n.dir.parent {
		way = append(way, n.dir.name)
	}
	slices.Reverse(way)
	return way
}
