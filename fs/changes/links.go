package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// Link says that what a change brings is one more name of another file.
//
// Inside a session link(2) of a base file copies it up: the layer then holds a
// copy under both names, of which the first is no change. And a file of the
// base with several names, written to under one of them, is copied up under
// that one alone: the session sees the others with the old content. Both are
// what an overlay does (Documentation/filesystems/overlayfs.rst,
// “Non-standard behavior”), not what the command did, so a commit mends it.
type Link struct {
	Root int       // the plan's root that Node is below
	Node *sys.Node // the other name
	// Base is the file at Node, which stays in the base; nil: it is the one that
	// the change at Node brings.
	Base *sys.Stat
	// Changed: another change alters the metadata of Base in place. Without it
	// the layer's copy has what the session saw, and Base has not.
	Changed bool
}

// inode tells files of one plan apart.
type inode struct {
	dev uint64
	sys.Identity
}

func inodeOf(s *sys.Stat) inode { return inode{s.Dev, s.Identity()} }

// source is a file that the layer holds under several names, one of which is
// the unchanged copy, or one with other metadata, of the base's at node.
type source struct {
	node    *sys.Node
	base    *sys.Stat
	changed bool
}

// linker finds the links of a plan.
type linker struct {
	ctx     context.Context
	plan    *Plan
	sources []map[inode]source // by root
	groups  map[inode]*group   // files of the base with several names that were written to
	order   []*group
	hidden  map[inode]bool // directories of stores
	visited uint
}

// group is the names of one such file.
type group struct {
	root   int
	change Change // the one that brings the new content
	parted bool   // written to under several names, each by itself
	known  map[place]bool
	found  []place
	left   int // names that are not known yet
}

type place struct {
	root int
	path string
}

// run makes links of changes, and adds those of other names.
func (l *linker) run() error {
	for i := range l.plan.Roots {
		for k := range l.plan.Roots[i].Changes {
			l.look(i, &l.plan.Roots[i].Changes[k])
		}
	}
	if len(l.groups) == 0 {
		return nil
	}
	l.knownNames()
	if err := l.search(); err != nil {
		return err
	}
	l.follow()
	return l.addNames()
}

// look sees whether a change is one of a file with several names.
func (l *linker) look(root int, c *Change) {
	if c.Layer == nil || c.Fields != nil || c.Unknown || !c.Layer.IsRegular() {
		return
	}
	if c.Layer.Nlink > 1 {
		if s, ok := l.sources[root][inodeOf(c.Layer)]; ok {
			c.Link = &Link{Root: root, Node: s.node, Base: s.base, Changed: s.changed}
			return
		}
	}
	if c.Kind != Modified || c.Within || c.Base.Nlink < 2 || !inPlace(c) {
		return
	}
	g := l.groups[inodeOf(c.Base)]
	if g == nil {
		g = &group{root: root, change: *c, known: map[place]bool{}}
		if l.groups == nil {
			l.groups = map[inode]*group{}
		}
		l.groups[inodeOf(c.Base)] = g
		l.order = append(l.order, g)
	}
	g.parted = g.parted || inodeOf(g.change.Layer) != inodeOf(c.Layer)
}

// OfBase says that the layer's file began as a copy of the base's, as far as
// that can be told: at this path or, if it carries the mark, at another.
func (c *Change) OfBase() bool { return c.CopiedUp || inPlace(c) }

// inPlace says that the layer's file began as the copy of this base file, and
// did not take its place. A copy of a file with several names carries no mark
// (fs/overlayfs/copy_up.c, ovl_do_copy_up), one of another file that was
// renamed over it does. But a copy has the access time of its base, and a new
// file that of its making; reading moves neither in a session, whose mounts
// have noatime. Where somebody has read the base since, only one from before
// the copy was made is known.
func inPlace(c *Change) bool {
	if c.CopiedUp {
		return false
	}
	read := c.Base.Atime > c.Layer.Btime
	return c.Layer.Atime == c.Base.Atime || read && c.Layer.Atime < c.Layer.Btime
}

// knownNames notes which names of the files the plan deals with already.
func (l *linker) knownNames() {
	for i := range l.plan.Roots {
		for k := range l.plan.Roots[i].Changes {
			c := &l.plan.Roots[i].Changes[k]
			if c.Base != nil {
				l.known(i, c.Node, c.Base)
			}
			if c.Carry != nil {
				for n := range c.Carry.Kept {
					l.known(i, c.Carry.Kept[n].Node, &c.Carry.Kept[n].Base)
				}
			}
		}
	}
	for _, g := range l.order {
		g.left = int(g.change.Base.Nlink) - len(g.known)
	}
}

