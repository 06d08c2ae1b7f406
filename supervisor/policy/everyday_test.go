package policy

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// everyday is what daily commands change, as seen in real runs: "kind path",
// or a path that is added; / marks directories, * executables, @ symlinks.
var everyday = map[string]string{
	"npm install": `node_modules/ node_modules/.bin/ node_modules/.bin/vite@ node_modules/.package-lock.json node_modules/husky/ node_modules/husky/bin.js*
		node_modules/esbuild/bin/esbuild* node_modules/react/ node_modules/react/hooks/ node_modules/react/hooks/use.js* node_modules/@scope/a/.github/workflows/x.yml
		node_modules/.cache/babel/x.json modified:package.json modified:package-lock.json ~/.npm/ ~/.npm/_cacache/content-v2/sha512/aa/bb/cc ~/.npm/_cacache/tmp/
		~/.npm/_logs/2025-01-01T00_00_00_000Z-debug-0.log ~/.npm/_update-notifier-last-checked`,
	"npm install -g": `~/.npm-global/bin/tsc@ ~/.npm-global/lib/node_modules/typescript/bin/tsc* ~/.nvm/versions/node/v22.0.0/bin/tsc@`,
	"go install": `~/go/bin/ ~/go/bin/gopls* ~/.cache/go-build/00/00aa-d ~/.cache/go-build/00/00aa-a ~/.config/go/telemetry/local/upload.token
		~/.config/go/telemetry/ ~/.config/go/ ~/.config/`,
	"go mod download": `~/go/pkg/mod/cache/download/golang.org/x/sys/@v/v0.49.0.zip ~/go/pkg/mod/cache/download/golang.org/x/sys/@v/list ~/go/pkg/mod/cache/lock
		~/go/pkg/mod/cache/download/sumdb/sum.golang.org/tile/8/0/x001/234 ~/go/pkg/mod/golang.org/x/sys@v0.49.0/ ~/go/pkg/mod/golang.org/x/sys@v0.49.0/unix/mkall.sh*
		~/go/pkg/mod/github.com/a/b@v1.0.0/.githooks/pre-commit* ~/go/pkg/mod/github.com/a/b@v1.0.0/hooks/x.sh* modified:go.mod modified:go.sum
		~/go/pkg/mod/cache/vcs/aabb/ ~/go/pkg/mod/cache/vcs/aabb/hooks/ ~/go/pkg/mod/cache/vcs/aabb/hooks/pre-commit.sample*`,
	"go build": `app* ~/.cache/go-build/trim.txt`,
	"cargo build": `target/ target/debug/ target/debug/app* target/debug/build/x-1/build-script-build* target/.rustc_info.json target/CACHEDIR.TAG Cargo.lock
		~/.cargo/registry/index/index.crates.io-1949/.cache/se/rd/serde ~/.cargo/registry/cache/index.crates.io-1949/serde-1.0.crate
		~/.cargo/registry/src/index.crates.io-1949/serde-1.0/build.rs ~/.cargo/.package-cache ~/.cargo/.global-cache ~/.cargo/git/db/x-1/ ~/.cargo/git/db/x-1/hooks/ ~/.cargo/git/db/x-1/hooks/README.sample*
		~/.cargo/git/checkouts/x-1/ab/ ~/.cargo/git/checkouts/x-1/ab/.git/ ~/.cargo/git/checkouts/x-1/ab/.git/hooks/post-checkout*`,
	"cargo install": `~/.cargo/bin/rg* modified:~/.cargo/.crates.toml modified:~/.cargo/.crates2.json`,
	"pip install --user": `~/.local/ ~/.local/lib/python3.13/site-packages/requests/__init__.py ~/.local/lib/python3.13/site-packages/requests/__pycache__/api.cpython-313.pyc
		~/.local/lib/python3.13/site-packages/requests/hooks.py ~/.local/bin/normalizer* ~/.cache/pip/http-v2/a/b/c/d/e ~/.local/share/man/man1/x.1`,
	"pip install --user setuptools": `~/.local/lib/python3.13/site-packages/distutils-precedence.pth ~/.local/lib/python3.13/site-packages/setuptools-80.0.dist-info/
		~/.local/lib/python3.13/site-packages/setuptools-80.0.dist-info/RECORD`,
	"pip install -e":         `~/.local/lib/python3.13/site-packages/__editable__.x-1.pth ~/.local/lib/python3.13/site-packages/x-1.dist-info/ .venv/lib/python3.13/site-packages/x.pth`,
	"rustup, the first time": `~/.cargo/ ~/.cargo/env ~/.cargo/bin/cargo* ~/.rustup/settings.toml`,
	"kubectl get":            `~/.kube/cache/ ~/.kube/cache/discovery/x/servergroups.json`,
	"gpg --verify":           `~/.gnupg/ ~/.gnupg/trustdb.gpg modified:~/.gnupg/pubring.kbx ~/.gnupg/.#lk0x1.host.1 modified:~/.gnupg/random_seed`,
	"aws s3 ls":              `~/.aws/cli/cache/x.json ~/.aws/sso/cache/y.json`,
	"vim":                    `~/.vim/ ~/.vim/.netrwhist ~/.vim/undo/x ~/.vim/swap/y.swp`,
	"git clone, bare":        `r.git/ r.git/config r.git/hooks/ r.git/hooks/update.sample*`,
	"rm -rf a repository":    `deleted:r/ deleted:r/.git/ deleted:r/.git/config deleted:r/.git/hooks/ deleted:r/.git/hooks/pre-push*`,
	"python -m venv":         `.venv/ .venv/bin/ .venv/bin/activate .venv/bin/python@ .venv/pyvenv.cfg .venv/lib64@`,
	"git clone": `repo/ repo/.git/ repo/.git/HEAD repo/.git/config repo/.git/hooks/ repo/.git/hooks/pre-commit.sample* repo/.git/hooks/post-checkout* repo/.git/hooks/pre-push*
		repo/.git/objects/pack/pack-aa.pack repo/.git/index repo/.try.toml repo/.envrc repo/.husky/pre-commit* ~/.ssh/ ~/.ssh/known_hosts`,
	"git commit": `modified:.git/index modified:.git/HEAD modified:.git/logs/HEAD modified:.git/refs/heads/main modified:.git/COMMIT_EDITMSG .git/objects/aa/ .git/objects/aa/bbcc
		.git/hooks/ modified:.git/hooks/pre-commit.sample* touched:.git/hooks/pre-commit* .git/gc.log`,
	"git pull": `modified:.git/index .git/FETCH_HEAD .git/ORIG_HEAD .git/objects/pack/pack-bb.idx modified:.git/packed-refs modified:src/a.c deleted:src/b.c src/run.sh*
		modified:~/.ssh/known_hosts ~/.ssh/known_hosts.old .githooks/pre-commit*`,
	"git submodule update --init": `.git/modules/ .git/modules/lib/ .git/modules/lib/hooks/ .git/modules/lib/hooks/post-checkout* .git/modules/lib/index lib/.git lib/a.c`,
	"git worktree add":            `../w/ ../w/.git .git/worktrees/ .git/worktrees/w/ .git/worktrees/w/index`,
	"make install into HOME": `~/.local/bin/tool* ~/.local/share/man/man1/tool.1 ~/.local/share/bash-completion/completions/tool ~/.local/share/zsh/site-functions/_tool
		~/.local/share/applications/tool.desktop ~/.local/lib/libtool.so@ ~/bin/tool* ~/.config/tool/config.toml`,
	"an interactive shell": `modified:~/.bash_history ~/.zcompdump-host-5.9 ~/.zsh_history.new modified:~/.local/share/fish/fish_history ~/.config/fish/fish_variables ~/.lesshst ~/.viminfo ~/.viminfo.tmp
		~/.python_history ~/.config/ ~/.config/fish/ ~/.config/fish/conf.d/ ~/.config/fish/functions/ ~/.config/fish/completions/`,
	"editing": `modified:main.go .main.go.swp .#main.go@ main.go~ ~/.local/state/nvim/shada/main.shada ~/.local/share/recently-used.xbel`,
	"make":    `main.o* /tmp/ccXYZ.o /tmp/go-build123/ /tmp/go-build123/b001/exe/a*`,
}

