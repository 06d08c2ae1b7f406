package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What a tool prints, on stdout and on stderr, and its status are inside what
// they are outside. What it writes is dropped, so both runs begin alike.
func TestToolsAsOutside(t *testing.T) {
	t.Parallel()
	hello := `printf '#include <stdio.h>\nint main(int n, char **v) { printf("hello %%d\\n", n); return n; }\n' >hello.c; `
	repo := `git init -q -b main r; cd r; git config user.name n; git config user.email e@x; export GIT_AUTHOR_DATE='@1 +0000' GIT_COMMITTER_DATE='@1 +0000'; `
	for _, c := range []struct {
		name, needs string
		env         []string
		script      string
	}{
		{"who", "", nil, `whoami; id -u; id -un; id -g; id -Gn | wc -w; echo ~ $HOME; hostname; uname -a; tty; nproc; nice; ulimit -a | grep -v '^process'`},
		{"environment", "", []string{"A B=spaces in the name", "EMPTY=", "TWO=1", "TWO=2", "BYTES=\xff\xfe\n", "=odd", "noequals"}, `tr '\0' '\n' </proc/self/environ`},
		{"mask", "", nil, `umask; umask 027; >f; mkdir d; stat -c '%a %u %g' f d; grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status`},
		{"link", "", nil, `ln -s "$PWD" ../link; cd ../link; pwd; pwd -P; readlink /proc/self/cwd`},
		{"files", "", nil, `mkdir a; echo 1 >a/f; ln a/f a/g; ln -s f a/h; mkfifo a/p; touch -h -d @1 a/*; chmod 640 a/f; stat -c '%n %F %a %h %s %Y' a/*; mv a b; ls b; rm -r b; ls`},
		{"home", "", nil, `mkdir -p ~/d/e; find ~ -mindepth 1 -not -path '*/.local*' | sort; du -sk --exclude .local ~ | cut -f2; find ~ >/dev/null && du ~ >/dev/null && tar -C ~ --exclude=./.local -cf - . | tar -tf - | sort; grep -r nothing ~; ls -R ~/proj`},
		{"pipes", "", nil, `seq 100 | tac | sort -n | tail -n 1; (exit 3) | cat; echo $?; cat <<E
here $((1+1))
E
exec 5>o; echo five >&5; cat o; exec 5<o; cat <&5; sh -c 'exit 7'`},
		{"processes", "", nil, `{ sleep 1000 & kill -TERM $!; wait $!; } 2>/dev/null; echo $?; (sh -c 'kill -KILL $$'); echo $?; ps -o comm= -p $$; echo $((PPID > 0))`},
		{"bash", "bash", nil, `bash -c 'diff <(seq 3) <(seq 4); cat <<<string; coproc cat; echo co >&${COPROC[1]}; read x <&${COPROC[0]}; echo $x; echo ${BASH_VERSINFO[0]}; [[ -t 0 ]]; echo $?; echo x > >(cat); wait $!; printf "%s\n" {1..3} | while read l; do echo $l; done'`},
		{"ssh", "ssh ssh-keygen", nil, `ssh -V; ssh -G example.org | grep -E '^(user|port|hostname) '; ssh-keygen -q -t ed25519 -N '' -f key && ssh-keygen -l -f key | cut -d' ' -f1,3-`},
		{"git", "git", nil, repo + `echo 1 >f; git status --porcelain; git add f; git commit -qm one; echo 2 >>f; git diff; git commit -qam two; git log --format='%h %s'; git checkout -qb b HEAD~; git mv f g; git commit -qm three; git rebase main; git merge-base main b; git stash list; git gc -q; git fsck --strict; git worktree add -q ../w main~; git -C ../w status`},
		{"git clone", "git", nil, repo + `echo 1 >f; git add f; git commit -qm one; cd ..; git clone -q --no-hardlinks r c && git -C c log --format=%s && git -C c push -q origin HEAD:other && git -C r branch`},
		{"make", "make gcc", nil, hello + `printf 'all: hello\nhello: hello.o\n\t$(CC) -o $@ $^\ninstall: hello\n\tinstall -D hello $(PREFIX)/bin/hello\n' >Makefile; make -s -j2 && make install PREFIX=$HOME/.local && ~/.local/bin/hello 1 2; echo $?; make -s; make nothing`},
		{"gdb", "gdb gcc", nil, hello + `gcc -g -o hello hello.c && gdb -q -nx -batch -ex 'break main' -ex run -ex 'print n' -ex continue --args ./hello 1 2>&1 | grep -vE 'warning|debuginfod|libthread_db|process|pid|^Breakpoint'`},
		{"strace", "strace", nil, `strace -f -e trace=none -o log sh -c 'true; exit 4'; echo $?; grep -o '+++ exited with 4 +++' log`},
		{"python3", "python3", nil, `python3 -c 'import os,sys,tempfile,subprocess,multiprocessing,socket
print(sys.argv, os.getcwd(), os.path.expanduser("~"), tempfile.gettempdir())
with tempfile.NamedTemporaryFile() as f: f.write(b"x"); f.flush(); print(os.path.getsize(f.name))
print(subprocess.run(["sh", "-c", "echo out; exit 3"], capture_output=True))
q=multiprocessing.get_context("fork").Queue(); q.put(1); print(q.get())
s=socket.socket(socket.AF_UNIX); s.bind("sock"); s.listen(); c=socket.socket(socket.AF_UNIX); c.connect("sock"); print("connected")
os.symlink("a","b"); print(os.readlink("b")); sys.exit(5)' arg ''; echo $?; python3 -m venv --without-pip v && v/bin/python -c 'print(1)'`},
		{"node", "node", nil, `node -e 'const fs=require("fs"),cp=require("child_process"); console.log(process.argv.slice(1), process.cwd(), require("os").homedir(), process.stdin.isTTY); fs.writeFileSync("f","x"); fs.renameSync("f","g"); console.log(fs.readdirSync(".")); console.log(cp.execSync("echo out").toString()); fs.watch("."); process.exit(6)' arg ''; echo $?`},
		{"go", "go", []string{"CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOPROXY=off", "GOTOOLCHAIN=local", "GOCACHE=" + goCache()}, `printf 'module m\ngo 1.21\n' >go.mod; printf 'package main\nfunc main() { println("built") }\n' >main.go; go build -o prog . && ./prog; go vet . ; go list -m`},
		{"sqlite3", "sqlite3", nil, `sqlite3 db 'pragma journal_mode=wal; create table t(x); insert into t values(1),(2); select sum(x) from t'; sqlite3 db 'begin immediate; update t set x=x+1; commit; select x from t; pragma integrity_check'`},
		{"tar", "", nil, `mkdir -p a/b; seq 100 >a/f; ln a/f a/g; ln -s f a/l; chmod 400 a/f; touch -h -d @1 a/* a; tar -cf t.tar a; rm -rf a; tar -xpf t.tar; stat -c '%n %F %a %h %s %Y' a/*; tar -df t.tar; echo $?`},
		{"rsync", "rsync", nil, `mkdir -p a/b; seq 100 >a/b/f; ln -s b a/l; rsync -aHAX a/ c/; rsync -aHAXni --delete a/ c/; find c | LC_ALL=C sort`},
		{"patch and diff", "patch diff", nil, `seq 9 >f; sed s/5/five/ f >g; diff -u --label a --label b f g >p; cat p; patch f <p; cmp f g && echo same; sed -i s/five/V/ f; grep -n V f`},
		{"devices", "", nil, `echo x >/dev/null; head -c 3 /dev/zero | od -An -c; head -c 5 /dev/urandom | wc -c; echo x >/dev/full; echo $?; ls -l /dev/fd/ >/dev/null; echo in | cat /dev/stdin; echo out >/dev/stdout; echo err >/dev/stderr; ls /dev/fd/ | head -n 3`},
		{"locks", "flock", nil, `flock lock sh -c 'echo held'; (flock -n 9 && echo got) 9>lock; mkdir -p $HOME/m; cd $HOME/m; ln -s "$$" l && readlink l | grep -c .`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			needs(t, strings.Fields(c.needs)...)
			d := newDesk(t)
			run := func(argv ...string) result {
				cmd := d.command(argv...)
				cmd.Env = append(cmd.Env, c.env...)
				return d.finish(cmd)
			}
			argv := []string{"sh", "-c", c.script}
			d.sh("try --abort -q true") // the store is there for both
			flags := []string{"try", "--abort", "-q"}
			if c.name == "go" {
				flags = append(flags, "--allow-write", goCache())
			}
			inside := run(append(flags, argv...)...)
			outside := run(argv...)
			if inside != outside {
				t.Errorf("outside: status %d\n%s%s\ninside: status %d\n%s%s", outside.status, outside.out, outside.err, inside.status, inside.out, inside.err)
			}
		})
	}
}

