package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/commit"
	"try/ns"
)

// An Exploration runs variants of one base side by side and settles what its
// rule picks. Every pattern of exploration is a [Schedule], which says when a
// branch may start, and a [Rule], which says what becomes of one that ended.
type Exploration struct {
	Options             // of each variant; Argv is not looked at
	Variants [][]string // the commands
	Schedule Schedule   // nil: all at once
	Rule     Rule       // nil: the first success
	Deadline time.Duration
	Stdin    io.Reader // each variant gets a copy; nil: empty

	OnNone     *int // exit status when none is picked; nil: that of the last one
	KeepLosers bool // for a look; once one is picked they are stale
	Fallback   bool // if the winner's commit meets a conflict, the next success may try
}

// Schedule says when variants start.
type Schedule interface {
	// Start is how many more may start now. With none running and none to
	// start the exploration is over.
	Start(queued, running, ended int) int
}

// Rule picks. It is asked about each variant that ended, one at a time, in the
// order in which they ended.
type Rule interface {
	// Pick says whether the variant is the one to settle now. passed: it exited
	// with 0, its checks passed, and the policy has nothing against it; one
	// that did not is never settled, whatever the rule says.
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

// ExploreUI is how an exploration speaks with whoever started it. Only Output
// and Progress are called at the same time as another method.
type ExploreUI interface {
	UI
	// Output is a piece of what variant index wrote to its stdout (1) or stderr
	// (2). It is called from several goroutines at once.
	Output(index, stream int, p []byte)
	// Change tells of a variant that started, ended or was stopped.
	Change(index int, state VariantState)
	// Done says that no Output and Change follow, before the last Event, and
	// before Ask. winner replays what the one that was picked wrote; nil if
	// there is none.
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
}

// InterruptedError says that a signal came before anything was started.
type InterruptedError struct{ Signal string }

func (e *InterruptedError) Error() string { return "interrupted by " + e.Signal }

// ExitCode is what a shell says of a program that died of it.
func (e *InterruptedError) ExitCode() int { return signalStatus(e.Signal) }

// Explore runs the variants. An error says that nothing was started and
// nothing is left.
//
//  1. All branches are made, of one origin and one stamp, or none.
//  2. They start as the schedule says. One that fails is settled at once.
//  3. The rule picks one that passed. Every other session is sent SIGKILL, and
//     the pick is written to the group in the store: one act, for ever, however
//     this process ends. With Fallback the others live on until a commit is done.
//  4. The winner is settled as any branch is.
//  5. The losers are waited for, gone, and dropped; what the kernel does not let
//     go of within 10 seconds is named.
func Explore(ctx context.Context, e Exploration, ui ExploreUI) (*GroupResult, error) {
	if len(e.Variants) == 0 {
		return nil, errors.New("explore: no variants")
	}
	if e.Schedule == nil {
		e.Schedule = Jobs(0)
	}
	if e.Rule == nil {
		e.Rule = FirstSuccess{}
	}
	sig := catch()
	defer sig.release()
	feed, err := keepStdin(ctx, e.Stdin, sig.c)
	if err != nil {
		return nil, err
	}
	if feed != nil {
		defer feed.Close()
	}
	set, err := prepare(e.Options)
	if err != nil {
		return nil, err
	}
	defer set.close()
	// In the caller's session a variant could open the terminal, on which
	// the others and the display are: there is none for it.
	set.covers = append(set.covers, "/dev/tty")
	set.opts.Terminal = NoTerminal
	if set.opts.OnSuccess == 0 {
		set.opts.OnSuccess = Commit
	}
	for _, w := range set.warnings {
		ui.Warn(w)
	}
	set.home.offerInterrupted(set.dir, ui)
	opts := set.creation(nil)
	opts.Commands = e.Variants
	members, err := set.home.store.CreateGroup(opts, len(e.Variants))
	if err != nil {
		if errors.Is(err, unix.EMFILE) {
			err = withHint(err, "each variant takes a few descriptors: raise ulimit -n, or run fewer")
		}
		return nil, errors.Join(err, set.home.tidy())
	}
	x := &exploration{
		e: e, set: set, ui: &serialUI{ExploreUI: ui}, sig: sig.c, feed: feed,
		ended: make(chan *variant, len(members)), free: make(chan struct{}),
		setups: make(chan struct{}, max(2, runtime.GOMAXPROCS(0))),
		live:   map[*variant]*ns.Session{}, started: time.Now(),
	}
	for i, b := range members {
		x.variants = append(x.variants, x.member(i+1, b))
	}
	g := x.run(ctx)
	x.ui.Event(Event{Kind: "settled", Result: g.Result})
	if os.Getenv("TRY_SYNC") != "" {
		x.sweeping.Wait()
	}
	set.home.tidyBehind(ui)
	return g, nil
}

// exploration is one Explore. What stands above the gap is set at the start or
// belongs to the goroutine of run; the rest is shared with those of variants.
type exploration struct {
	e        Exploration
	set      *setup
	ui       *serialUI
	sig      <-chan os.Signal
	feed     *os.File // what stdin held; nil: empty
	variants []*variant
	ended    chan *variant
	started  time.Time

	queue   []*variant
	running int
	winner  *variant
	why     string // the last fallback
	stopped string // why all were stopped: "SIGINT", "deadline", "canceled", "decided"
	err     error  // why the exploration cannot go on
	last    *variant
	isDone  bool

	setups chan struct{} // held while a session is being set up
	free   chan struct{} // closed when losers may be cleared away
	// starting is read-locked while a session is being set up, and locked by
	// who stops them all: then each is either known, or never starts.
	starting sync.RWMutex
	halted   bool

	mu       sync.Mutex // guards what follows; nothing is locked inside
	live     map[*variant]*ns.Session
	sweeps   bool // a child that empties the trash runs
	sweeping sync.WaitGroup
}

// run starts variants as the schedule says until one is settled, none is left,
// or all are stopped, and then sees every one of them gone.
func (x *exploration) run(ctx context.Context) *GroupResult {
	x.queue = x.variants
	ended := 0
	var deadline <-chan time.Time
	if x.e.Deadline > 0 {
		deadline = time.After(x.e.Deadline)
	}
	for x.winner == nil && x.stopped == "" {
		for range min(x.e.Schedule.Start(len(x.queue), x.running, ended), len(x.queue)) {
			v := x.queue[0]
			x.queue = x.queue[1:]
			x.running++
			go x.drive(ctx, v)
		}
		if x.running == 0 {
			break
		}
		select {
		case v := <-x.ended:
			x.running--
			ended++
			x.last = v
			x.noted() // what stops all may have made this one end
			for _, sig := range v.s.heard {
				x.signal(sig)
			}
			if x.stopped == "" && x.e.Rule.Pick(v.s.res, v.passed) && v.passed {
				x.settle(ctx, v)
			}
		case sig := <-x.sig:
			x.signal(sig)
		case <-deadline:
			x.stopped = "deadline"
		case <-ctx.Done():
			x.stopped = "canceled"
		}
	}
	x.noted()
	x.halt()
	x.join()
	x.rest(context.WithoutCancel(ctx))
	return x.result()
}

// noted looks at the signals that have come.
func (x *exploration) noted() {
	for {
		select {
		case sig := <-x.sig:
			x.signal(sig)
		default:
			return
		}
	}
}

// signal notes one that ends the whole exploration; others are passed on.
func (x *exploration) signal(sig os.Signal) {
	n := sig.(unix.Signal)
	switch {
	case slices.Contains(ending, n):
		if x.stopped == "" && x.winner == nil {
			x.stopped = unix.SignalName(n)
		}
	case n == unix.SIGPIPE:
	default:
		for _, v := range x.variants {
			select {
			case v.sig <- sig:
			default: // it has not taken the last ones yet
			}
		}
	}
}

func signalStatus(name string) int { return 128 + int(unix.SignalNum(name)) }

// settle makes v the winner, if nobody else was, and settles it. A conflict
// with Fallback leaves the exploration open.
func (x *exploration) settle(ctx context.Context, v *variant) {
	asks := x.set.opts.OnSuccess == Ask
	if !x.e.Fallback || asks {
		// Before the disk is waited for: if nobody can be decided for, nobody
		// can win, so they have nothing to lose by it.
		x.halt()
	}
	if x.set.opts.OnSuccess == Commit {
		v.s.dismiss() // taking the namespaces down takes as long as the disk does
	}
	if err := v.s.b.Decide(); err != nil {
		x.stopped, x.err = "decided", err
		return
	}
	x.ui.Change(v.index, Succeeded)
	if asks { // on a screen that nobody else writes to
		x.clear()
		x.join()
		x.done(v)
	}
	err := v.s.settle(ctx, x.fate(v), whyWon(v))
	if err != nil {
		v.s.fail(err)
		if _, conflict := errors.AsType[*commit.ConflictError](err); conflict && x.e.Fallback && x.running+len(x.queue) > 0 {
			if e := v.s.b.Undecide(); e == nil {
				v.lost = true
				x.why = fmt.Sprintf("variant %d: %v; ", v.index, err)
				v.s.tell()
				return
			}
		}
	}
	x.winner = v
	v.s.tell()
}

// fate is what becomes of the winner.
func (x *exploration) fate(v *variant) Fate {
	if x.set.opts.OnSuccess == Ask && !x.ui.CanAsk() {
		v.s.warn("there is no terminal to ask on: the branch is kept")
		return Keep
	}
	return x.set.opts.OnSuccess
}

// halt sends SIGKILL to every session that is not to be settled, and lets none
// start. The decision is in the store; with the signal pending no process of
// theirs returns to user mode (B21). It does not wait for them.
func (x *exploration) halt() {
	x.starting.Lock()
	x.halted = true
	x.starting.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.live {
		_ = s.Kill() // what cannot be killed is named when it is waited for
	}
	if len(x.live) > 0 {
		go stepBack(slices.Collect(maps.Keys(x.live)))
	}
}

// clear lets the losers be cleared away: until the winner is settled they
// would only be in its way.
func (x *exploration) clear() {
	select {
	case <-x.free:
	default:
		close(x.free)
	}
}

// join waits until nothing is running. Who passes now was too late.
func (x *exploration) join() {
	x.clear()
	for ; x.running > 0; x.running-- {
		v := <-x.ended
		if x.last == nil {
			x.last = v
		}
	}
}

// rest settles whatever is not settled yet.
func (x *exploration) rest(ctx context.Context) {
	x.done(x.winner)
	for _, v := range x.variants {
		switch {
		case v.gone:
		case v == x.winner || v.lost:
			if err := v.close(); err != nil && v.s.res.Err == nil {
				v.s.res.Err = err
			}
		default:
			x.lose(ctx, v)
		}
	}
}

// done ends the display, once, with what v wrote.
func (x *exploration) done(v *variant) {
	if x.isDone {
		return
	}
	x.isDone = true
	for _, v := range x.variants {
		v.drain() // of those that are not gone init alone is left
	}
	if v == nil {
		x.ui.Done(nil)
	} else {
		x.ui.Done(v.log.replay)
	}
}
