package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// facts describes the machine: figures mean nothing without it.
func (l *lab) facts() []string {
	var u unix.Utsname
	kernel := "unknown"
	if err := unix.Uname(&u); err == nil {
		kernel = unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
	}
	who := fmt.Sprintf("uid %d", os.Getuid())
	if me, err := user.Current(); err == nil {
		who = me.Username + " (" + who + ")"
	}
	mode := "full run"
	if l.short {
		mode = "-short: a smoke run, few samples"
	}
	version := l.noTry
	if l.try != "" {
		version, _ = l.output(l.home, l.try, "version")
	}
	return []string{
		fmt.Sprintf("date     %s, %s, as %s", time.Now().Format(time.RFC3339), mode, who),
		fmt.Sprintf("kernel   %s, %s", kernel, field("/etc/os-release", "PRETTY_NAME=")),
		fmt.Sprintf("cores    %d × %s, load %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name"), load()),
		fmt.Sprintf("memory   %s", field("/proc/meminfo", "MemTotal")),
		fmt.Sprintf("files    %s", fileSystem(l.scratch)),
		fmt.Sprintf("versions %s; %s; %s; %s", version, l.version("bwrap"), l.version("unshare"), runtime.Version()),
	}
}

func (l *lab) version(peer string) string {
	path, err := exec.LookPath(peer)
	if err != nil {
		return "no " + peer
	}
	out, err := l.output(l.home, path, "--version")
	if err != nil {
		return peer + ": " + err.Error()
	}
	return out
}

// field is the value of the first line of a file that begins with key.
func field(file, key string) string {
	f, err := os.Open(file)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), key); ok {
			return strings.Trim(rest, "\t :\"")
		}
	}
	return "unknown"
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}

// fileSystem names type and source of the mount that holds path: of all that
// contain it, the last in mountinfo lies on top.
func fileSystem(path string) string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	name, longest := "unknown", -1
	for s := bufio.NewScanner(f); s.Scan(); {
		mount, super, ok := strings.Cut(s.Text(), " - ")
		left, right := strings.Fields(mount), strings.Fields(super)
		if !ok || len(left) < 6 || len(right) < 3 {
			continue
		}
		at := left[4]
		if (at == "/" || path == at || strings.HasPrefix(path, at+"/")) && len(at) >= longest {
			longest = len(at)
			name = fmt.Sprintf("%s on %s (%s), %s", right[0], right[1], right[2], path)
		}
	}
	return name
}
