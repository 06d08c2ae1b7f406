package supervisor_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// reaped is the program run by helper "reap": when it has ended, every process
// that it had started is gone.
type reaped struct {
	*running
	pid   int // of the command
	ready *os.File
}

// underReaper starts a command by helper "reap", with its stdout to out if that
// is not nil, a pipe as its stdin, and descriptor 3 for untilReady.
func (r *rig) underReaper(out *os.File, argv ...string) (*reaped, io.Closer) {
	r.t.Helper()
	readyIn, readyOut, err := os.Pipe()
	r.must(err)
	pidIn, pidOut, err := os.Pipe()
	r.must(err)
	cmd := r.helper("reap", argv...)
	stdin, err := cmd.StdinPipe()
	r.must(err)
	if out != nil {
		cmd.Stdout = out
	}
	cmd.ExtraFiles = []*os.File{readyOut, pidOut}
	p := &reaped{running: r.begin(cmd), ready: readyIn}
	r.must(errors.Join(readyOut.Close(), pidOut.Close()))
	r.t.Cleanup(func() { readyIn.Close() })
	line, err := bufio.NewReader(pidIn).ReadString('\n')
	r.must(err)
	p.pid, err = strconv.Atoi(strings.TrimSpace(line))
	r.must(errors.Join(err, pidIn.Close()))
	return p, stdin
}

func (p *reaped) untilReady() {
	p.r.t.Helper()
	if _, err := io.ReadFull(p.ready, make([]byte, 6)); err != nil {
		o := p.wait()
		p.r.t.Fatalf("it did not come to be ready: %v; %d %s", err, o.code, o.stderr)
	}
}

// TestSupervisorKilled: SIGKILL of try leaves no process, no mount, and a branch
// that can be settled.
func TestSupervisorKilled(t *testing.T) {
	const stubborn = `trap "" TERM HUP INT
		setsid sh -c 'trap "" TERM HUP INT; while :; do read x < /dev/zero; done' &
		(trap "" HUP; exec sleep 1000) &
		echo x > new; rm old; mkdir dir; echo ready >&3; while :; do wait; done`
	// It is ready when the shell that started it has ended.
	const survivor = `echo x > new; rm old; mkdir dir
		setsid sh -c 'trap "" TERM; echo > /tmp/there; while kill -0 $0 2> /dev/null; do :; done; echo ready >&3; exec sleep 1000' $$ &
		until test -e /tmp/there; do :; done`
	for _, c := range []struct {
		name   string
		flags  []string
		script string
	}{
		{"plain", nil, "echo x > new; rm old; mkdir dir; echo ready >&3; exec sleep 1000"},
		{"stubborn", nil, stubborn},
		{"terminal", []string{"--pty"}, stubborn},
		{"in a check", []string{"--check", "echo ready >&3; sleep 1000"}, "echo x > new; rm old; mkdir dir"},
		{"within a grace", []string{"--grace", "1h"}, survivor},
		{"waiting", []string{"--wait"}, survivor},
	} {
		for _, commit := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/commit %v", c.name, commit), func(t *testing.T) {
				r := newRig(t)
				r.write("old", "old")
				before := r.project()
				args := append([]string{binary, "-y", "-b", "mine"}, c.flags...)
				p, _ := r.underReaper(nil, append(args, "--", "/bin/sh", "-c", c.script)...)
				p.untilReady()
				if state := r.branches()["mine"]; state != "running" {
					t.Errorf("while it runs the branch is %q", state)
				}
				r.try("commit", "mine").want(125).says("in use")
				r.try("abort", "mine").want(125)
				r.must(unix.Kill(p.pid, unix.SIGKILL))
				p.wait().want(137) // all processes are gone
				r.same(before)
				mounts, err := os.ReadFile("/proc/self/mountinfo")
				r.must(err)
				if strings.Contains(string(mounts), r.dir) {
					t.Errorf("a mount is left:\n%s", mounts)
				}
				if state := r.branches()["mine"]; state != "interrupted" {
					t.Errorf("the branch is %q", state)
				}
				if n := len(r.try("changes", "--json", "mine").want(0).document().Roots[0].Changes); n != 3 {
					t.Errorf("it has %d changes, want 3", n)
				}
				if !commit {
					r.try("abort", "mine").want(0)
					r.same(before)
				} else {
					r.try("commit", "mine").want(0)
					r.wantFile("new", "x\n")
				}
				r.clean()
			})
		}
	}
}

// TestKilledAnywhere: SIGKILL of try at random moments of a whole run: no
// process is left, and the tree is the old or the new one.
func TestKilledAnywhere(t *testing.T) {
	r := newRig(t)
	// Each run makes the one tree into the other.
	const script = `if test -e a/x; then rm -r a; mkdir b; echo b > b/x; else rm -r b; mkdir a; echo a > a/x; fi`
	args := []string{binary, "-y", "--", "/bin/sh", "-euc", script}
	r.write("a/x", "a\n")
	start := time.Now()
	p, _ := r.underReaper(nil, args...)
	p.wait().want(0)
	whole := time.Since(start)
	state := func() string {
		a, b := r.read("a/x") == "a\n", r.read("b/x") == "b\n"
		_, errA := os.Lstat(r.at("a"))
		_, errB := os.Lstat(r.at("b"))
		if a == b || a != (errA == nil) || b != (errB == nil) {
			t.Fatalf("neither the old tree nor the new one: a %v %v, b %v %v", a, errA, b, errB)
		}
		return map[bool]string{true: "a", false: "b"}[a]
	}
	ends := map[string]int{}
	for range 30 {
		p, _ := r.underReaper(nil, args...)
		timer := time.AfterFunc(rand.N(whole), func() { _ = unix.Kill(p.pid, unix.SIGKILL) })
		p.wait()
		timer.Stop()
		// Whatever runs next finishes what was begun.
		list := r.branches()
		before := state()
		ends[before]++
		for name, is := range list {
			if is != "interrupted" && is != "kept" {
				t.Fatalf("branch %s is %s", name, is)
			}
			r.try("abort", name).want(0)
		}
		if state() != before {
			t.Fatal("abort changed the tree")
		}
	}
	t.Log(ends)
	r.try("-q", "true").want(0)
	r.clean()
}

