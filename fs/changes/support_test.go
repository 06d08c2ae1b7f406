package changes

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/layer/layertest"
	"try/fs/sys"
)

func TestMain(m *testing.M) {
	// A tree of any depth and size must need no more than these.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: 256}); err != nil {
		panic(err)
	}
	layertest.Main(m)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// past is the mtime of all in a test's base.
const past = 1_600_000_000_000_000_000

// world is a base and a layer on it.
type world struct {
	t           testing.TB
	dir         string
	base, layer *sys.Dir
	root        Root
	copied      bool // copying has moved change times in the layer
}

// newWorld makes a base by ops, with all times in the past, and the layer's
// root as a branch would.
func newWorld(t testing.TB, ops ...layertest.Op) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	t.Cleanup(func() {
		w.base.Close()
		w.layer.Close()
		check(t, layertest.Empty(w.dir))
	})
	check(t, errors.Join(os.Mkdir(w.dir+"/base", 0o755), os.Mkdir(w.dir+"/layer", 0o755)))
	var err error
	w.base, err = sys.OpenDir(w.dir + "/base")
	check(t, err)
	w.layer, err = sys.OpenDir(w.dir + "/layer")
	check(t, err)
	w.must(w.dir+"/base", ops)
	w.age(w.base)
	check(t, w.layer.SetTimes("", past, past))
	w.root = Root{Path: w.dir + "/base", Base: w.base, Layer: w.layer, Owners: os.Getuid() == 0}
	return w
}

func (w *world) must(dir string, ops []layertest.Op) {
	w.t.Helper()
	for i, errno := range layertest.Do(dir, ops...) {
		if errno != 0 {
			w.t.Fatalf("operation %q: %v", ops[i], errno)
		}
	}
}

// age gives all of d a time that nothing gets by itself.
func (w *world) age(d *sys.Dir) {
	w.t.Helper()
	closed := map[string]uint32{}
	check(w.t, sys.Walk(d, func(v sys.Visit) (bool, error) {
		if v.Stat.IsDir() && v.Stat.Perm()&0o700 != 0o700 {
			closed[v.Node.Path()] = v.Stat.Perm()
			if err := v.Dir.Chmod(v.Node.Name, 0o700); err != nil {
				return false, err
			}
		}
		return true, v.Dir.SetTimes(v.Node.Name, past, past)
	}, func(v sys.Visit) error {
		if mode, ok := closed[v.Node.Path()]; ok {
			return v.Dir.Chmod(v.Node.Name, mode)
		}
		return nil
	}))
	check(w.t, d.SetTimes("", past, past))
}

// session does ops in a real overlay; all must work.
func (w *world) session(ops ...layertest.Op) {
	w.t.Helper()
	for i, errno := range layertest.Session(w.t, w.dir+"/base", w.dir+"/layer", ops...) {
		if errno != 0 {
			w.t.Fatalf("operation %q: %v", ops[i], errno)
		}
	}
}

func (w *world) plan() *Plan {
	w.t.Helper()
	before := w.modes()
	p, err := Make(w.t.Context(), []Root{w.root})
	check(w.t, err)
	if after := w.modes(); after != before {
		w.t.Errorf("modes of the layer before:\n%s\nafter:\n%s", before, after)
	}
	w.verify(p)
	return p
}

// modes lists the modes of the layer, to see that the plan left them alone.
func (w *world) modes() string {
	if os.Getuid() != 0 {
		return "" // cannot be read without changing them
	}
	var b strings.Builder
	check(w.t, sys.Walk(w.layer, func(v sys.Visit) (bool, error) {
		fmt.Fprintf(&b, "%o ", v.Stat.Mode)
		return true, nil
	}, nil))
	return b.String()
}

