package ns

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func ioctlByte(fd, request uintptr) error {
	var buf [64]byte
	buf[0] = 'x'
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(&buf))); errno != 0 {
		return errno
	}
	return nil
}

// marked are pidfds of the processes of a session, to wait for their end.
type marked []int

// sessionsOf finds the inits that a supervisor has made.
func sessionsOf(t *testing.T, supervisor int) (m marked) {
	t.Helper()
	for _, pid := range childrenOf(t, supervisor) {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			m = append(m, fd)
		}
	}
	return m
}

func childrenOf(t *testing.T, pid int) (pids []int) {
	t.Helper()
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, f := range tasks {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for s := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(s); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// gone waits for the end of all of them. The kernel announces the end of a
// PID 1 when the rest of its namespace is gone.
func (m marked) gone(t *testing.T) {
	t.Helper()
	if len(m) == 0 {
		t.Error("no process of the session was found")
	}
	for _, fd := range m {
		deadline := time.Now().Add(patience)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(deadline).Milliseconds()))
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n != 1 {
				t.Error("a process of the session is left")
			}
			break
		}
		unix.Close(fd)
	}
}

var kills = flag.Int("kills", 20, "how often the supervisor is killed in TestKilledSupervisorLeavesNoProcess")

// TestKilledSupervisorLeavesNoProcess kills the supervisor at a random moment
// of its first 5 ms, and then looks for anything that knows a marker which
// the whole session had.
func TestKilledSupervisorLeavesNoProcess(t *testing.T) {
	for i := range *kills {
		r, w := pipe(t) // whatever lives on holds w
		c := command(t, "try", "sh", "-c", "sleep 1000 & setsid sleep 1000 & sleep 1000")
		c.ExtraFiles = []*os.File{w}
		if i%2 == 1 {
			c.Args = append(c.Args[:2:2], append([]string{"-again"}, c.Args[2:]...)...)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		timer := time.NewTimer(rand.N(5 * time.Millisecond))
		<-timer.C
		c.Process.Kill()
		c.Wait()
		r.SetReadDeadline(time.Now().Add(patience))
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("round %d: a process is left: %v", i, err)
		}
		r.Close()
	}
}

func TestEndKillsAndNames(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		r, w := pipe(t)
		p := newPlace(t)
		spec := set(p.spec("sh", "-c", "(trap '' TERM; exec setsid sh -c 'trap \"\" TERM; sleep 1000 & echo up; wait') & sleep 1001 & read x"))
		in, feed := pipe(t)
		spec.Programs[0].Stdio = [3]*os.File{in, w, nil}
		s := start(t, spec)
		if _, err := r.Read(make([]byte, 8)); err != nil { // the stubborn one is up
			t.Fatal(err)
		}
		feed.Close()
		if exit := wait(t, s); !exit.Left {
			t.Errorf("Wait() = %+v, want others left", exit)
		}
		want := childrenOf(t, s.pid)
		killed, err := s.End(ctx(t), 30*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		strange := ""
		for _, k := range killed {
			if k.Command != "sh" && k.Command != "sleep" { // sh until its exec
				strange = k.Command
			}
			if i := slices.Index(want, k.PID); i >= 0 {
				want = slices.Delete(want, i, i+1)
			}
		}
		if len(killed) != 3 || strange != "" || len(want) != 0 {
			t.Errorf("End() = %v; without the host's pids %v", killed, want)
		}
		if left := childrenOf(t, s.pid); len(left) != 0 {
			t.Errorf("init has children %v after End", left)
		}
		// The session stays: a second End finds nobody.
		if killed, err := s.End(ctx(t), time.Second); err != nil || len(killed) != 0 {
			t.Errorf("End() again = %v, %v", killed, err)
		}
	})
}

