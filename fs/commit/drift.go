package commit

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/layer"
	"try/fs/sys"
)

// Clock is what tells whether the machine's clock was set back since the fork,
// so that times prove nothing. The zero Clock says nothing.
type Clock struct{ Fork, Now Moment }

// Moment is one reading of the clocks.
type Moment struct {
	Real, Boot sys.Time // CLOCK_REALTIME, CLOCK_BOOTTIME
	BootID     string   // /proc/sys/kernel/random/boot_id
}

// step back that is no noise of reading two clocks
const clockStep = sys.Time(10e6)

// SteppedBack says that the clock cannot be believed.
func (c Clock) SteppedBack() bool {
	if c.Fork.BootID != c.Now.BootID {
		return c.Now.Real < c.Fork.Real
	}
	return (c.Now.Real - c.Fork.Real) < (c.Now.Boot-c.Fork.Boot)-clockStep
}

// Altered is one path of a commit, as the home store keeps it for branches
// that were forked before.
type Altered struct {
	Path string       `json:"path"` // absolute
	Kind changes.Kind `json:"kind"`
	Dir  bool         `json:"dir,omitempty"`
}

// List is one commit since the fork.
type List struct {
	Number int64
	Branch string // for messages
	Paths  []Altered
}

// Paths lists what a commit of plan alters.
func Paths(plan *changes.Plan) []Altered {
	var all []Altered
	for i := range plan.Roots {
		r := &plan.Roots[i]
		for k := range r.Changes {
			c := &r.Changes[k]
			if c.Within {
				continue // known by what carries it
			}
			dir := c.Layer != nil && c.Layer.IsDir() || c.Base != nil && c.Base.IsDir()
			all = append(all, Altered{filepath.Join(r.Root.Path, c.Path()), c.Kind, dir})
		}
	}
	return all
}

// Drift says where the base is no longer what the branch was forked from, at
// the paths of plan and the directories above them. A root with Seen is
// compared with that; one without by the time of the fork.
func Drift(plan *changes.Plan, roots []Root, lists []List, clock Clock) ([]Conflict, error) {
	var found []Conflict
	theirs := indexed(lists)
	for i := range plan.Roots {
		p := &plan.Roots[i]
		for k := range roots {
			if roots[k].Path != p.Root.Path {
				continue
			}
			d := newDrift(p, &roots[k])
			d.stepped = clock.SteppedBack()
			err := d.run()
			d.close()
			if err != nil {
				return nil, fmt.Errorf("compare %s with the fork: %w", p.Root.Path, err)
			}
			found = append(found, d.found...)
			found = append(found, theirs.conflicts(p)...)
		}
	}
	return unique(found), nil
}

// unique keeps the first reason of each path.
func unique(all []Conflict) []Conflict {
	type key struct{ root, path string }
	seen := map[key]bool{}
	return slices.DeleteFunc(all, func(c Conflict) bool {
		k := key{c.Root, c.Path}
		was := seen[k]
		seen[k] = true
		return was
	})
}

type drift struct {
	plan    *changes.RootPlan
	root    *Root
	stepped bool
	above   map[string]string // directory → why it is not the fork's, "" if it is
	found   []Conflict

	inBase, inLayer, inView way
}

func newDrift(p *changes.RootPlan, r *Root) *drift {
	return &drift{
		plan: p, root: r, above: map[string]string{},
		inBase: way{top: p.Root.Base}, inLayer: way{top: p.Root.Layer},
	}
}

func (d *drift) close() {
	d.inBase.close()
	d.inLayer.close()
	if d.inView.top != nil {
		d.inView.close()
		d.inView.top.Close()
	}
}

func (d *drift) conflict(path, reason string) {
	d.found = append(d.found, Conflict{d.root.Path, path, reason})
}

func (d *drift) run() error {
	for i := range d.plan.Changes {
		c := &d.plan.Changes[i]
		if c.Within && !c.Unknown && d.root.Seen == nil {
			// Its path is joined only if it is needed: it may be a long one.
			if why, err := d.later("", c); err != nil || why != "" {
				if err != nil {
					return err
				}
				d.conflict(c.Path(), why)
			}
			continue
		}
		path := c.Path()
		if c.Unknown {
			d.conflict(path, "the base cannot be read here: "+errnoText(c.Err))
			continue
		}
		if !c.Within {
			bad, why, err := d.parents(path)
			if err != nil {
				return err
			}
			if why != "" {
				d.conflict(bad, why)
				continue
			}
		}
		why := ""
		var err error
		if d.root.Seen != nil {
			why = d.unlike(path, c)
		} else {
			why, err = d.later(path, c)
		}
		if err != nil {
			return err
		}
		if why != "" {
			d.conflict(path, why)
		}
		d.kept(c)
	}
	return nil
}

