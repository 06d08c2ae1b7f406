package branch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/fs/vfs"
)

// RecordName is what is known of an undo record without opening it.
type RecordName struct {
	Number uint64 // of the commit: later ones have greater numbers, whatever the clock says
	ID     string // of the branch that was committed
}

func (n RecordName) String() string { return fmt.Sprintf("%016x.%s", n.Number, n.ID) }

func parseRecord(name string) (RecordName, bool) {
	c, ok := parseCommit(name)
	return RecordName{c.number, c.id}, ok && !c.open
}

// Record is an undo record: the directory of a branch whose commit is done, as
// it was then. In its layers and slots lies what the commit displaced, and the
// journal says where. Files in it may have other names in the base and are
// never written to (H15).
type Record struct {
	Meta
	Number uint64

	store *Store
	dir   *sys.Dir
	lock  *lock // nil: only looked at
}

// Retire makes an undo record of a branch whose commit is done: one rename, of
// all that the commit displaced, and the branch's name is free. What further
// stores hold of it stays where it is.
func (b *Branch) Retire() error {
	err := b.retire()
	if err := errors.Join(err, b.Close()); err != nil {
		return fmt.Errorf("keep what the commit of %s displaced: %w", b.Name, err)
	}
	return nil
}

func (b *Branch) retire() error {
	if b.State != Committed {
		return fmt.Errorf("it is %s", b.State)
	}
	s := b.store
	if b.number == 0 { // the commit was another process's
		err := holding(s.dir, lockName, func() (err error) {
			b.number, err = s.numberOf(b)
			return err
		})
		if err != nil {
			return err
		}
	}
	return s.branches.Rename(b.ID, s.undo, RecordName{b.number, b.ID}.String())
}

// numberOf is the number under which the commit of b was announced; after a
// loss of power that may be gone. The store's lock is held.
func (s *Store) numberOf(b *Branch) (uint64, error) {
	files, err := s.commitFiles()
	if err != nil {
		return 0, err
	}
	number := uint64(0)
	for _, c := range files {
		if c.id == b.ID {
			number = max(number, c.number)
		}
	}
	if number > 0 {
		return number, nil
	}
	return s.nextNumber(files, b.ID, b.Commits, 0)
}

// Records lists the undo records, the newest first. It takes no lock.
func (s *Store) Records() ([]RecordName, error) {
	entries, err := s.undo.Entries()
	if err != nil {
		return nil, err
	}
	var list []RecordName
	for _, e := range entries {
		if n, ok := parseRecord(e.Name); ok {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b RecordName) int {
		return cmp.Or(cmp.Compare(b.Number, a.Number), strings.Compare(a.ID, b.ID))
	})
	return list, nil
}

// LookAt opens a record for reading only. ErrUnknown if it is gone.
func (s *Store) LookAt(n RecordName) (*Record, error) {
	dir, err := s.undo.Sub(n.String())
	if errors.Is(err, unix.ENOENT) {
		err = ErrUnknown
	}
	if err != nil {
		return nil, err
	}
	r := &Record{Number: n.Number, store: s, dir: dir}
	r.Meta, err = readWhole(dir)
	if err == nil && r.ID != n.ID {
		err = fmt.Errorf("its metadata are those of %s", r.ID)
	}
	if err == nil {
		var machine string
		if machine, err = machineID(); err == nil && isForeign(r.Meta, machine) {
			err = ErrForeign
		}
	}
	if err != nil {
		return nil, fmt.Errorf("undo record %s: %w", n, errors.Join(err, dir.Close()))
	}
	return r, nil
}

// OpenRecord opens a record and takes its lock, or ErrLocked.
func (s *Store) OpenRecord(n RecordName) (*Record, error) {
	return s.openRecord(n, (*lock).try)
}

// WaitRecord is OpenRecord for who holds no lock, and so may wait: what is done
// behind a run measures and trims records. If that takes longer than a second
// waiting is called, once.
func (s *Store) WaitRecord(ctx context.Context, n RecordName, waiting func()) (*Record, error) {
	return s.openRecord(n, func(l *lock) error {
		err := l.try()
		if errors.Is(err, ErrLocked) {
			err = l.waitFor(ctx, func(string) { waiting() })
		}
		return err
	})
}

