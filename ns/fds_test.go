package ns

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tree describes everything below dir that an attack could alter.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %o %d %v %v", path, st.Mode, st.Size, st.Mtim, st.Ctim)
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %q", text)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func open(t *testing.T, path string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// layerOf makes a layer for helper:try -layer.
func layerOf(p *place) string { return filepath.Dir(p.overlay("base").Upper) }

// tries are the ways to start helper:try for the forms of this user.
func tries() [][]string {
	if os.Geteuid() == 0 {
		return [][]string{{}, {"-user"}, {"-again"}}
	}
	return [][]string{{}, {"-again"}}
}

// TestInheritedDescriptorsAreNoDoor gives CMD each kind of descriptor that was
// opened outside and lets it do its worst with each.
func TestInheritedDescriptorsAreNoDoor(t *testing.T) {
	for _, kind := range []struct {
		name  string
		path  string
		flags int
		stdin bool
	}{
		{"stdin, file in a root", "base/file", os.O_RDONLY, true},
		{"stdin, file outside", "beside/file", os.O_RDONLY, true},
		{"stdin, directory", "base", os.O_RDONLY, true},
		{"stdin, deleted file", "base/deleted", os.O_RDONLY, true},
		{"3, directory in a root", "base/dir", os.O_RDONLY, false},
		{"3, directory outside", "beside", os.O_RDONLY, false},
		{"3, directory outside, O_PATH", "beside", unix.O_PATH, false},
		{"3, file outside, O_PATH", "beside/file", unix.O_PATH, false},
		{"3, file in a root", "base/file", os.O_RDONLY, false},
		{"3, file outside", "beside/file", os.O_RDONLY, false},
		{"3, below what is hidden", "store/file", os.O_RDONLY, false},
	} {
		for _, form := range tries() {
			t.Run(kind.name+strings.Join(form, ""), func(t *testing.T) {
				p := newPlace(t)
				p.mkdir("base/dir")
				p.mkdir("beside")
				p.mkdir("store")
				for _, f := range []string{"base/deleted", "base/dir/file", "beside/file", "store/file"} {
					p.write(f, "old")
				}
				layer := layerOf(p)
				f := open(t, p.path(kind.path), kind.flags)
				if kind.name == "stdin, deleted file" {
					if err := os.Remove(p.path(kind.path)); err != nil {
						t.Fatal(err)
					}
				}
				before := tree(t, p.base) + tree(t, p.path("beside"))
				c := command(t, "try", append(append(form, "-layer", layer), self("attack")...)...)
				c.Dir = p.base
				if kind.stdin {
					c.Stdin = f
				} else {
					c.ExtraFiles = []*os.File{f}
				}
				var errs bytes.Buffer
				c.Stderr = &errs
				out, err := c.Output()
				if err != nil || !strings.HasSuffix(string(out), "tried\n") {
					t.Fatalf("%v, %s, %s", err, out, errs.String())
				}
				if after := tree(t, p.base) + tree(t, p.path("beside")); after != before {
					t.Errorf("before:\n%safter:\n%sattack: %s", before, after, out)
				}
			})
		}
	}
}

func init() {
	helpers["attack"] = func([]string) int {
		for fd := range 10 {
			var st unix.Stat_t
			if fd == 1 || fd == 2 || unix.Fstat(fd, &st) != nil {
				continue
			}
			self := fmt.Sprintf("/proc/self/fd/%d", fd)
			for _, flags := range []int{unix.O_WRONLY | unix.O_TRUNC, unix.O_RDWR | unix.O_APPEND} {
				if out, err := unix.Open(self, flags, 0); err == nil {
					unix.Write(out, []byte("escaped"))
					unix.Close(out)
				}
			}
			for _, name := range []string{"escaped", "../escaped", "file", "../beside/file"} {
				if out, err := unix.Openat(fd, name, unix.O_CREAT|unix.O_RDWR, 0o644); err == nil {
					unix.Write(out, []byte("escaped"))
					unix.Close(out)
				}
				unix.Unlinkat(fd, name, 0)
			}
			unix.Fchmod(fd, 0o777)
			unix.Chmod(self, 0o707)
			unix.Fchown(fd, os.Getuid(), os.Getgid())
			unix.Futimes(fd, []unix.Timeval{{Sec: 1}, {Sec: 1}})
			unix.UtimesNanoAt(fd, "", []unix.Timespec{{Sec: 1}, {Sec: 1}}, unix.AT_EMPTY_PATH)
			unix.Fsetxattr(fd, "user.escaped", []byte("x"), 0)
			var noDump uint64 = 0x40 // FS_NODUMP_FL
			unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.FS_IOC_SETFLAGS, uintptr(unsafe.Pointer(&noDump)))
			unix.Linkat(fd, "", unix.AT_FDCWD, "../beside/linked", unix.AT_EMPTY_PATH)
			unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, "../beside/linked", unix.AT_SYMLINK_FOLLOW)
			if unix.Fchdir(fd) == nil {
				for range 3 {
					unix.Mkdir("made", 0o755)
					os.WriteFile("file", []byte("escaped"), 0o644)
					unix.Chdir("..")
				}
			}
		}
		fmt.Println("tried")
		return 0
	}
}

