package changes

import (
	"slices"

	"try/fs/sys"
)

// Without is the plan without some of its changes, as if they had not been
// made. What is left out of a new directory stays behind when that is moved.
// A directory of the base that is removed, replaced or made anew goes as a
// whole or not at all: if something that the base has below it is left out, so
// is the directory's own step, and the changes Within it that are not left out
// become steps of their own, where the base has a directory for them.
//
// A further name of a file whose new content is left out is left out with it.
//
// gone is asked once for each change, by its address in p.
func (p *Plan) Without(gone func(*Change) bool) *Plan {
	gone = p.withLinks(gone)
	q := &Plan{Warnings: p.Warnings}
	for i := range p.Roots {
		w := without{in: &p.Roots[i], gone: map[*sys.Node]bool{}, own: map[*sys.Node]int{}, dirs: map[*sys.Node]bool{}}
		w.out = RootPlan{Root: w.in.Root, Closed: w.in.Closed}
		w.run(gone)
		q.Roots = append(q.Roots, w.out)
	}
	return q
}

// withLinks extends gone to links.
func (p *Plan) withLinks(gone func(*Change) bool) func(*Change) bool {
	files := map[*sys.Node]bool{} // whose new content another name follows; left out?
	for i := range p.Roots {
		for k := range p.Roots[i].Changes {
			if l := p.Roots[i].Changes[k].Link; l != nil && l.Base == nil {
				files[l.Node] = false
			}
		}
	}
	if len(files) == 0 {
		return gone
	}
	asked := map[*Change]bool{}
	for i := range p.Roots {
		for k := range p.Roots[i].Changes {
			c := &p.Roots[i].Changes[k]
			if _, ok := files[c.Node]; ok {
				files[c.Node] = gone(c)
				asked[c] = files[c.Node]
			}
		}
	}
	return func(c *Change) bool {
		was, ok := asked[c]
		if !ok {
			was = gone(c)
		}
		return was || c.Link != nil && c.Link.Base == nil && files[c.Link.Node]
	}
}

// without makes the plan of one root. Nodes are compared by address: the
// change of a directory and the parents of those below it share one. What
// holds of a directory is handed on to all below it, which follow it.
type without struct {
	in    *RootPlan
	out   RootPlan
	gone  map[*sys.Node]bool
	own   map[*sys.Node]int  // steps that were Within, and what is Within them: the step's place in out
	dirs  map[*sys.Node]bool // directories of the base, in steps left out, that stay
	touch []Touch            // of dirs
}

func (w *without) run(gone func(*Change) bool) {
	list := w.in.Changes
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].Within {
			n++
		}
		if w.mark(list[:n], gone); w.gone[list[0].Node] {
			w.split(list[:n])
		} else {
			w.whole(list[:n])
		}
		list = list[n:]
	}
	w.times()
}

// mark notes what of a step is left out, and with an entry that the base has
// each directory that would take it along.
func (w *without) mark(step []Change, gone func(*Change) bool) {
	for i := range step {
		c := &step[i]
		if !gone(c) {
			continue
		}
		w.gone[c.Node] = true
		if !c.Within || c.Base == nil && !c.Unknown {
			continue
		}
		for n := c.Node.Parent; !w.gone[n]; n = n.Parent {
			w.gone[n] = true
			if n == step[0].Node {
				break
			}
		}
	}
}

// whole keeps a step; what is new below it and left out stays in the layer.
func (w *without) whole(step []Change) {
	at := len(w.out.Changes)
	var leave []*sys.Node
	for _, c := range step {
		switch {
		case c.Within && w.gone[c.Node.Parent]: // stays with its directory
			w.gone[c.Node] = true
		case w.gone[c.Node]:
			leave = append(leave, c.Node)
		default:
			w.out.Changes = append(w.out.Changes, c)
		}
	}
	if len(leave) == 0 {
		return
	}
	carry := Carry{}
	if old := step[0].Carry; old != nil {
		carry = *old
	}
	carry.Leave = append(slices.Clip(carry.Leave), leave...)
	carry.Marked = slices.DeleteFunc(slices.Clone(carry.Marked), func(n *sys.Node) bool { return w.gone[n] })
	w.out.Changes[at].Carry = &carry
}

