package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long anything that is waited for may take.
const patience = 60 * time.Second

// A desk is where a test works as a user does: a home and a project of its
// own, empty /tmp and /var/tmp, no branch yet.
type desk struct {
	t               *testing.T
	dir, home, proj string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	outsideTmp(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // overlayfs makes directories that their owner cannot enter
		_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				err = os.Chmod(path, 0o700)
			}
			return err
		})
	})
	d := &desk{t: t, dir: dir, home: filepath.Join(dir, "home"), proj: filepath.Join(dir, "home", "proj")}
	if err := os.MkdirAll(d.proj, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.home, ".bashrc"), []byte("PS1='prompt> '\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return d
}

// needs skips the test where a program is missing; .ci/run installs them all.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is not installed: .ci/run must see to it", p)
			}
			t.Skipf("needs %s, which is not installed", p)
		}
	}
}

// command is a program run at the desk, from the project.
func (d *desk) command(argv ...string) *exec.Cmd {
	d.t.Helper()
	here, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		d.t.Fatal(err)
	}
	cmd := exec.Command("private", argv...)
	cmd.Dir = d.proj
	cmd.WaitDelay = patience // who keeps a pipe open is left, and fails the test
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	for _, e := range os.Environ() {
		switch name, _, _ := strings.Cut(e, "="); name {
		case "HOME", "PWD", "TMPDIR", "GOTMPDIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "TRY_STORE", "SHELL", "TERM", "LANG", "PAGER":
		default:
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, "HOME="+d.home, "PWD="+d.proj, "LANG=C.UTF-8", "TERM=xterm-256color", "SHELL=/bin/bash",
		"PAGER=cat", "PS1=prompt> ", "HISTFILE=", "INPUTRC=/dev/null", "TRY_SYNC=1", "TRY_TEST_NO="+os.Getenv("TRY_TEST_NO"), "GIT_CONFIG_NOSYSTEM=1",
		"GORACE=atexit_sleep_ms=0", // or each `try` takes a second under the race detector
		outerNamespace+"="+here)
	return cmd
}

// result is how a program ended: what it wrote, and its status as a shell
// says it.
type result struct {
	out, err string
	status   int
}

// run runs a program to its end, with stdin empty.
func (d *desk) run(argv ...string) result {
	d.t.Helper()
	return d.finish(d.command(argv...))
}

func (d *desk) finish(cmd *exec.Cmd) result {
	d.t.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &errs
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	status := d.await(cmd)
	return result{out.String(), errs.String(), status}
}

// await waits for the end of a program that was started.
func (d *desk) await(cmd *exec.Cmd) int {
	d.t.Helper()
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() {
		d.t.Fatalf("%q does not end; stderr %v", cmd.Args[1:], cmd.Stderr)
	}
	if ended, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		d.t.Fatalf("%q: %v", cmd.Args[1:], err)
	} else if ok {
		if status := ended.Sys().(syscall.WaitStatus); status.Signaled() {
			return 128 + int(status.Signal())
		}
	}
	return cmd.ProcessState.ExitCode()
}

// sh runs a shell script that must end with 0, and returns its stdout.
func (d *desk) sh(script string) string {
	d.t.Helper()
	r := d.run("sh", "-c", script)
	if r.status != 0 {
		d.t.Fatalf("sh -c %q ended with %d: %s%s", script, r.status, r.out, r.err)
	}
	return r.out
}

