package commit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/sys"
	"try/fs/vfs"
)

// compiler turns a plan into a journal's steps and asks, on the way, all that
// could refuse one of them. It alters nothing but this: a directory or file of
// the layer that its owner may not read is opened while it is looked at.
type compiler struct {
	w       *world
	job     *Job
	journal journal
	plan    []*changes.RootPlan // by the journal's roots
	jobs    []*Root
	mounts  []sys.Mount // nil: not asked yet
	uid     uint32

	refused []Conflict
	opens   []step // mode steps that come first
	moves   []step
	metas   []step
	dirs    []step // metadata of directories
	times   []step

	stamped map[place]bool            // directories of layers whose times are kept
	ensured map[place]bool            // directories made accessible for the steps
	looked  map[sys.Identity]sys.Time // files with several names that were opened for looking: their ctime since
	names   map[sys.Identity]bool     // base inodes with several names that some step alters
	needs   []need                    // by root: what copies take
	copies  []copied                  // what is to be staged, by its move or swap
	links   []linked                  // and as a further name
	brings  map[*sys.Node]int         // moves and swaps of files that get further names
	within  map[place]place           // entries of copies that are names of files of the base
	parted  []reopened                // opened for looking, to be closed again
	slot    int
}

type need struct{ bytes, inodes int64 }

// copied is one entry to be staged.
type copied struct {
	root uint32
	from place // in the layer
	slot string
	step int // in moves
}

type reopened struct {
	d    *sys.Dir
	perm uint32
}

// compile returns a compiler even with an error, if anything is to be closed.
func (j *Job) compile(ctx context.Context, fs vfs.FS, plan *changes.Plan) (*compiler, error) {
	c := &compiler{
		job: j, uid: uint32(unix.Geteuid()),
		stamped: map[place]bool{}, ensured: map[place]bool{}, names: map[sys.Identity]bool{}, looked: map[sys.Identity]sys.Time{},
		journal: journal{id: newJournalID(), branch: j.ID},
	}
	refused, err := j.protect(plan)
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	if len(refused) > 0 {
		return nil, &ConflictError{Conflicts: refused}
	}
	if err := c.roots(plan); err != nil {
		return nil, err
	}
	if c.w, err = openWorld(fs, &c.journal, j.Dir, false); err != nil {
		return nil, err
	}
	c.w.near = true
	defer func() {
		c.w.near = false
		c.w.release()
	}()
	if err := c.seen(plan); err != nil {
		return c, err
	}
	c.linkable()
	for i := range c.plan {
		if err := c.root(ctx, uint32(i)); err != nil {
			return c, err
		}
	}
	c.journal.steps = c.order()
	c.w.learn(c.journal.steps)
	if len(c.refused) > 0 {
		return c, &ConflictError{Conflicts: c.refused}
	}
	return c, nil
}

// roots matches the plan's roots with the job's.
func (c *compiler) roots(plan *changes.Plan) error {
	for i := range plan.Roots {
		p := &plan.Roots[i]
		if len(p.Changes) == 0 {
			continue
		}
		var r *Root
		for k := range c.job.Roots {
			if c.job.Roots[k].Path == p.Root.Path {
				r = &c.job.Roots[k]
			}
		}
		if r == nil {
			return fmt.Errorf("commit: the plan has the root %s, the branch has not", p.Root.Path)
		}
		boot := ""
		if memory(r.Path) {
			var err error
			if boot, err = bootID(); err != nil {
				return fmt.Errorf("commit: %w", err)
			}
		}
		c.plan, c.jobs = append(c.plan, p), append(c.jobs, r)
		c.journal.roots = append(c.journal.roots, journalRoot{
			path: r.Path, id: r.ID, layer: c.relative(r.Layer), slots: c.relative(r.Slots), boot: boot,
		})
	}
	c.needs = make([]need, len(c.plan))
	return nil
}

// relative keeps a path below the branch's directory relative to it, so that a
// store that was moved as a whole can still be recovered.
func (c *compiler) relative(path string) string {
	if path != c.job.Dir && within(path, c.job.Dir) {
		return path[len(c.job.Dir)+1:]
	}
	return path
}

// bootID is another after each start of the machine (random(4)).
func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

