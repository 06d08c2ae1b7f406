package supervisor_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// newConfined makes a rig of an ordinary user to whom user namespaces are
// forbidden, and whose policy names the fuse engine.
func newConfined(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	if r.uid == 0 {
		r.become(account)
	}
	r.mountsOutside()
	r.policy("[session]\nscope = \"dir\"\nengine = \"fuse\"\n")
	r.env = append(r.env, withoutEngine()+",userns")
	return r
}

// inPrivateConfined is inPrivate where fusermount3 is still set-uid: a mount
// namespace of the first user namespace.
func (r *rig) inPrivateConfined(mounts, script string) *outcome {
	r.t.Helper()
	if os.Getuid() != 0 {
		r.t.Skip("only root can make a mount namespace in which fusermount3 is set-uid")
	}
	return r.inPrivate(mounts, script)
}

// lesser is what is told of a confined session.
const lesser = "user namespaces are forbidden here: the command runs at "

// TestConfined: what is written by relative paths, below $HOME and below $TMPDIR
// by programs as they are is committed, or not.
func TestConfined(t *testing.T) {
	const work = `test "$PWD" = "$(pwd -P)"; test "x$PWD" != "$BASE"; test "x$HOME" != "$OLD"; test "$TMPDIR" != /tmp
		test "$ELSE" = "$HOME/else" -a "x$LIST" = "$OLD/a:$OLD/b" -a "$TOP" = / -a "x$UNDER" = "$OLD.d"
		git init -q .; echo one > one; git add one; git -c user.name=n -c user.email=e commit -qm first; git status --porcelain one | grep . && exit 9
		printf 'all: made\nmade: one\n\tcp one made\n' > Makefile; make -s
		mkdir -p node_modules/a/b "$HOME/.npm/_cacache"; echo m > node_modules/a/b/index.js; ln -s ../a node_modules/a/self; echo c > "$HOME/.npm/_cacache/c"
		f=$(mktemp); echo t > "$f"; mv "$f" "$TMPDIR/mine"; mv node_modules moved; chmod 600 made; touch -d 2001-01-01 one made; rm old; echo new >> both; test "$(cat both)" = "base
new"`
	for _, how := range []string{"-y", "--abort"} {
		t.Run(how, func(t *testing.T) {
			r := newConfined(t)
			r.outside("echo base > both; echo base > old; mkdir ../home/else")
			before := r.project()
			r.env = append(r.env, "WORK="+work)
			o := r.inPrivateConfined("", `unset TMPDIR; export BASE="x$PWD" OLD="x$HOME" ELSE="$HOME/else" LIST="$HOME/a:x$HOME/b" TOP=/ UNDER="$HOME.d"
				"$TRY" --scope user `+how+` --json -- sh -euc "$WORK"
				if test `+how+` = -y; then test "$(cat /tmp/mine)" = t; else test -z "$(ls -A /tmp)"; fi`).want(0)
			o.says(lesser)
			if n := strings.Count(o.stderr, lesser); n != 1 || !strings.Contains(o.stdout, lesser) {
				t.Errorf("it is told %d times, and in the document:\n%s", n, o.stdout)
			}
			if how == "--abort" {
				r.same(before)
				r.clean()
				return
			}
			r.outside(`test "$(git log --format=%s)" = first; git fsck --strict; test "$(cat made moved/a/b/index.js moved/a/self/b/index.js ../home/.npm/_cacache/c)" = "one
m
m
c"; test ! -e old; test "$(cat both)" = "base
new"; test "$(stat -c '%a %y' made | cut -c1-14)" = "600 2001-01-01"; make -q; ! grep -r "` + r.dir + `/run" .`)
		})
	}
}

