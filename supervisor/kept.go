package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"try/fs/branch"
	"try/fs/changes"
	"try/fs/commit"
	"try/fs/sys"
)

func sortNewest(list []branch.Info) {
	slices.SortStableFunc(list, func(a, b branch.Info) int { return b.Created.Compare(a.Created) })
}

// kept is a branch that is settled later, without a session.
type kept struct {
	committer
	opened []*sys.Dir
	of     *kept // the branch of which this is a part; nil: it is a whole one
}

// openKept opens a branch and plans its commit.
func (h *Home) openKept(ctx context.Context, name string, ui UI) (*kept, error) {
	b, err := h.open(name)
	if err != nil {
		return nil, err
	}
	k := &kept{committer: committer{home: h, b: b, res: resultOf(b), ui: ui}}
	k.res.Plan, k.opened, err = makePlan(ctx, b)
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	k.res.Warnings = append(k.res.Warnings, k.res.Plan.Warnings...)
	if k.mounts, err = sys.Mounts(); err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

func (k *kept) close() error {
	var errs []error
	for _, d := range k.opened {
		errs = append(errs, d.Close())
	}
	k.opened = nil
	return errors.Join(append(errs, k.b.Close())...)
}

// Changes says what a commit of the branch would do, until f returns. The
// result's directories are open only that long.
func (h *Home) Changes(ctx context.Context, name string, ui UI, f func(*Result) error) error {
	k, err := h.openKept(ctx, name, ui)
	if err != nil {
		return err
	}
	k.res.Settled, k.res.Reason = Kept, k.b.State.String()
	return errors.Join(f(k.res), k.close())
}

// CommitOptions is how a kept branch is committed.
type CommitOptions struct {
	Allow   []string // globs that answer the policy's "ask"
	Damaged bool     // commit a branch that was never synced and is of another boot
	// Only and Exclude are globs, relative to the working directory: commit what
	// one of Only matches, all if there is none, and none of Exclude does. The
	// rest stays in the branch.
	Only, Exclude []string
	// Decisions decide about conflicts: the first whose glob matches. Resolver,
	// if there is a terminal, decides about the others.
	Decisions []Decision
	Resolver  Resolver
	// Edit opens the files in which conflict markers are left.
	Edit bool
}

// Commit commits a kept branch. It puts no question but those of the policy.
func (h *Home) Commit(ctx context.Context, name string, o CommitOptions, ui UI) (*Result, error) {
	sig := catch()
	defer sig.release()
	k, err := h.openKept(ctx, name, ui)
	if err != nil {
		return nil, err
	}
	r := k.res
	within, err := k.choose(o)
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	if err := k.settle(ctx, o, within); err != nil {
		r.Err = err
		r.Settled, r.Reason = Kept, err.Error()
	}
	if err := k.close(); err != nil && r.Err == nil {
		r.Err = err
	}
	ui.Event(Event{Kind: "settled", Result: r})
	h.tidyBehind(ui)
	return r, nil
}

func (k *kept) settle(ctx context.Context, o CommitOptions, within func(*changes.Change, string) bool) (err error) {
	if err := k.ready(ctx, o); err != nil {
		return err
	}
	var left map[string]How
	if len(o.Decisions) > 0 || o.Edit || o.Resolver != nil && k.ui.CanAsk() {
		if err := k.observed(); err != nil {
			return err
		}
		if left, err = k.resolve(ctx, o, within); err != nil {
			return err
		}
		rest := func(c *changes.Change, path string) bool { return left[path] == Undecided && within(c, path) }
		if err := k.edit(ctx, o, rest); err != nil {
			return err
		}
	}
	c, err := newCut(k.res.Plan, func(c *changes.Change, path string) fate {
		switch {
		case left[path] == Ours:
			return dropped
		case left[path] == Skip || !within(c, path):
			return stays
		}
		return chosen
	})
	switch {
	case err != nil:
		return withHint(err, "choose these too, or leave all of it out with --exclude")
	case c.stay() > 0:
		return k.settlePart(ctx, o, c)
	case len(left) > 0:
		k.res.Plan = k.res.Plan.Without(c.isDropped)
	}
	return k.settleWhole(ctx, o)
}

// ready says whether the branch can be committed at all.
func (k *kept) ready(ctx context.Context, o CommitOptions) error {
	if err := k.b.CheckStale(); err != nil {
		return withHint(err, "it can be looked at, try changes %s, but not committed; try abort %s drops it", k.b.Name, k.b.Name)
	}
	switch k.b.State {
	case branch.Damaged:
		if !o.Damaged {
			return withHint(fmt.Errorf("branch %s was interrupted by a crash of the machine and may have holes", k.b.Name),
				"look at it with \"try changes %s\"; commit it all the same with --damaged", k.b.Name)
		}
		if err := k.b.Keep(ctx); err != nil {
			return err
		}
	case branch.Running:
		k.b.State = branch.Interrupted
	}
	return nil
}

// settleWhole commits all of the plan.
func (k *kept) settleWhole(ctx context.Context, o CommitOptions) error {
	rules, err := k.policy()
	if err != nil {
		return err
	}
	if err := k.judge(rules, nil, o.Allow); err != nil {
		return err
	}
	if k.roots, err = commitRoots(k.b, k.mounts, k.res.Plan); err != nil {
		return err
	}
	k.see(k.roots)
	if len(k.res.Asks) > 0 && len(k.res.Denied) == 0 && k.ui.CanAsk() {
		answer, err := k.ui.Ask(k.res)
		if err != nil {
			return err
		}
		switch {
		case answer == Commit:
			k.answered = true
		case answer == Abort && k.of == nil:
			k.res.Settled, k.res.Reason = Aborted, "asked"
			return errors.Join(k.b.SetState(branch.Aborted), k.b.Discard())
		default:
			k.res.Settled, k.res.Reason = Kept, "asked"
			return nil
		}
	}
	if err := k.refusal(); err != nil {
		return err
	}
	if k.res.Plan.Empty() {
		k.res.Settled, k.res.Reason = Unchanged, "nothing changed"
		if k.of != nil {
			return nil // a part is dropped by who made it
		}
		return k.b.Discard()
	}
	if err := k.commit(ctx); err != nil {
		if conflict, ok := errors.AsType[*commit.ConflictError](err); ok {
			k.res.Conflicts = conflict.Conflicts
			k.res.Disputes = k.disputes(conflict.Conflicts)
			err = k.undecided(err)
		}
		return err
	}
	k.res.Settled, k.res.Reason = Committed, "asked"
	k.afterwards(k.finish())
	return nil
}
