package policy

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// world is a home directory with a project in it, on the disk.
type world struct {
	t     *testing.T
	home  string
	trust *Trust
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, home: filepath.Join(dir, "home"), trust: NewTrust(filepath.Join(dir, "trust"))}
	w.mkdir("p/sub/deep")
	return w
}

func (w *world) mkdir(rel string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Join(w.home, rel), 0o755); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) write(rel, text string) string {
	w.t.Helper()
	w.mkdir(filepath.Dir(rel))
	file := filepath.Join(w.home, rel)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return file
}

func (w *world) places(cwd string) Places {
	return Places{Home: w.home, Cwd: filepath.Join(w.home, cwd), Trust: w.trust, system: filepath.Join(w.home, "etc-policy.toml")}
}

// checks loads a policy and returns its checks, by which tests tell files, and
// the deny paths, which an untrusted file may add to.
func (w *world) load(p Places) (Settings, string) {
	w.t.Helper()
	policy, warnings, err := Load(p)
	if err != nil {
		w.t.Fatal(err)
	}
	var said []string
	for _, warning := range warnings {
		said = append(said, warning.String()+" | "+warning.Hint)
	}
	return policy.Settings(), strings.Join(said, "\n")
}

func TestProjectFileIsFoundUpwards(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, file, git, cwd string
		found                bool
	}{
		{"here", "p/.try.toml", "", "p", true},
		{"above", "p/.try.toml", "", "p/sub/deep", true},
		{"at the top of the working tree", "p/.try.toml", "p/.git", "p/sub", true},
		{"above the working tree", "p/.try.toml", "p/sub/.git", "p/sub/deep", false},
		{"home itself", ".try.toml", "", "p/sub", true},
		{"above home", "../.try.toml", "", "p/sub", false},
	} {
		w := newWorld(t)
		file := w.write(c.file, "[session]\ndeny = ['x']\n")
		if c.git != "" {
			w.mkdir(c.git)
		}
		s, _ := w.load(w.places(c.cwd))
		if (len(s.Deny) == 1) != c.found {
			t.Errorf("%s: deny = %q, found should be %v", c.name, s.Deny, c.found)
		} else if c.found && s.Deny[0] != filepath.Join(filepath.Dir(file), "x") {
			t.Errorf("%s: deny = %q, want relative to %s", c.name, s.Deny, file)
		}
	}
}

func TestNearestProjectFileCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("p/.try.toml", "[session]\ndeny = ['/outer']\n")
	w.write("p/sub/.try.toml", "[session]\ndeny = ['/inner']\n")
	if s, _ := w.load(w.places("p/sub/deep")); len(s.Deny) != 1 || s.Deny[0] != "/inner" {
		t.Errorf("deny = %q, want that of the nearest file alone", s.Deny)
	}
}

func TestPolicyFlags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("etc-policy.toml", "[settle]\nchecks=['system']\n")
	w.write(".config/try/policy.toml", "[settle]\nchecks=['user']\n")
	project := w.write("p/.try.toml", "[settle]\nchecks=['project']\n")
	file := w.write("ci.toml", "[settle]\nchecks=['file']\n[session]\nroots=['here']\n")
	if _, _, err := w.trust.Allow(project, w.home); err != nil {
		t.Fatal(err)
	}
	flag, none, other := w.places("p"), w.places("p"), w.places("p")
	flag.File, none.None, other.Config = file, true, filepath.Join(w.home, "elsewhere")
	for _, c := range []struct {
		name string
		p    Places
		want string
	}{
		{"all", w.places("p"), "system user project"},
		{"--policy", flag, "system file"},
		{"--no-policy", none, ""},
		{"XDG_CONFIG_HOME", other, "system project"},
	} {
		s, _ := w.load(c.p)
		if got := strings.Join(s.Checks, " "); got != c.want {
			t.Errorf("%s: checks = %q, want %q", c.name, got, c.want)
		}
	}
	if s, _ := w.load(flag); len(s.Roots) != 1 || s.Roots[0] != filepath.Join(w.home, "here") {
		t.Errorf("--policy: roots = %q, want relative to the file", s.Roots)
	}
	flag.File = filepath.Join(w.home, "absent.toml")
	if _, _, err := Load(flag); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("--policy of an absent file = %v, want ErrNotExist", err)
	}
}

