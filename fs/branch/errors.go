package branch

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

var (
	// ErrLocked says that another process holds the branch: it is running, or
	// being settled.
	ErrLocked = errors.New("in use by another try")
	// ErrUnknown says that there is no branch of that name.
	ErrUnknown = errors.New("no such branch")
	// ErrExists says that the name is taken.
	ErrExists = errors.New("a branch of this name exists")
	// ErrForeign says that the branch belongs to another machine that shares
	// the store; it is listed and otherwise left alone.
	ErrForeign = errors.New("belongs to another machine")
	// ErrStale says that a branch's group has been decided for another
	// member. It is ESTALE; a *StaleError names the winner.
	ErrStale = fmt.Errorf("another branch of its group was chosen: %w", unix.ESTALE)
)

// StaleError is ErrStale with the names.
type StaleError struct {
	Branch, Winner string
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("branch %s is stale: %s was chosen of its group", e.Branch, e.Winner)
}

// Unwrap makes errors.Is find ErrStale and ESTALE.
func (e *StaleError) Unwrap() error { return ErrStale }

// Untrusted says why a directory cannot be, or hold, a store.
type Untrusted struct {
	Path, Why, Help string
}

func (e *Untrusted) Error() string { return fmt.Sprintf("store: %s: %s", e.Path, e.Why) }

// Hint is what the user can do about it.
func (e *Untrusted) Hint() string { return e.Help }
