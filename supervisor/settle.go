package supervisor

import (
	"context"
	"errors"
	"slices"

	"try/fs/branch"
	"try/fs/changes"
	"try/fs/commit"
	"try/fs/sys"
	"try/fs/vfs"
)

// abort drops the branch. The status is known before the trash is emptied.
func (s *session) abort(reason string) error {
	if err := s.over(); err != nil {
		return err
	}
	if err := s.b.SetState(branch.Aborted); err != nil {
		return err
	}
	if err := s.drop(); err != nil {
		return err
	}
	s.res.Settled, s.res.Reason = Aborted, reason
	return nil
}

// unchanged drops a branch in which nothing changed.
func (s *session) unchanged() error {
	if err := s.over(); err != nil {
		return err
	}
	s.res.Settled, s.res.Reason = Unchanged, "nothing changed"
	s.tell()
	return s.drop()
}

// keep makes the branch last. What the base looks like now is recorded first:
// from here on drift is any difference from that.
func (s *session) keep(ctx context.Context, reason string) error {
	err := s.observe()
	if err := errors.Join(err, s.over()); err != nil {
		return err
	}
	if err := s.b.Keep(ctx); err != nil {
		return err
	}
	s.res.Settled, s.res.Reason = Kept, reason
	return nil
}

// observe records what a later commit compares, and what has drifted already.
func (s *session) observe() error {
	c := &committer{home: s.set.home, b: s.b, res: s.res}
	var err error
	if c.roots, err = s.commitRoots(nil); err != nil { // no place is needed yet: the disk may be full
		return err
	}
	var restored []commit.Restored
	if s.c != nil {
		restored = s.c.restored
	}
	return c.observe(restored)
}

// observe records what the base looks like, of which a roll-back has put some
// back.
func (c *committer) observe(restored []commit.Restored) error {
	for i := range c.roots {
		c.roots[i].Restored = restoredIn(restored, c.roots[i].Path)
	}
	conflicts, err := c.drift()
	if err != nil {
		return err
	}
	return errors.Join(observe(c.b, c.res.Plan, conflicts), forgive(c.b, restored), keepAncestors(c.b, c.res.Plan, conflicts))
}

// judge asks the policy about the changes.
func (s *session) judge() error {
	s.c = &committer{home: s.set.home, b: s.b, res: s.res, ui: s.ui, mounts: s.set.mounts, over: s.over}
	return s.c.judge(s.set.policy, s.set.survey(s.b), s.set.opts.Allow)
}

// settle commits what was judged, after a question if that is the fate, or
// keeps it. No process of the session is left; its view still stands.
func (s *session) settle(ctx context.Context, fate Fate, reason string) error {
	c := s.c
	switch {
	case fate == Abort:
		return s.abort(reason)
	case fate == Keep:
		return s.keep(ctx, reason)
	case s.res.Plan.Empty():
		return s.unchanged()
	}
	if err := s.rootsInto(c); err != nil {
		return errors.Join(err, s.keepRefused(ctx, err)) // no room for what is displaced
	}
	interrupted := s.noted() // perhaps since the fate was chosen
	if fate == Ask && interrupted {
		return s.keep(ctx, "interrupted")
	}
	if fate == Ask || len(s.res.Asks) > 0 && s.ui.CanAsk() && len(s.res.Denied) == 0 && !interrupted {
		answer, err := s.ask(ctx, c)
		if err != nil {
			return err
		}
		if answer != Commit {
			return nil
		}
		reason = "asked"
	}
	if err := c.refusal(); err != nil {
		return errors.Join(err, s.keepRefused(ctx, err))
	}
	if err := c.commit(ctx); err != nil {
		if errors.Is(err, commit.ErrUnfinished) {
			return err // the journal decides, at the next try
		}
		return errors.Join(err, s.keepRefused(ctx, err))
	}
	s.res.Settled, s.res.Reason = Committed, reason
	s.tell()
	c.afterwards(s.retire())
	return nil
}

