package ns

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// needFuse skips where /dev/fuse cannot be opened. CI sets TRY_TEST_FUSE: there
// it must be.
func needFuse(t *testing.T) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
		return
	}
	if os.Getenv("TRY_TEST_FUSE") != "" {
		t.Fatalf("open /dev/fuse: %v", err)
	}
	t.Skipf("open /dev/fuse: %v", err)
}

// fuse is a FUSE mount at the directory name of the place.
func (p *place) fuse(name string, serve func(*os.File) error) Mount {
	p.t.Helper()
	return Mount{Target: p.mkdir(name), Options: "allow_other,default_permissions", Serve: serve}
}

// TestNobodyServes: a server that cannot start is an error of the start, with
// nothing left.
func TestNobodyServes(t *testing.T) {
	needFuse(t)
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		spec := set(p.spec("true"))
		broken := errors.New("no server today")
		spec.Mounts = append(spec.Mounts, p.fuse("base/served", func(*os.File) error { return broken }))
		s, err := Start(spec)
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), p.path("base/served")) {
			t.Errorf("Start() = %v, want %v and the path", err, broken)
		}
		if err == nil {
			s.Close()
		}
	})
}

// TestServerEnds: whoever waits for a server that is gone gets an error, for
// init has no descriptor of its own that would keep the connection.
func TestServerEnds(t *testing.T) {
	needFuse(t)
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		spec := set(p.spec())
		spec.Mounts = append(spec.Mounts, p.fuse("base/served", func(dev *os.File) error { return dev.Close() }))
		expect(t, spec, "ls served 2>&1 | sed 's/.*: //'", "Transport endpoint is not connected\n")
	})
}

// TestReadOnlyMounts: what lies below a root is put back to be read.
func TestReadOnlyMounts(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		below := p.mkdir("base/below")
		if err := os.WriteFile(below+"/file", []byte("outside\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		spec := set(p.spec())
		spec.Mounts = append(spec.Mounts, Mount{Target: below})
		expect(t, spec, `cat below/file; (echo inside > below/file) 2>&1 | sed 's/.*: //'; cat below/file`,
			"outside\nRead-only file system\noutside\n")
	})
}