// TestCommandSubstitution: x=$(try …) gets its status and output before the
// trash is emptied: the child that does it holds none of the caller's
// descriptors.
func TestCommandSubstitution(t *testing.T) {
	r := newRig(t)
	for i, v := range r.env {
		if v == "TRY_SYNC=1" {
			r.env = append(r.env[:i], r.env[i+1:]...)
			break
		}
	}
	in, out, err := os.Pipe()
	r.must(err)
	defer in.Close()
	p, stdin := r.underReaper(out, "/bin/sh", "-c",
		`x=$("$0" --abort -- sh -c 'mkdir d; echo f > d/f; echo ready >&3; read x; echo out; exit 3' 2>../err); echo "$x $?"`, binary)
	r.must(out.Close())
	p.untilReady()
	// The child stops at the store's lock, which it needs before anything else.
	// Who waited for it would never come to an end.
	lock, err := os.OpenFile(r.store()+"/lock", os.O_RDWR, 0)
	r.must(err)
	r.must(unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	r.must(stdin.Close())
	line, err := bufio.NewReader(in).ReadString('\n')
	if line != "out 3\n" {
		t.Errorf("it says %q, %v", line, err)
	}
	if entries, err := os.ReadDir(r.store() + "/trash"); err != nil || len(entries) == 0 {
		t.Errorf("the trash is empty: %v", err)
	}
	r.must(lock.Close())
	p.wait().want(0)
	r.clean()
}

// TestNobodyListens: whoever closes our stderr or stdout, or sends signals
// while a commit is applied, changes nothing about it (H26).
func TestNobodyListens(t *testing.T) {
	many := `i=0; while test $i -lt 300; do echo x > n$i; i=$((i+1)); done; rm -r old`
	prepare := func(t *testing.T) *rig {
		r := newRig(t)
		r.outside("mkdir old; cd old; touch $(seq 300)")
		return r
	}
	check := func(t *testing.T, r *rig) {
		t.Helper()
		entries, err := os.ReadDir(r.proj)
		r.must(err)
		if len(entries) != 300 {
			t.Errorf("the project has %d entries, want 300", len(entries))
		}
		if got := r.branches(); len(got) > 0 {
			t.Errorf("branches are left: %v", got)
		}
		r.clean()
	}
	t.Run("broken pipes", func(t *testing.T) {
		r := prepare(t)
		in, out, err := os.Pipe()
		r.must(err)
		cmd := r.shell("-y", "--json", many)
		cmd.Stderr, cmd.Stdout = out, out
		r.must(in.Close())
		p := r.begin(cmd)
		r.must(out.Close())
		p.wait().want(0)
		check(t, r)
	})
	t.Run("closed descriptors", func(t *testing.T) {
		r := prepare(t)
		r.finish(r.command("/bin/sh", "-c", `"$0" -y -- sh -c "$1" <&- >&- 2>&-`, binary, many)).want(0)
		check(t, r)
	})
	t.Run("file size limit", func(t *testing.T) {
		r := prepare(t)
		r.finish(r.command("/bin/sh", "-c", `ulimit -S -f 16; exec "$0" -y -- sh -c "$1"`, binary, many)).want(0)
		check(t, r)
	})
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE, unix.SIGTSTP, unix.SIGUSR1} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			r := prepare(t)
			in, out, err := os.Pipe()
			r.must(err)
			defer in.Close()
			cmd := r.shell("-y", "-q", "--status-fd", "3", many)
			cmd.ExtraFiles = []*os.File{out}
			p := r.begin(cmd)
			r.must(out.Close())
			events := bufio.NewScanner(in)
			for events.Scan() && !strings.Contains(events.Text(), `"exited"`) {
			}
			// From the end of CMD until the branch is settled.
			stop, stopped := make(chan bool), make(chan int)
			go func() {
				n := 0
				defer func() { stopped <- n }()
				for {
					select {
					case <-stop:
						return
					default:
						if unix.Kill(cmd.Process.Pid, sig) == nil && unix.Kill(cmd.Process.Pid, unix.SIGCONT) == nil {
							n++
						}
					}
				}
			}()
			settled := events.Scan() && strings.Contains(events.Text(), `"committed"`)
			stop <- true
			if n := <-stopped; n == 0 {
				t.Error("no signal was sent")
			}
			o := p.wait()
			if !settled {
				t.Fatalf("it was not committed: %s, %d, %s", events.Text(), o.code, o.stderr)
			}
			o.want(0)
			check(t, r)
		})
	}
}
