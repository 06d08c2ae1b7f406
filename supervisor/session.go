package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/branch"
	"try/fs/changes"
	"try/fs/commit"
	"try/fs/engine"
	"try/fs/fusefs"
	"try/fs/sys"
	"try/ns"
)

const defaultGrace = 2 * time.Second

// manyChanges is more than what is planned and committed in some 16 MB.
const manyChanges = 20_000

// session is one run of a command in a branch.
type session struct {
	set *setup
	ui  UI
	sig <-chan os.Signal
	b   *branch.Branch
	ns  *ns.Session // nil once it is over
	// What this process serves of the session's mounts, as long as ns.
	servers []*fusefs.Server
	host    *hostMounts // nil: none, or no more
	merged  []*merges   // of each that it serves
	reads   []*reads    // the same, with --serializable
	res     *Result
	c       *committer // once the policy was asked

	prepare     func(*ns.Spec) // the last word on what init gets; may be nil
	opened      []*sys.Dir     // of the plan
	interrupted bool           // TERM or HUP: nothing is asked any more
	heard       []unix.Signal  // of ending, when the last program ended
	askable     bool           // there was a terminal to ask on at the start
	lastInt     time.Time      // when INT came
	told        bool           // how it was settled
	watch       *watch         // once CMD runs
	starved     *StarvedError  // why it was ended before its time
}

// creation is what a branch of this run is made of.
func (s *setup) creation(argv []string) branch.CreateOptions {
	return branch.CreateOptions{
		Name: s.opts.Branch, Roots: s.coverage.Roots, Mounts: s.mounts,
		Runtime: os.Getenv("XDG_RUNTIME_DIR"), Command: argv, Dir: s.dir,
		Scope: s.opts.Scope, Policy: string(s.snapshot),
	}
}

// open makes the branch of a single run.
func (s *setup) open(ui UI, sig <-chan os.Signal) (*session, error) {
	argv := s.opts.Argv
	if len(argv) == 0 {
		argv = []string{shell()}
	}
	b, err := s.home.store.Create(s.creation(argv))
	if err != nil {
		return nil, err
	}
	notes, err := b.CopyNotes()
	if err != nil {
		return nil, errors.Join(err, b.Discard())
	}
	out := s.session(b, ui, sig)
	for _, note := range notes {
		out.warn(note)
	}
	return out, nil
}

// session is the session of branch b.
func (s *setup) session(b *branch.Branch, ui UI, sig <-chan os.Signal) *session {
	res := resultOf(b)
	res.Warnings = append(res.Warnings, s.warnings...)
	res.Passed = append(res.Passed, s.doors()...)
	return &session{set: s, ui: ui, sig: sig, b: b, res: res}
}

// begin starts what spec says.
func (s *setup) begin(spec *ns.Spec) (*ns.Session, error) {
	if !s.confined && engine.Off("userns") {
		return nil, orConfined(namespaces())
	}
	session, err := ns.Start(spec)
	if err != nil && !s.confined {
		err = orConfined(err)
	}
	return session, err
}

// start sets the session up and starts CMD.
func (s *session) start(ctx context.Context) error {
	if err := s.mountPoints(); err != nil {
		return err
	}
	spec, err := s.set.spec(s)
	if err != nil {
		return errors.Join(err, s.unserve(), s.hostLeft())
	}
	if s.prepare != nil {
		s.prepare(spec)
	}
	if err := s.b.WaitStamp(ctx); err != nil {
		return errors.Join(err, s.unserve(), s.hostLeft())
	}
	s.ui.Event(Event{Kind: "branch", Result: s.res})
	s.res.Started = time.Now()
	if s.ns, err = s.set.begin(spec); err != nil {
		return errors.Join(err, s.unserve(), s.hostLeft())
	}
	if err := s.b.Began(s.ns.Init()); err != nil {
		s.warn(err.Error())
	}
	if s.set.confined {
		s.tellConfined(spec.Dir)
	} else {
		s.leaveHost()
	}
	for _, w := range s.ns.Warnings() {
		s.warn(w)
	}
	s.ui.Event(Event{Kind: "started", Result: s.res, PID: s.ns.PID()})
	mayCommit := s.set.opts.OnSuccess != Abort
	s.b.Meanwhile(mayCommit)
	if mayCommit {
		go func() { // while CMD runs, what nobody has to wait for when it has ended
			s.set.survey(s.b)
			commit.Prepare()
		}()
	}
	return nil
}

func (s *session) warn(message string) {
	s.res.Warnings = append(s.res.Warnings, message)
	s.ui.Warn(message)
}

