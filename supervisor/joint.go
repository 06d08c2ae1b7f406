package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"try/fs/branch"
	"try/fs/changes"
)

// joint is branches that are looked at together.
type joint struct {
	home *Home
	all  []*kept
	ui   UI
	// byPath are the changes of each branch, by absolute path.
	byPath []map[string]place
}

// openJoint opens kept branches that have the same roots.
func (h *Home) openJoint(ctx context.Context, names []string, ui UI) (j *joint, err error) {
	j = &joint{home: h, ui: ui}
	defer func() {
		if err != nil {
			err = errors.Join(err, j.close())
		}
	}()
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return j, fmt.Errorf("branch %s is named twice", name)
		}
		k, err := h.openKept(ctx, name, ui)
		if err != nil {
			return j, err
		}
		j.all = append(j.all, k)
		if k.b.State == branch.Damaged {
			return j, withHint(fmt.Errorf("branch %s was interrupted by a crash of the machine and may have holes", name), `look at it with "try changes %s"`, name)
		}
		if err := sameRoots(j.all[0].b, k.b); err != nil {
			return j, err
		}
		if err := k.observed(); err != nil {
			return j, err
		}
		at := map[string]place{}
		for r := range k.res.Plan.Roots {
			p := &k.res.Plan.Roots[r]
			paths := fullPaths(p)
			for n := range p.Changes {
				at[filepath.Clean(paths[n])] = place{r, p.Changes[n].Path(), &p.Changes[n]}
			}
		}
		j.byPath = append(j.byPath, at)
	}
	return j, nil
}

func sameRoots(a, b *branch.Branch) error {
	if len(a.Roots) != len(b.Roots) {
		return fmt.Errorf("branches %s and %s do not cover the same directories", a.Name, b.Name)
	}
	for i := range a.Roots {
		if a.Roots[i].Path != b.Roots[i].Path || a.Roots[i].ID != b.Roots[i].ID {
			return fmt.Errorf("branches %s and %s do not cover the same directories: %s, %s", a.Name, b.Name, a.Roots[i].Path, b.Roots[i].Path)
		}
	}
	return nil
}

func (j *joint) close() error {
	var errs []error
	for _, k := range j.all {
		errs = append(errs, k.close())
	}
	return errors.Join(errs...)
}

// same says that two branches made the same of a path.
func (j *joint) same(a, b int, x, y place) (bool, error) {
	c, d := x.change, y.change
	if c.Kind != d.Kind || c.Type != d.Type || (c.Layer == nil) != (d.Layer == nil) || c.Target != d.Target {
		return false, nil
	}
	if c.Link != nil || d.Link != nil {
		return c.Link != nil && d.Link != nil, nil // what it is a name of is compared there
	}
	if c.Layer == nil {
		return true, nil
	}
	if c.Layer.Perm() != d.Layer.Perm() || c.Layer.UID != d.Layer.UID || c.Layer.GID != d.Layer.GID || c.Layer.Rdev != d.Layer.Rdev {
		return false, nil
	}
	if c.Fields != nil && d.Fields != nil && !slices.EqualFunc(c.Fields.Xattrs, d.Fields.Xattrs, func(x, y changes.Xattr) bool {
		return x.Name == y.Name && bytes.Equal(x.New, y.New) && (x.New == nil) == (y.New == nil)
	}) {
		return false, nil
	}
	if !c.Layer.IsRegular() {
		return true, nil
	}
	return j.all[a].b.SameContent(x.root, x.path, c.Layer, j.all[b].b, y.path, d.Layer)
}

// Difference is a path that two branches changed, and not both alike.
type Difference struct {
	Path         string          // absolute
	First, Other *changes.Change // nil: that branch did not change it
}

// Compare says what two kept branches changed that is not the same in both, in
// order of the paths, and how many changes are.
func (h *Home) Compare(ctx context.Context, name, other string, ui UI) (list []Difference, alike int, err error) {
	j, err := h.openJoint(ctx, []string{name, other}, ui)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, j.close()) }()
	for _, path := range sortedPaths(j.byPath[0]) {
		x := j.byPath[0][path]
		y, both := j.byPath[1][path]
		if both {
			same, err := j.same(0, 1, x, y)
			if err != nil {
				return nil, 0, fmt.Errorf("compare %s: %w", path, err)
			}
			if same {
				alike++
				continue
			}
		}
		list = append(list, Difference{path, x.change, y.change})
	}
	for _, path := range sortedPaths(j.byPath[1]) {
		if _, both := j.byPath[0][path]; !both {
			list = append(list, Difference{path, nil, j.byPath[1][path].change})
		}
	}
	slices.SortFunc(list, func(a, b Difference) int { return strings.Compare(a.Path, b.Path) })
	return list, alike, nil
}

func sortedPaths[V any](m map[string]V) []string {
	list := make([]string, 0, len(m))
	for path := range m {
		list = append(list, path)
	}
	slices.Sort(list)
	return list
}
