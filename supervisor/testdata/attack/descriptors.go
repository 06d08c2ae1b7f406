package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func addressOf(p *byte) uintptr { return uintptr(unsafe.Pointer(p)) }

// throughDescriptor is "fd N": everything that an inherited descriptor could
// be used for to change what lies behind it or around it. Refusals are the
// hoped-for outcome, so nothing is said.
func throughDescriptor(args []string) error {
	fd, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	self := "/proc/self/fd/" + args[0]
	now := []unix.Timespec{{Sec: 1}, {Sec: 1}}
	const text = "escaped"
	for _, name := range []string{"escaped", "../escaped", "f"} {
		if n, err := unix.Openat(fd, name, unix.O_CREAT|unix.O_WRONLY|unix.O_APPEND, 0o600); err == nil {
			unix.Write(n, []byte(text))
			unix.Close(n)
		}
		os.WriteFile(self+"/"+name, []byte(text), 0o600)
	}
	unix.Mkdirat(fd, "escaped.d", 0o700)
	unix.Symlinkat("x", fd, "escaped.l")
	unix.Mknodat(fd, "escaped.p", unix.S_IFIFO|0o600, 0)
	unix.Renameat(fd, "f", fd, "escaped.r")
	unix.Unlinkat(fd, "f", 0)
	unix.Linkat(unix.AT_FDCWD, self, fd, "escaped.h", unix.AT_SYMLINK_FOLLOW)
	for _, flags := range []int{unix.O_RDWR, unix.O_WRONLY | unix.O_APPEND, unix.O_WRONLY | unix.O_TRUNC, unix.O_TMPFILE | unix.O_RDWR} {
		if n, err := unix.Open(self, flags, 0o600); err == nil {
			unix.Write(n, []byte(text))
			unix.Ftruncate(n, 3)
			unix.Close(n)
		}
	}
	unix.Ftruncate(fd, 1)
	unix.Truncate(self, 1)
	unix.Fchmod(fd, 0o777)
	unix.Chmod(self, 0o777)
	unix.Fchmodat(fd, "f", 0o777, 0)
	unix.Fchown(fd, os.Getuid(), os.Getgid())
	unix.UtimesNanoAt(unix.AT_FDCWD, self, now, 0)
	unix.UtimesNanoAt(fd, "f", now, 0)
	unix.Fsetxattr(fd, "user.escaped", []byte(text), 0)
	unix.Setxattr(self, "user.escaped", []byte(text), 0)
	unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4)
	const noDump = 0x40
	unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, noDump)
	unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	unix.Mount(self, "/dev/shm", "", unix.MS_BIND, "")
	if unix.Fchdir(fd) == nil {
		os.WriteFile("escaped", []byte(text), 0o600)
		unix.Chdir("..") // once: not out of the lab
		os.WriteFile("escaped", []byte(text), 0o600)
	}
	return nil
}

// readLine reads stdin byte by byte up to a line's end, and prints it.
func readLine([]string) error {
	var line strings.Builder
	b := make([]byte, 1)
	for {
		if n, err := os.Stdin.Read(b); err != nil || n == 0 || b[0] == '\n' {
			fmt.Println(line.String())
			return nil
		}
		line.WriteByte(b[0])
	}
}

// printHandle is "handle FILE": the file handle of FILE, to be opened without
// a path.
func printHandle(args []string) error {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, args[0], 0)
	if err != nil {
		return err
	}
	fmt.Printf("%d:%x\n", h.Type(), h.Bytes())
	return nil
}

// openByHandle is "open HANDLE DIR…": it opens the handle on the file system
// of each directory, as itself and as root of a user namespace.
func openByHandle(args []string) error {
	var kind int32
	var raw []byte
	if _, err := fmt.Sscanf(args[0], "%d:%x", &kind, &raw); err != nil {
		return err
	}
	h := unix.NewFileHandle(kind, raw)
	for _, dir := range args[1:] {
		at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			continue
		}
		fd, err := unix.OpenByHandleAt(at, h, unix.O_RDONLY)
		say("open by handle", err)
		if err == nil {
			buf := make([]byte, 64)
			n, _ := unix.Read(fd, buf)
			fmt.Printf("read %q\n", buf[:max(n, 0)])
		}
	}
	return nil
}
