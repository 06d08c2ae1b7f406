package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"try/fs/branch"
)

// An Exploration runs variants of one base side by side and settles what its
// rule picks. Every pattern of exploration is a [Schedule], which says when a
// branch may start, and a [Rule], which says what becomes of one that ended.
type Exploration struct {
	Options             // of each variant; Argv is not looked at
	Variants [][]string // the commands
	Schedule Schedule
	Rule     Rule
	Deadline time.Duration // for the whole; 0: none
	Stdin    io.Reader     // each variant gets a copy; nil: empty

	KeepLosers bool // for a look; they are stale
	Fallback   bool // if the winner's commit meets a conflict, the next success may try
}

// Schedule says when variants start.
type Schedule interface {
	// Start is how many more may start now.
	Start(queued, running, ended int) int
}

// Rule picks. It is asked about each variant that ended, one at a time, in the
// order in which they ended.
type Rule interface {
	// Pick says whether the variant is the one to settle now. passed: it exited
	// with 0, its checks passed, and the policy has nothing against it.
	Pick(r *Result, passed bool) bool
}

// Jobs is the schedule that keeps so many running, 0: all at once.
type Jobs int

// Start fills up to the number.
func (j Jobs) Start(queued, running, _ int) int {
	if j <= 0 {
		return queued
	}
	return min(queued, int(j)-running)
}

// FirstSuccess is the rule of a race.
type FirstSuccess struct{}

// Pick takes whatever passed.
func (FirstSuccess) Pick(_ *Result, passed bool) bool { return passed }

// ExploreUI is how an exploration speaks with whoever started it.
type ExploreUI interface {
	UI
	// Output is a piece of what variant index wrote to its stdout (1) or stderr
	// (2). It is called from several goroutines at once.
	Output(index, stream int, p []byte)
	// Change tells of a variant that started, ended or was settled.
	Change(index int, state VariantState)
	// Done says that no Output and Change follow, before the last Event. winner
	// replays what the one that was picked wrote; nil if there is none.
	Done(winner func(stdout, stderr io.Writer) error)
}

// VariantState is how far a variant is, for a display.
type VariantState string

// The states in their order.
const (
	Queued    VariantState = "queued"
	Started   VariantState = "running"
	Checking  VariantState = "checking"
	Succeeded VariantState = "passed"
	Failed    VariantState = "failed"
	Stopped   VariantState = "stopped"
)

// GroupResult is everything that is known of an exploration. The embedded
// Result is that of the group: the winner's, if there is one.
type GroupResult struct {
	*Result
	Group    string
	Winner   int    // index from 1; 0: none
	Why      string // in words
	Variants []*Result
	Logs     []string // of each variant: "" once it is settled
	Hanging  []string // variants whose processes the kernel does not let go of
}

// Explore runs the variants. An error says that nothing was started and
// nothing is left.
func Explore(ctx context.Context, e Exploration, ui ExploreUI) (*GroupResult, error) {
	if len(e.Variants) == 0 {
		return nil, errors.New("explore: no variants")
	}
	sig := catch()
	defer sig.release()
	set, err := prepare(e.Options)
	if err != nil {
		return nil, err
	}
	defer set.close()
	if set.opts.OnSuccess == 0 {
		set.opts.OnSuccess = Commit
	}
	for _, w := range set.warnings {
		ui.Warn(w)
	}
	feed, err := readAllStdin(e.Stdin)
	if err != nil {
		return nil, err
	}
	if feed != nil {
		defer feed.Close()
	}
	opts := set.creation(e.Variants[0])
	opts.Commands = e.Variants
	members, err := set.home.store.CreateGroup(opts, len(e.Variants))
	if err != nil {
		return nil, err
	}
	x := &exploration{e: e, set: set, ui: ui, sig: sig.c, feed: feed, ended: make(chan *variant, len(members))}
	for i, b := range members {
		x.variants = append(x.variants, x.member(i+1, b))
	}
	g := x.run(ctx)
	ui.Event(Event{Kind: "settled", Result: g.Result})
	return g, set.home.tidy()
}

