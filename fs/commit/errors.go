package commit

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrUnfinished says that a commit stopped after its commit point: [Recover]
// finishes it or rolls it back. Its cause is in the same chain.
var ErrUnfinished = errors.New("the commit is unfinished")

// Conflict is a path at which a branch cannot be committed, and why.
type Conflict struct {
	Root   string // absolute
	Path   string // below Root; "": the root itself
	Reason string
}

func (c Conflict) String() string {
	return filepath.Join(c.Root, c.Path) + ": " + c.Reason
}

// Restored is a path of the base that is as it was but for its change time.
type Restored struct{ Root, Path string }

// Left is a path that a roll-back left as somebody else had made it meanwhile.
type Left struct {
	Path string // absolute
	Why  string
	Kept string // where the entry lies that was there before the commit; "": there was none
}

// ConflictError says that a commit did not take place: nothing was applied, or
// all of it was taken back but for Left. The branch is as it was.
type ConflictError struct {
	Conflicts []Conflict
	Left      []Left
	// RolledBack says that something had been applied and was taken back.
	RolledBack bool
	// Restored is what of the base had been displaced or altered and is back:
	// its change times are those of the way back, see [Seen.Restored] and Root.
	Restored []Restored
	// Err is the refusal of a call, if that was the reason.
	Err error
}

func (e *ConflictError) Error() string {
	var b strings.Builder
	for i, c := range e.Conflicts {
		if i == 3 && len(e.Conflicts) > 4 {
			fmt.Fprintf(&b, "; and %d more", len(e.Conflicts)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(c.String())
	}
	for _, l := range e.Left {
		fmt.Fprintf(&b, "; %s: %s, left as it is", l.Path, l.Why)
		if l.Kept != "" {
			fmt.Fprintf(&b, " (what was there before is %s)", l.Kept)
		}
	}
	return b.String()
}

// Unwrap returns the refusal.
func (e *ConflictError) Unwrap() error { return e.Err }

// refusal is a conflict on its way up from a step.
type refusal struct {
	at     place
	reason string
	err    error // the call that refused; nil: something was not as expected
}

// neighbour says that somebody else has altered the directory in which the
// step acts, so that its times are theirs.
func (r *refusal) neighbour() bool {
	return r.reason == wasGone || r.reason == wasOther || errors.Is(r.err, unix.EEXIST) || absent(r.err)
}

// What an entry can be that is no longer the one known.
const (
	wasGone  = "no longer there"
	wasOther = "replaced by another"
)

func (r *refusal) Error() string { return r.at.path + ": " + r.reason }

func (r *refusal) Unwrap() error { return r.err }
