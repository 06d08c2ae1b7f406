package ns

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Where user namespaces are forbidden an ordinary user's session has none, nor
// any other that they would allow. What it captures lies at mounts that the
// caller made and serves; Landlock keeps its programs from writing elsewhere
// and from signalling whom they did not start, and that init can kill them all
// follows from the same (kill in pid1.go).
//
//	supervisor
//	   │  clone
//	   ▼
//	guard: the domain that writes at the mounts only and signals nobody outside
//	   │  clone
//	   ▼
//	init: one further in, so that it cannot signal the guard
//	   │  clone
//	   ▼
//	program: one further in, so that it cannot signal init
//
// The guard is what the kernel is to a PID namespace: it ends after every other
// process of the session, however init ended. Both adopt orphans
// (PR_SET_CHILD_SUBREAPER), so that whoever has no child left knows that none
// is left at all. Each of the two ends the session if the other is gone. We also
// tried the supervisor as the one who adopts: it would have to tell them from
// the children of whoever calls this package, and can kill them one by one only,
// which a fork bomb outruns.

// confinedSteps is what steps is, without namespaces.
var confinedSteps = []step{
	{"close descriptors", func(p *plan) { p.closeOthers() }}, // as ever: the branch's lock is among them
	{"hide init", (*plan).hide},                              // the guard too holds the supervisor's memory
	{"leave the terminal", (*plan).leaveTerminal},            // only if it is covered; before the fork, so that neither has it
	{"adopt orphans", (*plan).adopt},                         // before there are any
	{"make a witness", (*plan).makeWitness},                  // while we may signal it, being in no domain
	{"confine writing", (*plan).confineWriting},              // after all that the guard opens for itself
	{"prove the scope", (*plan).proveScope},                  // before anything could be killed
	{"stand guard", (*plan).standGuard},                      // what follows is init's
	{"adopt orphans", (*plan).adopt},                         // each process for itself (prctl(2))
	{"make a witness", (*plan).makeWitness},                  // in the guard's domain, which init is about to leave
	{"spare the guard", (*plan).spareGuard},                  // from here on kill(-1) does not reach it
	{"prove the scope", (*plan).proveScope},                  // as above
	{"join a new keyring", (*plan).joinKeyring},              // before the first program inherits the caller's (HAZARDS 28)
	{"open descriptors anew", (*plan).reopen},                // at the mounts (HAZARDS 2)
	{"enter working directory", (*plan).enterDirectory},      // the same
	{"open terminal", (*plan).openTerminal},                  // by init, which leads its session
	{"read signals", (*plan).readEvents},                     // all are blocked since the fork; from here they are read
	{"report ready", (*plan).reportReady},
}

// Rights of Landlock: all that write. To read is free.
const (
	writesFile = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	writes     = writesFile | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
	scopes = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
)

// Confinable says why a session without namespaces could not be held.
func Confinable() error {
	if abi := landlockABI(); abi < landlockScopes {
		return fmt.Errorf("the scopes of Landlock (Linux 6.12, ABI %d) are not here, its ABI is %d: %w", landlockScopes, abi, unix.EOPNOTSUPP)
	}
	return nil
}

// Inside is where path shows in a session without namespaces: below the mount
// of the root that it lies in, else where it is.
func Inside(mounts []Mount, path string) string {
	best := -1
	for i, m := range mounts {
		if (path == m.Target || strings.HasPrefix(path, m.Target+"/")) && (best < 0 || len(m.Target) > len(mounts[best].Target)) {
			best = i
		}
	}
	if best < 0 {
		return path
	}
	return mounts[best].Source + path[len(mounts[best].Target):]
}

// inside is where what an inherited descriptor lies at is to be opened.
func (p *plan) inside(path string) string {
	if !p.spec.Confined {
		return path
	}
	return Inside(p.spec.Mounts, path)
}

const ownTerminal = "/dev/tty"

// leaveTerminal: whose terminal nobody may have is in a session that has none.
func (p *plan) leaveTerminal() {
	if slices.Contains(p.spec.Covers, ownTerminal) {
		p.call(unix.SYS_SETSID)
	}
}

