package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/supervisor"
	"try/supervisor/printable"
)

// group is what changed below one directory that the user knows as a root. A
// root that contains another one has a layer in common with it, so groups are
// not what the plan is made of.
type group struct {
	path    string // absolute
	entries []entry
}

// entry is one change as it is shown.
type entry struct {
	*changes.Change
	root *changes.RootPlan
	path string // relative to the group
	note string // what must not be overlooked; empty for most
}

// groups sorts the changes of a result by the roots that the user knows.
func groups(r *supervisor.Result) []group {
	if r.Plan == nil {
		return nil
	}
	var all []group
	for i := range r.Plan.Roots {
		root := &r.Plan.Roots[i]
		known := append(slices.Clone(r.Names[root.Root.Path]), root.Root.Path)
		// The innermost root comes first: a path belongs to it.
		slices.SortFunc(known, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
		known = slices.Compact(known)
		first := len(all)
		for _, path := range known {
			all = append(all, group{path: path})
		}
		for j := range root.Changes {
			c := &root.Changes[j]
			full := joinRoot(root.Root.Path, c.Path())
			for k := range known {
				if rest, ok := below(full, known[k]); ok {
					g := &all[first+k]
					g.entries = append(g.entries, entry{Change: c, root: root, path: rest})
					break
				}
			}
		}
	}
	all = slices.DeleteFunc(all, func(g group) bool { return len(g.entries) == 0 })
	for _, g := range all {
		slices.SortFunc(g.entries, func(a, b entry) int { return comparePaths(a.path, b.path) })
		g.annotate(r.Marked)
	}
	slices.SortFunc(all, func(a, b group) int { return comparePaths(a.path, b.path) })
	return all
}

// below gives path relative to dir, "." for dir itself.
func below(path, dir string) (string, bool) {
	if path == dir {
		return ".", true
	}
	if dir != "/" {
		dir += "/"
	}
	return strings.CutPrefix(path, dir)
}

// comparePaths puts a directory directly before what it holds: "a", "a/b",
// "a-b".
func comparePaths(a, b string) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] != b[i] {
			if a[i] == '/' {
				return -1
			}
			if b[i] == '/' {
				return 1
			}
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}

// annotate notes what must not be overlooked, and is therefore never folded
// (H24, H25).
func (g group) annotate(marked map[string]string) {
	alike := map[string]int{} // folded path → index of the first entry of that name, 1-based
	for i := range g.entries {
		e := &g.entries[i]
		var notes []string
		if mark := marked[joinRoot(g.path, e.path)]; mark != "" {
			notes = append(notes, mark)
		}
		notes = append(notes, e.dangers()...)
		if printable.Mixed(filepath.Base(e.path)) {
			notes = append(notes, "mixes alphabets that look alike")
		}
		folded := printable.Fold(e.path)
		if other := alike[folded]; other != 0 {
			notes = append(notes, "differs from "+printable.Name(g.entries[other-1].path)+" in case only")
		} else {
			alike[folded] = i + 1
		}
		e.note = strings.Join(notes, ", ")
	}
}

// dangers names what an entry could do that its name does not tell.
func (e *entry) dangers() []string {
	var notes []string
	if e.Unknown {
		notes = append(notes, "the base cannot be read here")
	}
	if e.Layer == nil || e.Kind == changes.Deleted {
		return notes
	}
	if e.Opaque {
		notes = append(notes, "removed and made again")
	}
	if e.Layer.Mode&unix.S_IFMT == unix.S_IFREG {
		if e.Layer.Mode&unix.S_ISUID != 0 {
			notes = append(notes, "set-user-ID")
		}
		if e.Layer.Mode&unix.S_ISGID != 0 && e.Layer.Mode&0o010 != 0 {
			notes = append(notes, "set-group-ID")
		}
	}
	if e.hook() {
		notes = append(notes, "git runs it")
	}
	switch e.Type {
	case changes.Device:
		notes = append(notes, "device")
	case changes.Symlink:
		if e.Target != "" && e.leaves() {
			notes = append(notes, "leads out of "+shortHome(e.root.Root.Path))
		}
	}
	return notes
}

// hook says whether git would run it, in a repository new or old.
func (e *entry) hook() bool {
	runs := e.Type == changes.Symlink || e.Type == changes.File && e.Layer.Mode&0o111 != 0
	dir, in := strings.CutSuffix(filepath.Dir(joinRoot(e.root.Root.Path, e.Path())), "/hooks")
	return runs && in && (strings.HasSuffix(dir, ".git") || strings.Contains(dir, ".git/modules/")) && !strings.HasSuffix(e.path, ".sample")
}

// leaves says whether a symbolic link leads out of its root, going by its
// text alone.
func (e *entry) leaves() bool {
	target := e.Target
	if !filepath.IsAbs(target) {
		target = filepath.Join(e.root.Root.Path, filepath.Dir(e.Path()), target)
	}
	_, inside := below(filepath.Clean(target), e.root.Root.Path)
	return !inside
}

// line shows one change; path is how it is to be called.
func (e *entry) line(path string) string {
	var b strings.Builder
	b.WriteByte(e.Kind.Letter())
	b.WriteByte(' ')
	if e.Type == changes.Dir && path != "." {
		path += "/"
	}
	b.WriteString(printable.Name(path))
	if e.Type == changes.Symlink && e.Target != "" && e.Kind != changes.Deleted {
		b.WriteString(" -> ")
		b.WriteString(printable.Name(e.Target))
	}
	if what := e.fields(); what != "" {
		b.WriteString("  ")
		b.WriteString(what)
	}
	if e.note != "" {
		b.WriteString("  (")
		b.WriteString(e.note)
		b.WriteString(")")
	}
	return b.String()
}

// counted says how many changes there are, of which kinds, and what they bring.
func counted(c changes.Counts) string {
	var list []string
	for _, n := range []struct {
		count int
		word  string
	}{
		{c.Added, "added"},
		{c.Modified, "modified"},
		{c.Deleted, "deleted"},
		{c.Replaced, "of another type"},
		{c.Metadata, "with other metadata"},
		{c.Touched, "only touched"},
	} {
		if n.count > 0 {
			list = append(list, thousands(n.count)+" "+n.word)
		}
	}
	if c.Bytes > 0 {
		list = append(list, humanBytes(c.Bytes))
	}
	return strings.Join(list, ", ")
}

// thousands writes a number with commas.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// humanBytes writes a size in decimal units.
func humanBytes(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	f := float64(n)
	for _, unit := range []string{"kB", "MB", "GB", "TB"} {
		f /= 1000
		if f < 999.95 || unit == "TB" {
			return fmt.Sprintf("%.1f %s", f, unit)
		}
	}
	panic("unreachable")
}

// joinRoot is the absolute path of what lies below a root.
func joinRoot(root, path string) string { return filepath.Join(root, path) }