// since says that a time is not from before the fork.
func (d *drift) since(t sys.Time) bool {
	return t > d.root.Stamp || !d.root.Strict && t == d.root.Stamp
}

const (
	changedSince = "changed in the base since the fork"
	metaSince    = "metadata, link count or renamed in the base since the fork"
	goneSince    = "gone from the base since the fork"
	movedSince   = "the directory was moved or replaced since the fork"
	clockBack    = "the clock was set back since the fork, so its times prove nothing"
)

// later judges a changed path by the time of the fork.
func (d *drift) later(path string, c *changes.Change) (string, error) {
	switch {
	case c.Base == nil:
		return d.vanished(path, c)
	case d.stepped:
		return clockBack, nil
	case c.Base.IsDir() && (c.Kind == changes.Metadata || c.Kind == changes.Touched):
		if path == "" {
			return "", nil // the root, which is known by its identity
		}
		_, why, err := d.directory(path)
		return why, err
	case !d.since(c.Base.Ctime), path != "" && d.root.Restored[path] && !d.since(c.Base.Mtime):
		return "", nil
	case d.since(c.Base.Mtime):
		return changedSince, nil
	}
	return metaSince, nil
}

// vanished says whether what is an addition now was there at the fork: a
// directory that was copied up was, and a file probably if its directory was
// altered since; it may have been renamed inside as well.
func (d *drift) vanished(path string, c *changes.Change) (string, error) {
	if c.Within || c.Link != nil || c.Layer == nil || !c.Layer.IsRegular() && !c.Layer.IsDir() {
		return "", nil
	}
	up, name := split(path)
	in, err := d.inLayer.to(up)
	if err != nil {
		return "", passable(err)
	}
	e, err := layer.Look(in, name, *c.Layer)
	if err != nil || !e.CopiedUp {
		return "", passable(err)
	}
	if c.Layer.IsDir() {
		return goneSince, nil
	}
	st, err := d.base(up)
	if err != nil || st == nil || !d.since(st.Mtime) && !d.stepped {
		return "", err
	}
	return goneSince, nil
}

// passable lets a directory that its owner closed be: it is looked at when the
// commit opens it.
func passable(err error) error {
	if errors.Is(err, unix.EACCES) {
		return nil
	}
	return err
}

func split(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

// base looks at a directory of the base, nil if it is not there.
func (d *drift) base(path string) (*sys.Stat, error) {
	dir, err := d.inBase.to(path)
	if err != nil {
		if absent(err) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) {
			return nil, nil
		}
		return nil, err
	}
	st, err := dir.Stat("")
	return &st, err
}

// parents judges the directories above path, from the root down; bad is the
// first that is not the fork's.
func (d *drift) parents(path string) (bad, why string, err error) {
	up, _ := split(path)
	if path == "" || up == "" {
		return "", "", nil // the root is known by its identity
	}
	if why, known := d.above[up]; known {
		return up, why, nil
	}
	if bad, why, err = d.parents(up); err != nil || why != "" {
		if err == nil {
			d.above[up] = why
		}
		return bad, why, err
	}
	bad, why, err = d.directory(up)
	if err == nil {
		d.above[up] = why
	}
	return bad, why, err
}

// directory says why the base's directory at path is not the one of the fork:
// a rename, or an exchange, moves no time of what is below.
func (d *drift) directory(path string) (bad, why string, err error) {
	st, err := d.base(path)
	if err != nil {
		return path, "", err
	}
	if st == nil {
		return path, goneSince, nil
	}
	if d.root.Seen != nil {
		if was, ok := d.root.Seen[path]; ok {
			return path, was.unlikeDir(st), nil
		}
		return path, "", nil
	}
	old, err := d.wasThere(path)
	if err != nil || !old {
		return path, "", err // made inside, and outside too: merged
	}
	if d.stepped {
		return path, clockBack, nil
	}
	if ino, ok, err := d.viewed(path); err != nil || ok {
		if err == nil && ino != st.Ino {
			why = movedSince
		}
		return path, why, err
	}
	if !d.since(st.Ctime) || d.root.Restored[path] && !d.since(st.Mtime) {
		return path, "", nil
	}
	if !d.since(st.Mtime) {
		return path, movedSince + ", or its metadata changed", nil
	}
	// A neighbour changed in it, or it was moved and then changed: a rename
	// writes the directory above.
	up, _ := split(path)
	parent, err := d.base(up)
	if err != nil {
		return path, "", err
	}
	if d.since(st.Btime) || parent == nil || d.since(parent.Mtime) {
		return path, movedSince, nil
	}
	return path, "", nil
}

