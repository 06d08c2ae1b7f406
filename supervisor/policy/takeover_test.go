package policy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// proof shows a row of takeovers at work: path gets text, and what run starts
// then makes the marker, @MARK@. @EVIL@ is a program that does.
type proof struct {
	program string // that must be installed
	path    string // ~/… or relative to a project that was there before
	text    string // "": run makes the file
	run     string // by sh, in the project
}

var proofs = []proof{
	// ssh takes the home directory from the user database, not from HOME.
	{"ssh", "~/.ssh/config", "Match exec \"touch @MARK@\"\n", "ssh -F ~/.ssh/config -G nowhere"},
	{"sh", "~/.profile", "touch @MARK@\n", "sh -l -c :"},
	{"bash", "~/.bashrc", "touch @MARK@\n", "bash -ic :"},
	{"zsh", "~/.zshenv", "touch @MARK@\n", "zsh -c :"},
	{"zsh", "~/.zshrc", "touch @MARK@\n", "zsh -ic :"},
	{"fish", "~/.config/fish/conf.d/x.fish", "touch @MARK@\n", "fish -c true"},
	{"mksh", "~/.mkshrc", "touch @MARK@\n", "mksh -ic :"},
	{"tcsh", "~/.tcshrc", "touch @MARK@\n", "tcsh -c true"},
	{"sh", "~/.cargo/env", "touch @MARK@\n", `echo '. "$HOME/.cargo/env"' > ~/.profile; sh -l -c :`},
	{"script", "~/.inputrc", `"\C-t": "touch @MARK@\C-m"` + "\n", `printf '\024\nexit\n' | script -qec 'bash --norc --noprofile -i' /dev/null`},
	{"tic", "~/.terminfo/m/mine", "", `printf 'mine|x,\n\tbel=evil,\n' > src; tic -o ~/.terminfo src; test "$(TERM=mine tput bel)" = evil && touch @MARK@`},
	{"direnv", ".envrc", "touch @MARK@\n", `mkdir -p ~/.config/direnv; printf '[whitelist]\nprefix = ["%s"]\n' "$PWD" > ~/.config/direnv/direnv.toml; direnv export bash`},
	{"direnv", "~/.config/direnv/direnvrc", "touch @MARK@\n", "echo : > .envrc; direnv allow .; direnv export bash"},

	{"git", ".git/hooks/pre-commit", "#!/bin/sh\ntouch @MARK@\n", "chmod +x .git/hooks/pre-commit; git commit -qm x --allow-empty"},
	{"git", ".git/config", "[core]\n\tfsmonitor = @EVIL@\n", "git status"},
	{"git", ".git/config", "[core]\n\thooksPath = h\n", "mkdir h; cp @EVIL@ h/pre-commit; git commit -qm x --allow-empty"},
	{"git", ".git/config", "[core]\n\tsshCommand = @EVIL@\n", "git ls-remote ssh://nowhere/x"},
	{"git", ".git/config", "[core]\n\teditor = @EVIL@\n", "git commit --allow-empty"},
	{"git", ".git/config", "[core]\n\taskPass = @EVIL@\n[credential]\n\thelper =\n", "printf 'protocol=https\\nhost=x\\n\\n' | git credential fill"},
	{"git", ".git/config", "[credential]\n\thelper = \"!touch @MARK@;\"\n", "printf 'protocol=https\\nhost=x\\n\\n' | GIT_TERMINAL_PROMPT=0 git credential fill"},
	{"git", ".git/config", "[filter \"x\"]\n\tclean = @EVIL@\n", "echo '* filter=x' > .gitattributes; git add ."},
	{"git", ".git/config", "[diff]\n\texternal = @EVIL@\n", "git diff"},
	{"git", ".git/config", "[merge \"x\"]\n\tdriver = @EVIL@\n", "echo '* merge=x' > .git/info/attributes; git checkout -q -b b; git commit -qam b; git checkout -q -b c HEAD~; echo c > f; git commit -qam c; git merge b"},
	{"git", ".git/config", "[alias]\n\tst = !touch @MARK@\n", "git st"},
	{"git", ".git/config", "[include]\n\tpath = ../inc\n", "printf '[core]\\nfsmonitor=@EVIL@\\n' > inc; git status"},
	{"git", ".git/config", "[url \"ext::touch @MARK@ %G\"]\n\tinsteadOf = https://\n[protocol \"ext\"]\n\tallow = always\n", "git ls-remote https://nowhere/x"},
	{"git", "~/.gitconfig", "[core]\n\tfsmonitor = @EVIL@\n", "git status"},
	{"git", ".git/commondir", "../other/.git\n", "git init -q other; git -C other config core.fsmonitor @EVIL@; git -C other commit -qm x --allow-empty; git status"},
	{"hg", ".hg/hgrc", "", `hg init; printf '[hooks]\npre-status = touch @MARK@\n' > .hg/hgrc; hg status`},
	{"svn", "~/.subversion/config", "[tunnels]\nx = @EVIL@\n", "svn ls svn+x://nowhere/y"},

	{"/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator", "~/.config/environment.d/x.conf", "TAKEN=over\n",
		"/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator | grep -qx TAKEN=over && touch @MARK@"},
	{"dbus-run-session", "~/.local/share/dbus-1/services/x.service", "[D-BUS Service]\nName=org.example.Evil\nExec=@EVIL@\n",
		"export XDG_DATA_HOME=$HOME/.local/share; dbus-run-session -- dbus-send --session --print-reply --dest=org.example.Evil / org.example.Evil.X"},
	{"run-mailcap", "~/.mailcap", "text/x-evil; touch @MARK@ %s\n", "echo > f; run-mailcap --action=view text/x-evil:f"},

	{"tmux", "~/.tmux.conf", "run-shell 'touch @MARK@'\n", "export TMUX_TMPDIR=$HOME; tmux -L x new-session -d cat; tmux -L x kill-server"},
	{"screen", "~/.screenrc", "screen sh -c 'touch @MARK@'\n", "mkdir -m 700 ~/s; SCREENDIR=~/s screen -D -m true"},
	{"less", "~/.lesskey", "#env\nLESSOPEN=|touch @MARK@; cat %s\n", "echo x > f; less f | cat"},
	{"vim", "~/.vimrc", "call system('touch @MARK@')\n", "vim -T dumb --not-a-term +qa"},
	{"vim", "~/.vim/plugin/x.vim", "call system('touch @MARK@')\n", "echo > ~/.vimrc; vim -T dumb --not-a-term +qa"},
	{"nvim", "~/.config/nvim/init.vim", "call system('touch @MARK@')\n", "nvim --headless +qa"},
	{"emacs", "~/.emacs.d/init.el", "(call-process \"touch\" nil nil nil \"@MARK@\")\n(kill-emacs)\n", "emacs -nw"},

	{"python3", "~/.local/lib/python@PY@/site-packages/usercustomize.py", "import os; os.system('touch @MARK@')\n", "python3 -c pass"},
	{"python3", "~/.local/lib/python@PY@/site-packages/x.pth", "import os; os.system('touch @MARK@')\n", "python3 -c pass"},
	{"python3", "~/.pdbrc", "!import os; os.system('touch @MARK@')\n", "echo x=1 > f.py; echo q | python3 -m pdb f.py"},
	{"pip3", "~/.config/pip/pip.conf", "[global]\nindex-url = http://127.0.0.1:1/evil\n",
		"pip3 --disable-pip-version-check download --no-deps --retries 0 --timeout 1 nothing 2>&1 | grep -q 127.0.0.1:1/evil && touch @MARK@"},
	{"npm", "~/.npmrc", "script-shell=@EVIL@\n", `echo '{"scripts":{"x":"true"}}' > package.json; npm run x`},
	{"cargo", "~/.cargo/config.toml", "[build]\nrustc-wrapper = \"@EVIL@\"\n", `mkdir src; echo > src/lib.rs; printf '[package]\nname="x"\nversion="0.1.0"\n' > Cargo.toml; cargo check --offline`},
	{"go", "~/.config/go/env", "GOFLAGS=-toolexec=@EVIL@\n", "echo 'package main; func main(){}' > m.go; GOCACHE=$HOME/c go build m.go"},
	{"mvn", "~/.mavenrc", "touch @MARK@\n", "mvn -v"},
	{"gradle", "~/.gradle/init.gradle", "'touch @MARK@'.execute().waitFor()\n", "gradle --offline --no-daemon help"},
	{"irb", "~/.irbrc", "system('touch @MARK@')\n", "irb"},
	{"Rscript", "~/.Rprofile", "system('touch @MARK@')\n", "Rscript -e 1"},
	{"ghci", "~/.ghci", ":!touch @MARK@\n", "chmod 600 ~/.ghci; ghci"},
	{"gdb", "~/.gdbinit", "shell touch @MARK@\n", "gdb -batch"},
	{"lldb", "~/.lldbinit", "platform shell touch @MARK@\n", "lldb -b"},
	{"sqlite3", "~/.sqliterc", ".shell touch @MARK@\n", "sqlite3 -init ~/.sqliterc :memory: 'select 1'"}, // as ssh

	{"gpg", "~/.gnupg/gpg-agent.conf", "pinentry-program @EVIL@\n", "chmod 700 ~/.gnupg; echo x | gpg --no-tty -o out -c; gpgconf --kill all"},
	{"docker", "~/.docker/config.json", `{"credsStore":"evil"}`, "cp @EVIL@ bin/docker-credential-evil; docker logout example.com"},
	{"kubectl", "~/.kube/config", `{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],
"clusters":[{"name":"x","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"x","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","interactiveMode":"Never","command":"@EVIL@"}}}]}`,
		"kubectl get pods --request-timeout=1s"},
	{"aws", "~/.aws/config", "[default]\nregion = x\ncredential_process = @EVIL@\n", "aws sts get-caller-identity --endpoint-url http://127.0.0.1:1"},
	{"wget", "~/.wgetrc", "use_askpass = @EVIL@\n", "wget -q -t 1 http://127.0.0.1:1/"},
	{"curl", "~/.curlrc", "trace = @MARK@\n", "curl -s http://127.0.0.1:1/"},
}

