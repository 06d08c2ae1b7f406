package supervisor

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"try/fs/branch"
	"try/fs/changes"
	"try/fs/commit"
	"try/fs/sys"
)

// A cut parts the changes of a branch in those that are to be committed now and
// those that stay. It is worked out on the tree of what changed, of which each
// directory knows how many changes are at and below it, and how many of them
// are chosen.
type cut struct {
	roots               []*twig
	plan                *changes.Plan
	chosen, lost, total int
	droppedOnes         map[*changes.Change]bool
}

// fate is what becomes of a change.
type fate uint8

const (
	stays   fate = iota // in the branch
	chosen              // is committed
	dropped             // neither: the base stays
)

// stay counts the changes that stay in the branch.
func (k *cut) stay() int { return k.total - k.chosen - k.lost }

// isDropped is for [changes.Plan.Without].
func (k *cut) isDropped(c *changes.Change) bool { return k.droppedOnes[c] }

// twig is a changed path, or a directory on the way to one.
type twig struct {
	change *changes.Change // nil: on the way
	chosen bool
	drop   bool
	// same is the base's directory, if this one was made anew and came back so.
	same *sys.Stat
	// source: it is no change, but a chosen one is a further name of it. sources
	// counts those at and below.
	source  bool
	sources int
	// total, picked and lost count the changes at and below it, the chosen and
	// the dropped ones.
	total, picked, lost int
	below               map[string]*twig
}

// newCut chooses by a function of the change and its absolute path. What the
// base cannot have without it comes along: the new directories above, and the
// other names of a file that is written to.
func newCut(plan *changes.Plan, choose func(c *changes.Change, path string) fate) (*cut, error) {
	k := &cut{plan: plan, droppedOnes: map[*changes.Change]bool{}}
	var all []map[*sys.Node]*twig // by root
	for i := range plan.Roots {
		r := &plan.Roots[i]
		nodes := map[*sys.Node]*twig{nil: {}}
		paths := fullPaths(r)
		for n := range r.Changes {
			c := &r.Changes[n]
			t := twigOf(nodes, c.Node)
			f := choose(c, filepath.Clean(paths[n]))
			t.change, t.chosen, t.drop = c, f == chosen, f == dropped
			k.droppedOnes[c] = t.drop
		}
		all = append(all, nodes)
	}
	k.link(all)
	for i := range plan.Roots {
		r, nodes := &plan.Roots[i], all[i]
		for n := range r.Changes {
			c := &r.Changes[n]
			if nodes[c.Node].chosen {
				bringAlong(nodes, c.Node)
			}
			if c.Carry == nil {
				continue
			}
			for j := range c.Carry.Kept {
				if t := nodes[c.Carry.Kept[j].Node]; t != nil {
					t.same = &c.Carry.Kept[j].Base
				}
			}
		}
		root := nodes[nil]
		if err := root.count(r.Root.Path); err != nil {
			return nil, err
		}
		k.roots = append(k.roots, root)
		k.chosen += root.picked
		k.lost += root.lost
		k.total += root.total
	}
	return k, nil
}

// link keeps the names of a file together.
func (k *cut) link(all []map[*sys.Node]*twig) {
	for range 2 { // the file for its names, then the names for their file
		for i := range k.plan.Roots {
			for n := range k.plan.Roots[i].Changes {
				c := &k.plan.Roots[i].Changes[n]
				if c.Link == nil {
					continue
				}
				t := all[i][c.Node]
				file := twigOf(all[c.Link.Root], c.Link.Node)
				switch {
				case c.Link.Base != nil:
					file.source = file.source || t.chosen && file.change == nil && c.Link.Root == i
				case t.chosen || file.chosen:
					t.chosen, file.chosen = true, true
				}
			}
		}
	}
}

func twigOf(nodes map[*sys.Node]*twig, n *sys.Node) *twig {
	if t, ok := nodes[n]; ok {
		return t
	}
	t := &twig{}
	nodes[n] = t
	up := twigOf(nodes, n.Parent)
	if up.below == nil {
		up.below = map[string]*twig{}
	}
	up.below[n.Name] = t
	return t
}

func bringAlong(nodes map[*sys.Node]*twig, n *sys.Node) {
	for ; n != nil; n = n.Parent {
		if t := nodes[n.Parent]; n.Parent != nil && t.change != nil && t.isNewDir() {
			if t.chosen {
				return
			}
			t.chosen = true
		}
	}
}

