package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"try/fs/branch"
	"try/ns"
)

// variant is one member of an exploration. It belongs to the goroutine of
// drive until that has sent it to ended, then to that of run.
type variant struct {
	index  int
	s      *session
	sig    chan os.Signal
	log    *log // nil: it never started
	init   int  // pid of the session's init; 0: it never started
	output []*pump
	passed bool // it may be picked; its session stands, with init alone in it
	lost   bool // it was picked, and its commit met a conflict
	gone   bool // it is settled and closed
}

// member is the variant in branch b.
func (x *exploration) member(index int, b *branch.Branch) *variant {
	v := &variant{index: index, sig: make(chan os.Signal, 4)}
	v.s = x.set.session(b, variantUI{x.ui, index}, v.sig)
	v.s.res.Started = time.Time{} // not yet
	x.ui.Change(index, Queued)
	return v
}

// serialUI lets one goroutine at a time through.
type serialUI struct {
	ExploreUI
	mu sync.Mutex
}

func (u *serialUI) Event(e Event) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ExploreUI.Event(e)
}

func (u *serialUI) Warn(message string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ExploreUI.Warn(message)
}

func (u *serialUI) Change(index int, state VariantState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ExploreUI.Change(index, state)
}

// variantUI gives the events of a variant their index.
type variantUI struct {
	*serialUI
	index int
}

func (u variantUI) Event(e Event) {
	e.Index = u.index
	u.serialUI.Event(e)
}

func (u variantUI) Warn(message string) { u.serialUI.Warn(fmt.Sprintf("[%d] %s", u.index, message)) }

// drive takes a variant from its start to the point where the rule is asked.
// One that has nothing to expect of the rule is settled first: what it holds,
// processes, mounts, disk, is free for those that wait for their turn.
func (x *exploration) drive(ctx context.Context, v *variant) {
	err := x.tryOne(ctx, v)
	switch {
	case v.passed:
	case errors.Is(err, errStopped):
		x.ui.Change(v.index, Stopped)
		<-x.free
		x.lose(context.WithoutCancel(ctx), v)
	default:
		v.s.res.Err = err
		x.ui.Change(v.index, Failed)
		x.lose(context.WithoutCancel(ctx), v)
	}
	x.ended <- v
}

// errStopped says that the exploration was over before this variant was.
var errStopped = errors.New("stopped")

// tryOne runs a variant and its checks, and says why it cannot be picked. A
// command that merely exited with something else than 0 is no error.
func (x *exploration) tryOne(ctx context.Context, v *variant) error {
	if err := x.start(ctx, v); err != nil {
		return err
	}
	if err := v.s.run(ctx); err != nil {
		return x.orStopped(err)
	}
	if v.s.res.ExitCode != 0 {
		return x.orStopped(nil)
	}
	if len(x.set.opts.Checks) > 0 {
		x.ui.Change(v.index, Checking)
		if err := v.s.check(ctx); err != nil {
			return x.orStopped(err)
		}
	}
	x.kill(v, nil) // init alone is left
	if err := v.s.plan(ctx); err != nil {
		return x.orStopped(err)
	}
	if err := v.s.judge(); err != nil {
		return x.orStopped(err)
	}
	if err := v.s.c.refusal(); err != nil {
		return x.orStopped(err)
	}
	v.passed = true
	return nil
}

// orStopped tells a variant's own failure from the end that we gave it.
func (x *exploration) orStopped(err error) error {
	x.starting.RLock()
	defer x.starting.RUnlock()
	if x.halted {
		return errStopped
	}
	return err
}

// start sets the session up, with pipes for its output. No more are set up at
// once than there are processors: more would not be faster, and whoever stops
// them all waits for those under way.
func (x *exploration) start(ctx context.Context, v *variant) error {
	x.setups <- struct{}{}
	defer func() { <-x.setups }()
	x.starting.RLock()
	defer x.starting.RUnlock()
	if x.halted {
		return errStopped
	}
	p, err := x.plumb(v)
	if err != nil {
		return err
	}
	defer p.close()
	v.s.prepare = func(spec *ns.Spec) {
		spec.Env = slices.DeleteFunc(spec.Env, func(e string) bool {
			return strings.HasPrefix(e, "TRY_INDEX=") || strings.HasPrefix(e, "TRY_COUNT=")
		})
		spec.Env = append(spec.Env, "TRY_INDEX="+strconv.Itoa(v.index), "TRY_COUNT="+strconv.Itoa(len(x.variants)))
		for i := range spec.Programs {
			spec.Programs[i].Stdio = p.stdio
		}
	}
	if err := v.s.start(ctx); err != nil {
		return err
	}
	v.init = v.s.ns.Init()
	x.kill(v, v.s.ns)
	x.ui.Change(v.index, Started)
	return nil
}

// kill says how a variant is killed; nil: it need not be any more.
func (x *exploration) kill(v *variant, k *ns.Session) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k == nil {
		delete(x.live, v)
	} else {
		x.live[v] = k
	}
}

// drain reads what is left of the output. Nobody is left who could write more.
func (v *variant) drain() {
	for _, p := range v.output {
		p.finish()
	}
	v.output = nil
}

// quiet ends the session and reads what is left of its output.
func (v *variant) quiet() error {
	err := v.s.over()
	v.drain()
	return err
}

// close lets go of everything. The branch stays what it is.
func (v *variant) close() error {
	err := v.quiet()
	v.gone = true
	if v.log != nil {
		v.log.close()
	}
	return errors.Join(err, v.s.close())
}

