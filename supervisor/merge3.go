package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"try/fs/branch"
	"try/fs/changes"
	"try/fs/commit"
	"try/fs/sys"
)

// mergeText merges three texts as git does, in an empty directory of ours: mine has what changed on one side
// since the ancestor, theirs what did on the other. clash says that both changed
// the same lines: the result then has git's markers.
func mergeText(ctx context.Context, dir string, mine, ancestor, theirs []byte, labels [3]string) (text []byte, clash bool, err error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, false, withHint(errors.New("merging texts needs git, which is not installed"), "install git, or decide with --ours, --theirs or --skip")
	}
	for name, content := range map[string][]byte{"mine": mine, "ancestor": ancestor, "theirs": theirs} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, false, fmt.Errorf("merge: %w", err)
		}
	}
	cmd := exec.CommandContext(ctx, git, "merge-file", "-p", "-L", labels[0], "-L", labels[1], "-L", labels[2], "mine", "ancestor", "theirs")
	cmd.Dir = dir
	// Neither a repository's nor the user's settings.
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_DIR=/dev/null", "LC_ALL=C")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	ended, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return out.Bytes(), false, nil
	case ok && ended.ExitCode() > 0 && ended.ExitCode() < 128: // the number of clashes
		return out.Bytes(), true, nil
	}
	return nil, false, fmt.Errorf("git merge-file: %w: %s", err, bytes.TrimSpace(errs.Bytes()))
}

// hasMarkers says that a text has conflict markers.
func hasMarkers(text []byte) bool {
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("<<<<<<< ")) || bytes.HasPrefix(line, []byte(">>>>>>> ")) {
			return true
		}
	}
	return false
}

// mergeable says why the sides of a conflict are no texts to be merged, and
// whether nothing is known of what they come from.
func (r *resolver) mergeable(d *Dispute, at place) (why string, twoWay bool, err error) {
	c := d.Change
	switch {
	case d.Reason == unresolved:
		return "it has conflict markers already; --edit opens it", false, nil
	case c != nil && c.Kind == changes.Touched && c.Type == changes.File:
		return "", false, nil // the same text on both sides
	case c == nil || c.Kind != changes.Modified || c.Type != changes.File || c.Base == nil || !c.Base.IsRegular() || c.Link != nil:
		return "not two files", false, nil
	case c.Layer.Size > branch.MaxAncestor || c.Base.Size > branch.MaxAncestor:
		return "larger than 1 MiB", false, nil
	case c.Layer.Nlink > 1:
		return "it has several names in the branch", false, nil
	}
	mine, err := r.baseText(at)
	if err != nil {
		return "the base's cannot be read", false, nil
	}
	theirs, err := r.b.Read(at.root, at.path, c.Layer, branch.MaxAncestor)
	if err != nil {
		return "", false, err
	}
	if !isText(mine) || !isText(theirs) {
		return "not text", false, nil
	}
	_, known, err := r.b.Ancestor(at.root, at.path)
	return "", !known, err
}

// baseText reads the base's file of a change, which is the one of the plan.
func (r *resolver) baseText(at place) ([]byte, error) {
	f, err := r.res.Plan.Roots[at.root].Root.Base.OpenFile(at.path, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, branch.MaxAncestor+1))
	if err != nil {
		return nil, err
	}
	now, err := sys.StatFD(int(f.Fd()))
	if err == nil && (now.Identity() != at.change.Base.Identity() || now.Ctime != at.change.Base.Ctime) {
		err = fmt.Errorf("%s: %w", f.Name(), changes.ErrChanging)
	}
	return text, err
}

// merged is the outcome of one merge.
type merged struct {
	place
	base, text []byte
	clash      bool
}

