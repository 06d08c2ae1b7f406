package commit

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// syncDirs is up to how many directories are synced one by one; beyond, one
// syncfs is cheaper although it waits for other people's data too.
const syncDirs = 16

// apply does the steps that are not done, seals, and turns back where a step
// is refused. again: somebody began before. A *ConflictError says that all of
// it was taken back, any other error that it is unfinished.
func (w *world) apply(j *journal, f *file, again bool, progress func(done, total int)) error {
	last := -1
	if again {
		last = w.lastDone(j)
	}
	moved := true
	for i := range j.steps {
		s := &j.steps[i]
		if s.late() && moved {
			// Every directory is resolved once more from its root: one that was
			// moved meanwhile has taken our changes elsewhere.
			w.release()
			moved = false
		}
		if err := w.forward(s, again, i == last); err != nil {
			return w.rollBack(j, f, i, err)
		}
		if progress != nil && i%256 == 255 {
			progress(i+1, len(j.steps))
		}
	}
	w.fs.Part("seal")
	if err := w.sync(j); err != nil {
		return unfinished(err)
	}
	if err := f.done(doneCommitted, w.lazy(j, f)); err != nil {
		return unfinished(err)
	}
	if progress != nil {
		progress(len(j.steps), len(j.steps))
	}
	return nil
}

// lazy says that the mark of the end may reach the disk when it likes: without
// it the steps are looked at once more, and moves and swaps that are done are
// recognised by our own side, whatever became of the base since. Metadata are
// not; and a directory's time would be set again, which is no harm only where
// whatever somebody does to it later, and the caller's disposal of the branch,
// reach the disk in order.
func (w *world) lazy(j *journal, f *file) bool {
	home, err := f.dir.Stat("")
	if err != nil || w.record || !w.fs.Ordered(f.dir) {
		return false
	}
	for i := range w.roots {
		st, err := w.roots[i].base.Stat("")
		if err != nil || st.Dev != home.Dev {
			return false
		}
	}
	for i := range j.steps {
		if s := &j.steps[i]; s.kind == meta || s.kind == mode {
			return false
		}
	}
	return true
}

func unfinished(err error) error { return fmt.Errorf("%w: %w", ErrUnfinished, err) }

// lastDone is the last move or swap that has taken place: the one whose
// displaced entry may not have been looked at before the crash. Those before it
// were, and may have been altered since through open descriptors.
func (w *world) lastDone(j *journal) int {
	for i := len(j.steps) - 1; i >= 0; i-- {
		s := &j.steps[i]
		if s.kind != move && s.kind != swap || w.roots[s.from.root].gone {
			continue
		}
		side := s.from
		if s.kind == move && s.to.area == inSlots {
			side = s.to
		}
		st, _, _, err := w.look(side)
		if err == nil && s.new.is(st) == (side == s.to) {
			return i
		}
	}
	return -1
}

// rollBack turns the journal and undoes the steps up to from.
func (w *world) rollBack(j *journal, f *file, from int, cause error) error {
	w.fs.Part("turn")
	c := w.conflict(cause)
	if err := f.turn(c.Conflicts[0]); err != nil {
		return unfinished(errors.Join(cause, err))
	}
	if err := w.undo(j, f, from, cause); err != nil {
		return unfinished(errors.Join(cause, err))
	}
	c.Left, c.Restored = w.left, w.restored
	return c
}

// undo takes back the steps up to from, seals, and marks the journal done. The
// times of directories come when all below them is back, but before the
// directories that had to be opened are closed. The copies that were staged are
// removed.
func (w *world) undo(j *journal, f *file, from int, cause error) error {
	w.fs.Part("rollback")
	w.release()
	var r *refusal
	if errors.As(cause, &r) && r.neighbour() {
		up, _ := r.at.split()
		w.foreign[up] = true
	}
	opens := 0
	for opens < len(j.steps) && j.steps[opens].kind == mode {
		opens++
	}
	for i := from; i >= opens; i-- {
		if s := &j.steps[i]; !s.late() {
			if err := w.back(s); err != nil {
				return err
			}
		}
	}
	for i := len(j.steps) - 1; i >= opens; i-- {
		if s := &j.steps[i]; s.late() {
			if err := w.back(s); err != nil {
				return err
			}
		}
	}
	for i := min(from, opens-1); i >= 0; i-- {
		if err := w.back(&j.steps[i]); err != nil {
			return err
		}
	}
	w.fs.Part("seal")
	if err := w.sync(j); err != nil {
		return err
	}
	if err := w.unstage(j, true); err != nil {
		return err
	}
	return f.done(doneRolledBack, false)
}

