package ns

import (
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// limits are the caller's, which the programs get back.
type limits struct{ core, files, processes unix.Rlimit }

// compileProgram compiles what program i does to itself between the fork by
// init and its exec. Here capabilities end; init keeps its own (HAZARDS 13).
func (p *plan) compileProgram(i int) {
	prog := &p.spec.Programs[i]
	name := ""
	if len(prog.Argv) > 0 {
		name = prog.Argv[0]
	}
	p.entry = append(p.entry, len(p.ops))
	p.step("start program", name)
	if p.spec.Root {
		// Its user namespace is new and has no ids until init wrote the maps.
		p.call(unix.SYS_READ, p.gate, p.scratch, 8)
		p.step("make the program's mounts private", name)
		p.makePrivate()
	}
	p.step("give the program the terminal", name)
	p.takeTerminal()
	p.step("set the program's descriptors", name)
	p.setStdio(prog)
	p.step("set the program's limits", name)
	p.call(unix.SYS_UMASK, p.umask)
	p.setLimit(unix.RLIMIT_CORE, p.rlimits.core)
	p.setLimit(unix.RLIMIT_NOFILE, p.rlimits.files)
	if n := uint64(p.spec.Processes); n > 0 {
		// Counted within the user namespace, so init is one of them. A lower
		// limit of the caller's stays.
		n = min(n+1, p.rlimits.processes.Max)
		p.setLimit(unix.RLIMIT_NPROC, unix.Rlimit{Cur: n, Max: n})
	}
	p.restrictProgram(name)
	p.step("set the program's signals", name)
	p.call(opReset, p.words(p.mask))
	p.call(opTell)
	p.step("execute", name)
	env := p.strings(p.spec.Env)
	search := 0
	if !strings.Contains(name, "/") {
		search = 1
	}
	for _, path := range candidates(name, p.spec.Env) {
		shell := append([]string{"/bin/sh", path}, prog.Argv[min(1, len(prog.Argv)):]...)
		p.call(opExec, path, p.strings(prog.Argv), env, p.strings(shell), search)
	}
	p.call(opEnd)
}

func (p *plan) setLimit(which int, l unix.Rlimit) {
	p.call(unix.SYS_PRLIMIT64, 0, which, p.words(l.Cur, l.Max), 0)
}

// setStdio makes 0–2 what the program wants and closes at the exec all that
// is not the program's.
func (p *plan) setStdio(prog *Program) {
	var from [3]slot
	for n, f := range prog.Stdio {
		if f != nil { // copies first: 1 and 2 may be meant to change places
			p.call(unix.SYS_FCNTL, int(f.Fd()), unix.F_DUPFD_CLOEXEC, 3)
			from[n] = p.into()
		}
	}
	for n, s := range from {
		if s != 0 {
			p.call(unix.SYS_DUP3, s, n, 0)
		}
	}
	var keep []int
	for _, d := range p.inherit {
		if !d.extra {
			keep = append(keep, d.fd)
		}
	}
	p.closeGaps(keep, unix.CLOSE_RANGE_CLOEXEC)
}

// candidates are the paths that execvp(3) would try.
func candidates(name string, env []string) []string {
	if name == "" || strings.Contains(name, "/") {
		return []string{name}
	}
	path := "/bin:/usr/bin"
	for _, e := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
			break
		}
	}
	var list []string
	for dir := range strings.SplitSeq(path, ":") {
		if dir != "" && !strings.HasSuffix(dir, "/") {
			dir += "/"
		}
		list = append(list, dir+name)
	}
	return list
}

// restrictProgram takes away what a program must not have. The order: what
// needs a capability stands before they are dropped, the filter last.
func (p *plan) restrictProgram(name string) {
	p.step("restrict the program", name)
	if !p.spec.Root {
		if p.spec.UID == 0 {
			const noRoot = 1 | 1<<1 // SECBIT_NOROOT, and locked: exec gives uid 0 nothing
			p.call(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, noRoot)
		}
		p.call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if landlockABI() >= landlockScopes {
		// Abstract sockets have no path that a mount could cover; signals are
		// closed by the PID namespace already.
		attr := p.words(0, 0, unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET|unix.LANDLOCK_SCOPE_SIGNAL)
		p.call(unix.SYS_LANDLOCK_CREATE_RULESET, attr, 24, 0)
		rules := p.into()
		p.call(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0)
		p.closeSlot(rules)
	}
	if !p.spec.Terminal {
		// In the caller's session /dev/tty is the caller's terminal: nothing
		// may be typed into it (HAZARDS B14).
		filter := p.words(refuseTyping()...)
		prog := p.words(uint64(len(refuseTyping())), uint64(filter)) // struct sock_fprog
		p.fix = append(p.fix, uint32(prog)+8)
		p.call(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, prog, 0, 0)
	}
	if !p.spec.Root {
		const version3 = 0x20080522
		p.call(unix.SYS_CAPSET, p.words(version3), p.words(0, 0, 0))
	}
}

// landlockScopes is the first Landlock ABI with scopes (Linux 6.12).
const landlockScopes = 6

func landlockABI() int {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// refuseTyping is a seccomp filter, one instruction a word, that makes the
// ioctls TIOCSTI and TIOCLINUX EPERM in both ABIs of the machine. The kernel
// looks at the low 32 bits of the request only, so do we.
func refuseTyping() []uint64 {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		and   = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K

		nrAt, archAt, requestAt = 0, 4, 24 // in struct seccomp_data

		tioclinux = 0x541c
		x32       = 0x40000000 // __X32_SYSCALL_BIT
		deny      = 0x00050000 | uint32(unix.EPERM)
		allow     = 0x7fff0000
	)
	native, nativeIoctl, compat, compatIoctl := uint32(unix.AUDIT_ARCH_X86_64), uint32(16), uint32(unix.AUDIT_ARCH_I386), uint32(54)
	if runtime.GOARCH == "arm64" {
		native, nativeIoctl, compat = unix.AUDIT_ARCH_AARCH64, 29, unix.AUDIT_ARCH_ARM
	}
	in := func(code uint16, k uint32, yes, no uint64) uint64 { // struct sock_filter
		return uint64(code) | yes<<16 | no<<24 | uint64(k)<<32
	}
	return []uint64{
		in(load, archAt, 0, 0),
		in(equal, native, 0, 3), // else 5
		in(load, nrAt, 0, 0),
		in(and, ^uint32(x32), 0, 0),
		in(equal, nativeIoctl, 3, 7),
		in(equal, compat, 0, 6),
		in(load, nrAt, 0, 0),
		in(equal, compatIoctl, 0, 4),
		in(load, requestAt, 0, 0), // 8: an ioctl
		in(equal, unix.TIOCSTI, 1, 0),
		in(equal, tioclinux, 0, 1),
		in(ret, deny, 0, 0),
		in(ret, allow, 0, 0), // 12
	}
}
