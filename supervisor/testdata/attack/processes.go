package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// takeOverInit tries what makes PID 1 of the session ours, or stops it.
func takeOverInit([]string) error {
	for _, name := range []string{"mem", "environ", "maps", "fdinfo", "cwd", "root", "exe", "auxv", "syscall", "stack", "map_files", "ns/mnt", "ns/user"} {
		path := "/proc/1/" + name
		var err error
		switch name {
		case "cwd", "root", "exe", "ns/mnt", "ns/user":
			_, err = os.Readlink(path)
			if err != nil {
				_, err = os.Stat(path + "/")
			}
		case "fdinfo", "map_files":
			_, err = os.ReadDir(path)
		default:
			var f *os.File
			if f, err = os.Open(path); err == nil { // of some the read is what is refused
				_, err = f.Read(make([]byte, 1))
				f.Close()
			}
		}
		say(name, inner(err))
	}
	for fd := range 64 { // of which root may list the numbers
		if f, err := os.OpenFile(fmt.Sprintf("/proc/1/fd/%d", fd), unix.O_PATH, 0); err == nil {
			say("fd/"+strconv.Itoa(fd), nil)
			f.Close()
		}
	}
	say("ptrace", unix.PtraceAttach(1))
	say("seize", unix.PtraceSeize(1))
	word := []byte("takeover")
	local := []unix.Iovec{{Base: &word[0]}}
	local[0].SetLen(len(word))
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&word[0])), Len: len(word)}}
	_, err := unix.ProcessVMReadv(1, local, remote, 0)
	say("vm_read", err)
	_, err = unix.ProcessVMWritev(1, local, remote, 0)
	say("vm_write", err)
	if fd, err := unix.PidfdOpen(1, 0); err == nil {
		for n := range 16 {
			if _, err := unix.PidfdGetfd(fd, n, 0); err == nil {
				say("getfd", nil)
			}
		}
		unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0)
	}
	for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGTSTP, unix.SIGKILL, unix.SIGTERM, unix.SIGSEGV, unix.SIGCHLD, unix.SIGHUP} {
		unix.Kill(1, sig)
	}
	// This one is allowed among equals (prlimit(2)); it must not matter. Not of
	// RLIMIT_CPU: with that a command ends its own session, by the kernel's hand.
	for _, which := range []int{unix.RLIMIT_NOFILE, unix.RLIMIT_NPROC, unix.RLIMIT_FSIZE, unix.RLIMIT_AS, unix.RLIMIT_STACK} {
		unix.Prlimit(1, which, &unix.Rlimit{}, nil)
	}
	return nil
}

func inner(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

// forkUntilRefused is "fork MAX": it starts processes that stay until there
// can be no more, and prints how many it got.
func forkUntilRefused(args []string) error {
	limit, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	path, err := exec.LookPath("sleep")
	if err != nil {
		return err
	}
	n := 0
	for ; n < limit; n++ {
		if _, err := os.StartProcess(path, []string{"sleep", "1000"}, &os.ProcAttr{}); err != nil {
			fmt.Println(inner(err))
			break
		}
	}
	fmt.Println(n)
	return nil
}

// bomb is a fork bomb that ends by itself, whatever else fails: each process
// takes a byte from a pipe that nobody can refill before it starts another, and
// there are bombProcesses of them. None heeds TERM or HUP. The first ends, with
// success, while the others still multiply.
func bomb(args []string) error {
	const bombProcesses, first = 200, 40
	if os.Getuid() == 0 {
		return errors.New("not as root")
	}
	signal.Ignore(unix.SIGTERM, unix.SIGHUP)
	budget, up := os.NewFile(3, "budget"), os.NewFile(4, "up")
	var started *os.File
	if len(args) == 0 {
		var full *os.File
		var err error
		if budget, full, err = os.Pipe(); err != nil {
			return err
		}
		if _, err := full.Write(make([]byte, bombProcesses)); err != nil {
			return err
		}
		full.Close()
		if started, up, err = os.Pipe(); err != nil {
			return err
		}
	}
	for range 2 {
		if n, _ := budget.Read(make([]byte, 1)); n == 0 {
			break
		}
		cmd := exec.Command(os.Args[0], "bomb", "more")
		cmd.ExtraFiles = []*os.File{budget, up}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return err
		}
	}
	if len(args) == 0 {
		_, err := io.ReadFull(started, make([]byte, first))
		return err
	}
	if _, err := up.Write([]byte{0}); err != nil {
		return err
	}
	for {
		unix.Pause()
	}
}

