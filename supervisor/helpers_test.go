package supervisor_test

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

const (
	outerVariable = "TRY_TEST_OUTER_NAMESPACE"
	mountVariable = "TRY_TEST_MOUNTS" // further "DIR OPTIONS" lines: a tmpfs on each
	asVariable    = "TRY_TEST_AS"     // root becomes this user at last
)

// within runs argv once more by the helper of that name, in the namespace of its
// own that attr makes for it. There it says that it is: what follows cannot
// reach the machine's.
func within(kind, helper string, argv []string, attr *syscall.SysProcAttr) (inside bool, err error) {
	here, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		return false, err
	}
	outer := os.Getenv(outerVariable)
	if outer == "" {
		exe, err := os.Executable()
		if err != nil {
			return false, err
		}
		cmd := exec.Command(exe, argv...)
		cmd.Env = append(os.Environ(), outerVariable+"="+here, helperVariable+"="+helper)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = attr
		return false, cmd.Run()
	}
	if here == outer {
		return false, fmt.Errorf("still in the %s namespace of the machine", kind)
	}
	runtime.LockOSThread() // capabilities belong to the thread
	return true, nil
}

// private runs a command in a mount namespace in which /tmp, /var/tmp and
// /dev/shm are empty, so that a test of the default scope touches nothing of
// the machine's (B39).
func private(argv []string) error {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	if inside, err := within("mnt", "private", argv, attr); !inside {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	mounts := "/tmp mode=1777\n/var/tmp mode=1777\n/dev/shm mode=1777\n" + os.Getenv(mountVariable)
	for line := range strings.SplitSeq(strings.TrimSpace(mounts), "\n") {
		dir, options, _ := strings.Cut(line, " ")
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
		}
	}
	return execute(argv)
}

// execute ends a helper that is within: as the user of asVariable, if there is
// one, without its capabilities otherwise.
func execute(argv []string) error {
	if as := os.Getenv(asVariable); as != "" {
		uid, err := strconv.Atoi(as)
		if err != nil {
			return err
		}
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(uid), syscall.Setuid(uid)); err != nil {
			return fmt.Errorf("become user %d: %w", uid, err)
		}
	} else if os.Getuid() != 0 {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capabilities: %w", err)
		}
	}
	os.Unsetenv(outerVariable)
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	return unix.Exec(program, argv, os.Environ())
}

// forbidden runs a command, as the user of asVariable, where nobody can make a
// user namespace: in one that maps all ids, with a mount namespace, whose number
// of further ones is none. That setting is each user namespace's own.
func forbidden(argv []string) error {
	all := []syscall.SysProcIDMap{{Size: 1 << 16}}
	inside, err := within("user", "forbidden", argv, &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, UidMappings: all, GidMappings: all, GidMappingsEnableSetgroups: true,
	})
	if !inside {
		return err
	}
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		return err
	}
	return execute(argv)
}

// reap runs a command, becomes the parent of all that it leaves, and ends when
// the last process is gone; its status is the command's. The command gets
// descriptor 3, its process id is written to descriptor 4.
func reap(argv []string) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	ready, pid := os.NewFile(3, "ready"), os.NewFile(4, "pid")
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	cmd.ExtraFiles = []*os.File{ready}
	if err := cmd.Start(); err != nil {
		return err
	}
	ready.Close()
	if _, err := fmt.Fprintln(pid, cmd.Process.Pid); err != nil {
		return err
	}
	pid.Close()
	err := cmd.Wait()
	for {
		_, e := unix.Wait4(-1, nil, 0, nil)
		if errors.Is(e, unix.ECHILD) {
			return err
		}
		if e != nil && !errors.Is(e, unix.EINTR) {
			return errors.Join(err, e)
		}
	}
}
