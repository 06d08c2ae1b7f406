package commit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/layer"
	"try/fs/layer/layertest"
	"try/fs/sys"
	"try/fs/vfs"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// past is the mtime of all in a test's base.
const past = 1_600_000_000_000_000_000

// rig is a branch of one root: a base, a layer on it, and a store.
type rig struct {
	t    testing.TB
	dir  string
	copy bool
	root Root
}

func (r *rig) base() string  { return r.dir + "/base" }
func (r *rig) layer() string { return r.dir + "/store/b/layer" }
func (r *rig) store() string { return r.dir + "/store/b" }

// newRig makes a base by ops, with all times in the past, then takes the stamp.
func newRig(t testing.TB, ops ...layertest.Op) *rig {
	t.Helper()
	return rigAt(t, t.TempDir(), ops...)
}

func rigAt(t testing.TB, dir string, ops ...layertest.Op) *rig {
	t.Helper()
	r := &rig{t: t, dir: dir}
	t.Cleanup(func() { check(t, layertest.Empty(dir)) })
	for _, d := range []string{r.base(), r.dir + "/store", r.store(), r.layer(), r.store() + "/slots"} {
		check(t, os.Mkdir(d, 0o755))
	}
	r.must(r.base(), ops)
	age(t, r.base())
	d, err := sys.OpenDir(r.base())
	check(t, err)
	defer d.Close()
	st, err := d.Stat("")
	check(t, err)
	check(t, os.Chtimes(r.layer(), unixTime(past), unixTime(past)))
	r.root = Root{Path: r.base(), ID: st.Identity(), Layer: r.layer(), Slots: r.store() + "/slots", Stamp: stamp(t, r.dir)}
	return r
}

func (r *rig) must(dir string, ops []layertest.Op) {
	r.t.Helper()
	for i, errno := range layertest.Do(dir, ops...) {
		if errno != 0 {
			r.t.Fatalf("operation %q: %v", ops[i], errno)
		}
	}
}

// stamp makes T as FACTS D2 says: what is written before has a smaller ctime.
func stamp(t testing.TB, dir string) sys.Time {
	t.Helper()
	path := dir + "/stamp"
	check(t, os.WriteFile(path, nil, 0o600))
	defer os.Remove(path)
	_, err := os.Lstat(path)
	check(t, err)
	check(t, os.Chmod(path, 0o644))
	d, err := sys.OpenDir(dir)
	check(t, err)
	defer d.Close()
	st, err := d.Stat("stamp")
	check(t, err)
	return st.Ctime
}

// age gives everything at dir a time that nothing gets by itself.
func age(t testing.TB, dir string) {
	t.Helper()
	d, err := sys.OpenDir(dir)
	check(t, err)
	defer d.Close()
	set := func(v sys.Visit) error { return v.Dir.SetTimes(v.Node.Name, past, past) }
	modes := map[string]uint32{}
	check(t, sys.Walk(d, func(v sys.Visit) (bool, error) {
		if v.Stat.IsDir() && v.Stat.Perm()&0o700 != 0o700 {
			modes[v.Node.Path()] = v.Stat.Perm()
			return true, errors.Join(v.Dir.Chmod(v.Node.Name, 0o700), set(v))
		}
		return true, set(v)
	}, func(v sys.Visit) error {
		if m, ok := modes[v.Node.Path()]; ok {
			return v.Dir.Chmod(v.Node.Name, m)
		}
		return nil
	}))
	check(t, d.SetTimes("", past, past))
}

// session does ops in a real overlay; all must work.
func (r *rig) session(ops ...layertest.Op) {
	r.t.Helper()
	for i, errno := range layertest.Session(r.t, r.base(), r.layer(), ops...) {
		if errno != 0 {
			r.t.Fatalf("operation %q: %v", ops[i], errno)
		}
	}
}

// plan makes the plan; its directories stay open until the test ends.
func (r *rig) plan() *changes.Plan {
	r.t.Helper()
	return r.planOf(r.layer())
}

