package ns

import (
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
		n = min(n+p.others, p.rlimits.processes.Max)
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
		// closed by the PID namespace already, where there is one.
		p.call(unix.SYS_LANDLOCK_CREATE_RULESET, p.words(0, 0, scopes), 24, 0)
		rules := p.into()
		p.call(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0)
		p.closeSlot(rules)
	}
	p.installFilter()
	if !p.spec.Root {
		const version3 = 0x20080522
		p.call(unix.SYS_CAPSET, p.words(version3), p.words(0, 0, 0))
	}
}

// installFilter refuses what no mount and no namespace closes.
func (p *plan) installFilter() {
	if list := p.refusals(); len(list) > 0 {
		words := filter(list)
		prog := p.words(uint64(len(words)), uint64(p.words(words...))) // struct sock_fprog
		p.fix = append(p.fix, uint32(prog)+8)
		p.call(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, prog, 0, 0)
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
