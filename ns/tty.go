package ns

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// findTerminal looks for the caller's terminal among 0–2.
func (p *plan) findTerminal() (*outerTerminal, error) {
	t := &outerTerminal{fd: -1, size: unix.Winsize{Row: 24, Col: 80}}
	for fd := range 3 {
		saved, err := getTerminal(fd)
		if err != nil {
			continue
		}
		t.fd, t.saved = fd, saved
		if size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil {
			t.size = *size
		}
		break
	}
	return t, nil
}

// getTerminal and setTerminal speak the kernel's struct termios, so that init
// can compare and set it without a conversion.
func getTerminal(fd int) (t [terminalSize]byte, err error) {
	var buf [64]byte // the kernel writes terminalSize; more is harmless
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TCGETS, uintptr(unsafe.Pointer(&buf)))
	if errno != 0 {
		return t, errno
	}
	copy(t[:], buf[:])
	return t, nil
}

func setTerminal(fd int, t [terminalSize]byte) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TCSETS, uintptr(unsafe.Pointer(&t)))
		if errno == 0 {
			return nil
		}
		if errno != unix.EINTR {
			return errno
		}
	}
}

// rawTerminal is cfmakeraw(3).
func rawTerminal(t [terminalSize]byte) [terminalSize]byte {
	m := (*unix.Termios)(unsafe.Pointer(&struct {
		t [terminalSize]byte
		_ [64]byte
	}{t: t}))
	m.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	m.Oflag &^= unix.OPOST
	m.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	m.Cflag &^= unix.CSIZE | unix.PARENB
	m.Cflag |= unix.CS8
	m.Cc[unix.VMIN], m.Cc[unix.VTIME] = 1, 0
	return *(*[terminalSize]byte)(unsafe.Pointer(m))
}

// A relay carries bytes between the session's terminal and the caller's.
type relay struct {
	outer  *outerTerminal
	master *os.File
	conn   syscall.RawConn
	ask    func(request) error

	out sync.Mutex // one reads from master and writes to 1 at a time: the order holds

	mu      sync.Mutex // guards what follows
	raw     [terminalSize]byte
	isRaw   bool
	wanted  bool   // the program has the terminal, or will when it goes on
	input   *input // nil: the caller's keyboard is not ours
	signals chan os.Signal
	stops   chan struct{} // the program was stopped
	done    chan struct{}
}

func newRelay(outer *outerTerminal, master int, ask func(request) error) *relay {
	unix.SetNonblock(master, true) // so that the runtime's poller takes it; a pty can always
	r := &relay{outer: outer, ask: ask, done: make(chan struct{})}
	r.master = os.NewFile(uintptr(master), "terminal of the session")
	r.conn, _ = r.master.SyscallConn() // of an open file: no error
	r.signals = make(chan os.Signal, 1)
	r.stops = make(chan struct{}, 1)
	signal.Notify(r.signals, unix.SIGWINCH)
	go r.resize()
	go r.follow()
	return r
}

// resize hands the size on; the kernel tells the foreground group.
func (r *relay) resize() {
	for {
		select {
		case <-r.signals:
			r.setSize()
		case <-r.done:
			return
		}
	}
}

func (r *relay) setSize() {
	if r.outer.fd < 0 {
		return
	}
	if size, err := unix.IoctlGetWinsize(r.outer.fd, unix.TIOCGWINSZ); err == nil {
		r.conn.Control(func(fd uintptr) { unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size) })
	}
}

// begin starts to relay. Nothing may be printed before the caller's terminal
// is raw: it would add carriage returns of its own.
func (r *relay) begin() error {
	if err := r.enter(); err != nil {
		return err
	}
	go r.copyOut()
	return nil
}

// enter makes the caller's terminal raw and begins to read from it.
func (r *relay) enter() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted = true
	return r.enterLocked()
}

func (r *relay) enterLocked() error {
	if r.input != nil {
		return nil
	}
	if r.outer.fd >= 0 {
		saved, err := getTerminal(r.outer.fd)
		if err != nil {
			return fmt.Errorf("read the terminal's settings: %w", err)
		}
		if err := setTerminal(r.outer.fd, rawTerminal(saved)); err != nil {
			return fmt.Errorf("make the terminal raw: %w", err)
		}
		r.outer.saved = saved
		r.raw, err = getTerminal(r.outer.fd) // as the driver took it
		if err != nil {
			return fmt.Errorf("read the terminal's settings: %w", err)
		}
		r.isRaw = true
		if err := r.ask(request{kind: requestTerminal, saved: saved, raw: r.raw}); err != nil {
			r.leaveLocked()
			return err
		}
		r.setSize()
	}
	in, err := newInput(r.master)
	if err != nil {
		r.leaveLocked()
		return err
	}
	r.input = in
	return nil
}

// leave stops reading and gives the terminal its settings back, if they are
// still ours.
func (r *relay) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted = false
	r.leaveLocked()
}

