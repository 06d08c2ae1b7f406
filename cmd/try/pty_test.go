package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A typist sits before a terminal on which a program runs.
type typist struct {
	*player
	d    *desk
	cmd  *exec.Cmd
	from int // what has been waited for already
}

// sit starts a program on a terminal of its own, with 31 lines of 101 columns.
func (d *desk) sit(argv ...string) *typist {
	d.t.Helper()
	y := &typist{d: d, cmd: d.command(argv...)}
	y.player = playCommand(d.t, y.cmd, honest)
	y.resize(31, 101)
	return y
}

// bash is an interactive shell at its prompt.
func (d *desk) bash() *typist {
	d.t.Helper()
	needs(d.t, "bash")
	y := d.sit("bash", "--norc", "--noprofile", "-i")
	y.sees("prompt> ")
	return y
}

func (y *typist) control(do func(fd int) error) {
	y.t.Helper()
	conn, err := y.master.SyscallConn()
	if err != nil {
		y.t.Fatal(err)
	}
	if err := conn.Control(func(fd uintptr) { err = do(int(fd)) }); err != nil {
		y.t.Fatal(err)
	}
	if err != nil {
		y.t.Fatal(err)
	}
}

func (y *typist) resize(rows, cols uint16) {
	y.t.Helper()
	y.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
}

// modes are the terminal's settings.
func (y *typist) modes() (m unix.Termios) {
	y.t.Helper()
	y.control(func(fd int) error {
		got, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			m = *got
		}
		return err
	})
	return m
}

// cooked says that the terminal echoes and takes lines.
func (y *typist) cooked() bool {
	const both = unix.ICANON | unix.ECHO
	return y.modes().Lflag&both == both
}

// sees waits until each text was printed, in this order, after what was waited
// for before.
func (y *typist) sees(texts ...string) {
	y.t.Helper()
	for _, text := range texts {
		y.waitFor(fmt.Sprintf("%q", text), func(screen []byte) int {
			if i := bytes.Index(screen, []byte(text)); i >= 0 {
				return i + len(text)
			}
			return -1
		})
	}
}

// waitFor waits until found says where what is new on the screen may be cut.
func (y *typist) waitFor(what string, found func(screen []byte) int) {
	y.t.Helper()
	late := false
	deadline := time.AfterFunc(patience, func() {
		y.mu.Lock()
		late = true
		y.more.Broadcast()
		y.mu.Unlock()
	})
	defer deadline.Stop()
	y.mu.Lock()
	defer y.mu.Unlock()
	for {
		screen := y.seen.Bytes()[y.from:]
		if i := found(screen); i >= 0 {
			y.from += i
			return
		}
		if late || y.closed {
			y.t.Fatalf("waiting for %s; the screen since then: %q", what, screen)
		}
		y.more.Wait()
	}
}

// talk sees and types by turns.
func (y *typist) talk(turns ...string) {
	y.t.Helper()
	for i, s := range turns {
		if i%2 == 0 {
			y.sees(s)
		} else {
			y.send(s)
		}
	}
}

// asked waits for the question and answers it.
func (y *typist) asked(answer string) {
	y.t.Helper()
	y.talk(prompt, answer)
}

// ends waits for the end of the program.
func (y *typist) ends(status int) {
	y.t.Helper()
	select {
	case got := <-y.fate:
		if !strings.HasPrefix(got, fmt.Sprint(status, " ")) {
			y.t.Errorf("%q ended with %q, want %d; screen %q", y.cmd.Args[1:], got, status, y.screen())
		}
	case <-time.After(patience):
		y.t.Fatalf("%q does not end; screen %q", y.cmd.Args[1:], y.screen())
	}
}

