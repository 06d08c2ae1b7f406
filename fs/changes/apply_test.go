package changes

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/layer/layertest"
	"try/fs/sys"
)

// entry is what a path looks like; sockets do not exist here.
type entry struct {
	kind    string // letter of the type
	content string // or target
	meta    string // mode, owner, attributes
	mtime   string // one of the past, or "now"
}

// snapshot reads the tree at dir, "" being the directory itself.
func snapshot(t testing.TB, dir string) map[string]entry {
	t.Helper()
	d, err := sys.OpenDir(dir)
	check(t, err)
	defer d.Close()
	tree := map[string]entry{}
	add := func(in *sys.Dir, name, at string, s sys.Stat) error {
		if s.Type() == unix.S_IFSOCK {
			return nil
		}
		e := entry{kind: fmt.Sprintf("%o", s.Type()), meta: fmt.Sprintf("%o %d %d", s.Perm(), s.UID, s.GID), mtime: "now"}
		if s.Mtime < past+100e9 {
			e.mtime = fmt.Sprint(s.Mtime - past)
		}
		switch s.Type() {
		case unix.S_IFREG:
			read := func() error {
				b, err := os.ReadFile(path.Join(dir, at))
				e.content = string(b)
				return err
			}
			if err := layer.Opened(in, name, s, read); err != nil {
				return err
			}
		case unix.S_IFLNK:
			target, err := in.Readlink(name)
			e.content = target
			if err != nil {
				return err
			}
		}
		if s.Type() != unix.S_IFLNK {
			var attrs map[string][]byte
			err := layer.Opened(in, name, s, func() (err error) {
				attrs, err = in.Xattrs(name)
				return err
			})
			if err != nil {
				return err
			}
			for _, attr := range slices.Sorted(maps.Keys(attrs)) {
				e.meta += fmt.Sprintf(" %s=%q", attr, attrs[attr])
			}
		}
		tree[at] = e
		return nil
	}
	s, err := d.Stat("")
	check(t, err)
	check(t, add(d, "", "", s))
	check(t, sys.Walk(d, func(v sys.Visit) (bool, error) {
		return true, add(v.Dir, v.Node.Name, v.Node.Path(), v.Stat)
	}, nil))
	return tree
}

// copyTree copies what is at src to dst, which must not exist, with all that
// the file system keeps, sockets left out.
func copyTree(t testing.TB, src, dst string) {
	t.Helper()
	from, err := sys.OpenDir(path.Dir(src))
	check(t, err)
	defer from.Close()
	to, err := sys.OpenDir(path.Dir(dst))
	check(t, err)
	defer to.Close()
	check(t, copyEntry(from, path.Base(src), to, path.Base(dst)))
}

func copyEntry(from *sys.Dir, name string, to *sys.Dir, as string) error {
	s, err := from.Stat(name)
	if err != nil {
		return err
	}
	var attrs map[string][]byte
	switch s.Type() {
	case unix.S_IFSOCK:
		return nil
	case unix.S_IFLNK:
		target, err := from.Readlink(name)
		if err := errors.Join(err, to.Symlink(target, as)); err != nil {
			return err
		}
		return errors.Join(to.Chown(as, int(s.UID), int(s.GID)), to.SetTimes(as, s.Atime, s.Mtime))
	case unix.S_IFREG, unix.S_IFDIR:
		err = layer.Opened(from, name, s, func() (err error) {
			if attrs, err = from.Xattrs(name); err != nil {
				return err
			}
			if s.IsDir() {
				return copyDir(from, name, to, as)
			}
			b, err := os.ReadFile(from.Name() + "/" + name)
			return errors.Join(err, os.WriteFile(to.Name()+"/"+as, b, 0o600))
		})
	default:
		attrs, err = from.Xattrs(name)
		err = errors.Join(err, to.Mknod(as, s.Mode, s.Rdev))
	}
	if err != nil {
		return err
	}
	for attr, value := range attrs {
		if err := to.SetXattr(as, attr, value); err != nil {
			return err
		}
	}
	return errors.Join(to.Chown(as, int(s.UID), int(s.GID)), to.Chmod(as, s.Perm()), to.SetTimes(as, s.Atime, s.Mtime))
}