// TestConfinedOutside: nothing outside is acted on, by whatever means, but for
// what README says.
func TestConfinedOutside(t *testing.T) {
	attack, err := attacker()
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"", "--pty", "unshare -U"} {
		t.Run(how, func(t *testing.T) {
			r := newConfined(t)
			r.outside("mkdir -p ../out/d; echo base > ../out/f; echo g > ../out/g; echo x > old")
			r.sh("--keep", "-b", "kept", "echo kept > kept").want(0)
			out, served := filepath.Join(r.dir, "out"), filepath.Join(r.dir, "served")
			before, project := r.look(out), r.project()
			flags, prefix := how, ""
			if strings.HasPrefix(how, "unshare") {
				flags, prefix = "", how
			}
			o := r.finish(r.command(attack, "serve", filepath.Join(served, "socket"), "dgram:"+filepath.Join(served, "packets"), "@"+served, "--", "/bin/sh", "-uc", fmt.Sprintf(`
				trap 'echo was hit' USR1
				sleep 1000 & pid=$!
				%[1]s --abort -q %[2]s -- sh -c 'echo > mine; %[3]s %[4]s outside "$@"; exec %[4]s group' - %[5]s %[6]s $pid; echo $?
				kill -0 $pid && kill $pid && echo survived`, binary, flags, prefix, attack, out, served))).want(0)
			if strings.Contains(o.stdout, "DONE") || strings.Contains(o.stdout, "was hit") || !strings.HasSuffix(o.stdout, "survived\r\n0\nsurvived\n") && !strings.HasSuffix(o.stdout, "survived\n0\nsurvived\n") {
				t.Errorf("it says:\n%s\n%s", o.stdout, o.stderr)
			}
			for _, want := range []string{"guard: kill: operation not permitted", "supervisor: mem: permission denied", "supervisor: prlimit: operation not permitted",
				"socket: permission denied", "packet pair (32 bits): permission denied", "connect DIR/socket: transport endpoint is already connected",
				"ring: function not implemented", "out of the branch: invalid cross-device link", "\nsetxattr: operation not supported", "\nsetxattr (32 bits): operation not supported", "create: permission denied", "mount: operation not permitted"} {
				if prefix != "" && strings.HasPrefix(want, "supervisor") {
					continue // its parents are others there
				}
				if !strings.Contains(o.stdout, want) {
					t.Errorf("it does not say %q:\n%s", want, o.stdout)
				}
			}
			if diff := before.differs(r.look(out)); diff != "" {
				t.Errorf("outside has changed:%s", diff)
			}
			r.same(project)
			r.try("commit", "kept").want(0)
			r.wantFile("kept", "kept\n")
		})
	}
}

// TestConfinedStore: no file of the store can be written, none be made there, and
// by HOME it is not there.
func TestConfinedStore(t *testing.T) {
	r := newConfined(t)
	r.sh("--keep", "-b", "kept", "echo kept > kept").want(0)
	o := r.inPrivateConfined("", fmt.Sprintf(`"$TRY" --scope user -y -q -- sh -uc '
		test -e "$HOME/.local/state/try" && echo seen; mkdir "$HOME/.local/state/try" 2>/dev/null && echo made
		for f in $(find %[1]s "$XDG_RUNTIME_DIR" -path "*/m[0-9]*" -prune -o -type f -print); do (: >> $f) 2>/dev/null && echo opened $f; done
		for d in $(find %[1]s "$XDG_RUNTIME_DIR" -path "*/m[0-9]*" -prune -o -type d -print); do (: > $d/x) 2>/dev/null && echo made $d/x; mv $d $d.x 2>/dev/null && echo moved $d; done; echo over'`, r.store())).want(0)
	if o.stdout != "over\n" {
		t.Errorf("it says\n%s", o.stdout)
	}
	r.try("abort", "kept").want(0)
}

