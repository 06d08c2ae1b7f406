package policy

import (
	"path/filepath"
	"slices"
	"strings"
)

// Change is one change of a branch, as far as a policy looks at it.
type Change struct {
	Path string // absolute, clean, without symlinks above its last segment
	Kind string // added, modified, deleted, replaced, metadata, touched
	Type string // in the branch: file, dir, symlink, fifo, device; of a deletion, in the base
	Exec bool   // a file with any execute bit, in the branch
	Size int64  // bytes that it brings
}

// Input is what a policy is asked about.
type Input struct {
	Roots   []string // of the branch, and of those the nested ones that the user knows: the cwd
	Changes []Change // each path once
	Allow   *AllowList
	// SameIndex says whether a git index, there before and in the branch,
	// differs in stat data only (SameIndex tells from the contents). nil: no.
	SameIndex func(path string) bool
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
	e := &evaluation{in: in, verdicts: make([]Verdict, len(in.Changes))}
	p.Prepare()
	for _, s := range p.stacks {
		e.guards = append(e.guards, s.guards())
	}
	for i := range in.Changes {
		e.verdicts[i] = e.verdict(p, &in.Changes[i])
	}
	e.families()
	e.wholeDrops()
	return e.outcome(p.Settings())
}

// evaluation is the state of one call.
type evaluation struct {
	in       Input
	verdicts []Verdict
	guards   []map[string]guard // for each stack

	offsets []int           // of the change at hand
	fresh   map[string]bool // directories that the branch adds; made when first asked for
	index   map[string]int  // path → change; likewise
}

// guard is a strict rule by a directory above what it protects.
type guard struct {
	rule *Rule
	glob string
}

func (e *evaluation) verdict(p *Policy, c *Change) Verdict {
	e.offsets = appendOffsets(e.offsets[:0], c.Path, e.in.Roots)
	kind := kindOf(c.Kind)
	best := Verdict{Action: Allow}
	for i, s := range p.stacks {
		if v := e.stackVerdict(s, e.guards[i], c, kind); v.Action > best.Action || best.Rule == nil {
			best = v
		}
	}
	return best
}

// stackVerdict is the strictest of what the layers say.
func (e *evaluation) stackVerdict(s *stack, guards map[string]guard, c *Change, kind kinds) Verdict {
	best := Verdict{Action: Allow}
	var builtIn Verdict // an ask that the user may lift
	for _, l := range s.layers {
		v := e.layerVerdict(l, c, kind)
		if l.source == BuiltIn && v.Action == Ask {
			builtIn = v
			continue
		}
		if l.source == User && v.Action != 0 && v.Action < Ask {
			builtIn = Verdict{}
		}
		best = e.stricter(best, v, c)
	}
	best = e.stricter(best, builtIn, c)
	// A symlink in place of a directory changes everything below it.
	if c.Type == "symlink" && kind&touched == 0 {
		if g, ok := guards[c.Path]; ok {
			best = e.stricter(best, Verdict{Action: g.rule.Action, Rule: g.rule, Glob: g.glob}, c)
		}
	}
	return best
}

// stricter returns the stricter of two verdicts, b as --allow leaves it.
func (e *evaluation) stricter(a, b Verdict, c *Change) Verdict {
	if b.Rule == nil {
		return a
	}
	if e.in.Allow.lifts(b, c.Path, e.offsets) {
		b.Action, b.Lifted = Allow, true
	}
	if a.Rule == nil || b.Action > a.Action || b.Action == a.Action && b.Lifted {
		return b
	}
	return a
}

// layerVerdict is the first rule of the layer that matches, or a verdict
// without action.
func (e *evaluation) layerVerdict(l *layer, c *Change, kind kinds) Verdict {
	for _, r := range l.rules {
		if r.Ignored || r.kinds&kind == 0 {
			continue
		}
		for i := range r.globs {
			if r.globs[i].match(c.Path, e.offsets) && e.holds(r.only, c) {
				return Verdict{Action: r.Action, Rule: r, Glob: r.Paths[i]}
			}
		}
	}
	return Verdict{}
}

// holds checks what a built-in rule asks beyond its globs.
func (e *evaluation) holds(only condition, c *Change) bool {
	switch only {
	case always:
		return true
	case notBareDir:
		return c.Type != "dir" || c.Kind != "added"
	case oldDir:
		return !e.isFresh(filepath.Dir(c.Path))
	case hook:
		if c.Kind == "deleted" || c.Type == "dir" || strings.HasSuffix(c.Path, ".sample") || !c.Exec && c.Type != "symlink" {
			return false
		}
		return !e.isFresh(gitDir(c.Path))
	case sameIndex:
		return c.Kind == "modified" && c.Type == "file" && e.in.SameIndex != nil && e.in.SameIndex(c.Path)
	}
	panic("unknown condition of a built-in rule")
}

// isFresh says whether the branch makes the directory, or one that holds it.
func (e *evaluation) isFresh(dir string) bool {
	if e.fresh == nil {
		e.fresh = map[string]bool{}
		for i := range e.in.Changes {
			if c := &e.in.Changes[i]; c.Kind == "added" && c.Type == "dir" {
				e.fresh[c.Path] = true
			}
		}
	}
	for dir != "/" && dir != "." {
		if e.fresh[dir] {
			return true
		}
		dir = filepath.Dir(dir)
	}
	return false
}

// gitDir returns the repository that a path of it, at or below hooks, belongs
// to: of a/.git/modules/m/hooks/x that is a/.git/modules/m.
func gitDir(path string) string {
	from := max(strings.Index(path, ".git/"), 0)
	if i := strings.Index(path[from:], "/hooks"); i >= 0 {
		return path[:from+i]
	}
	return path
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

// guards maps each directory above what a strict absolute rule protects, up to
// the home directory, to that rule: ~/.config for ~/.config/try/**.
func (s *stack) guards() map[string]guard {
	m := map[string]guard{}
	for _, l := range s.layers {
		for _, r := range l.rules {
			if r.Action < Ask || r.Ignored {
				continue
			}
			for i := range r.globs {
				place := r.globs[i].place()
				if place == "" {
					continue
				}
				if r.globs[i].how == exact {
					place = filepath.Dir(place)
				}
				for dir := place; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
					if under(s.facts.Home, dir) {
						break // a root, or above one: no change of a branch
					}
					if old, ok := m[dir]; !ok || old.rule.Action < r.Action {
						m[dir] = guard{r, r.Paths[i]}
					}
				}
			}
		}
	}
	return m
}
