package examples_test

import (
	"strings"
	"testing"
)

func TestGitHook(t *testing.T) {
	u := copied(t, "git-hook")
	u.must("git", "init", "-q", "-b", "main")
	u.must("git", "config", "core.hooksPath", "hooks")
	u.must("git", "add", ".")
	before := u.files()
	u.must("git", "commit", "-q", "-m", "first")
	u.same(before) // neither build/report nor ~/.cache/check

	// The check fails: its word arrives, no commit, the tree as it was.
	good := u.read("greet.sh")
	u.write("greet.sh", "if true; then\n")
	u.must("git", "add", "greet.sh")
	before = u.files()
	out, err := u.run("git", "commit", "-m", "second")
	if err == nil {
		t.Errorf("committed in spite of the check:\n%s", out)
	}
	if !strings.Contains(out, "check: greet.sh does not parse") {
		t.Errorf("the check's message is missing:\n%s", out)
	}
	u.same(before)

	// What is staged is checked, not what lies in the tree, and that stays.
	u.write("greet.sh", good+"echo again\n")
	u.must("git", "add", "greet.sh")
	u.write("greet.sh", "if unfinished; then\n")
	u.write("notes.sh", "(\n")
	before = u.files()
	u.must("git", "commit", "-q", "-m", "third")
	u.same(before)
	if got := u.must("git", "show", "HEAD:greet.sh"); got != good+"echo again\n" {
		t.Errorf("committed greet.sh is %q", got)
	}
	if got := u.must("git", "log", "--format=%s"); got != "third\nfirst\n" {
		t.Errorf("log is %q", got)
	}
}
