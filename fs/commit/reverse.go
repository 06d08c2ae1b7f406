package commit

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/fs/vfs"
)

// Reversal is one undoing, or redoing, of a record.
type Reversal struct {
	Redo bool
	// Partial: what cannot be is left, and the rest is done.
	Partial bool
	// Protected are directories that no step may touch, as in Job.
	Protected []string
	// Announce is told what is about to be altered, once nothing stands against
	// it, and numbers it: greater than Record.Last.
	Announce func([]Change) (uint64, error)
	// Progress may be nil.
	Progress func(done, total int)
}

// Reverse undoes what is not undone, or redoes what is, and returns what it has
// altered and what it left, with reasons. A path that is no longer as the commit
// left it, or of which what was displaced is not what it was, is a conflict: then
// nothing is touched, or with Partial that path is not.
//
// Errors are those of [Job.Commit], and ErrNothing. The caller holds the store's
// commit lock and the record's.
func (r *Record) Reverse(ctx context.Context, fs vfs.FS, o Reversal) (done []Change, left []Conflict, err error) {
	fs.Part("compile")
	v, err := r.reverser(fs, o.Redo)
	if err != nil {
		return nil, nil, err
	}
	defer v.close()
	if len(v.chosen) == 0 && len(v.refused) == 0 {
		return nil, nil, ErrNothing
	}
	guard, err := guardOf(o.Protected)
	if err != nil {
		return nil, nil, fmt.Errorf("undo: %w", err)
	}
	for _, f := range v.chosen {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if err := v.turn(f, guard); err != nil {
			return nil, nil, fmt.Errorf("prepare to undo %s: %w", v.w.path(f.at), err)
		}
	}
	left = v.refused
	if len(left) > 0 && !o.Partial || len(v.turned) == 0 {
		if len(left) == 0 {
			return nil, nil, ErrNothing
		}
		return nil, nil, &ConflictError{Conflicts: left}
	}
	v.stamp()
	v.journal.steps = v.order()
	v.w.near = false
	v.w.release()
	v.w.learn(v.journal.steps)
	if err := v.closeAgain(); err != nil {
		return nil, nil, err
	}
	for _, f := range v.turned {
		done = append(done, r.change(f))
	}
	number, err := o.Announce(done)
	if err != nil {
		return nil, nil, err
	}
	return done, left, v.apply(ctx, number, o.Progress)
}

// reverser is a compiler whose steps come from a record.
type reverser struct {
	*compiler
	r      *Record
	redo   bool
	chosen []*fact
	turned []*fact
	metas  map[sys.Identity]*fact // changes in place: files with several names have them too
}

// reverser opens the roots of what is to be turned. One that cannot be opened
// makes conflicts of all that is in it.
func (r *Record) reverser(fs vfs.FS, redo bool) (*reverser, error) {
	c := &compiler{
		uid: uint32(unix.Geteuid()), stamped: map[place]bool{}, ensured: map[place]bool{},
		names: map[sys.Identity]bool{}, looked: map[sys.Identity]sys.Time{},
		journal: journal{id: newJournalID(), branch: r.Branch},
	}
	v := &reverser{compiler: c, r: r, redo: redo, metas: map[sys.Identity]*fact{}}
	// The directories of all roots are numbered as in the record; one that cannot
	// be opened, or that nothing is turned in, has none.
	c.w = &world{fs: fs, known: map[place]sys.Identity{}, perms: map[permOf]bool{}, foreign: map[place]bool{}, near: true, record: true}
	c.w.roots = make([]rootDirs, len(r.roots))
	c.journal.roots = make([]journalRoot, len(r.roots))
	c.jobs = make([]*Root, len(r.roots))
	wanted := make([][]*fact, len(r.roots))
	layers := make([]bool, len(r.roots))
	for i := range r.facts {
		f := r.facts[i]
		if !redo {
			f = r.facts[len(r.facts)-1-i] // the last comes first
		}
		if f.undone == redo {
			wanted[f.at.root] = append(wanted[f.at.root], f)
			layers[f.at.root] = layers[f.at.root] || !f.away.none() && f.kept.area == inLayer
		}
		if f.meta != nil {
			v.metas[f.id.id] = f
		}
	}
	for i := range r.roots {
		root := r.roots[i]
		if !layers[i] {
			root.layer = ""
		}
		c.jobs[i] = &Root{Path: root.path}
		c.w.roots[i] = rootDirs{path: root.path, layerPath: below(r.dir, root.layer), slotsAt: below(r.dir, root.slots)}
		if len(wanted[i]) == 0 {
			continue
		}
		if err := v.openRoot(uint32(i), &root); err != nil {
			v.close()
			return nil, err
		}
		if len(v.refused) > 0 && v.refused[len(v.refused)-1].Root == root.path {
			why := v.refused[len(v.refused)-1].Reason
			v.refused = v.refused[:len(v.refused)-1]
			for _, f := range wanted[i] {
				v.refuse(uint32(i), f.at.path, "%s", why)
			}
			continue
		}
		c.journal.roots[i] = root
		v.chosen = append(v.chosen, wanted[i]...)
	}
	for p, t := range r.times {
		c.w.known[p] = t.id
	}
	c.needs = make([]need, len(r.roots))
	return v, nil
}

