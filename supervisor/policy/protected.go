package policy

import (
	"errors"
	"maps"
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

// Survey is what a policy's strict rules protect, as the links of the base have
// it (H21). It takes some hundred system calls and never changes, so it is made
// while the command runs; what somebody else links meanwhile counts next time.
type Survey struct {
	base   Base
	linked map[string]string // links that were looked for: path → target, or ""
	stacks []*protected
}

// protected is what a stack's strict rules are about, as the file systems show
// it.
type protected struct {
	home  string
	spots []*spot
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
	place string
	by    guard    // the strictest of them
	alone bool     // nothing below the place matters
	depth int      // so many levels of symbolic links below it count
	links []string // those of the base, relative to the place
}

// Survey finds out what the policy protects below the roots of a branch.
func (p *Policy) Survey(roots []string, base Base) *Survey {
	p.Prepare()
	v := &Survey{base: base, linked: map[string]string{}}
	for _, s := range p.stacks {
		at := s.protected(roots)
		v.stacks = append(v.stacks, at)
		if base == nil {
			continue
		}
		for _, sp := range at.spots {
			real := at.follow(v.before, sp, sp.place, sp.place)
			if sp.depth > 0 {
				sp.links = base.Links(real, sp.depth)
			}
			at.followLinks(v.before, sp, real)
		}
	}
	return v
}

// before looks into the base.
func (v *Survey) before(path string) string {
	target, known := v.linked[path]
	if !known {
		target = v.base.Readlink(path)
		v.linked[path] = target
	}
	return target
}

// protected lists what the strict rules of a stack protect, by their words.
func (s *stack) protected(roots []string) *protected {
	p := &protected{home: s.facts.Home, guards: map[string]guard{}}
	spots := map[string]*spot{}
	for _, l := range s.layers {
		for _, r := range l.rules {
			if r.Action < Ask || r.Ignored {
				continue
			}
			for i := range r.globs {
				g, by := &r.globs[i], guard{r, r.globs[i].text}
				for _, place := range g.places(roots) {
					at := spots[place]
					if at == nil {
						at = &spot{place: place, by: by, alone: true}
						spots[place] = at
						p.spots = append(p.spots, at)
					}
					if r.Action > at.by.rule.Action {
						at.by = by
					}
					at.alone = at.alone && g.how == exact
					if r.only != shadows { // a link there is not looked through
						at.depth = max(at.depth, g.depth(place, s.facts.Home))
					}
				}
				for _, dir := range g.above() {
					p.anywhere = append(p.anywhere, guarding{by, dir})
				}
			}
		}
	}
	for _, at := range p.spots {
		p.guard(at.by, at.place, at.alone)
	}
	return p
}

// protect is what a stack's rules protect in the base and in what the branch
// makes of it.
func (e *evaluation) protect(at *protected) *protected {
	if e.in.Base == nil || !slices.ContainsFunc(e.in.Changes, func(c Change) bool { return c.retargets() }) {
		return at
	}
	both := *at
	both.guards, both.aliases = maps.Clone(at.guards), slices.Clone(at.aliases)
	for _, sp := range at.spots {
		both.followLinks(e.after, sp, both.follow(e.after, sp, sp.place, sp.place))
	}
	return &both
}

// after looks into the branch.
func (e *evaluation) after(path string) string {
	if i, ok := e.find(path); ok {
		if c := &e.in.Changes[i]; c.Type == "symlink" && c.Kind != "deleted" {
			return c.Target
		}
		return ""
	}
	if target, known := e.survey.linked[path]; known {
		return target
	}
	return e.in.Base.Readlink(path)
}

// follow resolves the path, at which what is protected as name lies, guards all
// that lies on the way, and returns where it leads to.
func (p *protected) follow(view func(string) string, at *spot, path, name string) string {
	real, via := resolve(view, p.home, path)
	for _, link := range via {
		p.guard(at.by, link, false)
	}
	if real != name {
		p.guard(at.by, real, at.alone)
		if a := (alias{real, name}); !slices.Contains(p.aliases, a) {
			p.aliases = append(p.aliases, a)
		}
	}
	return real
}

// followLinks follows the links of the base below a place, which lies at real.
func (p *protected) followLinks(view func(string) string, at *spot, real string) {
	for _, link := range at.links {
		p.follow(view, at, join(real, link), join(at.place, link))
	}
}

// guard notes that by protects what is seen at or below place, or at it alone.
func (p *protected) guard(by guard, place string, alone bool) {
	if alone {
		place = filepath.Dir(place) // the rule itself sees what happens to it
	}
	for dir := place; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if under(p.home, dir) {
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
