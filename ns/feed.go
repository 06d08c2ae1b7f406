package ns

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A feed stands for one of the descriptors 0–2 that was a regular file opened
// for reading. Its offset is the caller's business too: `{ head -1; cat; } <
// file` works on one offset. So at the end the caller's descriptor gets the
// offset that the programs had left.
type feed struct {
	d      *inherited
	inside int      // as opened inside; -1: it is fed
	write  *os.File // the pipe that feeds it;
	read   *os.File // its other side stays open, to see what is left in it
	fed    int64    // bytes written to it
	done   chan struct{}
}

func newFeed(d *inherited, inside int, fed bool) *feed {
	f := &feed{d: d, inside: inside, write: d.write, read: d.read}
	d.write, d.read = nil, nil
	if !fed {
		f.write.Close()
		f.read.Close()
		return f
	}
	if inside > 0 {
		unix.Close(inside)
	}
	f.inside, f.done = -1, make(chan struct{})
	go f.pump()
	return f
}

// pump writes the file into the pipe until its end or until close.
func (f *feed) pump() {
	defer close(f.done)
	defer f.write.Close() // the end of the file
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Pread(f.d.fd, buf, f.d.pos+f.fed)
		if err != nil || n == 0 {
			return
		}
		m, err := f.write.Write(buf[:n])
		f.fed += int64(m)
		if err != nil {
			return
		}
	}
}

// close sets the caller's offset. The programs have ended or are about to be
// killed.
func (f *feed) close() {
	pos := int64(-1)
	if f.inside >= 0 {
		if at, err := unix.Seek(f.inside, 0, unix.SEEK_CUR); err == nil {
			pos = at
		}
		unix.Close(f.inside)
	} else {
		f.write.SetWriteDeadline(time.Unix(1, 0)) // ends pump; a pipe always can
		<-f.done
		left := 0
		if conn, err := f.read.SyscallConn(); err == nil {
			conn.Control(func(fd uintptr) { left, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
		}
		f.read.Close()
		pos = f.d.pos + f.fed - int64(left)
	}
	if pos >= 0 {
		unix.Seek(f.d.fd, pos, unix.SEEK_SET) // what cannot be sought has no offset to keep
	}
}

// dropFeeds closes the pipes of a session that did not come to be.
func (p *plan) dropFeeds() {
	for i := range p.inherit {
		if d := &p.inherit[i]; d.write != nil {
			d.write.Close()
			d.read.Close()
			d.write, d.read = nil, nil
		}
	}
}
