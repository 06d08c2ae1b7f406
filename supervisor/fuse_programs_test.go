package supervisor_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestFusePrograms: real programs behind the fuse engine end as natively, and
// what they made is whole when it is committed.
func TestFusePrograms(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/BurntSushi/toml").Output()
	if err != nil {
		t.Fatal(err)
	}
	module := strings.TrimSpace(string(out))
	goCache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, before, inside, after string }{
		{"sqlite3 with writers at once", `sqlite3 db 'pragma journal_mode=wal; create table t(x)' >/dev/null`,
			`for w in 1 2 3 4; do
				(for i in $(seq 50); do echo "pragma busy_timeout=60000; insert into t values($w);"; done | sqlite3 db >/dev/null) &
			done; wait
			test "$(sqlite3 db 'pragma integrity_check')" = ok`,
			`test "$(sqlite3 db 'pragma integrity_check; select count(*) from t')" = "ok
200"`},
		{"sqlite3 with a rollback journal", `sqlite3 db 'create table t(x)'`,
			`for w in 1 2 3; do
				(for i in $(seq 20); do echo "pragma busy_timeout=60000; begin immediate; insert into t values($w); commit;"; done | sqlite3 db >/dev/null) &
			done; wait`,
			`test "$(sqlite3 db 'pragma integrity_check; select count(*) from t')" = "ok
60"`},
		{"git", `git init -q -b main r; cd r; git config user.email u@example.org; git config user.name u
			for i in $(seq 30); do mkdir -p d$((i%5)); seq $i 500 > d$((i%5))/f$i; git add .; git commit -qm $i; done`,
			`git clone -q r c; cd c; git config user.email u@example.org; git config user.name u
			git checkout -q HEAD~10; git checkout -q main; git mv d1 moved; git commit -qm moved; git gc -q; git fsck --no-progress
			git rebase -q HEAD~3; git push -q origin HEAD:other; cd ../r; git gc -q --aggressive; git fsck --no-progress`,
			`cd c; git fsck --no-progress; test "$(git log --format=%s | wc -l)" = 31; test -z "$(git status --porcelain)"; cd ../r; git fsck --no-progress; git log -1 --format=%s other | grep -x moved`},
		{"make", `mkdir src; for i in $(seq 12); do echo "int f$i(int x) { return x + $i; }" > src/f$i.c; done
			(for i in $(seq 12); do echo "int f$i(int);"; done; echo "int main(void) { int x = 0;"; for i in $(seq 12); do echo "x = f$i(x);"; done; echo "return x; }") > src/main.c
			printf 'OBJ = $(patsubst %%.c,%%.o,$(wildcard src/*.c))\nprog: $(OBJ)\n\tgcc -o $@ $^\n%%.o: %%.c\n\tgcc -O1 -c -o $@ $<\n' > Makefile`,
			`make -s -j2; ./prog || test $? = 78; make -s -j2 | grep -q 'up to date' || make -q`,
			`./prog || test $? = 78; make -q`},
		{"go test", `cp -r "$MODULE" m; chmod -R u+w m`,
			`cd m; go test ./... >../out 2>&1 || { cat ../out; exit 1; }; go vet . ; go build -o ../tomlv ./cmd/tomlv`,
			`grep -q '^ok' out; test -x tomlv`},
		{"npm install", `for p in one two three; do mkdir -p src/$p/lib; printf '{"name":"%s","version":"1.0.0","bin":{"%s":"lib/x.js"}}' $p $p > src/$p/package.json
				printf '#!/usr/bin/env node\nconsole.log("%s")\n' $p > src/$p/lib/x.js; for i in $(seq 100); do echo "exports.x=$i" > src/$p/lib/m$i.js; done; done
			printf '{"name":"app","version":"1.0.0"}' > package.json`,
			`npm pack --silent ./src/one ./src/two ./src/three >/dev/null; npm install --silent --no-audit --no-fund ./one-1.0.0.tgz ./two-1.0.0.tgz
			npm install --silent --no-audit --no-fund ./three-1.0.0.tgz; npm uninstall --silent --no-audit --no-fund two; ./node_modules/.bin/one`,
			`test "$(./node_modules/.bin/three)" = three; test ! -e node_modules/two; ls node_modules/one/lib | wc -l | grep -qx 101`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.needFuse()
			for _, tool := range strings.Fields(map[string]string{"git": "git", "make": "make gcc", "npm install": "node npm"}[c.name]) {
				if _, err := exec.LookPath(tool); err != nil {
					t.Skip(err)
				}
			}
			r.env = append(r.env, "MODULE="+module, "GOCACHE="+strings.TrimSpace(string(goCache)), "GOPROXY=off", "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local",
				"npm_config_cache="+r.at(".npm"), "TMPDIR="+r.at(".tmp"), "GOTMPDIR="+r.at(".tmp"), "GIT_CONFIG_NOSYSTEM=1")
			r.outside("mkdir .tmp; " + c.before)
			o := r.sh("--engine", "fuse", "-y", "--summary", "none", "--allow", "**", "--allow-write", strings.TrimSpace(string(goCache)), c.inside)
			if o.code != 0 {
				t.Fatalf("status %d\n%s\n%s", o.code, o.stdout, o.stderr)
			}
			r.outside(c.after)
		})
	}
}
