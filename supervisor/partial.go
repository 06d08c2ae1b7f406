package supervisor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"try/fs/branch"
	"try/fs/changes"
	"try/fs/commit"
	"try/fs/vfs"
)

const dirType = unix.S_IFDIR

// choose says which changes the globs of the options name: all if there are
// none.
func (k *kept) choose(o CommitOptions) (func(*changes.Change, string) bool, error) {
	if len(o.Only) == 0 && len(o.Exclude) == 0 {
		return func(*changes.Change, string) bool { return true }, nil
	}
	dir, err := here()
	if err != nil {
		return nil, err
	}
	only, err := newPathspecs(o.Only, dir, k.home.user)
	if err != nil {
		return nil, err
	}
	exclude, err := newPathspecs(o.Exclude, dir, k.home.user)
	if err != nil {
		return nil, err
	}
	used := map[*pathspec]bool{}
	matches := func(list []pathspec, path string) (found bool) {
		for i := range list {
			if list[i].match(path) {
				used[&list[i]], found = true, true
			}
		}
		return found
	}
	in := map[string]bool{}
	for i := range k.res.Plan.Roots {
		for _, path := range fullPaths(&k.res.Plan.Roots[i]) {
			yes, no := matches(only, path), matches(exclude, path)
			if (yes || len(only) == 0) && !no {
				in[path] = true
			}
		}
	}
	for _, list := range [][]pathspec{only, exclude} {
		for i := range list {
			if !used[&list[i]] {
				return nil, &NoMatchError{Glob: list[i].text, Branch: k.b.Name}
			}
		}
	}
	if len(in) == 0 {
		return nil, withHint(fmt.Errorf("no change of branch %s is chosen", k.b.Name), "try changes %s lists them", k.b.Name)
	}
	return func(_ *changes.Change, path string) bool { return in[path] }, nil
}

// observed makes sure that it is recorded what the base looked like, so that
// from here on drift is inequality with that.
func (k *kept) observed() (err error) {
	if k.roots, err = commitRoots(k.b, k.mounts, nil); err != nil {
		return err
	}
	if len(k.b.Roots) == 0 || k.b.Roots[0].Seen != nil {
		return nil
	}
	if err := k.observe(nil); err != nil {
		return err
	}
	k.roots, err = commitRoots(k.b, k.mounts, nil)
	return err
}

// settlePart commits the chosen changes as a branch of their own; the rest
// stays in this one.
func (k *kept) settlePart(ctx context.Context, o CommitOptions, c *cut) (err error) {
	if err := k.observed(); err != nil {
		return err
	}
	if err := k.b.Keep(ctx); err != nil {
		return err
	}
	cuts, err := c.cuts(k.b)
	if err != nil {
		return err
	}
	b, err := k.b.Split(ctx, vfs.Disk(), cuts)
	if err != nil {
		return err
	}
	if c.chosen == 0 { // the rest is what the branch is without what was dropped
		k.res.Settled, k.res.Reason, k.res.Stay = Kept, "asked", c.stay()
		return errors.Join(k.b.TakeRest(vfs.Disk(), b), b.Discard())
	}
	p := &kept{committer: committer{home: k.home, b: b, res: k.res, ui: k.ui, mounts: k.mounts, whole: k.b, accepted: k.accepted}, of: k}
	if err := p.plan(ctx, c); err != nil {
		return errors.Join(err, b.Discard())
	}
	k.res.Stay = c.stay()
	err = p.settleWhole(ctx, o)
	if k.res.Settled == Committed || errors.Is(err, commit.ErrUnfinished) {
		return errors.Join(err, b.Close())
	}
	if len(p.restored) > 0 {
		err = errors.Join(err, forgive(k.b, p.restored), k.b.Save())
	}
	return errors.Join(err, b.Discard())
}

// plan plans the commit of a part and makes sure that it is what was chosen.
func (k *kept) plan(ctx context.Context, c *cut) error {
	plan, opened, err := makePlan(ctx, k.b)
	k.of.opened = append(k.of.opened, opened...)
	if err != nil {
		return err
	}
	all, must := c.paths()
	mine := map[*changes.Change]bool{}
	for i := range plan.Roots {
		r := &plan.Roots[i]
		paths := fullPaths(r)
		for n := range r.Changes {
			path := filepath.Clean(paths[n])
			mine[&r.Changes[n]] = all[path]
			delete(must, path)
		}
	}
	for path := range must {
		return fmt.Errorf("%s changed while it was being chosen: %w", path, changes.ErrChanging)
	}
	k.res.Plan = plan.Without(func(ch *changes.Change) bool { return !mine[ch] })
	return nil
}

// finish ends a branch whose commit is sealed.
func (k *kept) finish() error {
	if k.of != nil {
		if err := k.of.b.TakeRest(vfs.Disk(), k.b); err != nil {
			return err // the journal stays where recovery finds it
		}
	}
	if err := k.b.ForgetAncestors(); err != nil {
		return err
	}
	return k.b.Retire()
}

// takeRest does, for a part whose commit recovery has found done, what finish
// does. held is a branch whose lock the caller has, or nil.
func (h *Home) takeRest(part, held *branch.Branch) error {
	return h.withWhole(part, held, func(b *branch.Branch) error { return b.TakeRest(vfs.Disk(), part) })
}

// withWhole calls f with the branch of which part is one, unless that is gone.
func (h *Home) withWhole(part, held *branch.Branch, f func(*branch.Branch) error) error {
	if held != nil && held.ID == part.Rest.Of {
		return f(held)
	}
	b, err := h.store.Open(part.Rest.Of)
	if errors.Is(err, branch.ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f(b), b.Close())
}