// openRoot opens a root, or refuses it as a whole.
func (v *reverser) openRoot(i uint32, root *journalRoot) error {
	d := &v.w.roots[i]
	err := d.open(root, true)
	var conflict *ConflictError
	switch {
	case errors.As(err, &conflict):
		v.refuse(i, "", "%s", conflict.Conflicts[0].Reason)
	case errors.Is(err, unix.ENOENT):
		v.refuse(i, "", "what was there before is gone: %s", errnoText(err))
	case err != nil:
		return err
	case d.gone:
		v.refuse(i, "", "what was there before was in memory, and is gone with a reboot")
	default:
		return v.sameFS(i)
	}
	d.close()
	*d = rootDirs{path: d.path}
	return nil
}

// stamp gives the directories in which all is turned the times that they had
// before, if nobody else has changed them meanwhile.
func (v *reverser) stamp() {
	turned := make(map[*fact]bool, len(v.turned))
	for _, f := range v.turned {
		turned[f] = true
	}
	partly := map[place]bool{}
	for _, f := range v.r.facts {
		if !turned[f] && f.meta == nil {
			up, _ := f.at.split()
			partly[up] = true
		}
	}
	for i := range v.times {
		s := &v.times[i]
		t := v.r.times[s.from]
		if s.from.area == inBase && t != nil && t.settled && !partly[s.from] && s.oldTime[1] == t.now {
			s.newTime = [2]sys.Time{sys.KeepTime, t.before}
		}
	}
}

// apply journals and applies the steps.
func (v *reverser) apply(ctx context.Context, number uint64, progress func(done, total int)) error {
	v.compact()
	dir, err := sys.OpenDir(v.r.dir)
	if err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	defer dir.Close()
	v.w.fs.Part("journal")
	f, err := create(v.w.fs, dir, JournalOf(number), &v.journal, "")
	if err != nil {
		return err
	}
	return v.run(ctx, f, dir, progress)
}

// compact drops the roots in which nothing is turned: recovery must not need
// them.
func (v *reverser) compact() {
	to := make([]uint32, len(v.journal.roots))
	var roots []journalRoot
	var dirs []rootDirs
	var jobs []*Root
	for i := range v.journal.roots {
		to[i] = uint32(len(roots))
		if v.w.roots[i].base != nil {
			roots, dirs, jobs = append(roots, v.journal.roots[i]), append(dirs, v.w.roots[i]), append(jobs, v.jobs[i])
		}
	}
	for i := range v.journal.steps {
		s := &v.journal.steps[i]
		s.from.root, s.to.root = to[s.from.root], to[s.to.root]
	}
	v.journal.roots, v.w.roots, v.jobs = roots, dirs, jobs
	v.w.known, v.w.perms = map[place]sys.Identity{}, map[permOf]bool{}
	v.w.learn(v.journal.steps)
}