func TestDescriptorsAboveTwo(t *testing.T) {
	for _, form := range tries() {
		p := newPlace(t)
		p.write("read", "abcdef")
		p.write("written", "")
		r, w := pipe(t)
		if _, err := w.WriteString("piped"); err != nil {
			t.Fatal(err)
		}
		w.Close()
		gone := open(t, p.write("gone", "x"), os.O_RDONLY)
		if err := os.Remove(p.path("gone")); err != nil {
			t.Fatal(err)
		}
		read := open(t, p.path("read"), os.O_RDONLY)
		if _, err := read.Seek(2, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		c := command(t, "try", append(form, "sh", "-c", "cat <&3; cat <&4; echo through >&5; (true <&6) 2>/dev/null || echo closed")...)
		c.Dir = p.base
		c.ExtraFiles = []*os.File{read, r, open(t, p.path("written"), os.O_WRONLY), gone}
		var errs bytes.Buffer
		c.Stderr = &errs
		out, err := c.Output()
		if err != nil || string(out) != "cdefpipedclosed\n" {
			t.Errorf("%q: %v, %q, %q", form, err, out, errs.String())
		}
		if got := p.read("written"); got != "through\n" {
			t.Errorf("%q: a file that the caller opened for writing has %q", form, got)
		}
		if !strings.Contains(errs.String(), "descriptor 6 (") || !strings.Contains(errs.String(), "closed") {
			t.Errorf("%q: no warning of the closed descriptor: %q", form, errs.String())
		}
	}
}

// TestOffsetOfStdin: what CMD has read, the caller need not read again.
func TestOffsetOfStdin(t *testing.T) {
	for _, form := range tries() {
		for _, kind := range []string{"opened anew", "fed"} {
			t.Run(kind+strings.Join(form, ""), func(t *testing.T) {
				p := newPlace(t)
				f := open(t, p.write("in", strings.Repeat("0123456789", 20_000)), os.O_RDONLY)
				if kind == "fed" {
					if err := os.Remove(p.path("in")); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := f.Seek(5, io.SeekStart); err != nil {
					t.Fatal(err)
				}
				c := command(t, "try", append(form, "dd", "bs=1", "count=7", "status=none")...)
				c.Dir = p.base
				c.Stdin = f
				var errs bytes.Buffer
				c.Stderr = &errs
				out, err := c.Output()
				if err != nil || string(out) != "5678901" {
					t.Fatalf("%v, %q, %s", err, out, errs.String())
				}
				if pos, err := f.Seek(0, io.SeekCurrent); pos != 12 || err != nil {
					t.Errorf("offset after the session = %d, %v, want 12", pos, err)
				}
				if fed := strings.Contains(errs.String(), "fed through a pipe"); fed != (kind == "fed") {
					t.Errorf("warnings: %q", errs.String())
				}
			})
		}
	}
}

// TestNothingOfOursIsInherited: CMD starts with what the caller passed.
func TestNothingOfOursIsInherited(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		open(t, p.path("base/file"), os.O_RDONLY) // close-on-exec: ours
		expect(t, set(p.spec()), "cd /proc/$$/fd; for f in *; do case $f in [012]) ;; *) readlink $f;; esac; done; true", inheritedHere(t))
	})
}

// inheritedHere is what the test itself was given.
func inheritedHere(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var fd int
		fmt.Sscan(e.Name(), &fd)
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && fd > 2 && flags&unix.FD_CLOEXEC == 0 {
			link, _ := os.Readlink("/proc/self/fd/" + e.Name())
			b.WriteString(link + "\n")
		}
	}
	return b.String()
}

func TestStdioOfAProgram(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		r1, w1 := pipe(t)
		r2, w2 := pipe(t)
		in := open(t, p.path("base/file"), os.O_RDONLY)
		spec := set(p.spec("sh", "-c", "cat; echo >&1; echo err >&2; echo new > /proc/self/fd/0"))
		spec.Programs[0].Stdio = [3]*os.File{in, w1, w2}
		s := start(t, spec)
		wait(t, s)
		s.Close()
		w1.Close()
		w2.Close()
		out, _ := io.ReadAll(r1)
		errs, _ := io.ReadAll(r2)
		if string(out) != "old\n" || string(errs) != "err\n" {
			t.Errorf("stdout %q, stderr %q", out, errs)
		}
		if got := p.read("base/file"); got != "old" {
			t.Errorf("base/file = %q: written through stdin", got)
		}
	})
}