// merge merges what was decided so, all before anything is written, and leaves
// the results in the branch. One with clashes ends the commit.
func (r *resolver) merge(ctx context.Context) error {
	if len(r.merges) == 0 {
		return nil
	}
	dir, err := r.b.MergeDir()
	if err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	defer os.RemoveAll(dir)
	var all []merged
	for _, at := range r.merges {
		m := merged{place: at}
		var err error
		if m.base, err = r.baseText(at); err != nil {
			return err
		}
		theirs, err := r.b.Read(at.root, at.path, at.change.Layer, branch.MaxAncestor)
		if err != nil {
			return err
		}
		ancestor, _, err := r.b.Ancestor(at.root, at.path)
		if err != nil {
			return err
		}
		m.text, m.clash, err = mergeText(ctx, dir, m.base, ancestor, theirs, [3]string{"base", "ancestor", r.b.Name})
		if err != nil {
			return fmt.Errorf("merge %s: %w", filepath.Join(r.roots[at.root].Path, at.path), err)
		}
		all = append(all, m)
	}
	for i := range all {
		if err := r.put(&all[i]); err != nil {
			return err
		}
	}
	if err := r.b.Save(); err != nil {
		return err
	}
	return r.replan(ctx)
}

// put leaves a merged text in the branch. From then on it comes from the base
// as it is now.
func (r *resolver) put(m *merged) error {
	if err := r.b.Rewrite(m.root, m.path, m.change.Layer, m.text); err != nil {
		return err
	}
	if err := r.b.SetAncestor(m.root, m.path, m.base); err != nil {
		return err
	}
	now := commit.See(m.change)
	if m.clash {
		now.Conflict = unresolved
	}
	return r.record(m.root, m.path, now)
}

// record notes in the branch what was seen of the base.
func (k *kept) record(root int, path string, now commit.Seen) error {
	seen, err := seenOf(k.b, root)
	if err != nil {
		return err
	}
	seen[path] = now
	k.roots[root].Seen[path] = now
	return k.b.SetSeen(root, seenList(seen))
}

// replan plans anew, since the layers have changed.
func (k *kept) replan(ctx context.Context) error {
	plan, opened, err := makePlan(ctx, k.b)
	k.opened = append(k.opened, opened...)
	if err != nil {
		return err
	}
	k.res.Plan = plan
	return nil
}

// edit has the user resolve what has conflict markers, and says what still has
// some.
func (k *kept) edit(ctx context.Context, o CommitOptions, within func(*changes.Change, string) bool) error {
	var still []string
	var conflicts []commit.Conflict
	edited := false
	for i := range k.res.Plan.Roots {
		p := &k.res.Plan.Roots[i]
		paths := fullPaths(p)
		for n := range p.Changes {
			c := &p.Changes[n]
			was := k.roots[i].Seen[c.Path()]
			if was.Conflict != unresolved || c.Layer == nil || !within(c, paths[n]) {
				continue
			}
			text, err := k.b.Read(i, c.Path(), c.Layer, 4*branch.MaxAncestor)
			if err != nil {
				return err
			}
			if o.Edit && o.Resolver != nil && hasMarkers(text) {
				if text, err = o.Resolver.Edit(paths[n], text); err != nil {
					return fmt.Errorf("edit %s: %w", paths[n], err)
				}
				if err := k.b.Rewrite(i, c.Path(), c.Layer, text); err != nil {
					return err
				}
				edited = true
			}
			if hasMarkers(text) {
				still = append(still, k.home.shortened(paths[n]))
				conflicts = append(conflicts, commit.Conflict{Root: p.Root.Path, Path: c.Path(), Reason: unresolved})
				continue
			}
			was.Conflict = ""
			if err := k.record(i, c.Path(), was); err != nil {
				return err
			}
			edited = true
		}
	}
	if edited {
		if err := errors.Join(k.b.Save(), k.replan(ctx)); err != nil {
			return err
		}
	}
	if len(still) > 0 {
		k.res.Conflicts = conflicts
		return &MarkersError{k.b.Name, still}
	}
	return nil
}
