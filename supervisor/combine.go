package supervisor

import (
	"slices"
	"strings"
	"time"

	"try/fs/branch"
	"try/fs/changes"
	"try/fs/commit"
	"try/fs/vfs"
	"try/supervisor/policy"
)

// compose makes the branch.
func (m *merging) compose() error {
	var sources []branch.Source
	for i, k := range m.all {
		c, err := newCut(k.res.Plan, func(_ *changes.Change, path string) fate {
			if owner, ok := m.owner[path]; ok && owner == i && !m.within(path, i) {
				return chosen
			}
			return dropped
		})
		if err != nil {
			return err
		}
		s := branch.Source{Branch: k.b}
		for _, t := range c.roots {
			s.Parts = append(s.Parts, t.gives(i == 0))
		}
		sources = append(sources, s)
	}
	meta, err := m.meta()
	if err != nil {
		return err
	}
	b, err := m.home.store.Combine(m.ctx, vfs.Disk(), meta, sources, m.finish)
	if err != nil {
		return err
	}
	m.res.ID, m.res.Started = b.ID, time.Time{}
	return b.Close()
}

// within says that a directory cannot be removed as a whole, since something
// below it is another branch's, or nobody's.
func (m *merging) within(path string, i int) bool {
	at := m.byPath[i][path]
	if !isGoneDir(at.change) {
		return false
	}
	for p := range m.byPath[i] {
		if owner, ok := m.owner[p]; strings.HasPrefix(p, path+"/") && (!ok || owner != i && m.byPath[owner][p].change.Layer != nil) {
			return true
		}
	}
	return false
}

// meta is what the new branch knows of itself: of all that tells drift it has
// the oldest.
func (m *merging) meta() (branch.Meta, error) {
	first := m.all[0].b.Meta
	meta := first
	meta.Name, meta.Created = m.o.Into, time.Now()
	meta.Group, meta.Index, meta.Epoch, meta.Rest = "", 0, 0, nil
	meta.Command = []string{"try", "merge"}
	meta.Roots = slices.Clone(first.Roots)
	rules, err := policy.Restore([]byte(first.Policy))
	if err != nil {
		return meta, err
	}
	for _, k := range m.all {
		b := k.b
		meta.Command = append(meta.Command, b.Name)
		meta.Commits = min(meta.Commits, b.Commits)
		if b.Real < meta.Real {
			meta.Real, meta.Boottime, meta.Boot = b.Real, b.Boottime, b.Boot
		}
		meta.Own = slices.DeleteFunc(slices.Clone(meta.Own), func(id string) bool { return !slices.Contains(b.Own, id) })
		for i := range meta.Roots {
			r := &meta.Roots[i]
			r.Stamp, r.Strict = min(r.Stamp, b.Roots[i].Stamp), r.Strict && b.Roots[i].Strict
		}
		if b.Policy != first.Policy {
			other, err := policy.Restore([]byte(b.Policy))
			if err != nil {
				return meta, err
			}
			rules = policy.Join(rules, other)
		}
	}
	text, err := rules.Snapshot()
	meta.Policy = string(text)
	return meta, err
}

// finish gives the new branch the merged texts, what was seen of the base, and
// the common ancestors.
func (m *merging) finish(b *branch.Branch) error {
	for i := range b.Roots {
		all := map[string]commit.Seen{}
		for _, k := range m.all {
			for path, seen := range k.roots[i].Seen {
				was, both := all[path]
				all[path] = olderSeen(was, seen, both)
			}
		}
		for path := range m.clash {
			if at, ok := m.at(path); ok && at.root == i && m.clash[path] {
				s := all[at.path]
				s.Conflict = unresolved
				all[at.path] = s
			}
		}
		if err := b.SetSeen(i, seenList(all)); err != nil {
			return err
		}
	}
	plan, opened, err := makePlan(m.ctx, b)
	defer func() {
		for _, d := range opened {
			d.Close() // O_PATH
		}
	}()
	if err != nil {
		return err
	}
	for i := range plan.Roots {
		p := &plan.Roots[i]
		paths := fullPaths(p)
		for n := range p.Changes {
			if err := m.finishOne(b, i, &p.Changes[n], paths[n]); err != nil {
				return err
			}
		}
	}
	return copyReads(b, m.all)
}

func (m *merging) at(path string) (place, bool) {
	i, ok := m.owner[path]
	return m.byPath[i][path], ok
}

// olderSeen is what was seen of a path in two branches: if that is not the same,
// the base changed in between, and that stays a conflict.
func olderSeen(was, seen commit.Seen, both bool) commit.Seen {
	switch {
	case !both || was == seen:
		return seen
	case was.Conflict != "":
		return was
	case seen.Conflict != "":
		return seen
	case was.Place || seen.Place:
		if was.ID != seen.ID && !was.Absent && !seen.Absent {
			was.Conflict = "the directory was replaced between the sessions of the branches"
		}
		if was.Mode == 0 {
			was.Mode, was.UID, was.GID = seen.Mode, seen.UID, seen.GID
		}
		was.Place, was.Size, was.Mtime, was.Ctime = true, 0, 0, 0
		return was
	}
	was.Conflict = "changed in the base between the sessions of the branches"
	return was
}

// finishOne finishes one change of the new branch.
func (m *merging) finishOne(b *branch.Branch, root int, c *changes.Change, path string) error {
	if c.Layer == nil || !c.Layer.IsRegular() {
		return nil
	}
	rel := c.Path()
	if text, ok := m.texts[path]; ok {
		if err := b.Rewrite(root, rel, c.Layer, text); err != nil {
			return err
		}
	}
	if c.Base == nil {
		return nil
	}
	for _, k := range m.all {
		if text, ok, err := k.b.Ancestor(root, rel); err != nil {
			return err
		} else if ok {
			return b.SetAncestor(root, rel, text)
		}
	}
	return nil
}
