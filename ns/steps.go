package ns

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A plan is a Spec on its way to a program: what the parent looked up, and
// where in the program the things are that it speaks of later.
type plan struct {
	*builder
	spec *Spec

	control  int // init's end of the socket
	terminal *outerTerminal
	inherit  []inherited
	master   slot
	views    []slot // descriptors for the ready report
	mounts   []slot // detached, as Spec.Mounts
	entry    []int
	notes    []string // by note number: what init may want to warn of
	warnings []string
	close    []*os.File // to be closed in the parent when the fork is done
	fixed    int        // first of the descriptor numbers that nobody uses
	scratch  at         // memory for results
	rlimits  limits
	memory   *os.File // for ReExec: what the program is handed over in
	resume   int      // and where it goes on
	lastCap  int
	masked   bool // we are uid 0, who owns what /proc shows of the machine

	slave, gate slot   // session side of the terminal; what programs wait at for their maps
	witness     slot   // of a session without namespaces; the same holds for the next four lines
	guard       slot   // its pidfd
	children    slot   // by which it hears of its children
	roots       []slot // of the mounts
	after       int    // where the guard's last operations are
	others      uint64 // whom the kernel counts with the programs (RLIMIT_NPROC)
	umask       slot   // the caller's
	both, alone slot   // what init waits with
	mask        uint64 // of signals, the caller's
	devices     []device
	sockets     []boundSocket
	writable    []slot
	covers      []coverAt
	files       []slot
}

// A step is one thing that init does to itself before it runs the command.
// It compiles to system calls; a step that does not apply compiles to none.
type step struct {
	name string // as an error quotes it: "init: mount proc: …"
	do   func(*plan)
}

// steps is the design of init. The order matters and the comment says why;
// move a line only together with its reason.
var steps = []step{
	{"close descriptors", func(p *plan) { p.closeOthers() }}, // the branch's lock is among them: nobody but the supervisor may hold it (HAZARDS 14)
	{"map ids", (*plan).mapIDs},                              // before anything is made, or it would belong to nobody; and while /proc/self is still ours
	{"execute again", (*plan).executeAgain},                  // only if so wanted; what follows is the new process's
	{"hide init", (*plan).hide},                              // after the maps, which a process that is not dumpable may not open
	{"make mounts private", (*plan).makePrivate},             // before any mount: none may reach the host (mount_namespaces(7))
	{"clone devices", (*plan).cloneDevices},                  // while the host's /dev is still to be seen
	{"clone sockets", (*plan).cloneSockets},                  // while no overlay hides them
	{"clone writable paths", (*plan).cloneWritable},          // while they are writable: a clone keeps that
	{"create FUSE mount", (*plan).createFuse},                // detached, while the host's /dev is still to be seen; early, for the server starts meanwhile
	{"clone FUSE mount", (*plan).cloneFuse},                  // while nothing covers it, and it is writable
	{"create overlay", (*plan).createOverlays},               // detached, while their layers' mounts are writable (FACTS B2)
	{"clone read-only", (*plan).cloneReadOnly},               // what lies below a root, while nothing hides it
	{"make the tree read-only", (*plan).makeReadOnly},        // before anything of ours moves in, which stays writable
	{"stock covers and files", (*plan).stockPantry},          // while /dev, where the clones are taken from, is nobody's yet
	{"mount proc", (*plan).mountProc},                        // of our PID namespace; the old one is read-only by now
	{"make /dev", (*plan).makeDev},                           // before the roots: one may lie in /dev/shm
	{"mount private directory", (*plan).mountPrivate},        // before the roots: one may lie in it
	{"await the FUSE server", (*plan).awaitServer},           // before anything walks through what it serves
	{"move mount", (*plan).moveMounts},                       // outermost first, or the outer would hide the inner
	{"move writable path", (*plan).moveWritable},             // over a root or the read-only tree
	{"cover", (*plan).cover},                                 // after all that could bring a covered path back
	{"bind socket", (*plan).bindSockets},                     // after the covers: a socket is passed on purpose
	{"bind file", (*plan).bindFiles},                         // the same
	{"bring loopback up", (*plan).loopback},                  // a network namespace starts with it down
	{"join a new keyring", (*plan).joinKeyring},              // before the first program inherits the caller's (HAZARDS 28)
	{"open descriptors anew", (*plan).reopen},                // by path, so after all mounts (HAZARDS 2)
	{"enter working directory", (*plan).enterDirectory},      // by path: the inherited one lies on the host's mount
	{"open terminal", (*plan).openTerminal},                  // on the devpts of the session, so that it has a name here (HAZARDS B16)
	{"read signals", (*plan).readEvents},                     // all are blocked since the fork; from here they are read
	{"report ready", (*plan).reportReady},
}

