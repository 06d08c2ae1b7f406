package changes

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
)

// put does ops on the layer by hand, and gives all there the base's time.
func (w *world) put(ops ops, more ...func(d *sys.Dir) error) {
	w.t.Helper()
	w.must(w.dir+"/layer", ops)
	w.age(w.layer)
	for _, f := range more {
		check(w.t, f(w.layer))
	}
	check(w.t, w.layer.SetTimes("", past, past))
}

// at does f in the directory rel of the layer and puts its time back.
func at(rel string, f func(d *sys.Dir) error) func(*sys.Dir) error {
	return func(root *sys.Dir) error {
		d, err := root.Sub(rel)
		if err != nil {
			return err
		}
		return errors.Join(f(d), d.SetTimes("", past, past), d.Close())
	}
}

func whiteout(name string) func(d *sys.Dir) error {
	return func(d *sys.Dir) error { return layer.MakeWhiteout(d, name) }
}

func mark(name, attr, value string) func(d *sys.Dir) error {
	return func(d *sys.Dir) error { return d.SetXattr(name, "user.overlay."+attr, []byte(value)) }
}

func nodes(list []*sys.Node) string {
	var paths []string
	for _, n := range list {
		paths = append(paths, n.Path())
	}
	return strings.Join(paths, " ")
}

func TestWhatASessionDoesNotSeeIsNoChange(t *testing.T) {
	w := newWorld(t, ops{{"mkdir", "d"}, {"write", "d/x", ""}, {"mkdir", "r"}, {"write", "f", ""}}...)
	for _, d := range []string{"", "d", "r"} {
		check(t, at(d, func(d *sys.Dir) error {
			return errors.Join(layer.MakeWhiteout(d, "char"), d.Mknod("empty", unix.S_IFREG|0o644, 0), mark("empty", "whiteout", "")(d), d.SetTimes("empty", past, past))
		})(w.base))
	}
	check(t, errors.Join(layer.MakeWhiteout(w.base, "twice"), w.base.SetTimes("", past, past)))
	// Whiteouts over what nobody saw, or over nothing; a directory taken out,
	// one replaced, and a file made where nothing seemed to be.
	w.put(ops{{"mkdir", "r"}, {"write", "r/n", "n"}, {"write", "char", ""}, {"write", "empty", ""}},
		whiteout("nothing"), whiteout("twice"), whiteout("d"), mark("r", "opaque", "y"))
	p := w.plan()
	w.want(p, `T file "char"`, `D dir "d"`, `D file "d/x" within`, `T file "empty"`, `M dir "r" opaque`, `A file "r/n" within`)
	c := p.Roots[0].Changes
	if k := c[1].Carry; len(k.Kept) != 2 || k.Displaced != 3 || k.Kept[0].Node.Path() != "d/char" || k.Kept[1].Base.Size != 0 {
		t.Errorf("d carries %+v", k)
	}
	if k := c[4].Carry; len(k.Kept) != 2 || k.Displaced != 2 || nodes(k.Marked) != "r" {
		t.Errorf("r carries %+v", k)
	}
}

func TestXattrWhiteoutsAreRead(t *testing.T) {
	w := newWorld(t, ops{{"mkdir", "d"}, {"write", "d/x", "x"}, {"write", "d/y", "y"}}...)
	w.put(ops{{"mkdir", "d"}, {"write", "d/x", ""}}, at("d", mark("x", "whiteout", "")), mark("d", "opaque", "x"))
	w.want(w.plan(), `D file "d/x"`)
}

