package supervisor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/layer/layertest"
)

// The tests of this package run the real program, built once, in directories
// of their own. What a test needs besides, in a process of its own, is a
// helper: this binary again, told by the environment.

var binary string // the program

// itself is this test binary at a place where other users may run it: go test
// builds it in a directory of mode 0700.
var itself string

const helperVariable = "TRY_TEST_HELPER"

var helpers = map[string]func([]string) error{
	"private":   private,
	"forbidden": forbidden,
	"reap":      reap,
	"send":      send,
	"deep":      deep,
	"stopped":   stopped,
	"many":      many,
	"save":      save,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVariable); name != "" {
		os.Unsetenv(helperVariable)
		if err := helpers[name](os.Args[1:]); err != nil {
			if ended, ok := errors.AsType[*exec.ExitError](err); ok {
				os.Exit(status(ended.ProcessState))
			}
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(99)
		}
		os.Exit(0)
	}
	code, err := testMain(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func testMain(m *testing.M) (int, error) {
	if err := layertest.EnterVolume(); err != nil {
		return 1, err
	}
	// Without a controlling terminal nothing is asked.
	_, _ = unix.Setsid()
	unix.Umask(0o022)
	dir, err := os.MkdirTemp("", "try-binary-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, err
	}
	if binary = os.Getenv("TRY_TEST_BINARY"); binary == "" {
		binary = filepath.Join(dir, "try")
		build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "../cmd/try")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return 1, fmt.Errorf("build the program: %w\n%s", err, out)
		}
	}
	if err := os.Setenv("TRY_TEST_BINARY", binary); err != nil { // for those on other volumes
		return 1, err
	}
	exe, err := os.Executable()
	if err != nil {
		return 1, err
	}
	text, err := os.ReadFile(exe)
	if err != nil {
		return 1, err
	}
	itself = filepath.Join(dir, "supervisor.test")
	if err := os.WriteFile(itself, text, 0o755); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// rig is one test's home and project, the cwd.
type rig struct {
	t               *testing.T
	dir, home, proj string
	env             []string
	uid             int // whom the program runs as
	groups          []uint32
}

// newRig makes a rig for the user that runs the tests, and the test parallel.
// The scope is "dir" unless a flag says otherwise: only the project is
// captured, and nothing of the machine's is touched (B39).
func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	return makeRig(t)
}

func makeRig(t *testing.T) *rig {
	t.Helper()
	temp, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, covered := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		if strings.HasPrefix(temp+"/", covered+"/") {
			t.Fatalf("work directories would lie in %s; run the tests by make test, or set TMPDIR", covered)
		}
	}
	dir, err := os.MkdirTemp(temp, "try-end-")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, home: filepath.Join(dir, "home"), proj: filepath.Join(dir, "proj"), uid: os.Getuid()}
	t.Cleanup(func() {
		if err := removeAll(dir); err != nil {
			t.Error(err)
		}
	})
	r.must(os.Chmod(dir, 0o755))
	config := filepath.Join(r.home, ".config/try")
	r.must(os.MkdirAll(config, 0o755))
	r.must(os.MkdirAll(r.proj, 0o755))
	r.must(os.WriteFile(filepath.Join(config, "policy.toml"), []byte("[session]\nscope = \"dir\"\n"), 0o644))
	for _, v := range os.Environ() {
		switch name, _, _ := strings.Cut(v, "="); {
		case name == "HOME", strings.HasPrefix(name, "XDG_"), strings.HasPrefix(name, "TRY_"), name == "NO_COLOR":
		default:
			r.env = append(r.env, v)
		}
	}
	r.env = append(r.env, "HOME="+r.home, "SHELL=/bin/sh", "LANG=C.UTF-8", "TRY_SYNC=1", withoutEngine())
	return r
}

// withoutEngine hands on which engine the tests are to do without: the whole
// suite runs on either (make test).
func withoutEngine() string { return "TRY_TEST_NO=" + os.Getenv("TRY_TEST_NO") }

// onFuse says that the suite runs on the fuse engine.
func onFuse() bool { return os.Getenv("TRY_TEST_NO") == "overlay" }

// become makes the program, and all that is there, another user's: an ordinary
// one, where the tests run as root.
func (r *rig) become(uid int) {
	r.t.Helper()
	r.uid = uid
	r.must(filepath.Walk(r.dir, func(path string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Lchown(path, uid, uid))
	}))
}

func (r *rig) must(err error) {
	if err != nil {
		r.t.Helper()
		r.t.Fatal(err)
	}
}

// store is the home store.
func (r *rig) store() string { return filepath.Join(r.home, ".local/state/try") }

// at is the path of an entry of the project.
func (r *rig) at(name string) string { return filepath.Join(r.proj, name) }

// write makes a file of the project, and the directories above it.
func (r *rig) write(name, content string) {
	r.t.Helper()
	r.must(os.MkdirAll(filepath.Dir(r.at(name)), 0o755))
	r.must(os.WriteFile(r.at(name), []byte(content), 0o644))
}

