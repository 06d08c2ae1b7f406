package commit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/fs/vfs"
)

const (
	journalName = "journal"
	journalNew  = "journal.new"
)

// file is a journal that is being written.
type file struct {
	fs      vfs.FS
	f       vfs.File
	dir     *sys.Dir
	name    string
	id      journalID
	length  int64
	records uint32
	sum     [sha256.Size]byte
}

// create writes j's body into dir's journal of that name, whose head stays
// blank: nothing of it counts yet. spare, if it is there and blank, becomes the journal.
// Neither bytes nor name are durable when it returns.
func create(fs vfs.FS, dir *sys.Dir, name string, j *journal, spare string) (*file, error) {
	fail := func(err error) (*file, error) { return nil, fmt.Errorf("write the journal: %w", err) }
	took, err := takeSpare(fs, dir, name, spare)
	if err != nil {
		return fail(err)
	}
	at, flags := name, unix.O_WRONLY
	if !took {
		at, flags = journalNew, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC
	}
	f, err := fs.Open(dir, at, flags, 0o600)
	if err != nil {
		return fail(err)
	}
	out := &file{fs: fs, f: f, dir: dir, name: name, id: j.id}
	if err := out.write(j); err != nil {
		return fail(errors.Join(err, f.Close()))
	}
	if !took {
		if err := fs.Replace(dir, journalNew, dir, name); err != nil {
			return fail(errors.Join(err, f.Close()))
		}
	}
	return out, nil
}

// takeSpare renames the preallocated file to its place, over a journal that is
// done. Only a blank one is taken: its front must stay blank until the head.
func takeSpare(fs vfs.FS, dir *sys.Dir, journal, spare string) (bool, error) {
	if spare == "" {
		return false, nil
	}
	d, err := sys.OpenDir(filepath.Dir(spare))
	if err != nil {
		return false, err
	}
	defer d.Close()
	name := filepath.Base(spare)
	f, err := d.OpenFile(name, unix.O_RDONLY, 0)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	front := make([]byte, bodyAt)
	n, err := f.ReadAt(front, 0)
	if err := errors.Join(f.Close()); err != nil {
		return false, err
	}
	if err != nil || n < bodyAt || !blank(front) {
		return false, nil // no spare of ours: it is left to whoever made it
	}
	return true, fs.Replace(d, name, dir, journal)
}

func (o *file) write(j *journal) error {
	h := sha256.New()
	at := int64(bodyAt)
	var failed error
	flush := func(b []byte) []byte {
		if failed == nil {
			h.Write(b)
			_, failed = o.f.WriteAt(b, at)
			at += int64(len(b))
		}
		return b[:0]
	}
	b, records := j.body(make([]byte, 0, 64<<10), flush)
	flush(b)
	o.f.Begin()
	h.Sum(o.sum[:0])
	o.length, o.records = at-bodyAt, records
	return failed
}

// commit writes the head and syncs it: the commit point. Body and name must be
// durable. If it fails the journal is taken away again, so that what is or is
// not on the disk by then means nothing; only if that fails too is the outcome
// open, and the error is ErrUnfinished.
func (o *file) commit() error {
	_, err := o.f.WriteAt(headSector(o.id, o.length, o.records, o.sum), 0)
	if err == nil {
		err = o.f.Sync()
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("write the journal: %w", err)
	if e := o.fs.Remove(o.dir, o.name, false); e != nil {
		return errors.Join(err, ErrUnfinished, e)
	}
	if e := o.fs.SyncDir(o.dir); e != nil {
		// The name may come back with a head that holds: then recovery applies
		// all of it. Nothing has been applied so far.
		return errors.Join(err, e)
	}
	return err
}

// turn makes it durable that the way is back now, and why.
func (o *file) turn(why Conflict) error {
	_, err := o.f.WriteAt(turnSector(o.id, o.records, causeOf(why)), sector)
	if err == nil {
		err = o.f.Sync()
	}
	if err != nil {
		return fmt.Errorf("turn the journal: %w", err)
	}
	return nil
}

// done notes that nothing is left to do. lazy: it need not be durable by itself,
// see [world.lazy].
func (o *file) done(s state, lazy bool) error {
	_, err := o.f.WriteAt(doneSector(o.id, o.records, s), 2*sector)
	if err == nil && !lazy {
		err = o.f.Sync()
	}
	if err != nil {
		return fmt.Errorf("finish the journal: %w", err)
	}
	return nil
}

// reopen opens a journal that was read, to finish it. It is synced first: what
// was read may be in memory only, since who wrote it died before its sync.
func reopen(fs vfs.FS, dir *sys.Dir, name string, j *journal) (*file, error) {
	f, err := fs.Open(dir, name, unix.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &file{fs: fs, f: f, dir: dir, name: name, id: j.id, records: uint32(len(j.steps) + 1)}, nil
}