// TestConfinedLeft: what CMD leaves is ended and named, wherever it went; so is
// what a check leaves.
func TestConfinedLeft(t *testing.T) {
	r := newConfined(t)
	const leave = `mkfifo up%[1]d; setsid sh -c 'trap "" TERM HUP; (setsid sleep 100%[1]d; :) & (setsid sleep 200%[1]d & setsid sh -c "echo up > up%[1]d; while :; do read x < /dev/zero; done" &) & exec sleep 300%[1]d' & read x < up%[1]d; rm up%[1]d`
	p, _ := r.underReaper(nil, binary, "-y", "--json", "--grace", "0s", "--check", fmt.Sprintf(leave, 2), "--check", "test -e new", "--", "/bin/sh", "-euc", fmt.Sprintf(leave, 1)+"; echo x > new")
	d := p.wait().want(0).document()
	names := map[string]int{}
	for _, k := range d.Killed {
		names[k.Command]++
		if k.PID < 2 {
			t.Errorf("process %d is named", k.PID)
		}
	}
	delete(names, "setsid") // one that is about to become what it starts
	if len(d.Killed) < 8 || names["sleep"] < 4 || names["sh"] < 2 || len(names) != 2 {
		t.Errorf("named are %v", d.Killed)
	}
	r.wantFile("new", "x\n")
	r.clean()
}

// TestConfinedWaits: --wait waits for what CMD left, and a grace lets it end.
func TestConfinedWaits(t *testing.T) {
	r := newConfined(t)
	r.sh("-y", "-q", "--wait", "mkfifo go; setsid sh -c 'read x < go; echo late > late' & (setsid sh -c 'echo > go' &) & exit 0").want(0)
	r.wantFile("late", "late\n")
	r.sh("-y", "-q", "--grace", "1h", "mkfifo up never; setsid sh -c 'trap \"echo term > term; exit\" TERM; exec 9<>never; rm never; echo > up; read x <&9' & read x < up; rm up").want(0)
	r.wantFile("term", "term\n")
}

// TestConfinedForkBomb: what multiplies does not outlive the session, also where
// the supervisor is gone. (The bomb ends by itself, and refuses to be root's.)
func TestConfinedForkBomb(t *testing.T) {
	attack, err := attacker()
	if err != nil {
		t.Fatal(err)
	}
	for _, grace := range []string{"0s", "1ms"} {
		t.Run(grace, func(t *testing.T) {
			r := newConfined(t)
			p, _ := r.underReaper(nil, binary, "-y", "-q", "--grace", grace, "--", "/bin/sh", "-euc", attack+" bomb; echo x > new")
			p.wait().want(0)
			r.wantFile("new", "x\n")
			r.clean()
		})
	}
	t.Run("killed", func(t *testing.T) {
		r := newConfined(t)
		p, _ := r.underReaper(nil, binary, "-y", "-b", "mine", "--", "/bin/sh", "-euc", attack+" bomb; echo ready >&3; exec sleep 1000")
		p.untilReady()
		r.must(unix.Kill(p.pid, unix.SIGKILL))
		p.wait().want(137)
		r.try("abort", "mine").want(0)
		r.clean()
	})
}

const stubbornConfined = `trap "" TERM HUP INT
	setsid sh -c 'trap "" TERM HUP INT; while :; do read x < /dev/zero; done' &
	(trap "" HUP; exec sleep 1000) &
	echo x > new; rm old; mkdir dir; echo ready >&3; while :; do wait; done`