func copyDir(from *sys.Dir, name string, to *sys.Dir, as string) error {
	if err := to.Mkdir(as, 0o700); err != nil {
		return err
	}
	in, err := from.Sub(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := to.Sub(as)
	if err != nil {
		return err
	}
	defer out.Close()
	return in.Each(func(e sys.Dirent) error { return copyEntry(in, e.Name, out, e.Name) })
}

// apply does to the tree at dir, a copy of the base, what the plan says, by
// path and without a thought of safety.
func (w *world) apply(p *Plan, dir string) {
	w.t.Helper()
	r := &p.Roots[0]
	w.open(r, dir)
	for i := range r.Changes {
		c := &r.Changes[i]
		at, in := path.Join(dir, c.Path()), path.Join(w.dir, "layer", c.Path())
		if c.Within || c.Kind == Metadata || c.Kind == Touched {
			continue
		}
		var lost map[string][]byte
		if c.Base != nil {
			d, err := sys.OpenDir(path.Dir(at))
			check(w.t, err)
			raw, err := d.Xattrs(path.Base(at))
			check(w.t, errors.Join(err, d.Close()))
			lost = layer.Dropped(raw)
			check(w.t, os.RemoveAll(at))
		}
		if c.Kind == Deleted {
			continue
		}
		copyTree(w.t, in, at)
		w.strip(c, dir)
		if c.Kind == Modified && c.Type == File {
			d, err := sys.OpenDir(path.Dir(at))
			check(w.t, err)
			for attr, value := range lost {
				check(w.t, d.SetXattr(path.Base(at), attr, value))
			}
			check(w.t, errors.Join(d.SetTimes(path.Base(at), c.Layer.Atime, c.Layer.Mtime), d.Close()))
		}
	}
	modes := map[*sys.Node]bool{} // that change
	for i := range r.Changes {
		c := &r.Changes[i]
		if !c.Within && c.Fields != nil {
			w.set(c, dir)
			modes[c.Node] = c.Fields.Mode
		}
	}
	copied := map[*sys.Node]bool{}
	for i := range r.Changes {
		copied[r.Changes[i].Node] = r.Changes[i].Fields == nil
	}
	for _, c := range slices.Backward(r.Closed) {
		if copied[c.Node] { // while it was open
			check(w.t, unix.Chmod(path.Join(dir, c.Node.Path()), c.Mode))
		}
	}
	for _, d := range r.Dirs {
		check(w.t, os.Chtimes(path.Join(dir, d.Node.Path()), unixTime(d.Layer.Atime), unixTime(d.Layer.Mtime)))
		mode := d.Base.Perm()
		if modes[d.Node] {
			mode = d.Layer.Perm()
		}
		check(w.t, unix.Chmod(path.Join(dir, d.Node.Path()), mode))
	}
}

// open opens what is closed by its mode, in the layer and the copy.
func (w *world) open(r *RootPlan, dir string) {
	w.t.Helper()
	for _, c := range r.Closed {
		check(w.t, os.Chmod(path.Join(w.dir, "layer", c.Node.Path()), 0o700))
	}
	for _, d := range r.Dirs {
		check(w.t, os.Chmod(path.Join(dir, d.Node.Path()), 0o700))
	}
	w.t.Cleanup(func() {
		for _, c := range slices.Backward(r.Closed) {
			check(w.t, unix.Chmod(path.Join(w.dir, "layer", c.Node.Path()), c.Mode))
		}
	})
}

// strip does what Carry says to what has just been copied.
func (w *world) strip(c *Change, dir string) {
	w.t.Helper()
	if c.Carry == nil {
		return
	}
	at := func(n *sys.Node, f func(d *sys.Dir) error) {
		d, err := sys.OpenDir(path.Dir(path.Join(dir, n.Path())))
		check(w.t, err)
		check(w.t, errors.Join(f(d), d.Close()))
	}
	for _, n := range c.Carry.Leave {
		at(n, func(d *sys.Dir) error {
			s, err := d.Stat("")
			if _, err := d.Stat(n.Name); errors.Is(err, unix.ENOENT) {
				return nil // a socket, which was not copied
			}
			return errors.Join(err, os.RemoveAll(d.Name()+"/"+n.Name), d.SetTimes("", s.Atime, s.Mtime))
		})
	}
	for _, n := range c.Carry.Marked {
		at(n, func(d *sys.Dir) error {
			s, err := d.Stat(n.Name)
			if err != nil {
				return err
			}
			return layer.Opened(d, n.Name, s, func() error {
				ours, users, err := layer.Marks(d, n.Name)
				for attr := range ours {
					err = errors.Join(err, d.RemoveXattr(n.Name, attr))
				}
				for attr, value := range users {
					err = errors.Join(err, d.SetXattr(n.Name, attr, value))
				}
				return err
			})
		})
	}
}

// set applies the fields of a change in place.
func (w *world) set(c *Change, dir string) {
	w.t.Helper()
	at := path.Join(dir, c.Path())
	d, err := sys.OpenDir(path.Dir(at))
	check(w.t, err)
	defer d.Close()
	name := path.Base(at)
	s, err := d.Stat(name)
	check(w.t, err)
	for _, x := range c.Fields.Xattrs {
		if x.New == nil {
			check(w.t, d.RemoveXattr(name, x.Name))
		} else {
			check(w.t, d.SetXattr(name, x.Name, x.New))
		}
	}
	if c.Fields.Owner {
		check(w.t, d.Chown(name, int(c.Layer.UID), int(c.Layer.GID)))
	}
	if c.Fields.Mode {
		check(w.t, d.Chmod(name, c.Layer.Perm()))
	}
	if c.Fields.Mtime {
		check(w.t, d.SetTimes(name, s.Atime, c.Layer.Mtime))
	}
}

// expected is the list that a comparison of two trees gives, letter and path.
// changed are directories known to have changed entries besides.
func expected(before, after map[string]entry, changed map[string]bool) []string {
	var list []string
	direct := maps.Clone(changed)
	paths := slices.Collect(maps.Keys(before))
	for p := range after {
		if _, ok := before[p]; !ok {
			paths = append(paths, p)
		}
	}
	// Children before parents: whether a directory's time is listed hangs on them.
	slices.SortFunc(paths, func(a, b string) int { return cmp.Compare(b, a) })
	for _, p := range paths {
		b, inBefore := before[p]
		a, inAfter := after[p]
		letter := ""
		switch {
		case !inBefore:
			letter = "A"
		case !inAfter:
			letter = "D"
		case a.kind != b.kind:
			letter = "T"
		case a.content != b.content:
			letter = "M"
		case a.meta != b.meta:
			letter = "m"
		case a.mtime != b.mtime && !direct[p]:
			letter = "t"
		default:
			continue
		}
		list = append(list, letter+" "+p)
		if p != "" {
			direct[parentOf(p)] = true
		}
	}
	slices.Sort(list)
	return list
}

func parentOf(p string) string { return strings.TrimPrefix(path.Dir("/"+p), "/") }

// applied does the same operations natively, and wants the plan to be the
// difference of the two trees, and the base to become the same when it is
// applied. skip are the operations that the session refused.
func (w *world) applied(p *Plan, ops []layertest.Op, skip []unix.Errno) {
	w.t.Helper()
	copyTree(w.t, w.dir+"/base", w.dir+"/native")
	copyTree(w.t, w.dir+"/base", w.dir+"/applied")
	before := snapshot(w.t, w.dir+"/native")
	old := unix.Umask(0o022)
	defer unix.Umask(old)
	for i, op := range ops {
		if skip != nil && skip[i] != 0 {
			continue
		}
		// A socket of the base is in no copy, so to remove it fails here.
		if errno := layertest.Do(w.dir+"/native", op)[0]; errno != 0 && op[1] != "socket" {
			w.t.Fatalf("natively %q: %v", op, errno)
		}
	}
	after := snapshot(w.t, w.dir+"/native")

	got, opaque, changed := []string{}, map[string]bool{}, map[string]bool{}
	for i := range p.Roots[0].Changes {
		c := &p.Roots[0].Changes[i]
		if c.Opaque {
			opaque[c.Path()], changed[parentOf(c.Path())] = true, true
		} else {
			got = append(got, string(c.Kind.Letter())+" "+c.Path())
		}
	}
	slices.Sort(got)
	want := expected(before, after, changed)
	want = slices.DeleteFunc(want, func(s string) bool { return opaque[s[2:]] && s[0] != 'D' })
	if !slices.Equal(got, want) {
		w.t.Errorf("changes =\n  %q\nwant\n  %q", got, want)
	}

	w.apply(p, w.dir+"/applied")
	result := snapshot(w.t, w.dir+"/applied")
	for name, e := range after {
		if result[name] != e {
			w.t.Errorf("applied: %q is %q, want %q", name, result[name], e)
		}
	}
	for name, e := range result {
		if _, ok := after[name]; !ok {
			w.t.Errorf("applied: %q is %q, want nothing", name, e)
		}
	}
}

func unixTime(t sys.Time) time.Time { return time.Unix(0, int64(t)) }
