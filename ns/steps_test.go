package ns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWritesGoToTheLayer(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		spec := set(p.spec())
		expect(t, spec, "echo new > file; echo more > other; cat file other; pwd", "new\nmore\n"+p.base+"\n")
		if got := p.read("base/file"); got != "old" {
			t.Errorf("base/file = %q after the session, want it unchanged", got)
		}
		text, err := os.ReadFile(filepath.Join(spec.Mounts[0].Upper, "file"))
		if err != nil || string(text) != "new\n" {
			t.Errorf("file in the layer = %q, %v, want what was written", text, err)
		}
	})
}

func TestTheRestIsReadOnly(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		p.mkdir("beside")
		spec := set(p.spec())
		expect(t, spec, "(echo x > ../beside/x) 2>/dev/null || echo refused; cat ../store/* 2>/dev/null; ls -A ../store", "refused\n")
		if _, err := os.Stat(p.path("beside/x")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a file appeared beside the roots: %v", err)
		}
	})
}

func TestWhoAndWhere(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		if err := os.Symlink(p.base, p.path("link")); err != nil {
			t.Fatal(err)
		}
		spec := set(p.spec())
		spec.Dir = p.path("link")
		spec.Env = []string{"PATH=/bin:/usr/bin", "ODD=a=b\xff\n", "PWD=" + spec.Dir}
		expect(t, spec, `id -u; pwd; printf %s "$ODD"; umask`, fmt.Sprintf("%d\n%s\na=b\xff\n%s\n", os.Geteuid(), spec.Dir, umask(t)))
	})
}

func umask(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "Umask:"); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatal("no Umask in /proc/self/status")
	return ""
}

func TestExit(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want Exit
	}{
		{[]string{"true"}, Exit{}},
		{[]string{"sh", "-c", "exit 77"}, Exit{Code: 77}},
		{[]string{"sh", "-c", "kill -9 $$"}, Exit{Code: 137, Signal: unix.SIGKILL}},
		{[]string{"sh", "-c", "kill -TERM $$"}, Exit{Code: 143, Signal: unix.SIGTERM}},
		{[]string{"no-such-command"}, Exit{Code: 127, Exec: unix.ENOENT}},
		{[]string{"./no/such"}, Exit{Code: 127, Exec: unix.ENOENT}},
		{[]string{""}, Exit{Code: 127, Exec: unix.ENOENT}},
		{[]string{"./file"}, Exit{Code: 126, Exec: unix.EACCES}},
		{[]string{"."}, Exit{Code: 126, Exec: unix.EACCES}},
		{[]string{"./script", "a b"}, Exit{Code: 5}},
		{[]string{"sh", "-c", "sleep 1000 & exit 3"}, Exit{Code: 3, Left: true}},
	} {
		t.Run(strings.Join(c.argv, " "), func(t *testing.T) {
			p := newPlace(t)
			p.write("base/script", `test "$1" = "a b" && exit 5`) // no #!: a script for sh
			if err := os.Chmod(p.path("base/script"), 0o755); err != nil {
				t.Fatal(err)
			}
			s := start(t, p.spec(c.argv...))
			if got := wait(t, s); got != c.want {
				t.Errorf("%q ended with %+v, want %+v", c.argv, got, c.want)
			}
		})
	}
}

func TestArgumentsArriveAsTheyAre(t *testing.T) {
	p := newPlace(t)
	args := []string{"", "a b", "\"'\\", "bad\xff", "line\nbreak", strings.Repeat("x", 100_000)}
	out, _ := run(t, p.spec(append([]string{"printf", "<%s>"}, args...)...))
	if want := "<" + strings.Join(args, "><") + ">"; out != want {
		t.Errorf("printf of %.40q… wrote %.60q…", args, out)
	}
	if _, err := Start(p.spec("true", "a\x00b")); !errors.Is(err, unix.EINVAL) {
		t.Errorf("Start with a NUL byte = %v, want EINVAL", err)
	}
}

