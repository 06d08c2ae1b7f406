package branch

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// Recycle drops a branch in whose session nothing was written: what was made
// for it becomes the spare skeleton again, so that neither a child has to
// empty a trash nor the next run to make directories. It is only a quicker
// Discard, which does it where anything is not as it was made.
func (b *Branch) Recycle() error {
	b.errand.end()
	ok, err := b.pristine()
	if err != nil {
		return fmt.Errorf("recycle branch %s: %w", b.Name, err)
	}
	if !ok {
		return b.Discard()
	}
	// In spare/, with metadata, it is a draft that a crash left: the sweep
	// throws it away. Without, it is a skeleton.
	err = holding(b.store.dir, lockName, func() error {
		if err := b.store.branches.Rename(b.ID, b.store.spare, b.ID); err != nil {
			return err
		}
		f, err := b.dir.OpenFile(metaName, unix.O_WRONLY|unix.O_TRUNC, 0)
		if err != nil {
			return err
		}
		return f.Close()
	})
	if err := errors.Join(err, b.Close()); err != nil {
		return fmt.Errorf("recycle branch %s: %w", b.Name, err)
	}
	return nil
}

// pristine makes the directories as they were in the skeleton, and says
// whether they are.
func (b *Branch) pristine() (bool, error) {
	if b.Group != "" || len(b.storesUsed()) > 1 || len(b.Roots) > spareLayers {
		return false, nil
	}
	if spares, err := b.store.spare.Entries(); err != nil || len(spares) > 0 {
		return false, err
	}
	entries, err := b.dir.Entries()
	if err != nil || len(entries) != 2+2*spareLayers { // lock, meta
		return false, err
	}
	// A killed session's mount points would be there as long as the skeleton.
	further, err := b.store.entries()
	if err != nil {
		return false, err
	}
	for _, e := range further {
		p, err := b.store.openFurther(e.ID)
		if err != nil {
			return false, nil //lint:allow error what cannot be opened is for the sweep to judge
		}
		if _, err := p.dir.Stat(b.ID); !errors.Is(err, unix.ENOENT) {
			return false, err
		}
	}
	for i := range b.Roots {
		ok, err := blank(b.dir, upperName(i))
		if err == nil && ok {
			ok, err = setAside(b.dir, workName(i))
		}
		if err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// blank says that a layer holds nothing, and strips it of what its root had.
func blank(d *sys.Dir, name string) (bool, error) {
	layer, err := d.Sub(name)
	if err != nil {
		return false, err
	}
	defer layer.Close()
	st, err := layer.Stat("")
	if err != nil {
		return false, err
	}
	if st.Mode&0o700 != 0o700 {
		return false, nil
	}
	entries, err := layer.Entries()
	if err != nil || len(entries) > 0 {
		return false, err
	}
	attrs, err := layer.XattrNames("")
	for _, attr := range attrs {
		err = errors.Join(err, layer.RemoveXattr("", attr))
	}
	return err == nil, err
}

// asideName is what overlayfs made in a work directory in the run before.
const asideName = "old"

// setAside makes a work directory empty for the next run. What overlayfs made
// there is only moved: to remove a directory takes a file system that is mounted
// with discard as long as all else that is done for an empty branch. Meanwhile
// does it while the next command runs.
func setAside(d *sys.Dir, name string) (bool, error) {
	work, err := d.Sub(name)
	if err != nil {
		return false, err
	}
	defer work.Close()
	err = work.Rename("work", work, asideName)
	if errors.Is(err, unix.EEXIST) { // that run was too short
		return idle(work, "work")
	}
	if errors.Is(err, unix.ENOENT) { // never mounted
		return true, nil
	}
	if err != nil {
		return false, err
	}
	// Who removes the store by hand must not meet closed directories.
	st, err := work.Stat(asideName)
	if err != nil || !st.IsDir() {
		return false, err
	}
	aside, err := openUp(work, asideName, st)
	if err != nil {
		return false, err
	}
	defer aside.Close()
	marks, err := openMarks(aside)
	return err == nil, errors.Join(err, closeMarks(marks))
}

// errand is what goes on beside a command.
type errand struct {
	stop atomic.Bool
	done chan struct{} // nil: none was begun
}

// end lets it end as soon as it can.
func (e *errand) end() {
	if e.done != nil {
		e.stop.Store(true)
		<-e.done
		e.done = nil
	}
}

// Meanwhile begins, beside the command, what nobody has to wait for. For a commit
// it looks for the newest record, which saves Announce the time. And it removes
// what the run before has set aside in the skeleton that this branch was made
// of. It ends by itself, or before the branch is kept, recycled or closed; what is
// left the next run removes.
func (b *Branch) Meanwhile(commit bool) {
	var names []string
	for i := range b.Roots {
		if b.Roots[i].Store == "" {
			names = append(names, workName(b.Roots[i].Number))
		}
	}
	b.errand.done = make(chan struct{})
	go func(d *sys.Dir) {
		defer close(b.errand.done)
		if commit {
			if n, err := b.store.newestRecord(); err == nil {
				b.newest.Store(n + 1)
			}
		}
		for _, name := range names {
			if b.errand.stop.Load() {
				return
			}
			if work, err := d.Sub(name); err == nil {
				_, _ = idle(work, asideName) // the next run tries again
				work.Close()
			}
		}
	}(b.dir)
}

// idle removes what overlayfs made in the work directory d, if nothing else is in
// it: a directory of mode 000, and in it the mark of a volatile mount.
func idle(d *sys.Dir, name string) (bool, error) {
	st, err := d.Stat(name)
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	if err != nil || !st.IsDir() {
		return false, err
	}
	inner, err := openUp(d, name, st)
	if err != nil {
		return false, err
	}
	defer inner.Close()
	if err := unmark(inner); err != nil {
		return false, err
	}
	err = d.Rmdir(name)
	if errors.Is(err, unix.ENOTEMPTY) {
		return false, nil
	}
	return err == nil, err
}

// markNames lead from what overlayfs makes in a work directory to the mark of a
// volatile mount. Each is of mode 000.
var markNames = []string{"incompat", "volatile"}

// openMarks opens them, as far as they are there.
func openMarks(d *sys.Dir) (marks []*sys.Dir, err error) {
	for _, name := range markNames {
		st, err := d.Stat(name)
		if errors.Is(err, unix.ENOENT) {
			break
		}
		if err == nil {
			d, err = openUp(d, name, st)
		}
		if err != nil {
			return nil, errors.Join(err, closeMarks(marks))
		}
		marks = append(marks, d)
	}
	return marks, nil
}

func closeMarks(marks []*sys.Dir) (err error) {
	for _, d := range marks {
		err = errors.Join(err, d.Close())
	}
	return err
}

// unmark removes incompat/volatile/dirty. What else may be there stays, and so
// does all above it.
func unmark(d *sys.Dir) error {
	marks, err := openMarks(d)
	if err != nil {
		return err
	}
	if len(marks) == len(markNames) {
		if err = marks[len(marks)-1].Unlink("dirty"); errors.Is(err, unix.ENOENT) {
			err = nil
		}
	}
	for i := len(marks) - 1; i >= 0 && err == nil; i-- {
		above := d
		if i > 0 {
			above = marks[i-1]
		}
		if err = above.Rmdir(markNames[i]); errors.Is(err, unix.ENOTEMPTY) {
			err = nil
		}
	}
	return errors.Join(err, closeMarks(marks))
}

// Untidy says that Tidy has something to do: trash, or a spare that is missing.
func (s *Store) Untidy() (bool, error) {
	for _, d := range []*sys.Dir{s.trash, s.spare} {
		entries, err := d.Entries()
		if err != nil || (len(entries) == 0) == (d == s.spare) {
			return true, err
		}
	}
	_, err := s.dir.Stat(spareJournal)
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	return false, err
}
