package ns

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// An inherited descriptor is one that the caller left open for the programs,
// or that a Program names as its Stdio.
//
// One that was opened outside lies on a mount outside, which is not
// read-only: a directory serves openat, a file opened for reading is opened
// for writing through /proc/self/fd. So whatever is not itself the caller's
// own act of writing is opened anew inside, by path (HAZARDS 2, B6).
type inherited struct {
	fd     int
	extra  bool // for one Program only: stays with init
	tty    bool
	path   string // what /proc/self/fd says
	anew   bool   // must be opened inside, or not be passed at all
	prefer bool   // better opened inside, else passed as it is
	flags  int
	mode   int // type, S_IFMT
	ino    uint64
	pos    int64
	feed   int      // read side of a pipe that feeds it otherwise; -1: none
	read   *os.File // the pipe
	write  *os.File
	same   slot // the descriptor as opened inside, for its offset
	note   int  // note number: it is fed
}

// findInherited looks at our open descriptors: 0–2, and those without
// close-on-exec, which a plain exec would pass as well.
func (p *plan) findInherited() error {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list open descriptors: %w", err)
	}
	for _, e := range names {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || fd > 2 && flags&unix.FD_CLOEXEC != 0 {
			continue // EBADF: the descriptor of this listing
		}
		if err := p.inheritOne(fd, false); err != nil {
			return err
		}
	}
	for _, prog := range p.spec.Programs {
		for _, f := range prog.Stdio {
			if f == nil || slices.ContainsFunc(p.inherit, func(d inherited) bool { return d.fd == int(f.Fd()) }) {
				continue
			}
			if err := p.inheritOne(int(f.Fd()), true); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *plan) inheritOne(fd int, extra bool) error {
	d := inherited{fd: fd, extra: extra, feed: -1}
	var st unix.Stat_t
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		return fmt.Errorf("look at descriptor %d: %w", fd, err)
	}
	d.flags, d.mode, d.ino = flags, int(st.Mode&unix.S_IFMT), st.Ino
	d.path, err = os.Readlink("/proc/self/fd/" + itoa(fd))
	if err != nil {
		d.path = "" // too long: it cannot be had by path
	}
	real := strings.HasPrefix(d.path, "/") && !isMemfd(d.path)
	switch {
	case flags&unix.O_PATH != 0, d.mode == unix.S_IFDIR:
		d.anew = true
	case d.mode == unix.S_IFREG:
		d.anew = flags&unix.O_ACCMODE == unix.O_RDONLY && (real || d.path == "")
		if d.pos, err = unix.Seek(fd, 0, unix.SEEK_CUR); err != nil {
			d.pos = 0
		}
	case d.mode == unix.S_IFBLK && flags&unix.O_ACCMODE == unix.O_RDONLY:
		d.anew, d.path = true, "" // never by path: no block device is there
		if d.pos, err = unix.Seek(fd, 0, unix.SEEK_CUR); err != nil {
			d.pos = 0
		}
	case d.mode == unix.S_IFCHR:
		const mem = 1 // null, zero, full …: whose mode root could change
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			d.tty = true
		} else if unix.Major(st.Rdev) == mem {
			d.prefer = true
		}
	}
	if d.anew && d.mode != unix.S_IFDIR && flags&unix.O_PATH == 0 && (fd <= 2 || extra) {
		r, w, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("make a pipe for descriptor %d: %w", fd, err)
		}
		d.feed, d.read, d.write = int(r.Fd()), r, w // Fd makes it block, as stdin should
	}
	p.inherit = append(p.inherit, d)
	return nil
}

// isMemfd: the kernel names memfds so, and a file of that name in / is not
// one of ours.
func isMemfd(path string) bool {
	if !strings.HasPrefix(path, "/memfd:") {
		return false
	}
	_, err := os.Lstat(path)
	return err != nil
}

// reopen opens what is inherited by path, inside. It counts as the same if
// type and inode number agree, which an overlay keeps for what it has not
// copied up (FACTS B3).
func (p *plan) reopen() {
	for i := range p.inherit {
		d := &p.inherit[i]
		if !d.anew && !d.prefer {
			continue
		}
		p.on(d.String())
		var other, done target
		if strings.HasPrefix(d.path, "/") {
			p.reopenOne(d, &other)
			p.jump(&done)
		}
		p.here(&other)
		switch {
		case d.prefer:
		case d.feed >= 0:
			p.call(unix.SYS_DUP3, d.feed, d.fd, p.cloexec(d))
			if d.same != 0 { // it goes out with the ready report and is closed after
				p.call(unix.SYS_FCNTL, d.feed, unix.F_DUPFD_CLOEXEC, 3)
				p.ops[len(p.ops)-1].out = uint16(d.same)
			}
			d.note = len(p.notes)
			p.note("%s cannot be opened inside and is fed through a pipe", d)
		case d.fd <= 2 || d.extra:
			p.call(unix.SYS_OPENAT, unix.AT_FDCWD, "/dev/null", unix.O_RDWR|unix.O_CLOEXEC)
			null := p.into()
			p.call(unix.SYS_DUP3, null, d.fd, p.cloexec(d))
			p.closeSlot(null)
			p.note("%s cannot be opened inside: it is /dev/null there", d)
		default:
			p.call(unix.SYS_CLOSE, d.fd)
			p.note("%s cannot be opened inside and is closed there", d)
		}
		p.here(&done)
		if d.feed >= 0 {
			p.call(unix.SYS_CLOSE, d.feed)
		}
	}
}

// reopenOne puts the file at d.path in the place of d.fd. It is looked at
// through O_PATH before it is opened, so that no device and no FIFO that came
// to lie there is touched.
func (p *plan) reopenOne(d *inherited, other *target) {
	path := p.inside(d.path)
	p.call(unix.SYS_OPENAT, unix.AT_FDCWD, path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	fd := p.into()
	p.orElse(other)
	p.same(fd, d.ino, d.mode, other)
	if d.flags&unix.O_PATH == 0 {
		p.call(unix.SYS_CLOSE, fd)
		p.call(unix.SYS_OPENAT, unix.AT_FDCWD, path, unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC|d.flags&(unix.O_ACCMODE|unix.O_DIRECTORY))
		fd = p.into()
		p.orElse(other)
		p.same(fd, d.ino, d.mode, other)
		p.call(unix.SYS_FCNTL, fd, unix.F_SETFL, d.flags&(unix.O_APPEND|unix.O_NONBLOCK|unix.O_DIRECT))
	}
	if d.mode == unix.S_IFREG && d.flags&unix.O_PATH == 0 {
		p.call(unix.SYS_LSEEK, fd, int(d.pos), unix.SEEK_SET)
	}
	p.call(unix.SYS_DUP3, fd, d.fd, p.cloexec(d))
	if d.feed >= 0 { // the offset is copied back to the caller's at the end
		d.same = fd
		p.views = append(p.views, fd)
		return
	}
	p.closeSlot(fd)
}

func (p *plan) cloexec(d *inherited) int {
	if d.extra {
		return unix.O_CLOEXEC
	}
	return 0
}

func (d *inherited) String() string {
	if d.path == "" {
		return fmt.Sprintf("descriptor %d", d.fd)
	}
	return fmt.Sprintf("descriptor %d (%s)", d.fd, d.path)
}

func itoa(n int) string { return strconv.Itoa(n) }
