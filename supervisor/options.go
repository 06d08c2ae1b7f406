package supervisor

import (
	"fmt"
	"time"
)

// Fate is what settling will do with a branch. The zero value is no fate: what
// the policy says, then the default.
type Fate uint8

// The fates of DESIGN §1.
const (
	_      Fate = iota
	Commit      // apply to the parent
	Abort       // drop
	Keep        // leave for later
	Ask         // put the question; without a terminal: keep
)

var fates = [...]string{Commit: "commit", Abort: "abort", Keep: "keep", Ask: "ask"}

func (f Fate) String() string {
	if int(f) < len(fates) {
		return fates[f]
	}
	return fmt.Sprintf("Fate(%d)", uint8(f))
}

// UnmarshalText accepts the four names.
func (f *Fate) UnmarshalText(text []byte) error {
	for i, name := range fates {
		if i > 0 && name == string(text) {
			*f = Fate(i)
			return nil
		}
	}
	return fmt.Errorf("unknown fate %q: one of commit, abort, keep, ask", text)
}

// Terminal says whether a run gets a terminal of its own.
type Terminal uint8

// AutoTerminal gives one when both stdin and stdout are terminals.
const (
	AutoTerminal Terminal = iota
	ForceTerminal
	NoTerminal
)

// Options is what one run of a command in a branch was asked for. Zero values
// mean "not said": the policy decides, then the default.
type Options struct {
	Argv   []string // empty: the user's shell
	Branch string   // name; empty: two words

	OnSuccess, OnFailure Fate     // settle so after an exit status of 0, of anything else
	Checks               []string // run by sh -c inside the branch after CMD ended with 0
	Allow                []string // globs that answer the policy's "ask"

	Scope      string   // "user" or "dir"
	Roots      []string // --root
	Cover      []string // captured too
	AllowWrite []string // passes through to the real thing
	Deny       []string // not there
	Sockets    []string // names or paths that pass

	Net    string // "host" or "none"
	Engine string // "auto", "overlay", "fuse"
	// Serializable: what the command has read must not have changed at a commit.
	Serializable bool
	Grace        *time.Duration // between TERM and KILL; nil: policy, then 2 s
	Wait         bool           // wait for what CMD left instead of ending it
	Timeout      time.Duration  // 0: none

	Terminal       Terminal
	StdoutToStderr bool  // --json: stdout belongs to the result document
	KeepClosed     []int // descriptors of ours that CMD must not get (--status-fd)

	// Unseen: nobody looks at the changes of a branch that is dropped, so that
	// they need not be found out.
	Unseen bool

	PolicyFile string // instead of the layers
	NoPolicy   bool
}
