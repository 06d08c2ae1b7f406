package main

import (
	"fmt"
	"io"
	"slices"

	"try/supervisor"
	"try/supervisor/printable"
)

// terminal is how a run speaks with the user; it implements [supervisor.UI].
type terminal struct {
	p      *program
	style  style
	events *eventLog // nil: nobody listens
	shown  bool      // the summary was printed with the question
	warned []string  // printed already
	steps  chan int  // to who prints the progress of a commit; nil before there is any
	told   chan any  // closed when that has ended
}

var _ supervisor.UI = (*terminal)(nil)

func newTerminal(p *program, s style) *terminal {
	s.color = p.color
	return &terminal{p: p, style: s}
}

// Event passes an event on to --status-fd.
func (t *terminal) Event(e supervisor.Event) {
	if t.events != nil {
		t.events.write(e)
	}
}

// Warn prints a warning once.
func (t *terminal) Warn(message string) {
	if slices.Contains(t.warned, message) {
		return
	}
	t.warned = append(t.warned, message)
	if t.style.summary != "none" {
		say(t.p.stderr, "warning: %s", message)
	}
}

// CanAsk says whether there is a terminal to ask on.
func (t *terminal) CanAsk() bool {
	tty, err := openTTY()
	if err != nil {
		return false
	}
	return tty.f.Close() == nil // nothing was set: a job in the background may look
}

// Ask shows what a commit would do and puts the question.
func (t *terminal) Ask(r *supervisor.Result) (supervisor.Fate, error) {
	tty, err := openTTY()
	if err != nil {
		return supervisor.Keep, err
	}
	defer tty.close()
	// The terminal first: what CMD left on it could hide the summary.
	tty.reset()
	summarize(t.p.stderr, r, t.style)
	aftermath(t.p.stderr, r)
	objections(t.p.stderr, r)
	t.shown = true
	return tty.ask(printable.Name(r.Branch), func() error { return page(r) })
}

// Progress shows how far a long commit is. The goroutine that applies must
// never wait for a terminal (H26), so another one prints.
func (t *terminal) Progress(done, total int) {
	const many = 5000 // below, nobody could read it
	if total < many || t.style.summary == "none" {
		return
	}
	if t.steps == nil {
		if !isTerminal(t.p.stderr) {
			return
		}
		t.steps, t.told = make(chan int, 1), make(chan any)
		go func() {
			defer close(t.told)
			printSteps(t.p.stderr, t.steps, total)
		}()
	}
	select {
	case t.steps <- done:
	default: // the last number is still to be printed
	}
}

// printSteps prints each hundredth of the way on one line.
func printSteps(w io.Writer, steps <-chan int, total int) {
	percent := -1
	for done := range steps {
		if now := done * 100 / total; now != percent {
			percent = now
			fmt.Fprintf(w, "\rtry: committing, %d %% of %s", percent, thousands(total))
		}
	}
}

// finish shows how a run or a settling ended and sets the exit status.
func (p *program) finish(r *supervisor.Result, t *terminal, document bool) error {
	p.status = r.Status()
	t.endProgress()
	if t.style.summary != "none" {
		for _, w := range r.Warnings {
			t.Warn(w)
		}
		if !t.shown {
			summarize(p.stderr, r, t.style)
			aftermath(p.stderr, r)
		}
	}
	t.settled(r)
	if document {
		return writeResult(p.stdout, r)
	}
	return nil
}

// endProgress ends what Progress has begun.
func (t *terminal) endProgress() {
	if t.steps != nil {
		close(t.steps)
		<-t.told
		t.steps = nil
		fmt.Fprint(t.p.stderr, "\r\x1b[K")
	}
}

// settled says in one line what became of the branch. Failures are said even
// if no summary is wanted.
func (t *terminal) settled(r *supervisor.Result) {
	w := t.p.stderr
	if r.NotRun != nil {
		t.p.complain(r.NotRun)
	}
	if r.Err != nil {
		t.p.complain(r.Err)
		objections(w, r)
		if r.Settled == supervisor.Kept && hintOf(r.Err) == "" {
			t.p.hint(keptHint(r.Branch))
		}
		return
	}
	if t.style.summary == "none" {
		return
	}
	because := ""
	if r.Reason != "" && r.Reason != "exit status 0" { // which is no reason
		because = ": " + r.Reason
	}
	switch r.Settled {
	case supervisor.Committed:
		say(w, "committed%s", because)
		if r.Stay > 0 {
			say(w, "left in %s: %s", printable.Name(r.Branch), plural(r.Stay, "change"))
		}
		t.hintBack("try undo")
	case supervisor.Aborted:
		say(w, "dropped%s", because)
	case supervisor.Unchanged:
		say(w, "no changes")
	case supervisor.Kept:
		say(w, "kept as %s%s", printable.Name(r.Branch), because)
		t.p.hint(keptHint(r.Branch))
	default:
		panic("unknown way to settle " + string(r.Settled))
	}
}

// objections prints what stands against a commit.
func objections(w io.Writer, r *supervisor.Result) {
	known := map[string]*supervisor.Dispute{}
	const detailed = 20 // more would hide which they are
	for i := range r.Disputes[:min(len(r.Disputes), detailed)] {
		known[r.Disputes[i].At()] = &r.Disputes[i]
	}
	for _, c := range r.Conflicts {
		if d := known[joinRoot(c.Root, c.Path)]; d != nil {
			d.Reason = c.Reason
			dispute(w, d)
			continue
		}
		say(w, "conflict: %s: %s", printable.Name(shortHome(joinRoot(c.Root, c.Path))), c.Reason)
	}
	for _, line := range r.Denied {
		say(w, "the policy forbids %s", line)
	}
	for _, line := range r.Asks {
		say(w, "the policy asks about %s", line)
	}
}

// keptHint is what can be done with a kept branch.
func keptHint(name string) string {
	name = printable.Name(name)
	return fmt.Sprintf("try changes %s; then try commit %s or try abort %s", name, name, name)
}