func TestCarry(t *testing.T) {
	w := newWorld(t, ops{{"mkdir", "o"}, {"write", "o/same", "1"}, {"mkdir", "o/sub"}, {"write", "o/sub/same", "2"}, {"write", "o/gone", ""}, {"socket", "o/socket"}}...)
	w.put(ops{
		{"mkdir", "n"}, {"mkdir", "n/m"}, {"write", "n/m/f", ""}, {"socket", "n/m/s"},
		{"mkdir", "o"}, {"write", "o/same", "1"}, {"mkdir", "o/sub"}, {"write", "o/sub/same", "2"},
	}, at("n", whiteout("w")), at("n", mark("m", "impure", "y")), at("n", func(d *sys.Dir) error { return d.Chmod("m", 0o555) }), mark("n", "origin", ""), mark("o", "opaque", "y"), at("o/sub", mark("same", "origin", "")))
	p := w.plan()
	w.want(p, `A dir "n"`, `A dir "n/m" within`, `A file "n/m/f" within`, `M dir "o" opaque`, `D file "o/gone" within`)
	c := p.Roots[0].Changes
	if k := c[0].Carry; nodes(k.Marked) != "n n/m" || nodes(k.Leave) != "n/m/s n/w" || k.Displaced != 0 || !c[0].CopiedUp || c[1].CopiedUp {
		t.Errorf("n carries %+v: %q, %q", k, nodes(k.Marked), nodes(k.Leave))
	}
	kept := []string{}
	for _, k := range c[3].Carry.Kept {
		kept = append(kept, k.Node.Path())
	}
	if k := c[3].Carry; nodes(k.Marked) != "o o/sub/same" || k.Displaced != 5 || strings.Join(kept, " ") != "o/same o/socket o/sub/same o/sub" {
		t.Errorf("o carries %+v: %q, %q", k, nodes(k.Marked), kept)
	}
	if s := p.Roots[0].Closed; len(s) != 1 || s[0].Node.Path() != "n/m" || s[0].Mode != 0o555 {
		t.Errorf("closed = %+v", s)
	}
	if d := p.Roots[0].Dirs; len(d) != 1 || d[0].Node != nil || !d[0].Steps || d[0].Layer.Mtime != past {
		t.Errorf("dirs = %+v", d)
	}
	if got, want := p.Counts(), (Counts{Added: 3, Modified: 1, Deleted: 1}); got != want || got.Total() != 5 || p.Empty() {
		t.Errorf("counts = %+v, want %+v", got, want)
	}
	check(t, os.Chmod(w.dir+"/layer/n/m", 0o755))
}

func TestReservedAttributesAreLeftOutWithAWord(t *testing.T) {
	w := newWorld(t, ops{{"write", "f", "1"}}...)
	w.put(ops{{"write", "f", "1"}, {"write", "n", ""}}, mark("f", "overlay.opaque", "y"), mark("n", "overlay.redirect", "/x"))
	p := w.plan()
	w.want(p, `A file "n"`)
	if len(p.Warnings) != 2 || !strings.Contains(p.Warnings[1], `/n": attribute "user.overlay.redirect" is left out`) {
		t.Errorf("warnings = %q", p.Warnings)
	}
}

// TestClosedEntriesOfALayer has what a session may leave and its owner cannot
// read afterwards (H7, B8).
func TestClosedEntriesOfALayer(t *testing.T) {
	w := newWorld(t, ops{{"mkdir", "d"}, {"write", "d/f", "1"}, {"write", "f", "content"}, {"write", "g", "content"}, {"mkdir", "o"}, {"write", "o/old", ""}}...)
	w.put(ops{
		{"mkdir", "d"}, {"write", "d/f", "2"}, {"mkdir", "d/new"}, {"write", "d/new/x", ""}, {"chmod", "d/new", "0"},
		{"write", "f", "content"}, {"write", "g", "CONTENT"}, {"mkdir", "o"},
	}, mark("o", "opaque", "y"), func(d *sys.Dir) error {
		return errors.Join(d.Chmod("d", 0), d.Chmod("f", 0), d.Chmod("g", 0o200), d.Chmod("o", 0o300))
	})
	p := w.plan()
	w.want(p, `m dir "d" mode`, `M file "d/f"`, `A dir "d/new"`, `A file "d/new/x" within`,
		`m file "f" mode`, `M file "g"`, `M dir "o" opaque`, `D file "o/old" within`)
	for name, want := range map[string]uint32{"d": 0, "f": 0, "g": 0o200, "o": 0o300} {
		if s, err := w.layer.Stat(name); err != nil || s.Perm() != want {
			t.Errorf("mode of %s is %o, want %o (%v)", name, s.Perm(), want, err)
		}
	}
	closed := ""
	for _, c := range p.Roots[0].Closed {
		closed += c.Node.Path() + " "
	}
	if closed != "d d/new o " {
		t.Errorf("closed = %q", closed)
	}
}

