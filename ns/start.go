package ns

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Start makes a session and starts its first program. A step that fails is a
// *Failure, and nothing is left. A program that cannot be executed is no
// failure: Wait gives its Exit with code 126 or 127.
func Start(spec *Spec) (*Session, error) {
	p, control, err := prepare(spec)
	if err != nil {
		return nil, fmt.Errorf("start session: %w", err)
	}
	s, err := p.start(control)
	for _, f := range p.close {
		f.Close() // of init, or of nobody: nothing of ours is lost
	}
	if err != nil {
		control.Close()
		p.dropFeeds()
		return nil, fmt.Errorf("start session: %w", err)
	}
	if err := s.begin(); err != nil {
		s.Close()
		return nil, fmt.Errorf("start session: %w", err)
	}
	return s, nil
}

// prepare compiles the program. What it opened is closed by the caller
// through p.close, also after an error of a later part.
func prepare(spec *Spec) (p *plan, control *os.File, err error) {
	own := *spec
	if own.UID == 0 && !own.Root {
		own.UID = os.Geteuid()
	}
	if own.GID == 0 && !own.Root {
		own.GID = os.Getegid()
	}
	if len(own.Programs) == 0 {
		return nil, nil, fmt.Errorf("no program: %w", unix.EINVAL)
	}
	p = &plan{builder: newBuilder(), spec: &own, masked: os.Geteuid() == 0}
	defer func() {
		if err != nil {
			for _, f := range p.close {
				f.Close()
			}
			p.dropFeeds()
			if control != nil {
				control.Close()
			}
		}
	}()
	if own.Confined && (own.Root || own.ReExec || own.NetNone) {
		return p, nil, fmt.Errorf("a session without namespaces has no other ids, no second exec and no network of its own: %w", unix.EINVAL)
	}
	if own.Root && own.Processes > 0 && !kernelAtLeast(6, 14) {
		return p, nil, &Failure{Step: "limit processes", Errno: unix.EOPNOTSUPP}
	}
	if p.rlimits, err = callerLimits(); err != nil {
		return p, nil, err
	}
	p.others = 1 // init
	if own.Confined {
		if err := p.countOthers(); err != nil {
			return p, nil, err
		}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return p, nil, fmt.Errorf("make the control socket: %w", err)
	}
	inner := os.NewFile(uintptr(pair[1]), "control socket of init")
	p.close = append(p.close, inner)
	p.control = pair[1]
	// The kernel then names the sender of each report, in our PID namespace.
	err = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	if err == nil {
		err = unix.SetNonblock(pair[0], true)
	}
	control = os.NewFile(uintptr(pair[0]), "control socket")
	if err != nil {
		return p, control, fmt.Errorf("set up the control socket: %w", err)
	}
	if own.ReExec {
		fd, err := unix.MemfdCreate("try-init", unix.MFD_CLOEXEC)
		if err != nil {
			return p, control, fmt.Errorf("make the memory of init: %w", err)
		}
		p.memory = os.NewFile(uintptr(fd), "memory of init")
		p.close = append(p.close, p.memory)
		p.lastCap = lastCap()
	}
	if err := p.findInherited(); err != nil {
		return p, control, err
	}
	if own.Terminal {
		if p.terminal, err = p.findTerminal(); err != nil {
			return p, control, err
		}
	}
	p.mask = callerMask()
	return p, control, p.compile()
}

// namespaces are what every session has, unless it is Confined.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC

// start forks init.
func (p *plan) start(control *os.File) (*Session, error) {
	c := p.child()
	c.control, c.gate, c.tty, c.outer = uintptr(p.control), p.gate, p.slave, -1
	c.both, c.alone = p.both, p.alone
	c.children, c.after = p.children, int32(p.after)
	if p.terminal != nil {
		c.outer = p.terminal.fd
	}
	for _, v := range p.views {
		c.views = append(c.views, uint16(v))
	}
	for _, e := range p.entry {
		c.entry = append(c.entry, int32(e))
	}
	var maps []idMap
	if p.spec.Root {
		var err error
		if maps, err = rootMaps(); err != nil {
			return nil, err
		}
		c.maps = maps
	}
	if p.memory != nil {
		if _, err := p.memory.Write(p.encode(c, p.resume)); err != nil {
			return nil, fmt.Errorf("write the memory of init: %w", err)
		}
		if _, err := p.memory.Seek(0, 0); err != nil {
			return nil, fmt.Errorf("rewind the memory of init: %w", err)
		}
	}
	flags := uintptr(namespaces | unix.CLONE_PIDFD)
	if p.spec.Confined {
		flags = unix.CLONE_PIDFD
	}
	if p.spec.NetNone {
		flags |= unix.CLONE_NEWNET
	}
	pid, pidfd, err := c.launch(flags, !p.spec.Confined) // the guard forks, which copies
	if err != nil {
		return nil, err
	}
	s := newSession(p, c, control, pid, pidfd)
	if p.spec.Root {
		if err := s.writeMaps(maps); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// rootMaps are the identity over all ids that this user namespace has: all
// there are, for the real root; what a container was given, in one.
func rootMaps() ([]idMap, error) {
	var maps []idMap
	for _, name := range []string{"uid_map", "gid_map"} {
		text, err := os.ReadFile("/proc/self/" + name)
		if err != nil {
			return nil, fmt.Errorf("read own ids: %w", err)
		}
		var b strings.Builder
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) != 3 {
				return nil, fmt.Errorf("read own ids: %q: %w", line, unix.EINVAL)
			}
			fmt.Fprintf(&b, "%s %s %s\n", f[0], f[0], f[2])
		}
		maps = append(maps, idMap{name, b.String()})
	}
	return maps, nil
}

// callerMask is what the programs' signal mask will be.
func callerMask() (mask uint64) {
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, 0, uintptr(unsafe.Pointer(&mask)), 8, 0, 0)
	return mask
}

// callerLimits reads the limits that the programs get back. The Go runtime
// raises the soft limit of open files to one below the hard one (package
// syscall, rlimit.go) and tells nobody what it was; the process that started
// us most likely still has it.
func callerLimits() (l limits, err error) {
	for _, r := range []struct {
		which int
		to    *unix.Rlimit
	}{{unix.RLIMIT_CORE, &l.core}, {unix.RLIMIT_NOFILE, &l.files}, {unix.RLIMIT_NPROC, &l.processes}} {
		if err := unix.Getrlimit(r.which, r.to); err != nil {
			return l, fmt.Errorf("read resource limits: %w", err)
		}
	}
	if l.files.Cur == l.files.Max-1 {
		var parent unix.Rlimit
		err := unix.Prlimit(os.Getppid(), unix.RLIMIT_NOFILE, nil, &parent)
		if err == nil && parent.Cur < l.files.Cur {
			l.files.Cur = parent.Cur
		} else {
			l.files.Cur = min(1024, l.files.Max) // the default of kernel and systemd
		}
	}
	return l, nil
}

// countOthers counts what the kernel counts for RLIMIT_NPROC without a user
// namespace of one's own: the threads of all processes of this user. Half of what
// is left stays theirs: the supervisor must be able to make threads, whatever the
// programs do.
func (p *plan) countOthers() error {
	dirs, err := filepath.Glob("/proc/[1-9]*/status")
	if err != nil {
		return fmt.Errorf("count own processes: %w", err)
	}
	uid := strconv.Itoa(os.Getuid())
	p.others = 4 // init, guard, their witnesses
	for _, path := range dirs {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			fields[name] = strings.TrimSpace(value)
		}
		if own, _, _ := strings.Cut(fields["Uid"], "\t"); own != uid {
			continue
		}
		n, err := strconv.ParseUint(fields["Threads"], 10, 32)
		if err != nil {
			return fmt.Errorf("count own processes: threads in %s: %w", path, err)
		}
		p.others += n
	}
	if limit := p.rlimits.processes.Cur; limit != unix.RLIM_INFINITY && p.spec.Processes > 0 {
		room := max(int64(limit)-int64(p.others), 0)
		p.spec.Processes = min(p.spec.Processes, 1+int(room/2))
	}
	return nil
}

func kernelAtLeast(major, minor int) bool {
	var u unix.Utsname
	var a, b int
	if unix.Uname(&u) != nil {
		return false
	}
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b); n != 2 {
		return false
	}
	return a > major || a == major && b >= minor
}

// closeDeadline is how long init may take to end once it was killed: its
// processes are killed with it, and their memory has to be given back.
const closeDeadline = 10 * time.Second