// isNewDir says that the base has no directory here and the layer has.
func (t *twig) isNewDir() bool {
	c := t.change
	return c != nil && c.Layer != nil && c.Layer.IsDir() && (c.Base == nil && !c.Unknown || c.Base != nil && !c.Base.IsDir())
}

// isGoneDir says that the base has a directory and the layer has none.
func isGoneDir(c *changes.Change) bool {
	return c != nil && c.Base != nil && c.Base.IsDir() && (c.Layer == nil || !c.Layer.IsDir())
}

func (t *twig) count(path string) error {
	if t.change != nil {
		t.total = 1
	}
	if t.chosen {
		t.picked = 1
	} else if t.drop {
		t.lost = 1
	}
	if t.source {
		t.sources = 1
	}
	for name, b := range t.below {
		if err := b.count(path + "/" + name); err != nil {
			return err
		}
		t.total += b.total
		t.picked += b.picked
		t.lost += b.lost
		t.sources += b.sources
	}
	if isGoneDir(t.change) && t.chosen && t.picked < t.total {
		left := t.left(path, nil)
		more := ""
		if n := len(left); n > 3 {
			left, more = left[:3], fmt.Sprintf(" and %d more", n-3)
		}
		return fmt.Errorf("%s is removed as a whole, and below it is not chosen: %s%s", path, strings.Join(left, ", "), more)
	}
	return nil
}

// left lists what is not chosen.
func (t *twig) left(path string, list []string) []string {
	if t.change != nil && !t.chosen && !t.drop {
		list = append(list, path)
	}
	for name, b := range t.below {
		list = b.left(path+"/"+name, list)
	}
	return list
}

// wanted counts what goes to the part, or stays.
func (t *twig) wanted(part bool) int {
	if part {
		return t.picked
	}
	return t.total - t.picked - t.lost
}

// root says what the layer of the part, or of the rest, takes of that of a root.
func (t *twig) root(part bool) *branch.Part {
	switch n := t.wanted(part); {
	case n == 0 && (t.sources == 0 || !part):
		return &branch.Part{How: branch.Way, Others: branch.Left, Stays: true}
	case n == t.total:
		return &branch.Part{How: branch.Whole}
	}
	p := t.mixed(part, false)
	p.Stays = true
	return p
}

// take says what a layer takes of what is at and below t. alone: a directory
// above, which was opaque, is not any more.
func (t *twig) take(part, alone bool) *branch.Part {
	n := t.wanted(part)
	c := t.change
	isDir := c == nil || c.Layer != nil && c.Layer.IsDir()
	switch {
	case part && t.source:
		return &branch.Part{How: branch.Way}
	case n == 0 && (t.sources == 0 || !part):
		return &branch.Part{How: branch.Left}
	case !isDir && (n == t.total || !part):
		return &branch.Part{How: branch.Way}
	case !isDir:
		return t.likeBase()
	case n == t.total && n > 0:
		return &branch.Part{How: branch.Whole, Opaque: alone && !t.isNewDir()}
	}
	return t.mixed(part, alone)
}

// mixed is a directory of which some goes and some stays. If it hid the base's,
// it does so no more, and what of the base is deleted gets whiteouts.
func (t *twig) mixed(part, alone bool) *branch.Part {
	p := &branch.Part{How: branch.Way, Others: branch.Way, Plain: true, Below: map[string]*branch.Part{}}
	if part {
		p.Others = branch.Left
	}
	p.Stays = t.goes(part)
	p.BaseTime = t.quiet(part)
	alone = (alone || t.change != nil && t.change.Opaque) && !t.isNewDir()
	for name, b := range t.below {
		n := b.wanted(part)
		if alone && b.change != nil && b.change.Layer == nil && n > 0 && (n == b.total || !part) {
			p.Hide = append(p.Hide, name)
			continue
		}
		p.Below[name] = b.take(part, alone)
	}
	return p
}

// goes says that the change itself goes to the part, or stays.
func (t *twig) goes(part bool) bool {
	return t.change != nil && t.chosen == part && (part || !t.drop)
}

// quiet says that a directory is no change, and nothing directly in it is.
func (t *twig) quiet(part bool) bool {
	for _, b := range t.below {
		if b.goes(part) && (!b.change.Opaque || b.wanted(part) == b.total) { // else it is not exchanged
			return false
		}
	}
	return !t.goes(part)
}

