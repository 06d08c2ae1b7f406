package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// marker is a signal that is sent behind another one: what the other one
// caused must have come before it.
func marker(sig unix.Signal) unix.Signal {
	if sig == unix.SIGUSR1 {
		return unix.SIGUSR2
	}
	return unix.SIGUSR1
}

// once checks that sig, sent by send, reaches tally exactly once. Two markers
// follow, since signals that wait together are delivered in any order.
func once(t *testing.T, says func(string), sig unix.Signal, send, mark func(unix.Signal)) {
	t.Helper()
	send(sig)
	says("got " + unix.SignalName(sig))
	for range 2 {
		mark(marker(sig))
		says("got " + unix.SignalName(marker(sig)))
	}
}

// Each signal reaches CMD once, whether it was sent to `try` alone or to the
// process group (timeout(1), kill -PGID), with a terminal and without (B29).
func TestSignalReachesCommandOnce(t *testing.T) {
	t.Parallel()
	for _, form := range []struct {
		flag  string
		group bool
	}{{"--no-pty", false}, {"--no-pty", true}, {"--pty", false}, {"--pty", true}} {
		t.Run(fmt.Sprintf("%s/group=%v", form.flag, form.group), func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			c := d.start("try", "--abort", "-q", form.flag, "--grace", "100s", "tally")
			says := func(want string) {
				t.Helper()
				if got := strings.TrimSuffix(c.line(), "\r"); got != want {
					t.Fatalf("tally said %q, want %q", got, want)
				}
			}
			says("ready")
			pid := c.cmd.Process.Pid
			to := pid
			if form.group {
				to = -pid
			}
			for range 3 {
				for _, sig := range tallied {
					if sig == unix.SIGINT {
						continue // twice is KILL: below
					}
					once(t, says, sig, func(s unix.Signal) { c.signal(to, s) }, func(s unix.Signal) { c.signal(pid, s) })
				}
			}
			once(t, says, unix.SIGINT, func(s unix.Signal) { c.signal(to, s) }, func(s unix.Signal) { c.signal(pid, s) })
			c.say("end")
			if rest := strings.TrimSpace(c.ends(7)); rest != "" && rest != "end" { // the terminal's echo
				t.Errorf("tally said besides: %q", rest)
			}
		})
	}
}

// What came to the whole process group ends an exploration also if a variant
// ends of it, with success, before `try` itself has heard of it. What a variant
// sends to its init is nobody else's business.
func TestRaceHearsLate(t *testing.T) {
	t.Parallel()
	for _, form := range []struct {
		name, script string
		status       int
		f            string
	}{
		{"the group", "echo up; while :; do sleep 0.05; done", 130, ""},
		{"its own", "kill -INT 1; exit 0", 0, "new\n"},
	} {
		t.Run(form.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			c := d.start("try", "-n", "1", "--race", "sh", "-c", `trap "exit 0" INT; echo new >f; `+form.script)
			if form.status != 0 {
				c.line()
				init := d.child(c.cmd.Process.Pid)
				cmd := d.child(init)
				c.signal(init, unix.SIGINT)
				c.signal(cmd, unix.SIGINT)
			}
			c.ends(form.status)
			if got, _ := os.ReadFile(filepath.Join(d.proj, "f")); string(got) != form.f {
				t.Errorf("f holds %q, want %q; try said %q", got, form.f, c.errs.String())
			}
		})
	}
}

// timeout(1) sends to its child and to its own group: CMD gets what it would
// get outside, which is two signals, unless the first is still pending when the
// second comes.
func TestSignalFromTimeout(t *testing.T) {
	t.Parallel()
	needs(t, "timeout")
	d := newDesk(t)
	r := d.run("timeout", "-s", "TERM", "1", "try", "--abort", "-q", "sh", "-c", `trap 'echo got; exit 5' TERM; while :; do sleep 0.1; done`)
	if r.status != 124 || r.out != "got\n" && r.out != "got\ngot\n" {
		t.Errorf("timeout ended with %d and printed %q, %q", r.status, r.out, r.err)
	}
}

