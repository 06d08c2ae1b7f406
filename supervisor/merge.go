package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"try/fs/branch"
	"try/fs/changes"
	"try/fs/commit"
)

// MergeOptions is how branches are merged into a new one.
type MergeOptions struct {
	Into      string
	Decisions []Decision // about what both changed; ours is the branch named first
	Resolver  Resolver   // decides about the rest, if there is a terminal; nil: nobody does
}

// merging puts the changes of branches together, one branch after the other.
type merging struct {
	*joint
	ctx   context.Context
	o     MergeOptions
	rules []pathspec
	owner map[string]int    // which branch gives the change at a path
	texts map[string][]byte // merged, by path
	clash map[string]bool   // with markers
	dir   string            // for merging texts
	res   *Result
}

// Merge makes a new kept branch of the changes of others, which stay as they
// are. What one of them changed alone is taken, what both changed alike is one
// change, texts are merged; about the rest is decided as in a commit.
func (h *Home) Merge(ctx context.Context, names []string, o MergeOptions, ui UI) (*Result, error) {
	if err := branch.CheckName(o.Into); err != nil {
		return nil, err
	}
	j, err := h.openJoint(ctx, names, ui)
	if err != nil {
		return nil, err
	}
	m := &merging{joint: j, ctx: ctx, o: o, owner: map[string]int{}, texts: map[string][]byte{}, clash: map[string]bool{}}
	m.res = &Result{Branch: o.Into, Names: j.all[0].res.Names, Dir: j.all[0].b.Dir, Engine: j.all[0].b.Engine, Plan: &changes.Plan{}}
	m.res.Settled, m.res.Reason = Kept, "merged"
	if err := m.run(); err != nil {
		return nil, errors.Join(err, j.close())
	}
	return m.res, j.close()
}

func (m *merging) run() (err error) {
	dir, err := here()
	if err != nil {
		return err
	}
	for _, d := range m.o.Decisions {
		list, err := newPathspecs([]string{d.Glob}, dir, m.home.user)
		if err != nil {
			return err
		}
		m.rules = append(m.rules, list...)
	}
	if m.dir, err = m.all[0].b.MergeDir(); err != nil {
		return err
	}
	defer os.RemoveAll(m.dir)
	for i := range m.all {
		if err := m.fold(i); err != nil {
			return err
		}
	}
	return m.compose()
}

// overlap is what two branches changed differently.
type overlap struct {
	path   string
	first  int
	reason string
	whole  bool // what is below the path is decided with it
	text   bool // both are texts
	merged []byte
	clash  bool
}

// fold adds branch i.
func (m *merging) fold(i int) error {
	var open []overlap
	for _, path := range sortedPaths(m.byPath[i]) {
		first, both := m.owner[path]
		if !both {
			continue
		}
		o, err := m.compare(path, first, i)
		if err != nil {
			return fmt.Errorf("compare %s in %s and %s: %w", path, m.all[first].b.Name, m.all[i].b.Name, err)
		}
		switch {
		case o == nil:
		case o.text && !o.clash:
			m.texts[path] = o.merged
		default:
			open = append(open, *o)
		}
	}
	open = append(open, m.torn(i)...)
	open = outermost(open)
	hows, err := m.decide(i, open)
	if err != nil {
		return err
	}
	lost := map[string]bool{} // of branch i
	for k := range open {
		m.settle(&open[k], hows[k], i, lost)
	}
	for path := range m.byPath[i] {
		if _, taken := m.owner[path]; !taken && !lost[path] {
			m.owner[path] = i
		}
	}
	return nil
}

// settle carries a decision out: lost is what branch i does not give.
func (m *merging) settle(o *overlap, how How, i int, lost map[string]bool) {
	m.res.Resolved = append(m.res.Resolved, Resolved{o.path, how})
	if how == Merge {
		m.texts[o.path], m.clash[o.path] = o.merged, o.clash
		return
	}
	in := func(path string) bool { return path == o.path || o.whole && strings.HasPrefix(path, o.path+"/") }
	for path := range m.byPath[i] {
		if in(path) && (how == Ours || how == Skip) {
			lost[path] = true
		}
	}
	for path := range m.owner {
		if in(path) && (how == Theirs || how == Skip) {
			delete(m.owner, path)
			delete(m.texts, path)
		}
	}
}

