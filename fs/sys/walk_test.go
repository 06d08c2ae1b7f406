package sys

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// removeAll empties d by Walk, whatever its depth.
func removeAll(t *testing.T, d *Dir) {
	t.Helper()
	check(t, Walk(d, func(v Visit) (bool, error) {
		if v.Stat.IsDir() {
			return true, v.Dir.Chmod(v.Node.Name, 0o700)
		}
		return false, v.Dir.Unlink(v.Node.Name)
	}, func(v Visit) error { return v.Dir.Rmdir(v.Node.Name) }))
}

func makeDeep(t *testing.T, d *Dir, depth int) {
	t.Helper()
	way := got(NewDescent(d))(t)
	defer way.Close()
	for range depth {
		check(t, way.Dir().Mkdir("d", 0o755))
		check(t, way.Enter("d"))
	}
	write(t, way.Dir(), "end", "")
	if way.Depth() != depth {
		t.Fatalf("Depth() = %d, want %d", way.Depth(), depth)
	}
}

func TestWalkIsDepthFirstInOrder(t *testing.T) {
	d := tempDir(t)
	for _, dir := range []string{"b", "b/x", "a"} {
		check(t, os.Mkdir(d.Name()+"/"+dir, 0o755))
	}
	for _, file := range []string{"b/x/2", "b/x/1", "c", "a/ \n\xff"} {
		check(t, os.WriteFile(d.Name()+"/"+file, nil, 0o644))
	}
	check(t, os.Symlink("b", d.Name()+"/link"))
	var visits []string
	check(t, Walk(d, func(v Visit) (bool, error) {
		visits = append(visits, v.Node.Path())
		return true, nil
	}, func(v Visit) error {
		visits = append(visits, v.Node.Path()+"/")
		if _, err := v.Dir.Stat(v.Node.Name); err != nil {
			return fmt.Errorf("post: %w", err)
		}
		return nil
	}))
	want := []string{"a", "a/ \n\xff", "a/", "b", "b/x", "b/x/1", "b/x/2", "b/x/", "b/", "c", "link"}
	if !slices.Equal(visits, want) {
		t.Errorf("visits = %q\nwant     %q", visits, want)
	}
	visits = nil
	check(t, Walk(d, func(v Visit) (bool, error) {
		visits = append(visits, v.Node.Path())
		return v.Node.Name != "b", nil
	}, nil))
	if want := []string{"a", "a/ \n\xff", "b", "c", "link"}; !slices.Equal(visits, want) {
		t.Errorf("without b: visits = %q, want %q", visits, want)
	}
	stop := errors.New("stop")
	if err := Walk(d, func(Visit) (bool, error) { return true, stop }, nil); !errors.Is(err, stop) {
		t.Errorf("Walk = %v, want the function's error", err)
	}
}

// TestDeepTree has far more directories than TestMain allows descriptors.
func TestDeepTree(t *testing.T) {
	const depth = 5_000
	d := tempDir(t)
	makeDeep(t, d, depth)
	most, last := 0, ""
	check(t, Walk(d, func(v Visit) (bool, error) {
		most, last = max(most, v.Node.Depth()), v.Node.Name
		if v.Stat.IsDir() && v.Node.Depth()%97 == 0 { // Depth costs its length
			_, err := v.Dir.Stat(v.Node.Name)
			return true, err
		}
		return true, nil
	}, nil))
	if most != depth+1 || last != "end" {
		t.Errorf("deepest = %d (%s), want %d (end)", most, last, depth+1)
	}
	rel := strings.Repeat("d/", depth-1) + "d"
	sub := got(d.Sub(rel))(t)
	got(sub.Stat("end"))(t)
	if name := sub.Name(); len(name) > 64<<10 {
		t.Errorf("name for messages has %d bytes", len(name))
	}
	check(t, sub.Close())
	_, err := d.Sub(strings.Repeat("x", 5000))
	wantErrno(t, "Sub of a name of 5000 bytes", err, unix.ENAMETOOLONG)
	removeAll(t, d)
	if left := got(d.Entries())(t); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestWalkNoticesAMove(t *testing.T) {
	d := tempDir(t)
	makeDeep(t, d, 3*open)
	moved := false
	err := Walk(d, func(v Visit) (bool, error) {
		if v.Node.Name == "end" {
			moved = true
			up := got(d.Sub(strings.Repeat("d/", 9) + "d"))(t)
			defer up.Close()
			return false, up.Rename("d", d, "elsewhere")
		}
		return true, nil
	}, nil)
	if !moved || !errors.Is(err, ErrMoved) {
		t.Errorf("Walk = %v (moved %v), want ErrMoved", err, moved)
	}
	removeAll(t, d)
}

func TestWalkOpensUnreadableDirectories(t *testing.T) {
	d := tempDir(t)
	check(t, os.MkdirAll(d.Name()+"/a/b", 0o755))
	write(t, d, "a/b/c", "")
	check(t, os.Chmod(d.Name()+"/a/b", 0))
	if os.Getuid() != 0 {
		err := Walk(d, func(Visit) (bool, error) { return true, nil }, nil)
		wantErrno(t, "Walk into mode 000", err, unix.EACCES)
	}
	var seen []string
	check(t, Walk(d, func(v Visit) (bool, error) {
		seen = append(seen, v.Node.Path())
		if v.Stat.IsDir() {
			return true, v.Dir.Chmod(v.Node.Name, 0o700)
		}
		return true, nil
	}, func(v Visit) error { return v.Dir.Chmod(v.Node.Name, v.Stat.Perm()) }))
	if want := []string{"a", "a/b", "a/b/c"}; !slices.Equal(seen, want) {
		t.Errorf("seen = %q, want %q", seen, want)
	}
	a := got(d.Sub("a"))(t)
	defer a.Close()
	if s := got(a.Stat("b"))(t); s.Perm() != 0 {
		t.Errorf("mode afterwards = %o, want 0", s.Perm())
	}
	removeAll(t, d)
}

func TestEntriesOfALargeDirectory(t *testing.T) {
	d := tempDir(t)
	const n = 1500
	for i := range n {
		check(t, d.Mknod(fmt.Sprintf("%0200d", i), unix.S_IFREG|0o644, 0))
	}
	entries := got(d.Entries())(t)
	seen := map[string]bool{}
	for _, e := range entries {
		if e.Type != unix.DT_REG && e.Type != unix.DT_UNKNOWN || e.Ino == 0 || len(e.Name) != 200 {
			t.Fatalf("entry %+v", e)
		}
		seen[e.Name] = true
	}
	if len(entries) != n || len(seen) != n {
		t.Errorf("%d entries, %d names, want %d", len(entries), len(seen), n)
	}
	stop := errors.New("stop")
	if err := d.Each(func(Dirent) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Each = %v, want the function's error", err)
	}
}

func TestNodePath(t *testing.T) {
	var root *Node
	a := &Node{nil, "a"}
	for want, n := range map[string]*Node{"": root, "a": a, "a/b": {a, "b"}, "a/b/c": {&Node{a, "b"}, "c"}} {
		if p := n.Path(); p != want {
			t.Errorf("Path() = %q, want %q", p, want)
		}
		if d := n.Depth(); want != "" && d != strings.Count(want, "/")+1 {
			t.Errorf("Depth(%q) = %d", want, d)
		}
	}
	if s := (&Node{&Node{nil, "/"}, "etc"}).shown(); s != "/etc" {
		t.Errorf("shown = %q, want /etc", s)
	}
}