// compile turns a Spec into a program.
func (p *plan) compile() error {
	p.scratch = p.data(make([]byte, 512))
	p.mounts = make([]slot, len(p.spec.Mounts))
	list := steps
	if p.spec.Confined {
		list = confinedSteps
	}
	for _, s := range list {
		p.step(s.name, "")
		s.do(p)
	}
	p.call(opEnd)
	for i := range p.spec.Programs {
		p.compileProgram(i)
	}
	if len(p.pending) > 0 {
		panic("ns: a jump leads nowhere")
	}
	return p.err
}

// on names the object of what follows, within the current step.
func (p *plan) on(what string) { p.now.what = what }

func (p *plan) closeOthers(also ...int) {
	keep := append([]int{p.control}, also...)
	if p.terminal != nil && p.terminal.fd >= 0 {
		keep = append(keep, p.terminal.fd)
	}
	for _, d := range p.inherit {
		keep = append(keep, d.fd)
		if d.feed >= 0 {
			keep = append(keep, d.feed)
		}
	}
	for _, f := range p.close { // what only this start needs
		keep = append(keep, int(f.Fd()))
	}
	p.closeGaps(keep, 0)
	p.fixed = max(slices.Max(keep)+1, 32)
}

// closeGaps applies close_range(2) to all descriptors but keep.
func (p *plan) closeGaps(keep []int, flags int) {
	slices.Sort(keep)
	next := 0
	for _, fd := range slices.Compact(keep) {
		if fd > next {
			p.call(unix.SYS_CLOSE_RANGE, next, fd-1, flags)
		}
		next = fd + 1
	}
	p.call(unix.SYS_CLOSE_RANGE, next, uint64(^uint32(0)), flags)
}

func (p *plan) mapIDs() {
	if p.spec.Root {
		// Only a process with privilege outside may write them: the supervisor
		// does, and says so with one request. Its end says that it is gone.
		p.call(unix.SYS_READ, p.control, p.scratch, 512)
		p.call(opSome, p.into())
		return
	}
	p.call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1) // a copy of memory that another init has hidden is hidden too
	p.write("/proc/self/setgroups", "deny")
	p.write("/proc/self/uid_map", fmt.Sprintf("%d %d 1\n", p.spec.UID, os.Geteuid()))
	p.write("/proc/self/gid_map", fmt.Sprintf("%d %d 1\n", p.spec.GID, os.Getegid()))
}

// write puts text into the existing file at path.
func (p *plan) write(path, text string, tolerate ...unix.Errno) {
	p.on(path)
	var out target
	p.call(unix.SYS_OPENAT, unix.AT_FDCWD, path, unix.O_WRONLY|unix.O_CLOEXEC)
	fd := p.into()
	if len(tolerate) > 0 {
		p.orElse(&out)
	}
	p.call(unix.SYS_WRITE, fd, text, len(text))
	p.tolerate(tolerate...)
	p.call(unix.SYS_CLOSE, fd)
	p.here(&out)
	p.on("")
}

func (p *plan) hide() {
	p.call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	// No core of init: it holds the supervisor's memory. The program gets the
	// caller's limit back, so only the soft one moves.
	core := p.words(0, p.rlimits.core.Max)
	p.call(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, core, 0)
	p.call(unix.SYS_PRCTL, unix.PR_SET_NAME, "try-init")
	p.call(unix.SYS_UMASK, 0) // modes below are meant as they stand
	p.umask = p.into()
	if p.spec.Root {
		p.call(unix.SYS_EVENTFD2, 0, unix.EFD_CLOEXEC)
		p.gate = p.into()
	}
}

func (p *plan) makePrivate() {
	p.call(unix.SYS_MOUNT, 0, "/", 0, unix.MS_REC|unix.MS_PRIVATE, 0)
}

// cloneMount takes a detached copy of the mount at path.
func (p *plan) cloneMount(path string, flags int) slot {
	p.call(unix.SYS_OPEN_TREE, unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|flags)
	return p.into()
}