// signalGroup sends signals to its process group, of which processes outside
// of the session are members too.
func signalGroup([]string) error {
	signal.Ignore(unix.SIGTERM, unix.SIGUSR1)
	unix.Kill(0, unix.SIGUSR1)
	unix.Kill(0, unix.SIGTERM)
	unix.Kill(-1, unix.SIGUSR1)
	fmt.Println("survived")
	return nil
}

// keys is "keys add TEXT CMD…", which runs CMD with a key that the user's
// keyring holds, and "keys steal", which looks for it in every way.
func keys(args []string) error {
	const name, ownKeyring = "try-escape-test", unix.KEY_SPEC_USER_KEYRING
	if args[0] == "add" {
		// A session of our own, so that the machine's stays as it is.
		if _, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); err != nil {
			fmt.Println("no keyrings:", err)
			return nil
		}
		for _, ring := range []int{ownKeyring, unix.KEY_SPEC_SESSION_KEYRING} {
			id, err := unix.AddKey("user", name, []byte(args[1]), ring)
			if err != nil {
				return fmt.Errorf("add a key: %w", err)
			}
			defer unix.KeyctlInt(unix.KEYCTL_UNLINK, id, ring, 0, 0)
		}
		c := exec.Command(args[2], args[3:]...)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := c.Run(); err != nil {
			return err
		}
		for _, ring := range []int{ownKeyring, unix.KEY_SPEC_SESSION_KEYRING} {
			if _, err := unix.KeyctlSearch(ring, "user", name, 0); err != nil {
				fmt.Println("outside: gone")
				return nil
			}
		}
		fmt.Println("outside: there")
		return nil
	}
	text, err := os.ReadFile("/proc/keys")
	if err != nil {
		return err
	}
	rings := []int{ownKeyring, unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING}
	for line := range strings.Lines(string(text)) {
		if serial, err := strconv.ParseInt(strings.Fields(line)[0], 16, 32); err == nil {
			unix.KeyctlInt(unix.KEYCTL_LINK, int(serial), unix.KEY_SPEC_SESSION_KEYRING, 0, 0)
			rings = append(rings, int(serial))
		}
	}
	found := false
	for _, ring := range rings {
		id, err := unix.KeyctlSearch(ring, "user", name, 0)
		if err != nil {
			continue
		}
		buf := make([]byte, 64)
		if n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, buf, 0); err == nil {
			fmt.Printf("stolen: %s\n", buf[:n])
			found = true
		}
		unix.KeyctlInt(unix.KEYCTL_INVALIDATE, id, 0, 0, 0)
		unix.KeyctlInt(unix.KEYCTL_UNLINK, id, ring, 0, 0)
	}
	if !found {
		fmt.Println("no key")
	}
	return nil
}

// freezeInit is "freeze PID": it stops all children of a process and then
// kills it.
func freezeInit(args []string) error {
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	tasks, err := filepath.Glob("/proc/" + args[0] + "/task/*/children")
	if err != nil {
		return err
	}
	for _, name := range tasks {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, child := range strings.Fields(string(text)) {
			n, err := strconv.Atoi(child)
			if err != nil {
				return err
			}
			if err := unix.Kill(n, unix.SIGSTOP); err != nil {
				return err
			}
			fmt.Println("stopped", n)
		}
	}
	return unix.Kill(pid, unix.SIGKILL)
}
