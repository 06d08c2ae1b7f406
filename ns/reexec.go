package ns

import (
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// again is argv[0] of a process that is init by a second exec.
const again = "try-init"

// executeAgain is the fallback's step: init executes this binary and goes on
// there with the same program. Capabilities survive an exec only as ambient
// ones, except for uid 0.
func (p *plan) executeAgain() {
	if !p.spec.ReExec {
		return
	}
	const version3, all = 0x20080522, ^uint64(0)
	half := all & (1<<32 - 1)
	p.call(unix.SYS_CAPSET, p.words(version3), p.words(half|half<<32, half|half<<32, half|half<<32))
	for c := 0; c <= p.lastCap; c++ {
		p.call(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0)
	}
	keep := []int{p.control}
	for _, f := range p.close {
		keep = append(keep, int(f.Fd()))
	}
	if p.terminal != nil && p.terminal.fd >= 0 {
		keep = append(keep, p.terminal.fd)
	}
	for _, d := range p.inherit {
		keep = append(keep, d.fd)
		if d.feed >= 0 {
			keep = append(keep, d.feed)
		}
	}
	for _, fd := range keep {
		p.call(unix.SYS_FCNTL, fd, unix.F_SETFD, 0)
	}
	argv := p.strings([]string{again, itoa(int(p.memory.Fd()))})
	p.call(unix.SYS_EXECVE, "/proc/self/exe", argv, p.strings(nil))
	p.resume = len(p.ops)
}

// lastCap is the highest capability that the kernel knows.
func lastCap() int {
	text, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return unix.CAP_LAST_CAP
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return unix.CAP_LAST_CAP
	}
	return n
}

// Init takes over the process if it is an init by a second exec; otherwise it
// does nothing. Call it first thing in main, and in TestMain.
func Init() {
	if len(os.Args) != 2 || os.Args[0] != again || os.Getpid() != 1 {
		return
	}
	// This thread blocks in system calls that the scheduler knows nothing of.
	// So there is a processor for the goroutine that forwards signals, and no
	// collection that would want to stop the world.
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
	blockSignals()
	fd, err := strconv.Atoi(os.Args[1])
	if err != nil {
		os.Exit(125)
	}
	f := os.NewFile(uintptr(fd), "program")
	raw, err := io.ReadAll(f)
	if err != nil || f.Close() != nil || len(raw) == 0 {
		os.Exit(125)
	}
	c, resume := decode(raw)
	if err := c.forwardSignals(); err != nil {
		c.fail(resume, uintptr(err.(unix.Errno)))
		os.Exit(125)
	}
	c.breed()
	c.main(resume)
}

// forwardSignals reads signals as Go does it, since other threads of this
// process do not block them, and writes them where a signalfd would be, in
// its form.
func (c *child) forwardSignals() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	c.events = uintptr(pair[0])
	var ignored []os.Signal // by the caller (nohup(1)): so they stay, for the command too
	for _, s := range []os.Signal{unix.SIGHUP, unix.SIGINT} {
		if signal.Ignored(s) {
			ignored = append(ignored, s)
		}
	}
	got := make(chan os.Signal, 64)
	signal.Notify(got)
	if len(ignored) > 0 { // of none, all would be
		signal.Ignore(ignored...)
	}
	go func() {
		var info [128]byte
		for s := range got {
			info[0] = byte(s.(syscall.Signal))
			// A full socket drops it, as a pending signal would be.
			unix.Write(pair[1], info[:])
		}
	}()
	return nil
}

// blockSignals blocks all signals of this thread and returns what was blocked.
func blockSignals() (old uint64) {
	all := ^uint64(0)
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	return old
}

func setSignals(mask uint64) {
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&mask)), 0, 8, 0, 0)
}
