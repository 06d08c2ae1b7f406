package supervisor_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A keyboard is before a terminal on which a program of the rig runs.
type keyboard struct {
	r      *rig
	p      *running
	master *os.File
	screen strings.Builder
	from   int // what was seen already
}

func (r *rig) keyboard(argv ...string) *keyboard {
	r.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NONBLOCK, 0)
	r.must(err)
	r.t.Cleanup(func() { master.Close() })
	conn, err := master.SyscallConn()
	r.must(err)
	var slave *os.File
	r.must(conn.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err != nil {
			return
		}
		var n int
		if n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); err == nil {
			slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
		}
	}))
	r.must(err)
	r.must(slave.Chown(r.uid, -1)) // as a login does
	cmd := r.command(argv...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	k := &keyboard{r: r, p: r.begin(cmd), master: master}
	r.must(slave.Close())
	return k
}

// talk sees and types by turns.
func (k *keyboard) talk(turns ...string) {
	k.r.t.Helper()
	k.r.must(k.master.SetReadDeadline(time.Now().Add(30 * time.Second)))
	buf := make([]byte, 4096)
	for i, s := range turns {
		if i%2 == 1 {
			_, err := k.master.WriteString(s)
			k.r.must(err)
			continue
		}
		for {
			if at := strings.Index(k.screen.String()[k.from:], s); at >= 0 {
				k.from += at + len(s)
				break
			}
			n, err := k.master.Read(buf)
			k.screen.Write(buf[:n])
			if err != nil {
				k.r.t.Fatalf("waiting for %q: %v; the screen since then: %q", s, err, k.screen.String()[k.from:])
			}
		}
	}
}

// TestConfinedTerminal: keys, jobs and the question are as ever; so is the
// terminal afterwards.
func TestConfinedTerminal(t *testing.T) {
	const prompt = "? for help: "
	r := newConfined(t)
	k := r.keyboard("env", "PS1=prompt> ", "TERM=dumb", "HISTFILE=", "PATH="+strings.TrimSuffix(binary, "/try")+":"+os.Getenv("PATH"), "bash", "--norc", "--noprofile", "-i")
	k.talk("prompt> ",
		// A shell with jobs of its own, Ctrl-Z, Ctrl-D, Ctrl-C, and its status.
		"PS1='inner> ' try bash --norc --noprofile -i\r", "inner> ", "tty; (echo u\"\"p; exec cat)\r", "/dev/pts/", "", "up\r\n", "words\r", "words\r\nwords\r\n", "\x1a",
		"Stopped", "", "inner> ", "sleep 1000 & jobs\r", "cat", "", "inner> ", "fg 1\r", "cat )\r\n", "more\r", "more\r\nmore\r\n", "\x04",
		"inner> ", "kill %2; (echo u\"\"p; exec cat)\r", "up\r\n", "last\r", "last\r\nlast\r\n", "\x03", "inner> ", "echo status $?\r", "status 130", "", "inner> ", "echo x >f; exit 5\r",
		prompt, "c\n", "committed", "", "prompt> ", "echo status $?\r", "status 5", "", "prompt> ",
		// Ctrl-C, with a terminal of the session's own and in a pipe, where the
		// signal comes to the whole group.
		"try --abort -q sh -c 'echo be\"\"gun; exec sleep 1000'\r", "begun", "\x03", "prompt> ", "echo status $?\r", "status 130", "", "prompt> ",
		"set -o pipefail; try --abort -q sh -c 'trap \"echo got I\"\"NT\" INT; echo be\"\"gun; read x; read x; exit 7' | (trap '' INT; cat)\r", "begun", "\x03", "got INT", "\r", "",
		"\r", "prompt> ", "echo status $?\r", "status 7", "", "prompt> ",
		// Ctrl-Z stops all of try; fg goes on.
		"try --abort -q sh -c 'echo be\"\"gun; read x; echo got $x; exit 3'\r", "begun", "\x1a", "Stopped", "", "prompt> ", "fg\r", "\r\n", "hello\r", "got hello", "", "prompt> ", "echo status $?\r", "status 3", "", "prompt> ",
		"echo in cooked mo\x7f\x7fxx\r", "in cooked xx", "", "prompt> ", "exit 9\r")
	k.p.wait().want(9)
	r.wantFile("f", "x\n")
	if n := strings.Count(k.screen.String(), "got INT"); n != 1 {
		t.Errorf("one Ctrl-C was seen %d times: %q", n, k.screen.String())
	}
	r.clean()
}