// split leaves a step out and makes steps of what is Within it.
func (w *without) split(step []Change) {
	first := &step[0]
	if first.Fields != nil || first.Base == nil || !first.Base.IsDir() || first.Unknown {
		return // nothing is Within, or the base has no directory for it that we know
	}
	w.stay(first)
	carry := first.Carry
	if carry == nil {
		carry = &Carry{}
	}
	for _, k := range carry.Kept {
		if k.Base.IsDir() { // came back identical
			w.dirs[k.Node] = true
			w.touch = append(w.touch, Touch{Node: k.Node, Base: k.Base, Layer: k.Base})
		}
	}
	for _, c := range step[1:] {
		switch {
		case w.dirs[c.Node.Parent]:
			if w.gone[c.Node] {
				if c.Base != nil && c.Base.IsDir() {
					w.stay(&c)
				}
				continue
			}
			c.Within = false
			if c.Fields != nil {
				if c.Base.IsDir() {
					w.stay(&c)
				}
			} else {
				w.own[c.Node] = len(w.out.Changes)
			}
		default:
			own, ok := w.own[c.Node.Parent]
			if !ok { // its directory is not in the base
				continue
			}
			w.own[c.Node] = own
			if w.gone[c.Node.Parent] { // stays with its directory
				w.gone[c.Node] = true
				continue
			}
			k := w.carry(own)
			if w.gone[c.Node] {
				k.Leave = append(k.Leave, c.Node)
				continue
			}
			if c.Base != nil {
				k.Displaced++
			}
		}
		w.out.Changes = append(w.out.Changes, c)
	}
	w.share(carry)
}

// share gives each new step its part of what the old one carried.
func (w *without) share(carry *Carry) {
	for _, n := range carry.Marked {
		if i, ok := w.own[n]; ok && !w.gone[n] {
			own := w.carry(i)
			own.Marked = append(own.Marked, n)
		}
	}
	for _, n := range carry.Leave {
		if i, ok := w.own[n.Parent]; ok && !w.gone[n.Parent] {
			own := w.carry(i)
			own.Leave = append(own.Leave, n)
		}
	}
	for _, k := range carry.Kept {
		if i, ok := w.own[k.Node.Parent]; ok {
			own := w.carry(i)
			own.Kept = append(own.Kept, k)
			own.Displaced++
		}
	}
}

// stay notes a directory of the base in which there may be steps now.
func (w *without) stay(c *Change) {
	w.dirs[c.Node] = true
	t := Touch{Node: c.Node, Base: *c.Base, Layer: *c.Base}
	if c.Layer != nil && c.Layer.IsDir() {
		t.Layer = *c.Layer
	}
	w.touch = append(w.touch, t)
}

func (w *without) carry(i int) *Carry {
	c := &w.out.Changes[i]
	if c.Carry == nil {
		c.Carry = &Carry{}
	}
	return c.Carry
}

// times lists the directories in which something still changes. A directory
// out of a step that was left out comes before those that hold it.
func (w *without) times() {
	steps := map[*sys.Node]bool{}
	for i := range w.out.Changes {
		if c := &w.out.Changes[i]; !c.Within && c.Fields == nil && c.Node != nil {
			steps[c.Node.Parent] = true
		}
	}
	slices.SortStableFunc(w.touch, func(a, b Touch) int { return b.Node.Depth() - a.Node.Depth() })
	for _, t := range append(w.touch, w.in.Dirs...) {
		if !t.Steps && w.dirs[t.Node] {
			t.Steps = steps[t.Node]
			if !t.Steps {
				continue
			}
		}
		if !t.Steps || steps[t.Node] {
			w.out.Dirs = append(w.out.Dirs, t)
		}
	}
}
