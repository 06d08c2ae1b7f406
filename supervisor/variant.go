package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"try/fs/branch"
	"try/ns"
)

// variant is one member of an exploration.
type variant struct {
	index  int
	s      *session
	sig    chan os.Signal
	log    *log
	pumps  sync.WaitGroup // of its output
	passed bool           // it may be picked; written before it is sent to ended
	lost   bool           // it was picked, and its commit met a conflict
	ran    bool
	err    error
}

// shared is what the goroutines of variants have in common with that of run.
type shared struct {
	// starting is read-locked while a session is being set up, and locked by
	// who stops them all: then each is either known, or never starts.
	starting sync.RWMutex
	stopped  bool
	live     map[*variant]*ns.Session
	mu       sync.Mutex // guards live
}

// member is the variant in branch b.
func (x *exploration) member(index int, b *branch.Branch) *variant {
	v := &variant{index: index, sig: make(chan os.Signal, 4)}
	v.s = x.set.session(b, variantUI{x.ui, index}, v.sig)
	v.s.prepare = func(spec *ns.Spec) {
		spec.Env = append(spec.Env, "TRY_INDEX="+strconv.Itoa(index), "TRY_COUNT="+strconv.Itoa(len(x.e.Variants)))
		spec.Terminal = false
	}
	x.ui.Change(index, Queued)
	return v
}

// variantUI gives the events of a variant their index, and asks nothing:
// whatever a variant would ask is the rule's to decide.
type variantUI struct {
	ExploreUI
	index int
}

func (u variantUI) Event(e Event) {
	e.Index = u.index
	u.ExploreUI.Event(e)
}

func (u variantUI) Warn(message string) {
	u.ExploreUI.Warn(fmt.Sprintf("[%d] %s", u.index, message))
}

// drive takes a variant from its start to the point where the rule is asked.
func (x *exploration) drive(ctx context.Context, v *variant) {
	v.err = x.tryOne(ctx, v)
	switch {
	case v.passed:
	case errors.Is(v.err, errStopped):
		x.ui.Change(v.index, Stopped)
	default:
		x.ui.Change(v.index, Failed)
	}
	x.ended <- v
}

// errStopped says that the exploration was over before this variant was.
var errStopped = errors.New("stopped")

func (x *exploration) tryOne(ctx context.Context, v *variant) error {
	if err := x.start(ctx, v); err != nil {
		return err
	}
	err := v.s.run(ctx)
	if err != nil {
		return x.orStopped(v, err)
	}
	if v.s.res.ExitCode != 0 {
		return nil
	}
	if len(v.s.set.opts.Checks) > 0 {
		x.ui.Change(v.index, Checking)
		if err := v.s.check(ctx); err != nil {
			return x.orStopped(v, err)
		}
	}
	if err := v.s.plan(ctx); err != nil {
		return x.orStopped(v, err)
	}
	if err := v.s.judge(); err != nil {
		return x.orStopped(v, err)
	}
	if err := v.s.c.refusal(); err != nil {
		return x.orStopped(v, err)
	}
	x.shared.mu.Lock()
	delete(x.shared.live, v) // nothing of it runs any more
	x.shared.mu.Unlock()
	v.passed = true
	return nil
}

// orStopped tells a variant's own failure from the end that we gave it.
func (x *exploration) orStopped(v *variant, err error) error {
	x.shared.starting.RLock()
	defer x.shared.starting.RUnlock()
	if x.shared.stopped {
		return errStopped
	}
	v.s.res.Err = err
	return err
}

// start sets the session up, with pipes for its output.
func (x *exploration) start(ctx context.Context, v *variant) error {
	x.shared.starting.RLock()
	defer x.shared.starting.RUnlock()
	if x.shared.stopped {
		return errStopped
	}
	v.ran = true
	var ends []*os.File
	defer func() {
		for _, f := range ends {
			f.Close()
		}
	}()
	stdio, readers, err := x.plumb(v, &ends)
	if err != nil {
		ends = append(ends, readers...)
		v.s.res.Err = err
		return err
	}
	withEnv := v.s.prepare
	v.s.prepare = func(spec *ns.Spec) {
		withEnv(spec)
		for i := range spec.Programs {
			spec.Programs[i].Stdio = stdio
		}
	}
	for i, r := range readers {
		v.pumps.Add(1)
		go x.pump(v, i+1, r)
	}
	if err := v.s.start(ctx); err != nil {
		v.s.res.Err = err
		return err
	}
	x.shared.mu.Lock()
	if x.shared.live == nil {
		x.shared.live = map[*variant]*ns.Session{}
	}
	x.shared.live[v] = v.s.ns
	x.shared.mu.Unlock()
	x.ui.Change(v.index, Started)
	return nil
}