// goCache is where this test's own Go keeps what it has built.
func goCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	if set := os.Getenv("GOCACHE"); set != "" {
		return set
	}
	return filepath.Join(dir, "go-build")
}

// Supplementary groups open what they open outside.
func TestToolsGroups(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to be a user with groups")
	}
	needs(t, "setpriv")
	d := newDesk(t)
	const uid, group = 64123, 64124
	if err := os.Chown(d.home, uid, uid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(d.proj, uid, uid); err != nil {
		t.Fatal(err)
	}
	d.write("secret", "shared\n")
	if err := os.Chown(filepath.Join(d.proj, "secret"), 0, group); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(d.proj, "secret"), 0o640); err != nil {
		t.Fatal(err)
	}
	for dir := d.dir; dir != "/"; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil || st.Mode&1 == 0 && dir != d.dir {
			t.Skipf("%s is not for others", dir)
		}
	}
	if err := os.Chmod(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	as := []string{"setpriv", "--reuid", strconv.Itoa(uid), "--regid", strconv.Itoa(uid), "--groups", fmt.Sprint(uid, ",", group)}
	as[len(as)-1] = strings.ReplaceAll(as[len(as)-1], " ", "")
	script := []string{"sh", "-c", "cat secret; id -u; id -g; id -G | wc -w; grep ^Groups /proc/self/status | wc -w"}
	outside := d.run(append(as, script...)...)
	inside := d.run(append(append(as, "try", "--abort", "-q"), script...)...)
	if outside != inside || !strings.HasPrefix(inside.out, "shared\n") {
		t.Errorf("outside %+v, inside %+v", outside, inside)
	}
}