// A command that a signal ends gives 128+n, whoever sent it.
func TestSignalStatus(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, sig := range append(tallied, unix.SIGKILL, unix.SIGSEGV, unix.SIGPIPE, unix.SIGALRM) {
		name := strings.TrimPrefix(unix.SignalName(sig), "SIG")
		if r := d.run("try", "--abort", "-q", "sh", "-c", "ulimit -c 0; kill -"+name+" $$"); r.status != 128+int(sig) {
			t.Errorf("%s inside: status %d, want %d; %s", name, r.status, 128+int(sig), r.err)
		}
	}
	for _, sig := range tallied {
		c := d.start("try", "--abort", "-q", "sh", "-c", "ulimit -c 0; echo ready; exec sleep 1000")
		c.says("ready")
		c.signal(c.cmd.Process.Pid, sig)
		c.ends(128 + int(sig))
	}
}

// Who does not end at TERM or HUP is killed after the grace; a second INT
// within it is KILL; otherwise INT is CMD's own business.
func TestSignalGrace(t *testing.T) {
	t.Parallel()
	stubborn := `trap 'echo got' INT TERM HUP; echo ready; while :; do sleep 0.05; done`
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGHUP} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			c := d.start("try", "--abort", "-q", "--grace", "300ms", "sh", "-c", stubborn)
			c.says("ready")
			sent := time.Now()
			c.signal(c.cmd.Process.Pid, sig)
			c.says("got")
			c.ends(137)
			if took := time.Since(sent); took < 300*time.Millisecond {
				t.Errorf("killed after %v, before the grace was over", took)
			}
		})
	}
	t.Run("second INT", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		c := d.start("try", "--abort", "-q", "--grace", "100s", "sh", "-c", stubborn)
		c.says("ready")
		c.signal(c.cmd.Process.Pid, unix.SIGINT)
		c.says("got")
		c.signal(c.cmd.Process.Pid, unix.SIGINT)
		c.ends(137)
	})
	t.Run("INT later", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		c := d.start("try", "--abort", "-q", "--grace", "0s", "tally")
		c.says("ready")
		for range 3 { // no grace: a second one is as good as the first
			c.signal(c.cmd.Process.Pid, unix.SIGINT)
			c.says("got SIGINT")
		}
		c.say("end")
		c.ends(7)
	})
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		c := d.start("try", "--abort", "-q", "--grace", "100s", "sh", "-c", "trap 'echo got; exit 3' TERM; echo ready; kill -STOP $$; echo woken")
		c.says("ready")
		d.stopped(c.cmd.Process.Pid)
		c.signal(c.cmd.Process.Pid, unix.SIGTERM)
		c.says("got")
		c.ends(3)
	})
}

// stopped waits until the one program of a session is stopped.
func (d *desk) stopped(try int) {
	d.t.Helper()
	deadline := time.After(patience)
	for {
		for _, init := range children(try) {
			for _, pid := range children(init) {
				stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				if strings.Contains(string(stat), ") T ") {
					return
				}
			}
		}
		select {
		case <-deadline:
			d.t.Fatal("nothing was stopped")
		case <-time.After(time.Millisecond):
		}
	}
}

// What is asked of `try` while it ends what CMD left is done, too: INT does
// not wait for the grace, and after TERM nothing is asked.
func TestSignalDuringGrace(t *testing.T) {
	t.Parallel()
	leave := `echo x >made; (trap "" TERM INT; echo left; while :; do sleep 0.05; done) & sleep 0.01`
	t.Run("INT", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		c := d.start("sh", "-c", `exec try --abort -q --grace 100s --status-fd 3 sh -c "$1" 3>&1`, "sh", leave)
		for !strings.Contains(c.line(), `"exited"`) {
		}
		c.signal(c.cmd.Process.Pid, unix.SIGINT)
		c.ends(0)
	})
	t.Run("TERM", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		events := d.fifo("events")
		y := d.sit("sh", "-c", `exec try -b kept --grace 1s --status-fd 3 sh -c "$1" 3>events`, "sh", leave+`; kill -KILL $$`)
		d.reads(events, `"exited"`)
		if err := unix.Kill(y.cmd.Process.Pid, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		y.ends(137)
		if got := d.branches(); got != "kept kept\n" {
			t.Errorf("after TERM, branches are %q", got)
		}
	})
}

