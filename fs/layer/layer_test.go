package layer

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/layer/layertest"
	"try/fs/sys"
)

func TestMain(m *testing.M) { layertest.Main(m) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openDir(t *testing.T, path string) *sys.Dir {
	t.Helper()
	d, err := sys.OpenDir(path)
	check(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

func noErrors(t *testing.T, ops []layertest.Op, errs []unix.Errno) {
	t.Helper()
	for i, errno := range errs {
		if errno != 0 {
			t.Fatalf("operation %q: %v", ops[i], errno)
		}
	}
}

// list renders a layer as the format sees it, one line for each entry.
func list(t *testing.T, d *sys.Dir) string {
	t.Helper()
	var b strings.Builder
	check(t, sys.Walk(d, func(v sys.Visit) (bool, error) {
		e, err := Look(v.Dir, v.Node.Name, v.Stat)
		if err != nil {
			return false, err
		}
		fmt.Fprintf(&b, "%q %v", v.Node.Path(), e.Kind)
		if e.Kind != Symlink && e.Kind != Whiteout {
			fmt.Fprintf(&b, " %04o", v.Stat.Perm())
		}
		if e.Opaque {
			b.WriteString(" opaque")
		}
		if e.CopiedUp {
			b.WriteString(" copied-up")
		}
		raw, err := v.Dir.Xattrs(v.Node.Name)
		if err != nil {
			return false, err
		}
		for _, name := range slices.Sorted(maps.Keys(raw)) {
			if attr, visible := Visible(name); visible {
				fmt.Fprintf(&b, " %s=%s", attr, raw[name])
			}
		}
		b.WriteByte('\n')
		return true, nil
	}, nil))
	return b.String()
}

// TestFormatIsTheKernels writes a layer through a real overlay and reads it.
func TestFormatIsTheKernels(t *testing.T) {
	layertest.Skip(t)
	dir := t.TempDir()
	base, upper := dir+"/base", dir+"/layer"
	check(t, errors.Join(os.Mkdir(base, 0o755), os.Mkdir(upper, 0o755)))
	make := []layertest.Op{
		{"mkdir", "d"}, {"mkdir", "d/sub"}, {"write", "d/sub/x", "x"}, {"write", "d/y", "y"},
		{"mkdir", "again"}, {"write", "again/old", "old"}, {"mkdir", "gone"}, {"write", "gone/x", "x"},
		{"write", "mod", "1"}, {"write", "mode", "1"}, {"write", "del", "1"}, {"write", "moved", "1"}, {"symlink", "mod", "link"},
		{"write", "attr", "1"}, {"setxattr", "attr", "user.a", "1"},
	}
	noErrors(t, make, layertest.Do(base, make...))
	ops := []layertest.Op{
		{"write", "new", "n"}, {"mkdir", "newdir"}, {"append", "mod", "2"}, {"chmod", "mode", "600"},
		{"rm", "del"}, {"rmtree", "gone"}, {"rmtree", "again"}, {"mkdir", "again"}, {"write", "again/new", "n"},
		{"rename", "moved", "d/moved"}, {"rm", "d/y"}, {"append", "d/sub/x", "2"}, {"rm", "link"}, {"symlink", "new", "link"},
		{"fifo", "fifo"}, {"socket", "socket"}, {"write", "a\nb\xff", ""},
		{"setxattr", "attr", "user.a", "2"}, {"setxattr", "attr", "user.overlay.x", "mine"}, {"setxattr", "newdir", "user.overlay.opaque", "y"},
	}
	noErrors(t, ops, layertest.Session(t, base, upper, ops...))

	want := `"a\nb\xff" file 0644
"again" dir 0755 opaque
"again/new" file 0644
"attr" file 0644 copied-up user.a=2 user.overlay.x=mine
"d" dir 0755 copied-up
"d/moved" file 0644 copied-up
"d/sub" dir 0755 copied-up
"d/sub/x" file 0644 copied-up
"d/y" whiteout
"del" whiteout
"fifo" fifo 0644
"gone" whiteout
"link" symlink
"mod" file 0644 copied-up
"mode" file 0600 copied-up
"moved" whiteout
"new" file 0644
"newdir" dir 0755 user.overlay.opaque=y
"socket" socket 0755
`
	d := openDir(t, upper)
	if got := list(t, d); got != want {
		t.Errorf("layer =\n%s\nwant\n%s", got, want)
	}

	ours, users, err := Marks(d, "attr")
	check(t, err)
	if string(ours["user.overlay.overlay.x"]) != "mine" || ours["user.overlay.origin"] == nil || ours["user.a"] != nil ||
		len(users) != 1 || string(users["user.overlay.x"]) != "mine" {
		t.Errorf("Marks(attr) = %q, %q", ours, users)
	}
	ours, users, err = Marks(d, "newdir")
	check(t, err)
	if string(ours["user.overlay.overlay.opaque"]) != "y" || len(users) != 0 {
		t.Errorf("Marks(newdir) = %q, %q: a reserved name came through", ours, users)
	}
	if ours, _, err = Marks(d, ""); err != nil || ours["user.overlay.impure"] == nil {
		t.Errorf("Marks of the root = %q, %v", ours, err)
	}
}

// TestLayerIsReadByTheKernel writes a layer by hand and reads it through a
// real overlay: our whiteout deletes there, an escaped name is visible.
func TestLayerIsReadByTheKernel(t *testing.T) {
	layertest.Skip(t)
	dir := t.TempDir()
	base, upper := dir+"/base", dir+"/layer"
	check(t, errors.Join(os.Mkdir(base, 0o755), os.Mkdir(upper, 0o755), os.WriteFile(base+"/del", nil, 0o644),
		os.WriteFile(upper+"/f", nil, 0o644), os.MkdirAll(base+"/d/hidden", 0o755), os.Mkdir(upper+"/d", 0o755)))
	d := openDir(t, upper)
	check(t, MakeWhiteout(d, "del"))
	check(t, d.SetXattr("f", Escape("user.overlay.x"), []byte("1")))
	check(t, d.SetXattr("d", OpaqueAttr, []byte("y")))
	errs := layertest.Session(t, base, upper,
		layertest.Op{"open", "del"}, layertest.Op{"rmxattr", "f", "user.overlay.x"}, layertest.Op{"rm", "d/hidden"}, layertest.Op{"rm", "f"})
	if want := []unix.Errno{unix.ENOENT, 0, unix.ENOENT, 0}; fmt.Sprint(errs) != fmt.Sprint(want) {
		t.Errorf("operations = %v, want %v", errs, want)
	}
}

func TestBaseIsReadWithTheOverlaysEyes(t *testing.T) {
	dir := t.TempDir()
	d := openDir(t, dir)
	check(t, MakeWhiteout(d, "char"))
	for _, name := range []string{"empty", "full", "plain"} {
		check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	check(t, os.WriteFile(dir+"/full", []byte("x"), 0o644))
	for _, name := range []string{"empty", "full"} {
		check(t, d.SetXattr(name, "user.overlay.whiteout", nil))
	}
	for name, want := range map[string]bool{"char": true, "empty": true, "full": false, "plain": false} {
		s, err := d.Stat(name)
		check(t, err)
		if hidden, err := Hidden(d, name, s); hidden != want || err != nil {
			t.Errorf("Hidden(%s) = %v, %v, want %v", name, hidden, err, want)
		}
		if e, err := Look(d, name, s); (e.Kind == Whiteout) != want || err != nil {
			t.Errorf("Look(%s) = %v, %v, want a whiteout: %v", name, e.Kind, err, want)
		}
	}
}

func TestEscape(t *testing.T) {
	for attr, raw := range map[string]string{
		"user.a": "user.a", "user.overlay.x": "user.overlay.overlay.x", "user.overlay": "user.overlay",
		"user.overlay.overlay.x": "user.overlay.overlay.overlay.x", "trusted.overlay.x": "trusted.overlay.x",
	} {
		if got := Escape(attr); got != raw {
			t.Errorf("Escape(%s) = %s, want %s", attr, got, raw)
		}
	}
	for raw, want := range map[string]bool{"user.overlay.origin": false, "user.overlay.any": false, "user.overlay.overlay.any": true, "user.any": true} {
		if _, visible := Unescape(raw); visible != want {
			t.Errorf("Unescape(%s) is visible: %v, want %v", raw, visible, want)
		}
	}
	for attr, want := range map[string]bool{"user.overlay.opaque": true, "user.overlay.x": false, "user.opaque": false, "user.overlay.overlay.x": true} {
		if got := Reserved(attr); got != want {
			t.Errorf("Reserved(%s) = %v, want %v", attr, got, want)
		}
	}
	for raw, want := range map[string]string{"user.a": "user.a", "user.overlay.origin": "", "user.overlay.overlay.x": "user.overlay.x",
		"trusted.y": "", "security.selinux": "", "security.capability": "security.capability"} {
		if attr, visible := Visible(raw); visible != (want != "") || visible && attr != want {
			t.Errorf("Visible(%s) = %s, %v, want %q", raw, attr, visible, want)
		}
	}
	raw := map[string][]byte{"user.a": nil, "user.overlay.origin": nil, "user.overlay.overlay.x": nil, "trusted.y": nil, "security.selinux": nil, "security.capability": nil}
	raw["trusted.SGI_ACL_FILE"] = []byte("an ACL of xfs")
	if got := Dropped(raw); len(got) != 2 {
		t.Errorf("Dropped = %q, want user.overlay.origin and trusted.y", got)
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("user.overlay.opaque")
	f.Add("user.overlay.overlay.")
	f.Add("security.x")
	f.Fuzz(func(t *testing.T, attr string) {
		back, visible := Unescape(Escape(attr))
		if back != attr || !visible {
			t.Errorf("Unescape(Escape(%q)) = %q, %v", attr, back, visible)
		}
	})
}

func TestPrepare(t *testing.T) {
	dir := t.TempDir()
	check(t, os.MkdirAll(dir+"/base/a/b", 0o755))
	base, store := openDir(t, dir+"/base"), openDir(t, dir)
	for _, path := range []string{"", "a", "a/b"} {
		d := openDir(t, dir+"/base/"+path)
		check(t, d.SetXattr("", "user.path", []byte("p"+path)))
		check(t, d.SetXattr("", "user.overlay.origin", nil))
	}
	check(t, errors.Join(unix.Chmod(dir+"/base/a", 0o555), unix.Chmod(dir+"/base", 0o1777)))
	for i, path := range []string{"a/b", "a", ""} {
		check(t, openDir(t, dir+"/base/"+path).SetTimes("", 5, sys.Time(1000+i)))
	}
	t.Cleanup(func() { os.Chmod(dir+"/base/a", 0o755); os.Chmod(dir+"/layer/a", 0o755) })

	root, err := Prepare(store, "layer", base, OwnersOf(os.Getuid() == 0, false))
	check(t, err)
	made := map[string]sys.Stat{"": root}
	upper := openDir(t, dir+"/layer")
	if os.Getuid() == 0 { // 0555 stands in a user's way: a session would not ask for it
		check(t, PrepareBelow(upper, base, "a/b", All, made))
	} else {
		check(t, PrepareBelow(upper, base, "a", Own, made))
	}
	for path, s := range made {
		d, from := openDir(t, dir+"/layer/"+path), openDir(t, dir+"/base/"+path)
		now, err := d.Stat("")
		check(t, err)
		want, err := from.Stat("")
		check(t, err)
		attrs, err := d.Xattrs("")
		check(t, err)
		if now.Perm() != want.Perm() || now.Mtime != want.Mtime || s.Mtime != want.Mtime || s.Ino != now.Ino {
			t.Errorf("%q: made %o %d, noted %d, want %o %d", path, now.Perm(), now.Mtime, s.Mtime, want.Perm(), want.Mtime)
		}
		if string(attrs["user.path"]) != "p"+path || len(attrs) != 1 {
			t.Errorf("%q: attributes %q", path, attrs)
		}
	}
	if err := PrepareBelow(upper, base, "a", Own, map[string]sys.Stat{}); err != nil {
		t.Errorf("PrepareBelow of what is there: %v", err)
	}
	if _, err := Prepare(store, "layer", base, Own); !errors.Is(err, unix.EEXIST) {
		t.Errorf("Prepare twice = %v, want EEXIST", err)
	}
}
