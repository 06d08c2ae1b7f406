package supervisor_test

import (
	"os"
	"strings"
	"testing"
)

// TestExitCodes: the status is CMD's, whatever is settled; ours are few.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args string // after the program's name, by the shell
		code int
		kept int  // branches that are left
		made bool // whether "made" is in the project
	}{
		{"success", `-y touch made`, 0, 0, true},
		{"status and commit", `-y sh -c 'touch made; exit 3'`, 3, 0, true},
		{"default commits on 0", `touch made`, 0, 0, true},
		{"default drops on failure", `sh -c 'touch made; exit 3'`, 3, 0, false},
		{"exit-code", `--exit-code sh -c 'touch made; exit 1'`, 1, 0, false},
		{"abort", `--abort touch made`, 0, 0, false},
		{"keep", `--keep sh -c 'touch made; exit 5'`, 5, 1, false},
		{"ask without a terminal", `--ask sh -c 'touch made; exit 6'`, 6, 1, false},
		{"on-failure keep", `--on-failure keep sh -c 'touch made; exit 1'`, 1, 1, false},
		{"on-success abort", `--on-success abort touch made`, 0, 0, false},
		{"signal", `-y sh -c 'touch made; kill -KILL $$'`, 137, 0, true},
		{"signal drops", `sh -c 'touch made; kill -TERM $$'`, 143, 0, false},
		{"not found", `-y /no/such/command`, 127, 0, false},
		{"not found by name", `-y no-such-command`, 127, 0, false},
		{"not executable", `-y ./plain`, 126, 0, false},
		{"a directory", `-y ./dir`, 126, 0, false},
		{"timeout", `-y --timeout 50ms --grace 50ms sh -c 'touch made; sleep 1000'`, 124, 0, true},
		{"timeout drops", `--timeout 50ms --grace 50ms sh -c 'touch made; trap "" TERM; sleep 1000'`, 124, 0, false},
		{"unknown flag", `--no-such-flag true`, 125, 0, false},
		{"contradiction", `-y --abort touch made`, 125, 0, false},
		{"bad name", `-b ../x touch made`, 125, 0, false},
		{"check passes", `--check 'test -e made' touch made`, 0, 0, true},
		{"check fails", `-y --check 'test ! -e made' touch made`, 125, 1, false},
		{"check fails, dropped", `--on-failure abort --check false touch made`, 125, 0, false},
		{"check is not run after failure", `--check 'touch /made' sh -c 'exit 4'`, 4, 0, false},
		{"no engine", `--engine floppy touch made`, 125, 0, false},
		{"read-only elsewhere", `sh -c 'touch /usr/made && touch made'`, 1, 0, false},
		{"our words: usage", `changes --no-such-flag`, 2, 0, false},
		{"our words: too many", `commit a b`, 2, 0, false},
		{"our words: unknown branch", `commit nobody`, 1, 0, false},
		{"our words: none", `abort`, 1, 0, false},
		{"a command named so", `-- commit`, 127, 0, false},
		{"recover", `recover`, 0, 0, false},
		{"branches", `branches`, 0, 0, false},
		{"version", `version`, 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.write("plain", "no program")
			r.must(os.Mkdir(r.at("dir"), 0o755))
			r.finish(r.command("/bin/sh", "-c", `"$0" `+c.args, binary)).want(c.code)
			if _, err := os.Lstat(r.at("made")); (err == nil) != c.made {
				t.Errorf("made: %v, want %v", err == nil, c.made)
			}
			if got := r.branches(); len(got) != c.kept {
				t.Errorf("branches are %v, want %d", got, c.kept)
			}
			for name := range r.branches() {
				r.try("abort", name).want(0)
			}
			r.clean()
		})
	}
}

// policy writes the project's policy, and trusts it.
func (r *rig) policy(text string) {
	r.t.Helper()
	r.write(".try.toml", text)
	r.try("policy", "allow").want(0)
}

