package supervisor

import (
	"context"
	"errors"
	"fmt"

	"try/fs/commit"
)

// Run runs a command in a branch and settles it. An error says that there was
// no session: nothing ran and nothing is left. What failed after CMD was
// started is in Result.Err.
func Run(ctx context.Context, o Options, ui UI) (*Result, error) {
	caught := catching()
	set, err := prepare(o)
	sig := caught()
	defer sig.release()
	if err != nil {
		return nil, err
	}
	defer set.close()
	for _, w := range set.warnings {
		ui.Warn(w)
	}
	s, err := set.open(ui, sig.c)
	if err != nil {
		return nil, err
	}
	s.askable = ui.CanAsk()
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.discard(), set.home.tidy())
	}
	if err := s.finish(ctx); err != nil {
		s.fail(err)
	}
	if err := s.close(); err != nil && s.res.Err == nil {
		s.res.Err = err
	}
	s.tell()
	set.home.tidyBehind(ui)
	return s.res, nil
}

// keepStarved keeps what a session wrote that was ended because of it.
func (s *session) keepStarved(ctx context.Context) error {
	s.res.Err = s.starved
	if err := s.plan(ctx); err != nil {
		return errors.Join(s.starved, err)
	}
	if err := s.keep(ctx, s.starved.Error()); err != nil {
		return errors.Join(s.starved, err)
	}
	return nil
}

// tell says how the branch was settled, once: before what has only to be
// cleaned up, if nobody needs to wait for that.
func (s *session) tell() {
	if !s.told {
		s.told = true
		s.ui.Event(Event{Kind: "settled", Result: s.res})
	}
}

// finish is a session's life from CMD's start to settled.
func (s *session) finish(ctx context.Context) error {
	if err := s.run(ctx); err != nil {
		if s.starved != nil {
			return s.keepStarved(ctx)
		}
		return err
	}
	fate, reason := s.fate()
	var failed error
	if fate == Commit || fate == Ask {
		failed = s.check(ctx)
		if c, ok := errors.AsType[*CheckError](failed); ok && s.set.opts.OnFailure == Abort {
			fate, reason = Abort, c.Error()
		}
	}
	s.res.Err = failed
	if fate != Ask {
		s.dismiss()
	}
	if fate == Abort && s.set.opts.Unseen {
		return s.abort(reason)
	}
	if err := s.plan(ctx); err != nil {
		return errors.Join(failed, err)
	}
	switch {
	case fate == Abort:
		return s.abort(reason)
	case failed != nil:
		return s.keep(ctx, failed.Error())
	}
	if fate == Commit {
		commit.WriteAhead(s.res.Plan)
	}
	if err := s.judge(); err != nil {
		return err
	}
	return s.settle(ctx, fate, reason)
}

// dismiss lets init go, which has nothing more to do: its namespaces are taken
// down while the changes are looked at. The views stay, they are descriptors
// of ours; the end is waited for, and heard of, by over.
func (s *session) dismiss() {
	if s.ns != nil {
		_ = s.ns.Kill()
	}
}

// fate says what is to become of the branch, before anything is known of its
// changes: what was asked for, else the default.
func (s *session) fate() (Fate, string) {
	o := &s.set.opts
	said, reason := o.OnFailure, fmt.Sprintf("exit status %d", s.res.ExitCode)
	if s.res.ExitCode == 0 {
		said = o.OnSuccess
	}
	switch {
	case o.OnFailure != 0 && o.OnFailure == o.OnSuccess:
		reason = "--" + said.String() // whatever became of CMD
	case s.res.TimedOut:
		reason = "timed out"
	case s.res.Signal != "":
		reason = s.res.Signal
	}
	if said == 0 {
		switch {
		case s.askable: // also if the terminal is gone since
			said = Ask
		case s.res.ExitCode == 0:
			said = Commit
		default:
			said = Abort
		}
	}
	if said == Ask {
		if s.noted() {
			return Keep, "interrupted"
		}
		if !s.ui.CanAsk() {
			s.warn("there is no terminal to ask on: the branch is kept")
			return Keep, "no terminal to ask on"
		}
	}
	return said, reason
}

// fail notes an error after which nothing can be settled: the branch is kept
// as it is.
func (s *session) fail(err error) {
	s.res.Err = err
	if s.res.Settled == "" {
		s.res.Settled, s.res.Reason = Kept, err.Error()
	}
}

// drop drops the branch.
func (s *session) drop() error {
	if err := s.over(); err != nil {
		return err
	}
	if s.res.Plan != nil && s.res.Plan.Empty() {
		s.letGo()
		return s.b.Recycle()
	}
	return s.discard()
}

// discard drops the branch to the trash.
func (s *session) discard() error {
	if err := s.over(); err != nil {
		return err
	}
	s.letGo()
	return s.b.Discard()
}

// retire makes an undo record of a branch that was committed.
func (s *session) retire() error {
	if err := s.over(); err != nil {
		return err
	}
	s.letGo()
	return s.b.Retire()
}

// letGo closes the directories of the plan.
func (s *session) letGo() {
	for _, d := range s.opened {
		d.Close() // O_PATH: nothing was written through it
	}
	s.opened = nil
}