// TestConfinedSupervisorKilled: SIGKILL of try leaves no process, a branch that
// can be settled, and a mount that the next run takes away.
func TestConfinedSupervisorKilled(t *testing.T) {
	const survivor = `echo x > new; rm old; mkdir dir; mkfifo there
		setsid sh -c 'trap "" TERM; echo > there; while kill -0 $0 2> /dev/null; do :; done; echo ready >&3; exec sleep 1000' $$ &
		read x < there; rm there`
	for _, c := range []struct {
		name   string
		flags  []string
		script string
	}{
		{"plain", nil, "echo x > new; rm old; mkdir dir; echo ready >&3; exec sleep 1000"},
		{"stubborn", nil, stubbornConfined},
		{"terminal", []string{"--pty"}, stubbornConfined},
		{"in a check", []string{"--check", "echo ready >&3; sleep 1000"}, "echo x > new; rm old; mkdir dir"},
		{"within a grace", []string{"--grace", "1h"}, survivor},
		{"waiting", []string{"--wait"}, survivor},
	} {
		for _, word := range []string{"abort", "commit"} {
			t.Run(c.name+"/"+word, func(t *testing.T) {
				r := newConfined(t)
				r.outside("echo old > old")
				before := r.project()
				args := append([]string{binary, "-y", "-b", "mine"}, c.flags...)
				p, _ := r.underReaper(nil, append(args, "--", "/bin/sh", "-c", c.script)...)
				p.untilReady()
				if state := r.branches()["mine"]; state != "running" || len(r.hostMounts()) != 1 {
					t.Errorf("while it runs the branch is %q, and mounted are %q", state, r.hostMounts())
				}
				r.must(unix.Kill(p.pid, unix.SIGKILL))
				p.wait().want(137) // all processes are gone
				r.same(before)
				if state := r.branches()["mine"]; state != "interrupted" {
					t.Errorf("the branch is %q", state)
				}
				if left := r.hostMounts(); len(left) > 0 {
					t.Errorf("after the next run is mounted %q", left)
				}
				r.try(word, "mine").want(0)
				if word == "abort" {
					r.same(before)
				} else {
					r.wantFile("new", "x\n")
				}
				r.clean()
			})
		}
	}
}

// TestConfinedInitKilled: nothing outlives init, or its guard; the branch is kept.
func TestConfinedInitKilled(t *testing.T) {
	for _, who := range []string{"init", "guard"} {
		t.Run(who, func(t *testing.T) {
			r := newConfined(t)
			r.outside("echo old > old")
			before := r.project()
			in, out, err := os.Pipe()
			r.must(err)
			defer in.Close()
			p, _ := r.underReaper(out, binary, "-y", "-b", "mine", "--", "/bin/sh", "-c", "echo $PPID; "+stubbornConfined)
			r.must(out.Close())
			p.untilReady()
			line, err := bufio.NewReader(in).ReadString('\n')
			r.must(err)
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			r.must(err)
			if who == "guard" {
				text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				r.must(err)
				pid, err = strconv.Atoi(strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))[1])
				r.must(err)
			}
			r.must(unix.Kill(pid, unix.SIGKILL))
			p.wait().want(125).says("it ended without a word")
			r.same(before)
			if state := r.branches()["mine"]; state == "running" || state == "" {
				t.Errorf("the branch is %q", state)
			}
			r.try("commit", "mine").want(0)
			r.wantFile("new", "x\n")
		})
	}
}

// TestConfinedForReal: where the kernel itself forbids user namespaces.
func TestConfinedForReal(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a user namespace that maps all ids")
	}
	r := newConfined(t)
	machine, err := os.ReadFile("/proc/sys/user/max_user_namespaces")
	r.must(err)
	r.uid = 0 // of the helper, which becomes the user
	run := func(argv ...string) *outcome {
		t.Helper()
		cmd := r.helper("forbidden", argv...)
		cmd.Env = append(cmd.Env, withoutEngine(), fmt.Sprintf("%s=%d", asVariable, account))
		return r.finish(cmd)
	}
	run("unshare", "-U", "true").want(1).says("No space left on device")
	if o := run(binary, "doctor").want(1); !strings.Contains(o.stdout, "no namespaces      --engine fuse runs commands at a private mount point") ||
		!strings.Contains(o.stdout, "whose modes, groups and times it can change") || !strings.Contains(o.stdout, "by --engine fuse only") {
		t.Errorf("doctor says:\n%s", o.stdout)
	}
	run(binary, "--engine", "auto", "-y", "--", "touch", "ran").want(125).says("make namespaces", "--engine fuse", "less well guarded")
	run(binary, "-y", "--", "/bin/sh", "-euc", "test ! -e ran; echo x > new; echo > "+r.at("other")+" || :").want(0).says(lesser, "Permission denied")
	r.wantFile("new", "x\n")
	if _, err := os.Stat(r.at("other")); err == nil {
		t.Error("it wrote to the base")
	}
	run(binary, "undo", "-q").want(0)
	run("/bin/sh", "-c", "grep "+r.dir+" /proc/self/mounts").want(1)
	if now, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err != nil || string(now) != string(machine) {
		t.Errorf("the machine's setting was %q, is %q, %v", machine, now, err)
	}
}

