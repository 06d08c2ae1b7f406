package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// askOnTerminal is the program that the tests below play a terminal for: it
// asks once and says on stdout what was decided.
func askOnTerminal() {
	t, err := openTTY()
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	// A terminal of the tests that answers does so as soon as it runs, which on
	// a busy machine can take longer than a real one has.
	t.slow = os.Getenv("TERMINAL") == "answers"
	t.reset()
	fate, err := t.ask("calm-otter", func() error { fmt.Fprint(t.f, "THE DIFF\n"); return nil })
	if err := errors.Join(err, t.close()); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(fate)
}

// prompt is what the question ends in.
const prompt = "? for help: "

// player is a terminal with a person before it.
type player struct {
	t      *testing.T
	master *os.File
	fate   chan string // what was decided

	mu     sync.Mutex
	seen   bytes.Buffer // all that the program wrote
	more   *sync.Cond
	closed bool
	// answers is what the terminal sends for each ESC [ 5 n; nil: nothing.
	answers func(n int)
}

// play starts the asking program on a terminal of its own.
func play(t *testing.T, answers func(p *player, n int)) *player {
	t.Helper()
	cmd := exec.Command("tryask")
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	if answers != nil {
		cmd.Env = append(cmd.Env, "TERMINAL=answers")
	}
	return playCommand(t, cmd, answers)
}

// playCommand starts any program on a terminal of its own; what it prints on
// stdout apart from the terminal, if anything, is taken for its decision, else
// its exit status.
func playCommand(t *testing.T, cmd *exec.Cmd, answers func(p *player, n int)) *player {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	// A descriptor in the poller, so that closing it ends the read.
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	master.Close()
	master = os.NewFile(uintptr(fd), "terminal")
	p := &player{t: t, master: master, fate: make(chan string, 1)}
	p.more = sync.NewCond(&p.mu)
	if answers != nil {
		p.answers = func(n int) { answers(p, n) }
	}
	cmd.Stdin, cmd.Stderr = slave, slave
	out := io.NopCloser(strings.NewReader(""))
	if filepath.Base(cmd.Path) != "tryask" {
		cmd.Stdout = slave
	} else if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, true, 0
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	go p.listen()
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		err := cmd.Wait()
		if line == "" {
			line = fmt.Sprint(cmd.ProcessState.ExitCode(), " ", err)
		}
		p.fate <- strings.TrimSpace(line)
	}()
	t.Cleanup(func() {
		master.Close()
		_ = cmd.Process.Kill()
	})
	return p
}

// listen collects the program's output and answers its status requests.
func (p *player) listen() {
	buf := make([]byte, 1024)
	asked := 0
	for {
		n, err := p.master.Read(buf)
		p.mu.Lock()
		p.seen.Write(buf[:n])
		now := bytes.Count(p.seen.Bytes(), []byte("\x1b[5n"))
		p.closed = err != nil
		p.more.Broadcast()
		p.mu.Unlock()
		for ; asked < now; asked++ {
			if p.answers != nil {
				p.answers(asked)
			}
		}
		if err != nil {
			return
		}
	}
}

// honest answers each status request at once, as terminals do.
func honest(p *player, _ int) { p.send("\x1b[0n") }

func (p *player) send(s string) {
	if _, err := io.WriteString(p.master, s); err != nil {
		p.t.Errorf("type %q: %v", s, err)
	}
}

// wait waits until the program has written text n times.
func (p *player) wait(text string, n int) {
	p.t.Helper()
	deadline := time.AfterFunc(10*time.Second, func() {
		p.mu.Lock()
		p.closed = true
		p.more.Broadcast()
		p.mu.Unlock()
	})
	defer deadline.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for bytes.Count(p.seen.Bytes(), []byte(text)) < n {
		if p.closed {
			p.t.Fatalf("the program never wrote %q %d times, but %q", text, n, p.seen.String())
		}
		p.more.Wait()
	}
}

// decided waits for the end.
func (p *player) decided(want string) {
	p.t.Helper()
	select {
	case got := <-p.fate:
		if got != want {
			p.t.Errorf("decided %q, want %q; screen %q", got, want, p.screen())
		}
	case <-time.After(10 * time.Second):
		p.t.Fatalf("nothing was decided; screen %q", p.screen())
	}
}

func (p *player) screen() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.String()
}

func TestAskTakesExactChoices(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"c\n": "commit", "commit\n": "commit", "a\n": "abort", "abort\n": "abort", "k\n": "keep", "\x04": "keep", "\x03": "keep",
	} {
		t.Run(fmt.Sprintf("%q", typed), func(t *testing.T) {
			t.Parallel()
			p := play(t, honest)
			p.wait(prompt, 1)
			p.send(typed)
			p.decided(want)
		})
	}
}