func memory(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.TMPFS_MAGIC
}

// seen compares with what was recorded at the session's end.
func (c *compiler) seen(plan *changes.Plan) error {
	var recorded []Root
	for _, r := range c.jobs {
		if r.Seen != nil {
			recorded = append(recorded, *r)
		}
	}
	if len(recorded) == 0 {
		return nil
	}
	found, err := Drift(plan, recorded, nil, Clock{})
	c.refused = append(c.refused, found...)
	return err
}

// close ends the looking; the steps have their own directories.
func (c *compiler) close() {
	c.closeAgain() //nolint:errcheck // compile has returned its error already
	c.w.close()
}

// closeAgain gives what was opened for looking its mode back.
func (c *compiler) closeAgain() error {
	var all error
	for i := len(c.parted) - 1; i >= 0; i-- {
		r := c.parted[i]
		all = errors.Join(all, r.d.Chmod("", r.perm), r.d.Close())
	}
	c.parted = nil
	return all
}

func (c *compiler) refuse(root uint32, path, format string, args ...any) {
	c.refused = append(c.refused, Conflict{c.w.roots[root].path, path, fmt.Sprintf(format, args...)})
}

// order puts the steps together: open directories, move, alter files in place,
// set directories' times, then close and alter each directory, those below
// before those above, since either may forbid the way to what is below.
func (c *compiler) order() []step {
	c.reopenable()
	all := make([]step, 0, 2*len(c.opens)+len(c.moves)+len(c.metas)+len(c.dirs)+len(c.times))
	all = append(all, c.opens...)
	for i := range c.copies {
		c.copies[i].step += len(c.opens)
	}
	for i := range c.links {
		c.links[i].step += len(c.opens)
	}
	for n := range c.brings {
		c.brings[n] += len(c.opens)
	}
	all = append(all, c.moves...)
	all = append(all, c.metas...)
	all = append(all, c.times...)
	shut := len(all)
	for i := len(c.opens) - 1; i >= 0; i-- {
		s := c.opens[i]
		s.before, s.after = s.after, s.before
		all = append(all, s)
	}
	all = append(all, c.dirs...)
	slices.SortStableFunc(all[shut:], func(a, b step) int {
		return strings.Compare(b.from.path, a.from.path) // a longer path is greater than its beginning
	})
	return all
}

// reopenable adds opening steps, which at first find nothing to do, for base
// directories that end without their owner's permissions: a recovery must get
// in once more.
func (c *compiler) reopenable() {
	open := map[place]bool{}
	for i := range c.opens {
		open[c.opens[i].from] = true
	}
	var more []step
	for i := range c.dirs {
		s := &c.dirs[i]
		if s.meta.newPerm == nil || *s.meta.newPerm&0o700 == 0o700 || open[s.from] || c.uid == 0 {
			continue
		}
		old := *s.meta.oldPerm
		more = append(more, step{kind: mode, from: s.from, to: s.from, new: s.new, before: old, after: old | 0o700})
	}
	c.opens = append(c.opens, more...)
	slices.SortStableFunc(c.opens, func(a, b step) int { return strings.Compare(a.from.path, b.from.path) })
}

func (c *compiler) root(ctx context.Context, root uint32) error {
	p, r := c.plan[root], c.jobs[root]
	if err := c.sameFS(root); err != nil {
		return err
	}
	for i := range p.Dirs {
		t := &p.Dirs[i]
		c.w.known[place{root, inBase, t.Node.Path()}] = t.Base.Identity()
	}
	for i := 0; i < len(p.Changes); {
		if err := ctx.Err(); err != nil {
			return err
		}
		ch := &p.Changes[i]
		end := i + 1
		for end < len(p.Changes) && p.Changes[end].Within {
			end++
		}
		if err := c.change(root, ch, p.Changes[i+1:end]); err != nil {
			return fmt.Errorf("prepare the commit of %s: %w", filepath.Join(r.Path, ch.Path()), err)
		}
		i = end
	}
	for i := range p.Dirs {
		if err := c.touch(root, &p.Dirs[i]); err != nil {
			return err
		}
	}
	return c.room(root)
}