// usable checks that the shell's line editing is intact: a line is mended in
// the middle, and a command then has a terminal that echoes and takes lines.
func (y *typist) usable() {
	y.t.Helper()
	y.send("cho mended $((40+2))\x01e\r")
	y.sees("mended 42", "prompt> ")
	y.send("sh -c 'echo in cooked $((40+2)); read x; echo got $x'\r")
	y.sees("in cooked 42")
	if !y.cooked() {
		y.t.Error("a command's terminal is not cooked")
	}
	y.talk("\n", "some wort\x7fds\n", "got some words", "", "prompt> ", "")
}

// Programs that take the whole terminal work as outside, and what they wrote
// is committed.
func TestTerminalPrograms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		program string
		turns   []string // seen, typed …
		check   func(d *desk)
	}{
		{"vim", []string{
			"", "try vim -u NONE -i NONE -n f\r", "\x1b[?1049h", "ihello from vim\x1b:wq\r",
			"added", "", prompt, "c\n", "committed", "", "prompt> ", "",
		}, func(d *desk) {
			if got := d.has("f"); got != "hello from vim\n" {
				t.Errorf("after vim and a commit, f is %q", got)
			}
		}},
		{"less", []string{
			"", "seq 1000 >long; try less long\r", "\r\n22\r\n", "G", "\r\n1000\r\n", "g/^77[4]\r", "774", "q",
			".lesshst", "", prompt, "a\n", "dropped", "", "prompt> ", "",
		}, nil},
		{"htop", []string{"", "try htop\r", "Load average", "", "PID", "q", prompt, "a\n", "dropped", "", "prompt> ", ""}, nil},
		{"script", []string{
			"", "try script -q typescript\r", "prompt> ", "tty; echo $((6*7))\r", "/dev/pts/1", "", "42", "", "prompt> ", "exit\r",
			prompt, "c\n", "committed", "", "prompt> ", "",
		}, func(d *desk) {
			if got := d.has("typescript"); !strings.Contains(got, "42\r\n") {
				t.Errorf("the typescript is %q", got)
			}
		}},
		{"tmux", []string{
			"", "export shell='env PS1=\"pane> \" bash --norc --noprofile -i'; try tmux -f /dev/null new-session \"$shell\"\r", "pane> ", "echo in tmux $((6*7)) $TMUX_PANE\r",
			"in tmux 42 %0", "", "pane> ", "tmux split-window -h \"echo number \\$((1+1)); $shell\"\r", "number 2", "", "pane> ", "echo other $((6*8)) $TMUX_PANE >f\r", "pane> ", "tmux kill-server\r",
			prompt, "c\n", "committed", "", "prompt> ", "",
		}, func(d *desk) {
			if got := d.has("f"); got != "other 48 %1\n" {
				t.Errorf("after tmux and a commit, f is %q", got)
			}
		}},
		{"bash", []string{
			"", "PS1='inner> ' try bash --norc --noprofile -i\r", "inner> ", "(echo u\"\"p; exec cat)\r", "up\r\n", "words\r", "words\r\nwords\r\n", "\x1a",
			"Stopped", "", "inner> ", "sleep 1000 & jobs\r", "cat", "", "sleep 1000 &", "", "inner> ", "fg 1\r", "cat )\r\n", "more\r", "more\r\nmore\r\n", "\x04",
			"inner> ", "kill %2; (echo u\"\"p; exec cat)\r", "up\r\n", "last\r", "last\r\nlast\r\n", "\x03", "inner> ", "echo status $?\r", "status 130", "", "inner> ", "echo x >f; exit 5\r",
			prompt, "c\n", "committed", "", "prompt> ", "echo status $?\r", "status 5", "", "prompt> ", "",
		}, func(d *desk) {
			if got := d.has("f"); got != "x\n" {
				t.Errorf("after bash and a commit, f is %q", got)
			}
		}},
	} {
		t.Run(c.program, func(t *testing.T) {
			t.Parallel()
			needs(t, c.program)
			y := newDesk(t).bash()
			before := y.modes()
			y.talk(c.turns...)
			if c.check != nil {
				c.check(y.d)
			}
			if y.modes() != before {
				t.Errorf("the terminal's settings at the prompt were %+v, are %+v", before, y.modes())
			}
			y.usable()
		})
	}
}

