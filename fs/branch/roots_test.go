package branch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/engine"
	"try/fs/overlay"
	"try/fs/sys"
)

// covered shows a coverage in one line each: root [names], private.
func (w *world) covered(c *Coverage) []string {
	short := func(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, w.dir), "/") }
	var list []string
	for _, r := range c.Roots {
		names := []string{}
		for _, n := range r.Names {
			names = append(names, short(n))
		}
		slices.Sort(names)
		list = append(list, short(r.Path)+" ["+strings.Join(names, " ")+"]")
	}
	for _, p := range c.Private {
		list = append(list, short(p)+" private")
	}
	slices.Sort(list)
	return list
}

func TestRoots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, d := range []string{"home/sub/deep", "tmp/in/tmp", "alone", "tmp/h", "homes", "store2/x"} {
		if err := os.MkdirAll(w.path(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	symlink("home/proj", w.path("link"))
	temp := []string{w.path("tmp"), w.path("vartmp")}
	rows := []struct {
		name       string
		scope      Scope
		dir, home  string
		roots      []string
		cover      []string
		want       []string
		note, fail string
	}{
		{name: "a project in HOME", scope: ScopeUser, dir: "home/proj", home: "home", want: []string{"home [home home/proj]", "tmp [tmp]", "vartmp [vartmp]"}},
		{name: "cwd is HOME", scope: ScopeUser, dir: "home", home: "home", want: []string{"home [home]", "tmp [tmp]", "vartmp [vartmp]"}},
		{name: "cwd elsewhere", scope: ScopeUser, dir: "alone", home: "home", want: []string{"alone [alone]", "home [home]", "tmp [tmp]", "vartmp [vartmp]"}},
		{name: "cwd in tmp", scope: ScopeUser, dir: "tmp/in/tmp", home: "home", want: []string{"home [home]", "tmp [tmp tmp/in/tmp]", "vartmp [vartmp]"}},
		{name: "HOME in tmp", scope: ScopeUser, dir: "alone", home: "tmp/h", want: []string{"alone [alone]", "tmp [tmp tmp/h]", "vartmp [vartmp]"}},
		{name: "HOME in cwd", scope: ScopeUser, dir: "home", home: "home/sub", want: []string{"home [home home/sub]", "tmp [tmp]", "vartmp [vartmp]"}},
		{name: "a name that begins like another", scope: ScopeUser, dir: "homes", home: "home", want: []string{"home [home]", "homes [homes]", "tmp [tmp]", "vartmp [vartmp]"}},
		{name: "cwd by a link", scope: ScopeUser, dir: "link", home: "home", want: []string{"home [home home/proj]", "tmp [tmp]", "vartmp [vartmp]"}},
		{name: "no HOME", scope: ScopeUser, dir: "alone", want: []string{"alone [alone]", "tmp [tmp]", "vartmp [vartmp]"}},
		{name: "HOME is missing", scope: ScopeUser, dir: "alone", home: "nobody", want: []string{"alone [alone]", "tmp [tmp]", "vartmp [vartmp]"}},
		{name: "cwd is the root directory", scope: ScopeUser, dir: "/", home: "home", want: []string{"home [home]", "tmp [tmp]", "vartmp [vartmp]"}, note: "working directory is /"},
		{name: "HOME is the root directory", scope: ScopeUser, dir: "alone", home: "/", want: []string{"alone [alone]", "tmp [tmp]", "vartmp [vartmp]"}, note: "HOME is /"},
		{name: "cwd is read-only", scope: ScopeUser, dir: "/proc/self", home: "home", want: []string{"home [home]", "tmp [tmp]", "vartmp [vartmp]"}, note: "not captured"},
		{name: "one more", scope: ScopeUser, dir: "home", home: "home", roots: []string{"alone"}, want: []string{"alone [alone]", "home [home]", "tmp [tmp]", "vartmp [vartmp]"}},
		{name: "one more is missing", scope: ScopeUser, dir: "home", home: "home", roots: []string{"nobody"}, fail: "no such file"},
		{name: "cover", scope: ScopeUser, dir: "home", home: "home", cover: []string{"alone"}, want: []string{"alone [alone]", "home [home]", "tmp [tmp]", "vartmp [vartmp]"}},
		{name: "scope dir", scope: ScopeDir, dir: "home/proj", home: "home", want: []string{"home/proj [home/proj]", "tmp private", "vartmp private"}},
		{name: "scope dir, named", scope: ScopeDir, dir: "home/proj", home: "home", roots: []string{"alone"}, want: []string{"alone [alone]", "tmp private", "vartmp private"}},
		{name: "scope dir in tmp", scope: ScopeDir, dir: "tmp/in", home: "home", want: []string{"tmp/in [tmp/in]", "vartmp private"}, note: "tmp is read-only"},
		{name: "scope dir of the root directory", scope: ScopeDir, dir: "/", home: "home", fail: "cannot be captured"},
		{name: "cwd in the store", scope: ScopeUser, dir: "store/branches", home: "home", fail: "lies in the store"},
		{name: "cwd in another place for stores", scope: ScopeUser, dir: "store2/x", home: "home", fail: "lies in the store"},
		{name: "a file", scope: ScopeUser, dir: "home", home: "home", roots: []string{"store/format"}, fail: "not a directory"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			abs := func(rel string) string {
				if rel == "" || rel[0] == '/' {
					return rel
				}
				return w.path(rel)
			}
			o := CoverageOptions{
				Scope: row.scope, Dir: abs(row.dir), Home: abs(row.home), Engines: []engine.Engine{overlay.Overlay{}}, Mounts: w.mounts,
				Temp: temp, Stores: []string{w.path("store"), w.path("store2")},
			}
			for _, r := range row.roots {
				o.Roots = append(o.Roots, abs(r))
			}
			for _, r := range row.cover {
				o.Cover = append(o.Cover, abs(r))
			}
			c, err := Roots(o)
			if row.fail != "" {
				if err == nil || !strings.Contains(err.Error(), row.fail) {
					t.Fatalf("Roots = %v, want an error with %q", err, row.fail)
				}
				return
			}
			if err != nil {
				t.Fatalf("Roots: %v", err)
			}
			if got := w.covered(c); !slices.Equal(got, row.want) {
				t.Errorf("Roots = %q, want %q", got, row.want)
			}
			if notes := strings.Join(c.Notes, "\n"); row.note != "" && !strings.Contains(notes, row.note) || row.note == "" && notes != "" {
				t.Errorf("notes = %q, want %q", notes, row.note)
			}
		})
	}
}

func TestRootsPassOverWhatCannotBeWritten(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root can write everywhere")
	}
	w := newWorld(t)
	if err := os.Chmod(w.path("home"), 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(w.path("home"), 0o755) })
	c := w.coverage()
	want := []string{"home/proj [home/proj]", "other [other]", "tmp [tmp]", "vartmp [vartmp]"}
	if got := w.covered(c); !slices.Equal(got, want) || len(c.Notes) != 1 {
		t.Errorf("Roots = %q, %q; want %q and a note", got, c.Notes, want)
	}
}