// compare says how the changes of two branches at one path differ; nil: they
// are one change, or the one that is taken already says all.
func (m *merging) compare(path string, a, b int) (*overlap, error) {
	x, y := m.byPath[a][path], m.byPath[b][path]
	same, err := m.same(a, b, x, y)
	if err != nil || same {
		return nil, err
	}
	o := &overlap{path: path, first: a}
	c, d := x.change, y.change
	if c.Link == nil && d.Link == nil && c.Layer != nil && d.Layer != nil && c.Layer.IsRegular() && d.Layer.IsRegular() && (c.Kind == changes.Modified || c.Kind == changes.Added) && c.Kind == d.Kind {
		o.reason = fmt.Sprintf("%s and %s both changed it", m.all[a].b.Name, m.all[b].b.Name)
		return o, m.mergeTexts(o, x, y, a, b)
	}
	switch {
	case c.Kind == changes.Touched:
		m.owner[path] = b // the other says more
		return nil, nil
	case d.Kind == changes.Touched:
		return nil, nil
	case c.Layer != nil && d.Layer != nil && c.Layer.IsDir() && d.Layer.IsDir() && c.Kind != changes.Metadata && d.Kind != changes.Metadata:
		return nil, nil // what is in it counts
	}
	o.reason = fmt.Sprintf("%s in %s, %s in %s", c.Kind, m.all[a].b.Name, d.Kind, m.all[b].b.Name)
	o.whole = !(isDirChange(c) && isDirChange(d))
	return o, nil
}

// isDirChange says that a directory stays one.
func isDirChange(c *changes.Change) bool { return c.Layer != nil && c.Layer.IsDir() }

// mergeTexts merges two files, if they are texts.
func (m *merging) mergeTexts(o *overlap, x, y place, a, b int) error {
	if x.change.Layer.Size > branch.MaxAncestor || y.change.Layer.Size > branch.MaxAncestor {
		return nil
	}
	mine, merged := m.texts[o.path]
	var err error
	if !merged {
		if mine, err = m.all[a].b.Read(x.root, x.path, x.change.Layer, branch.MaxAncestor); err != nil {
			return err
		}
	}
	theirs, err := m.all[b].b.Read(y.root, y.path, y.change.Layer, branch.MaxAncestor)
	if err != nil {
		return err
	}
	ancestor, err := m.ancestor(x, a, b)
	if err != nil {
		return err
	}
	if !isText(mine) || !isText(theirs) || !isText(ancestor) {
		return nil
	}
	o.text = true
	o.merged, o.clash, err = mergeText(m.ctx, m.dir, mine, ancestor, theirs, [3]string{m.all[a].b.Name, "base", m.all[b].b.Name})
	return err
}

// ancestor is what both branches come from: what was kept with one of them, or
// else the base's file as it is now.
func (m *merging) ancestor(at place, branches ...int) ([]byte, error) {
	if at.change.Base == nil {
		return nil, nil // both made it
	}
	for _, i := range branches {
		if text, ok, err := m.all[i].b.Ancestor(at.root, at.path); ok || err != nil {
			return text, err
		}
	}
	if at.change.Base.Size > branch.MaxAncestor {
		return []byte{0}, nil // no text to be merged
	}
	r := &resolver{kept: m.all[branches[0]]}
	return r.baseText(at)
}