// What the caller ignores stays ignored for CMD.
func TestSignalIgnored(t *testing.T) {
	t.Parallel()
	needs(t, "nohup")
	d := newDesk(t)
	for _, set := range []string{"trap '' HUP", "trap '' INT", "trap '' HUP INT", ":"} {
		show := "grep SigIgn /proc/self/status"
		outside := d.sh(set + "; " + show)
		inside := d.sh(set + "; try --abort -q " + show)
		if outside != inside {
			t.Errorf("%s: ignored outside %s inside %s", set, outside, inside)
		}
	}
	c := d.start("nohup", "try", "--abort", "-q", "tally")
	c.says("ready")
	c.signal(-c.cmd.Process.Pid, unix.SIGHUP)
	c.signal(c.cmd.Process.Pid, unix.SIGUSR1)
	c.says("got SIGUSR1")
	c.signal(c.cmd.Process.Pid, unix.SIGUSR1)
	c.says("got SIGUSR1")
	c.say("end")
	c.ends(7)
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"plain":    "exec sleep 1000",
		"handled":  "trap 'exit 5' TERM; while :; do sleep 0.05; done",
		"stubborn": "trap '' TERM; while :; do sleep 0.05; done",
		"stopped":  "kill -STOP $$",
		"daemon":   "setsid sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & exec sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, flag := range []string{"--no-pty", "--pty"} {
				d := newDesk(t)
				if r := d.run("try", "--abort", "-q", flag, "--grace", "200ms", "--timeout", "200ms", "sh", "-c", script); r.status != 124 {
					t.Errorf("%s: status %d, want 124; %s", flag, r.status, r.err)
				}
			}
		})
	}
}

// What CMD leaves, by setsid, by a double fork, or stopped, is named and ended.
func TestDaemonsEnd(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	named := regexp.MustCompile(`(?m)^try: ended (\d+) process(?:es)? left by the command: (.*)$`)
	for name, script := range map[string]string{
		"setsid":      `setsid sh -c 'echo $$ >&3; exec sleep 1000' >/dev/null 2>&1 & read x <&4`,
		"double fork": `(setsid sh -c 'sh -c "echo \$\$ >&3; exec sleep 1000" & wait' &) >/dev/null 2>&1; read x <&4`,
		"stopped":     `sh -c 'echo $$ >&3; kill -STOP $$; sleep 1000' & read x <&4`,
		"stubborn":    `sh -c 'trap "" TERM HUP INT; echo $$ >&3; while :; do sleep 0.05; done' & read x <&4`,
		"handles":     `sh -c 'trap "echo over >handled; exit" TERM; echo $$ >&3; while :; do sleep 0.05; done' & read x <&4`,
	} {
		r := d.run("sh", "-c", `mkfifo "$1"; exec 3<>"$1" 4<>"$1"; exec try -y --grace 300ms -- sh -c "$2"`, "sh", filepath.Join(d.dir, name), script)
		m := named.FindStringSubmatch(r.err)
		if r.status != 0 || m == nil || !regexp.MustCompile(`(sh|sleep) \(\d+\)`).MatchString(m[2]) {
			t.Errorf("%s: status %d, and said %q", name, r.status, r.err)
			continue
		}
		for _, pid := range regexp.MustCompile(`\((\d+)\)`).FindAllStringSubmatch(m[2], -1) {
			if n, _ := strconv.Atoi(pid[1]); unix.Kill(n, 0) != unix.ESRCH {
				comm, _ := os.ReadFile("/proc/" + pid[1] + "/comm")
				t.Errorf("%s: process %d (%s) is left", name, n, comm)
			}
		}
	}
	if d.has("handled") != "over\n" {
		t.Error("TERM did not reach a process that was left")
	}
}

