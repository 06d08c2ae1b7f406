package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// testPolicy makes a policy of texts by layer, in /home/u/p, trusted or not.
func testPolicy(t *testing.T, layers map[Source]string, trusted bool) *Policy {
	t.Helper()
	s := newStack(facts{Home: "/home/u", Config: "/home/u/.config", Executable: "/home/u/go/bin/try", Protected: []string{"/home/u/.local/state/try"}})
	for _, source := range []Source{System, User, Project} {
		text, ok := layers[source]
		if !ok {
			continue
		}
		l := &layer{source: source, file: "/" + source.String() + ".toml", text: text, trusted: source != Project || trusted}
		if source == Project {
			l.dir, l.file = "/home/u/p", "/home/u/p/.try.toml"
		}
		if err := s.add(l); err != nil {
			t.Fatal(err)
		}
		if !l.trusted {
			s.restrict(l)
		}
	}
	return &Policy{stacks: []*stack{s}}
}

var testRoots = []string{"/home/u/p", "/home/u", "/tmp", "/var/tmp"}

// change reads "kind path", with a slash behind directories, * behind
// executables and @ behind symlinks.
func change(line string) Change {
	kind, path, ok := strings.Cut(line, " ")
	if !ok {
		kind, path = "added", line
	}
	c := Change{Kind: kind, Type: "file"}
	switch path[len(path)-1] {
	case '/':
		c.Type, path = "dir", path[:len(path)-1]
	case '*':
		c.Exec, path = true, path[:len(path)-1]
	case '@':
		c.Type, path = "symlink", path[:len(path)-1]
	}
	if rest, ok := strings.CutPrefix(path, "~"); ok {
		path = "/home/u" + rest
	} else if path[0] != '/' {
		path = "/home/u/p/" + path
	}
	c.Path = path
	return c
}

func changes(lines ...string) []Change {
	var c []Change
	for _, l := range lines {
		c = append(c, change(l))
	}
	return c
}

func rule(action, change string, paths ...string) string {
	s := fmt.Sprintf("[[rule]]\npaths = [%s]\naction = %q\n", "'"+strings.Join(paths, "', '")+"'", action)
	if change != "" {
		s += fmt.Sprintf("change = [%s]\n", "'"+strings.ReplaceAll(change, " ", "', '")+"'")
	}
	return s
}

func TestBuiltInVerdicts(t *testing.T) {
	t.Parallel()
	p := testPolicy(t, nil, false)
	for line, want := range map[string]Action{
		"modified ~/.bashrc":                        Ask,
		"deleted ~/.bashrc":                         Ask,
		"metadata ~/.bashrc":                        Ask,
		"touched ~/.bashrc":                         Allow,
		"added ~/.config/fish/conf.d/x.fish":        Ask,
		"added ~/.config/fish/conf.d/":              Allow,
		"added ~/.config/fish/conf.d/try.fish":      Deny,
		"modified ~/.config/fish/fish_variables":    Yield,
		"modified ~/.bash_history":                  Yield,
		"added ~/.ssh/":                             Allow,
		"metadata ~/.ssh/":                          Ask,
		"replaced ~/.ssh@":                          Ask,
		"added ~/.ssh/authorized_keys":              Ask,
		"added ~/.ssh/known_hosts":                  Yield,
		"modified ~/.ssh/known_hosts.old":           Yield,
		"modified .git/hooks/pre-commit*":           Ask,
		"added .git/hooks/pre-commit*":              Ask,
		"added .git/hooks/pre-commit@":              Ask,
		"metadata .git/hooks/pre-commit*":           Ask,
		"added .git/hooks/pre-commit.sample*":       Allow,
		"added .git/hooks/pre-commit":               Allow, // git skips what is not executable
		"deleted .git/hooks/pre-commit*":            Ask,
		"deleted .git/hooks/pre-commit":             Allow,
		"replaced .git/hooks@":                      Ask,
		"added .git/hooks/a/hooks/x*":               Ask,
		"added ~/bare.git/hooks/post-receive*":      Ask,
		"added .git/modules/lib/hooks/post-commit*": Ask,
		"added .husky/pre-commit*":                  Allow,
		"modified .try.toml":                        Ask,
		"added sub/.try.toml":                       Ask,
		"added ~/.config/try/policy.toml":           Deny,
		"deleted ~/.config/try/policy.toml":         Deny,
		"added ~/.config/try/":                      Deny,
		"added ~/.config@":                          Deny, // what is below comes from elsewhere then
		"added ~/.config/":                          Allow,
		"added ~/.config/nushell@":                  Ask,
		"modified ~/.config/other/x":                Allow,
		"modified ~/go/bin/try*":                    Deny,
		"modified ~/go/bin/tryst*":                  Allow,
		"added ~/.local/state/try/branches/x":       Deny,
		"added ~/.cache/x/y":                        Yield,
		"added .a.c.swp":                            Yield,
		"added src/__pycache__/m.pyc":               Yield,
		"modified .git/index":                       Allow,
		"added new.c":                               Allow,
	} {
		in := Input{Roots: testRoots, Changes: changes(line)}
		if v := p.Evaluate(in).Verdicts[0]; v.Action != want {
			t.Errorf("%s: %v (%s), want %v", line, v.Action, v.Why(), want)
		}
	}
}