// TestConfinedSettles: checks, a branch that is kept, conflicts, other statuses.
func TestConfinedSettles(t *testing.T) {
	r := newConfined(t)
	r.outside("echo base > f")
	r.sh("-y", "--check", "grep -q new f", "echo new > f").want(0)
	r.wantFile("f", "new\n")
	r.try("undo", "-q").want(0)
	r.wantFile("f", "base\n")
	r.try("redo", "-q").want(0)
	r.sh("-y", "-b", "bad", "--check", "grep -q other f", "echo newer > f").want(125).says("check")
	r.wantFile("f", "new\n")
	r.try("abort", "bad").want(0)
	r.sh("--keep", "-b", "mine", "echo kept > f; mkdir d; mv f d").want(0)
	r.wantFile("f", "new\n")
	r.try("commit", "mine").want(0)
	r.wantFile("d/f", "kept\n")
	r.sh("-y", "-b", "late", "echo inside > d/f; echo outside > "+r.at("d/f")+" || echo $?; exit 3").want(3)
	r.wantFile("d/f", "inside\n")
	r.sh("--exit-code", "echo x > x; exit 7").want(7)
	r.wantFile("x", fmt.Sprintf("open %s: no such file or directory", r.at("x")))
	r.sh("-y", "--timeout", "100ms", "exec sleep 1000").want(124)
	r.sh("-y", "kill -9 $$").want(137)
	r.try("-y", "--", "nothing-like-this").want(127)
	p, in := r.underReaper(nil, binary, "-y", "-b", "drift", "--", "/bin/sh", "-euc", "echo ready >&3; read line; echo mine > d/f")
	p.untilReady()
	r.outside("echo theirs > d/f")
	_, err := in.(interface{ Write([]byte) (int, error) }).Write([]byte("go\n"))
	r.must(err)
	p.wait().want(125).says("d/f")
	r.wantFile("d/f", "theirs\n")
	r.try("abort", "drift").want(0)
}

// TestConfinedBelow: a file system that is mounted below a root has a mount point
// of its own, of which is told, and cannot be written to where it was; what was
// read is known.
func TestConfinedBelow(t *testing.T) {
	r := newConfined(t)
	r.outside("mkdir own; echo g > g")
	o := r.inPrivateConfined(r.at("own")+" mode=1777,size=1m", `
		echo old > own/old; echo stays > own/stays; mkfifo a b; exec 3<>a 4<>b; export OWN="$PWD/own" SAME="x$PWD/own"
		"$TRY" -y -q --serializable -- sh -euc 'cat g; test "x$OWN" != "$SAME"; rm "$OWN/old"; echo x > "$OWN/f"; mkdir "$OWN/d"; echo y > h
			test -z "$(ls own)"; ! (echo x > own/g) 2>/dev/null; ! mv own other 2>/dev/null; ! rmdir own 2>/dev/null'
		test "$(ls own; cat own/f h)" = "d
f
stays
x
y"
		(cd own && "$TRY" -y -q sh -euc 'test "$PWD" = "$(pwd -P)"; rmdir d; echo z > f'); test "$(ls own; cat own/f)" = "f
stays
z"
		"$TRY" -y -b mine --serializable -- sh -euc 'cat g; echo >&3; read x <&4; echo z > z' & read x <&3; echo changed > g; echo >&4; wait $! || echo status $?
		test ! -e z; "$TRY" abort mine; ! grep "$XDG_RUNTIME_DIR" /proc/self/mounts`).want(0).says("the command has read it", r.at("own")+", a mount below a root, is empty there, and shows at "+r.dir+"/run/")
	if o.stdout != "g\ng\nstatus 125\n" {
		t.Errorf("it says %q", o.stdout)
	}
}