// `try` alone is a shell that can be rolled back.
func TestTerminalShellRollsBack(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.write("old", "old\n")
	y := d.bash()
	for _, answer := range []string{"d\na\n", "?\nc\n", "x\nc x\nk\n", "\x04"} {
		y.send("try\r")
		y.sees("prompt> ")
		y.send("echo $$ changed >old; mkdir -p new; rm -f gone; cat old\r")
		y.sees(" changed\r\n", "prompt> ")
		y.send("\x04") // the end of input ends the shell
		for line := range strings.SplitAfterSeq(answer, "\n") {
			if line == "" {
				continue
			}
			y.asked(line)
			switch line {
			case "d\n":
				y.sees("-old", "+", " changed")
			case "?\n":
				y.sees("end of input keeps")
			case "x\n", "c x\n":
				y.sees("none of c, a, d, k")
			case "c\n":
				y.sees("committed", "hint: try undo takes it back")
			}
		}
		y.sees("prompt> ")
		y.send("cat old\r")
		switch {
		case strings.HasSuffix(answer, "a\n"):
			y.sees("\rold\r\n")
		default:
			y.sees(" changed\r\n")
		}
		y.sees("prompt> ")
	}
	if got := d.branches(); strings.Count(got, " kept\n") != 2 {
		t.Errorf("two branches were to be kept, but there are %q", got)
	}
}

// What is typed while CMD runs is no answer.
func TestTerminalTypeAheadIsDropped(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	release := d.fifo("go")
	y := d.bash()
	y.send("try sh -c 'echo x >f; echo rea\"\"dy; read x <&3' 3<>go\r")
	y.sees("ready")
	y.send("c\nc\n")
	y.sees("c\r\nc\r\n") // the echo: they are there
	if _, err := release.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	y.sees(prompt)
	y.send("a\n")
	y.sees("dropped", "prompt> ")
	if d.has("f") != "" {
		t.Error("type-ahead committed")
	}
	y.usable()
}

// Ctrl-C reaches the foreground group once, with a terminal of the session's
// own and in a pipe.
func TestTerminalInterrupt(t *testing.T) {
	t.Parallel()
	y := newDesk(t).bash()
	for _, pipe := range []string{"", " | (trap '' INT QUIT; cat)"} {
		y.send("try --abort -q tally" + pipe + "; echo status ${PIPESTATUS[0]}\r")
		y.sees("ready")
		for _, key := range []struct{ typed, signal string }{{"\x03", "SIGINT"}, {"\x1c", "SIGQUIT"}} {
			y.send(key.typed)
			y.sees("got " + key.signal)
		}
		y.send("end\r")
		y.sees("end", "status 7", "prompt> ")
		if n := strings.Count(y.screen(), "got SIGINT"); n != 1 {
			t.Errorf("one Ctrl-C was seen %d times: %q", n, y.screen())
		}
		y.mu.Lock()
		y.seen.Reset()
		y.from = 0
		y.mu.Unlock()
		y.send("try --abort -q sleep 1000" + pipe + "\r")
		y.sees("sleep 1000" + pipe + "\r\n")
		y.running("sleep")
		y.send("\x03")
		y.sees("prompt> ")
		y.send("echo status ${PIPESTATUS[0]}\r")
		y.sees("status 130", "prompt> ")
		y.usable()
	}
}

// running waits until a program, "" for any, runs in a session that is the
// shell's job, and returns the pid of its supervisor.
func (y *typist) running(comm string) (try int) {
	y.t.Helper()
	deadline := time.After(patience)
	for {
		for _, try := range children(y.cmd.Process.Pid) {
			for _, init := range children(try) {
				for _, pid := range children(init) {
					text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
					if comm == "" || string(text) == comm+"\n" {
						return try
					}
				}
			}
		}
		select {
		case <-deadline:
			y.t.Fatalf("%s does not run", comm)
		case <-time.After(time.Millisecond):
		}
	}
}