// plumb makes the descriptors of a variant. Those in ends are closed once init
// has them.
func (x *exploration) plumb(v *variant, ends *[]*os.File) (stdio [3]*os.File, readers []*os.File, err error) {
	if v.log, err = createLog(v.s.b.Path()); err != nil {
		return stdio, nil, err
	}
	if stdio[0], err = x.stdin(); err != nil {
		return stdio, nil, err
	}
	*ends = append(*ends, stdio[0])
	for i := 1; i <= 2; i++ {
		r, w, err := os.Pipe()
		if err != nil {
			return stdio, readers, fmt.Errorf("make a pipe for the output of variant %d: %w", v.index, err)
		}
		stdio[i] = w
		*ends = append(*ends, w)
		readers = append(readers, r)
	}
	return stdio, readers, nil
}

// stdin is one variant's: empty, or a copy of ours.
func (x *exploration) stdin() (*os.File, error) {
	if x.feed == nil {
		return os.Open(os.DevNull)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe for stdin: %w", err)
	}
	go func() {
		// Who does not read to the end gets no more: EPIPE.
		_, _ = io.Copy(w, io.NewSectionReader(x.feed, 0, 1<<62))
		w.Close()
	}()
	return r, nil
}

// readAllStdin keeps what r holds in memory, once for all variants.
func readAllStdin(r io.Reader) (*os.File, error) {
	if r == nil {
		return nil, nil
	}
	fd, err := unix.MemfdCreate("try stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("keep stdin: %w", err)
	}
	f := os.NewFile(uintptr(fd), "stdin")
	if _, err := io.Copy(f, r); err != nil {
		f.Close()
		return nil, fmt.Errorf("read stdin: %w", err)
	}
	return f, nil
}

// pump brings one stream of a variant to its log and to the display.
func (x *exploration) pump(v *variant, stream int, r *os.File) {
	defer v.pumps.Done()
	defer r.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			v.log.write(stream, buf[:n])
			x.ui.Output(v.index, stream, buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// stop notes a signal that ends the whole exploration; others are passed on.
func (x *exploration) stop(sig os.Signal) {
	n := sig.(unix.Signal)
	switch n {
	case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
		x.stopped = unix.SignalName(n)
	case unix.SIGPIPE:
	default:
		for _, v := range x.variants {
			select {
			case v.sig <- sig:
			default: // it has not taken the last one yet
			}
		}
	}
}

func signalStatus(name string) int { return 128 + int(unix.SignalNum(name)) }

// killAll sends SIGKILL to every session that is not to be settled. The
// decision is in the store; with the signal pending no process of theirs
// returns to user mode. It does not wait for them.
func (x *exploration) killAll() {
	x.shared.starting.Lock()
	x.shared.stopped = true
	x.shared.starting.Unlock()
	x.shared.mu.Lock()
	defer x.shared.mu.Unlock()
	for _, s := range x.shared.live {
		_ = s.Kill() // what cannot be killed is named when it is waited for
	}
}

// lose drops every variant but the winner, or keeps it for a look, after all
// its processes are gone.
func (x *exploration) lose(ctx context.Context) {
	for _, v := range x.variants {
		if v == x.winner {
			continue
		}
		if err := v.s.over(); err != nil {
			if errors.Is(err, syscall.ETIMEDOUT) {
				x.hanging = append(x.hanging, v.s.res.Branch)
			}
			v.s.res.Warnings = append(v.s.res.Warnings, err.Error())
		}
	}
	for _, v := range x.variants {
		v.pumps.Wait()
	}
	x.ui.Done(x.replay())
	for _, v := range x.variants {
		if v.log != nil {
			v.log.close()
		}
		if v == x.winner {
			if err := v.s.close(); err != nil && v.s.res.Err == nil {
				v.s.res.Err = err
			}
			continue
		}
		x.settleLoser(ctx, v)
	}
}

func (x *exploration) settleLoser(ctx context.Context, v *variant) {
	r := v.s.res
	reason := "another variant was first"
	switch {
	case !v.ran:
		reason = "never started"
	case r.Err != nil:
		reason = r.Err.Error()
	case r.ExitCode != 0:
		reason = fmt.Sprintf("exit status %d", r.ExitCode)
	case x.stopped != "":
		reason = "stopped"
	}
	var err error
	switch {
	case v.lost:
		return // kept already: its commit met a conflict
	case x.e.KeepLosers && v.ran:
		r.Settled = Kept
		err = v.s.b.Keep(ctx)
	default:
		r.Settled = Aborted
		err = errors.Join(v.s.b.SetState(branch.Aborted), v.s.discard())
	}
	r.Reason = reason
	if err != nil {
		r.Settled, r.Err = Kept, errors.Join(r.Err, err)
	}
	if err := v.s.close(); err != nil && r.Err == nil {
		r.Err = err
	}
	v.s.ui.Event(Event{Kind: "settled", Result: r})
}

// replay prints the winner's output.
func (x *exploration) replay() func(stdout, stderr io.Writer) error {
	if x.winner == nil || x.winner.log == nil {
		return nil
	}
	return x.winner.log.replay
}

// logPath is where the variant's output is kept, "" once it is settled.
func (v *variant) logPath() string {
	if v.log == nil || v.s.res.Settled != Kept {
		return ""
	}
	return v.log.path
}