func TestNewRepositoriesAreFree(t *testing.T) {
	t.Parallel()
	p := testPolicy(t, nil, false)
	o := p.Evaluate(Input{Roots: testRoots, Changes: changes("lib/", "lib/.git/", "lib/.git/hooks/", "lib/.git/hooks/post-checkout*", "lib/.try.toml",
		".git/modules/m/", ".git/modules/m/hooks/post-checkout*", // of a new submodule
		".git/hooks/d/", ".git/hooks/d/hooks/x*")}) // in an old one
	if want := []int{8}; !slices.Equal(o.Asks, want) || o.Denied != nil {
		t.Errorf("asks = %v, denied = %v, want only the hook of the old repository, %v", o.Asks, o.Denied, want)
	}
}

// TestLayers: each row is a set of layers, and the verdict on ~/.bashrc and x.
func TestLayers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		layers  map[Source]string
		trusted bool
		path    string
		want    Action
		source  Source
	}{
		{"user lifts a built-in ask", map[Source]string{User: rule("allow", "", "~/.bashrc")}, false, "modified ~/.bashrc", Allow, User},
		{"user drops instead", map[Source]string{User: rule("drop", "", "~/.bashrc")}, false, "modified ~/.bashrc", Drop, User},
		{"user lifts no built-in deny", map[Source]string{User: rule("allow", "", "**")}, false, "modified ~/.config/try/x", Deny, BuiltIn},
		{"system lifts nothing", map[Source]string{System: rule("allow", "", "~/.bashrc")}, false, "modified ~/.bashrc", Ask, BuiltIn},
		{"trusted project lifts nothing", map[Source]string{Project: rule("allow", "", "~/.bashrc")}, true, "modified ~/.bashrc", Ask, BuiltIn},
		{"user lifts no ask of the system", map[Source]string{System: rule("ask", "", "**/x"), User: rule("allow", "", "**/x")}, false, "x", Ask, System},
		{"project cannot weaken the user's deny", map[Source]string{User: rule("deny", "", "**/x"), Project: rule("allow", "", "**")}, true, "x", Deny, User},
		{"first match in a layer", map[Source]string{User: rule("allow", "", "**/x") + rule("deny", "", "**")}, false, "x", Allow, User},
		{"strictest over layers", map[Source]string{System: rule("drop", "", "**/x"), User: rule("yield", "", "**/x"), Project: rule("ask", "", "x")}, true, "x", Ask, Project},
		{"untrusted deny is obeyed", map[Source]string{Project: rule("deny", "", "x")}, false, "x", Deny, Project},
		{"untrusted drop is not", map[Source]string{Project: rule("drop", "", "x")}, false, "x", Allow, 0},
		{"untrusted yield is not", map[Source]string{Project: rule("yield", "", "x")}, false, "x", Allow, 0},
		{"untrusted allow does not hide a deny", map[Source]string{Project: rule("allow", "", "**") + rule("deny", "", "x")}, false, "x", Deny, Project},
		{"trusted drop is obeyed", map[Source]string{Project: rule("drop", "", "x")}, true, "x", Drop, Project},
		{"project's globs end at the project", map[Source]string{Project: rule("deny", "", "**/x")}, true, "~/other/x", Allow, 0},
		{"kind named", map[Source]string{User: rule("deny", "deleted", "**/x")}, false, "modified x", Allow, 0},
		{"who forbids deletion forbids replacement", map[Source]string{User: rule("deny", "deleted", "**/x")}, false, "replaced x", Deny, User},
		{"who allows deletion allows no replacement", map[Source]string{User: rule("allow", "deleted", "~/.bashrc")}, false, "replaced ~/.bashrc", Ask, BuiltIn},
		{"a kind from the future is in every rule", map[Source]string{User: rule("deny", "deleted", "**/x")}, false, "moved x", Deny, User},
	} {
		p := testPolicy(t, c.layers, c.trusted)
		v := p.Evaluate(Input{Roots: testRoots, Changes: changes(c.path)}).Verdicts[0]
		var source Source
		if v.Rule != nil {
			source = v.Rule.Source
		}
		if v.Action != c.want || source != c.source {
			t.Errorf("%s: %v by %v (%s), want %v by %v", c.name, v.Action, source, v.Why(), c.want, c.source)
		}
	}
}

