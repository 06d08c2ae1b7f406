package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const outer = "TRY_TEST_OUTER_NAMESPACE"

// private is "private [FLAG…] -- CMD…": CMD in a mount and a PID namespace of
// its own, so that nothing stays behind, in which /tmp, /var/tmp and /dev/shm are empty and in which the flags made
// mounts: tmpfs:DIR, dir:DIR (just made), bind:SOURCE:DIR, zero:PATH (a node of /dev/zero; root
// only), uid:N (as whom CMD runs; root only); fds:N, how many descriptors above
// 2 CMD gets. It ends itself if it should be in the machine's own namespace.
func private(args []string) error {
	flags, argv := cut(args)
	here, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	before := os.Getenv(outer)
	if before == "" {
		return enter(here)
	}
	if before == here {
		return errors.New("still in the mount namespace of the machine")
	}
	runtime.LockOSThread() // capabilities belong to the thread
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	uid, more := os.Getuid(), 0
	for _, f := range flags {
		what, rest, _ := strings.Cut(f, ":")
		switch what {
		case "uid":
			uid, err = strconv.Atoi(rest)
		case "fds":
			more, err = strconv.Atoi(rest)
		default:
			err = change(what, rest, uid)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return become(uid, more, argv)
}

// enter starts the program again in new namespaces.
func enter(here string) error {
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Env = append(os.Environ(), outer+"="+here)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Descriptors are those of the test, not those of whoever runs the tests.
	own := 3
	for _, f := range os.Args {
		if n, ok := strings.CutPrefix(f, "fds:"); ok {
			more, err := strconv.Atoi(n)
			if err != nil {
				return err
			}
			for range more {
				c.ExtraFiles = append(c.ExtraFiles, os.NewFile(uintptr(own), "inherited"))
				own++
			}
		}
	}
	if err := unix.CloseRange(uint(own), ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread()
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		c.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		c.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	return ended(c.Run())
}

// change makes one of the mounts that were asked for.
func change(what, rest string, uid int) error {
	switch what {
	case "tmpfs":
		return unix.Mount("tmpfs", rest, "tmpfs", unix.MS_NOSUID, fmt.Sprintf("mode=755,uid=%d,gid=%d", uid, uid))
	case "bind":
		from, to, _ := strings.Cut(rest, ":")
		return unix.Mount(from, to, "", unix.MS_BIND, "")
	case "dir":
		return errors.Join(os.Mkdir(rest, 0o755), os.Lchown(rest, uid, uid))
	case "zero":
		mask := unix.Umask(0)
		defer unix.Umask(mask)
		return unix.Mknod(rest, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))
	}
	return unix.EINVAL
}

// become runs CMD without what only the stage needed. What CMD leaves ends with
// this process, which is PID 1.
func become(uid, more int, argv []string) error {
	c := exec.Command(argv[0], argv[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // its process group is nobody else's
	for fd := 3; fd < 3+more; fd++ {
		c.ExtraFiles = append(c.ExtraFiles, os.NewFile(uintptr(fd), "inherited"))
	}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, outer+"=") {
			c.Env = append(c.Env, e)
		}
	}
	if uid != os.Getuid() {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	} else if uid != 0 {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capabilities: %w", err)
		}
	}
	return ended(c.Run())
}

// ended ends us with the status of a program that had one.
func ended(err error) error {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		status := e.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			os.Exit(128 + int(status.Signal()))
		}
		os.Exit(status.ExitStatus())
	}
	return err
}
