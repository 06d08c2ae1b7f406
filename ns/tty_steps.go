package ns

import "golang.org/x/sys/unix"

// terminalSize is the size of the kernel's struct termios (TCGETS).
const terminalSize = 36

// outerTerminal is the caller's terminal, as init needs it: to give it back
// its settings when the supervisor was killed.
type outerTerminal struct {
	fd    int // -1: none, a terminal was asked for all the same
	saved [terminalSize]byte
	size  unix.Winsize
}

// openTerminal opens the session's terminal on its own devpts and makes init
// its session leader. A program that led the session itself could not be
// stopped: its process group would be orphaned (HAZARDS B15).
func (p *plan) openTerminal() {
	t := p.terminal
	if t == nil {
		return
	}
	ptmx := "/dev/pts/ptmx"
	if p.spec.Confined {
		ptmx = "/dev/ptmx"
	}
	p.call(unix.SYS_OPENAT, unix.AT_FDCWD, ptmx, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	p.master = p.into()
	p.call(unix.SYS_IOCTL, p.master, unix.TIOCSPTLCK, p.words(0))
	p.call(unix.SYS_IOCTL, p.master, unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	p.slave = p.into()
	if t.fd >= 0 {
		p.call(unix.SYS_IOCTL, p.slave, unix.TCSETS, p.data(t.saved[:]))
	}
	p.call(unix.SYS_IOCTL, p.slave, unix.TIOCSWINSZ, p.words(uint64(t.size.Row)|uint64(t.size.Col)<<16|uint64(t.size.Xpixel)<<32|uint64(t.size.Ypixel)<<48))
	p.call(unix.SYS_SETSID)
	p.call(unix.SYS_IOCTL, p.slave, unix.TIOCSCTTY, 0)
	p.views = append(p.views, p.master)
}

// takeTerminal makes the program lead the foreground group of the session's
// terminal, with the settings that the caller's had. All signals are blocked,
// so asking from the background does not stop it.
func (p *plan) takeTerminal() {
	t := p.terminal
	if t == nil {
		return
	}
	p.call(unix.SYS_SETPGID, 0, 0)
	p.call(unix.SYS_GETPID)
	pid := p.into()
	p.call(unix.SYS_IOCTL, p.slave, unix.TIOCSPGRP, addressOf(pid))
	if t.fd >= 0 {
		p.call(unix.SYS_IOCTL, p.slave, unix.TCSETS, p.data(t.saved[:]))
	}
	for _, d := range p.inherit {
		// 2 may be a file of the caller's: stdout and stderr stay apart then.
		if d.fd < 2 || d.fd == 2 && d.tty {
			p.call(unix.SYS_DUP3, p.slave, d.fd, 0)
		}
	}
}
