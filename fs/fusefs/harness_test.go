package fusefs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/layer/layertest"
)

// The mount is used by another process than the one that serves it: the same
// test binary, in namespaces of its own, which runs one test with a name of
// the form TestInside…/name. It mounts, passes the device, waits to be served,
// and may ask the serving test to do something meanwhile.
const (
	insideEnv = "TRY_TEST_FUSEFS_INSIDE" // the mount namespace that it must not be in
	mountEnv  = "TRY_TEST_FUSEFS_MOUNT"

	// overlayEnv has the kernel's overlay mounted instead, with these options.
	overlayEnv = "TRY_TEST_FUSEFS_OVERLAY"
)

func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) != "" {
		if err := mountInside(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// control is the socket to the serving test.
var control *net.UnixConn

func mountInside() error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	if own == os.Getenv(insideEnv) {
		return errors.New("not in a mount namespace of its own: nothing is mounted")
	}
	if options := os.Getenv(overlayEnv); options != "" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		return unix.Mount("overlay", os.Getenv(mountEnv), "overlay", 0, options)
	}
	c, err := net.FileConn(os.NewFile(3, "control"))
	if err != nil {
		return err
	}
	control = c.(*net.UnixConn)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,%s", dev, os.Getuid(), os.Getgid(), MountOptions())
	if err := unix.Mount("try", os.Getenv(mountEnv), "fuse.try", 0, options); err != nil {
		return fmt.Errorf("mount fuse: %w", err)
	}
	if _, _, err := control.WriteMsgUnix([]byte{'d'}, unix.UnixRights(dev), nil); err != nil {
		return err
	}
	if err := unix.Close(dev); err != nil {
		return err
	}
	_, err = control.Read(make([]byte, 1))
	return err
}

// ask has the serving test do what it has under that name.
func ask(t *testing.T, what string) {
	t.Helper()
	if trouble := try(t, what); trouble != "" {
		t.Fatalf("%s: %s", what, trouble)
	}
}

// try is ask, and returns what went wrong.
func try(t *testing.T, what string) string {
	t.Helper()
	if _, err := control.Write([]byte(what)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 1<<10)
	n, err := control.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer[1:n])
}

func mountPoint() string { return os.Getenv(mountEnv) }

// lab is one tree to be served, in a directory of its own.
type lab struct {
	dir   string
	root  Root
	opts  Options
	most  int // descriptors; 0: as the process's limit has it
	known int // nodes before some are pruned; 0: as always

	unwatched bool                           // as if there were too many watches
	do        map[string]func(*Server) error // what ask can have done
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{dir: dir, root: Root{Base: dir + "/base", Layers: []string{dir + "/layer"}, Work: dir + "/work"}}
	for _, sub := range []string{"base", "layer", "work", "mnt"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (l *lab) base(name string) string  { return filepath.Join(l.dir, "base", name) }
func (l *lab) layer(name string) string { return filepath.Join(l.dir, "layer", name) }

// inside runs the test named name, of TestInside, on the mount of l.
func (l *lab) inside(t *testing.T, name string, env ...string) *Server {
	t.Helper()
	needFUSE(t)
	s, err := l.run(t, name, env...)
	if err != nil {
		t.Error(err)
	}
	return s
}

func (l *lab) run(t *testing.T, name string, env ...string) (*Server, error) {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	file := os.NewFile(uintptr(pair[0]), "control")
	conn, err := net.FileConn(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	defer conn.Close()
	cmd := l.command(own, name, env...)
	cmd.ExtraFiles = []*os.File{theirs}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := errors.Join(cmd.Start(), theirs.Close()); err != nil {
		return nil, err
	}
	s, err := l.serve(conn.(*net.UnixConn))
	if err != nil {
		conn.Close()
		return nil, errors.Join(err, cmd.Wait(), errors.New(out.String()))
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		l.answer(conn.(*net.UnixConn), s)
	}()
	err = cmd.Wait()
	conn.Close()
	<-answered
	s.Wait()
	if err == nil && !bytes.Contains(out.Bytes(), []byte("--- PASS: TestInside/")) {
		if bytes.Contains(out.Bytes(), []byte("--- SKIP: TestInside/")) {
			t.Skip(out.String())
		}
		err = errors.New("no test of that name")
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w\n%s", name, err, out.String())
	}
	if testing.Verbose() {
		t.Log(out.String())
	}
	return s, nil
}

// command runs a case in namespaces of its own.
func (l *lab) command(own, name string, env ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.timeout=1m", "-test.run=^TestInside$/^"+strings.ReplaceAll(name, "/", "$/^")+"$")
	cmd.Env = append(append(os.Environ(), insideEnv+"="+own, mountEnv+"="+l.dir+"/mnt"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_DAC_OVERRIDE} // to mount
	}
	return cmd
}

// overlay runs a case on the kernel's overlay of the same base and layer.
func (l *lab) overlay(t *testing.T, name string) {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/mnt")
	check(t, err)
	work := l.dir + "/work/overlay"
	check(t, os.Mkdir(work, 0o700))
	cmd := l.command(own, name, fmt.Sprintf("%s=userxattr,volatile,lowerdir=%s,upperdir=%s,workdir=%s", overlayEnv, l.base(""), l.layer(""), work))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s on the kernel's overlay: %v\n%s", name, err, out)
	}
	check(t, layertest.Empty(work))
	check(t, os.Remove(work))
}

func (l *lab) serve(conn *net.UnixConn) (*Server, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, fmt.Errorf("receive the device: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) == 0 {
		return nil, fmt.Errorf("no device: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(fds[0])
	s, err := Serve(os.NewFile(uintptr(fds[0]), "/dev/fuse"), l.root, l.opts)
	if err != nil {
		return nil, err
	}
	if l.most > 0 {
		s.tree.fds.mu.Lock()
		s.tree.fds.most = l.most
		s.tree.fds.mu.Unlock()
	}
	if l.known > 0 {
		s.tree.table.mu.Lock()
		s.tree.limits = limits{l.known, l.known}
		s.tree.table.mu.Unlock()
	}
	if l.unwatched {
		s.tree.watch.mu.Lock()
		s.tree.watch.fd = -1
		s.tree.watch.mu.Unlock()
	}
	_, err = conn.Write([]byte{'s'})
	return s, err
}

func (l *lab) answer(conn *net.UnixConn, s *Server) {
	buf := make([]byte, 1<<10)
	for {
		n, err := conn.Read(buf)
		if err != nil || n == 0 {
			return
		}
		answer := "."
		if do := l.do[string(buf[:n])]; do == nil {
			answer += "nobody knows how"
		} else if err := do(s); err != nil {
			answer += err.Error()
		}
		if _, err := conn.Write([]byte(answer)); err != nil {
			return
		}
	}
}

// needFUSE skips where an ordinary user cannot open the device.
func needFUSE(t *testing.T) {
	t.Helper()
	if err := unix.Access("/dev/fuse", unix.R_OK|unix.W_OK); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("/dev/fuse: %v, and CI must not pass without", err)
		}
		t.Skipf("/dev/fuse: %v", err)
	}
}
