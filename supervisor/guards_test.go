package supervisor_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGuards: what turns a mistake into a takeover is asked about under every
// name that it has, end to end (H21, H22); everyday runs are not.
func TestGuards(t *testing.T) {
	for _, c := range []struct {
		name, before, script string
		says                 []string // none: it is committed
	}{
		{"a dotfile through its link", `mkdir -p ~/dotfiles; echo old > ~/dotfiles/bashrc; ln -s dotfiles/bashrc ~/.bashrc`,
			`echo evil >> ~/.bashrc`, []string{"~/dotfiles/bashrc", "seen as", "/home/.bashrc"}},
		{"a directory through its link", `mkdir -p ~/dotfiles/autostart; ln -s ../dotfiles/autostart ~/.config/autostart`,
			`echo evil > ~/dotfiles/autostart/x.desktop`, []string{"~/dotfiles/autostart/x.desktop"}},
		{"the directory above replaced", `mkdir ~/evil`,
			`mv ~/.config ~/.away; ln -s ~/evil ~/.config`, []string{"~/.config"}},
		{"in capitals", `mkdir -p .GIT/hooks`, `echo > .GIT/hooks/pre-commit; chmod +x .GIT/hooks/pre-commit`, []string{".GIT/hooks/pre-commit"}},
		{"a key that git runs", `git init -q .`, `git config core.fsmonitor ./evil`, []string{".git/config", "core.fsmonitor"}},
		{"a key that it does not", `git init -q .`, `git config user.name A; git remote add origin https://x/y; git config branch.main.remote origin`, nil},
		{"a new repository", `:`, `git init -q new; git -C new config core.hooksPath x; echo > new/.git/hooks/pre-commit; chmod +x new/.git/hooks/pre-commit`, nil},
		{"a repository removed", `git init -q old; echo > old/.git/hooks/pre-commit; chmod +x old/.git/hooks/pre-commit; git -C old config core.pager x`, `rm -rf old`, nil},
		{"a hook removed", `git init -q .; echo > .git/hooks/pre-push; chmod +x .git/hooks/pre-push`, `rm .git/hooks/pre-push`, []string{".git/hooks/pre-push"}},
		{"a command before another", `mkdir ~/bin`, `printf '#!/bin/sh\n' > ~/bin/ls; chmod +x ~/bin/ls`, []string{"~/bin/ls", "stands before /"}},
		{"a new command", `mkdir ~/bin`, `printf '#!/bin/sh\n' > ~/bin/brand-new; chmod +x ~/bin/brand-new`, nil},
		{"a new version of a command", `mkdir ~/bin; printf '#!/bin/sh\n' > ~/bin/ls; chmod +x ~/bin/ls`, `printf '#!/bin/sh\n:\n' > ~/bin/ls`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.outside(c.before)
			r.env = append(r.env, "PATH="+r.home+"/bin:"+os.Getenv("PATH"))
			before := r.guarded()
			args := []string{"-y", "-b", "mine", "--root", r.home, "--root", r.proj}
			if c.says == nil {
				r.sh(append(args, c.script)...).want(0)
				r.clean()
				return
			}
			r.sh(append(args, c.script)...).want(125).says(append(c.says, "try commit --allow")...)
			if diff := before.differs(r.guarded()); diff != "" {
				t.Errorf("not what it was:%s", diff)
			}
			// The line that was printed answers.
			_, paste, _ := strings.Cut(r.try("commit", "mine").want(125).stderr, "to allow it: try commit ")
			paste, _, _ = strings.Cut(paste, "\n")
			r.finish(r.command("/bin/sh", "-c", `"$0" commit `+paste+` mine`, binary)).want(0)
			r.clean()
		})
	}
}

// guarded is the project and the home directory, but for the store.
func (r *rig) guarded() snapshot {
	all := r.look(r.dir)
	for path := range all {
		if strings.HasPrefix(path, "home/.local") || path == "home" {
			delete(all, path)
		}
	}
	return all
}

// TestGuardsOfKeptBranch: PATH counts as it was at the start, and the links as
// they are at the commit.
func TestGuardsOfKeptBranch(t *testing.T) {
	r := newRig(t)
	r.must(os.Mkdir(filepath.Join(r.home, "bin"), 0o755))
	cmd := r.shell("--keep", "-b", "mine", "--root", r.home, `printf '#!/bin/sh\n' > ~/bin/ls; chmod +x ~/bin/ls; echo x > ~/rc`)
	cmd.Env = append(cmd.Env, "PATH="+r.home+"/bin:"+os.Getenv("PATH"))
	r.finish(cmd).want(0)
	r.try("commit", "mine").want(125).says("~/bin/ls") // though PATH has no ~/bin here
	r.must(os.Symlink("rc", filepath.Join(r.home, ".bashrc")))
	r.try("commit", "--allow", "~/bin/ls", "mine").want(125).says("~/rc", "seen as")
	r.try("commit", "--allow", "~/bin/ls", "--allow", "~/rc", "mine").want(0)
	r.clean()
}