func TestWhySaysFileAndLine(t *testing.T) {
	t.Parallel()
	p := testPolicy(t, map[Source]string{User: "\n" + rule("deny", "", "**/x")}, false)
	v := p.Evaluate(Input{Roots: testRoots, Changes: changes("x")}).Verdicts[0]
	if got, want := v.Why(), `deny "**/x", /user.toml:2`; got != want {
		t.Errorf("Why() = %q, want %q", got, want)
	}
}

func TestAllow(t *testing.T) {
	t.Parallel()
	p := testPolicy(t, map[Source]string{User: rule("deny", "", "**/secret") + rule("ask", "", "**/x"), System: rule("drop", "", "**/x")}, false)
	for _, c := range []struct {
		path, allow string
		want        Action
	}{
		{"modified ~/.bashrc", "~/.bashrc", Allow},
		{"modified ~/.bashrc", ".bashrc", Allow},
		{"modified ~/.bashrc", "**", Allow},
		{"modified ~/.bashrc", "~/.zshrc", Ask},
		{"x", "x", Drop}, // the ask is answered, the drop stands
		{"secret", "secret", Deny},
		{"secret", "**", Deny},
		{"~/.config/try/policy.toml", "**", Deny},
		{"~/.config/try/policy.toml", "~/**", Deny},
		{"~/.config/try/policy.toml", "~/.config/**", Deny},
		{"~/.config/try/policy.toml", "**/policy.toml", Deny},
		{"~/.config/try/policy.toml", "~/.config/try/**", Allow},
		{"~/.config/try/policy.toml", "~/.config/try/pol*", Allow},
		{"~/.config/try/policy.toml", "~/.config/try/policy.toml", Allow},
		{"~/go/bin/try*", "~/go/bin/*", Deny},
		{"~/go/bin/try*", "~/go/bin/try", Allow},
		{"~/.config@", "~/.config", Allow},
	} {
		list, err := NewAllowList([]string{c.allow}, "/home/u")
		if err != nil {
			t.Fatal(err)
		}
		v := p.Evaluate(Input{Roots: testRoots, Changes: changes(c.path), Allow: list}).Verdicts[0]
		if v.Action != c.want || v.Lifted != (c.want == Allow) {
			t.Errorf("%s with --allow %s: %v, lifted %v, want %v", c.path, c.allow, v.Action, v.Lifted, c.want)
		}
	}
	if _, err := NewAllowList([]string{"a", "b["}, "/home/u"); err == nil || !strings.Contains(err.Error(), `--allow: bad glob "b["`) {
		t.Errorf("NewAllowList of a bad glob = %v", err)
	}
}

// TestAllowFlagsAnswer: what is pasted is what was missing.
func TestAllowFlagsAnswer(t *testing.T) {
	t.Parallel()
	p := testPolicy(t, map[Source]string{Project: rule("ask", "", "gen/**"), User: rule("deny", "", "**/secret")}, false)
	in := Input{Roots: testRoots, Changes: changes("modified ~/.bashrc", "~/.config/try/policy.toml", "added .git/hooks/it's me*", "~/.ssh/a*b", "secret",
		"gen/1", "gen/2", "gen/3", "gen/4", "gen/5", "~/.config/fish/conf.d/\x1b[2J.fish", "ok")}
	o := p.Evaluate(in)
	flags := p.AllowFlags(in, o)
	if want := `--allow '~/.config/try/policy.toml' --allow '~/.bashrc' --allow '~/p/.git/hooks/it'\''s me' --allow '~/.ssh/a\*b' ` +
		`--allow '/home/u/p/gen/**' --allow $'~/.config/fish/conf.d/\x1b\\[2J.fish'`; flags != want {
		t.Errorf("AllowFlags =\n%s, want\n%s", flags, want)
	}
	globs := []string{"~/.config/try/policy.toml", "~/.bashrc", "~/p/.git/hooks/it's me", `~/.ssh/a\*b`, "/home/u/p/gen/**", "~/.config/fish/conf.d/\x1b\\[2J.fish"}
	list, err := NewAllowList(globs, "/home/u")
	if err != nil {
		t.Fatal(err)
	}
	in.Allow = list
	if o := p.Evaluate(in); o.Asks != nil || !slices.Equal(o.Denied, []int{4}) || len(o.Lifted) != 10 {
		t.Errorf("with the flags: asks %v, denied %v, lifted %v; want only the user's deny left", o.Asks, o.Denied, o.Lifted)
	}
}

func TestDropsAreWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		rules   string
		changes []string
		want    []int
	}{
		{"below a dropped new directory", rule("drop", "", "out"), []string{"out/", "out/a", "out/b/", "out/b/c", "outer"}, []int{0, 1, 2, 3}},
		{"a file in a new directory", rule("drop", "", "out/a"), []string{"out/", "out/a", "out/b"}, []int{1}},
		{"a removed directory loses no part", rule("drop", "", "d/keep"), []string{"deleted d/", "deleted d/keep", "deleted d/x", "deleted e"}, []int{0, 1, 2}},
		{"nor one that was replaced", rule("drop", "deleted", "d/keep"), []string{"replaced d", "deleted d/keep", "deleted d/x"}, []int{0, 1, 2}},
		{"metadata of a directory alone", rule("drop", "metadata", "d"), []string{"metadata d/", "d/x"}, []int{0}},
		{"a stricter one stays", rule("deny", "", "out/key") + rule("drop", "", "out/**"), []string{"out/", "out/a", "out/key"}, []int{0, 1}},
	} {
		p := testPolicy(t, map[Source]string{User: c.rules}, false)
		if o := p.Evaluate(Input{Roots: testRoots, Changes: changes(c.changes...)}); !slices.Equal(o.Drops, c.want) {
			t.Errorf("%s: drops = %v, want %v", c.name, o.Drops, c.want)
		}
	}
}

func TestFamiliesStayTogether(t *testing.T) {
	t.Parallel()
	p := testPolicy(t, map[Source]string{User: rule("drop", "", "**/*.db-wal") + rule("yield", "", "**/y.sqlite")}, false)
	in := Input{Roots: testRoots, Changes: changes("modified a.db", "modified a.db-wal", "added a.db-shm", "modified b.db", "modified y.sqlite", "added y.sqlite-journal", "modified ~/.cache/c-wal")}
	o := p.Evaluate(in)
	if want := []int{0, 1, 2}; !slices.Equal(o.Drops, want) {
		t.Errorf("drops = %v, want the whole family, %v", o.Drops, want)
	}
	if want := []int{4, 5, 6}; !slices.Equal(o.Yields, want) {
		t.Errorf("yields = %v, want %v", o.Yields, want)
	}
	for i, want := range []string{"a.db", "a.db", "a.db", "", "y.sqlite", "y.sqlite"} {
		if want != "" {
			want = "/home/u/p/" + want
		}
		if got := o.Verdicts[i].Family; got != want {
			t.Errorf("family of %s = %q, want %q", in.Changes[i].Path, got, want)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	p := testPolicy(t, map[Source]string{
		User:    "[limits]\nmax_changes = 2\nmax_bytes = '1KB'\n" + rule("drop", "", "**/big"),
		Project: "[limits]\nmax_changes = 5\nmax_deleted = 0\n",
	}, false)
	in := Input{Roots: testRoots, Changes: changes("a", "b", "big", "deleted c")}
	in.Changes[0].Size, in.Changes[1].Size, in.Changes[2].Size = 500, 501, 1e9
	got := fmt.Sprint(p.Evaluate(in).Exceeded)
	want := "[{max_changes 3 2 /user.toml:2} {max_bytes 1001 1000 /user.toml:3} {max_deleted 1 0 /home/u/p/.try.toml:3}]"
	if got != want {
		t.Errorf("exceeded = %s, want %s", got, want)
	}
}

func TestJoinTakesTheStricter(t *testing.T) {
	t.Parallel()
	start := testPolicy(t, map[Source]string{User: rule("deny", "", "**/a") + rule("allow", "", "~/.bashrc") + "[limits]\nmax_changes=9\n[settle]\nchecks=['x']\n"}, false)
	now := testPolicy(t, map[Source]string{User: rule("ask", "", "**/a", "**/b") + "[limits]\nmax_changes=7\n[settle]\nchecks=['y','x']\non_success='abort'\n"}, false)
	p := Join(start, now)
	o := p.Evaluate(Input{Roots: testRoots, Changes: changes("a", "b", "modified ~/.bashrc", "c")})
	for i, want := range []Action{Deny, Ask, Ask, Allow} {
		if got := o.Verdicts[i].Action; got != want {
			t.Errorf("change %d: %v, want %v", i, got, want)
		}
	}
	if s := p.Settings(); s.MaxChanges.Max != 7 || !slices.Equal(s.Checks, []string{"x", "y"}) || s.OnSuccess != "" {
		t.Errorf("settings = %+v, want the lower limit, both checks, fates of the start", s)
	}
}