// --wait waits for what CMD left, as long as nobody asks for an end.
func TestWait(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	c := d.start("try", "-y", "-q", "--wait", "sh", "-c", `exec 3<&0; (read x <&3; echo $x >late; echo got it) &`)
	c.say("words")
	c.says("got it")
	c.ends(0)
	if got := d.has("late"); got != "words\n" {
		t.Errorf("late is %q", got)
	}
	c = d.start("try", "-y", "-q", "--wait", "sh", "-c", `(trap "echo term >asked; exit" TERM; echo left; while :; do sleep 0.05; done) &`)
	c.says("left")
	c.signal(c.cmd.Process.Pid, unix.SIGTERM)
	c.ends(0)
	if got := d.has("asked"); got != "term\n" {
		t.Errorf("asked is %q", got)
	}
}

// SIGKILL of `try` at any moment of its first milliseconds leaves no process,
// no mount, and nothing that the next `try` cannot settle. TRY_KILLS says how
// often.
func TestKilledWhileStarting(t *testing.T) {
	t.Parallel()
	rounds := 50
	if n, err := strconv.Atoi(os.Getenv("TRY_KILLS")); err == nil {
		rounds = n
	}
	d, fresh := newDesk(t), newDesk(t)
	script := strings.Builder{}
	script.WriteString(d.runtime() + "try --abort -q true || exit 2\n") // what a first run leaves on purpose is there
	for i := range rounds {
		flag := []string{"--no-pty", "--pty"}[rand.N(2)]
		span := []time.Duration{5, 50}[i%2] * time.Millisecond // a busy machine is slower
		fmt.Fprintf(&script, "outlive %v try -y -q %s sh -c 'echo x >made; echo x >/tmp/made; exec sleep 1000' || exit 3\n", rand.N(span), flag)
	}
	// Once with everything up, or the moments could all be too early.
	script.WriteString("outlive 300ms try -y -q sh -c 'setsid sleep 1000 & exec sleep 1000' || exit 4\n")
	script.WriteString(`! grep -F "${XDG_RUNTIME_DIR%/*}/" /proc/self/mountinfo || exit 5
[ ! -e made ] && [ ! -e /tmp/made ] || exit 6
for b in $(try branches | awk 'NR>1 {print $1}'); do try abort -q $b || exit 7; done
[ $(try branches --json | wc -c) -lt 5 ] || exit 8
try -y -q sh -c 'echo x >made' && cat made`)
	cmd := d.command("sh", "-c", script.String())
	r := d.finish(cmd)
	if r.status != 0 || r.out != "x\n" {
		t.Fatalf("status %d, %q, %q", r.status, r.out, r.err)
	}
	left := d.sh(`find "$HOME/.local/state/try" -mindepth 1 -printf '%y %P\n' | sort`)
	fresh.sh(fresh.runtime() + "try --abort -q true; try -y -q sh -c 'echo x >made'")
	if want := fresh.sh(`find "$HOME/.local/state/try" -mindepth 1 -printf '%y %P\n' | sort`); shape(left) != shape(want) {
		t.Errorf("the store holds\n%s\nand after runs that were not killed\n%s", left, want)
	}
}

// runtime gives a script a runtime directory of the desk's own, so that what is
// mounted outside for its sessions can be told from other tests'.
func (d *desk) runtime() string {
	return fmt.Sprintf("export XDG_RUNTIME_DIR='%s/run'; mkdir -m 700 \"$XDG_RUNTIME_DIR\"\n", d.dir)
}

// shape is a listing with the ids, which are random, made equal.
func shape(listing string) string {
	return regexp.MustCompile(`[0-9a-f]{8,}`).ReplaceAllString(listing, "ID")
}