func (l *linker) known(root int, node *sys.Node, s *sys.Stat) {
	if s.Nlink < 2 {
		return
	}
	if g := l.groups[inodeOf(s)]; g != nil {
		g.known[place{root, node.Path()}] = true
	}
}

// wanted are the inode numbers of files with names that are not known.
func (l *linker) wanted(dev uint64) map[uint64]*group {
	var w map[uint64]*group
	for id, g := range l.groups {
		if g.left > 0 && id.dev == dev {
			if w == nil {
				w = map[uint64]*group{}
			}
			w[id.Ino] = g
		}
	}
	return w
}

// search looks for the other names: where the known ones are, then everywhere
// in the roots on that file system, until all are found.
func (l *linker) search() error {
	for _, g := range l.order {
		r := &l.plan.Roots[g.root].Root
		if err := l.walk(g.root, r, g.change.Node.Parent, false); err != nil {
			return fmt.Errorf("look for other names of %s/%s: %w", r.Path, g.change.Path(), err)
		}
	}
	for i := range l.plan.Roots {
		r := &l.plan.Roots[i].Root
		if err := l.walk(i, r, nil, true); err != nil {
			return fmt.Errorf("look below %s for other names of changed files: %w", r.Path, err)
		}
	}
	for _, g := range l.order {
		if g.left > 0 && !g.parted {
			r := &l.plan.Roots[g.root].Root
			l.plan.Warnings = append(l.plan.Warnings, fmt.Sprintf(
				"%+q: %d more of its names are not in the branch's directories, or cannot be seen there: they keep the old content",
				r.Path+"/"+g.change.Path(), g.left))
		}
	}
	return nil
}

// walk lists the directory at, and all below it if deep is set, and looks at
// what has one of the wanted numbers.
func (l *linker) walk(root int, r *Root, at *sys.Node, deep bool) error {
	top, err := r.Base.Stat("")
	if err != nil {
		return err
	}
	wanted := l.wanted(top.Dev)
	if len(wanted) == 0 {
		return nil
	}
	if err := l.hide(r); err != nil {
		return err
	}
	start, err := r.Base.Sub(at.Path())
	if err != nil {
		return changing(err)
	}
	defer start.Close()
	way, err := sys.NewDescent(start)
	if err != nil {
		return err
	}
	defer way.Close()
	type frame struct {
		node   *sys.Node
		dirs   []string
		hidden bool
	}
	list := func(node *sys.Node, hidden bool) (frame, error) {
		f := frame{node: node, hidden: hidden}
		d := way.Dir()
		err := d.Each(func(e sys.Dirent) error {
			if g := wanted[e.Ino]; g != nil || e.Type == unix.DT_UNKNOWN {
				s, err := d.Stat(e.Name)
				if err != nil {
					return nil // gone again
				}
				if g := l.groups[inodeOf(&s)]; g != nil {
					l.met(g, place{root, (&sys.Node{Parent: node, Name: e.Name}).Path()}, hidden)
				}
				if s.IsDir() {
					e.Type = unix.DT_DIR
				}
			}
			if deep && e.Type == unix.DT_DIR {
				f.dirs = append(f.dirs, e.Name)
			}
			return nil
		})
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOENT) {
			err = nil
		}
		return f, err
	}
	f, err := list(at, false)
	if err != nil {
		return err
	}
	stack := []frame{f}
	for len(stack) > 0 && len(l.wanted(top.Dev)) > 0 {
		f := &stack[len(stack)-1]
		if len(f.dirs) == 0 {
			if stack = stack[:len(stack)-1]; len(stack) > 0 {
				if err := way.Leave(); err != nil {
					return changing(err)
				}
			}
			continue
		}
		if l.visited++; l.visited%256 == 0 {
			if err := l.ctx.Err(); err != nil {
				return err
			}
		}
		name := f.dirs[0]
		f.dirs = f.dirs[1:]
		if err := way.Enter(name); err != nil {
			continue // closed, a mount, or gone
		}
		s, err := way.Dir().Stat("")
		if err != nil {
			return err
		}
		next, err := list(&sys.Node{Parent: f.node, Name: name}, f.hidden || l.hidden[inodeOf(&s)])
		if err != nil {
			return err
		}
		stack = append(stack, next)
	}
	return nil
}

