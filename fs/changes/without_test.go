package changes

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"try/fs/layer/layertest"
)

// left checks a plan without some of its changes: they are not made, all
// others that it still has are, and nothing else happens.
func (w *world) left(p *Plan, gone map[string]bool) {
	w.t.Helper()
	w.copied = true
	q := p.Without(func(c *Change) bool { return gone[c.Path()] })
	w.verify(q)
	check(w.t, layertest.Empty(w.dir+"/applied"))
	check(w.t, os.Remove(w.dir+"/applied"))
	copyTree(w.t, w.dir+"/base", w.dir+"/applied")
	before, inside := snapshot(w.t, w.dir+"/applied"), snapshot(w.t, w.dir+"/native")
	w.apply(q, w.dir+"/applied")
	after := snapshot(w.t, w.dir+"/applied")

	still := map[string]*Change{}
	for i := range q.Roots[0].Changes {
		c := &q.Roots[0].Changes[i]
		still[c.Path()] = c
	}
	paths := map[string]bool{}
	for _, tree := range []map[string]entry{before, inside, after} {
		for path := range tree {
			paths[path] = true
		}
	}
	for path := range paths {
		want := before[path]
		if c := still[path]; c != nil && c.Unknown {
			continue
		} else if c != nil {
			if gone[path] {
				w.t.Errorf("%q is left out and in the plan", path)
			}
			want = inside[path]
		}
		got := after[path]
		if want.kind == "40000" && got.kind == "40000" { // times hang on what else is left out
			got.mtime = want.mtime
		}
		if got.kind == "100000" && still[path] == nil && got.content == want.content {
			continue // within an exchanged directory, what came back identical
		}
		if got != want {
			w.t.Errorf("without %v: %q is %q, want %q", gone, path, got, want)
		}
	}
}

func TestWithout(t *testing.T) {
	layertest.Skip(t)
	for round := range uint64(*rounds) {
		t.Run(fmt.Sprintf("seed=%d", *seed+round), func(t *testing.T) {
			r := rand.New(rand.NewPCG(*seed+round, 1))
			w := newWorld(t)
			for range 40 {
				layertest.Do(w.dir+"/base", randomOp(r, false))
			}
			w.age(w.base)
			ops := make([]layertest.Op, 30)
			for i := range ops {
				ops[i] = randomOp(r, true)
			}
			p := func() *Plan {
				errs := layertest.Session(t, w.dir+"/base", w.dir+"/layer", ops...)
				p := w.plan()
				w.applied(p, ops, errs)
				return p
			}()
			for range 4 {
				gone := map[string]bool{}
				for i := range p.Roots[0].Changes {
					if r.IntN(4) == 0 {
						gone[p.Roots[0].Changes[i].Path()] = true
					}
				}
				w.left(p, gone)
			}
		})
	}
}

func TestWithoutPartOfAReplacedDirectory(t *testing.T) {
	w := newWorld(t, ops{{"mkdir", "d"}, {"write", "d/keep", "k"}, {"write", "d/old", "o"}, {"mkdir", "d/same"}, {"mkdir", "d/e"}, {"write", "d/e/f", ""}, {"socket", "d/e/s"}}...)
	w.put(ops{{"mkdir", "d"}, {"write", "d/new", "n"}, {"mkdir", "d/same"}, {"write", "d/same/n", ""}, {"mkdir", "d/tree"}, {"write", "d/tree/x", ""}, {"write", "d/tree/y", ""}},
		mark("d", "opaque", "y"), at("d", mark("tree", "impure", "y")))
	p := w.plan()
	w.want(p, `M dir "d" opaque`, `D dir "d/e" within`, `D file "d/e/f" within`, `D file "d/keep" within`, `A file "d/new" within`,
		`D file "d/old" within`, `A file "d/same/n" within`, `A dir "d/tree" within`, `A file "d/tree/x" within`, `A file "d/tree/y" within`)
	q := p.Without(func(c *Change) bool { return c.Path() == "d/keep" || c.Path() == "d/tree/y" })
	w.verify(q)
	w.want(q, `D dir "d/e"`, `D file "d/e/f" within`, `A file "d/new"`, `D file "d/old"`, `A file "d/same/n"`, `A dir "d/tree"`, `A file "d/tree/x" within`)
	c := q.Roots[0].Changes
	if k := c[0].Carry; k.Displaced != 2 || len(k.Kept) != 1 {
		t.Errorf("d/e carries %+v", k)
	}
	if k := c[5].Carry; nodes(k.Marked) != "d/tree" || nodes(k.Leave) != "d/tree/y" {
		t.Errorf("d/tree carries %q, %q", nodes(k.Marked), nodes(k.Leave))
	}
	if got := strings.Join(dirPaths(q), " "); got != "d/same d" {
		t.Errorf("dirs = %q", got)
	}
	// The plan itself is as it was.
	w.verify(p)
	q = p.Without(func(c *Change) bool { return c.Path() == "d/tree" })
	w.want(q, `M dir "d" opaque`, `D dir "d/e" within`, `D file "d/e/f" within`, `D file "d/keep" within`, `A file "d/new" within`, `D file "d/old" within`, `A file "d/same/n" within`)
	if k := q.Roots[0].Changes[0].Carry; nodes(k.Marked) != "d" || nodes(k.Leave) != "d/tree" {
		t.Errorf("d carries %q, %q", nodes(k.Marked), nodes(k.Leave))
	}
	if q := p.Without(func(c *Change) bool { return true }); !q.Empty() || len(q.Roots[0].Dirs) != 0 {
		t.Errorf("without all: %q", lines(q))
	}
}
