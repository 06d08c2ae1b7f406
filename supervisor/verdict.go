package supervisor

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/commit"
	"try/fs/sys"
	"try/supervisor/policy"
)

// verdict is what the policy says of a plan.
type verdict struct {
	policy  *policy.Policy
	input   policy.Input
	outcome *policy.Outcome
	at      []position // of each change of the input
	index   map[string]int
}

// position is a change's place in a plan.
type position struct{ root, change int }

// PolicyError says that the policy refuses a commit.
type PolicyError struct {
	Denied []string // one line each
	Allow  string   // flags that would answer, "" if nothing does
}

func (e *PolicyError) Error() string {
	if len(e.Denied) == 1 {
		return "the policy refuses " + e.Denied[0]
	}
	return fmt.Sprintf("the policy refuses %d changes: %s; …", len(e.Denied), e.Denied[0])
}

// Hint is the line to paste.
func (e *PolicyError) Hint() string {
	if e.Allow == "" {
		return ""
	}
	return "to allow it: try commit " + e.Allow
}

// judge asks the policy about each change, takes what is to be dropped out of
// the plan, and fills in what the user is told. survey may be nil: it is made.
func (c *committer) judge(p *policy.Policy, survey *policy.Survey, allow []string) error {
	list, err := policy.NewAllowList(allow, c.home.user)
	if err != nil {
		return err
	}
	v := &verdict{policy: p, index: map[string]int{}}
	v.input.Roots = rootNames(c.b)
	for i := range c.res.Plan.Roots {
		r := &c.res.Plan.Roots[i]
		paths := fullPaths(r)
		for k := range r.Changes {
			ch := &r.Changes[k]
			path := paths[k]
			in := policy.Change{Path: path, Kind: ch.Kind.String(), Type: ch.Type.String(), Target: ch.Target}
			in.Exec = runnable(ch)
			if ch.Layer != nil {
				if ch.Kind != changes.Metadata && ch.Kind != changes.Touched && ch.Type == changes.File {
					in.Size = ch.Layer.Size
				}
			}
			v.index[path] = len(v.at)
			v.at = append(v.at, position{i, k})
			v.input.Changes = append(v.input.Changes, in)
		}
	}
	v.input.Allow = list
	v.input.Base, v.input.Survey = &beside{c: c, v: v}, survey
	v.outcome = p.Evaluate(v.input)
	c.verdict = v
	c.describe()
	c.without(v.outcome.Drops)
	return nil
}

// runnable says whether a change is about a program: what the branch makes it,
// or what it deletes.
func runnable(ch *changes.Change) bool {
	stat := ch.Layer
	if stat == nil {
		stat = ch.Base
	}
	return ch.Type == changes.File && stat != nil && stat.Mode&0o111 != 0
}

// fullPaths joins the paths of all changes. Directories stand before what is
// below them: backwards, theirs are the beginnings of others, so that a tree of
// great depth does not take the square of it.
func fullPaths(r *changes.RootPlan) []string {
	paths := make([]string, len(r.Changes))
	known := map[*sys.Node]string{}
	for k := len(r.Changes) - 1; k >= 0; k-- {
		node := r.Changes[k].Node
		path, ok := known[node]
		if !ok {
			path = filepath.Join(r.Root.Path, node.Path())
			up := path
			for n := node; n != nil && n.Parent != nil; n = n.Parent {
				up = up[:len(up)-len(n.Name)-1]
				if known[n.Parent] != "" {
					break
				}
				known[n.Parent] = up
			}
		}
		delete(known, node)
		paths[k] = path
	}
	return paths
}

// describe says in words what the policy found.
func (c *committer) describe() {
	v, o := c.verdict, c.verdict.outcome
	line := func(i int) string {
		return c.home.shortened(v.input.Changes[i].Path) + ": " + o.Verdicts[i].Why()
	}
	for _, i := range o.Denied {
		c.res.Denied = append(c.res.Denied, line(i))
		c.mark(i, "the policy forbids it")
	}
	for _, i := range o.Asks {
		c.res.Asks = append(c.res.Asks, line(i))
		c.mark(i, "the policy asks about it")
	}
	for _, i := range o.Lifted {
		c.mark(i, "the policy would have asked")
	}
	for i := range v.at {
		if c.capable(i) {
			c.mark(i, "capabilities")
		}
	}
	for _, i := range o.Drops {
		c.res.Dropped = append(c.res.Dropped, line(i))
	}
	for _, x := range o.Exceeded {
		c.res.Denied = append(c.res.Denied, fmt.Sprintf("%s is %d, the limit %d (%s)", x.Limit, x.Got, x.Max, x.At))
	}
}

// mark notes what must not be overlooked of a change.
func (c *committer) mark(i int, note string) {
	path := c.verdict.input.Changes[i].Path
	if old := c.res.Marked[path]; old != "" {
		note = old + ", " + note
	}
	if c.res.Marked == nil {
		c.res.Marked = map[string]string{}
	}
	c.res.Marked[path] = note
}

// capable says whether a program comes with capabilities (capabilities(7)).
func (c *committer) capable(i int) bool {
	at := c.verdict.at[i]
	ch := &c.res.Plan.Roots[at.root].Changes[at.change]
	if !c.verdict.input.Changes[i].Exec || ch.Layer == nil {
		return false
	}
	_, err := c.res.Plan.Roots[at.root].Root.Layer.Xattr(ch.Path(), "security.capability")
	return err == nil
}