// unproved says of the other rows why they have no proof.
var unproved = map[string]string{
	"nu": "packaged nowhere", "jj": "packaged nowhere", "gh": "needs an account", "nix": "needs its store",
	"X": "needs a display", "desktop session": "needs a display", "window manager": "needs a display", "desktop launcher": "needs a display",
	"terminal emulator": "needs a display", "browser": "needs a display", "VS Code": "needs a display",
	"pam_env": "needs a login", "systemd": "needs the user's service manager", "mail delivery": "needs a mail server",
	"yarn": "replaced by what npm fetches", "psql": "needs a server", "mysql": "needs a server", "try": "TestPolicyFlows in the package above",
}

// cheap are the programs that .ci/run sees to.
var cheap = []string{
	"ssh", "sh", "bash", "zsh", "fish", "mksh", "tcsh", "script", "tic", "direnv", "git", "run-mailcap", "tmux", "screen", "less", "vim",
	"python3", "npm", "go", "gdb", "sqlite3", "wget", "curl", "gpg", "dbus-run-session",
}

// TestTakeovers has the program of each row of the wide list run what the row
// is about, as far as it is installed (H22).
func TestTakeovers(t *testing.T) {
	t.Parallel()
	proved := map[string]bool{} // by a row's reason and its first glob
	for _, p := range proofs {
		rule := ruleOf(t, p)
		if rule == nil {
			continue
		}
		proved[rule.Why+rule.Paths[0]] = true
		t.Run(p.program+" "+p.path, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(p.program); err != nil {
				if os.Getenv("CI") != "" && slices.Contains(cheap, p.program) {
					t.Fatalf("%s is not installed: .ci/run must see to it", p.program)
				}
				t.Skipf("not shown: %s is not installed", p.program)
			}
			p.show(t)
		})
	}
	for _, r := range takeovers {
		switch reason, ok := unproved[r.tool]; {
		case proved[r.why+r.globs[0]]:
		case ok:
			t.Logf("not shown: %s: %s", r.tool, reason)
		default:
			t.Errorf("nothing shows that %s runs %q", r.tool, r.globs)
		}
	}
}

