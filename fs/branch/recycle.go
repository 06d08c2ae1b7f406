package branch

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// Recycle drops a branch in whose session nothing was written: what was made
// for it becomes the spare skeleton again, so that neither a child has to
// empty a trash nor the next run to make directories. It is only a quicker
// Discard, which does it where anything is not as it was made.
func (b *Branch) Recycle() error {
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
			ok, err = idle(b.dir, workName(i))
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

// idle removes what overlayfs made in a work directory, if nothing else is in
// it: work, mode 000, and in it the mark of a volatile mount.
func idle(d *sys.Dir, name string) (bool, error) {
	work, err := d.Sub(name)
	if err != nil {
		return false, err
	}
	defer work.Close()
	st, err := work.Stat("work")
	if errors.Is(err, unix.ENOENT) {
		return true, nil // never mounted
	}
	if err != nil || !st.IsDir() {
		return false, err
	}
	inner, err := openUp(work, "work", st)
	if err != nil {
		return false, err
	}
	defer inner.Close()
	if err := unmark(inner); err != nil {
		return false, err
	}
	err = work.Rmdir("work")
	if errors.Is(err, unix.ENOTEMPTY) {
		return false, nil
	}
	return err == nil, err
}

// unmark removes incompat/volatile/dirty, each directory of which is mode 000
// too. What else may be there stays, and so does all above it.
func unmark(d *sys.Dir) error {
	names := []string{"incompat", "volatile"}
	at := []*sys.Dir{d}
	defer func() {
		for _, d := range at[1:] {
			d.Close()
		}
	}()
	for i, name := range names {
		st, err := at[i].Stat(name)
		if errors.Is(err, unix.ENOENT) {
			break
		}
		if err != nil {
			return err
		}
		sub, err := openUp(at[i], name, st)
		if err != nil {
			return err
		}
		at = append(at, sub)
	}
	if len(at) > len(names) {
		if err := at[len(names)].Unlink("dirty"); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	for i := len(at) - 2; i >= 0; i-- {
		if err := at[i].Rmdir(names[i]); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	return nil
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
