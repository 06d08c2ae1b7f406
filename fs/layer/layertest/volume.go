package layertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// volume, in the environment, says that this test binary runs on a file system
// of its own: the mount namespace that it must not be in, what to mount and
// where, by lines.
const volume = "TRY_TEST_VOLUME"

// Volumes are the file systems that tests make, and how: the program gets the
// image behind these words. tmpfs needs none.
var Volumes = map[string][]string{
	"tmpfs": nil,
	"ext4":  {"mkfs.ext4", "-q", "-F"},
	"xfs":   {"mkfs.xfs", "-q", "-f"},
	"btrfs": {"mkfs.btrfs", "-q", "-f"},
}

// OnVolume runs the tests of this binary that match pattern once more, with
// their temporary directories on a new file system, mounted in a mount namespace
// of its own. args are further flags. Only root can.
func OnVolume(t *testing.T, kind, pattern string, args ...string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount the image of a file system")
	}
	dir := t.TempDir()
	target, image := filepath.Join(dir, "on"), filepath.Join(dir, "image")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(target, 0o755)); err != nil {
		t.Fatal(err)
	}
	if mkfs := Volumes[kind]; mkfs != nil {
		if _, err := os.Stat("/dev/loop-control"); err != nil {
			t.Skipf("this machine has no loop devices: %v", err)
		}
		if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 1<<30)); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(mkfs[0], append(mkfs[1:], image)...).CombinedOutput(); err != nil {
			t.Fatalf("%s (e2fsprogs, xfsprogs, btrfs-progs are needed): %v: %s", mkfs[0], err, out)
		}
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	// All parents must let an ordinary user through, for tests that become one.
	for up := dir; up != "/"; up = filepath.Dir(up) {
		if fi, err := os.Stat(up); err == nil && fi.Mode()&0o011 != 0o011 {
			if err := os.Chmod(up, fi.Mode()|0o011); err != nil {
				t.Fatal(err)
			}
		}
		if up == os.TempDir() {
			break
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, append([]string{"-test.v", "-test.run=" + pattern}, args...)...)
	cmd.Env = append(os.Environ(), volume+"="+strings.Join([]string{own, kind, image, target}, "\n"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	passed, failed := strings.Count(string(out), "--- PASS"), strings.Count(string(out), "--- FAIL")
	if err != nil || passed == 0 || strings.Contains(string(out), "--- SKIP") {
		if len(out) > 8<<10 {
			out = out[len(out)-8<<10:]
		}
		t.Errorf("on %s: %d passed, %d failed, none may be skipped: %v\n%s", kind, passed, failed, err, out)
	}
	t.Logf("on %s: %d passed", kind, passed)
}

// EnterVolume is the other side of OnVolume: a package that uses it calls it
// first thing in TestMain.
func EnterVolume() error {
	words := strings.Split(os.Getenv(volume), "\n")
	if len(words) < 4 {
		return nil
	}
	os.Unsetenv(volume)
	outer, kind, image, target := words[0], words[1], words[2], words[3]
	here, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	if here == outer {
		return errors.New("not in a mount namespace of its own: nothing is mounted")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	mount := []string{"-t", kind, "-o", "loop", image, target} // mount(8) has loop devices freed by themselves
	if Volumes[kind] == nil {
		mount = []string{"-t", kind, "-o", "mode=755", kind, target}
	}
	if out, err := exec.Command("mount", mount...).CombinedOutput(); err != nil {
		return fmt.Errorf("mount %s: %w: %s", kind, err, out)
	}
	return errors.Join(os.Chmod(target, 0o755), os.Setenv("TMPDIR", target), os.Setenv("GOTMPDIR", target)) // testing.T.TempDir takes the latter
}