// TestEverydayRunsAreNotAsked: policy is for accidents; who is asked daily
// stops to read.
func TestEverydayRunsAreNotAsked(t *testing.T) {
	t.Parallel()
	p := testPolicy(t, nil, false)
	for name, lines := range everyday {
		var cs []Change
		for _, line := range strings.Fields(lines) {
			cs = append(cs, change(strings.Replace(strings.Replace(line, ":", " ", 1), "../w", "~/w", 1)))
		}
		o := p.Evaluate(Input{Roots: testRoots, Changes: cs})
		for _, i := range append(o.Denied, o.Asks...) {
			t.Errorf("%s: %s: %s", name, cs[i].Path, o.Verdicts[i].Why())
		}
	}
}

// manyChanges is an `npm install` of n files.
func manyChanges(n int) []Change {
	cs := make([]Change, n)
	for i := range cs {
		cs[i] = Change{Kind: "added", Type: "file", Size: 1000,
			Path: fmt.Sprintf("/home/u/projects/shop/frontend/node_modules/@scope/package-%d/dist/esm/internal/module-%d.js", i/40, i)}
	}
	return cs
}

// TestEvaluateIsQuick holds the built-in set to 3 µs a change, with room for a
// slow machine: what it guards against is a glob that walks every path.
func TestEvaluateIsQuick(t *testing.T) {
	if testing.CoverMode() != "" || raceEnabled {
		t.Skip("the instrumented binary is slower")
	}
	p := testPolicy(t, nil, false)
	in := Input{Roots: []string{"/home/u/projects/shop", "/home/u", "/tmp", "/var/tmp"}, Changes: manyChanges(100_000)}
	// Processor time of this thread, the best of three: the machine is shared.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	best := time.Duration(math.MaxInt64)
	for range 3 {
		before := threadTime(t)
		p.Evaluate(in)
		best = min(best, threadTime(t)-before)
	}
	if each := best / time.Duration(len(in.Changes)); each > 3*3*time.Microsecond {
		t.Errorf("Evaluate takes %v a change, want at most 3µs", each)
	} else {
		t.Logf("%v a change", each)
	}
}

func threadTime(t *testing.T) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func BenchmarkEvaluate(b *testing.B) {
	s := newStack(facts{Home: "/home/u", Config: "/home/u/.config"})
	p := &Policy{stacks: []*stack{s}}
	in := Input{Roots: []string{"/home/u/projects/shop", "/home/u", "/tmp", "/var/tmp"}, Changes: manyChanges(100_000)}
	for b.Loop() {
		p.Evaluate(in)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(in.Changes)), "ns/change")
}

func BenchmarkLoad(b *testing.B) {
	home := b.TempDir()
	for b.Loop() {
		if _, _, err := Load(Places{Home: home, Cwd: home, system: home + "/none"}); err != nil {
			b.Fatal(err)
		}
	}
}
