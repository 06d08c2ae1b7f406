package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
)

// ErrChanging says that the base changed so fast that no plan could be made.
// Making one again helps.
var ErrChanging = errors.New("the base changed while it was compared")

// Make compares each root's layer with its base. Nothing else may use the
// layers meanwhile: the session is over. The plan has one RootPlan for each
// root, in order. The roots' directories stay open and the caller's.
func Make(ctx context.Context, roots []Root) (*Plan, error) {
	p := &Plan{}
	links := linker{ctx: ctx, plan: p}
	for _, r := range roots {
		m := maker{ctx: ctx, root: r, plan: p, uid: os.Geteuid()}
		err := m.run()
		if err != nil {
			return nil, fmt.Errorf("compare %s with its layer: %w", r.Path, err)
		}
		p.Roots = append(p.Roots, RootPlan{Root: r, Changes: m.changes, Dirs: m.dirs, Closed: m.shut})
		links.sources = append(links.sources, m.sources)
	}
	return p, links.run()
}

// maker makes the plan of one root. It goes down the layer and the base in
// step, with a stack of its own, since a session may make a tree deeper than
// any recursion.
type maker struct {
	ctx  context.Context
	root Root
	plan *Plan
	uid  int

	changes []Change
	dirs    []Touch
	shut    []Closed

	layer, base *sys.Descent // where the top frame is, on the sides it has
	stack       []frame
	bufs        [2][]byte // to compare content
	sources     map[inode]source
	visited     uint

	given      int // files that change hands with a commit
	givenFirst *sys.Node
}

// frame is a directory that the maker is in. By its sides it is
//
//	in both, not alone   merged: the layer's names, each looked up in the base
//	in both, alone       replaced by its like: the names of both
//	in the layer only    added as a whole
//	in the base only     taken out as a whole
type frame struct {
	node           *sys.Node
	layer, base    *sys.Stat // nil: not on that side
	names          []name
	next           int
	alone          bool
	opened         bool // its mode in the layer is to be put back
	changed, steps bool // something directly in it is a change; is a moving one
	prepared       bool // made by us
	moved          bool // its time is another than we gave it
	own            int  // index of the directory's own change, kept free until it is left; −1: has one
	top            int  // index of the change that carries what is below; −1: none
	fields         *Fields
	marked, copied bool
}

type name struct {
	string
	layer, base bool
}

func (m *maker) run() (err error) {
	if m.layer, err = sys.NewDescent(m.root.Layer); err != nil {
		return err
	}
	defer m.layer.Close()
	if m.base, err = sys.NewDescent(m.root.Base); err != nil {
		return err
	}
	defer m.base.Close()
	defer func() { err = errors.Join(err, m.unwind()) }()

	if err := m.enterRoot(); err != nil {
		return err
	}
	for len(m.stack) > 0 {
		f := &m.stack[len(m.stack)-1]
		if f.next == len(f.names) {
			if err := m.leave(); err != nil {
				return err
			}
			continue
		}
		n := f.names[f.next]
		f.names[f.next] = name{} // the name belongs to the node now
		f.next++
		if m.visited++; m.visited%256 == 0 {
			if err := m.ctx.Err(); err != nil {
				return err
			}
		}
		if err := m.visit(f, n); err != nil {
			return err
		}
	}
	m.warnOfOwners()
	m.changes = slices.DeleteFunc(m.changes, func(c Change) bool { return c.Kind == 0 })
	return nil
}

func (m *maker) enterRoot() error {
	ls, err := m.root.Layer.Stat("")
	if err != nil {
		return err
	}
	bs, err := m.root.Base.Stat("")
	if err != nil {
		return err
	}
	f := frame{layer: &ls, base: &bs, own: m.reserve(), top: -1}
	return m.push(f, m.root.Layer, m.root.Base, "")
}

// side is what the maker finds of one name on one side.
type side struct {
	stat  *sys.Stat // nil: nothing
	entry layer.Entry
	gone  bool  // there, but not for a session: whiteout or socket
	err   error // cannot be looked at (base only)
}