// run runs CMD and the checks to their ends, and ends what they left. Then
// init is the only process of the session.
func (s *session) run(ctx context.Context) error {
	exit, err := s.wait(ctx, s.set.opts.Timeout)
	if err != nil {
		return err
	}
	s.res.Duration = time.Since(s.res.Started)
	s.res.ExitCode = exit.Code
	if exit.Signal != 0 {
		s.res.Signal = unix.SignalName(exit.Signal)
	}
	if exit.Exec != 0 {
		s.res.NotRun = fmt.Errorf("run %s: %w", s.b.Command[0], exit.Exec)
	}
	if s.res.TimedOut {
		s.res.ExitCode = statusTimeout
	}
	s.ui.Event(Event{Kind: "exited", Result: s.res})
	if exit.Left && s.set.opts.Wait && !s.interrupted && !s.res.TimedOut && s.starved == nil {
		if err := s.linger(ctx); err != nil {
			return err
		}
	}
	if err := s.end(ctx); err != nil || s.starved == nil {
		return err
	}
	return s.starved
}

// statusTimeout is the exit status when --timeout ended CMD.
const statusTimeout = 124

// end ends what is left of the session's processes. INT does not wait for the
// grace.
func (s *session) end(ctx context.Context) error {
	done := make(chan error, 1)
	go func() {
		killed, err := s.ns.End(ctx, *s.set.opts.Grace)
		s.res.Killed = append(s.res.Killed, killed...)
		done <- err
	}()
	for {
		select {
		case err := <-done:
			return err
		case sig := <-s.sig:
			s.note(sig)
			if sig == unix.SIGINT {
				same := s.lastInt.IsZero() && s.res.ExitCode == 128+int(unix.SIGINT)
				s.lastInt = time.Now()
				if !same { // as the one that has just ended CMD
					s.pass(unix.SIGINT)
				}
			}
		}
	}
}

// note remembers that an end was asked for.
func (s *session) note(sig os.Signal) {
	if sig == unix.SIGTERM || sig == unix.SIGHUP {
		s.interrupted = true
	}
}

// noted says whether an end was asked for up to now. No process is left that
// other signals could be passed on to.
func (s *session) noted() bool {
	for {
		select {
		case sig := <-s.sig:
			s.note(sig)
		default:
			return s.interrupted
		}
	}
}

// linger waits for what CMD left, as long as nobody asks for an end.
func (s *session) linger(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.ns.Linger(ctx) }()
	look := time.NewTimer(s.watch.every)
	defer look.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-look.C:
			if err := s.look(ctx, look); err != nil {
				return err
			}
		case sig := <-s.sig:
			switch sig {
			case unix.SIGTERM, unix.SIGHUP:
				s.interrupted = true
				fallthrough
			case unix.SIGINT:
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					return err
				}
				return nil
			}
		}
	}
}

// wait passes signals on until the running program has ended. What is asked to
// end and does not is killed after the grace.
func (s *session) wait(ctx context.Context, timeout time.Duration) (ns.Exit, error) {
	type ended struct {
		exit ns.Exit
		err  error
	}
	done := make(chan ended, 1)
	go func() {
		e, err := s.ns.Wait(ctx)
		done <- ended{e, err}
	}()
	var expired, kill <-chan time.Time
	if timeout > 0 {
		expired = time.After(timeout)
	}
	if s.watch == nil {
		var err error
		if s.watch, err = newWatch(s.b, s.set.settings.MaxBytes); err != nil {
			return ns.Exit{}, err
		}
	}
	look := time.NewTimer(s.watch.every)
	defer look.Stop()
	terminate := func() {
		s.pass(unix.SIGTERM)
		kill = time.After(*s.set.opts.Grace)
	}
	for {
		select {
		case e := <-done:
			s.hear(&e.exit)
			return e.exit, e.err
		case <-expired:
			s.res.TimedOut = true
			terminate()
		case <-kill:
			s.pass(unix.SIGKILL)
		case <-look.C:
			if err := s.look(ctx, look); err != nil {
				return ns.Exit{}, err
			}
		case sig := <-s.sig:
			switch n := sig.(unix.Signal); n {
			case unix.SIGPIPE:
			case unix.SIGTERM, unix.SIGHUP:
				s.interrupted = true
				s.pass(n)
				kill = time.After(*s.set.opts.Grace)
			case unix.SIGINT:
				if !s.lastInt.IsZero() && time.Since(s.lastInt) < *s.set.opts.Grace {
					s.pass(unix.SIGKILL)
				}
				s.lastInt = time.Now()
				s.pass(n)
			default:
				s.pass(n)
			}
		}
	}
}

// hear notes the signals that may have made a program end, but have not yet
// come here.
func (s *session) hear(e *ns.Exit) {
	for _, sig := range ending {
		if e.Heard(sig) && !signal.Ignored(sig) {
			s.heard = append(s.heard, sig)
		}
	}
}