// torn lists where one branch has no directory, and the other made something
// below.
func (m *merging) torn(i int) []overlap {
	var open []overlap
	for _, path := range sortedPaths(m.byPath[i]) {
		if m.byPath[i][path].change.Base != nil {
			continue // then both have a change at it
		}
		if up, ok := noDir(path, func(up string) *changes.Change {
			if k, ok := m.owner[up]; ok {
				return m.byPath[k][up].change
			}
			return nil
		}); ok {
			k := m.owner[up]
			open = append(open, overlap{path: up, first: k, whole: true, reason: fmt.Sprintf("%s in %s, and %s made something in it", m.byPath[k][up].change.Kind, m.all[k].b.Name, m.all[i].b.Name)})
		}
	}
	for _, path := range sortedPaths(m.owner) {
		k := m.owner[path]
		if m.byPath[k][path].change.Base != nil {
			continue
		}
		if up, ok := noDir(path, func(up string) *changes.Change { return m.byPath[i][up].change }); ok {
			open = append(open, overlap{path: up, first: k, whole: true, reason: fmt.Sprintf("%s in %s, and %s made something in it", m.byPath[i][up].change.Kind, m.all[i].b.Name, m.all[k].b.Name)})
		}
	}
	return open
}

// noDir finds, above a path, a change that leaves no directory there.
func noDir(path string, at func(string) *changes.Change) (string, bool) {
	for up := filepath.Dir(path); up != "/"; up = filepath.Dir(up) {
		if c := at(up); c != nil && !isDirChange(c) {
			return up, true
		}
	}
	return "", false
}

// outermost leaves out what is decided with something above, and repetitions.
func outermost(list []overlap) []overlap {
	slices.SortStableFunc(list, func(a, b overlap) int { return cmp.Or(strings.Compare(a.path, b.path), boolOrder(b.whole, a.whole)) })
	whole := map[string]bool{}
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(o overlap) bool {
		if seen[o.path] {
			return true
		}
		seen[o.path] = true
		for up := filepath.Dir(o.path); up != "/"; up = filepath.Dir(up) {
			if whole[up] {
				return true
			}
		}
		whole[o.path] = o.whole
		return false
	})
}

func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// decide decides about what overlaps, by rule or by asking.
func (m *merging) decide(i int, open []overlap) ([]How, error) {
	hows := make([]How, len(open))
	var ask []Dispute
	var at []int
	for k := range open {
		for n := range m.rules {
			if m.rules[n].match(open[k].path) {
				hows[k] = m.o.Decisions[n].How
				break
			}
		}
		if hows[k] == Undecided {
			ask, at = append(ask, m.dispute(&open[k], i)), append(at, k)
		}
	}
	if len(ask) > 0 && m.o.Resolver != nil && m.ui.CanAsk() {
		given, err := m.o.Resolver.Resolve(m.all[i].res, ask)
		if err != nil {
			return nil, err
		}
		for n, how := range given {
			hows[at[n]] = how
		}
	}
	var still []commit.Conflict
	for k := range open {
		d := m.dispute(&open[k], i)
		if hows[k] == Merge && d.NoMerge != "" {
			d.Reason += "; it cannot be merged: " + d.NoMerge
			hows[k] = Undecided
		}
		if hows[k] == Undecided {
			still = append(still, d.Conflict)
		}
	}
	if len(still) > 0 {
		return nil, withHint(&OverlapError{still}, "decide with --ours (the branch named first), --theirs, --merge or --skip GLOB, or on a terminal; compare: try changes %s --against %s",
			m.all[0].b.Name, m.all[i].b.Name)
	}
	return hows, nil
}

// OverlapError says where branches cannot be merged.
type OverlapError struct{ Conflicts []commit.Conflict }

func (e *OverlapError) Error() string {
	return (&commit.ConflictError{Conflicts: e.Conflicts}).Error()
}

func (m *merging) dispute(o *overlap, i int) Dispute {
	d := Dispute{Conflict: commit.Conflict{Root: "/", Path: strings.TrimPrefix(o.path, "/"), Reason: o.reason}, Change: m.byPath[i][o.path].change}
	for r := range m.all[i].b.Roots {
		root := m.all[i].b.Roots[r].Path
		if rest, ok := strings.CutPrefix(o.path, root+"/"); ok || o.path == root {
			d.Root, d.Path = root, rest
		}
	}
	if !o.text {
		d.NoMerge = "not two texts"
	}
	return d
}