func (s *Store) openRecord(n RecordName, take func(*lock) error) (*Record, error) {
	r, err := s.LookAt(n)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*Record, error) {
		return nil, fmt.Errorf("undo record of %s: %w", r.Name, errors.Join(err, r.Close()))
	}
	if r.lock, err = existingLock(r.dir, lockName); err != nil {
		return fail(err)
	}
	if err := take(r.lock); err != nil {
		if ctxErr(err) {
			r.lock = nil // waitFor closes it
		}
		return fail(err)
	}
	here, err := r.dir.Stat("")
	if err != nil {
		return fail(err)
	}
	there, err := s.undo.Stat(n.String())
	if errors.Is(err, unix.ENOENT) || err == nil && there.Ino != here.Ino {
		err = ErrUnknown // taken away meanwhile
	}
	if err != nil {
		return fail(err)
	}
	return r, nil
}

func ctxErr(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Path is the record's directory in the home store, where its journals lie.
func (r *Record) Path() string { return r.dir.Name() }

// Announce numbers an undoing of the record's commit, or a redoing, that is
// about to be applied, and leaves its paths as the commit did. It is durable
// before anything is applied: it says which record recovery must look at. last
// is the number of the last one before. The commit lock and the record's are
// held; Sealed or Withdrawn follows.
func (r *Record) Announce(paths []string, last uint64) (uint64, error) {
	n, err := r.store.announce(r.ID, r.Name, paths, max(last, r.Number), 0, true)
	if err != nil {
		return 0, fmt.Errorf("announce the undoing of %s: %w", r.Name, err)
	}
	return n, nil
}

// Announced is the number of what was announced and is not closed, 0 if that is
// nothing.
func (r *Record) Announced() (uint64, error) {
	files, err := r.store.commitFiles()
	number := uint64(0)
	for _, c := range files {
		if c.id == r.ID && c.open {
			number = max(number, c.number)
		}
	}
	return number, err
}

// Sealed says that what was announced is whole.
func (r *Record) Sealed() error { return r.store.sealed(r.ID) }

// Withdrawn says that what was announced did not happen.
func (r *Record) Withdrawn() error { return r.store.withdrawn(r.ID) }

// Forget removes a journal of the record that was taken back, or never begun.
func (r *Record) Forget(journal string) error {
	err := r.dir.Unlink(journal)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return errors.Join(err, r.dir.Sync())
}

// Drop moves the record to the trash and closes it. What further stores hold of
// it is trash from then on. The commit lock and the record's are held.
func (r *Record) Drop(fs vfs.FS) error {
	fs.Part("gc")
	err := fs.Rename(r.store.undo, RecordName{r.Number, r.ID}.String(), r.store.trash, r.ID)
	if err == nil {
		var stores []string
		stores, err = r.furtherStores()
		for _, id := range stores {
			err = errors.Join(err, r.store.dropIn(id, r.ID))
		}
	}
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("drop the undo record of %s: %w", r.Name, err)
	}
	return nil
}

// furtherStores lists the further stores that hold something of the record: of
// its layers, or of what its commit displaced.
func (r *Record) furtherStores() ([]string, error) {
	entries, err := r.store.entries()
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		p, err := r.store.openFurther(e.ID)
		if err != nil {
			continue // gone, or not ours to touch
		}
		if _, err := p.dir.Stat(r.ID); err == nil {
			list = append(list, e.ID)
		}
	}
	return list, nil
}

// Close lets go of the record.
func (r *Record) Close() error {
	var errs []error
	if r.dir != nil {
		errs = append(errs, r.dir.Close())
		r.dir = nil
	}
	if r.lock != nil {
		errs = append(errs, r.lock.release())
		r.lock = nil
	}
	return errors.Join(errs...)
}

// PendingRecords lists the records of which an undoing or a redoing was
// announced and is not closed: recovery decides about them before anything
// else is done. It takes no lock, and looks at records only if there is one.
func (s *Store) PendingRecords() ([]RecordName, error) {
	files, err := s.commitFiles()
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(c commitFile) bool { return !c.open })
	if len(files) == 0 {
		return nil, nil
	}
	records, err := s.Records()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(records, func(n RecordName) bool {
		return !slices.ContainsFunc(files, func(c commitFile) bool { return c.id == n.ID })
	}), nil
}

// isRecord says whether an undo record of this id exists.
func (s *Store) isRecord(id string) (bool, error) {
	list, err := s.Records()
	return slices.ContainsFunc(list, func(n RecordName) bool { return n.ID == id }), err
}

// recordStores adds the further stores that records name.
func (s *Store) recordStores(used map[string]bool) error {
	list, err := s.Records()
	if err != nil {
		return err
	}
	for _, n := range list {
		dir, err := s.undo.Sub(n.String())
		if err != nil {
			continue // dropped meanwhile
		}
		m, err := readMeta(dir)
		dir.Close()
		if err != nil {
			return fmt.Errorf("undo record %s: %w", filepath.Join(s.undo.Name(), n.String()), err)
		}
		for _, root := range m.Roots {
			used[root.Store] = true
		}
	}
	return nil
}