// late says that a step sets a directory's times for good; those of a directory
// that moves are set in between.
func (s *step) late() bool { return s.kind == times && s.from == s.to }

// conflict is what the caller is told.
func (w *world) conflict(cause error) *ConflictError {
	c := &ConflictError{RolledBack: true, Err: cause}
	var r *refusal
	if !errors.As(cause, &r) {
		c.Conflicts = []Conflict{{Root: w.roots[0].path, Reason: cause.Error()}}
		return c
	}
	c.Err = r.err
	c.Conflicts = []Conflict{{Root: w.roots[r.at.root].path, Path: r.at.path, Reason: r.reason}}
	if r.at.area != inBase {
		c.Conflicts[0].Reason += " (" + w.inside(r.at.area) + ")"
	}
	return c
}

// inside says in messages where what is to come in lies.
func (w *world) inside(a area) string {
	if w.record {
		return "in the undo record"
	}
	return "in the branch's " + a.String()
}

// sync makes the steps durable: a rename or exchange is one transaction on
// ext4 and xfs, so syncing the base's directory syncs both its sides; elsewhere,
// for metadata of files, and for many directories, it takes the whole file
// system (syncfs(2)).
func (w *world) sync(j *journal) error {
	type work struct {
		dirs  []place
		seen  map[place]bool
		whole bool
	}
	all := make([]work, len(w.roots))
	for i := range all {
		all[i].seen = map[place]bool{}
	}
	add := func(p place) {
		k := &all[p.root]
		if !k.seen[p] && len(k.dirs) <= syncDirs {
			k.seen[p] = true
			k.dirs = append(k.dirs, p)
		}
	}
	for i := range j.steps {
		s := &j.steps[i]
		switch s.kind {
		case move, swap:
			for _, p := range []place{s.from, s.to} {
				if p.area == inBase {
					up, _ := p.split()
					add(up)
				}
			}
			if s.new.opened || s.old.opened || len(s.new.marks) > 0 && isDir(s.new.id) {
				all[s.from.root].whole = true
			}
		case times:
			if s.from.area == inBase {
				add(s.from)
			}
		default:
			all[s.from.root].whole = true
		}
	}
	done := map[uint64]bool{}
	for i := range all {
		if w.roots[i].gone || len(all[i].dirs) == 0 && !all[i].whole {
			continue
		}
		if len(all[i].dirs) <= syncDirs && !all[i].whole && w.fs.Ordered(w.roots[i].base) {
			for _, p := range all[i].dirs {
				d, err := w.dir(p)
				if err != nil {
					if w.passed(err) == nil {
						continue // moved away: nothing of ours is in its place
					}
					if !errors.Is(err, unix.EACCES) {
						return err
					}
					if err := w.syncRoot(uint32(i), done); err != nil { // closed by its own mode
						return err
					}
					break
				}
				if err := w.fs.SyncDir(d); err != nil {
					return err
				}
			}
			continue
		}
		if err := w.syncRoot(uint32(i), done); err != nil {
			return err
		}
	}
	return nil
}

// own is the directory of a root that holds what its steps bring in.
func (w *world) own(root uint32) *sys.Dir {
	r := &w.roots[root]
	switch {
	case r.layer != nil:
		return r.layer
	case r.slots != nil:
		return r.slots
	}
	return r.base // nothing is brought in
}

// syncRoot syncs the file system of a root, unless done has it already.
func (w *world) syncRoot(root uint32, done map[uint64]bool) error {
	r := &w.roots[root]
	d := r.slots // the store's own can be opened whatever the base's mode is
	if d == nil {
		d = r.base
	}
	st, err := d.Stat("")
	if err != nil {
		return err
	}
	if done[st.Dev] {
		return nil
	}
	done[st.Dev] = true
	f, err := d.OpenFile(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(w.fs.SyncFS(f), f.Close())
}
