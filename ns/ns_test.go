package ns

import (
	"bytes"
	"context"
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

// helpers are what the test binary does inside or beside a session when its
// first argument names one of them.
var helpers = map[string]func(args []string) int{}

func TestMain(m *testing.M) {
	Init()
	if len(os.Args) > 1 {
		if h, ok := strings.CutPrefix(os.Args[1], "helper:"); ok {
			os.Exit(helpers[h](os.Args[2:]))
		}
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // a helper built with -race sleeps a second otherwise
	os.Exit(m.Run())
}

// self is the command line of helper name.
func self(name string, args ...string) []string {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{exe, "helper:" + name}, args...)
}

// A place is a base with one file, and room for layers.
type place struct {
	t    *testing.T
	dir  string
	base string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir()}
	p.base = filepath.Join(p.dir, "base")
	p.mkdir("base")
	p.write("base/file", "old")
	return p
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

func (p *place) mkdir(name string) string {
	p.t.Helper()
	if err := os.MkdirAll(p.path(name), 0o755); err != nil {
		p.t.Fatal(err)
	}
	return p.path(name)
}

func (p *place) write(name, text string) string {
	p.t.Helper()
	if err := os.WriteFile(p.path(name), []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
	return p.path(name)
}

func (p *place) read(name string) string {
	p.t.Helper()
	text, err := os.ReadFile(p.path(name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// overlay captures directory name of the place, with a layer of its own.
func (p *place) overlay(name string) Mount {
	p.t.Helper()
	layer, err := os.MkdirTemp(p.mkdir("store"), "layer-")
	if err != nil {
		p.t.Fatal(err)
	}
	// The work directory of an overlay is mode 000 inside.
	p.t.Cleanup(func() {
		for _, d := range []string{"work", "work/incompat", "work/incompat/volatile"} {
			os.Chmod(filepath.Join(layer, "work", d), 0o700)
		}
	})
	for _, d := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(layer, d), 0o755); err != nil {
			p.t.Fatal(err)
		}
	}
	return Mount{
		Target: p.path(name), Lower: []string{p.path(name)},
		Upper: filepath.Join(layer, "upper"), Work: filepath.Join(layer, "work"),
	}
}

// spec is a session with one overlay on the base, as the caller's kind.
func (p *place) spec(argv ...string) *Spec {
	p.t.Helper()
	return &Spec{
		Programs: []Program{{Argv: argv}}, Env: os.Environ(), Dir: p.base,
		Mounts: []Mount{p.overlay("base")}, Covers: []string{p.path("store")},
		Root: os.Geteuid() == 0, Marker: "test\n",
	}
}

// forms runs f for each way in which init can start, and for root also with
// the form of an ordinary user.
func forms(t *testing.T, f func(t *testing.T, set func(*Spec) *Spec)) {
	t.Helper()
	for _, again := range []bool{false, true} {
		for _, root := range []bool{false, true} {
			if root && os.Geteuid() != 0 {
				continue
			}
			t.Run(fmt.Sprintf("again=%v/root=%v", again, root), func(t *testing.T) {
				f(t, func(s *Spec) *Spec {
					s.ReExec, s.Root = again, root
					return s
				})
			})
		}
	}
}

func start(t *testing.T, spec *Spec) *Session {
	t.Helper()
	s, err := Start(spec)
	if err != nil {
		t.Fatalf("Start(%q) = %v", spec.Programs[0].Argv, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return s
}

// run runs a session to its end and returns what its first program wrote.
func run(t *testing.T, spec *Spec) (string, Exit) {
	t.Helper()
	r, w := pipe(t)
	spec.Programs[0].Stdio[1], spec.Programs[0].Stdio[2] = w, w
	s := start(t, spec)
	spec.Programs[0].Stdio = [3]*os.File{}
	w.Close()
	var out bytes.Buffer
	all := make(chan error, 1)
	go func() {
		_, err := io.Copy(&out, r)
		all <- err
	}()
	exit := wait(t, s)
	if _, err := s.End(ctx(t), 0); err != nil {
		t.Fatalf("End() = %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close() = %v", err)
	}
	if err := <-all; err != nil { // init kept the pipe open, for the next program
		t.Fatal(err)
	}
	return out.String(), exit
}

func wait(t *testing.T, s *Session) Exit {
	t.Helper()
	exit, err := s.Wait(ctx(t))
	if err != nil {
		t.Fatalf("Wait() = %v", err)
	}
	return exit
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// ctx ends long after everything should have happened.
func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return c
}

// expect runs a shell script in the session of spec and compares its output.
func expect(t *testing.T, spec *Spec, script, want string) {
	t.Helper()
	spec.Programs[0].Argv = []string{"sh", "-c", script}
	out, exit := run(t, spec)
	if out != want || exit.Code != 0 {
		t.Errorf("sh -c %q: output %q, %+v; want %q", script, out, exit, want)
	}
}

// helper:try is a supervisor as small as can be, for tests that must kill it
// or give it a terminal of its own.
func init() {
	helpers["try"] = func(args []string) int {
		spec := &Spec{Env: os.Environ(), Root: os.Geteuid() == 0}
		spec.Dir, _ = os.Getwd()
		for ; len(args) > 0 && strings.HasPrefix(args[0], "-"); args = args[1:] {
			switch args[0] {
			case "-pty":
				spec.Terminal = true
			case "-again":
				spec.ReExec = true
			case "-user": // the form of an ordinary user, also for root
				spec.Root = false
			case "-confined": // and with room for that many processes
				spec.Confined = true
				spec.Processes, _ = strconv.Atoi(args[1])
				args = args[1:]
			case "-layer":
				layer := args[1]
				args = args[1:]
				spec.Mounts = []Mount{{Target: spec.Dir, Lower: []string{spec.Dir}, Upper: layer + "/upper", Work: layer + "/work"}}
			}
		}
		spec.Programs = []Program{{Argv: args}}
		signals := make(chan os.Signal, 8)
		signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1)
		s, err := Start(spec)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 125
		}
		defer s.Close()
		for _, w := range s.Warnings() {
			fmt.Fprintln(os.Stderr, "warning:", w)
		}
		go func() {
			for sig := range signals {
				s.Signal(sig.(syscall.Signal))
			}
		}()
		exit, err := s.Wait(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 125
		}
		if _, err := s.End(context.Background(), time.Second); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 125
		}
		return exit.Code
	}
}

// command is helper name as a process of the test.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	argv := self(name, args...)
	c := exec.CommandContext(ctx(t), argv[0], argv[1:]...)
	c.Stderr = os.Stderr
	return c
}
