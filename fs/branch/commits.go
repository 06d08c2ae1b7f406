package branch

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// CommitList is what one commit changed. Change times alone do not tell: the
// files of a directory that was moved into place keep theirs (H5).
type CommitList struct {
	Number uint64
	Branch string   // id
	Name   string   // of the branch, for messages
	Paths  []string // absolute
}

// A list is the file commits/NUMBER.ID, or NUMBER.ID.open until the commit is
// sealed: NUMBER is 16 hexadecimal digits, ID the branch's.
const openSuffix = ".open"

type commitFile struct {
	number uint64
	id     string
	open   bool
	name   string
}

func (s *Store) commitFiles() ([]commitFile, error) {
	entries, err := s.commits.Entries()
	if err != nil {
		return nil, err
	}
	var list []commitFile
	for _, e := range entries {
		if c, ok := parseCommit(e.Name); ok {
			list = append(list, c)
		}
	}
	return list, nil
}

func parseCommit(name string) (commitFile, bool) {
	stem, open := strings.CutSuffix(name, openSuffix)
	digits, id, ok := strings.Cut(stem, ".")
	n, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil || len(digits) != 16 || !isID(id) {
		return commitFile{}, false
	}
	return commitFile{n, id, open, name}, true
}

// seen is the number that a fork notes: of the last commit that it sees whole.
// One that is being applied is not seen, whatever of it is there already. The
// store's lock is held.
func (s *Store) seen() (uint64, error) {
	list, err := s.commitFiles()
	if err != nil {
		return 0, err
	}
	last, firstOpen := uint64(0), ^uint64(0)
	for _, c := range list {
		last = max(last, c.number)
		if c.open {
			firstOpen = min(firstOpen, c.number)
		}
	}
	return min(last, firstOpen-1), nil
}

// Announce numbers the commit of b that is about to be applied and leaves its
// paths, so that every branch that was forked before its end compares them.
// The commit lock is held. Sealed or Withdrawn follows, by whoever recovers if
// not by us.
func (b *Branch) Announce(paths []string) error {
	n, err := b.store.announce(b.ID, b.Name, paths, b.Commits, b.newest.Load(), false)
	if err != nil {
		return fmt.Errorf("announce the commit of %s: %w", b.Name, err)
	}
	b.number = n
	return nil
}

// announce numbers what the branch or record id is about to apply; the number
// is greater than after. Of records newest says what a branch's does.
func (s *Store) announce(id, name string, paths []string, after, newest uint64, durable bool) (number uint64, err error) {
	list := make([]text, len(paths))
	for i, p := range paths {
		list[i] = text(p)
	}
	data, err := json.Marshal(struct {
		Name  string `json:"name"`
		Paths []text `json:"paths"`
	}{name, list})
	if err != nil {
		return 0, err
	}
	err = holding(s.dir, lockName, func() error {
		files, err := s.commitFiles()
		if err != nil {
			return err
		}
		if number, err = s.nextNumber(files, id, after, newest); err != nil {
			return err
		}
		for _, c := range files {
			if c.id == id && c.open { // of an attempt that was rolled back by a crash
				if err := s.commits.Unlink(c.name); err != nil {
					return err
				}
			}
		}
		return replaceFile(s.commits, fmt.Sprintf("%016x.%s%s", number, id, openSuffix), data, durable)
	})
	return number, err
}

// nextNumber is greater than after, what branch or record id knows of, and than
// the number of any commit. After a loss of power lists may be gone which
// branches still refer to, or by which records are numbered. The store's lock is
// held.
func (s *Store) nextNumber(files []commitFile, id string, after, newest uint64) (uint64, error) {
	for _, c := range files {
		after = max(after, c.number)
	}
	others, err := s.branches.Entries()
	if err == nil && slices.ContainsFunc(others, func(e sys.Dirent) bool { return e.Name != id }) {
		var infos []Info
		infos, err = s.Branches()
		for _, info := range infos {
			after = max(after, info.Commits)
		}
	}
	if err != nil {
		return 0, err
	}
	if newest == 0 {
		n, err := s.newestRecord()
		if err != nil {
			return 0, err
		}
		newest = n + 1
	}
	return max(after, newest-1) + 1, nil
}

// newestRecord is the number of the newest record, 0 if there is none.
func (s *Store) newestRecord() (uint64, error) {
	records, err := s.Records()
	if err != nil || len(records) == 0 {
		return 0, err
	}
	return records[0].Number, nil
}

// Sealed says that the announced commit is whole: later forks see it.
func (b *Branch) Sealed() error { return b.store.sealed(b.ID) }

