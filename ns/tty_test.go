package ns

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// patience is how long a test waits for what should come at once.
const patience = 10 * time.Second

// A typist sits at a terminal on which a program runs.
type typist struct {
	t     *testing.T
	cmd   *exec.Cmd
	tty   *os.File // the master side
	slave *os.File
	seen  bytes.Buffer
	from  int // what was waited for already
}

func sit(t *testing.T, c *exec.Cmd) *typist {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: 31, Cols: 101}); err != nil {
		t.Fatal(err)
	}
	// A read must have a deadline, so the runtime's poller gets the terminal.
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	master.Close()
	master = os.NewFile(uintptr(fd), "terminal")
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	c.Env = append(os.Environ(), "PS1=prompt> ", "TERM=xterm", "HISTFILE=", "ENV=", "BASH_SILENCE_DEPRECATION_WARNING=1")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	y := &typist{t: t, cmd: c, tty: master, slave: slave}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		slave.Close()
		master.Close()
	})
	return y
}

func (y *typist) keys(s string) {
	y.t.Helper()
	if _, err := y.tty.WriteString(s); err != nil {
		y.t.Fatalf("type %q: %v", s, err)
	}
}

// sees waits until text was printed, after what was waited for before.
func (y *typist) sees(text string) {
	y.t.Helper()
	y.tty.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 4096)
	for {
		if i := bytes.Index(y.seen.Bytes()[y.from:], []byte(text)); i >= 0 {
			y.from += i + len(text)
			return
		}
		n, err := y.tty.Read(buf)
		if err != nil {
			y.t.Fatalf("waiting for %q: %v; the screen: %q", text, err, y.seen.Bytes()[y.from:])
		}
		y.seen.Write(buf[:n])
	}
}

func (y *typist) ends(code int) {
	y.t.Helper()
	done := make(chan error, 1)
	go func() { done <- y.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(patience):
		y.t.Fatalf("%q does not end; the screen: %q", y.cmd.Args, y.seen.Bytes()[y.from:])
	}
	if got := y.cmd.ProcessState.ExitCode(); got != code {
		y.t.Errorf("%q ended with %d, want %d", y.cmd.Args, got, code)
	}
}

// cooked says that the terminal echoes and takes lines, as a shell left it.
func (y *typist) cooked() bool {
	y.t.Helper()
	m, err := unix.IoctlGetTermios(int(y.slave.Fd()), unix.TCGETS)
	if err != nil {
		y.t.Fatal(err)
	}
	const both = unix.ICANON | unix.ECHO
	return m.Lflag&both == both
}

// bash is an interactive shell in which “T CMD…” runs helper:try.
func bash(t *testing.T) *typist {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash here")
	}
	y := sit(t, exec.CommandContext(ctx(t), "bash", "--norc", "--noprofile", "-i"))
	y.sees("prompt> ")
	y.keys("T() { " + strings.Join(self("try"), " ") + ` "$@"; }; bind 'set enable-bracketed-paste off'; stty -echoctl` + "\n")
	y.sees("\n")
	y.sees("prompt> ")
	return y
}

func TestTerminalHasANameAndASize(t *testing.T) {
	for _, again := range []string{"-again", "-pty"} {
		y := sit(t, command(t, "try", "-pty", again, "sh", "-c", "tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo all; ps -o tty= -p $$; exit 7"))
		y.sees("/dev/pts/0\r\n31 101\r\nall\r\npts/0\r\n")
		y.ends(7)
		if !y.cooked() {
			t.Error("the terminal is left raw")
		}
	}
}

func TestTerminalRefusedCommand(t *testing.T) {
	y := sit(t, command(t, "try", "-pty", "no-such-command"))
	y.ends(127)
	if !y.cooked() {
		t.Error("the terminal is left raw")
	}
}

func TestTypingAndEndOfFile(t *testing.T) {
	y := sit(t, command(t, "try", "-pty", "sh", "-c", "read x; echo got $x; cat; echo end"))
	y.keys("some words\n")
	y.sees("got some words\r\n")
	y.keys("line\n")
	y.sees("line\r\nline\r\n") // echoed, then from cat
	y.keys("\x04")
	y.sees("end\r\n")
	y.ends(0)
}