// refusal is why the policy forbids the commit, nil if it does not.
func (c *committer) refusal() error {
	denied := append([]string(nil), c.res.Denied...)
	if !c.answered {
		denied = append(denied, c.res.Asks...)
	}
	if len(denied) == 0 {
		return nil
	}
	e := &PolicyError{Denied: denied}
	if len(c.verdict.outcome.Exceeded) == 0 {
		e.Allow = c.verdict.policy.AllowFlags(c.verdict.input, c.verdict.outcome)
	}
	return e
}

// yield takes out of the plan what drifted and is of no weight: the base stays
// there and ours is left out. A database and its companions go or stay
// together (B11). It returns the conflicts that are left.
func (c *committer) yield(conflicts []commit.Conflict) []commit.Conflict {
	if c.verdict == nil {
		return conflicts
	}
	v, o := c.verdict, c.verdict.outcome
	yields := map[int]bool{}
	for _, i := range o.Yields {
		yields[i] = true
	}
	out := map[int]bool{}
	families := map[string]bool{} // of which a member drifted
	var within []int
	left := conflicts[:0:0]
	for _, f := range conflicts {
		path := filepath.Join(f.Root, f.Path)
		i, ok := v.index[path]
		if !ok || !yields[i] {
			left = append(left, f)
			continue
		}
		if c.change(i).Within { // goes along with the directory that is removed or replaced
			within = append(within, i)
			continue
		}
		out[i] = true
		families[o.Verdicts[i].Family] = true
	}
	for _, i := range o.Yields {
		if v.at[i].root < 0 {
			continue // left out already
		}
		if family := c.family(i); family != "" && (families[family] || c.strangers(family)) {
			out[i] = true
		}
	}
	// If that directory stays, so does what somebody else put into it.
	for _, i := range within {
		for dir := filepath.Dir(v.input.Changes[i].Path); dir != "/"; dir = filepath.Dir(dir) {
			if above, ok := v.index[dir]; ok && out[above] {
				out[i] = true
			}
		}
	}
	left = append(left, c.torn(left)...)
	list := slices.Sorted(maps.Keys(out))
	for _, i := range list {
		c.res.Dropped = append(c.res.Dropped, c.home.shortened(v.input.Changes[i].Path)+": changed in the base meanwhile, which stays")
	}
	c.without(list)
	return left
}

// family is the database that a change belongs to; what was in the base may be
// one of which only the base has the journals. "" if there is none.
func (c *committer) family(i int) string {
	ch := &c.verdict.input.Changes[i]
	if family := c.verdict.outcome.Verdicts[i].Family; family != "" || ch.Type != "file" || ch.Kind == "added" {
		return family
	}
	return ch.Path
}

// torn finds databases that do not yield and whose journals have changed in the
// base: with ours beside them they could not be read, so they are conflicts,
// those that are known aside.
func (c *committer) torn(known []commit.Conflict) []commit.Conflict {
	var list []commit.Conflict
	for i := range c.verdict.at {
		at, ch := c.verdict.at[i], &c.verdict.input.Changes[i]
		if at.root < 0 || ch.Type != "file" || ch.Kind != "modified" || c.verdict.outcome.Verdicts[i].Action == policy.Yield {
			continue
		}
		if base := c.change(i).Base; base == nil || !pagesOf(base.Size) || !c.strangers(ch.Path) || !isDatabase(ch.Path) {
			continue
		}
		f := commit.Conflict{Root: c.res.Plan.Roots[at.root].Root.Path, Path: c.change(i).Path(), Reason: "a database whose journal or write-ahead log has changed in the base"}
		if !slices.ContainsFunc(known, func(k commit.Conflict) bool { return k.Root == f.Root && k.Path == f.Path }) {
			list = append(list, f)
		}
	}
	return list
}

// pagesOf says whether a database can be of that size: whole pages, of 512 bytes
// or a multiple (Database File Format, 1.2). It spares most files the looks.
func pagesOf(size int64) bool { return size >= 512 && size%512 == 0 }

// isDatabase says whether a file of the base is one of SQLite's (Database File
// Format, 1.3).
func isDatabase(path string) bool {
	const magic = "SQLite format 3\x00"
	head, err := headOf(path, len(magic))
	return err == nil && string(head) == magic
}

// strangers says that a member of a family that the branch did not change has
// been changed in the base since the fork.
func (c *committer) strangers(family string) bool {
	for _, member := range policy.Members(family) {
		if _, ours := c.verdict.index[member]; ours {
			continue
		}
		var st unix.Stat_t
		if unix.Lstat(member, &st) != nil {
			continue
		}
		for i := range c.roots {
			if strings.HasPrefix(member, c.roots[i].Path+"/") && sys.Time(st.Ctim.Nano()) >= c.roots[i].Stamp {
				return true
			}
		}
	}
	return false
}

func (c *committer) change(i int) *changes.Change {
	at := c.verdict.at[i]
	return &c.res.Plan.Roots[at.root].Changes[at.change]
}

// without takes changes, by their index in the verdict, out of the plan.
func (c *committer) without(list []int) {
	if len(list) == 0 {
		return
	}
	gone := make(map[*changes.Change]bool, len(list))
	for _, i := range list {
		gone[c.change(i)] = true
	}
	c.res.Plan = c.res.Plan.Without(func(ch *changes.Change) bool { return gone[ch] })
	// The positions have moved.
	for i := range c.verdict.at {
		c.verdict.at[i] = position{-1, -1}
	}
	for r := range c.res.Plan.Roots {
		root := &c.res.Plan.Roots[r]
		for k := range root.Changes {
			path := filepath.Join(root.Root.Path, root.Changes[k].Path())
			c.verdict.at[c.verdict.index[path]] = position{r, k}
		}
	}
}