// wasThere says that the layer's directory stands for one of the fork.
func (d *drift) wasThere(path string) (bool, error) {
	if _, ok := d.plan.Root.Prepared[path]; ok {
		return true, nil
	}
	up, name := split(path)
	in, err := d.inLayer.to(up)
	if err == nil {
		_, err = in.Stat(name)
	}
	if absent(err) {
		return true, nil // above another name of a changed file
	}
	if err != nil {
		return true, passable(err)
	}
	st, err := in.Stat(name)
	if err != nil {
		return true, passable(err)
	}
	e, err := layer.Look(in, name, st)
	return e.CopiedUp || err != nil, passable(err)
}

// viewed asks the session which inode it has merged at path. It knows only
// where layer and base are one file system; elsewhere overlayfs makes numbers
// up.
func (d *drift) viewed(path string) (uint64, bool, error) {
	if ino, ok := d.root.Merged[path]; ok {
		return ino, true, nil
	}
	if d.root.View == nil || d.root.Copy {
		return 0, false, nil
	}
	if d.inView.top == nil {
		view, err := sys.DupDir(d.root.View, d.root.Path)
		if err != nil {
			return 0, false, err
		}
		d.inView.top = view
	}
	in, err := d.inView.to(path)
	if err != nil {
		return 0, false, nil // ended, closed or gone: the times decide
	}
	st, err := in.Stat("")
	return st.Ino, err == nil, nil
}

// kept judges what a displaced directory takes along though it is no change:
// what came back identical loses nothing, anything else that is newer does.
func (d *drift) kept(c *changes.Change) {
	if c.Carry == nil || d.root.Seen != nil {
		return
	}
	for i := range c.Carry.Kept {
		k := &c.Carry.Kept[i]
		if !k.Base.IsRegular() && !k.Base.IsDir() && (d.stepped || d.since(k.Base.Ctime)) {
			d.conflict(k.Node.Path(), changedSince)
		}
	}
}

// index finds the paths of other commits.
type index struct {
	at     map[string]listed
	sorted []string
}

type listed struct {
	Altered
	branch string
}

func indexed(lists []List) *index {
	x := &index{at: map[string]listed{}}
	for _, l := range lists {
		for _, p := range l.Paths {
			if old, ok := x.at[p.Path]; ok && old.takes() {
				continue // the one that took what was there tells more
			}
			x.at[p.Path] = listed{p, l.Branch}
		}
	}
	for p := range x.at {
		x.sorted = append(x.sorted, p)
	}
	slices.Sort(x.sorted)
	return x
}

// takes says that a commit took out, or replaced, a directory.
func (l listed) takes() bool {
	return l.Dir && l.Kind != changes.Added && l.Kind != changes.Metadata && l.Kind != changes.Touched
}

// conflicts are the changes at, below or above a path that another commit
// altered, whatever the times say.
func (x *index) conflicts(p *changes.RootPlan) []Conflict {
	if len(x.at) == 0 {
		return nil
	}
	var found []Conflict
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Within {
			continue // what is above it is judged with all that is below
		}
		path := c.Path()
		full := filepath.Join(p.Root.Path, path)
		dir := c.Base != nil && c.Base.IsDir()
		inPlace := c.Kind == changes.Metadata || c.Kind == changes.Touched
		if l, ok := x.at[full]; ok && !(inPlace && dir && l.Dir && !l.takes()) {
			found = append(found, Conflict{p.Root.Path, path, "committed by branch " + l.branch + " since the fork"})
			continue
		}
		for up := filepath.Dir(full); up != "/" && up != "."; up = filepath.Dir(up) {
			if l, ok := x.at[up]; ok && (l.takes() || l.Dir && l.Kind == changes.Added && c.Base != nil) {
				found = append(found, Conflict{p.Root.Path, path, up + " was made or replaced by branch " + l.branch + " since the fork"})
				break
			}
		}
		if !dir || inPlace {
			continue
		}
		below := full + "/"
		if n, _ := slices.BinarySearch(x.sorted, below); n < len(x.sorted) && strings.HasPrefix(x.sorted[n], below) {
			found = append(found, Conflict{p.Root.Path, path, x.sorted[n] + " was committed by branch " + x.at[x.sorted[n]].branch + " since the fork"})
		}
	}
	return found
}
