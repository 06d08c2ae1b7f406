package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	// Questions go to /dev/tty; the tests must have none but those that they
	// make. A session of their own has no controlling terminal. (A process
	// group leader cannot have one, and the programs below keep theirs.)
	if strings.HasSuffix(os.Args[0], ".test") {
		_, _ = unix.Setsid()
	}
	testscript.Main(m, map[string]func(){
		"try":     main,
		"tryask":  askOnTerminal,
		"private": runPrivately,
		"attr":    showAttributes,
		"tally":   tally,
		"outlive": outlive,
	})
}

// TestScripts runs testdata/script: one claim each, on the real thing. HOME,
// cwd and temporary files of a script lie in its own work directory, which
// `make test` puts outside /tmp; those that cover /tmp run by "private".
func TestScripts(t *testing.T) {
	t.Parallel()
	outsideTmp(t)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setUp,
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":  exits,
			"signal": signalProcess,
			"await":  await,
		},
	})
}

// setUp gives a script a home and a project, the cwd.
func setUp(e *testscript.Env) error {
	home := filepath.Join(e.WorkDir, "home")
	proj := filepath.Join(e.WorkDir, "proj")
	for _, dir := range []string{home, proj} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	e.Setenv("HOME", home)
	e.Setenv("LANG", "C.UTF-8")
	e.Setenv("SHELL", "/bin/sh")
	e.Setenv("TRY_SYNC", "1")
	e.Setenv("TRY_TEST_NO", os.Getenv("TRY_TEST_NO"))
	e.Setenv("UID", strconv.Itoa(os.Getuid()))
	e.Cd = proj
	return nil
}

// exits is the script command "exits CODE PROGRAM ARG...".
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		got = ended.ExitCode()
		if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			got = 128 + int(status.Signal())
		}
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("%s exited with %d, want %d", args[1], got, want)
	}
}

// signalProcess is the script command "signal NAME PIDFILE".
func signalProcess(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: signal NAME pidfile")
	}
	var pid int
	_, err := fmt.Sscan(ts.ReadFile(args[1]), &pid)
	ts.Check(err)
	sig := unix.SignalNum("SIG" + args[0])
	if sig == 0 || pid <= 1 {
		ts.Fatalf("no signal %s, or no process %d", args[0], pid)
	}
	ts.Check(unix.Kill(pid, sig))
}

// await is the script command "await FIFO": it waits until somebody has
// written to the FIFO, which the script made by mkfifo.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await fifo")
	}
	f, err := os.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	_, err = f.Read(make([]byte, 1))
	ts.Check(errors.Join(err, f.Close()))
}

// outsideTmp makes sure that work directories are outside of what a session
// covers by itself (B39).
func outsideTmp(t *testing.T) {
	t.Helper()
	dir := os.Getenv("GOTMPDIR")
	if dir == "" {
		dir = os.TempDir()
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, covered := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		if _, ok := below(real, covered); ok {
			t.Fatalf("work directories would lie in %s; run the tests by make test, or set GOTMPDIR", covered)
		}
	}
}
