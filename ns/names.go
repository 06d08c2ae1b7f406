package ns

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// namesMax is how many processes are named at most; the rest is counted by
// nobody, since a fork bomb would drown the message.
const namesMax = 64

// name reports each process that the end is about to take, by its comm. The
// pid goes as credentials, which the kernel translates into the supervisor's
// PID namespace; init may name a pid that is not its own since it has
// CAP_SYS_ADMIN over the namespace (unix(7)). Without namespaces the pid is the
// same there, and /proc shows others too. The rules of child.go hold.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) name() {
	const dir = "/proc\x00"
	fd, errno := c.call(unix.SYS_OPENAT, atCwd, uintptr(unsafe.Pointer(unsafe.StringData(dir))), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return
	}
	named := 0
	for named < namesMax {
		n, errno := c.call(unix.SYS_GETDENTS64, fd, uintptr(unsafe.Pointer(&c.buf)), unsafe.Sizeof(c.buf), 0, 0, 0)
		if errno != 0 || n == 0 {
			break
		}
		// struct linux_dirent64: ino 8, off 8, reclen 2, type 1, name
		for at := uintptr(0); at+19 < n && named < namesMax; {
			size := uintptr(c.buf[at+16]) | uintptr(c.buf[at+17])<<8
			pid := uintptr(0)
			for i := at + 19; i < at+size && c.buf[i] >= '0' && c.buf[i] <= '9'; i++ {
				pid = 10*pid + uintptr(c.buf[i]-'0')
			}
			if pid > 1 && c.ours(pid) && c.nameOne(pid) {
				named++
			}
			at += size
		}
	}
	c.call(unix.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
}

// ours says whether a process that /proc shows is one that the end takes.
//
//go:nosplit
//go:norace
func (c *child) ours(pid uintptr) bool {
	if c.witness == 0 {
		return true
	}
	own, _ := c.call(unix.SYS_GETPID, 0, 0, 0, 0, 0, 0)
	_, errno := c.call(unix.SYS_KILL, pid, 0, 0, 0, 0, 0)
	return errno == 0 && pid != own
}

// nameOne reports process pid, unless it is dead already.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) nameOne(pid uintptr) bool {
	c.procPath(pid, "stat")
	fd, errno := c.call(unix.SYS_OPENAT, atCwd, uintptr(unsafe.Pointer(&c.path)), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return false
	}
	text := uintptr(unsafe.Pointer(&c.out.text))
	n, errno := c.call(unix.SYS_READ, fd, text, unsafe.Sizeof(c.out.text), 0, 0, 0)
	c.call(unix.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
	if errno != 0 {
		return false
	}
	// "12 (comm) S …": the name ends at the last parenthesis, for it may
	// hold any itself. It has 15 bytes at most, so all of it was read.
	first, last := 0, 0
	for i := range int(n) {
		if c.out.text[i] == '(' && first == 0 {
			first = i + 1
		}
		if c.out.text[i] == ')' {
			last = i
		}
	}
	if first == 0 || last < first || last+2 >= int(n) || c.out.text[last+2] == 'Z' || c.out.text[last+2] == 'X' {
		return false
	}
	for i := range len(c.out.text) {
		if first+i < last {
			c.out.text[i] = c.out.text[first+i]
		} else {
			c.out.text[i] = 0
		}
	}
	c.out.kind, c.out.at = reportProcess, int64(pid)
	if c.witness != 0 {
		return c.send(0) == 0
	}
	uid, _ := c.call(unix.SYS_GETUID, 0, 0, 0, 0, 0, 0)
	gid, _ := c.call(unix.SYS_GETGID, 0, 0, 0, 0, 0, 0)
	c.cmsg[0] = 16 + 12
	c.cmsg[1] = unix.SOL_SOCKET | unix.SCM_CREDENTIALS<<32
	c.cmsg[2] = uint64(uint32(pid)) | uint64(uint32(uid))<<32
	c.cmsg[3] = uint64(uint32(gid))
	return c.send(32) == 0
}
