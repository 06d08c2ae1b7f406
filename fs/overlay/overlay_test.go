package overlay

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/engine"
	"try/fs/sys"
)

func TestProbe(t *testing.T) {
	mounts, err := sys.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	o := Overlay{}
	refused := func(root string) *engine.Refusal {
		t.Helper()
		err := o.Probe(root, mounts)
		if err == nil {
			return nil
		}
		r, ok := errors.AsType[*engine.Refusal](err)
		if !ok {
			t.Fatalf("Probe(%s) = %v, want a refusal or nil", root, err)
		}
		return r
	}
	if r := refused(t.TempDir()); r != nil {
		t.Errorf("Probe of an ordinary directory = %v", r)
	}
	if r := refused("/"); r == nil || r.Below == "" || r.Hint() == "" {
		t.Errorf("Probe of / = %v, want a refusal that names a mount, with a hint", r)
	}
	if r := refused("/proc/sys"); r == nil {
		t.Error("Probe of /proc/sys = nil, want a refusal")
	}
	t.Setenv("TRY_TEST_NO", "overlay")
	if r := refused(t.TempDir()); r == nil {
		t.Error("Probe with the engine switched off = nil, want a refusal")
	}
}

func TestHolds(t *testing.T) {
	o := Overlay{}
	dir := t.TempDir()
	if err := o.Holds(dir); err != nil {
		t.Errorf("Holds of an ordinary directory = %v", err)
	}
	if err := o.Holds("/proc"); err == nil {
		t.Error("Holds of /proc = nil, want an error")
	}
	if err := o.Holds(filepath.Join(dir, "missing")); !errors.Is(err, unix.ENOENT) {
		t.Errorf("Holds of what is not there = %v, want ENOENT", err)
	}
	shm, err := os.MkdirTemp("/dev/shm", "try-test-")
	if err != nil {
		t.Skipf("no memory file system to write to: %v", err)
	}
	defer os.Remove(shm)
	var st unix.Statfs_t
	if err := unix.Statfs(shm, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Skip("/dev/shm is no tmpfs")
	}
	if err := o.Holds(shm); err != nil {
		t.Errorf("Holds of a tmpfs = %v, want nil since Linux 6.6", err)
	}
	buf := make([]byte, 64)
	if n, err := unix.Listxattr(shm, buf); n != 0 || err != nil {
		t.Errorf("Holds left attributes: %q, %v", buf[:n], err)
	}
	t.Setenv("TRY_TEST_NO", "tmpfs-xattr")
	if err := o.Holds(shm); !errors.Is(err, engine.ErrUnsupported) {
		t.Errorf("Holds of a tmpfs without user attributes = %v, want a refusal", err)
	}
	if err := o.Holds(dir); err != nil {
		t.Errorf("Holds of an ordinary directory = %v, whatever tmpfs lacks", err)
	}
}

func TestMountTakesFlagsFromBelow(t *testing.T) {
	t.Parallel()
	m := Overlay{}.Mount("/home/u", "/s/u0", "/s/w0", sys.Mount{Options: []string{"rw", "nosuid", "noexec", "relatime"}})
	if m.Type != "overlay" || m.Target != "/home/u" || len(m.Lower) != 1 || m.Lower[0] != "/home/u" || m.Upper != "/s/u0" || m.Work != "/s/w0" {
		t.Errorf("Mount = %+v", m)
	}
	if !m.NoExec || !m.NoSuid || m.NoDev {
		t.Errorf("flags = %v %v %v, want noexec, nosuid, not nodev", m.NoExec, m.NoSuid, m.NoDev)
	}
}
