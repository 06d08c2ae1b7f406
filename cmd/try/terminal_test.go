package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tryOn runs the real program on a terminal, in a project of its own.
func tryOn(t *testing.T, answers func(*player, int), args ...string) (p *player, proj string) {
	t.Helper()
	outsideTmp(t)
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	proj = filepath.Join(dir, "proj")
	for _, d := range []string{home, proj} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("try", append([]string{"--scope", "dir"}, args...)...)
	cmd.Dir = proj
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TERM=xterm-256color", "SHELL=/bin/sh", "TRY_SYNC=1", "TRY_TEST_NO=" + os.Getenv("TRY_TEST_NO"), "PAGER=cat", "PS1=READY> ", "LANG=C.UTF-8"}
	return playCommand(t, cmd, answers), proj
}

// content is that of a file, or "" if it is not there.
func content(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

// On a terminal the changes are shown and the question is put; each answer
// does what it says, and the status is CMD's.
func TestRunAsks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ answer, said, file string }{
		{"c\n", "try: committed", "new\n"},
		{"a\n", "try: dropped", ""},
		{"k\n", "try: kept as b", ""},
		{"\x04", "try: kept as b", ""},
		{"\x03", "try: kept as b", ""},
	} {
		t.Run(tt.said+tt.answer[:1], func(t *testing.T) {
			t.Parallel()
			p, proj := tryOn(t, honest, "-b", "b", "sh", "-c", "echo new >f; exit 3")
			p.wait("A f", 1)
			p.wait("1 added, 4 B", 1)
			p.wait(prompt, 1)
			p.send(tt.answer)
			p.wait(tt.said, 1)
			p.decided("3 exit status 3")
			if got := content(t, proj, "f"); got != tt.file {
				t.Errorf("f holds %q, want %q", got, tt.file)
			}
		})
	}
}

// CMD leaves queries for the terminal, colours that hide text, a mouse that
// types, and type-ahead: nothing of it settles (H10).
func TestRunIsNotAnsweredByTheTerminal(t *testing.T) {
	t.Parallel()
	const last = `echo x >f; printf '\033[c\033[>c\033[6n\033[21t\033]11;?\033\\\033P$qm\033\\\033[8m\033[?1000h\033[?1049h'; printf 'LAST'`
	p, proj := tryOn(t, func(p *player, n int) {
		p.send("c\n\x1b[?1;2c\x1b[>41;354;0c\x1b[12;40R\x1b]lc\nc\n\x1b\\\x1b]11;rgb:cccc/cccc/cccc\x1b\\\x1bP1$r8m\x1b\\\x1b[0n")
	}, "-b", "b", "sh", "-c", last)
	p.wait("LAST", 1)
	p.wait(prompt, 1) // the line above was typed before it
	p.send("\x1b[?1;2c")
	p.send("c\n")
	p.wait(prompt, 2)
	p.send("k\n")
	p.wait("kept as b", 1)
	p.decided("0 <nil>")
	if got := content(t, proj, "f"); got != "" {
		t.Errorf("the terminal committed %q", got)
	}
}

// d shows the changes in full, with nothing that a terminal obeys.
func TestRunShowsTheDiff(t *testing.T) {
	t.Parallel()
	p, _ := tryOn(t, honest, "sh", "-c", `mkdir d; printf 'one\nESC\033[31mred\302\233\n' >d/text; printf 'a\0b' >bin; ln -s /etc away`)
	p.wait(prompt, 1)
	before := len(p.screen())
	p.send("d\n")
	p.wait(prompt, 2)
	shown := p.screen()[before:]
	for _, want := range []string{
		"/proj/d/\r\n", "--- /dev/null\r\n+++ b/d/text\r\n", "+one\r\n", `+ESC\033[31mred\302\233` + "\r\n",
		"was not there\r\n  is 3 bytes, sha256 ", "away -> /etc",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("the diff lacks %q:\n%q", want, shown)
		}
	}
	p.send("a\n")
	p.wait("dropped", 1)
	p.decided("0 <nil>")
}

// A shell that can be rolled back: what is typed runs in the branch.
func TestShellOnATerminal(t *testing.T) {
	t.Parallel()
	p, proj := tryOn(t, honest, "--abort")
	p.wait("READY> ", 1)
	p.send("stty -echo; echo x >f; echo in-$(cat f); tty\n")
	p.wait("in-x", 1)
	p.wait("/dev/pts/", 1)
	p.send("exit 5\n")
	p.wait("dropped", 1)
	p.decided("5 exit status 5")
	if got := content(t, proj, "f"); got != "" {
		t.Errorf("f holds %q after --abort", got)
	}
}