// ask puts the question and carries out any answer but commit.
func (s *session) ask(ctx context.Context, c *committer) (Fate, error) {
	conflicts, err := c.drift()
	if err != nil {
		return 0, err
	}
	s.res.Conflicts = conflicts
	// What drifts from here on is compared with what is seen now.
	if err := observe(s.b, s.res.Plan, conflicts); err != nil {
		return 0, err
	}
	answer, err := s.ui.Ask(s.res)
	s.res.Conflicts = nil
	switch {
	case err != nil:
		return 0, errors.Join(err, s.keep(ctx, "the question was not answered"))
	case answer == Commit:
		c.answered = true
		return Commit, nil
	case answer == Abort:
		return Abort, s.abort("asked")
	default:
		return Keep, s.keep(ctx, "asked")
	}
}

// keepRefused keeps a branch whose commit was refused.
func (s *session) keepRefused(ctx context.Context, why error) error {
	if err := s.over(); err != nil {
		return err
	}
	err := keepAncestors(s.b, s.res.Plan, s.res.Conflicts)
	if len(s.b.Roots) > 0 && s.b.Roots[0].Seen == nil {
		err = s.observe()
	}
	if err != nil {
		return err
	}
	if err := s.b.Keep(ctx); err != nil {
		return err
	}
	s.res.Settled, s.res.Reason = Kept, why.Error()
	return nil
}

// rootsInto gives the committer the roots, seen through the session's view
// while it stands.
func (s *session) rootsInto(c *committer) (err error) {
	c.roots, err = s.commitRoots(s.res.Plan)
	return err
}

// commitRoots are the roots of the branch; those with changes in plan, which
// may be nil, get a place for what is displaced.
func (s *session) commitRoots(plan *changes.Plan) ([]commit.Root, error) {
	roots, err := commitRoots(s.b, s.set.mounts, plan)
	for i := range roots {
		for _, m := range s.merged {
			if m.root == roots[i].Path {
				roots[i].Merged = m.ino
			}
		}
	}
	if err != nil || s.ns == nil {
		return roots, err
	}
	for i := range roots {
		roots[i].View = s.ns.View(roots[i].Path)
	}
	return roots, nil
}

// commitRoots are the roots of b as a commit wants them. Only those with
// changes get a place for what is displaced.
func commitRoots(b *branch.Branch, mounts []sys.Mount, plan *changes.Plan) ([]commit.Root, error) {
	roots := make([]commit.Root, len(b.Roots))
	for i := range b.Roots {
		r := &b.Roots[i]
		layer, err := b.Layer(i)
		if err != nil {
			return nil, err
		}
		roots[i] = commit.Root{
			Path: r.Path, ID: r.ID, Layer: layer, Stamp: r.Stamp, Strict: r.Strict, Copy: r.Copy, SyncFD: b.SyncFD(i),
		}
		if roots[i].Seen, err = seenOf(b, i); err != nil {
			return nil, err
		}
		if plan == nil || len(plan.Roots[i].Changes) == 0 {
			continue
		}
		if roots[i].Slots, err = b.Slots(i, mounts); err != nil {
			return nil, err
		}
	}
	return roots, nil
}

// committer brings one branch into the base.
type committer struct {
	home     *Home
	b        *branch.Branch
	res      *Result
	ui       UI
	mounts   []sys.Mount
	roots    []commit.Root
	verdict  *verdict
	answered bool              // the user said yes to what the policy asks about
	over     func() error      // ends the session; nil if there is none
	restored []commit.Restored // what a roll-back put back
	whole    *branch.Branch    // of which b is a part; nil: it is none
	// accepted is what of the base was seen, by root and path, when it was
	// decided that the branch's change is committed all the same.
	accepted map[string]map[string]commit.Seen
}