// hide notes the directories whose names are no session's.
func (l *linker) hide(r *Root) error {
	if l.hidden != nil || r.Stores == nil {
		return nil
	}
	l.hidden = map[inode]bool{}
	paths, err := r.Stores()
	if err != nil {
		return err
	}
	for _, path := range paths {
		d, err := sys.OpenDir(path)
		if err != nil {
			continue // there is none at this place
		}
		s, err := d.Stat("")
		d.Close()
		if err != nil {
			return err
		}
		l.hidden[inodeOf(&s)] = true
	}
	return nil
}

// met notes a name of g's file. One in a store was displaced by a commit or
// waits in a branch: it is none of the base's.
func (l *linker) met(g *group, p place, hidden bool) {
	if g.known[p] {
		return
	}
	g.known[p] = true
	g.left--
	if !hidden {
		g.found = append(g.found, p)
	}
}

// follow makes a link to a file of which another name brings new content one
// to that.
func (l *linker) follow() {
	for i := range l.plan.Roots {
		for k := range l.plan.Roots[i].Changes {
			c := &l.plan.Roots[i].Changes[k]
			if c.Link == nil {
				continue
			}
			if g := l.groups[inodeOf(c.Link.Base)]; g != nil && !g.parted && !c.Within {
				c.Link = &Link{Root: g.root, Node: g.change.Node}
			}
		}
	}
}

// addNames makes a change of each name that was found.
func (l *linker) addNames() error {
	added := map[int][]Change{}
	for _, g := range l.order {
		if g.parted {
			continue
		}
		for _, p := range g.found {
			r := &l.plan.Roots[p.root]
			dir, name := "", p.path
			if i := strings.LastIndexByte(p.path, '/'); i >= 0 {
				dir, name = p.path[:i], p.path[i+1:]
			}
			d, err := r.Root.Base.Sub(dir)
			if err != nil {
				return changing(err)
			}
			s, err := d.Stat(name)
			if err == nil {
				var up *sys.Node
				if up, err = r.steps(dir, d); err == nil {
					added[p.root] = append(added[p.root], Change{
						Node: &sys.Node{Parent: up, Name: name}, Kind: Modified, Type: File, Base: &s, Layer: g.change.Layer,
						Link: &Link{Root: g.root, Node: g.change.Node},
					})
				}
			}
			d.Close()
			if err != nil {
				return changing(err)
			}
		}
	}
	for i, list := range added {
		slices.SortFunc(list, func(a, b Change) int { return byPath(a.Node, b.Node) })
		l.plan.Roots[i].merge(list)
	}
	return nil
}

// steps notes that there is a step in the directory of the base at path, and
// returns its node. Writing to a file does not move the times of its directory.
func (r *RootPlan) steps(path string, d *sys.Dir) (*sys.Node, error) {
	for i := range r.Dirs {
		if t := &r.Dirs[i]; t.Node.Path() == path {
			t.Steps = true
			return t.Node, nil
		}
	}
	s, err := d.Stat("")
	if err != nil {
		return nil, err
	}
	t := Touch{Base: s, Layer: s, Steps: true}
	for i := range r.Changes {
		if c := &r.Changes[i]; c.Fields != nil && c.Type == Dir && c.Path() == path {
			t.Node, t.Layer = c.Node, *c.Layer
		}
	}
	if t.Node == nil {
		for name := range strings.SplitSeq(path, "/") {
			if name != "" {
				t.Node = &sys.Node{Parent: t.Node, Name: name}
			}
		}
	}
	r.Dirs = append(r.Dirs, t)
	slices.SortStableFunc(r.Dirs, func(a, b Touch) int { return b.Node.Depth() - a.Node.Depth() })
	return t.Node, nil
}

// merge puts changes with steps of their own among the others, in order.
func (r *RootPlan) merge(list []Change) {
	all := make([]Change, 0, len(r.Changes)+len(list))
	for _, c := range r.Changes {
		for !c.Within && len(list) > 0 && byPath(list[0].Node, c.Node) < 0 {
			all, list = append(all, list[0]), list[1:]
		}
		all = append(all, c)
	}
	r.Changes = append(all, list...)
}

// byPath is the order of a walk: names are compared one by one.
func byPath(a, b *sys.Node) int {
	x, y := strings.Split(a.Path(), "/"), strings.Split(b.Path(), "/")
	return slices.CompareFunc(x, y, cmp.Compare[string])
}