// Every byte of every argument arrives.
func TestToolsArguments(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	args := []string{"", " ", "a b", "\t\n", "'", `"`, `\`, "$HOME", "`x`", "*", "--", "-n", "--help", "\xff\xfe\x80", "äöü", strings.Repeat("long ", 20000), ""}
	for _, argv := range [][]string{{"try", "--abort", "-q"}, {"try", "--abort", "-q", "--"}, {"try", "--abort", "-q", "--pty"}} {
		r := d.run(append(append(argv, "sh", "-c", `printf '%s\0' "$@" >args; cat args >&2`, "sh"), args...)...)
		if want := strings.Join(args, "\x00") + "\x00"; r.err != want {
			t.Errorf("%q: the arguments arrived as %.300q", argv, r.err)
		}
	}
}

// npm installs a package from the registry, and the commit puts it into place.
func TestToolsNpm(t *testing.T) {
	t.Parallel()
	needs(t, "npm", "node")
	if c, err := net.DialTimeout("tcp", "registry.npmjs.org:443", patience/2); err != nil && os.Getenv("npm_config_registry") == "" && os.Getenv("https_proxy") == "" && os.Getenv("HTTPS_PROXY") == "" {
		t.Skipf("needs the npm registry: %v", err)
	} else if err == nil {
		c.Close()
	}
	d := newDesk(t)
	d.write("package.json", `{"name":"m","version":"1.0.0","dependencies":{"is-number":"7.0.0"}}`)
	r := d.run("try", "-y", "--check", `node -e 'require("is-number")(1) || process.exit(1)'`, "npm", "install", "--no-audit", "--no-fund", "--no-update-notifier")
	if r.status != 0 || !strings.Contains(r.err, "committed") {
		t.Fatalf("status %d: %s%s", r.status, r.out, r.err)
	}
	if out := d.sh(`node -p 'require("is-number")(5)'`); out != "true\n" {
		t.Errorf("the installed package said %q", out)
	}
}

// What make installs into HOME is committed without a word of the policy.
func TestToolsInstall(t *testing.T) {
	t.Parallel()
	needs(t, "make")
	d := newDesk(t)
	d.write("Makefile", "install:\n\tinstall -D -m 755 tool $(PREFIX)/bin/tool\n")
	d.write("tool", "#!/bin/sh\necho tool\n")
	if r := d.run("try", "-y", "make", "-s", "install", "PREFIX="+filepath.Join(d.home, ".local")); r.status != 0 || !strings.Contains(r.err, "committed") {
		t.Fatalf("status %d: %s%s", r.status, r.out, r.err)
	}
	if out := d.sh("~/.local/bin/tool"); out != "tool\n" {
		t.Errorf("the installed tool said %q", out)
	}
}

// Ten megabytes of random bytes go in and come out, and stdout and stderr stay
// apart.
func TestStreamsAreExact(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	blob := make([]byte, 10<<20)
	if _, err := rand.Read(blob); err != nil {
		t.Fatal(err)
	}
	cmd := d.command("try", "--abort", "-q", "sh", "-c", "tee /dev/stderr")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(blob), &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if status := d.await(cmd); status != 0 || !bytes.Equal(out.Bytes(), blob) || !bytes.Equal(errs.Bytes(), blob) {
		t.Errorf("status %d; of %d bytes came out %d and %d, equal: %v, %v", status, len(blob), out.Len(), errs.Len(), bytes.Equal(out.Bytes(), blob), bytes.Equal(errs.Bytes(), blob))
	}
	d.write("blob", string(blob))
	d.sh(`try --abort -q cat <blob | cmp - blob; try --abort -q cat blob >copy; cmp copy blob; try -y -q sh -c 'cat >made' <blob; cmp made blob`)
}

// One line at a time goes back and forth: nothing on the way collects.
func TestStreamsDoNotWait(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--no-pty", "--pty"} {
		d := newDesk(t)
		c := d.start("try", "--abort", "-q", flag, "sh", "-c", `stty -echo 2>/dev/null; echo ready; while read x && [ "$x" != end ]; do echo got $x; done; exit 9`)
		if got := strings.TrimSpace(c.line()); got != "ready" {
			t.Fatalf("said %q", got)
		}
		for i := range 200 {
			c.say(strconv.Itoa(i))
			if got := strings.TrimSpace(c.line()); got != fmt.Sprint("got ", i) {
				t.Fatalf("%s: line %d came back as %q", flag, i, got)
			}
		}
		c.say("end")
		c.ends(9)
	}
}

// A reader who goes away, and a writer who does, are seen as outside.
func TestStreamsEnd(t *testing.T) {
	t.Parallel()
	needs(t, "bash")
	d := newDesk(t)
	for _, script := range []string{
		`%s yes | head -n 1; echo ${PIPESTATUS[@]}`,
		`printf 'no newline' | %s cat; printf '' | %s wc -c; echo ${PIPESTATUS[@]}`,
		`%s sh -c 'exec >&-; echo x 2>/dev/null; echo $? >&2'`,
		`%s cat /dev/stdin </dev/null; echo text | %s cat - /dev/fd/0; %s sh -c 'cat /proc/self/fd/0' <<<here`,
		`%s sh -c 'echo a >/dev/stdout; echo b >/dev/stderr; echo c >/dev/fd/1' 2>&1 | sort`,
		`exec 7<<<seven 8>eight; %s sh -c 'cat <&7; cat /dev/fd/7; echo x >&8; echo y >/dev/fd/8'; cat eight`,
		`%s bash -c 'cat <(echo one) <(echo two); diff <(seq 2) <(seq 3)'; %s cat <(echo outer); echo x | %s tee >(cat >&2) >/dev/null`,
		`seq 5 >f; { %s head -n 1; %s sh -c 'read x; echo read $x'; cat; } <f`,
		`%s sh -c 'ls /proc/self/fd'`,
		`%s sh -c 'cat <<E
here $((2+3))
E'`,
	} {
		run := func(try string) result {
			err := errors.Join(os.RemoveAll(filepath.Join(d.proj, "eight")), os.RemoveAll(filepath.Join(d.proj, "f")))
			if err != nil {
				t.Fatal(err)
			}
			return d.run("bash", "-c", strings.ReplaceAll(script, "%s", try))
		}
		inside, outside := run("try --abort -q"), run("")
		if inside != outside {
			t.Errorf("%s\noutside %+v\ninside  %+v", script, outside, inside)
		}
	}
}

// A file opened for reading is opened anew inside, at its offset; only for 0–2
// the caller's offset follows.
func TestStreamsOffsets(t *testing.T) {
	t.Parallel()
	needs(t, "bash")
	d := newDesk(t)
	r := d.run("bash", "-c", `seq 9 >f; exec 9<f <f; read x <&9; read y
try --abort -q sh -c 'read x <&9; read y; echo inside $x $y'
read x <&9; read y; echo outside $x $y`)
	if r.out != "inside 2 2\noutside 2 3\n" || r.status != 0 {
		t.Errorf("%+v", r)
	}
}