func (s *Store) sealed(id string) error {
	return s.closeList(id, func(c commitFile) error {
		return s.commits.Replace(c.name, s.commits, strings.TrimSuffix(c.name, openSuffix))
	})
}

// Withdrawn says that the announced commit did not happen.
func (b *Branch) Withdrawn() error { return b.store.withdrawn(b.ID) }

func (s *Store) withdrawn(id string) error { return s.closeList(id, s.withdraw) }

func (s *Store) closeList(id string, do func(commitFile) error) error {
	return holding(s.dir, lockName, func() error { return s.closeListOf(id, do) })
}

// closeListOf closes a branch's open list. The store's lock is held.
func (s *Store) closeListOf(id string, do func(commitFile) error) error {
	files, err := s.commitFiles()
	if err != nil {
		return err
	}
	for _, c := range files {
		if c.id == id && c.open {
			if err := do(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// withdraw drops a list of a commit that did not happen.
func (s *Store) withdraw(c commitFile) error { return s.commits.Unlink(c.name) }

// Since lists the commits that the fork of b has not seen, b's own and those of
// its parts left out.
func (b *Branch) Since() ([]CommitList, error) {
	s := b.store
	var lists []CommitList
	err := holding(s.dir, lockName, func() error {
		files, err := s.commitFiles()
		if err != nil {
			return err
		}
		for _, c := range files {
			if c.number <= b.Commits || c.id == b.ID || slices.Contains(b.Own, c.id) || c.open && b.isPart(c.id) {
				continue
			}
			data, err := readFile(s.commits, c.name, maxMeta*16)
			if err != nil {
				return err
			}
			var content struct {
				Name  string `json:"name"`
				Paths []text `json:"paths"`
			}
			if err := json.Unmarshal(data, &content); err != nil {
				return fmt.Errorf("read %s/%s: %w", s.commits.Name(), c.name, err)
			}
			l := CommitList{Number: c.number, Branch: c.id, Name: content.Name}
			for _, p := range content.Paths {
				l.Paths = append(l.Paths, string(p))
			}
			lists = append(lists, l)
		}
		return nil
	})
	return lists, err
}

// isPart says that a draft is a part of b, or of what b is a part of. That its
// commit was begun and not done, as that branch's lock shows, is no commit.
func (b *Branch) isPart(id string) bool {
	dir, err := b.store.branches.Sub(id)
	if err != nil {
		return false
	}
	defer dir.Close()
	m, err := readMeta(dir)
	return err == nil && m.Rest != nil && (m.Rest.Of == b.ID || b.Rest != nil && m.Rest.Of == b.Rest.Of)
}

// sweepCommits removes the lists that no branch is older than. The last one
// stays, emptied, as the counter. Under the store's lock.
func (s *Store) sweepCommits() error {
	files, err := s.commitFiles()
	if err != nil {
		return err
	}
	infos, err := s.Branches()
	if err != nil {
		return err
	}
	oldest, last := ^uint64(0), uint64(0)
	for _, info := range infos {
		if info.Err == nil {
			oldest = min(oldest, info.Commits)
		} else {
			oldest = 0 // it may be older than anything
		}
	}
	for _, c := range files {
		last = max(last, c.number)
	}
	for _, c := range files {
		if c.open {
			alive, err := s.isAlive(c.id)
			if err != nil {
				return err
			}
			if alive {
				continue
			}
			// Nobody is left who could say how it ended: it counts as whole.
			sealed := strings.TrimSuffix(c.name, openSuffix)
			if err := s.commits.Replace(c.name, s.commits, sealed); err != nil {
				return err
			}
			c.name = sealed
		}
		if c.number > oldest {
			continue
		}
		if c.number == last {
			err = s.shrinkList(c)
		} else {
			err = s.commits.Unlink(c.name)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return s.sweepTemporaryIn(s.commits, func(name string) bool { _, ok := parseCommit(name); return ok })
}

func (s *Store) shrinkList(c commitFile) error {
	const empty = `{"name":"","paths":[]}`
	st, err := s.commits.Stat(c.name)
	if err != nil || st.Size <= int64(len(empty)) {
		return err
	}
	return replaceFile(s.commits, c.name, []byte(empty), false)
}

// sweepTemporaryIn removes the files of d that are none of ours: temporary
// ones of writers that were killed. They are written under the store's lock.
func (s *Store) sweepTemporaryIn(d *sys.Dir, isOurs func(string) bool) error {
	entries, err := d.Entries()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !isOurs(e.Name) {
			errs = append(errs, d.Unlink(e.Name))
		}
	}
	return errors.Join(errs...)
}