// commit applies the branch under the store's commit lock. On an error nothing
// is applied, unless it is commit.ErrUnfinished.
func (c *committer) commit(ctx context.Context) (err error) {
	lock, err := c.home.store.LockCommits(ctx, c.b.Name, func(holder string) {
		c.ui.Warn("waiting for " + holder + " to finish its commit")
	})
	if err != nil {
		return err
	}
	defer lock.Unlock()
	// Before the commit point: if we die behind it, no other member of the
	// group may commit, whether recovery has come by or not.
	g, err := c.b.GroupOf()
	if err != nil {
		return err
	}
	chosen := g != nil && g.Winner == c.b.ID
	if err := c.b.Decide(); err != nil {
		return err
	}
	defer func() {
		if err == nil || chosen || errors.Is(err, commit.ErrUnfinished) {
			return
		}
		if e := c.b.Undecide(); e != nil {
			err = errors.Join(err, e)
		}
	}()
	conflicts, err := c.drift()
	if err != nil {
		return err
	}
	if conflicts = c.yield(conflicts); len(conflicts) == 0 {
		if conflicts, err = commit.Writers(c.res.Plan); err != nil {
			return err
		}
		conflicts = c.yield(conflicts)
	}
	if len(conflicts) > 0 {
		c.res.Conflicts = conflicts
		return &commit.ConflictError{Conflicts: conflicts}
	}
	return c.apply(ctx)
}

// drift compares the base with what it was at the fork, or when it was last
// looked at, and with what other branches have committed meanwhile.
func (c *committer) drift() ([]commit.Conflict, error) {
	lists, err := others(c.b)
	if err != nil {
		return nil, err
	}
	clock, err := clock(c.b)
	if err != nil {
		return nil, err
	}
	found, err := commit.Drift(c.res.Plan, c.roots, lists, clock)
	if err != nil {
		return nil, err
	}
	seen := func(x commit.Conflict) bool {
		_, ok := c.accepted[x.Root][x.Path]
		return ok
	}
	if len(c.accepted) > 0 {
		// What somebody else committed was seen where it was decided about.
		own, err := commit.Drift(c.res.Plan, c.roots, nil, clock)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, func(x commit.Conflict) bool {
			return seen(x) && !slices.Contains(own, x)
		})
	}
	reader := c.b
	if c.whole != nil {
		reader = c.whole
	}
	read, err := readAndChanged(reader, c.home.store)
	return append(found, slices.DeleteFunc(read, seen)...), err
}

// apply journals and applies what is left of the plan.
func (c *committer) apply(ctx context.Context) error {
	release, err := shield()
	if err != nil {
		return err
	}
	defer release()
	protected, err := c.home.store.Places()
	if err != nil {
		return err
	}
	if err := c.b.Announce(altered(c.res.Plan)); err != nil {
		return err
	}
	before := c.b.State
	if err := c.b.SetState(branch.Committing); err != nil {
		return err
	}
	job := &commit.Job{
		Dir: c.b.Path(), ID: c.b.ID, Roots: c.roots, Protected: protected, Spare: c.home.store.SpareJournal(),
	}
	if c.over != nil { // as late as it may be: the namespaces take time to end
		err = c.over()
		for i := range c.roots {
			c.roots[i].View = nil
		}
	}
	if err == nil {
		err = job.Commit(ctx, vfs.Disk(), c.res.Plan, c.ui.Progress)
	}
	switch conflict, ok := errors.AsType[*commit.ConflictError](err); {
	case err == nil:
		c.afterwards(errors.Join(c.b.RaiseEpoch(), c.b.Sealed(), c.b.SetState(branch.Committed)))
		return nil
	case errors.Is(err, commit.ErrUnfinished):
		return err
	case ok:
		c.res.Conflicts, c.restored = conflict.Conflicts, conflict.Restored
	}
	c.b.State = before // nothing was applied: that is what the disk says still
	err = errors.Join(err, c.b.Withdrawn(), c.b.ForgetJournal())
	if len(c.restored) > 0 {
		err = errors.Join(err, forgive(c.b, c.restored), c.b.Save())
	}
	return err
}

// afterwards says what went wrong behind a commit. It has happened all the same:
// the next try goes on cleaning up.
func (c *committer) afterwards(err error) {
	if err != nil {
		c.res.Warnings = append(c.res.Warnings, "committed, but not cleaned up: "+err.Error())
		c.ui.Warn(c.res.Warnings[len(c.res.Warnings)-1])
	}
}