func TestDev(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		out, _ := run(t, set(p.spec("sh", "-c", "cd /dev; echo *; cat try; echo x > null && echo null; echo x > shm/x && echo shm; head -c 3 zero | wc -c; "+
			"(echo x > new) 2>/dev/null || echo read-only; chmod 0 null 2>/dev/null || echo mode kept; test -b vda && echo block; cat fd/0 < try")))
		for _, want := range []string{"test\nnull\nshm\n3\nread-only\nmode kept\ntest\n"} {
			if !strings.HasSuffix(out, want) {
				t.Errorf("in /dev: %q, want an end of %q", out, want)
			}
		}
		names := strings.Fields(strings.SplitN(out, "\n", 2)[0])
		allowed := []string{"fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "try", "urandom", "zero",
			"console", "dri", "fuse", "kfd", "kvm", "log", "net", "nvidia", "snd", "video"}
		for _, n := range names {
			if !slices.ContainsFunc(allowed, func(a string) bool { return strings.HasPrefix(n, a) }) {
				t.Errorf("/dev has %s", n)
			}
		}
		if _, err := os.Stat("/dev/shm/x"); err == nil {
			t.Error("/dev/shm is the host's")
		}
	})
}

func TestProcIsTheSessions(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		spec := set(p.spec())
		expect(t, spec, "cd /proc; for i in [0-9]*; do :; done; test $i -lt 99 && echo few; (: >> sys/kernel/core_pattern) 2>/dev/null && echo open; (: >> sys/vm/swappiness) 2>/dev/null && echo open; test -r kcore && head -c 0 kcore && echo open; echo done", "few\ndone\n")
	})
}

func TestCovers(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		p.mkdir("base/secret/deep")
		p.write("base/secret/key", "x")
		p.write("base/token", "x")
		if err := os.Symlink("token", p.path("base/alias")); err != nil {
			t.Fatal(err)
		}
		spec := set(p.spec())
		spec.Covers = append(spec.Covers, p.path("base/secret"), p.path("base/alias"), p.path("base/absent"))
		expect(t, spec, "ls -A secret; cat token 2>/dev/null || test $(id -u) = 0; (wc -c < alias) 2>/dev/null || echo 0; rm -rf secret token 2>/dev/null; ls", "0\nalias\nfile\nsecret\ntoken\n")
	})
}

func TestPrivateAndWritable(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		p.mkdir("private/in/here")
		p.mkdir("out")
		p.write("private/host", "x")
		p.write("private/in/here/file", "below")
		spec := set(p.spec())
		spec.Private = []string{p.path("private")}
		spec.AllowWrite = []string{p.path("out")}
		spec.Mounts = append(spec.Mounts, p.overlay("private/in/here"))
		expect(t, spec, "cd ..; ls private; echo x > private/y && cat private/in/here/file; echo z > private/in/here/file; echo through > out/file", "in\nbelow")
		if got := p.read("private/in/here/file"); got != "below" {
			t.Errorf("file below the private directory = %q, want it unchanged", got)
		}
		if got := p.read("out/file"); got != "through\n" {
			t.Errorf("--allow-write: file = %q, want what was written", got)
		}
		if _, err := os.Stat(p.path("private/y")); err == nil {
			t.Error("the private directory is the host's")
		}
	})
}

func TestFiles(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		p.write("conf", "host's")
		spec := set(p.spec())
		spec.Files = []File{{Path: p.path("conf"), Content: []byte("ours"), Mode: 0o640}}
		expect(t, spec, "cat ../conf; stat -c ' %a %u' ../conf", fmt.Sprintf("ours 640 %d\n", os.Geteuid()))
	})
}

func TestSockets(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		listen := func(name string) {
			l, err := net.Listen("unix", p.path(name))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}
		listen("base/a")
		listen("base/b")
		p.write("base/c", "no socket any more")
		spec := set(p.spec(self("connect", "a", "b", "c", "/run/none")...))
		spec.Sockets = []string{p.path("base/a"), p.path("base/c")}
		out, _ := run(t, spec)
		if want := "a: ok\nb: connection refused\nc: connection refused\n/run/none: no such file or directory\n"; out != want {
			t.Errorf("connecting gave %q, want %q", out, want)
		}
		spec.Mounts[0] = p.overlay("base") // the first is marked as used
		spec.Programs[0].Argv = []string{"true"}
		s := start(t, spec)
		wait(t, s)
		if w := s.Warnings(); len(w) != 1 || !strings.Contains(w[0], "base/c") {
			t.Errorf("Warnings() = %q, want one on base/c", w)
		}
	})
}

