package branch

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Pending lists the ids of the branches in which a commit has begun: recovery
// decides about them before anything else is done. It takes no lock.
func (s *Store) Pending() ([]string, error) {
	entries, err := s.branches.Entries()
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if !isID(e.Name) {
			continue
		}
		_, err := s.branches.Stat(e.Name + "/" + journalName)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, e.Name)
	}
	return list, nil
}

// ForgetJournal removes the journal of a commit that was taken back. The
// commit lock is held.
func (b *Branch) ForgetJournal() error {
	err := b.dir.Unlink(journalName)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return errors.Join(err, b.dir.Sync())
}
