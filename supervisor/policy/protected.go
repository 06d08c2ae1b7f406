package policy

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
)

// Base is what the rules have to know of the base, and of the branch beside it.
// Paths are absolute.
type Base interface {
	// Readlink returns where a symbolic link of the base leads to; "" if there
	// is none.
	Readlink(path string) string
	// Links lists the symbolic links of the base below dir, so many levels
	// deep, relative to it. It may stop at some thousand entries.
	Links(dir string, depth int) []string
	// Lookup says whether the base has anything at path, behind symbolic links
	// too, and whether that is a program that the caller could run.
	Lookup(path string) (there, runs bool)
	// Contents returns a changed file as it is in the base and in the branch,
	// nil where it is not there; ErrUnknown if nobody knows.
	Contents(path string) (before, after []byte, err error)
}

// ErrUnknown says that there is no branch to look into.
var ErrUnknown = errors.New("there is no branch to look into")

// protected is what a stack's strict rules are about, as the file systems show
// it.
type protected struct {
	// guards are the places above, or on the way to, what is protected: who
	// puts something else there changes all that is seen through them.
	guards map[string]guard
	// aliases are the places that are seen at a protected one.
	aliases []alias
	// anywhere are the strict rules' globs of directories that may be anywhere
	// (**/.git for **/.git/hooks/**); used as guards, too.
	anywhere []guarding
}

// guard is a strict rule by a place above what it protects.
type guard struct {
	rule *Rule
	glob string
}

type guarding struct {
	guard
	dir glob
}

// alias: what lies at or below real is seen at or below place as well.
type alias struct{ real, place string }

// spot is a place that strict rules protect.
type spot struct {
	by    guard // the strictest of them
	alone bool  // nothing below the place matters
	depth int   // so many levels of symbolic links below it count
}

// protect finds out what the strict rules of a stack protect, in the base and
// in what the branch would make of it. That is the base as it is now, not at
// the fork: it is what a commit changes, and what is read afterwards.
func (e *evaluation) protect(s *stack) *protected {
	p := &protected{guards: map[string]guard{}}
	spots := map[string]*spot{}
	var order []string
	for _, l := range s.layers {
		for _, r := range l.rules {
			if r.Action < Ask || r.Ignored {
				continue
			}
			for i := range r.globs {
				g, by := &r.globs[i], guard{r, r.globs[i].text}
				for _, place := range g.places(e.in.Roots) {
					old := spots[place]
					if old == nil {
						old = &spot{by: by, alone: true}
						spots[place] = old
						order = append(order, place)
					}
					if r.Action > old.by.rule.Action {
						old.by = by
					}
					old.alone = old.alone && g.how == exact
					if r.only != shadows { // a link there is not looked through
						old.depth = max(old.depth, g.depth(place, s.facts.Home))
					}
				}
				for _, dir := range g.above() {
					p.anywhere = append(p.anywhere, guarding{by, dir})
				}
			}
		}
	}
	for _, place := range order {
		e.protectSpot(s, p, place, spots[place])
	}
	return p
}

func (e *evaluation) protectSpot(s *stack, p *protected, place string, at *spot) {
	p.guard(s, at.by, place, at.alone)
	if e.in.Base == nil {
		return
	}
	views := []func(string) string{e.before}
	if e.relinks() {
		views = append(views, e.after)
	}
	for _, view := range views {
		real := e.follow(s, p, view, place, place, at)
		if at.depth == 0 {
			continue
		}
		for _, link := range e.in.Base.Links(real, at.depth) {
			e.follow(s, p, view, join(real, link), join(place, link), at)
		}
	}
}

// follow resolves the path, at which what is protected as name lies, guards all
// that lies on the way, and returns where it leads to.
func (e *evaluation) follow(s *stack, p *protected, view func(string) string, path, name string, at *spot) string {
	real, via := resolve(view, s.facts.Home, path)
	for _, link := range via {
		p.guard(s, at.by, link, false)
	}
	if real != name {
		p.guard(s, at.by, real, at.alone)
		if a := (alias{real, name}); !slices.Contains(p.aliases, a) {
			p.aliases = append(p.aliases, a)
		}
	}
	return real
}

// guard notes that by protects what is seen at or below place, or at it alone.
func (p *protected) guard(s *stack, by guard, place string, alone bool) {
	if alone {
		place = filepath.Dir(place) // the rule itself sees what happens to it
	}
	for dir := place; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if under(s.facts.Home, dir) {
			return // a root, or above one: no change of a branch
		}
		if old, ok := p.guards[dir]; !ok || old.rule.Action < by.rule.Action {
			p.guards[dir] = by
		}
	}
}

// maxLinks is how many symbolic links one path may go through (path_resolution(7)).
const maxLinks = 40

// resolve follows the symbolic links of a view on the way to path, and says
// through which it went. What is above home has none. A circle ends where it
// is noticed.
func resolve(view func(string) string, home, path string) (real string, via []string) {
	real, rest := "/", path
	if home != "" && home != "/" && under(path, home) {
		real, rest = home, path[len(home):]
	}
	for rest != "" {
		var segment string
		segment, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		switch segment {
		case "", ".":
			continue
		case "..":
			real = filepath.Dir(real)
			continue
		}
		next := join(real, segment)
		target := view(next)
		if target == "" || len(via) == maxLinks {
			real = next
			continue
		}
		via = append(via, next)
		if target[0] == '/' {
			real = "/"
		}
		rest = target + "/" + rest
	}
	return real, via
}

// before looks into the base.
func (e *evaluation) before(path string) string {
	target, known := e.linked[path]
	if !known {
		if e.linked == nil {
			e.linked = map[string]string{}
		}
		target = e.in.Base.Readlink(path)
		e.linked[path] = target
	}
	return target
}

// after looks into the branch.
func (e *evaluation) after(path string) string {
	i, ok := e.find(path)
	if !ok {
		return e.before(path)
	}
	if c := &e.in.Changes[i]; c.Type == "symlink" && c.Kind != "deleted" {
		return c.Target
	}
	return ""
}

// relinks says whether the branch changes where anything leads to.
func (e *evaluation) relinks() bool {
	if e.relinked == 0 {
		e.relinked = 1
		if slices.ContainsFunc(e.in.Changes, func(c Change) bool { return c.retargets() }) {
			e.relinked = 2
		}
	}
	return e.relinked == 2
}

// retargets says whether the change can make something else appear below its
// path, or nothing: what a plan does not list entry by entry.
func (c *Change) retargets() bool {
	return c.Kind != "touched" && (c.Type == "symlink" || c.Kind == "replaced")
}

// guarded is what guards the path of a change that retargets it.
func (p *protected) guarded(e *evaluation, n *name) (guard, bool) {
	best, ok := p.guards[n.path]
	for i := range p.anywhere {
		g := &p.anywhere[i]
		if (!ok || best.rule.Action < g.rule.Action) && g.dir.match(n.path, n.offsets) && !e.isFresh(filepath.Dir(n.path)) {
			best, ok = g.guard, true
		}
	}
	return best, ok
}

// aliasesOf calls f with each other name under which a path is protected.
func (p *protected) aliasesOf(path string, f func(string)) {
	for _, a := range p.aliases {
		if under(path, a.real) {
			f(join(a.place, strings.TrimPrefix(path[len(a.real):], "/")))
		}
	}
}