// visit decides about one name of the top frame.
func (m *maker) visit(f *frame, n name) error {
	node := &sys.Node{Parent: f.node, Name: n.string}
	var in, out side
	var err error
	if f.layer != nil && (n.layer || !f.alone) {
		if in, err = m.lookLayer(n.string); err != nil {
			return err
		}
	}
	if f.base != nil && (n.base || !f.alone && f.layer != nil) {
		if out, err = m.lookBase(n.string); err != nil {
			return err
		}
	}
	for _, attr := range in.entry.Refused {
		m.warn(node, "attribute %q is left out: overlayfs itself reads it", attr)
	}
	if f.top >= 0 {
		if in.gone {
			m.carry(f.top).Leave = append(m.carry(f.top).Leave, node)
		}
		if in.stat != nil && !in.gone && in.entry.Marked {
			m.carry(f.top).Marked = append(m.carry(f.top).Marked, node)
		}
		if out.stat != nil {
			m.carry(f.top).Displaced++
		}
	}
	switch {
	case out.err != nil && (in.stat != nil):
		return m.unknown(f, node, in, out)
	case in.stat == nil || in.gone:
		if out.stat == nil {
			return nil
		}
		if out.gone {
			m.keep(f, node, out.stat)
			return nil
		}
		return m.deleted(f, node, out)
	case out.stat == nil:
		return m.whole(f, node, Added, in, nil)
	case out.gone || in.stat.Type() != out.stat.Type():
		return m.whole(f, node, Replaced, in, out.stat)
	case in.stat.IsDir():
		return m.both(f, node, in, out)
	default:
		return m.file(f, node, in, out)
	}
}

func (m *maker) lookLayer(name string) (side, error) {
	d := m.layer.Dir()
	s, err := d.Stat(name)
	if err != nil {
		return side{}, err
	}
	e, err := layer.Look(d, name, s)
	if err != nil {
		return side{}, err
	}
	return side{stat: &s, entry: e, gone: e.Kind == layer.Whiteout || e.Kind == layer.Socket}, nil
}

func (m *maker) lookBase(name string) (side, error) {
	d := m.base.Dir()
	s, err := d.Stat(name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return side{}, nil
	case errors.Is(err, unix.EACCES):
		return side{err: err}, nil
	case err != nil:
		return side{}, err
	}
	hidden, err := layer.Hidden(d, name, s)
	if errors.Is(err, unix.ENOENT) {
		return side{}, nil
	}
	return side{stat: &s, gone: hidden || s.Type() == unix.S_IFSOCK}, err
}

// add appends a change that belongs to an entry of f and returns its index.
func (m *maker) add(f *frame, c Change) int {
	c.Within = f.top >= 0
	f.changed = true
	f.steps = f.steps || c.Kind != Metadata && c.Kind != Touched
	m.changes = append(m.changes, c)
	return len(m.changes) - 1
}

// reserve keeps the place of a directory's own change, which stands before
// those below it and is known after them.
func (m *maker) reserve() int {
	m.changes = append(m.changes, Change{})
	return len(m.changes) - 1
}

func (m *maker) carry(top int) *Carry {
	c := &m.changes[top]
	if c.Carry == nil {
		c.Carry = &Carry{}
	}
	return c.Carry
}

// keep notes an entry of the base that is no change, but displaced.
func (m *maker) keep(f *frame, node *sys.Node, s *sys.Stat) {
	if f.top >= 0 {
		c := m.carry(f.top)
		c.Kept = append(c.Kept, Kept{node, *s})
	}
}

// carrier is the change that carries what is below change i of frame f.
func carrier(f *frame, i int) int {
	if f.top >= 0 {
		return f.top
	}
	return i
}

// unknown lists an entry of the layer of which the base may not be read.
func (m *maker) unknown(f *frame, node *sys.Node, in, out side) error {
	c := Change{Node: node, Kind: Deleted, Type: File, Unknown: true, Err: out.err}
	if in.gone {
		if in.entry.Kind != layer.Socket {
			m.add(f, c)
		}
		return nil
	}
	i, err := m.addLayer(f, c, Modified, in)
	if err != nil || !in.stat.IsDir() {
		return err
	}
	return m.push(frame{node: node, layer: in.stat, own: -1, top: carrier(f, i)}, m.layer.Dir(), nil, node.Name)
}

// deleted lists what the base has and the branch has not, with all below.
func (m *maker) deleted(f *frame, node *sys.Node, out side) error {
	c := Change{Node: node, Kind: Deleted, Type: typeOf(out.stat), Base: out.stat}
	if c.Type == Symlink {
		target, err := m.base.Dir().Readlink(node.Name)
		if err != nil {
			return changing(err)
		}
		c.Target = target
	}
	i := m.add(f, c)
	if c.Type != Dir {
		return nil
	}
	return m.push(frame{node: node, base: out.stat, own: -1, top: carrier(f, i)}, nil, m.base.Dir(), node.Name)
}

