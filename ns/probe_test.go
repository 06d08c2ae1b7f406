package ns

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProbeTellsTheTruth(t *testing.T) {
	p := newPlace(t)
	layers := p.mkdir("layers")
	works := true // a session of all that the needed facts are about
	s, err := Start(p.spec("true"))
	if err != nil {
		works = false
	} else if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, f := range Probe(p.base, layers) {
		t.Logf("%s: %s %v %s", f.Name, f.Found, f.Err, f.Fix)
		if f.Needed && f.Err != nil && works {
			t.Errorf("%s: %v, but a session works", f.Name, f.Err)
		}
		if f.Err != nil && f.Meaning == "" || f.Err == nil && f.Fix != "" {
			t.Errorf("%+v: a meaning belongs to what fails, and a fix only there", f)
		}
	}
	if left, err := filepath.Glob(layers + "/*"); err != nil || len(left) != 0 {
		t.Errorf("the probe left %q (%v)", left, err)
	}
}

// TestProbeFindsWhatFails: an overlay that cannot be is no overlay.
func TestProbeFindsWhatFails(t *testing.T) {
	const mounts = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	p := newPlace(t)
	err := probeOverlay(mounts, "/proc/sys", p.mkdir("layers"))
	if f, ok := errors.AsType[*Failure](err); !ok || f.Step != "create overlay" || f.What != "/proc/sys" {
		t.Errorf("an overlay on /proc/sys: %v", err)
	}
	err = probe(mounts, func(p *plan) {
		p.step("look", "/no/such")
		p.call(unix.SYS_CHDIR, "/no/such")
	})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a step that fails with ENOENT: %v", err)
	}
	// Without a user namespace of its own an ordinary user makes no others.
	if os.Geteuid() != 0 {
		if err := probe(unix.CLONE_NEWPID, nil); !errors.Is(err, unix.EPERM) {
			t.Errorf("a PID namespace without a user namespace: %v", err)
		}
	}
}

func TestFailuresExplainThemselves(t *testing.T) {
	for _, c := range []struct {
		f    Failure
		says string
		hint string
	}{
		{Failure{Step: "make namespaces", Errno: unix.EPERM}, "forbids user namespaces", "sysctl"},
		{Failure{Step: "make namespaces", Errno: unix.ENOSPC}, "limit of namespaces", "max_user_namespaces"},
		{Failure{Step: "move mount", Errno: unix.ENOSPC}, "limit of mounts", "fs.mount-max"},
		{Failure{Step: "create overlay", What: "/x", Errno: unix.ENODEV}, "no overlayfs", "modprobe"},
		{Failure{Step: "enter working directory", What: "/x", Errno: unix.ENOENT}, "on /x: no such file or directory", ""},
		{Failure{Step: "run"}, "without a word", ""},
	} {
		text := c.f.Error()
		if !strings.HasPrefix(text, "init: "+c.f.Step) || !strings.Contains(text, c.says) {
			t.Errorf("%+v says %q, want %q in it", c.f, text, c.says)
		}
		if hint := c.f.Hint(); !strings.Contains(hint, c.hint) || (hint == "") != (c.hint == "") {
			t.Errorf("%+v: hint %q, want %q in it", c.f, hint, c.hint)
		}
	}
	if got := kernelLog([]byte("e overlay: bad thing\n\x00\x00")); got != "overlay: bad thing" {
		t.Errorf("kernelLog = %q", got)
	}
}
