package fstest

import (
	"net"
	"os"
	"os/exec"
	"unsafe"

	"golang.org/x/sys/unix"
)

// special are the cases of locks, notification, FIFOs, sockets and devices.
var special = []Case{
	{"flock", []string{"f=f"}, func(p *Place) {
		a, b := p.open("f", os.O_RDWR), p.open("f", os.O_RDONLY)
		p.must(unix.Flock(int(a.Fd()), unix.LOCK_EX))
		p.fails(unix.Flock(int(b.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
		_, err := a.WriteString("F")
		p.must(err)
		p.fails(unix.Flock(int(b.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
		p.must(unix.Flock(int(a.Fd()), unix.LOCK_UN))
		p.must(unix.Flock(int(b.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	}},
	{"record locks", []string{"f=0123456789"}, func(p *Place) {
		f := p.open("f", os.O_RDWR)
		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 2, Len: 3}
		p.must(unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock))
		g := p.open("f", os.O_RDWR)
		// Locks of open file descriptions see those of the process.
		other := unix.Flock_t{Type: unix.F_WRLCK, Start: 4, Len: 1}
		p.fails(unix.FcntlFlock(g.Fd(), unix.F_OFD_SETLK, &other), unix.EAGAIN)
		free := unix.Flock_t{Type: unix.F_WRLCK, Start: 8, Len: 1}
		p.must(unix.FcntlFlock(g.Fd(), unix.F_OFD_SETLK, &free))
		p.must(exec.Command("flock", "-n", p.at("f"), "true").Run()) // the other kind does not mind
	}},
	{"notification", []string{"d/f=f"}, func(p *Place) {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		p.must(err)
		defer unix.Close(fd)
		_, err = unix.InotifyAddWatch(fd, p.at("d"), unix.IN_CREATE|unix.IN_MODIFY|unix.IN_DELETE|unix.IN_MOVED_TO)
		p.must(err)
		f := p.open("d/f", os.O_WRONLY)
		_, err = f.WriteString("F")
		p.must(err)
		p.write("d/new", "")
		p.must(os.Rename(p.at("d/new"), p.at("d/moved")))
		p.must(os.Remove(p.at("d/moved")))
		buf := make([]byte, 4096)
		n, err := unix.Read(fd, buf)
		p.must(err)
		var all uint32
		for at := 0; at < n; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at]))
			all |= e.Mask
			at += unix.SizeofInotifyEvent + int(e.Len)
		}
		if want := uint32(unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_TO); all&want != want {
			p.Errorf("told of %#x, want %#x", all, want)
		}
	}},
	{"fifo", nil, func(p *Place) {
		p.must(unix.Mkfifo(p.at("pipe"), 0o640))
		if st := p.stat("pipe"); st.Mode != unix.S_IFIFO|0o640 {
			p.Errorf("mode %o", st.Mode)
		}
		f := p.open("pipe", os.O_RDWR)
		_, err := f.WriteString("through")
		p.must(err)
		buf := make([]byte, 7)
		_, err = f.Read(buf)
		if err != nil || string(buf) != "through" {
			p.Errorf("read %q, %v", buf, err)
		}
		p.must(os.Rename(p.at("pipe"), p.at("renamed")))
	}},
	{"socket", nil, func(p *Place) {
		// By a relative name: an absolute one may be too long.
		old, err := os.Getwd()
		p.must(err)
		p.must(os.Chdir(p.Dir))
		defer os.Chdir(old)
		l, err := net.Listen("unix", "s")
		p.must(err)
		defer l.Close()
		c, err := net.Dial("unix", "s")
		p.must(err)
		c.Close()
		if st := p.stat("s"); st.Mode&unix.S_IFMT != unix.S_IFSOCK {
			p.Errorf("mode %o", st.Mode)
		}
	}},
	{"devices", nil, func(p *Place) {
		if err := unix.Mknod(p.at("null"), unix.S_IFCHR|0o666, 1<<8|3); err == nil {
			p.Error("a device could be made in a branch")
		}
		if err := unix.Mknod(p.at("zero"), unix.S_IFCHR, 0); err == nil {
			p.gone("zero") // it must be no whiteout that somebody else made
		}
	}},
}