// whole lists what the layer has instead of nothing or of another type, with
// all that is below on either side.
func (m *maker) whole(f *frame, node *sys.Node, kind Kind, in side, base *sys.Stat) error {
	i, err := m.addLayer(f, Change{Node: node, Base: base}, kind, in)
	if err != nil {
		return err
	}
	top := carrier(f, i)
	switch {
	case in.stat.IsDir():
		return m.push(frame{node: node, layer: in.stat, own: -1, top: top}, m.layer.Dir(), nil, node.Name)
	case base != nil && base.IsDir():
		return m.push(frame{node: node, base: base, own: -1, top: top}, nil, m.base.Dir(), node.Name)
	}
	return nil
}

// addLayer adds a change that moves the layer's entry into the base.
func (m *maker) addLayer(f *frame, c Change, kind Kind, in side) (int, error) {
	c.Kind, c.Type, c.Layer, c.CopiedUp = kind, typeOf(in.stat), in.stat, in.entry.CopiedUp
	if c.Type == Symlink {
		target, err := m.layer.Dir().Readlink(c.Node.Name)
		if err != nil {
			return 0, err
		}
		c.Target = target
	}
	i := m.add(f, c)
	if f.top < 0 && in.entry.Marked {
		m.carry(i).Marked = append(m.carry(i).Marked, c.Node)
	}
	return i, nil
}

func (m *maker) warn(node *sys.Node, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	m.plan.Warnings = append(m.plan.Warnings, fmt.Sprintf("%+q: %s", m.root.Path+"/"+node.Path(), text))
}

// both goes into a directory that both sides have.
func (m *maker) both(f *frame, node *sys.Node, in, out side) error {
	d := frame{node: node, layer: in.stat, base: out.stat, top: f.top, marked: in.entry.Marked, copied: in.entry.CopiedUp}
	d.alone = f.alone || in.entry.Opaque
	d.own = m.reserve()
	if d.alone && d.top < 0 {
		d.top = d.own
	}
	return m.push(d, m.layer.Dir(), m.base.Dir(), node.Name)
}

// file compares two entries of one type that are no directories.
func (m *maker) file(f *frame, node *sys.Node, in, out side) error {
	same, fields, err := m.compareFile(node.Name, &in, &out)
	if err != nil {
		return err
	}
	c := Change{Node: node, Base: out.stat, Unknown: out.err != nil, Err: out.err}
	kind := fields.kind()
	if same && in.stat.IsRegular() && in.stat.Nlink > 1 && f.top < 0 {
		if m.sources == nil {
			m.sources = map[inode]source{}
		}
		m.sources[inodeOf(in.stat)] = source{node, out.stat, kind != 0}
	}
	switch {
	case !same:
		kind = Modified
		m.noteOwner(node, in, out)
	case kind == 0:
		m.keep(f, node, out.stat)
		return nil
	default:
		c.Fields = fields
	}
	if kind != Modified { // only values move
		in.entry.Marked = false
	}
	_, err = m.addLayer(f, c, kind, in)
	return err
}

// noteOwner notes a file that was written in place and that a commit cannot keep
// its owner's or group's: the layer's file takes its place.
func (m *maker) noteOwner(node *sys.Node, in, out side) {
	if m.root.Owners || out.stat == nil || in.stat.UID == out.stat.UID && in.stat.GID == out.stat.GID {
		return
	}
	if !in.entry.CopiedUp && !inPlace(&Change{Base: out.stat, Layer: in.stat}) {
		return // made anew: whose it is then is the session's doing
	}
	if m.given++; m.given == 1 {
		m.givenFirst = node
	}
}

func (m *maker) warnOfOwners() {
	switch {
	case m.given == 1:
		m.warn(m.givenFirst, "is another's, or of a group that is not yours: with a commit it becomes yours")
	case m.given > 1:
		m.warn(m.givenFirst, "and %d more files are another's, or of a group that is not yours: with a commit they become yours", m.given-1)
	}
}

// changing turns the disappearance of a base entry under our eyes into the
// error that says so.
func changing(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, sys.ErrMoved) {
		return fmt.Errorf("%w: %w", ErrChanging, err)
	}
	return err
}

func byName(a, b name) int { return cmp.Compare(a.string, b.string) }
