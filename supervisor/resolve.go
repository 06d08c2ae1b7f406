package supervisor

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/branch"
	"try/fs/changes"
	"try/fs/commit"
	"try/fs/sys"
	"try/supervisor/policy"
)

// How is what becomes of a path at which a branch and the base have both
// changed. Ours and theirs are git's when it merges a branch.
type How uint8

const (
	Undecided How = iota
	Ours          // the base stays, the branch's change is dropped
	Theirs        // the branch's change is committed
	Merge         // a text with the changes of both is committed
	Skip          // it is not committed now, and stays in the branch
)

var hows = [...]string{"undecided", "ours", "theirs", "merge", "skip"}

func (h How) String() string { return hows[h] }

// Decision decides about the conflicts that a glob names.
type Decision struct {
	How  How
	Glob string
}

// Resolved is a conflict that was decided.
type Resolved struct {
	Path string // absolute
	How  How
}

// Resolver is who decides about the conflicts that no rule decides about.
type Resolver interface {
	// Resolve asks about conflicts, in the order of list. An answer that is
	// Undecided leaves all as it is.
	Resolve(r *Result, list []Dispute) ([]How, error)
	// Edit has the user edit the file at path, whose text it is.
	Edit(path string, text []byte) ([]byte, error)
}

// Dispute is a conflict with what is known of both sides.
type Dispute struct {
	commit.Conflict
	Change *changes.Change // nil: the path is above changes
	Then   *commit.Seen    // the base when the branch was kept; nil: unknown
	// NoMerge is why the two sides cannot be merged as texts; "" if they can.
	NoMerge string
	// TwoWay: nobody knows what the base held at the fork, so that a merge can
	// only set both sides beside one another.
	TwoWay bool
}

// At is the absolute path.
func (d *Dispute) At() string { return filepath.Join(d.Root, d.Path) }

// MarkersError says that conflict markers are left in a branch.
type MarkersError struct {
	Branch string
	Paths  []string
}

func (e *MarkersError) Error() string {
	return fmt.Sprintf("both sides changed the same lines of %s; nothing is committed, the branch has them with conflict markers", strings.Join(e.Paths, ", "))
}

// Hint says how to go on.
func (e *MarkersError) Hint() string {
	return fmt.Sprintf("try commit %s --edit opens them in $EDITOR and then commits", e.Branch)
}

// unresolved is the reason of a conflict whose file has markers in the branch.
const unresolved = "has conflict markers in the branch"

// resolver decides about the conflicts of a kept branch before it is committed.
type resolver struct {
	*kept
	o       CommitOptions
	rules   []pathspec
	hows    []How
	within  func(*changes.Change, string) bool // what is to be committed at all
	decided map[string]How                     // by absolute path
	yields  map[string]bool
	byPath  map[string]place
	then    map[string]commit.Seen // of the base, before anything was decided
	merges  []place
}

// place is where a change is in the plan.
type place struct {
	root   int
	path   string
	change *changes.Change
}

// resolve decides. It returns what is not to be committed, by absolute path:
// Ours is dropped, Skip stays. Until all is decided nothing is written.
func (k *kept) resolve(ctx context.Context, o CommitOptions, within func(*changes.Change, string) bool) (map[string]How, error) {
	r := &resolver{kept: k, o: o, within: within, decided: map[string]How{}}
	dir, err := here()
	if err != nil {
		return nil, err
	}
	for _, rule := range o.Decisions {
		list, err := newPathspecs([]string{rule.Glob}, dir, k.home.user)
		if err != nil {
			return nil, err
		}
		r.rules, r.hows = append(r.rules, list...), append(r.hows, rule.How)
	}
	if err := r.look(); err != nil {
		return nil, err
	}
	for {
		open, err := r.open()
		if err != nil || len(open) == 0 {
			if err == nil {
				err = r.merge(ctx)
			}
			return r.left(), err
		}
		if err := r.decide(open); err != nil {
			return nil, err
		}
	}
}

// look prepares what does not change while it is being decided.
func (r *resolver) look() error {
	r.index()
	// What yields is left out without a word when it drifted.
	rules, err := r.policy()
	if err != nil {
		return err
	}
	plan := *r.res.Plan
	probe := &committer{home: r.home, b: r.b, res: &Result{Plan: &plan, Names: r.res.Names}, ui: r.ui}
	if err := probe.judge(rules, nil, r.o.Allow); err != nil {
		return err
	}
	r.yields = map[string]bool{}
	for _, list := range [][]int{probe.verdict.outcome.Yields, probe.verdict.outcome.Drops} {
		for _, i := range list {
			r.yields[probe.verdict.input.Changes[i].Path] = true
		}
	}
	return nil
}

