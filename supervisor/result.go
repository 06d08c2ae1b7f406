package supervisor

import (
	"time"

	"try/fs/changes"
	"try/fs/commit"
	"try/ns"
)

// Settled is how a branch ended.
type Settled string

// The values of "settled" in the result document (DESIGN §8).
const (
	Committed Settled = "committed"
	Aborted   Settled = "aborted"
	Kept      Settled = "kept"
	Unchanged Settled = "unchanged"
)

// Result is everything that is known of one run, or of settling a kept branch.
type Result struct {
	Branch, ID string
	Command    []string
	Dir        string // the working directory
	Engine     string

	ExitCode int    // CMD's status; 128+n after a signal; 124 after --timeout; 126, 127
	Signal   string // "SIGTERM", empty if none ended CMD
	TimedOut bool
	NotRun   error // why CMD could not be run at all: ExitCode is 126 or 127
	Started  time.Time
	Duration time.Duration // of CMD

	Settled Settled
	Reason  string // why it was settled so: "exit status 1", "--abort", "asked", …

	Plan      *changes.Plan       // nil when the plan could not be made
	Stay      int                 // how many changes were not chosen and stay in the branch
	Names     map[string][]string // root path → the directories below it that the user knows as roots
	Conflicts []commit.Conflict
	Disputes  []Dispute  // of a kept branch: what is known of Conflicts
	Resolved  []Resolved // the conflicts that were decided
	Killed    []ns.Process
	Asks      []string // what the policy asks about, one line each
	Passed    []string // doors that were opened on purpose: --allow-write paths, --socket
	Dropped   []string // left out of the commit by policy (drop, yield), one line each
	Denied    []string // what the policy refused, one line each with the --allow to paste
	// Marked says of changes, by absolute path, what must not be overlooked and
	// their names do not tell: that a rule asks or denies, capabilities.
	Marked   map[string]string
	Warnings []string

	// Err is why `try` itself failed: then the base is untouched, the branch,
	// if there is one, is kept, and the exit status is 125.
	Err error
}

// Status is the exit status of `try CMD` (DESIGN §3).
func (r *Result) Status() int {
	if r.Err != nil {
		return StatusFailed
	}
	return r.ExitCode
}

// StatusFailed is the exit status when `try` itself failed.
const StatusFailed = 125

// Event is one step of a run, for --status-fd.
type Event struct {
	Kind   string // "branch", "started", "exited", "settled"
	Index  int    // of the variant, from 1; 0: a single run, or the group as a whole
	Result *Result
	PID    int // of CMD on the host; for "started"
}

// UI is how a run speaks with whoever started it. Calls come one after the
// other, from one goroutine. While a commit is being applied only Progress is
// called, and what it returns is not looked at (H26).
type UI interface {
	// Event reports branch, started, exited and settled, in this order.
	Event(Event)
	// Warn says something that the user should know before CMD's output.
	Warn(message string)
	// Ask shows the changes and puts the question. No process of the session
	// is left. diff shows the changes of r in full, in a pager.
	Ask(r *Result) (Fate, error)
	// CanAsk says whether there is a terminal to ask on.
	CanAsk() bool
	// Progress tells how many of the steps of a commit are done.
	Progress(done, total int)
}