func init() {
	helpers["connect"] = func(args []string) int {
		for _, path := range args {
			c, err := net.Dial("unix", path)
			if err == nil {
				c.Close()
				fmt.Printf("%s: ok\n", path)
				continue
			}
			var errno unix.Errno
			errors.As(err, &errno)
			fmt.Printf("%s: %v\n", path, errno)
		}
		return 0
	}
}

func TestNetNone(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		spec := set(p.spec(self("net", l.Addr().String())...))
		if out, _ := run(t, spec); out != "host reached, own reached\n" {
			t.Errorf("with the host's network: %q", out)
		}
		spec = set(p.spec(self("net", l.Addr().String())...))
		spec.NetNone = true
		if out, _ := run(t, spec); out != "host not reached, own reached\n" {
			t.Errorf("without: %q", out)
		}
	})
}

func init() {
	helpers["net"] = func(args []string) int {
		not := map[bool]string{true: "not "}
		_, err := net.Dial("tcp", args[0])
		own, err2 := net.Listen("tcp", "127.0.0.1:0")
		if err2 == nil {
			_, err2 = net.Dial("tcp", own.Addr().String())
		}
		fmt.Printf("host %sreached, own %sreached\n", not[err != nil], not[err2 != nil])
		return 0
	}
}

func TestMountAttributesOfTheBase(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		spec := set(p.spec())
		spec.Mounts[0].NoExec, spec.Mounts[0].NoSuid, spec.Mounts[0].NoDev = true, true, true
		expect(t, spec, "cp /bin/true x; ./x 2>/dev/null; echo $?; grep -c ' "+p.base+" .*nosuid,nodev,noexec' /proc/self/mountinfo", "126\n1\n")
	})
}

func TestViewsShowTheSession(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		s := start(t, set(p.spec("sh", "-c", "echo inside > file")))
		wait(t, s)
		fd, err := unix.Openat(int(s.View(p.base).Fd()), "file", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatalf("open file through the view: %v", err)
		}
		defer unix.Close(fd)
		var buf [16]byte
		if n, err := unix.Read(fd, buf[:]); string(buf[:max(n, 0)]) != "inside\n" {
			t.Errorf("file through the view = %q, %v", buf[:max(n, 0)], err)
		}
	})
}

func TestKeyring(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		runtime.LockOSThread() // a thread without a session keyring gets one of its own
		defer runtime.UnlockOSThread()
		p := newPlace(t)
		name := filepath.Base(p.dir) + t.Name()
		id, err := unix.AddKey("user", name, []byte("secret"), unix.KEY_SPEC_SESSION_KEYRING)
		if err != nil {
			t.Skipf("no keyrings here: %v", err)
		}
		if out, _ := run(t, set(p.spec(self("key", fmt.Sprint(id), name)...))); out != "search: function not implemented, read: not allowed, function not implemented\n" {
			t.Errorf("the caller's key inside: %q", out)
		}
		if _, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, make([]byte, 16), 0); err != nil {
			t.Errorf("the caller's key after the session: %v", err)
		}
	})
}

func init() {
	helpers["key"] = func(args []string) int {
		var id int
		fmt.Sscan(args[0], &id)
		_, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", args[1], 0)
		read := "not allowed"
		if _, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, make([]byte, 16), 0); err == nil {
			read = "ALLOWED"
		}
		clear := "clear"
		if _, err := unix.KeyctlInt(unix.KEYCTL_CLEAR, unix.KEY_SPEC_SESSION_KEYRING, 0, 0, 0); err != nil {
			clear = err.Error()
		}
		fmt.Printf("search: %v, read: %s, %s\n", err, read, clear)
		return 0
	}
}

func TestFailureNamesStepAndPath(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		spec := set(p.spec("true"))
		spec.Dir = p.path("nowhere")
		_, err := Start(spec)
		f, ok := errors.AsType[*Failure](err)
		if !ok || f.Step != "enter working directory" || f.What != spec.Dir || !errors.Is(err, unix.ENOENT) {
			t.Errorf("Start in a missing directory = %v", err)
		}
		spec = set(p.spec("true"))
		spec.Mounts[0].Work = spec.Mounts[0].Upper
		_, err = Start(spec)
		f, ok = errors.AsType[*Failure](err)
		if !ok || f.Step != "create overlay" || f.What != p.base || f.Errno == 0 {
			t.Errorf("Start with work = upper: %v", err)
		}
	})
}

