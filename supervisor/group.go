package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"try/fs/branch"
)

// Members lists the names of the branches that are left of the group called
// name, in their order; none if there is no such group.
func (h *Home) Members(name string) ([]string, error) {
	list, err := h.store.Branches()
	if err != nil {
		return nil, err
	}
	var members []string
	for _, b := range membersOf(list, name) {
		members = append(members, b.Name)
	}
	return members, nil
}

// membersOf picks the members of a group from a listing.
func membersOf(list []branch.Info, name string) []branch.Info {
	byIndex := map[int]branch.Info{}
	last := 0
	for _, b := range list {
		if b.Err == nil && b.Group != "" && b.Name == name+"."+strconv.Itoa(b.Index) {
			byIndex[b.Index] = b
			last = max(last, b.Index)
		}
	}
	var members []branch.Info
	for i := range last + 1 {
		if b, ok := byIndex[i]; ok {
			members = append(members, b)
		}
	}
	return members
}

// isInterrupted says that the branch's supervisor died.
func isInterrupted(b *branch.Info) bool {
	return b.Err == nil && !b.Foreign && !b.Journal && (b.State == branch.Interrupted || b.State == branch.Damaged)
}

// clearStale drops what a killed race has left of losers: their group was
// decided, so that they can never be committed, and nobody asked to keep them.
func clearStale(s *branch.Store) error {
	list, err := s.Branches()
	if err != nil {
		return err
	}
	var errs []error
	for i := range list {
		if list[i].Group == "" || !isInterrupted(&list[i]) {
			continue
		}
		errs = append(errs, dropIfStale(s, list[i].ID))
	}
	return errors.Join(errs...)
}

// hasGroups says that there may be something for clearStale.
func (h *Home) hasGroups() bool {
	entries, err := os.ReadDir(filepath.Join(h.store.Path(), "groups"))
	return err == nil && len(entries) > 0
}

func dropIfStale(s *branch.Store, id string) error {
	b, err := s.Open(id)
	if errors.Is(err, branch.ErrLocked) || errors.Is(err, branch.ErrUnknown) {
		return nil // somebody settles it
	}
	if err != nil {
		return err
	}
	stale := b.CheckStale()
	if errors.Is(stale, branch.ErrStale) && (b.State == branch.Interrupted || b.State == branch.Damaged) {
		return errors.Join(b.SetState(branch.Aborted), b.Discard())
	}
	if errors.Is(stale, branch.ErrStale) {
		stale = nil
	}
	return errors.Join(stale, b.Close())
}

// offerInterrupted says what killed races have left in a directory and nobody
// has decided about.
func (h *Home) offerInterrupted(dir string, ui UI) {
	list, err := h.store.Branches()
	if err != nil {
		return // what cannot be listed is said by try branches
	}
	left := map[string]int{}
	var names []string
	for i := range list {
		b := &list[i]
		if b.Group == "" || b.Dir != dir || !isInterrupted(b) {
			continue
		}
		name := strings.TrimSuffix(b.Name, "."+strconv.Itoa(b.Index))
		if left[name]++; left[name] == 1 {
			names = append(names, name)
		}
	}
	for _, name := range names {
		ui.Warn(fmt.Sprintf("race %s was interrupted, %d of its branches are left: try branches lists them, try abort %s drops them", name, left[name], name))
	}
}

// NoLogError says that a branch wrote to the terminal, not to a log.
type NoLogError struct{ Branch string }

func (e *NoLogError) Error() string { return "branch " + e.Branch + " has no log" }

// Hint says which branches have one.
func (e *NoLogError) Hint() string {
	return "only a race keeps what its variants write, until they are settled"
}

// Log opens what a variant has written until now. It takes no lock: a race
// that still runs may be looked at.
func (h *Home) Log(name string) (*Log, error) {
	list, err := h.store.Branches()
	if err != nil {
		return nil, err
	}
	for _, b := range list {
		if b.Err != nil || b.Name != name && b.ID != name {
			continue
		}
		l, err := openLog(filepath.Join(h.store.Path(), "branches", b.ID))
		if errors.Is(err, os.ErrNotExist) {
			return nil, &NoLogError{b.Name}
		}
		if err != nil {
			return nil, fmt.Errorf("read the log of %s: %w", b.Name, err)
		}
		return l, nil
	}
	return nil, &UnknownBranchError{Name: name}
}
