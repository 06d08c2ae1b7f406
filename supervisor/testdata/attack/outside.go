package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// outside is "outside FILES SOCKETS PID…": in a session without namespaces it
// tries what acts on processes outside, init and the supervisor among them, on
// the files and sockets of two directories, and on what the user has in common
// with them.
func outside(args []string) error {
	for _, arg := range args[2:] {
		pid, err := strconv.Atoi(arg)
		if err != nil {
			return err
		}
		attackProcess(arg, pid)
	}
	// Init, the guard, the supervisor.
	pid := os.Getpid()
	for _, name := range []string{"shell", "init", "guard", "supervisor"} {
		pid = parentOf(pid)
		if name != "shell" {
			attackProcess(name, pid)
		}
	}
	attackFiles(args[0])
	attackSockets(args[1])
	attackShared()
	return nil
}

// address is where a string lies, for good, that a system call reads.
func address(s string) uintptr {
	kept = append(kept, append([]byte(s), 0))
	return uintptr(unsafe.Pointer(&kept[len(kept)-1][0]))
}

var kept [][]byte

func parentOf(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	parent, _ := strconv.Atoi(f[1])
	return parent
}

// call is a system call of this machine's first ABI, and of its second.
func call(name string, nr, old uintptr, a ...uintptr) {
	for len(a) < 6 {
		a = append(a, 0)
	}
	_, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	say(name, orNil(errno))
	if old != 0 {
		say(name+" (32 bits)", orNil(unix.Errno(-int32(int80(old, a[0], a[1], a[2])))))
	}
}

func orNil(errno unix.Errno) error {
	if int32(errno) <= 0 {
		return nil
	}
	return errno
}

func attackProcess(name string, pid int) {
	p := uintptr(pid)
	call(name+": kill", unix.SYS_KILL, 37, p, 0)
	call(name+": term", unix.SYS_KILL, 37, p, uintptr(unix.SIGTERM))
	call(name+": tgkill", unix.SYS_TGKILL, 270, p, p, uintptr(unix.SIGKILL))
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		say(name+": pidfd", unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0))
		_, err := unix.PidfdGetfd(fd, 0, 0)
		say(name+": getfd", err)
	}
	say(name+": ptrace", unix.PtraceAttach(pid))
	say(name+": seize", unix.PtraceSeize(pid))
	for _, file := range []string{"mem", "oom_score_adj", "coredump_filter"} {
		f, err := os.OpenFile(fmt.Sprintf("/proc/%d/%s", pid, file), os.O_RDWR, 0)
		say(name+": "+file, inner(err))
		f.Close()
	}
	_, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", pid))
	say(name+": fd", inner(err))
	word := []byte("takeover")
	local := []unix.Iovec{{Base: &word[0]}}
	local[0].SetLen(len(word))
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&word[0])), Len: len(word)}}
	_, err = unix.ProcessVMWritev(pid, local, remote, 0)
	say(name+": vm_write", err)
	say(name+": prlimit", unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{}, nil))
	call(name+": setpriority", unix.SYS_SETPRIORITY, 97, unix.PRIO_PROCESS, p, 19)
	call(name+": setpriority of a group", unix.SYS_SETPRIORITY, 97, unix.PRIO_PGRP, 0, 19)
	var set unix.CPUSet
	set.Set(0)
	say(name+": affinity", unix.SchedSetaffinity(pid, &set))
	const ioprioSet, idle = 251, 3 << 13
	call(name+": ioprio", ioprioSet, 289, 1, p, idle)
}