func TestWorktree(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	w := newWorld(t)
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"}, args...)...)
		cmd.Dir = w.path("other")
		cmd.Env = append(os.Environ(), "HOME="+w.path("home"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	git("init", "-q", "repo")
	git("-C", "repo", "commit", "-q", "--allow-empty", "-m", "x")
	git("-C", "repo", "worktree", "add", "-q", w.path("tree"))
	if err := os.Mkdir(w.path("tree/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"tree", "tree/sub"} {
		if got, err := worktreeCommon(w.path(dir)); err != nil || filepath.Clean(got) != w.path("other/repo/.git") {
			t.Errorf("worktreeCommon(%s) = %q, %v; want the repository's .git", dir, got, err)
		}
	}
	// A checkout that names a repository which does not know it.
	if err := os.Mkdir(w.path("forged"), 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(w.path("tree/.git"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.path("forged/.git"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(w.path("other/.git"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"forged", "other", "other/repo", "home"} {
		if got, err := worktreeCommon(w.path(dir)); err != nil || got != "" {
			t.Errorf("worktreeCommon(%s) = %q, %v; want none", dir, got, err)
		}
	}
}

// refusing is an engine that refuses the directories below some mounts.
type refusing struct {
	overlay.Overlay
	roots []string
}

func (r refusing) Probe(root string, mounts []sys.Mount) error {
	if slices.Contains(r.roots, root) {
		return &engine.Refusal{Root: root, Below: root + "/mnt", Why: root + "/mnt is a mount below it"}
	}
	return nil
}

func TestRootsThatTheEngineRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := os.MkdirAll(w.path("tmp/in"), 0o755); err != nil {
		t.Fatal(err)
	}
	rows := []struct {
		dir, refused string
		want         []string
		fail         string
	}{
		{"home/proj", "home", nil, "home/mnt is a mount"},
		{"other", "other", nil, "other/mnt is a mount"},
		{"home/proj", "tmp", []string{"home [home home/proj]", "tmp private", "vartmp [vartmp]"}, ""},
		{"tmp/in", "tmp", []string{"home [home]", "tmp/in [tmp/in]", "vartmp [vartmp]"}, ""},
	}
	for _, row := range rows {
		c, err := Roots(CoverageOptions{
			Scope: ScopeUser, Dir: w.path(row.dir), Home: w.path("home"), Mounts: w.mounts,
			Engines: []engine.Engine{refusing{roots: []string{w.path(row.refused)}}}, Temp: []string{w.path("tmp"), w.path("vartmp")},
		})
		if row.fail != "" {
			if err == nil || !strings.Contains(err.Error(), row.fail) {
				t.Errorf("%s refused: Roots = %v, want an error with %q", row.refused, err, row.fail)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := w.covered(c); !slices.Equal(got, row.want) || len(c.Notes) != 1 {
			t.Errorf("%s refused: Roots = %q, %q; want %q and a note", row.refused, got, c.Notes, row.want)
		}
	}
}