// exploration is one Explore. All of its fields belong to the goroutine of
// run; what variants share is in variant and in shared.
type exploration struct {
	e        Exploration
	set      *setup
	ui       ExploreUI
	sig      <-chan os.Signal
	feed     *os.File // what stdin held; nil: empty
	variants []*variant
	ended    chan *variant
	shared   shared

	winner  *variant
	why     string
	stopped string // why all were stopped: "SIGINT", "deadline"
	err     error  // of the winner's commit
	last    *variant
	hanging []string
}

// run starts variants as the schedule says until one is settled, none is left,
// or all are stopped, and then sees every one of them gone.
func (x *exploration) run(ctx context.Context) *GroupResult {
	queue := append([]*variant(nil), x.variants...)
	running, ended := 0, 0
	var deadline <-chan time.Time
	if x.e.Deadline > 0 {
		deadline = time.After(x.e.Deadline)
	}
	started := time.Now()
	for x.winner == nil && x.stopped == "" {
		for range x.e.Schedule.Start(len(queue), running, ended) {
			v := queue[0]
			queue = queue[1:]
			running++
			go x.drive(ctx, v)
		}
		if running == 0 {
			break
		}
		select {
		case v := <-x.ended:
			running--
			ended++
			x.last = v
			if x.e.Rule.Pick(v.s.res, v.passed) {
				x.settle(ctx, v)
			}
		case sig := <-x.sig:
			x.stop(sig)
		case <-deadline:
			x.stopped = "deadline"
		}
	}
	x.killAll()
	for range running {
		<-x.ended
	}
	x.lose(ctx)
	return x.result(started)
}

// settle makes v the winner, if nobody else was, and settles it. A conflict
// with --fallback leaves the race open.
func (x *exploration) settle(ctx context.Context, v *variant) {
	if err := v.s.b.Decide(); err != nil {
		if !errors.Is(err, branch.ErrStale) {
			v.s.fail(err)
		}
		return // somebody else settled the group
	}
	if !x.e.Fallback {
		x.killAll() // with that pending none of them runs user code again
	}
	x.ui.Change(v.index, Succeeded)
	err := v.s.settle(ctx, x.set.opts.OnSuccess, fmt.Sprintf("variant %d was the first to succeed", v.index))
	if err != nil {
		v.s.fail(err)
		if x.e.Fallback && v.s.res.Settled == Kept {
			if e := v.s.b.Undecide(); e == nil {
				v.lost = true
				x.last = v
				x.why = fmt.Sprintf("variant %d: %v", v.index, err)
				return
			}
		}
	}
	x.winner, x.err = v, err
	x.why = v.s.res.Reason
}

// result puts together what is known at the end.
func (x *exploration) result(started time.Time) *GroupResult {
	g := &GroupResult{Group: x.groupName(), Why: x.why, Hanging: x.hanging}
	for _, v := range x.variants {
		g.Variants = append(g.Variants, v.s.res)
		g.Logs = append(g.Logs, v.logPath())
	}
	var r Result
	switch {
	case x.winner != nil:
		g.Winner = x.winner.index
		r = *x.winner.s.res
	default:
		r = Result{Dir: x.set.dir, Engine: x.set.engine.Name(), Started: started, Duration: time.Since(started), Settled: Aborted}
		if x.last != nil {
			r.ExitCode, r.Signal, r.TimedOut, r.Err = x.last.s.res.ExitCode, x.last.s.res.Signal, x.last.s.res.TimedOut, x.last.s.res.Err
			if r.Err != nil && x.last.lost {
				r.Conflicts = x.last.s.res.Conflicts
			}
		}
		if g.Why == "" {
			g.Why = "no variant succeeded"
		}
		switch x.stopped {
		case "":
		case "deadline":
			r.TimedOut, r.ExitCode, g.Why = true, statusTimeout, "the deadline passed"
		default:
			r.Signal, r.ExitCode, g.Why = x.stopped, signalStatus(x.stopped), "stopped by "+x.stopped
		}
		r.Reason = g.Why
	}
	for _, name := range x.hanging {
		r.Warnings = append(r.Warnings, name+": the kernel does not let go of its processes")
	}
	g.Result = &r
	return g
}

func (x *exploration) groupName() string {
	name := x.variants[0].s.res.Branch
	return name[:len(name)-len(".1")]
}