// ruleOf is the rule that a proof is about: it must ask.
func ruleOf(t *testing.T, p proof) *Rule {
	c := change(strings.ReplaceAll("modified "+p.path, "@PY@", "3.11"))
	c.Exec = strings.Contains(p.path, "/hooks/")
	in := Input{Roots: testRoots, Changes: []Change{c}, Base: tree{c.Path: "=>" + p.text}}
	v := testPolicy(t, nil, false).Evaluate(in).Verdicts[0]
	if v.Action != Ask {
		t.Errorf("%s: %v, want ask", p.path, v.Action)
		return nil
	}
	return v.Rule
}

func (p proof) show(t *testing.T) {
	// Short, for the sockets that are made in it.
	home, err := os.MkdirTemp("", "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	mark, work, bin := filepath.Join(home, "mark"), filepath.Join(home, "work"), filepath.Join(home, "work/bin")
	evil := filepath.Join(home, "evil")
	path := p.path
	if strings.Contains(path, "@PY@") {
		out, err := exec.Command("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").Output()
		if err != nil {
			t.Fatal(err)
		}
		path = strings.ReplaceAll(path, "@PY@", strings.TrimSpace(string(out)))
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		path = filepath.Join(home, rest)
	} else {
		path = filepath.Join(work, path)
	}
	fill := strings.NewReplacer("@MARK@", mark, "@EVIL@", evil).Replace
	files := map[string]string{evil: "#!/bin/sh\n: > '" + mark + "'\nexit 1\n"}
	script := "git init -q; echo a > f; git add f; git commit -qm f; echo b > f\n"
	if p.program != "git" {
		script = ""
	}
	if p.text != "" {
		add := fill(p.text)
		files[filepath.Join(home, "text")] = add
		script += `mkdir -p "$(dirname "$TARGET")"; cat ~/text >> "$TARGET"` + "\n"
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script+fill(p.run))
	cmd.Dir = work
	for _, v := range os.Environ() {
		switch name, _, _ := strings.Cut(v, "="); {
		case slices.Contains([]string{"PATH", "TMPDIR", "LANG", "RUSTUP_HOME", "PYENV_ROOT", "JAVA_HOME"}, name):
			cmd.Env = append(cmd.Env, v)
		}
	}
	if real := os.Getenv("HOME"); os.Getenv("RUSTUP_HOME") == "" {
		cmd.Env = append(cmd.Env, "RUSTUP_HOME="+filepath.Join(real, ".rustup"))
	}
	cmd.Env = append(cmd.Env, "HOME="+home, "TARGET="+path, "TERM=xterm", "PATH="+bin+":"+os.Getenv("PATH"),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	// A file, not a pipe: who stays behind as a server may keep it open.
	out, err := os.OpenFile(filepath.Join(home, "out"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run() // most of them end badly: the evil program does
	if _, e := os.Stat(mark); e != nil {
		said, _ := os.ReadFile(out.Name())
		t.Errorf("%s did not run %s: %v\n%s", p.program, p.path, err, said)
	}
}