func TestInterruptReachesTheForegroundGroup(t *testing.T) {
	y := sit(t, command(t, "try", "-pty", "sh", "-c", "trap 'echo caught; exit 9' INT; echo ready; sleep 1000 & wait"))
	y.sees("ready")
	y.keys("\x03")
	y.sees("caught")
	y.ends(9)
	// No shell here: dash loses an interrupt that comes while it forks.
	y = sit(t, command(t, "try", append([]string{"-pty"}, self("wait")...)...))
	y.sees("ready")
	y.keys("\x03")
	y.ends(130)
}

func TestAllOutputArrives(t *testing.T) {
	y := sit(t, command(t, "try", "-pty", "sh", "-c", "i=0; while test $i -lt 2000; do echo line $i; i=$((i+1)); done"))
	for i := range 2000 {
		y.sees(fmt.Sprintf("line %d\r\n", i))
	}
	y.ends(0)
}

func TestWindowSizeFollows(t *testing.T) {
	y := sit(t, command(t, "try", "-pty", "bash", "-c", "trap 'stty size; exit' WINCH; echo ready; while :; do read -t 1 x; done"))
	y.sees("ready")
	if err := pty.Setsize(y.slave, &pty.Winsize{Rows: 17, Cols: 71}); err != nil {
		t.Fatal(err)
	}
	y.sees("17 71")
	y.ends(0)
}

// TestStopAndGoOn stops and continues as people do, with a terminal of the
// session's own and with the caller's.
func TestStopAndGoOn(t *testing.T) {
	for _, kind := range []string{"-pty", "-no-pty"} {
		t.Run(kind, func(t *testing.T) {
			y := bash(t)
			y.keys("T " + kind + " sh -c 'echo be\"\"gun; read x; echo got $x; exit 3'\n")
			y.sees("begun")
			y.keys("\x1a")
			y.sees("Stopped")
			y.sees("prompt> ")
			// A stopped program may still take a key that comes before it looks
			// at the signal, as without us: a blank.
			y.keys("    echo in the $((6*7)) shell\n")
			y.sees("in the 42 shell")
			y.sees("prompt> ")
			y.keys("fg\n")
			y.sees("helper:try")
			y.sees("\n")
			y.keys("hello\n")
			y.sees("got hello")
			y.sees("prompt> ")
			y.keys("echo status $?\n")
			y.sees("status 3")
		})
	}
}

func TestBackgroundRunsOn(t *testing.T) {
	y := bash(t)
	y.keys("T -pty sh -c 'echo be\"\"gun; read x; echo got $x; exit 3'\n")
	y.sees("begun")
	y.keys("\x1a")
	y.sees("Stopped")
	y.sees("prompt> ")
	y.keys("bg\n")
	y.sees("prompt> ")
	y.keys("jobs\n")
	y.sees("Running")
	y.sees("prompt> ")
	y.keys("fg\n")
	y.sees("helper:try")
	y.keys("hello\n")
	y.sees("got hello")
	y.sees("prompt> ")
	y.keys("echo status $?\n")
	y.sees("status 3")
}

// TestEndsInTheBackground: nobody has to bring a job to the foreground so
// that it can end.
func TestEndsInTheBackground(t *testing.T) {
	p := newPlace(t)
	if err := unix.Mkfifo(p.path("go"), 0o600); err != nil {
		t.Fatal(err)
	}
	y := bash(t)
	// No fork in this script: a stop amid a vfork stops the child alone.
	y.keys("T -pty sh -c 'echo be\"\"gun; read x < " + p.path("go") + "; echo o\"\"ver; exit 4'\n")
	y.sees("begun")
	y.keys("\x1a")
	y.sees("Stopped")
	y.sees("prompt> ")
	y.keys("bg\n")
	y.sees("prompt> ")
	y.keys("jobs\n")
	y.sees("Running")
	y.sees("prompt> ") // before the next one, bash forgets a job that has ended
	p.write("go", "on\n")
	y.sees("over")
	y.keys("wait %1; echo status $?\n")
	y.sees("status 4")
}