func (r *relay) leaveLocked() {
	if r.input != nil {
		r.input.close()
		r.input = nil
	}
	if !r.isRaw {
		return
	}
	r.isRaw = false
	if now, err := getTerminal(r.outer.fd); err == nil && now == r.raw {
		setTerminal(r.outer.fd, r.outer.saved) // a terminal that is gone needs none
	}
}

func (r *relay) close() {
	r.leave()
	r.drain()
	signal.Stop(r.signals)
	close(r.done)
	r.master.Close()
}

// copyOut writes what the session prints to descriptor 1, until the terminal
// is closed.
func (r *relay) copyOut() {
	buf := make([]byte, 64<<10)
	for {
		ended := false
		err := r.conn.Read(func(fd uintptr) bool {
			var again bool
			again, ended = r.transfer(int(fd), buf)
			return !again
		})
		if err != nil || ended {
			return
		}
	}
}

// transfer moves what is there. again: nothing is, now.
func (r *relay) transfer(fd int, buf []byte) (again, ended bool) {
	r.out.Lock()
	defer r.out.Unlock()
	n, err := unix.Read(fd, buf)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return true, false
	case errors.Is(err, unix.EINTR):
		return false, false
	case err != nil || n == 0: // EIO: init is gone
		return false, true
	}
	os.Stdout.Write(buf[:n]) // nobody reads: what is printed is lost, as without us
	return false, false
}

// drain moves all that was printed so far. A read that finds nothing first
// waits for what is on its way from the other side (n_tty_read flushes).
func (r *relay) drain() {
	buf := make([]byte, 64<<10)
	r.conn.Control(func(fd uintptr) {
		for {
			if again, ended := r.transfer(int(fd), buf); again || ended {
				return
			}
		}
	})
}

// backgroundLook is how often a job in the background looks whether it is in
// the foreground again: a shell's fg does not say so to a job that runs.
const backgroundLook = 300 * time.Millisecond

// follow deals with each stop of the program.
func (r *relay) follow() {
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, unix.SIGCONT)
	defer signal.Stop(woken)
	for {
		select {
		case <-r.stops:
			if r.outer.fd >= 0 { // else there is no shell to have us go on
				r.suspend(woken)
			}
		case <-woken:
			r.ask(request{kind: requestResume})
		case <-r.done:
			return
		}
	}
}

// suspend follows a program that was stopped: the caller's terminal is as the
// shell expects it, this process group stops as a whole, and when it goes on,
// so does the program: in the foreground with the terminal, in the background
// without a keyboard until it comes to the foreground or ends.
func (r *relay) suspend(woken <-chan os.Signal) {
	r.mu.Lock()
	r.drain()
	r.leaveLocked()
	r.mu.Unlock()
	for stopped := true; stopped; {
		stopped = false
		for len(woken) > 0 {
			<-woken // of an earlier time
		}
		unix.Kill(0, unix.SIGTSTP)
		select {
		case <-woken:
		case <-time.After(backgroundLook): // nobody stopped us: the group is an orphan, or ignores TSTP
		case <-r.done:
			return
		}
		if r.foreground() {
			break
		}
		r.ask(request{kind: requestResume}) // bg; an init that is gone tells it elsewhere
		for !stopped && !r.foreground() {
			select {
			case <-r.stops:
				stopped = true
			case <-time.After(backgroundLook):
			case <-r.done:
				return
			}
			r.mu.Lock()
			ended := !r.wanted
			r.mu.Unlock()
			if ended {
				return
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wanted {
		r.enterLocked() // where the terminal is gone, the program shall see that
	}
	r.ask(request{kind: requestResume})
}

func (r *relay) foreground() bool {
	if r.outer.fd < 0 {
		return true
	}
	group, err := unix.IoctlGetInt(r.outer.fd, unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// An input copies descriptor 0 to the session's terminal until it is closed.
// It reads only when there is something, and nothing after close: that
// belongs to whoever reads next.
type input struct {
	master *os.File
	wake   [2]int
	done   chan struct{}
}

func newInput(master *os.File) (*input, error) {
	in := &input{master: master, done: make(chan struct{})}
	if err := unix.Pipe2(in.wake[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	go in.copy()
	return in, nil
}

func (in *input) close() {
	in.master.SetWriteDeadline(time.Unix(1, 0)) // a program that does not read holds up nobody
	unix.Close(in.wake[1])
	<-in.done
	unix.Close(in.wake[0])
	in.master.SetWriteDeadline(time.Time{})
}

func (in *input) copy() {
	defer close(in.done)
	buf := make([]byte, 4096)
	fds := []unix.PollFd{{Fd: int32(in.wake[0]), Events: unix.POLLIN}, {Fd: 0, Events: unix.POLLIN}}
	for {
		fds[0].Revents, fds[1].Revents = 0, 0
		if _, err := unix.Poll(fds, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return
		}
		if fds[0].Revents != 0 {
			return
		}
		n, err := unix.Read(0, buf)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if n <= 0 {
			in.master.Write([]byte{4}) // end of file, as typed: ^D
			return
		}
		if _, err := in.master.Write(buf[:n]); err != nil {
			return
		}
	}
}