// look ends every process of the session if it has written too much, and sets
// the timer for the next look otherwise.
func (s *session) look(ctx context.Context, again *time.Timer) error {
	starved, err := s.watch.look(s.warn)
	if err != nil || starved == nil {
		again.Reset(s.watch.every)
		return err
	}
	s.starved = starved
	killed, err := s.ns.End(ctx, 0)
	s.res.Killed = append(s.res.Killed, killed...)
	return err
}

// pass gives CMD a signal. That init cannot be asked any more is heard by Wait.
func (s *session) pass(sig unix.Signal) { _ = s.ns.Signal(sig) }

// CheckError says that a check did not pass.
type CheckError struct {
	Check  string
	Status int
}

func (e *CheckError) Error() string {
	return fmt.Sprintf("check %q ended with status %d", e.Check, e.Status)
}

// check runs the checks, each followed by the end of all that it left.
func (s *session) check(ctx context.Context) error {
	for i, check := range s.set.opts.Checks {
		if s.interrupted {
			return &CheckError{check, 128 + int(unix.SIGTERM)}
		}
		if err := s.ns.Run(i + 1); err != nil {
			return err
		}
		exit, err := s.wait(ctx, s.set.opts.Timeout)
		if err := errors.Join(err, s.end(ctx)); err != nil {
			return err
		}
		if s.starved != nil {
			return s.starved
		}
		if exit.Code != 0 {
			return &CheckError{check, exit.Code}
		}
	}
	return nil
}

// plan compares the layers with the base. No process of the session is left.
// What the kernel has not yet written of a file behind FUSE, times too, it
// writes when the mount goes: then the layer is whole.
func (s *session) plan(ctx context.Context) error {
	if len(s.servers) > 0 {
		if err := errors.Join(s.over(), s.keepReads()); err != nil {
			return err
		}
	}
	plan, opened, err := makePlan(ctx, s.b)
	s.opened = opened
	s.res.Plan = plan
	if plan != nil {
		s.res.Warnings = append(s.res.Warnings, plan.Warnings...)
	}
	return err
}

// makePlan plans the commit of a branch. The directories that it opened serve
// the plan and are closed by the caller. A layer that is gone is an error.
func makePlan(ctx context.Context, b *branch.Branch) (*changes.Plan, []*sys.Dir, error) {
	var opened []*sys.Dir
	open := func(path string) (*sys.Dir, error) {
		d, err := sys.OpenDir(path)
		if err == nil {
			opened = append(opened, d)
		}
		return d, err
	}
	var roots []changes.Root
	for i := range b.Roots {
		r := &b.Roots[i]
		if err := b.CheckRoot(i); err != nil {
			return nil, opened, fmt.Errorf("plan the commit of %s: %w", b.Name, err)
		}
		path, err := b.Layer(i)
		if err != nil {
			return nil, opened, fmt.Errorf("plan the commit of %s: %w", b.Name, err)
		}
		base, err := open(r.Path)
		if err != nil {
			return nil, opened, fmt.Errorf("plan the commit of %s: %w", b.Name, err)
		}
		upper, err := open(path)
		if err != nil {
			return nil, opened, fmt.Errorf("plan the commit of %s: %w", b.Name, err)
		}
		roots = append(roots, changes.Root{
			Path: r.Path, Base: base, Layer: upper, Prepared: r.Prepared,
			Owners: sys.Root(), OwnXattr: ns.OwnXattr, Stamp: r.Stamp, Stores: b.Stores,
		})
	}
	// CMD is over, and of what a commit allocates much lasts: it is collected when
	// 16 MB are in use, not 4, which is a tenth of the time that 10,000 files take.
	debug.SetGCPercent(400)
	plan, err := changes.Make(ctx, roots)
	if plan != nil && plan.Counts().Total() > manyChanges {
		debug.SetGCPercent(100) // there memory counts
	}
	if err != nil {
		err = fmt.Errorf("plan the commit of %s: %w", b.Name, err)
	}
	return plan, opened, err
}

// over ends the session: init exits and is reaped, the mounts go with it.
func (s *session) over() error {
	if s.ns == nil {
		return nil
	}
	var err error
	if s.set.confined { // its processes are at the mounts that stand here
		err = s.ns.Close()
		err = errors.Join(err, s.hostLeft())
	} else {
		err = s.hostLeft()
		err = errors.Join(err, s.ns.Close())
	}
	s.ns = nil
	return errors.Join(err, s.unserve())
}

// close lets go of everything; the branch stays as it is on disk.
func (s *session) close() error {
	err := s.over()
	for _, d := range s.opened {
		err = errors.Join(err, d.Close())
	}
	s.opened = nil
	return errors.Join(err, s.b.Close())
}