func TestAskAsksAgain(t *testing.T) {
	t.Parallel()
	p := play(t, honest)
	for i, typed := range []string{"\n", "y\n", "C\n", "c x\n", " c\n", "cc\n", "commit!\n", "?\n", "d\n", "c\x04\x04\n"} {
		p.wait(prompt, i+1)
		p.send(typed)
	}
	p.wait(prompt, 11)
	p.wait("end of input keeps", 1)
	p.wait("THE DIFF", 1)
	p.send("a\n")
	p.decided("abort")
}

// A terminal that hangs up keeps the branch.
func TestAskKeepsWhenTheTerminalGoes(t *testing.T) {
	t.Parallel()
	p := play(t, honest)
	p.wait(prompt, 1)
	p.master.Close()
	p.decided("keep")
}

// What terminals say when a program asks: device attributes, status, cursor,
// window title, colours. Each carries letters that are choices.
var reports = []string{
	"\x1b[?1;2c", "\x1b[>41;354;0c", "\x1b[0n", "\x1b[12;40R", "\x1b]lc\x1b\\", "\x1b]l\nc\n\x1b\\",
	"\x1b]11;rgb:aaaa/cccc/dddd\x1b\\", "\x1bP>|k\x1b\\", "\x1bP1$r0m\x1b\\", "\x1b[?2026;2$y", "\x1b[I",
}

// What the terminal answers to CMD's queries before it has answered ours, and
// what was typed ahead, decides nothing.
func TestAskIgnoresEarlyReports(t *testing.T) {
	t.Parallel()
	p := play(t, func(p *player, n int) {
		if n == 0 {
			p.send("c\nc\na\n" + strings.Join(reports, "") + "c\n\x1b[0n")
			return
		}
		p.send("\x1b[0n")
	})
	p.wait(prompt, 1)
	p.send("k\n")
	p.decided("keep")
	if strings.Contains(p.screen(), "rgb:") {
		t.Errorf("an early report was echoed: %q", p.screen())
	}
}

// Reports that come while the question stands, whole or in pieces, make a line
// that is no choice, also with a choice typed behind them.
func TestAskIgnoresLateReports(t *testing.T) {
	t.Parallel()
	for _, report := range reports {
		t.Run(fmt.Sprintf("%q", report), func(t *testing.T) {
			t.Parallel()
			p := play(t, honest)
			p.wait(prompt, 1)
			p.send(report + "c\n") // at once: what is typed when the terminal has been asked again counts
			p.wait(prompt, 2)
			p.send("k\n")
			p.decided("keep")
		})
	}
}

func TestAskIgnoresReportsInPieces(t *testing.T) {
	t.Parallel()
	p := play(t, honest)
	p.wait(prompt, 1)
	const report = "\x1b[?62;22c"
	for i := range len(report) {
		p.send(report[i : i+1])
		// The echo shows that this piece has arrived by itself.
		p.wait("^[[?62;22c"[:i+2], 1)
	}
	p.send("\n")
	p.wait(prompt, 2)
	p.send("k\n")
	p.decided("keep")
}

// A terminal that never answers is asked all the same, after a moment.
func TestAskWithoutAnswers(t *testing.T) {
	t.Parallel()
	p := play(t, nil)
	p.wait(prompt, 1)
	p.send("c\n")
	p.decided("commit")
}

// One that answers late, as over a slow connection, spoils the first line with
// its answer, and gets more time then.
func TestAskWaitsForASlowTerminal(t *testing.T) {
	t.Parallel()
	p := play(t, nil)
	p.wait(prompt, 1)
	p.send("\x1b[0n")
	p.wait("^[[0n", 1)
	p.send("c\n")
	p.wait("\x1b[5n", 2)
	<-time.After(2 * answerTime) // the second answer is as late as the first
	p.send("\x1b[0n")
	p.wait(prompt, 2)
	p.send("c\n")
	p.decided("commit")
}

// The reset comes before the question, and ends what CMD left unfinished.
func TestAskResetsTheTerminal(t *testing.T) {
	t.Parallel()
	p := play(t, honest)
	p.wait(prompt, 1)
	screen := p.screen()
	for _, want := range []string{"\x18\x1b\\", "\x1b[?1049l", "\x1b[!p", "\x1b[0m", "\x1b(B", "\x1b[?25h", "\x1b[?1000l", "\x1b[?2004l", "\x1b]104", "\x1b]110", "\x1b]111"} {
		at := strings.Index(screen, want)
		if at < 0 || at > strings.Index(screen, "\x1b[5n") {
			t.Errorf("%q does not stand before the status request in %q", want, screen)
		}
	}
	p.send("\x04")
	p.decided("keep")
}