// Ctrl-Z stops, fg and bg go on, and a job that ends in the background, or is
// ended while it is stopped, is over: with a terminal of the session's own and
// in a pipe.
func TestTerminalStopsAndGoesOn(t *testing.T) {
	t.Parallel()
	for _, pipe := range []string{"", " | cat"} {
		t.Run("pipe="+pipe, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.fifo("go")
			y := d.bash()
			run := func(cmd string) { y.send("try --abort -q " + cmd + pipe + "\r"); y.sees("begun") }
			stop := func() {
				y.talk("", "\x1a", "Stopped", "", "prompt> ", "")
				d.stopped(y.running("")) // only then it can take no key from the shell
			}
			status := func(want string) { y.talk("prompt> ", "echo status $?\r", "status "+want, "", "prompt> ", "") }
			y.talk("", "set -o pipefail\r", "prompt> ", "")
			run("sh -c 'echo be\"\"gun; read x; echo got $x; exit 3'")
			stop()
			y.usable()
			y.talk("", "fg\r", "try --abort", "", "\r\n", "hello\r", "got hello", "")
			status("3")
			// twice, and ended by the keyboard
			// (not in the trap itself: bash forgets a CONT that comes while it runs the trap of another)
			run("bash -c 'trap woken=1 CONT; echo be\"\"gun; while :; do read -t 1 x; if test $woken; then woken=; echo awa\"\"ke; fi; done'")
			stop()
			y.talk("", "fg\r", "awake", "")
			stop()
			y.talk("", "fg\r", "awake", "\x03")
			status("130")
			// ends by itself in the background
			run("sh -c 'echo be\"\"gun; read x <&3; echo ov\"\"er; exit 4' 3<>go")
			stop()
			y.talk("", "bg\r", "prompt> ", "echo >go; wait %1; echo status $?\r", "over", "", "status 4", "", "prompt> ", "")
			// ended while it is stopped
			run("sh -c 'echo be\"\"gun; exec sleep 1000'")
			stop()
			gone := d.hold(y.running(""))
			y.send("kill %1\r")
			gone()
			y.talk("prompt> ", "wait %1; echo status $?\r", "status 143", "", "prompt> ", "")
			y.usable()
		})
	}
}

func TestTerminalSize(t *testing.T) {
	t.Parallel()
	y := newDesk(t).bash()
	for _, flag := range []string{"--pty", "--no-pty"} {
		y.send("try --abort -q " + flag + " bash -c 'stty size; trap \"stty size; exit 6\" WINCH; echo rea\"\"dy; while :; do read -t 1 x; done'\r")
		y.sees("31 101", "ready")
		y.resize(17, 71)
		y.sees("17 71", "prompt> ")
		y.resize(31, 101)
		y.send("echo status $?\r")
		y.sees("status 6", "prompt> ")
	}
}

// The terminal's settings are the caller's again, whatever the caller's were
// and whatever CMD made of its own, and the session began with them.
func TestTerminalSettings(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	y := d.sit("sh", "-c", `stty -echoctl -ixon intr ^G susp undef
settings() { stty -g >>"$1"; }
settings outside
for pty in --pty --no-pty; do
	try -y -q $pty sh -c 'stty -g >>inside; if [ $0 = --pty ]; then stty raw -echo erase x; fi' $pty; settings outside
	try -y -q $pty no-such-command 2>/dev/null; settings outside
	try -y -q $pty --timeout 50ms sleep 1000; settings outside
	try -y -q $pty sh -c 'kill -KILL $$'; settings outside
	try -y -q $pty --check 'stty -g >>inside; false' true 2>/dev/null; settings outside
done`)
	y.ends(0)
	outside, inside := strings.Fields(d.has("outside")), strings.Fields(d.has("inside"))
	if len(outside) != 11 || len(inside) < 2 {
		t.Fatalf("settings outside %q, inside %q", outside, inside)
	}
	for _, settings := range append(outside, inside...) {
		if settings != outside[0] {
			t.Errorf("settings were %s, are %s", outside[0], settings)
		}
	}
}