func TestOddPaths(t *testing.T) {
	p := newPlace(t)
	dir := `a,b:c\d "e` + "\n\xff" + strings.Repeat("long", 50)
	p.mkdir(dir)
	p.write(dir+"/file", "odd")
	spec := p.spec()
	spec.Mounts = []Mount{p.overlay(dir)}
	spec.Dir = p.path(dir)
	expect(t, spec, "cat file; echo x > file; cat file", "oddx\n")
	if got := p.read(dir + "/file"); got != "odd" {
		t.Errorf("base file = %q, want it unchanged", got)
	}
}

func TestManyLowers(t *testing.T) {
	p := newPlace(t)
	spec := p.spec()
	var want strings.Builder
	for i := range 60 {
		name := fmt.Sprintf("lower%d", i)
		p.mkdir(name)
		p.write(name+"/f", fmt.Sprint(i))
		p.write(fmt.Sprintf("%s/f%02d", name, i), fmt.Sprint(i, " "))
		fmt.Fprint(&want, i, " ")
		spec.Mounts[0].Lower = slices.Insert(spec.Mounts[0].Lower, i, p.path(name))
	}
	expect(t, spec, "cat f; cat f??", "0"+want.String())
}

func TestLimitsComeBack(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		want, err := callerLimits()
		if err != nil {
			t.Fatal(err)
		}
		show := func(n uint64) string {
			if n == unix.RLIM_INFINITY&(1<<64-1) {
				return "unlimited"
			}
			return fmt.Sprint(n)
		}
		expect(t, set(p.spec()), "ulimit -n; ulimit -Hn", show(want.files.Cur)+"\n"+show(want.files.Max)+"\n")
	})
}

func TestIgnoredSignalsStayIgnored(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		out, _ := run(t, set(p.spec("cat", "/proc/self/status")))
		masks := map[string]uint64{}
		for line := range strings.Lines(out) {
			if name, v, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(name, "Sig") {
				var mask uint64
				fmt.Sscanf(strings.TrimSpace(v), "%x", &mask)
				masks[name] = mask
			}
		}
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		var ignored uint64
		for line := range strings.Lines(string(status)) {
			if v, ok := strings.CutPrefix(line, "SigIgn:"); ok {
				fmt.Sscanf(strings.TrimSpace(v), "%x", &ignored)
			}
		}
		if masks["SigBlk"] != 0 || masks["SigIgn"] != ignored || masks["SigCgt"] != 0 {
			t.Errorf("blocked, ignored, caught = %x, want 0, %x, 0", masks, ignored)
		}
	})
}

func TestProgramSurvivesEncoding(t *testing.T) {
	b := newBuilder()
	b.call(unix.SYS_GETPID)
	s := b.into()
	list := b.strings([]string{"one", "two"})
	b.call(unix.SYS_KILL, s, list, addressOf(s), "text", -1)
	var done target
	b.orElse(&done)
	b.here(&done)
	b.call(opEnd)
	c := b.child()
	c.control, c.views, c.entry, c.maps, c.outer = 7, []uint16{3, 4}, []int32{2}, []idMap{{"uid_map", "0 0 1\n"}}, -1
	d, resume := decode(b.encode(c, 2))
	if resume != 2 || d.control != 7 || !slices.Equal(d.views, c.views) || !slices.Equal(d.entry, c.entry) || !slices.Equal(d.maps, c.maps) || d.outer != -1 || !slices.Equal(d.ops, c.ops) {
		t.Errorf("decode(encode(c)) = %+v, want %+v", d, c)
	}
	// Addresses are the new process's own.
	first := binary.NativeEndian.Uint64(d.arena[list:]) - uint64(d.base)
	if got := unix.ByteSliceToString(d.arena[first:]); got != "one" {
		t.Errorf("first string of the decoded list = %q", got)
	}
}
