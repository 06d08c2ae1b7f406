package ns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Fact is what one probe found.
type Fact struct {
	Name    string
	Err     error  // nil: it works
	Needed  bool   // without it there is no session
	Found   string // what there is, in a word
	Meaning string // what follows if it does not work
	Fix     string // a line to paste; may be empty
}

// Probe asks each thing that a session needs of the system, by doing it in a
// child that is thrown away. root is a directory that an overlay would be
// made for, layers an existing directory on the file system where its layer
// would lie; a probe makes a directory there and removes it.
func Probe(root, layers string) []Fact {
	const user = unix.CLONE_NEWUSER
	fuse := probeFuse(namespaces)
	facts := []Fact{
		{Name: "user namespace", Needed: true, Err: probe(user, nil), Meaning: "no session can be made"},
		{Name: "PID namespace", Needed: true, Err: probe(user|unix.CLONE_NEWPID, nil), Meaning: "processes could not be held together"},
		{Name: "overlay", Needed: fuse.Err != nil, Err: probeOverlay(namespaces, root, layers), Meaning: "no root can be captured by the kernel's overlayfs"},
		{Name: "proc", Needed: true, Err: probe(namespaces, func(p *plan) {
			p.step("mount proc", "/proc")
			p.newMount("proc", unix.MOUNT_ATTR_NOSUID)
		}), Meaning: "the processes of the session could not be shown alone, so there is no session"},
		{Name: "devpts", Needed: true, Err: probe(namespaces, func(p *plan) {
			p.step("mount devpts", "/dev/pts")
			p.newMount("devpts", unix.MOUNT_ATTR_NOSUID, "newinstance", "", "ptmxmode", "0666", "mode", "620")
		}), Meaning: "a session could have no terminals"},
		{Name: "network namespace", Err: probe(user|unix.CLONE_NEWNET, func(p *plan) {
			p.spec.NetNone = true
			p.step("bring loopback up", "")
			p.loopback()
		}), Meaning: "--net none does not work"},
		{Name: "seccomp", Needed: true, Err: probe(user, func(p *plan) {
			p.step("install a filter", "")
			p.call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
			p.installFilter()
		}), Meaning: "a command could type into the caller's terminal, so there is no session"},
		fuse, probeLandlock(), probeTyping(), probeCgroup(),
	}
	for i := range facts {
		f := &facts[i]
		if failure, ok := errors.AsType[*Failure](f.Err); ok && f.Fix == "" {
			f.Fix = failure.Hint()
		}
		if f.Err == nil {
			f.Meaning, f.Fix = "", ""
		}
	}
	if facts[0].Err != nil {
		facts = append(facts, restrictions()...)
	}
	return facts
}

// Namespaces makes those of a session in a child that is thrown away, and says
// what forbids it, as a *Failure.
func Namespaces() error { return probe(namespaces, nil) }

// probeDeadline is how long a probe may take.
const probeDeadline = 10 * time.Second

// probe runs the first steps of init and then those of body in a child.
func probe(flags uintptr, body func(*plan)) error {
	fds, err := errand(flags, nil, body)
	closeAll(fds)
	return err
}

// errand is probe for a child that keeps the descriptors in keep, and hands
// some out.
func errand(flags uintptr, keep []int, body func(*plan)) ([]int, error) {
	spec := &Spec{Root: os.Geteuid() == 0, UID: os.Geteuid(), GID: os.Getegid()}
	p := &plan{builder: newBuilder(), spec: spec}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make the control socket: %w", err)
	}
	p.control, p.scratch = pair[1], p.data(make([]byte, 512))
	p.step("close descriptors", "")
	p.closeOthers(keep...)
	p.step("map ids", "")
	p.mapIDs()
	if flags&unix.CLONE_NEWNS != 0 {
		p.step("make mounts private", "")
		p.makePrivate()
	}
	if body != nil {
		body(p)
	}
	p.step("report ready", "")
	p.call(opReady)
	p.call(unix.SYS_EXIT_GROUP, 0)
	maps, err := rootMaps()
	if err = errors.Join(err, p.err); err != nil {
		closeAll(pair[:])
		return nil, err
	}
	c := p.child()
	c.control, c.outer = uintptr(p.control), -1
	pid, pidfd, err := c.launch(flags|unix.CLONE_PIDFD, false)
	unix.Close(pair[1])
	if err != nil {
		unix.Close(pair[0])
		return nil, err
	}
	s := newSession(p, c, os.NewFile(uintptr(pair[0]), "control socket"), pid, pidfd)
	defer s.Close()
	if spec.Root {
		if err := s.writeMaps(maps); err != nil {
			return nil, err
		}
	}
	return p.verdict(pair[0])
}

