package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// probeSystem asks the system for each thing that a session is made of, by
// doing it; files are only read to say why something was refused.
func probeSystem() []finding {
	list := []finding{probeKernel()}
	user := probeUserNamespace()
	if list = append(list, user); user.state == fine { // the others are made within it
		list = append(list,
			probeNamespace("mount namespace", unix.CLONE_NEWNS, "user.max_mnt_namespaces"),
			probeNamespace("PID namespace", unix.CLONE_NEWPID, "user.max_pid_namespaces"),
			probeNamespace("IPC namespace", unix.CLONE_NEWIPC, "user.max_ipc_namespaces"),
			probeNetwork())
	}
	return append(list, probeAppArmor(), probeOverlay(), probeLandlock(), probeFuse(), probeCgroup())
}

// probeKernel compares the release with the oldest that is supported.
func probeKernel() finding {
	f := finding{name: "kernel", state: fine, found: firstLine("/proc/sys/kernel/osrelease")}
	major, minor := 0, 0
	if _, err := fmt.Sscanf(f.found, "%d.%d", &major, &minor); err != nil || major < 5 || major == 5 && minor < 15 {
		f.state, f.meaning = missing, "try needs Linux 5.15 or later"
	}
	return f
}

// probeUserNamespace starts a process in a user namespace of its own, mapped
// as a session is.
func probeUserNamespace() finding {
	f := finding{name: "user namespace", state: fine, found: "can be made"}
	err := startIn(unix.CLONE_NEWUSER)
	if err == nil {
		return f
	}
	f.state, f.found = missing, err.Error()
	f.meaning = "a branch is mounted in a user namespace; this system forbids them to you"
	switch {
	case firstLine("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		f.fix = "sudo sysctl -w kernel.unprivileged_userns_clone=1"
	case firstLine("/proc/sys/user/max_user_namespaces") == "0" || errors.Is(err, unix.ENOSPC):
		f.fix = "sudo sysctl -w user.max_user_namespaces=15000"
	case inContainer():
		f.meaning += "; in a container the runtime's seccomp profile does"
		f.fix = "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined …"
	}
	return f
}

// probeNamespace starts a process in a namespace of one more kind.
func probeNamespace(name string, flag uintptr, sysctl string) finding {
	f := finding{name: name, state: fine, found: "can be made"}
	if err := startIn(unix.CLONE_NEWUSER | flag); err != nil {
		f.state, f.found = missing, err.Error()
		f.meaning = "a session has one of its own"
		if errors.Is(err, unix.ENOSPC) {
			f.fix = "sudo sysctl -w " + sysctl + "=15000"
		}
	}
	return f
}

// probeNetwork is needed for --net none alone.
func probeNetwork() finding {
	f := probeNamespace("network namespace", unix.CLONE_NEWNET, "user.max_net_namespaces")
	if f.state == missing {
		f.state, f.meaning = limited, "--net none does not work"
	}
	return f
}

// startIn starts true(1) in new namespaces, with the ids mapped to themselves.
func startIn(flags uintptr) error {
	program, err := exec.LookPath("true")
	if err != nil {
		return fmt.Errorf("find a program to start: %w", err)
	}
	uid, gid := os.Getuid(), os.Getgid()
	cmd := exec.Cmd{Path: program, Args: []string{"true"}, Env: []string{}, Dir: "/", SysProcAttr: &syscall.SysProcAttr{
		Cloneflags:  flags,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
	}}
	err = cmd.Run()
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return fmt.Errorf("cannot be made: %w", errno)
	}
	return err
}

// probeAppArmor looks at the restriction of Ubuntu 23.10 and later, under
// which a namespace can be made but not used.
func probeAppArmor() finding {
	f := finding{name: "AppArmor", state: fine, found: "does not restrict user namespaces"}
	if firstLine("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") != "1" || os.Geteuid() == 0 {
		return f
	}
	exe, err := os.Executable()
	if err != nil {
		exe = "/usr/local/bin/try"
	}
	f.found = "restricts user namespaces to programs with a profile"
	f.state, f.meaning = limited, "if the session below fails, give try a profile"
	f.fix = fmt.Sprintf("printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile try %s flags=(unconfined) { userns, }\\n' | sudo tee /etc/apparmor.d/try && sudo apparmor_parser -r /etc/apparmor.d/try", exe)
	return f
}

// probeOverlay asks whether the kernel has overlayfs at all; whether it takes
// this directory is for the session to find out.
func probeOverlay() finding {
	f := finding{name: "overlay", state: fine, found: "the kernel has it"}
	list, err := os.ReadFile("/proc/filesystems")
	if err == nil && !strings.Contains(string(list), "\toverlay\n") {
		// A module is loaded by the first mount.
		release := firstLine("/proc/sys/kernel/osrelease")
		modules, _ := filepath.Glob("/lib/modules/" + release + "/kernel/fs/overlayfs/overlay.ko*")
		f.found = "not loaded; the first session loads it"
		if len(modules) == 0 {
			f.state, f.found = missing, "the kernel has no overlayfs"
			f.meaning = "the overlay engine cannot work"
			f.fix = "sudo modprobe overlay"
		}
	}
	return f
}

// probeLandlock asks for the version, as landlock(7) says.
func probeLandlock() finding {
	f := finding{name: "Landlock", state: fine}
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	const scopes = 6 // the first that scopes abstract sockets
	switch {
	case errno != 0:
		f.state, f.found = limited, "not there: "+errno.Error()
	case abi < scopes:
		f.state, f.found = limited, "version "+strconv.Itoa(int(abi))
	default:
		f.found = "version " + strconv.Itoa(int(abi))
		return f
	}
	f.meaning = "commands can reach abstract sockets of programs outside (--net none closes them)"
	return f
}

// probeFuse opens /dev/fuse as the fuse engine would.
func probeFuse() finding {
	f := finding{name: "/dev/fuse", state: fine, found: "can be opened"}
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		f.state, f.found = limited, err.Error()
		f.meaning = "only the fuse engine wants it, which this version does not have"
		return f
	}
	if err := dev.Close(); err != nil {
		f.state, f.found = limited, err.Error()
	}
	return f
}

// probeCgroup is for information: no cgroup is needed, processes are counted
// by RLIMIT_NPROC in the user namespace.
func probeCgroup() finding {
	f := finding{name: "cgroup", state: fine, found: "not needed"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		f.found = "version 2; not needed"
	}
	return f
}

func inContainer() bool {
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(mark); err == nil {
			return true
		}
	}
	return false
}

// firstLine of a small file; empty if it cannot be read.
func firstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}