// index finds changes, and what was seen of the base, by absolute path.
func (r *resolver) index() {
	r.byPath, r.then = map[string]place{}, map[string]commit.Seen{}
	for i := range r.res.Plan.Roots {
		p := &r.res.Plan.Roots[i]
		paths := fullPaths(p)
		for n := range p.Changes {
			r.byPath[filepath.Clean(paths[n])] = place{i, p.Changes[n].Path(), &p.Changes[n]}
		}
		for path, seen := range r.roots[i].Seen {
			r.then[filepath.Join(p.Root.Path, path)] = seen
		}
	}
}

// open lists the conflicts about which nothing is decided.
func (r *resolver) open() ([]Dispute, error) {
	conflicts, err := r.drift()
	if err != nil {
		return nil, err
	}
	var list []Dispute
	for _, c := range conflicts {
		d := Dispute{Conflict: c}
		at, known := r.byPath[d.At()]
		switch {
		case r.fate(d.At()) != Undecided, r.yields[d.At()]:
			continue
		case d.Reason == unresolved && !r.ruled(d.At()):
			continue // its file is to be edited
		case known && !r.within(at.change, d.At()), !known && d.Reason != readSince && !r.isAbove(d.At()):
			continue
		}
		if r.describe(&d); r.spared(&d, nil, nil) {
			continue
		}
		if d.NoMerge, d.TwoWay, err = r.mergeable(&d, at); err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

// ruled says that a rule decides about a path.
func (r *resolver) ruled(path string) bool {
	return slices.ContainsFunc(r.rules, func(s pathspec) bool { return s.match(path) })
}

// describe says what is known of the sides.
func (r *resolver) describe(d *Dispute) {
	d.Change = r.byPath[d.At()].change
	if was, ok := r.then[d.At()]; ok && was.Conflict == "" {
		d.Then = &was // else it had drifted before it was looked at
	}
}

// isAbove says that something that is to be committed lies below a path.
func (r *resolver) isAbove(path string) bool {
	for p, at := range r.byPath {
		if strings.HasPrefix(p, path+"/") && r.within(at.change, p) {
			return true
		}
	}
	return false
}

// fate is what was decided of a path, or of the nearest one above.
func (r *resolver) fate(path string) How {
	for {
		if how, ok := r.decided[path]; ok && (how == Ours || how == Skip) {
			return how
		}
		up := filepath.Dir(path)
		if up == path {
			return Undecided
		}
		path = up
	}
}

// decide decides about each of the conflicts, by rule or by asking.
func (r *resolver) decide(open []Dispute) error {
	answers := make([]How, len(open))
	missing := 0
	for i := range open {
		for k := range r.rules {
			if r.rules[k].match(open[i].At()) {
				answers[i] = r.hows[k]
				break
			}
		}
		if answers[i] == Undecided || answers[i] == Merge && open[i].NoMerge != "" {
			missing++
		}
	}
	if missing > 0 && r.o.Resolver != nil && r.ui.CanAsk() {
		var ask []Dispute
		var at []int
		for i := range open {
			if answers[i] == Undecided {
				ask, at = append(ask, open[i]), append(at, i)
			}
		}
		given, err := r.o.Resolver.Resolve(r.res, ask)
		if err != nil {
			return err
		}
		for i, how := range given {
			answers[at[i]] = how
		}
	}
	var still []commit.Conflict
	for i := range open {
		c := open[i].Conflict
		switch {
		case answers[i] == Merge && open[i].NoMerge != "":
			c.Reason += "; it cannot be merged: " + open[i].NoMerge
			still = append(still, c)
			continue
		case answers[i] == Undecided:
			if d := &open[i]; !r.spared(d, open, answers) {
				still = append(still, c)
			}
			continue
		}
		r.accept(&open[i], answers[i])
	}
	if len(still) > 0 {
		r.res.Conflicts, r.res.Disputes = still, open
		return r.undecided(&commit.ConflictError{Conflicts: still})
	}
	return nil
}

// spared says that a directory is not removed, since something in it stays: its
// own conflict is none then.
func (r *resolver) spared(d *Dispute, open []Dispute, answers []How) bool {
	if !isGoneDir(d.Change) {
		return false
	}
	stays := func(how How) bool { return how == Ours || how == Skip }
	for i := range open {
		if stays(answers[i]) && strings.HasPrefix(open[i].At(), d.At()+"/") {
			return true
		}
	}
	for path, how := range r.decided {
		if stays(how) && strings.HasPrefix(path, d.At()+"/") {
			return true
		}
	}
	return false
}

// undecided says how conflicts are decided about.
func (k *kept) undecided(err error) error {
	name := k.b.Name
	if k.of != nil {
		name = k.of.b.Name
	}
	return withHint(err, "look at it: try changes %s --diff; decide: try commit %s with --ours, --theirs, --merge or --skip GLOB, or on a terminal", name, name)
}

// accept notes a decision: what the base holds now was seen.
func (r *resolver) accept(d *Dispute, how How) {
	r.res.Resolved = append(r.res.Resolved, Resolved{d.At(), how})
	if how == Merge && d.Change != nil && d.Change.Kind == changes.Touched {
		how = Ours // both sides made the same change
	}
	r.decided[d.At()] = how
	if how == Ours || how == Skip {
		return
	}
	at, known := r.byPath[d.At()]
	i := slices.IndexFunc(r.roots, func(x commit.Root) bool { return x.Path == d.Root })
	now := commit.Seen{}
	if known {
		now = commit.See(at.change)
	} else if st := r.baseDir(i, d.Path); st != nil {
		now = commit.Seen{ID: st.Identity(), Place: true}
	} else if d.Reason != readSince {
		return // gone: there is nothing to be seen, and the conflict stays
	}
	if r.accepted == nil {
		r.accepted = map[string]map[string]commit.Seen{}
	}
	if r.accepted[d.Root] == nil {
		r.accepted[d.Root] = map[string]commit.Seen{}
	}
	r.accepted[d.Root][d.Path] = now
	r.roots[i].Seen[d.Path] = now
	if how == Merge && known {
		r.merges = append(r.merges, at)
	}
}

func (r *resolver) baseDir(i int, path string) *sys.Stat {
	dir, err := r.res.Plan.Roots[i].Root.Base.Sub(path)
	if err != nil {
		return nil
	}
	defer dir.Close()
	st, err := dir.Stat("")
	if err != nil {
		return nil
	}
	return &st
}

// left says of each change what is not to be committed.
func (r *resolver) left() map[string]How {
	left := map[string]How{}
	for path := range r.byPath {
		if how := r.fate(path); how != Undecided {
			left[path] = how
		}
	}
	// A directory that is removed or replaced goes as a whole or not at all.
	for _, path := range slices.Sorted(maps.Keys(left)) {
		for up := filepath.Dir(path); up != "/"; up = filepath.Dir(up) {
			at, ok := r.byPath[up]
			if !ok || !isGoneDir(at.change) {
				continue
			}
			if _, ok := left[up]; !ok {
				left[up] = left[path]
			}
		}
	}
	return left
}

// disputes says what is known of conflicts that nobody decided.
func (k *kept) disputes(conflicts []commit.Conflict) []Dispute {
	r := &resolver{kept: k}
	r.index()
	var list []Dispute
	for _, c := range conflicts {
		d := Dispute{Conflict: c}
		r.describe(&d)
		var err error
		if d.NoMerge, d.TwoWay, err = r.mergeable(&d, r.byPath[d.At()]); err != nil {
			d.NoMerge = err.Error()
		}
		list = append(list, d)
	}
	return list
}

// see lets the roots know what was decided.
func (c *committer) see(roots []commit.Root) {
	for i := range roots {
		for path, seen := range c.accepted[roots[i].Path] {
			roots[i].Seen[path] = seen
		}
	}
}

// policy is that of the branch's start and the user's now.
func (k *kept) policy() (*policy.Policy, error) {
	start, err := policy.Restore([]byte(k.b.Policy))
	if err != nil {
		return nil, err
	}
	places, err := k.home.places(k.b.Dir)
	if err != nil {
		places, err = k.home.places(k.home.user) // the directory is gone: its project's policy with it
	}
	if err != nil {
		return nil, err
	}
	places.Cwd = "" // the project's file counted at the start (H23)
	now, _, err := policy.Load(places)
	if err != nil {
		return nil, err
	}
	return policy.Join(start, now), nil
}

// keepAncestors keeps what the base held of the texts that the branch changed,
// where it is known not to have drifted.
func keepAncestors(b *branch.Branch, plan *changes.Plan, drifted []commit.Conflict) error {
	if err := b.ForgetAncestors(); err != nil {
		return err
	}
	type key struct{ root, path string }
	bad := map[key]bool{}
	for _, c := range drifted {
		bad[key{c.Root, c.Path}] = true
	}
	left := int64(-1)
	for i := range plan.Roots {
		p := &plan.Roots[i]
		for n := range p.Changes {
			c := &p.Changes[n]
			if c.Kind != changes.Modified || c.Type != changes.File || c.Base == nil || c.Base.Size > branch.MaxAncestor {
				continue
			}
			path := c.Path()
			if bad[key{p.Root.Path, path}] {
				continue
			}
			if err := keepAncestor(b, i, p.Root.Base, path, c.Base, &left); err != nil {
				return fmt.Errorf("keep what %s held: %w", filepath.Join(p.Root.Path, path), err)
			}
		}
	}
	return nil
}

// keepAncestor keeps one. A file that is no text, or another by now, or cannot
// be read, has none.
func keepAncestor(b *branch.Branch, root int, base *sys.Dir, path string, st *sys.Stat, left *int64) error {
	f, err := base.OpenFile(path, unix.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	head := make([]byte, 8000)
	n, _ := f.ReadAt(head, 0)
	if !isText(head[:n]) {
		return nil
	}
	return b.KeepAncestor(root, path, f, st, left)
}

func isText(b []byte) bool { return !slices.Contains(b, 0) }
