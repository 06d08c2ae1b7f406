package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Action is what a rule says about a change. Greater is stricter.
type Action uint8

const (
	_     Action = iota // a rule without action is refused
	Allow               // committed
	Yield               // committed, unless the base moved there: then the base stays
	Drop                // left out of the commit
	Ask                 // committed only if somebody says so
	Deny                // not committed, and nothing else of the branch either
)

var actionNames = [...]string{Allow: "allow", Yield: "yield", Drop: "drop", Ask: "ask", Deny: "deny"}

// String returns the action as a policy file writes it.
func (a Action) String() string {
	if a == 0 || int(a) >= len(actionNames) {
		return fmt.Sprintf("Action(%d)", uint8(a))
	}
	return actionNames[a]
}

func parseAction(s string) (Action, bool) {
	if i := slices.Index(actionNames[:], s); i > 0 {
		return Action(i), true
	}
	return 0, false
}

// Source is the layer that a rule or setting comes from.
type Source uint8

const (
	_ Source = iota
	BuiltIn
	System
	User
	Project
)

var sourceNames = [...]string{BuiltIn: "built-in", System: "system", User: "user", Project: "project"}

// String returns the layer's name.
func (s Source) String() string {
	if s == 0 || int(s) >= len(sourceNames) {
		return fmt.Sprintf("Source(%d)", uint8(s))
	}
	return sourceNames[s]
}

// kinds is a set of kinds of change.
type kinds uint8

const (
	added kinds = 1 << iota
	modified
	deleted
	replaced
	metadata
	touched

	allKinds = added | modified | deleted | replaced | metadata | touched
)

var kindNames = []string{"added", "modified", "deleted", "replaced", "metadata", "touched"}

// kindOf returns the set that holds the named kind alone. A kind that it does
// not know is in every set, so that no rule is escaped by a new one.
func kindOf(name string) kinds {
	switch name {
	case "added":
		return added
	case "modified":
		return modified
	case "deleted":
		return deleted
	case "replaced":
		return replaced
	case "metadata":
		return metadata
	case "touched":
		return touched
	}
	return allKinds
}

// widen adds to the kinds that a rule names those that they stand for. Who
// forbids to modify or delete a path forbids to put something else in its
// place, too; but who allows the one has not allowed the other.
func (k kinds) widen(a Action) kinds {
	if a >= Ask && k&(added|modified|deleted) != 0 {
		k |= replaced
	}
	if k&metadata != 0 {
		k |= touched
	}
	return k
}

// Rule is one [[rule]] of a layer.
type Rule struct {
	Paths  []string // globs as written
	Change []string // kinds; none: all
	Action Action
	Why    string

	Source  Source
	File    string // "" for built-in rules
	Line    int
	Ignored bool // of an untrusted project file, and not stricter

	globs      []glob // several of a path with {…}
	head       string // what all that the globs match begins with
	foldedHead string
	kinds      kinds
	only       condition
}

// At says where the rule stands: "file:line", or "built-in".
func (r *Rule) At() string { return at(r.Source, r.File, r.Line) }

func at(s Source, file string, line int) string {
	if file == "" {
		return s.String()
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// Verdict is what the policy says about one change.
type Verdict struct {
	Action Action
	Rule   *Rule  // that decided; nil: no rule matched
	Glob   string // of Rule.Paths, the one that matched
	Detail string // what of the change the rule is about, where the path does not tell
	As     string // the other name under which the change met the rule, or ""
	// Lifted: the rule would have asked or denied, and --allow answered.
	Lifted bool
	// Family is the path of the database that the change belongs to (a -wal,
	// -shm or -journal, or the database itself where such a one changed as
	// well), or "". When one member yields to the base, all do.
	Family string
}

// Why says in one line what decided, without the path: the reason, then where
// the rule stands.
func (v Verdict) Why() string {
	if v.Rule == nil {
		return "no rule matches"
	}
	var b strings.Builder
	if v.Rule.Why != "" {
		b.WriteString(v.Rule.Why)
		b.WriteString("; ")
	}
	if v.Detail != "" {
		fmt.Fprintf(&b, "%s; ", v.Detail)
	}
	if v.As != "" {
		fmt.Fprintf(&b, "seen as %s; ", v.As)
	}
	fmt.Fprintf(&b, "%s %q, %s", v.Rule.Action, v.Glob, v.Rule.At())
	return b.String()
}

// Error is one thing in a policy file that cannot be obeyed.
type Error struct {
	File string
	Line int
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text) }

// Warning is something in or about a policy file that was not obeyed.
type Warning struct {
	File string
	Line int // 0: the whole file
	Text string
	Hint string // a command to paste, or ""
}

// String returns the warning on one line, without the hint.
func (w Warning) String() string {
	if w.Line == 0 {
		return w.File + ": " + w.Text
	}
	return fmt.Sprintf("%s:%d: %s", w.File, w.Line, w.Text)
}