func TestUntrustedFileOnlyTightens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(".config/try/policy.toml", "[settle]\non_failure='ask'\n[limits]\nmax_changes=10\ntimeout='1h'\n")
	file := w.write("p/.try.toml", `[settle]
on_success = "keep"
on_failure = "commit"
checks = ["make evil"]
[limits]
max_changes = 20
max_deleted = 3
timeout = "5m"
processes = 100000
[session]
net = "none"
deny = ["secrets"]
roots = ["/srv"]
sockets = ["docker"]
[[rule]]
paths = ["security/**"]
action = "drop"
`)
	s, said := w.load(w.places("p"))
	if s.OnSuccess != "keep" || s.OnFailure != "ask" || s.Checks != nil || s.Roots != nil || s.Sockets != nil || s.Net != "none" || len(s.Deny) != 1 {
		t.Errorf("settings = %+v", s)
	}
	if s.MaxChanges.Max != 10 || s.MaxDeleted.Max != 3 || s.Timeout.Max != int64(5*60e9) || s.Processes.Max > 4096 {
		t.Errorf("limits = %+v, want the lower of each", s)
	}
	want := file + ":3: not trusted, so these are ignored: settle.on_failure (line 3), settle.checks (line 4), limits.max_changes (line 6), " +
		"limits.processes (line 9), session.roots (line 13), session.sockets (line 14), rule with action drop (line 15) | try policy allow " + file
	if said != want {
		t.Errorf("warning =\n%s, want\n%s", said, want)
	}

	a, text, err := w.trust.Allow(file, w.home)
	if err != nil || !strings.Contains(text, "make evil") || len(a.SHA256) != 64 {
		t.Fatalf("Allow = %+v, %v", a, err)
	}
	if s, said := w.load(w.places("p")); len(s.Checks) != 1 || s.OnFailure != "commit" || len(s.Sockets) != 1 || s.Processes.Max != 100000 || said != "" {
		t.Errorf("trusted: settings = %+v, warnings %q", s, said)
	}
	if s, _ := w.load(w.places("p")); s.MaxChanges.Max != 10 {
		t.Errorf("trusted: max_changes = %d, want the lowest of all files", s.MaxChanges.Max)
	}
	w.write("p/.try.toml", text+"\n")
	if s, said := w.load(w.places("p")); s.Checks != nil || !strings.Contains(said, "not trusted") {
		t.Errorf("changed after it was allowed: checks %q, warnings %q", s.Checks, said)
	}
	w.write("p/.try.toml", text)
	if s, _ := w.load(w.places("p")); len(s.Checks) != 1 {
		t.Errorf("changed back: checks = %q", s.Checks)
	}
	w.write("q/.try.toml", text)
	if s, _ := w.load(w.places("q")); s.Checks != nil {
		t.Errorf("the same content in another project is trusted: checks %q", s.Checks)
	}
}

func TestAllowRefusesWhatCannotBeObeyed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.write("p/.try.toml", "[limits]\nx = 1\n")
	if _, _, err := w.trust.Allow(file, w.home); err == nil || !strings.Contains(err.Error(), file+":2: ") {
		t.Errorf("Allow = %v, want file and line", err)
	}
	if found, err := FindProject(w.places("p/sub")); found != file || err != nil {
		t.Errorf("FindProject = %q, %v, want %q", found, err, file)
	}
	if _, _, err := Load(w.places("p")); err == nil || !strings.Contains(err.Error(), file+":2: ") {
		t.Errorf("Load = %v, want file and line", err)
	}
}

func TestOddFilesAreRefusedNotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := syscall.Mkfifo(filepath.Join(w.home, "p/.try.toml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(w.places("p")); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("Load with a FIFO = %v", err)
	}
	w.write("q/.try.toml", strings.Repeat("#", maxFile+1))
	if _, _, err := Load(w.places("q")); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("Load of a huge file = %v", err)
	}
}

// TestForeignProjectFile: one of root or of oneself is obeyed, one of another
// user is not, except by root.
func TestForeignProjectFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own, err := os.Stat(w.write("p/.try.toml", ""))
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.Stat("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	uid := os.Getuid()
	if foreign(own, uid) || foreign(own, 0) || foreign(root, uid) || foreign(root, 4711) {
		t.Error("a file of the caller or of root is foreign, or one is foreign to root")
	}
	if uid != 0 && !foreign(own, uid+1) {
		t.Error("a file of another user is not foreign")
	}
}

func TestSnapshotKeepsThePolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(".config/try/policy.toml", rule("allow", "", "~/.bashrc")+"[limits]\nmax_bytes='1GB'\n")
	w.write("p/.try.toml", rule("deny", "", "sub/x")+rule("drop", "", "sub/y")+"[session]\nnet='none'\nroots=['/r']\n")
	p, _, err := Load(w.places("p"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := p.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	q, err := Restore(data)
	if err != nil {
		t.Fatal(err)
	}
	var a, b bytes.Buffer
	same := func(s string) string { return s }
	if err := errors.Join(p.Show(&a, same), q.Show(&b, same)); err != nil {
		t.Fatal(err)
	}
	if a.String() != b.String() || !strings.Contains(a.String(), "(ignored: not trusted)") {
		t.Errorf("Show differs after Restore:\n%s\n---\n%s", a.String(), b.String())
	}
	again, err := q.Snapshot()
	if err != nil || !bytes.Equal(again, data) {
		t.Errorf("Snapshot of the restored policy differs: %v", err)
	}
	for _, bad := range []string{"", "{}", `{"Version":2,"Stacks":[{}]}`, `{"Version":1}`, `{"Version":1,"Stacks":[{"Layers":[{"Source":"x"}]}]}`,
		`{"Version":1,"Stacks":[{"Layers":[{"Source":"built-in"}]}]}`, `{"Version":1,"Stacks":[{"Layers":[{"Source":"user","Text":"x=1"}]}]}`} {
		if _, err := Restore([]byte(bad)); err == nil {
			t.Errorf("Restore(%q) succeeds", bad)
		}
	}
}

func TestLinkedPolicyIsDeniedWhereItLies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := w.write("dotfiles/try.toml", "")
	w.mkdir(".config/try")
	if err := os.Symlink(target, filepath.Join(w.home, ".config/try/policy.toml")); err != nil {
		t.Fatal(err)
	}
	p, _, err := Load(w.places("p"))
	if err != nil {
		t.Fatal(err)
	}
	if x := p.Explain([]string{w.home}, nil, Change{Path: target, Kind: "modified", Type: "file"}); x.Verdict.Action != Deny {
		t.Errorf("%s: %v, want deny: it is the user's policy", target, x.Verdict.Why())
	}
}

func TestExplainNamesEachLayer(t *testing.T) {
	t.Parallel()
	p := testPolicy(t, map[Source]string{User: rule("allow", "", "~/.bashrc"), Project: rule("deny", "", "x")}, false)
	x := p.Explain(testRoots, nil, change("modified ~/.bashrc"))
	var got []string
	for _, l := range x.Layers {
		at := "-"
		if l.Rule != nil {
			at = l.Rule.Action.String() + " " + l.Glob
		}
		got = append(got, l.Source.String()+" "+at)
	}
	if s, want := strings.Join(got, ", "), "built-in ask ~/.bashrc, user allow ~/.bashrc, project -"; s != want || x.Verdict.Action != Allow {
		t.Errorf("Explain = %s, %v; want %s, allow", s, x.Verdict.Action, want)
	}
}

func TestStartUpFilesOfTheEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	env := map[string]string{"ZDOTDIR": filepath.Join(w.home, "zsh"), "BASH_ENV": filepath.Join(w.home, "be"), "ENV": "relative"}
	places := w.places("p")
	places.StartUp = StartUpFiles(func(k string) string { return env[k] })
	p, _, err := Load(places)
	if err != nil {
		t.Fatal(err)
	}
	for _, rel := range []string{"zsh/.zshrc", "be"} {
		if x := p.Explain([]string{w.home}, nil, Change{Path: filepath.Join(w.home, rel), Kind: "added", Type: "file"}); x.Verdict.Action != Ask {
			t.Errorf("%s: %v, want ask", rel, x.Verdict.Action)
		}
	}
}

// TestBuiltInGlobs: each row compiles and says why.
func TestBuiltInGlobs(t *testing.T) {
	t.Parallel()
	for _, r := range rows(facts{Home: "/home/u", Config: "/c", Executable: "/b/try", Protected: []string{"/s"}}) {
		if r.why == "" {
			t.Errorf("rule %v says no reason", r.globs)
		}
		for _, g := range r.globs {
			if _, err := compileGlob(g, scope{home: "/home/u"}); err != nil {
				t.Error(err)
			}
		}
	}
	if len(builtInRules(facts{})) == 0 {
		t.Error("without a home directory there are no rules at all")
	}
}