// TERM to `try`, and SIGKILL while the terminal is raw: the shell has its
// prompt, and line editing works (B17).
func TestTerminalAfterSignals(t *testing.T) {
	t.Parallel()
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGKILL} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			y := d.bash()
			before := y.modes()
			y.send("try -b left vim -u NONE -i NONE -n f\r")
			y.sees("\x1b[?1049h")
			try := y.running("vim")
			if y.cooked() {
				t.Error("the terminal is not raw while vim has one of its own")
			}
			y.send("ihello\x1b:w\r") // so that there is something to ask about
			y.sees("written")
			gone := d.hold(d.child(try))
			if err := unix.Kill(try, sig); err != nil {
				t.Fatal(err)
			}
			gone()
			y.sees("prompt> ")
			if y.modes() != before {
				t.Errorf("the terminal's settings at the prompt were %+v, are %+v", before, y.modes())
			}
			if strings.Contains(y.screen(), prompt) {
				t.Error("there was a question")
			}
			y.usable()
			state := map[unix.Signal]string{unix.SIGKILL: "interrupted"}[sig]
			if state == "" {
				state = "kept"
			}
			// /tmp is another one there, but the branch can be settled.
			y.send("try branches\r")
			y.sees("left", state, "prompt> ")
			y.send("try commit left\r")
			y.sees("committed", "prompt> ")
			if got := d.has("f"); got != "hello\n" {
				t.Errorf("f is %q", got)
			}
		})
	}
}

// A shell that runs scripts does not mend the terminal itself: after SIGKILL
// of `try`, init does.
func TestTerminalAfterKillInScript(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	y := d.sit("sh", "-c", "try -q sh -c 'echo rea\"\"dy; exec sleep 1000'; echo status $?; read x; echo got $x")
	y.sees("ready")
	try := d.child(y.cmd.Process.Pid)
	gone := d.hold(d.child(try))
	if err := unix.Kill(try, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	y.sees("status 137")
	gone()
	if !y.cooked() {
		t.Error("the terminal is left raw")
	}
	y.talk("", "some wort\x7fds\r", "got some words", "")
	y.ends(0)
}

// When the terminal goes, the session ends, nothing is asked, and the branch
// is kept.
func TestTerminalHangsUp(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--pty", "--no-pty"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			y := d.bash()
			y.send("try -b left " + flag + " --scope dir sh -c 'echo x >f; echo rea\"\"dy; exec sleep 1000'\r")
			y.sees("ready")
			try := y.running("sleep")
			gone, goneInit := d.hold(try), d.hold(d.child(try))
			y.master.Close()
			gone()
			goneInit()
			if got := d.branches(); got != "left kept\n" {
				t.Errorf("branches are %q", got)
			}
		})
	}
}

// A real terminal emulator is between the user and the question: tmux draws,
// answers queries and hands on keys.
func TestTerminalInTmux(t *testing.T) {
	t.Parallel()
	needs(t, "tmux", "vim")
	d := newDesk(t)
	d.write("f", "old\n")
	y := d.sit("tmux", "-S", filepath.Join(d.dir, "socket"), "-f", "/dev/null", "new-session", `env PS1='pane> ' bash --norc --noprofile -i`)
	y.sees("pane> ")
	y.send("try vim -u NONE -i NONE -n f\r")
	y.sees("old")
	y.send("cwnew\x1b:wq\r")
	y.sees("M f", "[c]ommit [a]bort [d]iff [k]eep")
	y.send("c\r")
	y.sees("committed", "pane> ")
	y.send("tmux capture-pane -p >screen; exit\r")
	y.ends(0)
	if got := d.has("f"); got != "new\n" {
		t.Errorf("f is %q", got)
	}
	if screen := d.has("screen"); !strings.Contains(screen, "committed") || strings.Contains(screen, "[0n") {
		t.Errorf("the pane showed %q", screen)
	}
}