// change compiles one change with a step of its own.
func (c *compiler) change(root uint32, ch *changes.Change, below []changes.Change) error {
	path := ch.Path()
	if ch.Unknown {
		c.refuse(root, path, "the base cannot be read here: %s", errnoText(ch.Err))
		return nil
	}
	for i := range below {
		if below[i].Unknown {
			c.refuse(root, below[i].Path(), "the base cannot be read here: %s", errnoText(below[i].Err))
			return nil
		}
	}
	base, layer := place{root, inBase, path}, place{root, inLayer, path}
	ok, err := c.agrees(base, ch.Base)
	if err != nil || !ok {
		return err
	}
	if ch.Kind == changes.Metadata || ch.Kind == changes.Touched {
		return c.meta(base, ch)
	}
	link := c.link(ch)
	// A deletion takes nothing from the layer, which may have no such directory:
	// only some of what is gone with it may be committed (changes.Plan.Without).
	if ok, err = c.parent(base, ch.Base, link == nil && ch.Kind != changes.Deleted); err != nil || !ok {
		return err
	}
	var old side
	if ch.Base != nil {
		if old, ok, err = c.displace(base, ch, below); err != nil || !ok {
			return err
		}
	}
	if ch.Kind == changes.Deleted {
		c.moves = append(c.moves, step{kind: move, from: base, to: c.newSlot(root), new: old})
		return c.needSlots(root, path)
	}
	if link != nil {
		return c.further(link, base, ch, old)
	}
	fresh, ok, err := c.arrive(layer, base, ch, below)
	if err != nil || !ok {
		return err
	}
	s := step{kind: move, from: layer, to: base, new: fresh}
	if ch.Base != nil {
		s.kind, s.old = swap, old
	}
	if c.jobs[root].Copy {
		s.from = c.newSlot(root)
		c.copies = append(c.copies, copied{root, layer, s.from.path, len(c.moves)})
		if err := c.needSlots(root, path); err != nil {
			return err
		}
	}
	if _, ok := c.brings[ch.Node]; ok {
		c.brings[ch.Node] = len(c.moves)
	}
	c.moves = append(c.moves, s)
	return nil
}

// newSlot is a place in the slots that no other journal has used.
func (c *compiler) newSlot(root uint32) place {
	c.slot++
	return place{root, inSlots, c.journal.id.String() + "." + strconv.Itoa(c.slot)}
}

func (c *compiler) needSlots(root uint32, path string) error {
	if c.w.roots[root].slots == nil {
		c.refuse(root, path, "the store has no place on this file system")
	}
	return nil
}

// agrees says whether the base's entry is the one of the plan.
func (c *compiler) agrees(base place, want *sys.Stat) (bool, error) {
	st, _, _, err := c.w.look(base)
	var r *refusal
	if errors.As(err, &r) {
		c.refuse(base.root, r.at.path, "%s", r.reason)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	why := ""
	switch {
	case want == nil && st == nil:
	case want == nil:
		why = "exists in the base now"
	case st != nil && st.IsDir() && want.IsDir() && st.Identity() == want.Identity():
		// A directory's times are its neighbours'; what is below a displaced one
		// is compared entry by entry.
	default:
		s := sideOf(*want)
		why = s.untouched(st)
	}
	if why != "" {
		c.refuse(base.root, base.path, "%s since the changes were listed", why)
		return false, nil
	}
	return true, nil
}

// touch notes the times that a directory gets at the end. One that a neighbour
// changed since the fork keeps those of the commit.
func (c *compiler) touch(root uint32, t *changes.Touch) error {
	p := place{root, inBase, t.Node.Path()}
	if _, err := c.ensure(p, t.Steps); err != nil {
		return err
	}
	r := c.jobs[root]
	neighbour := r.Stamp != 0 && (t.Base.Mtime > r.Stamp || !r.Strict && t.Base.Mtime == r.Stamp)
	if neighbour || !c.owns(&t.Base) {
		return nil
	}
	for i := len(c.times) - 1; i >= 0; i-- {
		if s := &c.times[i]; s.from == p {
			s.newTime = [2]sys.Time{sys.KeepTime, t.Layer.Mtime}
			return nil
		}
	}
	return nil
}