// verdict reads the child's reports, of which the last is that it is ready, or
// that it failed.
func (p *plan) verdict(control int) (fds []int, err error) {
	limit := unix.NsecToTimeval(int64(probeDeadline))
	if err := unix.SetsockoptTimeval(control, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return nil, fmt.Errorf("read the control socket: %w", err)
	}
	var r report
	oob := make([]byte, unix.CmsgSpace(4))
	for {
		n, k, _, _, err := unix.Recvmsg(control, unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r)), oob, unix.MSG_CMSG_CLOEXEC)
		if messages, e := unix.ParseSocketControlMessage(oob[:max(k, 0)]); e == nil && len(messages) == 1 {
			if more, e := unix.ParseUnixRights(&messages[0]); e == nil {
				fds = append(fds, more...)
			}
		}
		switch {
		case errors.Is(err, unix.EINTR), err == nil && n == int(unsafe.Sizeof(r)) && r.kind == reportServe:
			continue
		case err != nil:
			return fds, fmt.Errorf("read the control socket: %w", err)
		case n != int(unsafe.Sizeof(r)):
			return fds, &Failure{Step: "run"}
		case r.kind == reportReady:
			return fds, nil
		case r.kind != reportFailed || r.at < 0 || r.at >= int64(len(p.labels)):
			return fds, fmt.Errorf("report %d of a probe: %w", r.kind, unix.EPROTO)
		}
		l := p.labels[r.at]
		return fds, &Failure{Step: l.step, What: l.what, Errno: unix.Errno(r.code), Log: kernelLog(r.text[:])}
	}
}

func probeOverlay(flags uintptr, root, layers string) error {
	dir, err := os.MkdirTemp(layers, "probe-")
	if err != nil {
		return fmt.Errorf("make a layer: %w", err)
	}
	// The kernel leaves empty directories of mode 000 in work.
	defer func() {
		for _, d := range []string{"", "work", "work/work", "work/work/incompat", "work/work/incompat/volatile"} {
			os.Chmod(filepath.Join(dir, d), 0o700)
		}
		os.RemoveAll(dir)
	}()
	o := Mount{Target: root, Lower: []string{root}, Upper: filepath.Join(dir, "upper"), Work: filepath.Join(dir, "work")}
	for _, d := range []string{o.Upper, o.Work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return fmt.Errorf("make a layer: %w", err)
		}
	}
	return probe(flags, func(p *plan) {
		p.spec.Mounts, p.mounts = []Mount{o}, make([]slot, 1)
		p.step("create overlay", "")
		p.createOverlays()
	})
}

func probeLandlock() Fact {
	f := Fact{Name: "Landlock", Found: fmt.Sprintf("ABI %d", landlockABI())}
	if landlockABI() < landlockScopes {
		f.Err = fmt.Errorf("no scopes (they are of Linux 6.12): %w", unix.EOPNOTSUPP)
		f.Meaning = "abstract sockets of programs outside can be reached by a command, unless --net none"
		f.Fix = `add “landlock” to the kernel's lsm= parameter, or take a kernel from 6.12 on`
	}
	return f
}

// probeFuse makes a FUSE mount that nobody serves and nobody sees.
func probeFuse(flags uintptr) Fact {
	return Fact{
		Name: "FUSE", Meaning: "the fuse engine cannot serve",
		Err: probe(flags, func(p *plan) {
			p.spec.Mounts, p.mounts = []Mount{{Target: "/", Options: "allow_other,default_permissions"}}, make([]slot, 1)
			p.step("create FUSE mount", "")
			p.newFuse(0)
		}),
	}
}

// probeTyping: the filter of the session closes TIOCSTI in any case; the
// setting closes it for everything else as well.
func probeTyping() Fact {
	f := Fact{Name: "TIOCSTI", Found: "off"}
	if text, err := os.ReadFile("/proc/sys/dev/tty/legacy_tiocsti"); err != nil || strings.TrimSpace(string(text)) != "0" {
		f.Found = "on; sessions refuse it by a filter"
	}
	return f
}

func probeCgroup() Fact {
	f := Fact{Name: "cgroup", Found: "none is writable, none is needed"}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return f
	}
	for line := range strings.Lines(string(own)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok && unix.Access(filepath.Join("/sys/fs/cgroup", strings.TrimSpace(path)), unix.W_OK) == nil {
			f.Found = "the own one is writable"
		}
	}
	return f
}

// restrictions are the settings that keep user namespaces from ordinary
// users, as far as they are set so.
func restrictions() (facts []Fact) {
	for _, s := range []struct{ path, bad, fix string }{
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", allowUserNamespaces},
		{"/proc/sys/user/max_user_namespaces", "0", allowUserNamespaces},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", allowAppArmor},
	} {
		text, err := os.ReadFile(s.path)
		if value := strings.TrimSpace(string(text)); err == nil && value == s.bad {
			facts = append(facts, Fact{
				Name: filepath.Base(s.path), Found: value, Err: unix.EPERM, Fix: s.fix,
				Meaning: "this setting forbids user namespaces to ordinary users",
			})
		}
	}
	return facts
}