func (p *plan) adopt() { p.call(unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// makeWitness makes a process that has ended and stays, since nobody waits for
// it, for as long as this one lives. It is in the domain that we are in now, and
// we may signal it: whoever may not, a step later, is kept from it by the domain
// that he has entered meanwhile, and by nothing else.
func (p *plan) makeWitness() {
	p.call(opWitness)
	p.witness = p.into()
	p.call(unix.SYS_PIDFD_SEND_SIGNAL, p.witness, 0, 0, 0)
}

func (p *plan) proveScope() { p.call(opProve, p.witness) }

// confineWriting enters the domain of the session.
func (p *plan) confineWriting() {
	p.call(unix.SYS_LANDLOCK_CREATE_RULESET, p.words(writes, 0, scopes), 24, 0)
	rules := p.into()
	for _, m := range p.spec.Mounts {
		p.mayWrite(rules, m.Source, writes, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	for _, path := range p.spec.AllowWrite {
		if isDir(path) {
			p.mayWrite(rules, path, writes, unix.O_PATH)
		} else {
			p.mayWrite(rules, path, writesFile, unix.O_PATH)
		}
	}
	devices := append(slices.Clone(plainDevices), findDevices("", computeDevices)...)
	for _, name := range append(devices, "ptmx", "pts") {
		path := "/dev/" + name
		if exists(path) && !slices.Contains(p.spec.Covers, path) {
			p.mayWrite(rules, path, writesFile, unix.O_PATH)
		}
	}
	// What the caller opened for writing is written to by a name as well:
	// /dev/stdout, ttyname(3).
	for _, d := range p.inherit {
		if d.flags&unix.O_ACCMODE == unix.O_RDONLY || d.anew || !strings.HasPrefix(d.path, "/") {
			continue
		}
		p.on(d.String())
		access := p.value(writesFile)
		p.call(unix.SYS_FCNTL, d.fd, unix.F_DUPFD_CLOEXEC, 3)
		fd := p.into()
		p.rule(rules, access)
		p.tolerate(unix.EBADFD) // of no file system that has paths: it needs no rule
		p.closeSlot(fd)
	}
	p.on("")
	p.enterDomain(rules)
}

func (p *plan) enterDomain(rules slot) {
	p.call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	p.call(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0)
	p.closeSlot(rules)
}

// mayWrite adds a rule for path. The roots of mounts stay open: the guard has
// their file systems written out at the end.
func (p *plan) mayWrite(rules slot, path string, access uint64, flags int) {
	p.on(path)
	a := p.value(access)
	p.call(unix.SYS_OPENAT, unix.AT_FDCWD, path, flags|unix.O_CLOEXEC)
	fd := p.into()
	p.rule(rules, a)
	if flags&unix.O_PATH != 0 {
		p.closeSlot(fd)
		return
	}
	p.roots = append(p.roots, fd)
}

// value puts a number into a slot.
func (p *plan) value(v uint64) slot {
	p.call(opSome, v)
	return p.into()
}

// rule adds the rule whose rights are in a slot, and whose descriptor in the
// next one: together they are a struct landlock_path_beneath_attr.
func (p *plan) rule(rules, access slot) {
	const pathBeneath = 1
	p.call(unix.SYS_LANDLOCK_ADD_RULE, rules, pathBeneath, addressOf(access), 0)
}

// standGuard makes init. The guard goes on at after when init has ended, and
// with it all others: what the kernel has not written yet of the files at the
// mounts is written, for somebody outside may keep those.
func (p *plan) standGuard() {
	p.call(unix.SYS_GETPID)
	own := p.into()
	p.call(unix.SYS_PIDFD_OPEN, own, 0)
	p.guard = p.into()
	p.call(unix.SYS_SIGNALFD4, ^uint64(0), p.words(1<<(unix.SIGCHLD-1)), 8, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK)
	p.children = p.into()
	var init target
	p.call(opGuard)
	p.jump(&init)
	p.after = len(p.ops)
	for _, root := range p.roots {
		p.call(unix.SYS_SYNCFS, root)
		p.tolerate(unix.ENOTCONN, unix.EIO) // the supervisor is gone, and what it served
	}
	p.call(opEnd)
	p.here(&init)
	p.closeSlot(p.children)
	for _, root := range p.roots {
		p.closeSlot(root)
	}
}

// spareGuard enters a domain that only scopes.
func (p *plan) spareGuard() {
	p.call(unix.SYS_LANDLOCK_CREATE_RULESET, p.words(0, 0, unix.LANDLOCK_SCOPE_SIGNAL), 24, 0)
	p.enterDomain(p.into())
}