// TestPolicyFlows: allow, ask, deny, drop and yield, from CMD to the commit.
func TestPolicyFlows(t *testing.T) {
	t.Run("deny", func(t *testing.T) {
		r := newRig(t)
		r.policy("[[rule]]\npaths = [\"secret/**\"]\naction = \"deny\"\n")
		before := r.project()
		r.sh("-y", "-b", "mine", "mkdir secret; echo x > secret/x; echo y > y").want(125).says("secret/x")
		r.same(before)
		r.try("commit", "mine").want(125).says("secret/x")
		r.same(before)
		r.try("commit", "--allow", "**", "mine").want(125) // which answers what is asked, no more
		r.same(before)
		r.try("abort", "mine").want(0)
		r.clean()
	})
	t.Run("ask", func(t *testing.T) {
		r := newRig(t)
		r.outside("git init -q .")
		r.sh("-y", "-b", "mine", "echo '#!/bin/sh' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; echo y > y").want(125).
			says(".git/hooks/pre-commit", "try commit --allow")
		r.wantFile("y", "open "+r.at("y")+": no such file or directory")
		r.try("commit", "--allow", ".git/hooks/pre-commit").want(0)
		r.wantFile("y", "y\n")
		r.sh("-y", "--allow", ".git/hooks/*", "echo '# more' >> .git/hooks/pre-commit").want(0)
		r.clean()
	})
	t.Run("drop", func(t *testing.T) {
		r := newRig(t)
		r.policy("[[rule]]\npaths = [\"*.log\", \"logs/**\"]\naction = \"drop\"\n")
		r.write("old.log", "old")
		o := r.sh("-y", "--json", "echo new > old.log; echo x > new.log; mkdir -p logs/deep; echo x > logs/deep/x; echo y > y").want(0)
		r.wantFile("old.log", "old")
		r.wantFile("y", "y\n")
		for _, name := range []string{"new.log", "logs/deep/x"} {
			if _, err := os.Lstat(r.at(name)); err == nil {
				t.Errorf("%s was committed", name)
			}
			if !strings.Contains(strings.Join(o.document().Warnings, "\n"), name) {
				t.Errorf("nobody says that %s is left out: %q", name, o.document().Warnings)
			}
		}
		r.clean()
	})
	t.Run("drop all", func(t *testing.T) {
		r := newRig(t)
		r.policy("[[rule]]\npaths = [\"**\"]\naction = \"drop\"\n")
		before := r.project()
		r.sh("-y", "echo x > x; mkdir d").want(0)
		r.same(before)
		r.clean()
	})
	t.Run("yield", func(t *testing.T) {
		r := newRig(t)
		r.policy("[[rule]]\npaths = [\"cache/**\"]\naction = \"yield\"\n")
		r.outside("mkdir cache; echo old | tee cache/a cache/db cache/db-wal cache/gone > cache/b")
		s := r.open("-y", "echo mine | tee cache/a cache/b cache/db cache/db-wal > cache/new; rm cache/gone; echo y > y\nWAIT")
		r.outside("echo theirs | tee cache/a cache/db-wal cache/gone > cache/new")
		s.end().want(0).says("cache/a", "cache/new", "cache/db", "which stays")
		for name, want := range map[string]string{
			"cache/a": "theirs\n", "cache/b": "mine\n", "cache/new": "theirs\n", "cache/gone": "theirs\n", "y": "y\n",
			"cache/db": "old\n", "cache/db-wal": "theirs\n", // a family stays together
		} {
			r.wantFile(name, want)
		}
		r.clean()
	})
	t.Run("yield below what is deleted", func(t *testing.T) {
		r := newRig(t)
		r.policy("[[rule]]\npaths = [\"cache/**\"]\naction = \"yield\"\n")
		r.outside("mkdir cache; echo old > cache/a")
		s := r.open("-y", "rm -r cache\nWAIT")
		r.outside("echo theirs > cache/b")
		o := s.end()
		if _, err := os.Lstat(r.at("cache/b")); err != nil && o.code == 0 {
			t.Errorf("what a neighbour made went along: %v\n%s", err, o.stderr)
		}
		for name := range r.branches() {
			r.try("abort", name).want(0)
		}
		r.clean()
	})
	t.Run("limits", func(t *testing.T) {
		r := newRig(t)
		r.policy("[limits]\nmax_changes = 3\n")
		before := r.project()
		r.sh("-y", "-b", "mine", "touch a b c d").want(125).says("max_changes")
		r.same(before)
		r.sh("-y", "touch a b c").want(0)
		r.try("abort", "mine").want(0)
		r.clean()
	})
	t.Run("untrusted", func(t *testing.T) {
		r := newRig(t)
		r.write(".try.toml", "[[rule]]\npaths = [\"y\"]\naction = \"drop\"\n[[rule]]\npaths = [\"z\"]\naction = \"deny\"\n")
		r.sh("-y", "echo y > y").want(0)
		r.wantFile("y", "y\n")
		r.sh("-y", "echo z > z").want(125)
	})
	t.Run("bad", func(t *testing.T) {
		r := newRig(t)
		r.write(".try.toml", "[[rule]]\npaths = [\"y\"]\nacton = \"drop\"\n")
		r.sh("-y", "echo y > y").want(125).says(".try.toml:3")
		if _, err := os.Lstat(r.at("y")); err == nil {
			t.Error("the command ran")
		}
		r.clean()
	})
}

// TestProtected: nothing that a session does reaches a store or our own policy
// (H12).
func TestProtected(t *testing.T) {
	r := newRig(t)
	r.env = append(r.env, "TRY_STORE="+r.dir+"/elsewhere")
	before := r.look(r.home + "/.config")
	for i, script := range []string{
		`mkdir -p ~/.local/state/try/branches; echo x > ~/.local/state/try/branches/x`,
		`mv ~/.local ~/.other 2>/dev/null || { cp -r ~/.local ~/.other; rm -r ~/.local; }`,
		`rm -rf ~/.local; ln -s /tmp ~/.local`,
		`echo '[session]' > ~/.config/try/policy.toml`,
		`rm -r ~/.config`,
	} {
		r.must(os.MkdirAll(r.home+"/.local/state/try", 0o700))
		o := r.sh("-y", "--root", r.home, script)
		if _, err := os.Lstat(r.home + "/.local/state/try/branches"); err == nil {
			t.Errorf("%q: the default place of a store was written to", script)
		}
		if diff := before.differs(r.look(r.home + "/.config")); diff != "" {
			t.Errorf("%q ended with %d and changed the policy:%s", script, o.code, diff)
		}
		if st, err := os.Lstat(r.home + "/.local/state"); err != nil || !st.IsDir() {
			t.Errorf("%q: an ancestor of a store was replaced: %v", script, err)
		}
		if o.code == 0 {
			t.Errorf("script %d ended well: %s", i, o.stderr)
		}
	}
}