// TestFoldingHidesNothing: among many, what a rule asks about and what has
// capabilities is listed (H25).
func TestFoldingHidesNothing(t *testing.T) {
	r := newRig(t)
	script := "mkdir -p d/sub; for i in $(seq 500); do echo > d/$i; done; cp /bin/true d/true; echo > d/sub/.envrc"
	want := []string{"  A d/  ", "1 executable", "1 hidden"}
	if _, err := exec.LookPath("setcap"); err == nil && os.Getuid() == 0 {
		script += "; setcap cap_net_raw+ep d/true"
		want = append(want, "  A d/true  (capabilities)")
	}
	r.outside("mkdir -p e")
	o := r.sh("-y", "-b", "mine", script+"; echo > e/.envrc; for i in $(seq 500); do echo > e/$i; done").want(125)
	o.says(append(want, "  A e/.envrc  (the policy asks about it)")...)
	if strings.Contains(o.stderr, "d/sub/.envrc") {
		t.Errorf("a new directory's .envrc is asked about:\n%s", o.stderr)
	}
	r.try("abort", "mine").want(0)
	r.clean()
}

// databaseWriter fills a database; killed, what it has left are a write-ahead log, or a
// hot journal and half a transaction.
const databaseWriter = `
import os, sqlite3, sys
who, how = sys.argv[1:]
c = sqlite3.connect("cache/db", isolation_level=None)
c.execute("PRAGMA wal_autocheckpoint=0")
c.execute("PRAGMA cache_size=10")
c.execute("BEGIN IMMEDIATE")
for i in range(2000):
    c.execute("INSERT INTO t VALUES (?, ?)", (who + "x" * 100, i))
if how == "killed" and c.execute("PRAGMA journal_mode").fetchone()[0] == "delete":
    os._exit(0)
c.execute("COMMIT")
if how == "killed":
    os._exit(0)
c.close()
`

// TestSQLiteStaysWhole: a database goes or stays with its journals, so that
// what is there afterwards can be read, and is theirs (B11).
func TestSQLiteStaysWhole(t *testing.T) {
	for _, tool := range []string{"sqlite3", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is not installed", tool)
			}
			t.Skipf("%s is not installed", tool)
		}
	}
	for _, c := range []struct {
		mode, ours, theirs string
		yields             bool
	}{
		{"wal", "closed", "killed", true},
		{"wal", "killed", "closed", true},
		{"delete", "killed", "closed", true},
		{"delete", "closed", "closed", true},
		{"wal", "closed", "killed", false}, // a conflict then
		{"delete", "killed", "closed", false},
	} {
		t.Run(fmt.Sprintf("%s %s %s %v", c.mode, c.ours, c.theirs, c.yields), func(t *testing.T) {
			r := newRig(t)
			if c.yields {
				r.policy("[[rule]]\npaths = [\"cache/**\"]\naction = \"yield\"\n")
			}
			r.write("writes.py", databaseWriter)
			r.outside("mkdir cache; sqlite3 cache/db 'pragma journal_mode=" + c.mode + "; create table t(who, i); create index ti on t(who)'")
			s := r.open("-y", "python3 writes.py ours "+c.ours+"; echo y > y\nWAIT")
			r.outside("python3 writes.py theirs " + c.theirs)
			if c.yields {
				s.end().want(0).says("cache/db", "which stays")
				r.wantFile("y", "y\n")
			} else {
				s.end().want(125).says("conflict: ", "cache/db")
			}
			o := r.finish(r.command("sqlite3", "cache/db", "pragma integrity_check; select substr(who, 1, 6), count(*) from t group by 1")).want(0)
			if o.stdout != "ok\ntheirs|2000\n" {
				t.Errorf("the database says %q", o.stdout)
			}
			for name := range r.branches() {
				r.try("abort", name).want(0)
			}
			r.clean()
		})
	}
}

// TestKeptPolicy: a kept branch is judged by the policy at its start and by the
// user's of now, whichever is stricter; the project's file counted at the start
// (H23).
func TestKeptPolicy(t *testing.T) {
	const deny = "[[rule]]\npaths = ['**/x']\naction = 'deny'\n"
	for _, c := range []struct {
		name, user, project, userNow, projectNow string
		status                                   int
	}{
		{"nothing", "", "", "", "", 0},
		{"the user's at the start", deny, "", "", "", 125},
		{"the user's of now", "", "", deny, "", 125},
		{"both", deny, "", deny, "", 125},
		{"what allowed at the start does not now", "[[rule]]\npaths = ['**/x']\naction = 'allow'\n", "", deny, "", 125},
		{"nor the other way round", deny, "", "[[rule]]\npaths = ['**/x']\naction = 'allow'\n", "", 125},
		{"the project's at the start", "", deny, "", "", 125},
		{"the project's of now is not read", "", "", "", deny, 0},
		{"not even if it is wrong", "", "", "", "[nonsense", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			user := filepath.Join(r.home, ".config/try/policy.toml")
			write := func(userText, project string) {
				r.must(os.WriteFile(user, []byte("[session]\nscope = 'dir'\n"+userText), 0o644))
				r.must(os.RemoveAll(r.at(".try.toml")))
				if project != "" {
					r.write(".try.toml", project)
				}
			}
			write(c.user, c.project)
			r.sh("--keep", "-q", "-b", "mine", "echo x > x").want(0)
			write(c.userNow, c.projectNow)
			r.try("commit", "mine").want(c.status)
			if c.status != 0 {
				r.try("abort", "mine").want(0)
			}
			r.clean()
		})
	}
}
