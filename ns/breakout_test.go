package ns

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestInitIsOutOfReach: PID 1 has the supervisor's memory and its socket.
func TestInitIsOutOfReach(t *testing.T) {
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		s := set(p.spec(self("init")...))
		out, exit := run(t, s)
		if out != "tried\n" || exit.Code != 0 {
			t.Errorf("%q, %+v", out, exit)
		}
	})
}

func init() {
	helpers["init"] = func([]string) int {
		runtime.LockOSThread()
		reached := func(what string, err error) {
			if err == nil {
				fmt.Println("reached:", what)
			}
		}
		if _, err := os.ReadFile("/proc/1/stat"); err != nil {
			fmt.Println("no PID 1 to attack:", err)
		}
		reached("ptrace attach", unix.PtraceAttach(1))
		reached("ptrace seize", unix.PtraceSeize(1))
		for _, f := range []string{"mem", "environ", "maps", "auxv", "syscall"} {
			_, err := os.ReadFile("/proc/1/" + f)
			reached(f, err)
		}
		links := []string{"cwd", "root", "exe", "ns/mnt", "ns/user"}
		for fd := range 20 { // uid 0 may list the numbers
			links = append(links, fmt.Sprintf("fd/%d", fd))
		}
		for _, l := range links {
			_, err := os.Readlink("/proc/1/" + l)
			reached(l, err)
			fd, err := unix.Open("/proc/1/"+l, unix.O_PATH, 0)
			reached(l, err)
			unix.Close(fd)
		}
		var word [8]byte
		local := unix.Iovec{Base: &word[0], Len: 8}
		remote := unix.RemoteIovec{Base: uintptr(unsafe.Pointer(&word)), Len: 8}
		_, err := unix.ProcessVMReadv(1, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
		reached("process_vm_readv", err)
		_, err = unix.ProcessVMWritev(1, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
		reached("process_vm_writev", err)
		if fd, err := unix.PidfdOpen(1, 0); err == nil {
			for n := range 20 {
				_, err := unix.PidfdGetfd(fd, n, 0)
				reached("pidfd_getfd", err)
			}
			reached("setns", unix.Setns(fd, unix.CLONE_NEWNS))
		}
		unix.Prlimit(1, unix.RLIMIT_NOFILE, &unix.Rlimit{}, nil) // the same uid may; init must live with it
		unix.Kill(1, unix.SIGSTOP)                               // may say 0: a PID 1 does not feel it
		unix.Kill(1, unix.SIGKILL)
		fmt.Println("tried")
		return 0
	}
}

// TestNoWayOutByMounts: what a program can do with mounts, with the
// capabilities that it has or makes for itself.
func TestNoWayOutByMounts(t *testing.T) {
	if _, err := exec.LookPath("unshare"); err != nil {
		t.Skip("no unshare here")
	}
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		p.mkdir("beside")
		p.mkdir("store")
		p.write("store/key", "secret")
		script := strings.ReplaceAll(`
cd DIR
see() { cat store/key 2>/dev/null && echo " seen after $1"; (echo x > beside/new) 2>/dev/null && echo "escaped after $1"; }
attack() {
	see nothing
	umount store 2>/dev/null; see umount
	umount -l store 2>/dev/null; see "umount -l"
	umount -l base 2>/dev/null; echo x > base/file; see "umount base"
	mount -o remount,rw / 2>/dev/null; see remount
	mount -o remount,bind,rw / 2>/dev/null; see "remount,bind"
	mount --make-shared / 2>/dev/null
	mkdir -p /dev/shm/m /dev/shm/n
	mount --bind / /dev/shm/m 2>/dev/null && (cd /dev/shm/m/DIR && see bind)
	mount --rbind / /dev/shm/n 2>/dev/null && (cd /dev/shm/n/DIR && umount store 2>/dev/null; cd /dev/shm/n/DIR && see rbind)
	mount --move store /dev/shm/m 2>/dev/null; see move
	mount -t tmpfs none /proc/sys 2>/dev/null
	for r in /proc/1/root /proc/[0-9]*/root; do (cd $r/DIR 2>/dev/null && see $r); done
	mknod /dev/shm/disk b $1 2>/dev/null && head -c 1 /dev/shm/disk >/dev/null 2>&1 && echo "disk read"
	mknod /dev/shm/mem c 1 1 2>/dev/null && head -c 1 /dev/shm/mem >/dev/null 2>&1 && echo "memory read"
	echo tried
}
`, "DIR", p.dir)
		if err := os.WriteFile(p.path("base/attack"), []byte(script+"attack "+diskNumber(t)+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, how := range [][]string{{"sh"}, {"unshare", "-Urm", "sh"}, {"unshare", "-Urmpf", "--mount-proc", "sh"}, {"unshare", "-Um", "--keep-caps", "sh"}} {
			spec := set(p.spec(append(how, p.path("base/attack"))...))
			out, exit := run(t, spec)
			// A user namespace may be refused as a whole, and with masked
			// /proc a new one always is.
			refused := exit.Code == 1 && strings.HasPrefix(out, "unshare: ")
			if out != "tried\n" && !refused {
				t.Errorf("%q: %s, %+v", how, out, exit)
			}
			if _, err := os.Stat(p.path("beside/new")); err == nil {
				t.Fatalf("%q: a file was made outside", how)
			}
			if got := p.read("base/file"); got != "old" {
				t.Fatalf("%q: base/file = %q", how, got)
			}
		}
	})
}

// diskNumber is the device under the test's directory.
func diskNumber(t *testing.T) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(t.TempDir(), &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %d", unix.Major(st.Dev), unix.Minor(st.Dev))
}

func TestAbstractSocketsAndSignalsStayInside(t *testing.T) {
	if landlockABI() < landlockScopes {
		t.Skip("this kernel's Landlock has no scopes")
	}
	forms(t, func(t *testing.T, set func(*Spec) *Spec) {
		p := newPlace(t)
		name := fmt.Sprintf("try-%d-%d", os.Getpid(), rand.Uint64()) // a path may be too long (unix(7))
		l, err := net.Listen("unix", "\x00"+name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		out, _ := run(t, set(p.spec(self("abstract", name)...)))
		if out != "theirs: operation not permitted\nown: ok\n" {
			t.Errorf("connecting gave %q", out)
		}
	})
}

func init() {
	helpers["abstract"] = func(args []string) int {
		try := func(what, name string) {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err == nil {
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
			}
			if err == nil {
				fmt.Println(what + ": ok")
			} else {
				fmt.Printf("%s: %v\n", what, err)
			}
		}
		try("theirs", "@"+args[0])
		l, err := net.Listen("unix", "@"+args[0]+"-own")
		if err != nil {
			fmt.Println(err)
			return 1
		}
		defer l.Close()
		try("own", "@"+args[0]+"-own")
		return 0
	}
}

func TestPrivilegesOfPrograms(t *testing.T) {
	p := newPlace(t)
	spec := p.spec()
	spec.Root = false
	expect(t, spec, `grep -E '^(CapInh|CapPrm|CapEff|CapAmb|NoNewPrivs)' /proc/self/status | tr -d '\t\n0'`, "CapInh:CapPrm:CapEff:CapAmb:NoNewPrivs:1")
	spec = p.spec()
	spec.Root, spec.ReExec = false, true
	expect(t, spec, `grep -E '^(CapInh|CapPrm|CapEff|CapAmb|NoNewPrivs)' /proc/self/status | tr -d '\t\n0'`, "CapInh:CapPrm:CapEff:CapAmb:NoNewPrivs:1")
}

func TestRootSession(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	for _, again := range []bool{false, true} {
		p := newPlace(t)
		spec := p.spec()
		spec.ReExec = again
		expect(t, spec, "touch x && chown 1234:4321 x && stat -c '%u %g' x; setpriv --reuid=1001 --regid=1001 --clear-groups id -u", "1234 4321\n1001\n")
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(spec.Mounts[0].Upper, "x"), &st); err != nil || st.Uid != 1234 || st.Gid != 4321 {
			t.Errorf("owner in the layer = %d:%d, %v", st.Uid, st.Gid, err)
		}
	}
}