// TestModesArePutBackWhenAPlanEnds lets the plan fail deep in closed
// directories.
func TestModesArePutBackWhenAPlanEnds(t *testing.T) {
	w := newWorld(t)
	w.put(ops{{"mkdir", "a"}, {"mkdir", "a/b"}, {"mkdir", "a/b/c"}})
	d, err := w.layer.Sub("a/b/c")
	check(t, err)
	defer d.Close()
	for i := range 300 {
		check(t, d.Mknod(strings.Repeat("x", i%200+1)+string(rune('0'+i/200)), unix.S_IFREG|0o644, 0))
	}
	for _, path := range []string{"a/b/c", "a/b", "a"} {
		check(t, os.Chmod(w.dir+"/layer/"+path, 0))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Make(ctx, []Root{w.root}); !errors.Is(err, context.Canceled) {
		t.Fatalf("Make = %v, want it cancelled", err)
	}
	for _, path := range []string{"a", "a/b", "a/b/c"} {
		var st unix.Stat_t
		check(t, unix.Lstat(w.dir+"/layer/"+path, &st))
		if st.Mode&0o777 != 0 {
			t.Errorf("mode of %s is %o, want 0", path, st.Mode&0o777)
		}
		check(t, os.Chmod(w.dir+"/layer/"+path, 0o700))
	}
}

func TestUnreadableBase(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	w := newWorld(t, ops{
		{"write", "f", "1"}, {"chmod", "f", "0"}, {"mkdir", "in"}, {"write", "in/x", "1"}, {"write", "in/y", "1"}, {"chmod", "in", "0"},
		{"mkdir", "gone"}, {"write", "gone/x", ""}, {"chmod", "gone", "0"}, {"mkdir", "o"}, {"write", "o/x", ""}, {"chmod", "o", "0"},
		{"mkdir", "p"}, {"mkdir", "p/sub"}, {"chmod", "p/sub", "300"}, {"write", "p/x", ""},
	}...)
	w.put(ops{{"write", "f", "1"}, {"mkdir", "in"}, {"write", "in/x", "1"}, {"mkdir", "in/d"}, {"write", "in/d/n", ""}, {"socket", "in/s"}, {"mkdir", "o"}, {"mkdir", "p"}, {"mkdir", "p/sub"}, {"chmod", "p/sub", "300"}, {"write", "p/x", ""}},
		mark("p", "opaque", "y"), at("in", whiteout("y")), whiteout("gone"), mark("o", "opaque", "y"))
	p := w.plan()
	w.want(p, `M file "f"`, `D dir "gone" unknown`, `m dir "in" mode`, `M dir "in/d" unknown`, `A file "in/d/n" within`,
		`M file "in/x" unknown`, `D file "in/y" unknown`, `M dir "o" opaque unknown`, `M dir "p" opaque`, `M dir "p/sub" within unknown`)
	for _, c := range p.Roots[0].Changes {
		if c.Unknown != errors.Is(c.Err, unix.EACCES) {
			t.Errorf("%q: unknown %v because of %v", c.Path(), c.Unknown, c.Err)
		}
	}
}

// TestAMountInTheBaseIsNotEntered has / for a base, which is only looked at.
func TestAMountInTheBaseIsNotEntered(t *testing.T) {
	base, err := sys.OpenDir("/")
	check(t, err)
	defer base.Close()
	for what, tt := range map[string]struct {
		ops  ops
		more func(d *sys.Dir) error
		want []string
	}{
		"merged": {ops{{"mkdir", "proc"}, {"mkdir", "proc/1"}, {"write", "proc/1/x", ""}}, nil,
			[]string{`M dir "proc" unknown`, `A dir "proc/1" within`, `A file "proc/1/x" within`}},
		"opaque":    {ops{{"mkdir", "proc"}, {"write", "proc/x", ""}}, mark("proc", "opaque", "y"), []string{`M dir "proc" unknown`, `A file "proc/x" within`}},
		"taken out": {nil, whiteout("proc"), []string{`D dir "proc" unknown`}},
		"replaced":  {ops{{"write", "proc", ""}}, nil, []string{`T file "proc" unknown`}},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.put(tt.ops)
			if tt.more != nil {
				check(t, tt.more(w.layer))
			}
			w.root.Base, w.root.Owners = base, false
			p := w.plan()
			if c := p.Roots[0].Changes; c[0].Node == nil { // the mode or time of /
				p.Roots[0].Changes = c[1:]
			}
			w.want(p, tt.want...)
			for _, c := range p.Roots[0].Changes[:1] {
				if !errors.Is(c.Err, unix.EXDEV) {
					t.Errorf("%q is unknown because of %v", c.Path(), c.Err)
				}
			}
		})
	}
}

