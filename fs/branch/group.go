package branch

import (
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// Group is the branches that were made together, of which at most one commits.
// On disk it is groups/ID: the file meta, and a lock.
type Group struct {
	Version int      `json:"version"`
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Members []string `json:"members"` // ids; index 1 first
	// Winner is the id of the member that was chosen, "" while nobody was.
	Winner     string `json:"winner"`
	WinnerName string `json:"winner_name"`
	// Epoch counts the commits of members; members note it at the fork.
	Epoch uint64 `json:"epoch"`
}

// CreateGroup makes count branches, NAME.1 to NAME.count, of one origin and
// one stamp: all, or none. Until the group's own file is there, which comes
// last, its members are no branches.
func (s *Store) CreateGroup(opts CreateOptions, count int) ([]*Branch, error) {
	if count < 1 {
		return nil, fmt.Errorf("create a group of %d branches", count)
	}
	if opts.Name != "" {
		if err := CheckName(opts.Name); err != nil {
			return nil, err
		}
	}
	var list []*Branch
	err := holding(s.dir, lockName, func() (err error) {
		if list, err = s.create(opts, count); err != nil {
			return err
		}
		return s.publishGroup(list)
	})
	if err != nil {
		return nil, fmt.Errorf("create group: %w", err)
	}
	return list, nil
}

func (s *Store) publishGroup(list []*Branch) error {
	name := list[0].Name[:len(list[0].Name)-len(".1")]
	g := Group{Version: metaFormat, ID: newID(), Name: name}
	for _, b := range list {
		g.Members = append(g.Members, b.ID)
	}
	dropFrom := func(i int, err error) error {
		for j, b := range list {
			switch {
			case j < i:
				err = errors.Join(err, b.drop(s.branches))
			case j > i: // publish has dropped the one that it stopped at
				err = errors.Join(err, b.drop(s.spare))
			}
		}
		return err
	}
	if err := s.groups.Mkdir(g.ID, 0o700); err != nil {
		return dropFrom(-1, err)
	}
	for i, b := range list {
		b.Group, b.Epoch = g.ID, g.Epoch
		if err := s.publish(b); err != nil {
			return dropFrom(i, err)
		}
	}
	if err := s.writeGroup(g, false); err != nil {
		return dropFrom(len(list), err)
	}
	return nil
}

func (s *Store) writeGroup(g Group, durable bool) error {
	data, err := json.Marshal(g)
	if err != nil {
		return err
	}
	dir, err := s.groups.Sub(g.ID)
	if err != nil {
		return err
	}
	defer dir.Close()
	return replaceFile(dir, metaName, data, durable)
}

// groupIsWhole is ENOENT for a group that a crash kept from coming into being.
func (s *Store) groupIsWhole(id string) error {
	if id == "" {
		return nil
	}
	dir, err := s.groups.Sub(id)
	if err != nil {
		return err
	}
	defer dir.Close()
	_, err = dir.Stat(metaName)
	return err
}

// GroupOf reads the group of b; nil if it has none.
func (b *Branch) GroupOf() (*Group, error) {
	if b.Group == "" {
		return nil, nil
	}
	dir, err := b.store.groups.Sub(b.Group)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	g, err := readGroup(dir, b.Group)
	return &g, err
}

func readGroup(dir *sys.Dir, id string) (Group, error) {
	data, err := readFile(dir, metaName, maxMeta)
	if err != nil {
		return Group{}, err
	}
	var g Group
	if err := json.Unmarshal(data, &g); err != nil {
		return g, fmt.Errorf("read %s/%s: %w", dir.Name(), metaName, err)
	}
	if g.Version > metaFormat {
		return g, fmt.Errorf("read %s/%s: written by a newer try: format %d", dir.Name(), metaName, g.Version)
	}
	if g.ID != id {
		return g, fmt.Errorf("read %s/%s: not this group's", dir.Name(), metaName)
	}
	return g, nil
}

// inGroup calls f with the group of b under the group's lock, and writes it
// back, durably, if f says so.
func (b *Branch) inGroup(f func(*Group) (changed bool, err error)) error {
	dir, err := b.store.groups.Sub(b.Group)
	if err != nil {
		return err
	}
	defer dir.Close()
	return holding(dir, lockName, func() error {
		g, err := readGroup(dir, b.Group)
		if err != nil {
			return err
		}
		changed, err := f(&g)
		if err != nil || !changed {
			return err
		}
		return b.store.writeGroup(g, true)
	})
}

// stale says whether g was decided for another member than b.
func (b *Branch) stale(g *Group) error {
	if g.Winner != "" && g.Winner != b.ID || g.Epoch > b.Epoch && g.Winner != b.ID {
		return &StaleError{Branch: b.Name, Winner: g.WinnerName}
	}
	return nil
}

// Decide chooses b of its group. It is one durable act: of any number that
// try, in any number of processes, one succeeds, and the others get a
// *StaleError for ever. The one that was chosen may ask again. A branch
// without a group is free.
func (b *Branch) Decide() error {
	if b.Group == "" {
		return nil
	}
	err := b.inGroup(func(g *Group) (bool, error) {
		if err := b.stale(g); err != nil {
			return false, err
		}
		changed := g.Winner != b.ID
		g.Winner, g.WinnerName = b.ID, b.Name
		return changed, nil
	})
	if err != nil {
		return fmt.Errorf("decide for %s: %w", b.Name, err)
	}
	return nil
}

// Undecide takes the decision for b back, because its commit met a conflict and
// the next success may try. Once a member's commit is sealed nothing is taken
// back.
func (b *Branch) Undecide() error {
	if b.Group == "" {
		return nil
	}
	err := b.inGroup(func(g *Group) (bool, error) {
		if g.Winner != b.ID || g.Epoch > b.Epoch {
			return false, nil
		}
		g.Winner, g.WinnerName = "", ""
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("take back the decision for %s: %w", b.Name, err)
	}
	return nil
}

// RaiseEpoch says that b's commit is sealed. It may be said twice.
func (b *Branch) RaiseEpoch() error {
	if b.Group == "" {
		return nil
	}
	err := b.inGroup(func(g *Group) (bool, error) {
		if err := b.stale(g); err != nil || g.Epoch > b.Epoch {
			return false, err
		}
		g.Winner, g.WinnerName, g.Epoch = b.ID, b.Name, b.Epoch+1
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("raise the epoch of %s: %w", b.Name, err)
	}
	return nil
}

// CheckStale is a *StaleError if b's group was decided for another member.
func (b *Branch) CheckStale() error {
	g, err := b.GroupOf()
	if err != nil || g == nil {
		return err
	}
	return b.stale(g)
}

// sweepGroups removes groups without members. Under the store's lock.
func (s *Store) sweepGroups() error {
	entries, err := s.groups.Entries()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		alive, err := s.groupIsAlive(e.Name)
		if err != nil {
			errs = append(errs, err)
		} else if !alive {
			errs = append(errs, s.groups.Rename(e.Name, s.trash, newID()))
		}
	}
	return errors.Join(errs...)
}

func (s *Store) groupIsAlive(id string) (bool, error) {
	dir, err := s.groups.Sub(id)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	g, err := readGroup(dir, id)
	if errors.Is(err, unix.ENOENT) {
		return false, nil // a crash came before the group was whole
	}
	if err != nil {
		return true, err
	}
	for _, m := range g.Members {
		if alive, err := s.isBranch(m); err != nil || alive {
			return alive, err
		}
	}
	return false, nil
}