func (r *rig) planOf(layer string) *changes.Plan {
	r.t.Helper()
	base, err := sys.OpenDir(r.base())
	check(r.t, err)
	r.t.Cleanup(func() { base.Close() })
	in, err := sys.OpenDir(layer)
	check(r.t, err)
	r.t.Cleanup(func() { in.Close() })
	p, err := changes.Make(context.Background(), []changes.Root{{
		Path: r.base(), Base: base, Layer: in, Owners: os.Getuid() == 0, Stamp: r.root.Stamp,
	}})
	check(r.t, err)
	return p
}

func (r *rig) job() *Job {
	root := r.root
	root.Copy = r.copy
	return &Job{Dir: r.store(), ID: "b1", Roots: []Root{root}, Protected: []string{r.dir + "/store"}}
}

func (r *rig) commit(fs vfs.FS) error {
	r.t.Helper()
	return r.job().Commit(context.Background(), fs, r.plan(), nil)
}

func (r *rig) drift() []Conflict {
	r.t.Helper()
	found, err := Drift(r.plan(), []Root{r.root}, nil, Clock{})
	check(r.t, err)
	return found
}

// entry is all of an entry that must be right after a commit.
type entry struct {
	mode, uid, gid uint32
	mtime          sys.Time
	content        string // or target, or device
	attrs          map[string]string
}

func (e entry) String() string {
	out := fmt.Sprintf("%o %d:%d %d %q", e.mode, e.uid, e.gid, e.mtime-past, e.content)
	for _, a := range slices.Sorted(maps.Keys(e.attrs)) {
		out += fmt.Sprintf(" %s=%q", a, e.attrs[a])
	}
	return out
}

func (e entry) equal(o entry) bool {
	return e.mode == o.mode && e.uid == o.uid && e.gid == o.gid && e.mtime == o.mtime && e.content == o.content && maps.Equal(e.attrs, o.attrs)
}

// look is the tree at dir, without sockets; "" is dir itself.
func look(t testing.TB, dir string) map[string]entry {
	t.Helper()
	d, err := sys.OpenDir(dir)
	check(t, err)
	defer d.Close()
	tree := map[string]entry{}
	add := func(in *sys.Dir, name, at string, s sys.Stat) error {
		e := entry{mode: s.Mode, uid: s.UID, gid: s.GID, mtime: s.Mtime, attrs: map[string]string{}}
		read := func() error {
			attrs, err := in.Xattrs(name)
			for a, v := range attrs {
				e.attrs[a] = string(v)
			}
			if s.IsRegular() && err == nil {
				e.content, err = quietly(filepath.Join(dir, at))
			}
			return err
		}
		var err error
		switch {
		case s.Type() == unix.S_IFSOCK:
			return nil
		case s.Type() == unix.S_IFLNK:
			e.content, err = in.Readlink(name)
		case s.IsRegular() || s.IsDir():
			if err = read(); errors.Is(err, unix.EACCES) {
				err = layer.Opened(in, name, s, read)
			}
		default:
			e.content = fmt.Sprint(s.Rdev)
		}
		tree[at] = e
		return err
	}
	s, err := d.Stat("")
	check(t, err)
	check(t, add(d, "", "", s))
	closed := map[string]uint32{}
	check(t, sys.Walk(d, func(v sys.Visit) (bool, error) {
		if err := add(v.Dir, v.Node.Name, v.Node.Path(), v.Stat); err != nil {
			return false, err
		}
		if v.Stat.IsDir() && !readable(v.Dir, v.Node.Name) {
			closed[v.Node.Path()] = v.Stat.Perm()
			return true, v.Dir.Chmod(v.Node.Name, 0o700)
		}
		return true, nil
	}, func(v sys.Visit) error {
		if m, ok := closed[v.Node.Path()]; ok {
			return v.Dir.Chmod(v.Node.Name, m)
		}
		return nil
	}))
	return tree
}

