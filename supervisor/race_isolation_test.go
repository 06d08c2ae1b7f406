package supervisor_test

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// meeting is where two programs of testdata/variants meet.
type meeting struct {
	r    *rig
	dir  string
	argv []string // but for the role
}

func newMeeting(t *testing.T) *meeting {
	r := newRig(t)
	m := &meeting{r: r, dir: r.at("open")}
	r.must(os.Mkdir(m.dir, 0o777))
	for _, name := range []string{"ready", "go", "done"} {
		r.must(unix.Mkfifo(filepath.Join(m.dir, name), 0o666))
	}
	program := filepath.Join(r.dir, "variants")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./testdata/variants")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build testdata/variants: %v\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	r.must(err)
	r.must(l.Close())
	m.argv = []string{program, "", m.dir, filepath.Base(r.dir), port}
	return m
}

// role is the command line of one of the two.
func (m *meeting) role(name string) []string {
	argv := append([]string(nil), m.argv...)
	argv[1] = name
	return argv
}

// meet opens a FIFO, which waits for the other side.
func (m *meeting) meet(name string, flag int) {
	m.r.t.Helper()
	f, err := os.OpenFile(filepath.Join(m.dir, name), flag, 0)
	m.r.must(err)
	m.r.must(f.Close())
}

// introduce tells the one that reaches which process it is that holds.
func (m *meeting) introduce(pid int) {
	m.r.t.Helper()
	m.r.must(os.WriteFile(filepath.Join(m.dir, "pid"), []byte(strconv.Itoa(pid)), 0o666))
	m.meet("go", os.O_WRONLY)
}

func (m *meeting) result() map[string]string {
	m.r.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, "result"))
	m.r.must(err)
	result := map[string]string{}
	m.r.must(json.Unmarshal(text, &result))
	return result
}

// race has the two run as variants.
func (m *meeting) race(flags ...string) map[string]string {
	m.r.t.Helper()
	r := m.r
	args := append([]string{"--race", "-q", "--status-fd", "3", "--allow-write", m.dir, "--root", r.home, "--root", r.proj}, flags...)
	for _, role := range []string{"hold", "reach"} {
		args = append(args, "-c", "exec "+strings.Join(m.role(role), " "))
	}
	cmd := r.program(args...)
	cmd.Env = append(cmd.Env, "TMPDIR=/tmp")
	events, w, err := os.Pipe()
	r.must(err)
	defer events.Close()
	cmd.ExtraFiles = []*os.File{w}
	p := r.begin(cmd)
	r.must(w.Close())
	pid := 0
	for in := json.NewDecoder(events); pid == 0; {
		var e struct {
			Event      string
			Index, PID int
		}
		if err := in.Decode(&e); err != nil {
			r.t.Fatalf("no variant 1: %v: %s", err, p.wait().stderr)
		}
		if e.Event == "started" && e.Index == 1 {
			pid = e.PID
		}
	}
	m.meet("ready", os.O_RDONLY)
	m.introduce(pid)
	p.wait().want(0)
	return m.result()
}

// Outside of sessions two processes of one user share everything: each barrier
// below is one that the session makes.
func TestVariantsMeetOutside(t *testing.T) {
	m := newMeeting(t)
	hold := m.r.begin(m.r.command(m.role("hold")...))
	reach := m.r.begin(m.r.command(m.role("reach")...))
	m.meet("ready", os.O_RDONLY)
	m.introduce(hold.cmd.Process.Pid)
	reach.wait().want(0)
	hold.wait().want(0)
	for what, how := range m.result() {
		if how != "reached" {
			t.Errorf("%s: %s, so the test below proves nothing", what, how)
		}
	}
}

// Variants of a race share nothing but what was let through.
func TestVariantsAreIsolated(t *testing.T) {
	m := newMeeting(t)
	result := m.race()
	if len(result) < 13 {
		t.Errorf("only %v", result)
	}
	for what, how := range result {
		if how == "reached" && what != "port" {
			t.Errorf("%s of one variant is reached by another", what)
		}
	}
	if result["port"] != "reached" {
		t.Errorf("with the host's network the port is %s: the test below proves nothing", result["port"])
	}
	if got := newMeeting2(m).race("--net", "none")["port"]; got != "free" {
		t.Errorf("with --net none the port is %s", got)
	}
}

// newMeeting2 is a second one at the same place.
func newMeeting2(m *meeting) *meeting {
	m.r.must(os.Remove(filepath.Join(m.dir, "result")))
	return m
}