func TestPreparedDirectoriesAreNoChanges(t *testing.T) {
	w := newWorld(t, ops{{"mkdir", "a"}, {"mkdir", "a/b"}, {"chmod", "a", "1755"}}...)
	w.root.Prepared = map[string]sys.Stat{}
	check(t, layer.PrepareBelow(w.layer, w.base, "a/b", layer.Own, w.root.Prepared))
	var err error
	w.root.Prepared[""], err = w.layer.Stat("")
	check(t, err)
	// Since they were made, the base has changed: that is the base's affair.
	check(t, errors.Join(w.base.Chmod("a", 0o711), w.base.SetTimes("a", past, past+5)))
	w.want(w.plan())
	check(t, w.layer.Chmod("a", 0o700))
	w.want(w.plan(), `m dir "a" mode`)
	check(t, at("a", func(d *sys.Dir) error { return d.SetTimes("b", past, past+9) })(w.layer))
	w.want(w.plan(), `m dir "a" mode`, `t dir "a/b"`)
}

func TestANeighboursTimeIsNoChange(t *testing.T) {
	w := newWorld(t, ops{{"mkdir", "d"}, {"mkdir", "e"}, {"write", "f", ""}}...)
	w.put(ops{{"mkdir", "d"}, {"mkdir", "e"}, {"write", "f", ""}})
	check(t, errors.Join(w.base.SetTimes("d", past, past+10), w.base.SetTimes("e", past, past+9), w.base.SetTimes("f", past, past+10)))
	w.root.Stamp = past + 10
	w.want(w.plan(), `t dir "e"`, `t file "f"`)
}

func TestSparseFiles(t *testing.T) {
	const size = 4 << 30
	w := newWorld(t)
	for _, dir := range []string{"/base", "/layer"} {
		for _, name := range []string{"same", "other"} {
			f, err := os.Create(w.dir + dir + "/" + name) //lint:allow create a new file in a test's directory
			check(t, err)
			_, err = f.WriteAt([]byte(map[bool]string{true: "data", false: dir[1:2]}[name == "same"]), size/2)
			check(t, errors.Join(err, f.Truncate(size), f.Close()))
		}
	}
	w.age(w.base)
	w.age(w.layer)
	w.want(w.plan(), `M file "other"`)
}

func TestDeepAndManyUnderFewDescriptors(t *testing.T) {
	const depth, width = 1_500, 20_000
	w := newWorld(t)
	deep := func(d *sys.Dir, file string) {
		way, err := sys.NewDescent(d)
		check(t, err)
		defer way.Close()
		for range depth {
			check(t, errors.Join(way.Dir().Mkdir("d", 0o755), way.Enter("d")))
		}
		check(t, way.Dir().Mknod(file, unix.S_IFREG|0o644, 0))
	}
	// merged to the bottom; added; taken out
	check(t, errors.Join(w.base.Mkdir("merged", 0o755), w.layer.Mkdir("merged", 0o755)))
	check(t, errors.Join(w.base.Mkdir("gone", 0o755), w.layer.Mkdir("new", 0o755), w.layer.Mkdir("wide", 0o755)))
	for file, parts := range map[string][2]any{"base": {w.base, "merged"}, "x": {w.base, "gone"}, "layer": {w.layer, "merged"}, "n": {w.layer, "new"}} {
		d, err := parts[0].(*sys.Dir).Sub(parts[1].(string))
		check(t, err)
		deep(d, file)
		check(t, d.Close())
	}
	check(t, layer.MakeWhiteout(w.layer, "gone"))
	wide, err := w.layer.Sub("wide")
	check(t, err)
	defer wide.Close()
	check(t, wide.Mknod("first", unix.S_IFREG|0o644, 0))
	for i := range width - 1 { // names of one inode are cheap to make
		check(t, wide.Link("first", wide, strings.Repeat("n", i%50+1)+"-"+strconv.Itoa(i)))
	}
	w.age(w.base)
	w.age(w.layer)

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	p, err := Make(t.Context(), []Root{w.root})
	check(t, err)
	runtime.GC()
	runtime.ReadMemStats(&after)
	counts := p.Counts()
	if want := (Counts{Added: 1 + 1 + depth + 1 + 1 + width, Deleted: 1 + depth + 1}); counts != want {
		t.Errorf("counts = %+v, want %+v", counts, want)
	}
	if each := (after.HeapAlloc - before.HeapAlloc) / uint64(counts.Total()); each > 1<<10 {
		t.Errorf("%d bytes a change are kept", each)
	}
	if each := (after.TotalAlloc - before.TotalAlloc) / uint64(counts.Total()); each > 16<<10 {
		t.Errorf("%d bytes a change are allocated in all", each)
	} else {
		t.Logf("%d bytes allocated for each change", each)
	}
	t.Logf("%d changes, %d bytes kept for each", counts.Total(), (after.HeapAlloc-before.HeapAlloc)/uint64(counts.Total()))
	runtime.KeepAlive(p)
}
