package policy

import (
	"path/filepath"
	"slices"
	"strings"
)

// Change is one change of a branch, as far as a policy looks at it.
type Change struct {
	Path   string // absolute, clean, without symlinks above its last segment
	Kind   string // added, modified, deleted, replaced, metadata, touched
	Type   string // in the branch: file, dir, symlink, fifo, device; of a deletion, in the base
	Exec   bool   // a file with any execute bit, in the branch; of a deletion, in the base
	Size   int64  // bytes that it brings
	Target string // of a symlink in the branch
}

// Input is what a policy is asked about.
type Input struct {
	Roots   []string // of the branch, and of those the nested ones that the user knows: the cwd
	Changes []Change // each path once
	Allow   *AllowList
	Base    Base    // nil: nothing is known but the changes
	Survey  *Survey // of these roots and this base; nil: it is made
}

// Exceeded is a limit that a branch goes beyond.
type Exceeded struct {
	Limit string // max_changes, max_bytes, max_deleted
	Got   int64
	Max   int64
	At    string
}

// Outcome is the verdict on a branch. The lists hold indexes of Changes, in
// their order.
type Outcome struct {
	Verdicts []Verdict
	Denied   []int
	Asks     []int
	Drops    []int
	Yields   []int
	Lifted   []int // --allow answered
	Exceeded []Exceeded
}

// Prepare makes what Evaluate would make when it is first called. It may run
// beside anything.
func (p *Policy) Prepare() {
	for _, s := range p.stacks {
		s.compile()
	}
}

// Evaluate gives each change its verdict.
//
// Drops are made whole: what lies below a dropped new or removed directory is
// dropped with it, and a directory that is removed only in part is not removed
// at all. Families share the stricter of drop and yield.
func (p *Policy) Evaluate(in Input) *Outcome {
	e := &evaluation{in: in, stacks: p.stacks, verdicts: make([]Verdict, len(in.Changes))}
	if len(in.Changes) > 0 {
		if e.survey = in.Survey; e.survey == nil {
			e.survey = p.Survey(in.Roots, in.Base)
		}
		for _, at := range e.survey.stacks {
			e.protected = append(e.protected, e.protect(at))
		}
	}
	for i := range in.Changes {
		e.verdicts[i] = e.verdict(&in.Changes[i])
	}
	e.families()
	e.wholeDrops()
	return e.outcome(p.Settings())
}

// evaluation is the state of one call.
type evaluation struct {
	in        Input
	stacks    []*stack
	survey    *Survey
	verdicts  []Verdict
	protected []*protected // for each stack

	// Made when first asked for.
	roots []string        // folded
	fresh map[string]bool // directories that the branch adds
	index map[string]int  // path → change
}

func (e *evaluation) verdict(c *Change) Verdict {
	n := e.named(c.Path)
	kind := kindOf(c.Kind)
	best := Verdict{Action: Allow}
	for i, s := range e.stacks {
		if v := e.stackVerdict(s, e.protected[i], c, kind, &n); v.Action > best.Action || best.Rule == nil {
			best = v
		}
	}
	return best
}

// stackVerdict is the strictest of what is said of the change under each of its
// names. What allows, yields or drops goes by the path that is changed alone.
func (e *evaluation) stackVerdict(s *stack, at *protected, c *Change, kind kinds, n *name) Verdict {
	best := e.layersVerdict(s, c, kind, n, n)
	at.aliasesOf(c.Path, func(path string) {
		other := e.named(path)
		if v := e.layersVerdict(s, c, kind, &other, n); v.Action >= Ask || v.Lifted {
			v.As = path
			best = e.stricter(best, v, c, n)
		}
	})
	if c.retargets() {
		if g, ok := at.guarded(e, n); ok {
			best = e.stricter(best, Verdict{Action: g.rule.Action, Rule: g.rule, Glob: g.glob}, c, n)
		}
	}
	return best
}

// layersVerdict is the strictest of what the layers say of the change under a
// name; real is its path.
func (e *evaluation) layersVerdict(s *stack, c *Change, kind kinds, n, real *name) Verdict {
	best := Verdict{Action: Allow}
	var builtIn Verdict // an ask that the user may lift
	for _, l := range s.layers {
		v := e.layerVerdict(l, c, kind, n)
		if l.source == BuiltIn && v.Action == Ask {
			builtIn = v
			continue
		}
		if l.source == User && v.Action != 0 && v.Action < Ask {
			builtIn = Verdict{}
		}
		best = e.stricter(best, v, c, real)
	}
	return e.stricter(best, builtIn, c, real)
}

// stricter returns the stricter of two verdicts, b as --allow leaves it.
func (e *evaluation) stricter(a, b Verdict, c *Change, n *name) Verdict {
	if b.Rule == nil {
		return a
	}
	if e.in.Allow.lifts(b, c.Path, n.offsets) {
		b.Action, b.Lifted = Allow, true
	}
	if a.Rule == nil || b.Action > a.Action || b.Action == a.Action && b.Lifted {
		return b
	}
	return a
}

