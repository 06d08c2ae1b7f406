package branch

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// gonePrefix marks what is trash in a further store, which has no trash of its
// own: it stays in its directory under another name.
const gonePrefix = "t-"

// Discard drops the branch: one rename into the trash for each store that
// holds layers of it, whatever their size, and the lock is free. The trash is
// emptied by Tidy, behind everybody's back.
func (b *Branch) Discard() error {
	if b.State == Committing {
		return fmt.Errorf("discard branch %s: its commit is not decided", b.Name)
	}
	if err := b.drop(b.store.branches); err != nil {
		return fmt.Errorf("discard branch %s: %w", b.Name, err)
	}
	return nil
}

// drop moves the branch, or a draft, from a directory of the home store to the
// trash and closes it. The home store comes first: what further stores hold of
// a branch that is not there is trash for everybody (sweep).
func (b *Branch) drop(from *sys.Dir) error {
	errs := []error{from.Rename(b.ID, b.store.trash, b.ID)}
	for id := range b.storesUsed() {
		if id != "" {
			errs = append(errs, b.store.dropIn(id, b.ID))
		}
	}
	return errors.Join(append(errs, b.Close())...)
}

// dropIn makes trash of what the further store holds of a branch.
func (s *Store) dropIn(store, branch string) error {
	p, err := s.openFurther(store)
	if err == nil {
		err = p.dir.Rename(branch, p.dir, gonePrefix+newID())
	}
	// Gone already, with a reboot; or a store that does not verify any more,
	// which is not ours to touch.
	if _, untrusted := errors.AsType[*Untrusted](err); untrusted || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// Tidy does what nobody should wait for: it empties the trash, throws away
// what crashes have left, forgets lists and stores that nobody needs, and
// makes the spare skeleton and journal for the next run. It is run by a
// detached child that holds none of the caller's descriptors; what it leaves
// undone the next one does. Only one does it at a time; another returns at
// once, and the first then looks again.
func (s *Store) Tidy(ctx context.Context) error {
	for {
		l, err := openLock(s.dir, "trash.lock")
		if err != nil {
			return err
		}
		if err := l.try(); err != nil {
			if errors.Is(err, ErrLocked) {
				err = nil
			}
			return errors.Join(err, l.release())
		}
		err = errors.Join(s.sweep(), s.emptyAll(ctx), s.slimAll(ctx), s.makeSpares())
		if err := errors.Join(err, l.release()); err != nil {
			return fmt.Errorf("tidy store %s: %w", s.Path(), err)
		}
		// Who came meanwhile found the lock taken and left its trash to us.
		if entries, err := s.trash.Entries(); err != nil || len(entries) == 0 {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// sweep moves to the trash what no branch can need any more. Under the store's
// lock nobody is creating: a draft that is not locked was left by a crash.
func (s *Store) sweep() error {
	return holding(s.dir, lockName, func() error {
		return errors.Join(s.sweepSpare(), s.sweepBranches(), s.sweepFurther(), s.sweepGroups(), s.sweepCommits(), s.sweepTemporaryIn(s.stores, isID))
	})
}

func (s *Store) sweepSpare() error {
	entries, err := s.spare.Entries()
	if err != nil {
		return err
	}
	var errs []error
	have := false // one is enough
	for _, e := range entries {
		dir, err := s.spare.Sub(e.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		l := lockPristine(dir)
		dir.Close()
		if l != nil {
			errs = append(errs, l.release())
			if !have {
				have = true
				continue
			}
		}
		errs = append(errs, s.spare.Rename(e.Name, s.trash, newID()))
	}
	return errors.Join(errs...)
}

// sweepBranches throws away members of groups that were never whole, and
// drafts that nobody holds and of which nothing is to be recovered.
func (s *Store) sweepBranches() error {
	entries, err := s.branches.Entries()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		dir, err := s.branches.Sub(e.Name)
		if err != nil {
			continue // settled meanwhile
		}
		m, err := readMeta(dir)
		if err == nil && (m.Draft || errors.Is(s.groupIsWhole(m.Group), unix.ENOENT)) {
			if l, err := existingLock(dir, lockName); err == nil {
				if l.try() == nil && !(m.Draft && hasJournal(dir)) {
					if m.Draft {
						errs = append(errs, s.closeListOf(e.Name, s.withdraw))
					}
					errs = append(errs, s.branches.Rename(e.Name, s.trash, e.Name))
				}
				l.release()
			}
		}
		dir.Close()
	}
	return errors.Join(errs...)
}

// isAlive says whether a draft, a branch or an undo record of this id exists.
// Each becomes the next, never the other way round, so that looking in this
// order misses none.
func (s *Store) isAlive(id string) (bool, error) {
	if is, err := s.isBranch(id); err != nil || is {
		return is, err
	}
	return s.isRecord(id)
}

// isBranch is isAlive for drafts and branches.
func (s *Store) isBranch(id string) (bool, error) {
	for _, d := range []*sys.Dir{s.spare, s.branches} {
		if _, err := d.Stat(id); !errors.Is(err, unix.ENOENT) {
			return err == nil, err
		}
	}
	return false, nil
}

// sweepFurther marks as trash what further stores hold of branches that are
// gone, empties them, and forgets stores that hold nothing: nothing but the
// home store stays behind. It works under the store's lock, or a branch could
// be made in a store while that is removed; what a further store holds is
// therefore emptied by emptyAll, before the next sweep.
func (s *Store) sweepFurther() error {
	entries, err := s.entries()
	if err != nil || len(entries) == 0 {
		return err
	}
	used, err := s.usedStores()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		p, err := s.openFurther(e.ID)
		if err != nil {
			// Gone with a reboot, or not the directory that we made: then it is
			// not ours to touch. As long as a branch names it, it is remembered.
			if !used[e.ID] {
				errs = append(errs, s.forget(e.ID))
			}
			continue
		}
		errs = append(errs, s.sweepOne(p, used[e.ID]))
	}
	return errors.Join(errs...)
}

func (s *Store) sweepOne(p *place, used bool) error {
	names, err := p.dir.Entries()
	if err != nil {
		return err
	}
	for _, n := range names {
		if !isID(n.Name) {
			continue
		}
		alive, err := s.isAlive(n.Name)
		if err != nil {
			return err
		}
		if alive {
			err = s.ifNobodyHolds(n.Name, func() error { return sweepPoints(p.dir, n.Name) })
		} else {
			err = p.dir.Rename(n.Name, p.dir, gonePrefix+newID())
		}
		if err != nil {
			return err
		}
	}
	if len(names) == 0 && !used {
		return s.forget(p.id)
	}
	return nil
}

// usedStores tells which further stores branches and undo records name.
func (s *Store) usedStores() (map[string]bool, error) {
	infos, err := s.Branches()
	used := map[string]bool{}
	for _, info := range infos {
		for _, r := range info.Roots {
			used[r.Store] = true
		}
	}
	return used, errors.Join(err, s.recordStores(used))
}

// emptyAll deletes what is in the trash, here and in further stores.
func (s *Store) emptyAll(ctx context.Context) error {
	errs := []error{empty(ctx, s.trash, func(string) bool { return true })}
	entries, err := s.entries()
	errs = append(errs, err)
	emptied := false
	for _, e := range entries {
		if p, err := s.openFurther(e.ID); err == nil {
			errs = append(errs, empty(ctx, p.dir, func(name string) bool {
				return len(name) == len(gonePrefix)+32 && name[:len(gonePrefix)] == gonePrefix
			}))
			emptied = true
		}
	}
	if emptied { // now they may hold nothing
		errs = append(errs, holding(s.dir, lockName, s.sweepFurther))
	}
	return errors.Join(errs...)
}

// empty deletes the entries of d that match, with all below them. One that
// cannot be deleted does not keep the others.
func empty(ctx context.Context, d *sys.Dir, matches func(string) bool) error {
	entries, err := d.Entries()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if matches(e.Name) && ctx.Err() == nil {
			errs = append(errs, remove(ctx, d, e.Name))
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// remove deletes name in d and all below it. Files are only ever unlinked:
// their inodes may have names elsewhere, in the base for instance, so that
// nothing is written to them nor changed about them (H15). Directories that
// forbid it are opened up, since they have one name only.
func remove(ctx context.Context, d *sys.Dir, name string) error {
	st, err := d.Stat(name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return d.Unlink(name)
	}
	top, err := openUp(d, name, st)
	if err != nil {
		return err
	}
	defer top.Close()
	err = sys.Walk(top, func(v sys.Visit) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if !v.Stat.IsDir() {
			return false, v.Dir.Unlink(v.Node.Name)
		}
		sub, err := openUp(v.Dir, v.Node.Name, v.Stat)
		if err != nil {
			return false, err
		}
		return true, sub.Close()
	}, func(v sys.Visit) error { return v.Dir.Rmdir(v.Node.Name) })
	if err != nil {
		return err
	}
	return d.Rmdir(name)
}

// openUp opens a directory and gives its owner all rights to it. The mode is
// changed through the descriptor, which cannot be anything but a directory.
func openUp(d *sys.Dir, name string, st sys.Stat) (*sys.Dir, error) {
	sub, err := d.Sub(name)
	if err != nil {
		return nil, err
	}
	if st.Mode&0o700 != 0o700 {
		if err := sub.Chmod("", 0o700); err != nil {
			return nil, errors.Join(err, sub.Close())
		}
	}
	return sub, nil
}

// spareLayers is how many layers the skeleton has ready: the default scope's
// working directory, HOME, /tmp and /var/tmp. More are made when needed.
const spareLayers = 4

// journalSize is what is written beforehand for the next commit's journal, so
// that it is only overwritten then (FACTS D3).
const journalSize = 64 << 10

// makeSpares makes the skeleton and the journal for the next run, if they are
// missing. They are made in the trash and moved out when they are whole: what
// is left of a crash is trash.
func (s *Store) makeSpares() error {
	entries, err := s.spare.Entries()
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		if err := s.makeSkeleton(); err != nil {
			return err
		}
	}
	if _, err := s.dir.Stat(spareJournal); !errors.Is(err, unix.ENOENT) {
		return err
	}
	name := "j-" + newID()
	f, err := s.trash.OpenFile(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, journalSize))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return ignoreExist(s.trash.Rename(name, s.dir, spareJournal))
}

func (s *Store) makeSkeleton() error {
	id := newID()
	if err := s.trash.Mkdir(id, 0o700); err != nil {
		return err
	}
	dir, err := s.trash.Sub(id)
	if err != nil {
		return err
	}
	defer dir.Close()
	for i := range spareLayers {
		if err := errors.Join(dir.Mkdir(upperName(i), 0o700), dir.Mkdir(workName(i), 0o700)); err != nil {
			return err
		}
	}
	for _, name := range []string{lockName, metaName} {
		f, err := dir.OpenFile(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return s.trash.Rename(id, s.spare, id)
}

func ignoreExist(err error) error {
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// SpareJournal is the path of the preallocated journal; commits move it into
// the branch's directory, and do without if another one was faster.
func (s *Store) SpareJournal() string { return s.Path() + "/" + spareJournal }