// TestInterruptWithoutOwnTerminal: the keyboard's INT goes to the whole
// process group, so what the supervisor got must not be passed on.
func TestInterruptWithoutOwnTerminal(t *testing.T) {
	y := bash(t)
	y.keys("T " + strings.Join(self("interrupts"), " ") + "\n")
	y.sees("ready\r\n")
	y.keys("\x03")
	y.sees("caught")
	y.keys("line\n")
	y.sees("over")
	y.sees("prompt> ")
	if n := bytes.Count(y.seen.Bytes(), []byte("caught\r\n")); n != 1 {
		t.Errorf("one Ctrl-C was caught %d times", n)
	}
}

func init() {
	helpers["wait"] = func([]string) int {
		fmt.Println("ready")
		return int(unix.Pause().(unix.Errno))
	}
	helpers["interrupts"] = func([]string) int {
		got := make(chan os.Signal, 8)
		signal.Notify(got, unix.SIGINT)
		go func() {
			for range got {
				fmt.Println("caught")
			}
		}()
		fmt.Println("ready")
		os.Stdin.Read(make([]byte, 10))
		fmt.Println("over")
		return 0
	}
}

func TestVim(t *testing.T) {
	if _, err := exec.LookPath("vim"); err != nil {
		t.Skip("no vim here")
	}
	y := bash(t)
	y.keys("T -pty vim -u NONE -i NONE -n /dev/shm/x\n")
	y.sees("\x1b[?1049h")
	y.keys("ihello\x1b:w\r")
	y.sees("written")
	y.keys(":q\r")
	y.sees("prompt> ")
	y.keys("echo status $?\n")
	y.sees("status 0")
	y.keys("stty -a | tr ' ' '\\n' | grep -x -e '-*icanon' -e '-*echo'\n")
	y.sees("\r\nicanon\r\necho\r\n")
}

// TestKilledSupervisorLeavesACookedTerminal: SIGKILL leaves the restoring to
// init, which must not do it when a shell has made settings of its own.
func TestKilledSupervisorLeavesACookedTerminal(t *testing.T) {
	for _, again := range []string{"-again", "-pty"} {
		y := sit(t, command(t, "try", "-pty", again, "sh", "-c", "echo ready; read x"))
		y.sees("ready")
		if y.cooked() {
			t.Fatal("the terminal is not raw while a program has one of its own")
		}
		marker := sessionsOf(t, y.cmd.Process.Pid)
		y.cmd.Process.Kill()
		y.cmd.Wait()
		marker.gone(t)
		if !y.cooked() {
			t.Error("the terminal is left raw")
		}
	}
}

func TestForcedTerminalWithoutOne(t *testing.T) {
	c := command(t, "try", "-pty", "sh", "-c", "tty; read x; echo got $x; cat; echo end >&2")
	c.Stdin = strings.NewReader("words\nmore\n")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	if !strings.Contains(out.String(), "/dev/pts/0") || !strings.Contains(out.String(), "got words") || errs.String() != "end\n" {
		t.Errorf("stdout %q, stderr %q", out.String(), errs.String())
	}
}

// TestNothingIsTypedIntoTheCallersTerminal: TIOCSTI, by any descriptor and by
// /dev/tty.
func TestNothingIsTypedIntoTheCallersTerminal(t *testing.T) {
	y := sit(t, command(t, "try", self("tiocsti")...))
	y.sees("0: operation not permitted\r\n/dev/tty: operation not permitted\r\nhigh bits: operation not permitted\r\nTIOCLINUX: operation not permitted\r\nTIOCGWINSZ: ok\r\n")
	y.ends(0)
}

func init() {
	helpers["tiocsti"] = func([]string) int {
		tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		for _, c := range []struct {
			name    string
			fd      uintptr
			request uintptr
		}{
			{"0", 0, unix.TIOCSTI}, {"/dev/tty", tty.Fd(), unix.TIOCSTI}, {"high bits", 0, unix.TIOCSTI | 1<<32},
			{"TIOCLINUX", 0, 0x541c}, {"TIOCGWINSZ", 0, unix.TIOCGWINSZ},
		} {
			what := "ok"
			if err := ioctlByte(c.fd, c.request); err != nil {
				what = err.Error()
			}
			fmt.Printf("%s: %s\n", c.name, what)
		}
		return 0
	}
}