// TestConfinedTwo: two at once do not disturb each other.
func TestConfinedTwo(t *testing.T) {
	r := newConfined(t)
	p, in := r.underReaper(nil, binary, "-y", "--", "/bin/sh", "-euc", "echo first > first; echo ready >&3; read line; ls; test -e first")
	p.untilReady()
	o := r.sh("-y", `for d in $(find "$XDG_RUNTIME_DIR" -name 'm[0-9]*'); do (echo x > $d/crossed) 2>/dev/null || echo refused; done; test ! -e first; rm crossed; echo second > second`).want(0)
	if o.stdout != "refused\n" {
		t.Errorf("it says %q", o.stdout)
	}
	r.wantFile("second", "second\n")
	_, err := in.(interface{ Write([]byte) (int, error) }).Write([]byte("go\n"))
	r.must(err)
	p.wait().want(0)
	r.wantFile("first", "first\n")
	r.clean()
}

// TestConfinedRace: the first success is committed, the others leave nothing,
// and none can do anything to another.
func TestConfinedRace(t *testing.T) {
	r := newConfined(t)
	o := r.try("--race", "-n", "3", "--json", "--", "/bin/sh", "-uc", `
		(: > /dev/tty) 2>/dev/null && exit 9; kill -9 -1 2>/dev/null
		echo {i} > f; setsid sleep 1000 & test {i} = 2 || exit 1; echo two > won`)
	d := o.want(0).race()
	if d.won() != 2 || d.settled() != "aborted committed aborted" {
		t.Errorf("won by %d, settled %q\n%s", d.won(), d.settled(), o.stdout)
	}
	r.wantFile("f", "2\n")
	if n := strings.Count(o.stdout, lesser); n < 1 {
		t.Errorf("it is not told:\n%s", o.stdout)
	}
	p, _ := r.underReaper(nil, binary, "--race", "-q", "-c", stubbornConfined, "-c", "echo quick > g")
	p.wait().want(0)
	r.wantFile("g", "quick\n")
	r.wantEmpty()
}

// TestConfinedRefused: what cannot be held is refused with a reason, before
// anything runs.
func TestConfinedRefused(t *testing.T) {
	r := newConfined(t)
	r.outside("mkdir ../out sub")
	const fix = "hint: sudo sysctl "
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"--net", "none"}, []string{"make namespaces", "--net none cannot be held", fix}},
		{[]string{"--deny", "../out"}, []string{"--deny cannot be held", fix}},
		{[]string{"--socket", "tmux"}, []string{"--socket cannot be held", fix}},
		{[]string{"--allow-write", "sub"}, []string{"--allow-write", "at two places"}},
		{[]string{"--engine", "auto"}, []string{"make namespaces", fix, "--engine fuse", "less well guarded"}},
		{[]string{"--engine", "overlay"}, []string{"make namespaces", fix, "--engine fuse"}},
	} {
		if onFuse() && slices.Contains(c.args, "overlay") {
			continue // there is none
		}
		r.try(append(c.args, "-y", "--", "touch", "ran")...).want(125).says(c.says...)
	}
	cmd := r.program("-y", "--", "touch", "ran")
	cmd.Env = append(cmd.Env, "PATH=/nowhere")
	r.finish(cmd).want(125).says("fusermount3 is not installed", fix)
	r.policy("[session]\nscope = \"dir\"\nengine = \"fuse\"\n[limits]\nprocesses = 100\n")
	r.try("-y", "--", "touch", "ran").want(125).says("[limits] processes (", ".try.toml:5) cannot be held")
	r.policy("[session]\nscope = \"dir\"\nengine = \"fuse\"\n")
	r.outside("test ! -e ran")
	// What is let through on purpose is, outside of the roots.
	r.sh("-y", "--allow-write", "../out", "echo through > "+r.dir+"/out/f; echo x > f; ! (echo x > "+r.dir+"/g) 2>/dev/null").want(0).says("let through")
	r.outside(`test "$(cat ../out/f f)" = "through
x"`)
	r.sh("-y", "-q", binary+" -y touch nested || test $? = 125; env -u TRY_BRANCH "+binary+" -y touch nested || test $? = 125").want(0).says("already inside a branch")
	r.outside("test ! -e nested")
	r.clean()
}

