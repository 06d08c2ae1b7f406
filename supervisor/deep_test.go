package supervisor_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// deep makes, below a directory, another and in that another, and so on, and a
// file in the last one.
func deep(args []string) error {
	depth, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	at, err := unix.Open(args[0], unix.O_PATH|unix.O_DIRECTORY, 0)
	for i := 0; i < depth && err == nil; i++ {
		if err = unix.Mkdirat(at, "d", 0o755); err == nil || errors.Is(err, unix.EEXIST) {
			at, err = enter(at)
		}
	}
	if err != nil {
		return err
	}
	fd, err := unix.Openat(at, "bottom", unix.O_CREAT|unix.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte(args[2]))
	return err
}

// enter goes down by one.
func enter(at int) (int, error) {
	next, err := unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	return next, errors.Join(err, unix.Close(at))
}

// bottom says how deep a tree is and what the file at its end holds.
func bottom(dir string) (depth int, content string) {
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err.Error()
	}
	defer func() { unix.Close(at) }()
	for {
		next, err := unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			break
		}
		unix.Close(at)
		at = next
		depth++
	}
	fd, err := unix.Openat(at, "bottom", unix.O_RDONLY, 0)
	if err != nil {
		return depth, err.Error()
	}
	defer unix.Close(fd)
	buf := make([]byte, 64)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return depth, err.Error()
	}
	return depth, string(buf[:n])
}

// many makes empty files, a thousand to a directory.
func many(args []string) error {
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	for i := range count {
		dir := filepath.Join(args[0], strconv.Itoa(i/1000))
		if i%1000 == 0 {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
		}
		fd, err := unix.Open(filepath.Join(dir, strconv.Itoa(i)), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		unix.Close(fd)
	}
	return nil
}

// few runs the program with 256 descriptors, and says what it took.
func (r *rig) few(args ...string) *outcome {
	r.t.Helper()
	cmd := r.command(append([]string{"/bin/sh", "-c", `ulimit -n 256; exec "$@"`, "sh", binary}, args...)...)
	o := r.finish(cmd)
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.t.Logf("%.40q: %d MB, %v", args, usage.Maxrss>>10, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		if usage.Maxrss > 1<<20 {
			r.t.Errorf("%.40q took %d MB", args, usage.Maxrss>>10)
		}
	}
	return o
}

// TestDeep: trees of any depth are planned, committed, dropped, replaced and
// thrown away with few descriptors and little memory (H30).
func TestDeep(t *testing.T) {
	depth := 20_000
	r := newRig(t)
	helper := func(name string, args ...string) []string {
		return append([]string{"env", helperVariable + "=" + name, itself}, args...)
	}
	down := func(content string) []string { return helper("deep", ".", fmt.Sprint(depth), content) }
	want := func(what string, depth int, content string) {
		t.Helper()
		if d, c := bottom(r.proj); d != depth || c != content {
			t.Fatalf("%s: depth %d with %q, want %d with %q", what, d, c, depth, content)
		}
	}
	r.few(append([]string{"-y", "-q", "--"}, down("one")...)...).want(0)
	want("added", depth, "one")
	// In the session overlayfs itself looks at each directory above whatever it
	// copies up or deletes: half a minute for 20,000.
	r.outside("rm -r d")
	depth = 4_000
	r.few(append([]string{"--abort", "-q", "--"}, down("dropped")...)...).want(0)
	want("aborted", 0, "no such file or directory")
	depth = 2_000
	r.few(append([]string{"-y", "-q", "--"}, down("one")...)...).want(0)
	r.few(append([]string{"-y", "-q", "--"}, down("two")...)...).want(0)
	want("modified", depth, "two")
	r.few("-y", "-q", "--", "rm", "-r", "d").want(0)
	want("deleted", 0, "no such file or directory")
	r.few(append([]string{"--keep", "-q", "-b", "new", "--"}, down("kept")...)...).want(0)
	r.few("commit", "-q", "new").want(0)
	want("kept", depth, "kept")
	r.few("--keep", "-q", "-b", "other", "--", "/bin/sh", "-euc", `rm -r d; mkdir d; `+helperVariable+`=deep "`+itself+`" . 3000 three`).want(0)
	r.few("commit", "-q", "other").want(0)
	want("replaced", 3_000, "three")
	r.few("-q", "true").want(0)
	r.clean()
}

// TestMany: as many entries as one likes.
func TestMany(t *testing.T) {
	count := 20_000
	r := newRig(t)
	run := []string{"env", helperVariable + "=many", itself, "tree", strconv.Itoa(count)}
	r.must(os.Mkdir(r.at("tree"), 0o755))
	found := func() int {
		out, err := exec.Command("find", r.at("tree"), "-type", "f").Output()
		r.must(err)
		n := 0
		for _, b := range out {
			if b == '\n' {
				n++
			}
		}
		return n
	}
	r.few(append([]string{"--abort", "-q", "--"}, run...)...).want(0)
	if n := found(); n != 0 {
		t.Fatalf("%d files after an abort", n)
	}
	o := r.few(append([]string{"-y", "--"}, run...)...).want(0)
	if n := found(); n != count {
		t.Fatalf("%d files, want %d", n, count)
	}
	if len(o.stderr) > 64<<10 {
		t.Errorf("the summary has %d bytes", len(o.stderr))
	}
	r.few("-y", "-q", "--", "sh", "-c", "rm -r tree/1?; chmod -R go-r tree; rm -r tree/2*; mkdir tree/2").want(0)
	r.few("-y", "-q", "--", "rm", "-r", "tree").want(0)
	r.clean()
}