// quietly reads a file without moving its access time, which tells whose copy
// a layer's file is.
func quietly(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOATIME, 0)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(f)
	return string(b), errors.Join(err, f.Close())
}

// inside is what a session sees: base and layer put together by the rules of
// the format, from their raw trees.
func inside(base, in map[string]entry) map[string]entry {
	out := map[string]entry{}
	for p, e := range base {
		hidden := false
		for up := p; up != ""; {
			up, _ = split(up)
			if l, ok := in[up]; ok && (l.mode&unix.S_IFMT != unix.S_IFDIR || l.attrs["user.overlay.opaque"] == "y") {
				hidden = true
			}
		}
		if _, ok := in[p]; !ok && !hidden {
			out[p] = e
		}
	}
	for p, e := range in {
		if e.mode&unix.S_IFMT == unix.S_IFCHR && e.content == "0" {
			continue
		}
		seen := map[string]string{}
		for a, v := range e.attrs {
			if attr, ok := layer.Unescape(a); ok && !layer.Reserved(attr) {
				seen[attr] = v
			}
		}
		e.attrs = seen
		out[p] = e
	}
	return out
}

// differ lists where two trees are not the same.
func differ(got, want map[string]entry) []string {
	var list []string
	for p, w := range want {
		if g, ok := got[p]; !ok {
			list = append(list, fmt.Sprintf("missing %q: %s", p, w))
		} else if !g.equal(w) {
			list = append(list, fmt.Sprintf("%q: got %s\n\twant %s", p, g, w))
		}
	}
	for p, g := range got {
		if _, ok := want[p]; !ok {
			list = append(list, fmt.Sprintf("too much %q: %s", p, g))
		}
	}
	slices.Sort(list)
	return list
}

func same(t testing.TB, what string, got, want map[string]entry) {
	t.Helper()
	if d := differ(got, want); len(d) > 0 {
		if len(d) > 12 {
			d = append(d[:12], fmt.Sprintf("and %d more", len(d)-12))
		}
		t.Errorf("%s:\n%s", what, strings.Join(d, "\n"))
	}
}

// want is what the base must be after a commit.
func (r *rig) want() map[string]entry {
	r.t.Helper()
	want := inside(look(r.t, r.base()), look(r.t, r.layer()))
	if a, ok := want["lk/a"]; ok { // of mixed: one file with two names, written to under one
		want["lk2"] = a
	}
	return want
}

func unixTime(t sys.Time) time.Time { return time.Unix(0, int64(t)) }

// origin is the mark of what was copied up (fs/overlayfs/overlayfs.h).
const origin = "user.overlay.origin"

// many makes n changes in ten directories: half exchanged, the rest added and
// deleted. The layer is made by hand, as a session would.
func many(t testing.TB, r *rig, n int) {
	t.Helper()
	for d := range 10 {
		for _, top := range []string{r.base(), r.layer()} {
			check(t, os.Mkdir(fmt.Sprintf("%s/d%d", top, d), 0o755))
		}
		check(t, unix.Lsetxattr(fmt.Sprintf("%s/d%d", r.layer(), d), origin, nil, 0))
	}
	for i := range n {
		at := fmt.Sprintf("d%d/%d", i%10, i)
		if i%4 != 0 {
			check(t, os.WriteFile(r.base()+"/"+at, []byte("old"), 0o644))
		}
		if i%4 == 1 {
			check(t, unix.Mknod(r.layer()+"/"+at, unix.S_IFCHR, 0))
			continue
		}
		check(t, os.WriteFile(r.layer()+"/"+at, fmt.Appendf(nil, "new %d", i), 0o644))
		if i%4 != 0 {
			check(t, unix.Lsetxattr(r.layer()+"/"+at, origin, nil, 0))
		}
	}
	age(t, r.base())
	check(t, os.Chtimes(r.layer(), unixTime(past), unixTime(past)))
}
