package ns

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestConfinedLimit: without namespaces a session gets so many processes beside
// those that its user has, and never all that he may have.
func TestConfinedLimit(t *testing.T) {
	if err := Confinable(); err != nil {
		t.Skip(err)
	}
	if os.Getuid() != 0 {
		t.Skip("only root can be a user who has no other process")
	}
	// One that ends by itself at a count; the shell ends where it cannot fork.
	const starts = `i=0; while test $i -lt 120; do sleep 1000 & i=$((i+1)); echo; done 2>/dev/null`
	for _, c := range []struct {
		limit       uint64
		least, most int
	}{{1000, 30, 40}, {40, 2, 20}} {
		cmd := exec.CommandContext(ctx(t), "/proc/self/exe", "helper:try", "-confined", "40", "sh", "-c", starts)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
		cmd.Dir = "/"
		var own unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err != nil {
			t.Fatal(err)
		}
		// What root starts inherits it, and it does not bind root.
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: c.limit, Max: own.Max}); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.Output()
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &own); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(out), "\n"); n < c.least || n > c.most || err == nil {
			t.Errorf("where the user may have %d processes there were %d, want %d to %d (%v)", c.limit, n, c.least, c.most, err)
		}
	}
}

// TestForbidden: what forbids namespaces is told from what else may fail.
func TestForbidden(t *testing.T) {
	for _, c := range []struct {
		step  string
		errno unix.Errno
		want  bool
	}{
		{"make namespaces", unix.EPERM, true}, {"make namespaces", unix.ENOSPC, true}, {"make namespaces", unix.EINVAL, true},
		{"map ids", unix.EPERM, true}, {"map ids", unix.EACCES, true}, {"make mounts private", unix.EACCES, true}, // AppArmor
		{"make namespaces", unix.EAGAIN, false}, {"make namespaces", unix.ENOMEM, false}, {"mount proc", unix.EPERM, false}, {"run", 0, false},
	} {
		if f := (&Failure{Step: c.step, Errno: c.errno}); f.Forbidden() != c.want {
			t.Errorf("%v is taken for forbidden: %v", f, !c.want)
		}
	}
}