// read is a file of the project, or why it cannot be read.
func (r *rig) read(name string) string {
	b, err := os.ReadFile(r.at(name))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// wantFile compares a file of the project.
func (r *rig) wantFile(name, content string) {
	r.t.Helper()
	if got := r.read(name); got != content {
		r.t.Errorf("%s holds %q, want %q", name, got, content)
	}
}

// outside runs a shell script in the project, as a neighbour would.
func (r *rig) outside(script string) {
	r.t.Helper()
	r.finish(r.command("/bin/sh", "-euc", script)).want(0)
}

// command is any program in the project; not started.
func (r *rig) command(argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = r.proj
	cmd.Env = append([]string(nil), r.env...)
	if r.uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(r.uid), Gid: uint32(r.uid), Groups: r.groups}}
	}
	return cmd
}

// helper is a program of the tests, with what it is to run.
func (r *rig) helper(name string, argv ...string) *exec.Cmd {
	cmd := r.command(append([]string{itself}, argv...)...)
	cmd.Env = append(cmd.Env, helperVariable+"="+name)
	return cmd
}

// program is the program itself; not started.
func (r *rig) program(args ...string) *exec.Cmd {
	return r.command(append([]string{binary}, args...)...)
}

// try runs the program to its end.
func (r *rig) try(args ...string) *outcome {
	r.t.Helper()
	return r.finish(r.program(args...))
}

// sh runs a shell script in a branch: flags, then the script.
func (r *rig) sh(flagsAndScript ...string) *outcome {
	r.t.Helper()
	return r.finish(r.shell(flagsAndScript...))
}

// shell is sh, not started.
func (r *rig) shell(flagsAndScript ...string) *exec.Cmd {
	last := len(flagsAndScript) - 1
	args := append(flagsAndScript[:last:last], "--", "/bin/sh", "-euc", flagsAndScript[last])
	return r.program(args...)
}

// outcome is how a program ended.
type outcome struct {
	r              *rig
	argv           []string
	code           int // 128+n after a signal
	stdout, stderr string
}

// finish runs a command to its end.
func (r *rig) finish(cmd *exec.Cmd) *outcome {
	r.t.Helper()
	return r.begin(cmd).wait()
}

// running is a command that was started.
type running struct {
	r        *rig
	cmd      *exec.Cmd
	out, err bytes.Buffer
}

// begin starts a command. It is killed if the test ends before it does.
func (r *rig) begin(cmd *exec.Cmd) *running {
	r.t.Helper()
	p := &running{r: r, cmd: cmd}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.err
	}
	r.must(cmd.Start())
	r.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return p
}

// wait waits for its end.
func (p *running) wait() *outcome {
	p.r.t.Helper()
	err := p.cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		p.r.t.Fatalf("%q: %v", p.cmd.Args, err)
	}
	return &outcome{p.r, p.cmd.Args, status(p.cmd.ProcessState), p.out.String(), p.err.String()}
}

func status(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// want ends the test if the exit status is another.
func (o *outcome) want(code int) *outcome {
	o.r.t.Helper()
	if o.code != code {
		o.r.t.Fatalf("%q ended with %d, want %d\nstdout: %s\nstderr: %s", o.argv, o.code, code, o.stdout, o.stderr)
	}
	return o
}

// says wants each text on stderr.
func (o *outcome) says(texts ...string) *outcome {
	o.r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(o.stderr, text) {
			o.r.t.Errorf("%q does not say %q:\n%s", o.argv, text, o.stderr)
		}
	}
	return o
}

// document is what the tests read of the result document (DESIGN §8).
type document struct {
	Version   int      `json:"version"`
	Branch    string   `json:"branch"`
	ID        string   `json:"id"`
	Command   []string `json:"command"`
	ExitCode  *int     `json:"exit_code"`
	Settled   string   `json:"settled"`
	Reason    string   `json:"reason"`
	Roots     []docRoot
	Conflicts []struct{ Path, Reason string }
	Resolved  []struct{ Path, How string }
	Killed    []struct {
		PID     int
		Command string
	}
	Warnings []string
	Error    *string
}

type docRoot struct {
	Path    string
	Changes []struct {
		Path    string
		PathB64 string `json:"path_b64"`
		Kind    string
		Type    string
		Target  *string
	}
}

// document is the result document that was printed.
func (o *outcome) document() *document {
	o.r.t.Helper()
	d := &document{}
	if err := json.Unmarshal([]byte(o.stdout), d); err != nil {
		o.r.t.Fatalf("%q: %v\nstdout: %s\nstderr: %s", o.argv, err, o.stdout, o.stderr)
	}
	return d
}

// conflicts are the paths in conflict, each once.
func (d *document) conflicts() map[string]bool {
	all := map[string]bool{}
	for _, c := range d.Conflicts {
		all[c.Path] = true
	}
	return all
}

// branches lists name and state of each branch.
func (r *rig) branches() map[string]string {
	r.t.Helper()
	o := r.try("branches", "--json").want(0)
	var list []struct{ Name, State string }
	r.must(json.Unmarshal([]byte(o.stdout), &list))
	all := map[string]string{}
	for _, b := range list {
		all[b.Name] = b.State
	}
	return all
}

// removeAll removes a tree whatever its modes are.
func removeAll(dir string) error {
	out, err := exec.Command("/bin/sh", "-c", `chmod -R u+rwx "$1" 2>/dev/null; rm -rf -- "$1"`, "sh", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("remove %s: %w: %s", dir, err, out)
	}
	return nil
}
