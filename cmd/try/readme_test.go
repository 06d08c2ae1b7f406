package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// shBlocks are the README's blocks of shell commands.
var shBlocks = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// TestReadmeCommands runs every command that the README shows, block by block
// and line by line, in a project like the one of which it speaks. "make test"
// is what runs this test; of it, it is only asked that make knows it.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	outsideTmp(t)
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := shBlocks.FindAllSubmatch(readme, -1)
	if len(blocks) < 5 {
		t.Fatalf("README.md has %d blocks of commands; has their form changed?", len(blocks))
	}
	for _, b := range blocks {
		for line := range strings.SplitSeq(string(b[1]), "\n") {
			command, _, _ := strings.Cut(line, "  #")
			if command = strings.TrimSpace(command); command == "" || strings.HasPrefix(command, "#") {
				continue
			}
			t.Run(command, func(t *testing.T) {
				t.Parallel()
				runReadmeCommand(t, command)
			})
		}
	}
}

// before is what a command of the README relies on having been done.
var before = map[string]string{
	"try changes idea": keepIdea,
	"try commit idea":  keepIdea,
	"try policy allow": "printf '[session]\\nnet = \"host\"\\n' > .try.toml",
	"try undo":         "try -y ./migrate.sh",
	"try redo":         "try -y ./migrate.sh; try undo",

	"try commit idea -- '*.md' docs/":                                          keepIdea,
	"try commit idea --exclude 'a*'":                                           keepIdea,
	"try commit idea --merge '*.go' --ours go.sum --skip 'logs/**' --theirs .": keepIdea + "; echo other > answer",
	"try merge idea other --into both":                                         keepIdea + "; try --keep -b other ./migrate.sh",
	"try changes idea --against other":                                         keepIdea + "; try --keep -b other ./migrate.sh",
}

const keepIdea = "try --keep -b idea ./experiment"

func runReadmeCommand(t *testing.T, command string) {
	if strings.Contains(command, "npm") {
		needs(t, "npm")
	}
	if strings.Contains(command, "fuse") || strings.Contains(command, "serializable") {
		needsFuse(t)
	}
	work := t.TempDir()
	home, proj := filepath.Join(work, "home"), filepath.Join(work, "home", "shop")
	if err := os.MkdirAll(proj, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"package.json": `{"name": "shop", "version": "1.0.0", "dependencies": {"is-number": "^7.0.0"}}`,
		"Makefile":     "install:\n\tmkdir -p $(HOME)/.local/share/shop && cp Makefile $(HOME)/.local/share/shop\ntest:\n\ttest -f Makefile\n",
		"migrate.sh":   "#!/bin/sh\necho 2 > schema\n",
		"fix.sh":       "#!/bin/sh\necho fixed by $1 > bug\n",
		"experiment":   "#!/bin/sh\necho 42 > answer; echo it > notes.md; mkdir docs; echo is > docs/page\n",
		"candidate.sh": "#!/bin/sh\necho candidate > result\n",
		"Dockerfile":   "",
	} {
		if err := os.WriteFile(filepath.Join(proj, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir := proj
	script := before[command] + "\n" + command + "\n"
	switch {
	case command == "make test":
		dir, script = "../..", "make -n test\n"
	case strings.HasPrefix(command, "make install"):
		// As a new user: in a copy of the repository.
		dir = filepath.Join(work, "try")
		if out, err := exec.Command("cp", "-r", repository(t), dir).CombinedOutput(); err != nil {
			t.Fatalf("copy the repository: %v\n%s", err, out)
		}
		if err := os.RemoveAll(filepath.Join(dir, "bin")); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("private", "bash", "-euc", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+home, "SHELL=/bin/sh", "TRY_SYNC=1", "PREFIX="+home+"/.local", "TRY_STORE=", "XDG_STATE_HOME=", "XDG_CONFIG_HOME=")
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatalf("go env %s: %v", name, err)
		}
		cmd.Env = append(cmd.Env, name+"="+strings.TrimSpace(string(value)))
	}
	out, err := cmd.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); ok && strings.HasPrefix(command, "try policy check") && cmd.ProcessState.ExitCode() == 1 {
		return // the policy asks about it, as the README says
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// needsFuse skips where /dev/fuse cannot be opened. CI sets TRY_TEST_FUSE: there
// it must be.
func needsFuse(t *testing.T) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		unix.Close(fd)
	case os.Getenv("TRY_TEST_FUSE") != "":
		t.Fatalf("open /dev/fuse: %v", err)
	default:
		t.Skipf("open /dev/fuse: %v", err)
	}
}

func repository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