// likeBase is a directory that stays, though the layer has it no more, since
// only some of what is below it is to be deleted.
func (t *twig) likeBase() *branch.Part {
	p := &branch.Part{How: branch.Way, Base: true, Below: map[string]*branch.Part{}}
	for name, b := range t.below {
		switch b.picked {
		case 0:
		case b.total:
			p.Hide = append(p.Hide, name)
		default:
			p.Below[name] = b.likeBase()
		}
	}
	return p
}

// gives says what a branch gives to one that is composed of several: only what
// is a change, so that nothing that another one gives is hidden. first: the
// root itself is made like this branch's.
func (t *twig) gives(first bool) *branch.Part {
	p := t.only(false)
	p.Stays = first || t.change != nil && t.chosen
	return p
}

func (t *twig) only(alone bool) *branch.Part {
	c := t.change
	isDir := c == nil || c.Layer != nil && c.Layer.IsDir()
	switch {
	case t.picked == 0 && t.sources == 0:
		return &branch.Part{How: branch.Left}
	case !isDir && t.picked < t.total && !t.chosen:
		return t.likeBase()
	case !isDir:
		return &branch.Part{How: branch.Way}
	}
	p := &branch.Part{How: branch.Way, Stays: c != nil && t.chosen, Plain: true, BaseTime: t.quiet(true), Below: map[string]*branch.Part{}}
	alone = (alone || c != nil && c.Opaque) && !t.isNewDir()
	for name, b := range t.below {
		if alone && b.change != nil && b.change.Layer == nil && b.chosen {
			p.Hide = append(p.Hide, name)
		} else if p.Below[name] = b.only(alone); b.source {
			p.Below[name] = &branch.Part{How: branch.Way}
		}
	}
	return p
}

// cuts says how each root of b is split.
func (k *cut) cuts(b *branch.Branch) ([]branch.Cut, error) {
	var list []branch.Cut
	for i, t := range k.roots {
		seen, err := seenOf(b, i)
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(seenList(t.seen(seen)))
		if err != nil {
			return nil, err
		}
		list = append(list, branch.Cut{Part: t.root(true), Rest: t.root(false), Seen: data})
	}
	return list, nil
}

// seen is what the rest has seen of the base once the part is committed. What
// is chosen is no change any more. The directories in which it lies have other
// times then, and all that is directly in them is known by itself.
func (t *twig) seen(seen map[string]commit.Seen) map[string]commit.Seen {
	t.forget("", seen)
	return seen
}

func (t *twig) forget(path string, seen map[string]commit.Seen) {
	was, known := seen[path]
	if !known && t.same != nil { // perhaps a change of its own from now on
		was, known = commit.Seen{ID: t.same.Identity(), Place: true}, true
		seen[path] = was
	}
	for name, b := range t.below {
		b.forget(strings.TrimPrefix(path+"/"+name, "/"), seen)
		if b.chosen && known && !was.Absent && was.ID.Type == dirType {
			was = commit.Seen{ID: was.ID, Mode: was.Mode, UID: was.UID, GID: was.GID, Place: true, Conflict: was.Conflict}
			seen[path] = was
		}
	}
	c := t.change
	switch {
	case !t.chosen:
	case t.isNewDir():
		seen[path] = commit.Seen{Absent: true} // or whatever directory is there
	case known && c.Layer != nil && c.Layer.IsDir():
		seen[path] = commit.Seen{ID: was.ID, Place: true}
	default:
		delete(seen, path)
	}
}

// paths are the chosen changes that the part must have, by their absolute path.
// A directory that was made anew and of which only some is chosen has no change
// of its own then, unless its metadata differ.
func (k *cut) paths() (all, must map[string]bool) {
	all, must = map[string]bool{}, map[string]bool{}
	for i, t := range k.roots {
		t.collect(k.plan.Roots[i].Root.Path, all, must)
	}
	return all, must
}

func (t *twig) collect(path string, all, must map[string]bool) {
	if t.chosen {
		all[path] = true
		if !t.change.Opaque || t.picked == t.total {
			must[path] = true
		}
	}
	for name, b := range t.below {
		b.collect(filepath.Join(path, name), all, must)
	}
}