// restrict sets attributes on the detached mount m.
func (p *plan) restrict(m slot, attr int) {
	p.call(unix.SYS_MOUNT_SETATTR, m, "", unix.AT_EMPTY_PATH, p.words(uint64(attr), 0, 0, 0), 32)
}

// move puts the detached mount m at path.
func (p *plan) move(m slot, path string, flags int) {
	p.call(unix.SYS_MOVE_MOUNT, m, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH|flags)
}

func (p *plan) closeSlot(s slot) { p.call(unix.SYS_CLOSE, s) }

// newMount makes a detached mount of a file system that needs no source.
// Options are key, value pairs; an empty value makes a flag.
func (p *plan) newMount(fstype string, attr int, options ...string) slot {
	p.call(unix.SYS_FSOPEN, fstype, unix.FSOPEN_CLOEXEC)
	fs := p.into()
	for i := 0; i < len(options); i += 2 {
		if options[i+1] == "" {
			p.call(unix.SYS_FSCONFIG, fs, unix.FSCONFIG_SET_FLAG, options[i], 0, 0)
		} else {
			p.call(unix.SYS_FSCONFIG, fs, unix.FSCONFIG_SET_STRING, options[i], options[i+1], 0)
		}
	}
	p.call(unix.SYS_FSCONFIG, fs, unix.FSCONFIG_CMD_CREATE, 0, 0, 0)
	p.call(unix.SYS_FSMOUNT, fs, unix.FSMOUNT_CLOEXEC, attr)
	m := p.into()
	p.closeSlot(fs)
	return m
}

