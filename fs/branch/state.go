package branch

import (
	"fmt"
	"slices"
)

// State says how far a branch is. On disk it is its name.
type State uint8

const (
	_           State = iota // an empty field is no state
	Running                  // a session holds its lock
	Kept                     // no session; changes wait
	Interrupted              // its supervisor died, on this boot: as good as kept
	Damaged                  // of another boot, never synced: may have holes
	Committing               // there is a journal, which says which way
	Committed                // the base holds the changes
	Aborted                  // the changes are gone
)

var stateNames = [...]string{
	Running: "running", Kept: "kept", Interrupted: "interrupted", Damaged: "damaged",
	Committing: "committing", Committed: "committed", Aborted: "aborted",
}

// moves lists what may follow what. What is not here is a bug.
var moves = map[State][]State{
	Running:     {Kept, Interrupted, Damaged, Committing, Aborted},
	Kept:        {Running, Committing, Aborted},
	Interrupted: {Kept, Committing, Aborted},
	Damaged:     {Kept, Aborted},
	// Kept: rolled back, the conflict is named. Running, Interrupted and
	// Damaged: the journal was never sealed, so nothing had begun.
	Committing: {Committed, Kept, Running, Interrupted, Damaged},
	Committed:  {},
	Aborted:    {},
}

func (s State) String() string {
	if s == 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", uint8(s))
	}
	return stateNames[s]
}

// MarshalText is the state's name; a state that is none is an error.
func (s State) MarshalText() ([]byte, error) {
	if s == 0 || int(s) >= len(stateNames) {
		return nil, fmt.Errorf("no branch state: %d", uint8(s))
	}
	return []byte(stateNames[s]), nil
}

// UnmarshalText accepts the names and nothing else.
func (s *State) UnmarshalText(text []byte) error {
	for i, name := range stateNames {
		if i > 0 && name == string(text) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("unknown branch state %q", text)
}

// mayBecome says whether the table allows the move.
func (s State) mayBecome(to State) bool { return slices.Contains(moves[s], to) }
