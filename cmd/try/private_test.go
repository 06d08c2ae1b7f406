package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// runPrivately is the program "private CMD ARG...": it runs CMD in a mount
// namespace in which /tmp, /var/tmp and /dev/shm are empty, so that a test of
// the default scope touches nothing of the machine's (B39).
func runPrivately() {
	err := enterPrivate()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(ended.ExitCode()) //lint:allow exit: this is a main
	}
	fmt.Fprintln(os.Stderr, "private:", err)
	os.Exit(99)
}

const outerNamespace = "TRY_TEST_OUTER_NAMESPACE"

func enterPrivate() error {
	here, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	outer := os.Getenv(outerNamespace)
	if outer == "" {
		cmd := exec.Command("private", os.Args[1:]...)
		cmd.Env = append(os.Environ(), outerNamespace+"="+here)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
			cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
			cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
		}
		if err := cmd.Run(); err != nil {
			return err
		}
		os.Exit(0) //lint:allow exit: this is a main
	}
	if here == outer {
		return errors.New("still in the mount namespace of the machine")
	}
	// Capabilities belong to the thread.
	runtime.LockOSThread()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
		}
	}
	if os.Getuid() != 0 {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capabilities: %w", err)
		}
	}
	program, err := exec.LookPath(os.Args[1])
	if err != nil {
		return err
	}
	env := os.Environ()
	for i := range env {
		if strings.HasPrefix(env[i], outerNamespace+"=") {
			env = append(env[:i], env[i+1:]...)
			break
		}
	}
	return unix.Exec(program, os.Args[1:], env)
}

// showAttributes is the program "attr PATH...": it prints the names of the
// extended attributes of each path that has any.
func showAttributes() {
	for _, path := range os.Args[1:] {
		buf := make([]byte, 4096)
		n, err := unix.Llistxattr(path, buf)
		if err != nil {
			fmt.Fprintf(os.Stderr, "attr: %s: %v\n", path, err)
			os.Exit(1)
		}
		for name := range strings.SplitSeq(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
			if name != "" {
				fmt.Println(path, name)
			}
		}
	}
}