// cloneSockets opens each socket without following a link and clones from
// that descriptor, if it still is the socket that the parent saw: what
// /proc/net/unix once said of the path proves nothing (HAZARDS 31).
func (p *plan) cloneSockets() {
	for _, path := range p.spec.Sockets {
		p.on(path)
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
			p.warn("socket %s is not there", path)
			continue
		}
		var gone, done target
		p.call(unix.SYS_OPENAT, unix.AT_FDCWD, path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC)
		fd := p.into()
		p.orElse(&gone)
		p.same(fd, st.Ino, unix.S_IFSOCK, &gone)
		p.call(unix.SYS_OPEN_TREE, fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		m := p.into()
		p.orElse(&gone)
		p.restrict(m, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
		p.closeSlot(fd)
		p.jump(&done)
		p.here(&gone)
		p.note("socket %s is not there", path)
		p.here(&done)
		p.sockets = append(p.sockets, boundSocket{path, m})
	}
}

// same goes to other unless fd is inode ino of the given type.
func (p *plan) same(fd slot, ino uint64, mode int, other *target) {
	const statxMode, statxIno = 28, 32 // offsets in struct statx
	p.call(unix.SYS_STATX, fd, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE|unix.STATX_INO, p.scratch)
	p.orElse(other)
	p.call(opEqual, p.scratch+statxMode, unix.S_IFMT, mode)
	p.orElse(other)
	p.call(opEqual, p.scratch+statxIno, ^uint64(0), ino)
	p.orElse(other)
}

type boundSocket struct {
	path  string
	mount slot
}

func (p *plan) cloneWritable() {
	for _, path := range p.spec.AllowWrite {
		p.on(path)
		p.writable = append(p.writable, p.cloneMount(path, unix.AT_RECURSIVE))
	}
}

// makeReadOnly also closes the device nodes that lie anywhere but in /dev, in
// what was installed for a container or a chroot: writing to a device is no
// writing to a file system, and root may open them.
func (p *plan) makeReadOnly() {
	p.call(unix.SYS_MOUNT_SETATTR, unix.AT_FDCWD, "/", unix.AT_RECURSIVE, p.words(unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV, 0, 0, 0), 32)
}

func (p *plan) mountPrivate() {
	for _, dir := range p.spec.Private {
		p.on(dir)
		var st unix.Stat_t
		if unix.Stat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		mode := fmt.Sprintf("%o", st.Mode&0o7777)
		m := p.newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", mode)
		p.move(m, dir, 0)
		p.closeSlot(m)
	}
}

// place makes a mount point at path, a directory or a file, if there can be
// none because a file system of ours, empty so far, lies there.
func (p *plan) place(path string, dir bool) {
	own := p.ownAbove(path)
	if own == "" {
		return
	}
	at, rest := own, strings.TrimPrefix(path, own+"/")
	for part := range strings.SplitSeq(rest, "/") {
		at += "/" + part
		if at != path || dir {
			p.call(unix.SYS_MKDIRAT, unix.AT_FDCWD, at, 0o755)
		} else {
			p.call(unix.SYS_MKNODAT, unix.AT_FDCWD, at, unix.S_IFREG|0o600, 0)
		}
		p.tolerate(unix.EEXIST)
	}
}

// ownAbove finds the empty file system of ours that path lies in, unless an
// overlay or a clone of something real lies between: nothing is made there.
func (p *plan) ownAbove(path string) (own string) {
	below := func(dir string) bool { return strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") }
	for _, dir := range append([]string{"/dev/shm"}, p.spec.Private...) {
		if below(dir) && len(dir) > len(own) {
			own = dir
		}
	}
	for _, o := range p.spec.Mounts {
		if below(o.Target) && len(o.Target) > len(own) {
			return ""
		}
	}
	for _, dir := range p.spec.AllowWrite {
		if below(dir) && len(dir) > len(own) {
			return ""
		}
	}
	return own
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

func (p *plan) moveWritable() {
	for i, path := range p.spec.AllowWrite {
		p.on(path)
		p.place(path, isDir(path))
		p.move(p.writable[i], path, 0)
		p.closeSlot(p.writable[i])
	}
}

func (p *plan) bindSockets() {
	for _, s := range p.sockets {
		p.on(s.path)
		var skip, done target
		p.call(opSome, s.mount)
		p.orElse(&done) // it was gone before, and noted
		p.place(s.path, false)
		p.move(s.mount, s.path, 0)
		p.orElse(&skip)
		p.closeSlot(s.mount)
		p.jump(&done)
		p.here(&skip)
		p.note("socket %s is covered or was removed in the branch", s.path)
		p.here(&done)
	}
}

func (p *plan) loopback() {
	if !p.spec.NetNone {
		return
	}
	p.call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	fd := p.into()
	request := make([]byte, 40) // struct ifreq
	copy(request, "lo")
	request[16] = unix.IFF_UP | unix.IFF_RUNNING
	p.call(unix.SYS_IOCTL, fd, unix.SIOCSIFFLAGS, p.data(request))
	p.closeSlot(fd)
}

func (p *plan) joinKeyring() {
	if p.spec.KeepKeyring {
		return
	}
	// A kernel without keyrings, or a seccomp filter that forbids them, keeps
	// them from the programs as well.
	p.call(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0)
	p.tolerate(unix.ENOSYS, unix.EPERM)
}

func (p *plan) enterDirectory() {
	p.on(p.spec.Dir)
	p.call(unix.SYS_CHDIR, p.spec.Dir)
}

func (p *plan) readEvents() {
	p.call(opEvents, p.words(^uint64(0)))
	events := p.into()
	event := unix.EpollEvent{Events: unix.EPOLLIN}
	readable := p.data(unsafe.Slice((*byte)(unsafe.Pointer(&event)), unsafe.Sizeof(event)))
	for _, epoll := range []*slot{&p.alone, &p.both} {
		p.call(unix.SYS_EPOLL_CREATE1, unix.EPOLL_CLOEXEC)
		*epoll = p.into()
		p.call(unix.SYS_EPOLL_CTL, *epoll, unix.EPOLL_CTL_ADD, events, readable)
	}
	p.call(unix.SYS_EPOLL_CTL, p.both, unix.EPOLL_CTL_ADD, p.control, readable)
	if p.spec.Confined {
		p.call(unix.SYS_EPOLL_CTL, p.both, unix.EPOLL_CTL_ADD, p.guard, readable)
	}
}

func (p *plan) reportReady() { p.call(opReady) }

// note sets a bit that stands for the warning; at most 256 exist.
func (p *plan) note(format string, args ...any) {
	if len(p.notes) < 256 {
		p.call(opNote, len(p.notes))
		p.notes = append(p.notes, fmt.Sprintf(format, args...))
	}
}

// warn says what the parent knows before the start.
func (p *plan) warn(format string, args ...any) {
	p.warnings = append(p.warnings, fmt.Sprintf(format, args...))
}