// TestConfinedDescriptors: what the caller opened for reading is the branch's, of
// what he opened for writing the name can be opened too.
func TestConfinedDescriptors(t *testing.T) {
	r := newConfined(t)
	r.outside("printf 'one\ntwo\nthree\n' > list; mkdir ../out")
	r.outside(`{ read a; ` + binary + ` -y -q -- sh -euc 'read b; echo $b > got; (echo x > /dev/stdin) 2>/dev/null || exit 9; cat list > seen'; read c; echo "$a $c" > own; } < list
		` + binary + ` -y -q -- sh -euc 'echo one; echo two >> /dev/stdout; echo three >> /proc/self/fd/1' >> ../out/log
		` + binary + ` -y -q -- sh -euc 'echo x > /proc/self/fd/7/by; (echo x > /proc/self/fd/8/by) 2>/dev/null && exit 9; true' 7< . 8< ../out`)
	r.outside(`test "$(cat got own seen)" = "two
one three
x"; test "$(cat ../out/log)" = "one
two
three"; test "$(cat by)" = x; test "$(ls -A ../out)" = log`)
}

// TestConfinedHeldOutside: whoever outside keeps the mount does not keep it from
// being whole, nor the session from ending.
func TestConfinedHeldOutside(t *testing.T) {
	r := newConfined(t)
	p, in := r.underReaper(nil, binary, "-y", "--", "/bin/sh", "-euc", "echo old > f; echo ready >&3; read line; echo new > f; touch -d 2001-01-01 f; touch -d 2002-02-02 .")
	p.untilReady()
	held := r.begin(r.command("sleep", "1000"))
	_ = held
	mounts := r.hostMounts()
	if len(mounts) != 1 {
		t.Fatalf("mounted are %q", mounts)
	}
	cmd := r.command("sh", "-c", "exec 5< f; echo up; exec sleep 1000")
	cmd.Dir = ""
	cmd.Args[2] = "cd " + mounts[0] + " && " + cmd.Args[2]
	out, err := cmd.StdoutPipe()
	r.must(err)
	holder := r.begin(cmd)
	_, err = bufio.NewReader(out).ReadString('\n')
	r.must(err)
	_, err = in.(interface{ Write([]byte) (int, error) }).Write([]byte("go\n"))
	r.must(err)
	p.wait().want(0)
	r.wantFile("f", "new\n")
	r.outside(`test "$(stat -c %y f . | cut -c1-10 | tr '\n' ' ')" = "2001-01-01 2002-02-02 "`)
	r.must(holder.cmd.Process.Kill())
	r.must(held.cmd.Process.Kill())
}

// TestConfinedModes: a command that closes the way to its own mount points, which
// are the user's, does not keep the session from being taken away.
func TestConfinedModes(t *testing.T) {
	r := newConfined(t)
	r.sh("-y", `echo x > f; cd /; for d in $(find "$XDG_RUNTIME_DIR" -mindepth 1 -name 'm[0-9]*' -prune -o -type d -print | sort -r); do chmod 0 $d; done`).want(0)
	r.wantFile("f", "x\n")
	r.clean()
}