func (d *desk) write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.proj, name), []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// has says what a file of the project holds; "" if it is not there.
func (d *desk) has(name string) string {
	d.t.Helper()
	text, err := os.ReadFile(filepath.Join(d.proj, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
	return string(text)
}

// fifo makes a FIFO in the project. It is open on both sides, so that nobody
// waits for the other; a session gets it by a redirection outside, since what
// it opens itself by that name is another one.
func (d *desk) fifo(name string) *os.File {
	d.t.Helper()
	path := filepath.Join(d.proj, name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		d.t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { f.Close() })
	return f
}

// reads waits until a line that holds text comes out of a FIFO.
func (d *desk) reads(f *os.File, text string) {
	d.t.Helper()
	if err := f.SetReadDeadline(time.Now().Add(patience)); err != nil {
		d.t.Fatal(err)
	}
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			d.t.Fatalf("waiting for %s: %v", text, err)
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

// branches lists the branches that are there, one "NAME STATE" a line.
func (d *desk) branches() string {
	d.t.Helper()
	var b strings.Builder
	for line := range strings.Lines(d.sh("try branches")) {
		if f := strings.Fields(line); len(f) > 1 && f[0] != "NAME" {
			fmt.Fprintln(&b, f[0], f[1])
		}
	}
	return b.String()
}

// A conversation is a running program with pipes: lines come out.
type conversation struct {
	d     *desk
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Reader
	errs  bytes.Buffer
}

// start starts a program in a process group of its own.
func (d *desk) start(argv ...string) *conversation {
	d.t.Helper()
	c := &conversation{d: d, cmd: d.command(argv...)}
	c.cmd.SysProcAttr.Setpgid = true
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		d.t.Fatal(err)
	}
	c.cmd.Stderr = &c.errs
	if err := c.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	c.lines = bufio.NewReader(out)
	return c
}

// line reads one line.
func (c *conversation) line() string {
	c.d.t.Helper()
	late := time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	line, err := c.lines.ReadString('\n')
	if err != nil {
		c.d.t.Fatalf("%q: no line, but %q: %v; stderr %q", c.cmd.Args[1:], line, err, c.errs.String())
	}
	return strings.TrimSuffix(line, "\n")
}

// says waits for a line that must be this.
func (c *conversation) says(want string) {
	c.d.t.Helper()
	if got := c.line(); got != want {
		c.d.t.Fatalf("%q said %q, want %q", c.cmd.Args[1:], got, want)
	}
}

func (c *conversation) say(line string) {
	c.d.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.d.t.Fatal(err)
	}
}

func (c *conversation) signal(pid int, sig unix.Signal) {
	c.d.t.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		c.d.t.Fatalf("send %s to %d: %v", unix.SignalName(sig), pid, err)
	}
}

// ends waits for the end and returns the rest of stdout.
func (c *conversation) ends(status int) string {
	c.d.t.Helper()
	late := time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() })
	rest, err := io.ReadAll(c.lines)
	late.Stop()
	if err != nil {
		c.d.t.Fatal(err)
	}
	if got := c.d.await(c.cmd); got != status {
		c.d.t.Errorf("%q ended with %d, want %d; stderr %q", c.cmd.Args[1:], got, status, c.errs.String())
	}
	return string(rest)
}

// children are the pids of a process's children.
func children(pid int) (pids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range tasks {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the thread ended
		}
		for s := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(s); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// child is the one child of a process; what matters has been seen to run.
func (d *desk) child(pid int) int {
	d.t.Helper()
	pids := children(pid)
	if len(pids) != 1 {
		d.t.Fatalf("process %d has the children %v, want one", pid, pids)
	}
	return pids[0]
}

// hold returns what waits until a process and its namespace are gone.
func (d *desk) hold(pid int) (gone func()) {
	d.t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		d.t.Fatalf("hold process %d: %v", pid, err)
	}
	return func() {
		d.t.Helper()
		defer unix.Close(fd)
		deadline := time.Now().Add(patience)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, max(0, int(time.Until(deadline).Milliseconds())))
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n != 1 {
				d.t.Fatalf("process %d is left", pid)
			}
			return
		}
	}
}

// tallied are the signals that the program "tally" counts.
var tallied = []unix.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGHUP, unix.SIGTERM}

// tally is a program that says which signals it gets, one a line, until it
// reads the end of stdin or a line.
func tally() {
	got := make(chan os.Signal, 1000)
	for _, sig := range tallied {
		if !signal.Ignored(sig) {
			signal.Notify(got, sig)
		}
	}
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(7)
	}()
	fmt.Println("ready")
	for sig := range got {
		fmt.Println("got", unix.SignalName(sig.(unix.Signal)))
	}
}

// outlive is the program "outlive DELAY CMD ARG...": it runs CMD, sends it
// SIGKILL after DELAY, and then waits for everything that CMD left, which is
// handed to it (PR_SET_CHILD_SUBREAPER). It fails if anything outlives CMD.
func outlive() {
	fatal := func(err error) {
		fmt.Fprintln(os.Stderr, "outlive:", err)
		os.Exit(1)
	}
	delay, err := time.ParseDuration(os.Args[1])
	if err != nil {
		fatal(err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fatal(err)
	}
	path, err := exec.LookPath(os.Args[2])
	if err != nil {
		fatal(err)
	}
	pid, err := syscall.ForkExec(path, os.Args[2:], &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		fatal(err)
	}
	<-time.After(delay) // the moment is what is tested
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		fatal(err)
	}
	time.AfterFunc(patience/2, func() { fatal(fmt.Errorf("left: %v", children(os.Getpid()))) })
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		if errors.Is(err, unix.ECHILD) {
			return
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			fatal(err)
		}
	}
}