// verify checks what holds of each plan.
func (w *world) verify(p *Plan) {
	w.t.Helper()
	r := &p.Roots[0]
	seen := map[string]*Change{}
	for i := range r.Changes {
		c := &r.Changes[i]
		path := c.Path()
		if seen[path] != nil {
			w.t.Errorf("%q is listed twice", path)
		}
		seen[path] = c
		bad := c.Kind == 0 || c.Type == 0 ||
			(c.Layer == nil) != (c.Kind == Deleted) ||
			!c.Unknown && (c.Base == nil) != (c.Kind == Added) ||
			(c.Fields != nil) != (c.Kind == Metadata || c.Kind == Touched) ||
			c.Carry != nil && (c.Within || c.Fields != nil) || c.Within && c.Opaque
		if bad {
			w.t.Errorf("%q: inconsistent change %+v", path, c)
		}
		if c.Layer != nil && !w.copied {
			w.pinned(c, path)
		}
		carried := false
		for n := c.Node; n != nil && n.Parent != nil; n = n.Parent {
			if up := seen[n.Parent.Path()]; up != nil && !up.Within && (up.Kind != Metadata && up.Kind != Touched) {
				carried = true
			}
		}
		if carried != c.Within {
			w.t.Errorf("%q: Within = %v, want %v", path, c.Within, carried)
		}
	}
	steps := map[string]bool{}
	for path, c := range seen {
		if !c.Within && c.Fields == nil {
			steps[parentOf(path)] = true
		}
	}
	for _, d := range r.Dirs {
		if path := d.Node.Path(); d.Steps != steps[path] {
			w.t.Errorf("directory %q: steps %v, want %v", path, d.Steps, steps[path])
		} else {
			delete(steps, path)
		}
	}
	for path := range steps {
		if c := seen[path]; c == nil || !c.Unknown {
			w.t.Errorf("directory %q has steps and is not among Dirs", path)
		}
	}
	for path, c := range seen {
		if c.Carry == nil {
			continue
		}
		below := len(c.Carry.Kept)
		for other, o := range seen {
			if strings.HasPrefix(other, path+"/") && o.Base != nil {
				below++
			}
		}
		if below != c.Carry.Displaced {
			w.t.Errorf("%q: %d entries of the base known, %d displaced", path, below, c.Carry.Displaced)
		}
	}
}

// pinned compares the pinned Stat with the entry as it is now.
func (w *world) pinned(c *Change, path string) {
	w.t.Helper()
	at, name := w.layer, ""
	if c.Node != nil {
		if i := strings.LastIndexByte(path, '/'); i >= 0 {
			d, err := w.layer.Sub(path[:i])
			if errors.Is(err, unix.EACCES) {
				return // below a closed directory
			}
			check(w.t, err)
			defer d.Close()
			at = d
		}
		name = c.Node.Name
	}
	now, err := at.Stat(name)
	if errors.Is(err, unix.EACCES) {
		return
	}
	check(w.t, err)
	if now.Ino != c.Layer.Ino || now.Ctime != c.Layer.Ctime || now.Mtime != c.Layer.Mtime || now.Mode != c.Layer.Mode {
		w.t.Errorf("%q: pinned %+v, is %+v", path, *c.Layer, now)
	}
}

// line renders a change: letter, type, path, then what is special.
func line(c *Change) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%c %s %q", c.Kind.Letter(), c.Type, c.Path())
	if c.Within {
		b.WriteString(" within")
	}
	if c.Opaque {
		b.WriteString(" opaque")
	}
	if c.Unknown {
		b.WriteString(" unknown")
	}
	if f := c.Fields; f != nil && c.Kind == Metadata {
		for name, differs := range map[string]bool{" mode": f.Mode, " owner": f.Owner} {
			if differs {
				b.WriteString(name)
			}
		}
		for _, x := range f.Xattrs {
			fmt.Fprintf(&b, " %s:%q→%q", x.Name, x.Old, x.New)
		}
		if f.Mtime {
			b.WriteString(" mtime")
		}
	}
	if c.Target != "" {
		fmt.Fprintf(&b, " -> %q", c.Target)
	}
	return b.String()
}

func lines(p *Plan) []string {
	var list []string
	for i := range p.Roots[0].Changes {
		list = append(list, line(&p.Roots[0].Changes[i]))
	}
	return list
}

func (w *world) want(p *Plan, want ...string) {
	w.t.Helper()
	if got := lines(p); !slices.Equal(got, want) {
		w.t.Errorf("changes =\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func dirPaths(p *Plan) []string {
	var list []string
	for _, d := range p.Roots[0].Dirs {
		list = append(list, d.Node.Path())
	}
	return list
}