// lose sees a variant gone and drops it, or keeps it for a look.
func (x *exploration) lose(ctx context.Context, v *variant) {
	x.kill(v, nil) // before its pidfd is closed
	r := v.s.res
	pid := 0
	if v.s.ns != nil {
		pid = v.s.ns.PID()
	}
	ran := !r.Started.IsZero()
	if err := v.quiet(); err != nil {
		if errors.Is(err, syscall.ETIMEDOUT) {
			err = fmt.Errorf("the kernel does not let go of %s of variant %d: %w", processName(pid), v.index, err)
		}
		v.s.warn(err.Error())
	}
	if ran && r.Duration == 0 { // it never exited by itself
		r.Duration = time.Since(r.Started)
		r.ExitCode, r.Signal = signalStatus("SIGKILL"), "SIGKILL"
	}
	r.Reason = x.whyLost(r, ran)
	var err error
	if x.e.KeepLosers && ran {
		r.Settled = Kept
		err = v.s.b.Keep(ctx)
	} else {
		r.Settled = Aborted
		err = errors.Join(v.s.b.SetState(branch.Aborted), v.s.discard())
		if ran {
			x.sweepSoon()
		}
	}
	if err != nil {
		r.Settled, r.Err = Kept, errors.Join(r.Err, err)
	}
	if err := v.close(); err != nil && r.Err == nil {
		r.Err = err
	}
	v.s.tell()
}

func (x *exploration) whyLost(r *Result, ran bool) string {
	switch {
	case !ran && r.Err == nil:
		return "never started"
	case r.Err != nil:
		return r.Err.Error()
	case r.TimedOut:
		return "timed out"
	case r.ExitCode != 0 && r.Signal == "":
		return fmt.Sprintf("exit status %d", r.ExitCode)
	case !x.isHalted() && r.Signal != "":
		return r.Signal
	}
	return "stopped"
}

func (x *exploration) isHalted() bool {
	x.starting.RLock()
	defer x.starting.RUnlock()
	return x.halted
}

// processName names a process by its comm, never by its arguments.
func processName(pid int) string {
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
		return fmt.Sprintf("%s (process %d)", strings.TrimSpace(string(comm)), pid)
	}
	return "the processes"
}

// sweepSoon has the trash emptied while the others run: the losers of a long
// exploration would fill the disk. One child at a time does it.
func (x *exploration) sweepSoon() {
	if x.isHalted() {
		return // it ends anyway
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.sweeps {
		return
	}
	sweep, err := x.set.home.sweepOnce()
	if err != nil {
		return // the end of the run tries again, and says so
	}
	x.sweeps = true
	x.sweeping.Go(func() {
		_ = sweep() // likewise
		x.mu.Lock()
		defer x.mu.Unlock()
		x.sweeps = false
	})
}

// result puts together what is known at the end.
func (x *exploration) result() *GroupResult {
	g := &GroupResult{Group: x.groupName(), Why: "no variant succeeded"}
	for _, v := range x.variants {
		g.Variants = append(g.Variants, v.s.res)
		g.Logs = append(g.Logs, v.logPath())
	}
	if x.winner != nil {
		r := *x.winner.s.res
		g.Result, g.Winner, g.Why = &r, x.winner.index, x.why+whyWon(x.winner)
		if r.Err != nil {
			g.Why += ", but " + r.Err.Error()
		}
		g.warnOf(x.winner)
		return g
	}
	r := &Result{
		Dir: x.set.dir, Engine: x.variants[0].s.res.Engine, Started: x.started, Duration: time.Since(x.started), Settled: Aborted,
		Warnings: x.set.warnings, Passed: x.set.doors(),
	}
	g.Result = r
	switch {
	case x.stopped == "decided":
		g.Why, r.Err = x.err.Error(), x.err
	case x.stopped == "deadline":
		r.TimedOut, r.ExitCode, g.Why = true, statusTimeout, "the deadline passed"
	case x.stopped == "canceled":
		r.ExitCode, g.Why = StatusFailed, "canceled"
	case x.stopped != "":
		r.Signal, r.ExitCode, g.Why = x.stopped, signalStatus(x.stopped), "stopped by "+x.stopped
	case x.last != nil:
		last := x.last.s.res
		r.ExitCode, r.Signal, r.TimedOut, r.Err = last.ExitCode, last.Signal, last.TimedOut, last.Err
	}
	for _, v := range x.variants {
		if v.lost { // a success that nobody could follow
			lost := v.s.res
			r.Err, r.Conflicts, r.Branch, r.ID, r.Settled = lost.Err, lost.Conflicts, lost.Branch, lost.ID, lost.Settled
		}
	}
	signalled := x.stopped != "" && r.Signal == x.stopped
	if x.e.OnNone != nil && !signalled && r.Settled == Aborted && x.err == nil {
		r.ExitCode, r.Err = *x.e.OnNone, nil
	}
	g.Why = x.why + g.Why
	r.Reason = g.Why
	g.warnOf(nil)
	return g
}

func whyWon(v *variant) string { return fmt.Sprintf("variant %d was the first to succeed", v.index) }

// warnOf passes the warnings of the variants but v on.
func (g *GroupResult) warnOf(v *variant) {
	known := map[string]bool{}
	for _, w := range g.Warnings {
		known[w] = true
	}
	for i, r := range g.Variants {
		if v != nil && i+1 == v.index {
			continue
		}
		for _, w := range r.Warnings {
			if !known[w] {
				known[w] = true
				g.Warnings = append(g.Warnings, w)
			}
		}
	}
}

func (x *exploration) groupName() string {
	return strings.TrimSuffix(x.variants[0].s.res.Branch, ".1")
}

// logPath is where the variant's output is kept, "" once it is settled.
func (v *variant) logPath() string {
	if v.log == nil || v.s.res.Settled != Kept {
		return ""
	}
	return v.log.path
}