// attackFiles writes to DIR/f, which is there, and beside it, in every way.
func attackFiles(dir string) {
	f := filepath.Join(dir, "f")
	say("write", inner(os.WriteFile(f, []byte("escaped"), 0o644)))
	say("truncate", os.Truncate(f, 0))
	say("create", inner(os.WriteFile(f+".new", nil, 0o644)))
	say("mkdir", inner(os.Mkdir(f+".dir", 0o755)))
	say("symlink", unix.Symlink("x", f+".sym"))
	say("link", unix.Link(f, f+".link"))
	say("rename", unix.Rename(f, f+".moved"))
	say("exchange", unix.Renameat2(unix.AT_FDCWD, f, unix.AT_FDCWD, filepath.Join(dir, "g"), unix.RENAME_EXCHANGE))
	say("remove", unix.Unlink(f))
	say("rmdir", unix.Rmdir(filepath.Join(dir, "d")))
	say("fifo", unix.Mkfifo(f+".fifo", 0o644))
	say("node", unix.Mknod(f+".node", unix.S_IFREG|0o644, 0))
	say("whiteout", unix.Mknod(f+".white", unix.S_IFCHR, 0))
	_, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR, 0o600)
	say("tmpfile", err)
	say("out of the branch", unix.Rename("mine", f+".moved"))
	say("into the branch", unix.Link(f, "linked"))
	if fd, err := unix.Open(f, unix.O_RDONLY, 0); err == nil {
		say("reopen", inner(func() error { _, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_WRONLY, 0); return err }()))
		say("flags", unix.IoctlSetPointerInt(fd, 0x40086602, 0x40)) // FS_IOC_SETFLAGS, nodump
		say("ftruncate", unix.Ftruncate(fd, 0))
	}
	if fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0); err == nil {
		_, err := unix.Openat(fd, "f", unix.O_WRONLY, 0)
		say("openat", err)
	}
	at, name := address(f), address("user.attack")
	call("setxattr", unix.SYS_SETXATTR, 226, at, name, name, 1)
	call("lsetxattr", unix.SYS_LSETXATTR, 227, at, name, name, 1)
	call("removexattr", unix.SYS_REMOVEXATTR, 235, at, address("user.there"))
	call("setxattrat", 463, 463, ^uintptr(99), at, 0, name)
	call("file_setattr", 469, 469, ^uintptr(99), at, name, 24)
	say("mount", unix.Mount("none", dir, "tmpfs", 0, ""))
	say("chroot", unix.Chroot(dir))
}

// attackSockets connects to DIR/socket, a stream, DIR/packets, and @DIR.
func attackSockets(dir string) {
	call("socket", unix.SYS_SOCKET, 359, unix.AF_UNIX, unix.SOCK_STREAM)
	call("packet pair", unix.SYS_SOCKETPAIR, 360, unix.AF_UNIX, unix.SOCK_DGRAM)
	call("raw pair", unix.SYS_SOCKETPAIR, 360, unix.AF_UNIX, unix.SOCK_RAW|unix.SOCK_CLOEXEC)
	call("socketcall", unix.SYS_SOCKET, 102, unix.AF_UNIX, unix.SOCK_STREAM)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		say("a pair of streams, which harms nobody", err)
		return
	}
	for _, name := range []string{filepath.Join(dir, "socket"), filepath.Join(dir, "packets"), "@" + dir} {
		say("connect "+strings.Replace(name, dir, "DIR", 1), unix.Connect(pair[0], &unix.SockaddrUnix{Name: name}))
	}
	inet, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		say("a socket of the network", err)
	}
	unix.Close(inet)
}

// attackShared tries what the kernel shares among the processes of a user.
func attackShared() {
	at := address("try-attack")
	var params [120]byte
	call("ring", 425, 425, 1, uintptr(unsafe.Pointer(&params[0])))
	call("shmget", unix.SYS_SHMGET, 395, 0, 4096, 0o1600)
	call("shmat", unix.SYS_SHMAT, 397, 0)
	call("shmctl", unix.SYS_SHMCTL, 396, 0, 0)
	call("semget", unix.SYS_SEMGET, 393, 0, 1, 0o1600)
	call("semop", unix.SYS_SEMOP, 0, 0)
	call("msgget", unix.SYS_MSGGET, 399, 0, 0o1600)
	call("ipc", unix.SYS_MSGCTL, 117, 13)
	call("mq_open", unix.SYS_MQ_OPEN, 277, at, unix.O_CREAT|unix.O_RDWR, 0o600)
	call("mq_unlink", unix.SYS_MQ_UNLINK, 278, at)
	call("add_key", unix.SYS_ADD_KEY, 286)
	call("keyctl", unix.SYS_KEYCTL, 288)
	call("typing", unix.SYS_IOCTL, 54, 0, unix.TIOCSTI, at)
	_, err := os.Create("/dev/shm/try-attack")
	say("shared memory", inner(err))
}