// layerVerdict is the first rule of the layer that matches the change under a
// name, or a verdict without action.
func (e *evaluation) layerVerdict(l *layer, c *Change, kind kinds, n *name) Verdict {
	for _, r := range l.rules {
		if r.Ignored || r.kinds&kind == 0 || !r.mayMatch(n) {
			continue
		}
		for i := range r.globs {
			if !r.matches(i, n) {
				continue
			}
			if holds, detail := e.holds(r.only, c, n.path); holds {
				return Verdict{Action: r.Action, Rule: r, Glob: r.globs[i].text, Detail: detail}
			}
		}
	}
	return Verdict{}
}

// find returns the change at a path.
func (e *evaluation) find(path string) (int, bool) {
	if e.index == nil {
		e.index = make(map[string]int, len(e.in.Changes))
		for i := range e.in.Changes {
			e.index[e.in.Changes[i].Path] = i
		}
	}
	i, ok := e.index[path]
	return i, ok
}

// families gives the members of a family one verdict, as far as drop and yield
// go; what is asked or denied stops the commit for all.
func (e *evaluation) families() {
	for i := range e.in.Changes {
		db, companion := Family(e.in.Changes[i].Path)
		if !companion {
			continue
		}
		var members []int
		worst := e.verdicts[i]
		for _, m := range Members(db) {
			if j, ok := e.find(m); ok {
				members = append(members, j)
				if v := e.verdicts[j]; v.Action > worst.Action {
					worst = v
				}
			}
		}
		for _, j := range members {
			if worst.Action == Drop || worst.Action == Yield {
				e.verdicts[j] = worst
			}
			e.verdicts[j].Family = db
		}
	}
}

// wholeDrops extends drops to what cannot be committed without them.
func (e *evaluation) wholeDrops() {
	dropped := map[string]int{} // directory → the change whose verdict goes for all below
	for i, v := range e.verdicts {
		if v.Action != Drop {
			continue
		}
		c := &e.in.Changes[i]
		if c.Type == "dir" && c.Kind != "metadata" && c.Kind != "touched" {
			dropped[c.Path] = i
		}
		if c.Kind != "deleted" {
			continue
		}
		// A base entry that stays keeps the directories above it.
		for dir := filepath.Dir(c.Path); ; dir = filepath.Dir(dir) {
			j, ok := e.find(dir)
			if !ok || e.in.Changes[j].Kind != "deleted" && e.in.Changes[j].Kind != "replaced" {
				break
			}
			dropped[dir] = i
			e.drop(j, i)
		}
	}
	if len(dropped) == 0 {
		return
	}
	for j := range e.in.Changes {
		for dir := filepath.Dir(e.in.Changes[j].Path); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
			if i, ok := dropped[dir]; ok {
				e.drop(j, i)
				break
			}
		}
	}
}

// drop gives change j the verdict of change i, unless it is stricter.
func (e *evaluation) drop(j, i int) {
	if e.verdicts[j].Action < Drop {
		family := e.verdicts[j].Family
		e.verdicts[j] = e.verdicts[i]
		e.verdicts[j].Family = family
	}
}

func (e *evaluation) outcome(s Settings) *Outcome {
	o := &Outcome{Verdicts: e.verdicts}
	var changes, deletions, bytes int64
	for i, v := range e.verdicts {
		switch v.Action {
		case Allow:
			if v.Lifted {
				o.Lifted = append(o.Lifted, i)
			}
		case Yield:
			o.Yields = append(o.Yields, i)
		case Drop:
			o.Drops = append(o.Drops, i)
			continue // not part of the commit
		case Ask:
			o.Asks = append(o.Asks, i)
		case Deny:
			o.Denied = append(o.Denied, i)
		default:
			panic("unknown action " + v.Action.String())
		}
		changes++
		c := &e.in.Changes[i]
		bytes += c.Size
		if c.Kind == "deleted" {
			deletions++
		}
	}
	exceeded := func(name string, got int64, l Limit) {
		if l.Set && got > l.Max {
			o.Exceeded = append(o.Exceeded, Exceeded{name, got, l.Max, l.At})
		}
	}
	exceeded("max_changes", changes, s.MaxChanges)
	exceeded("max_bytes", bytes, s.MaxBytes)
	exceeded("max_deleted", deletions, s.MaxDeleted)
	return o
}

// appendOffsets appends, for each root that holds the path, where the part
// relative to it begins; the outermost root's first.
func appendOffsets(offsets []int, path string, roots []string) []int {
	for _, r := range roots {
		if !under(path, r) {
			continue
		}
		o := min(len(r)+1, len(path))
		if strings.HasSuffix(r, "/") {
			o = len(r)
		}
		i := 0
		for i < len(offsets) && offsets[i] < o {
			i++
		}
		if i == len(offsets) || offsets[i] != o {
			offsets = slices.Insert(offsets, i, o)
		}
	}
	return offsets
}