func TestLinger(t *testing.T) {
	p := newPlace(t)
	in, feed := pipe(t)
	spec := p.spec("sh", "-c", "(read x; echo $x > file) <&3 & exit 0")
	spec.Programs[0].Argv = []string{"sh", "-c", "exec 3<&0; (read x; echo $x > file) <&3 & exit 0"}
	spec.Programs[0].Stdio[0] = in
	s := start(t, spec)
	wait(t, s)
	done := make(chan error, 1)
	go func() { done <- s.Linger(ctx(t)) }()
	if _, err := feed.WriteString("late\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(spec.Mounts[0].Upper, "file"))
	if err != nil || string(text) != "late\n" {
		t.Errorf("file after Linger = %q, %v", text, err)
	}
}

func TestChecksRunInTheSameSession(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		spec := set(p.spec("sh", "-c", "echo made > new; sleep 1000 &"))
		spec.Programs = append(spec.Programs, Program{Argv: []string{"grep", "-q", "made", "new"}}, Program{Argv: []string{"false"}}, Program{Argv: []string{"/no/such"}})
		s := start(t, spec)
		wait(t, s)
		for i, want := range []int{0, 0, 1, 127} {
			if i > 0 {
				if err := s.Run(i); err != nil {
					t.Fatalf("Run(%d) = %v", i, err)
				}
				if got := wait(t, s); got.Code != want {
					t.Errorf("program %d ended with %+v, want %d", i, got, want)
				}
			}
			if _, err := s.End(ctx(t), 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Run(4); err == nil {
			t.Error("Run(4) of 4 programs is no error")
		}
	})
}

func TestSignals(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		r, w := pipe(t)
		spec := set(newPlace(t).spec("bash", "-c", `for s in INT HUP USR1; do trap "echo $s" $s; done; trap 'echo TERM; exit 4' TERM; echo up; while :; do read -t 0.1 <> <(:); done`))
		spec.Programs[0].Stdio[1] = w
		s := start(t, spec)
		lines := bufio.NewScanner(r)
		sees := func(want string) {
			t.Helper()
			r.SetReadDeadline(time.Now().Add(patience))
			if !lines.Scan() || lines.Text() != want {
				t.Fatalf("the program says %q (%v), want %q", lines.Text(), lines.Err(), want)
			}
		}
		sees("up")
		for _, c := range []struct {
			sig  unix.Signal
			name string
		}{{unix.SIGINT, "INT"}, {unix.SIGINT, "INT"}, {unix.SIGHUP, "HUP"}, {unix.SIGUSR1, "USR1"}} {
			if err := s.Signal(c.sig); err != nil {
				t.Fatal(err)
			}
			sees(c.name)
		}
		unix.Kill(s.PID(), unix.SIGSTOP)
		if err := s.Signal(unix.SIGTERM); err != nil { // wakes it
			t.Fatal(err)
		}
		sees("TERM")
		if exit := wait(t, s); exit.Code != 4 {
			t.Errorf("ended with %+v, want 4", exit)
		}
	})
}

// TestStoppedInitIsNoObstacle: whoever stops init from outside does not keep
// the session from ending.
func TestStoppedInitIsNoObstacle(t *testing.T) {
	s := start(t, newPlace(t).spec("sleep", "1000"))
	if err := unix.Kill(s.pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := s.Close(); err != nil || time.Since(begin) > patience {
		t.Errorf("Close() with init stopped = %v after %v", err, time.Since(begin))
	}
}

func TestInitThatDiesIsAnError(t *testing.T) {
	s := start(t, newPlace(t).spec("sleep", "1000"))
	if err := unix.Kill(s.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, err := s.Wait(ctx(t))
	if f, ok := errors.AsType[*Failure](err); !ok || f.Step != "run" {
		t.Errorf("Wait() with init killed = %v, want a *Failure", err)
	}
}

// TestForkBomb: at the limit fork fails inside, and only there.
func TestForkBomb(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		spec := set(p.spec(self("bomb")...))
		spec.Processes = 400
		if os.Geteuid() == 0 && !spec.Root {
			t.Skip("RLIMIT_NPROC does not bind uid 0 of the machine")
		}
		out, exit := run(t, spec)
		n, err := strconv.Atoi(strings.TrimSpace(out))
		// pid_max counts numbers, of threads as well and from 300 on again.
		if err != nil || n < 50 || n > 400 || exit.Code != 0 {
			t.Errorf("%q processes before fork failed (%+v), want up to 400", out, exit)
		}
	})
}

func init() {
	helpers["bomb"] = func([]string) int {
		n := 0
		for ; n < 1000; n++ {
			pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "1000"}, &syscall.ProcAttr{})
			if err != nil {
				break
			}
			_ = pid
		}
		fmt.Println(n)
		return 0
	}
}

func TestManyAtOnce(t *testing.T) {
	p := newPlace(t)
	var wg sync.WaitGroup
	for range 12 {
		spec := p.spec("sh", "-c", "echo x >> file; exit 6")
		wg.Go(func() {
			s, err := Start(spec)
			if err != nil {
				t.Error(err)
				return
			}
			if exit, err := s.Wait(ctx(t)); err != nil || exit.Code != 6 {
				t.Errorf("Wait() = %+v, %v", exit, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := p.read("base/file"); got != "old" {
		t.Errorf("base/file = %q", got)
	}
}

// TestLocksStayTheSupervisors: init holds no descriptor of the supervisor's,
// so a lock of it ends with it, whatever init does.
func TestLocksStayTheSupervisors(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		held := open(t, p.path("base/file"), os.O_RDONLY)
		if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		start(t, set(p.spec("sleep", "1000")))
		held.Close()
		other := open(t, p.path("base/file"), os.O_RDONLY)
		if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			t.Errorf("the lock of a closed descriptor: %v", err)
		}
	})
}
