package ns

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A device is a node of the host's /dev that the session has too.
type device struct {
	name  string // below /dev
	mount slot
}

// The devices that every program may expect, and those that compute: what
// the caller may open is passed, since the session sees the real machine
// (HAZARDS B33). Never here: block devices, mem, port, input, other
// terminals.
var (
	plainDevices   = []string{"null", "zero", "full", "random", "urandom", "tty"}
	computeDevices = []string{"dri/*", "nvidia*", "nvidia-caps/*", "kfd", "kvm", "fuse", "net/tun", "snd/*", "video*"}
)

func (p *plan) cloneDevices() {
	names := append(slices.Clone(plainDevices), findDevices("", computeDevices)...)
	for _, name := range names {
		var st unix.Stat_t
		if unix.Stat("/dev/"+name, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
			continue
		}
		p.cloneDevice("/dev/"+name, name)
	}
	var st unix.Stat_t
	if unix.Stat("/dev/log", &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		p.cloneDevice("/dev/log", "log")
	}
	// The caller's terminal has no name on the session's devpts; as console
	// ttyname(3) finds it.
	if p.terminal == nil {
		for _, d := range p.inherit {
			if d.fd <= 2 && d.tty && strings.HasPrefix(d.path, "/dev/") {
				p.cloneDevice(d.path, "console")
				break
			}
		}
	}
}

// findDevices lists what in /dev/DIR has a name like one of patterns (path.Match,
// DIR included) and may be opened by us. One reading of a directory serves all
// patterns: globbing each would cost as much as all mounts.
func findDevices(dir string, patterns []string) (found []string) {
	f, err := os.Open("/dev/" + dir)
	if err != nil {
		return nil // no such directory, or none that may be read: no devices
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1) // what was read before an error counts
	for _, name := range names {
		if dir != "" {
			name = dir + "/" + name
		}
		for _, p := range patterns {
			if match, _ := path.Match(p, name); match && unix.Access("/dev/"+name, unix.R_OK|unix.W_OK) == nil {
				found = append(found, name)
			}
			if below, _, ok := strings.Cut(p, "/"); ok && below == name {
				found = append(found, findDevices(name, []string{p})...)
			}
		}
	}
	return found
}

// cloneDevice takes the node as a read-only mount of its own: its mode and
// owner cannot be changed through it, writing to the device can.
func (p *plan) cloneDevice(path, name string) {
	p.on(path)
	m := p.cloneMount(path, 0)
	p.restrict(m, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	p.devices = append(p.devices, device{name, m})
}

// makeDev makes the session's /dev: a small tmpfs, read-only once it is
// filled.
func (p *plan) makeDev() {
	p.on("/dev")
	dev := p.newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "mode", "0755", "size", "64k")
	p.move(dev, "/dev", 0)
	for _, l := range [][2]string{
		{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
		{"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
	} {
		p.call(unix.SYS_SYMLINKAT, l[0], dev, l[1])
	}
	made := map[string]bool{}
	mkdir := func(name string) {
		if !made[name] {
			made[name] = true
			p.call(unix.SYS_MKDIRAT, dev, name, 0o755)
		}
	}
	for _, d := range p.devices {
		p.on("/dev/" + d.name)
		if dir := filepath.Dir(d.name); dir != "." {
			mkdir(dir)
		}
		p.call(unix.SYS_MKNODAT, dev, d.name, unix.S_IFREG|0o600, 0)
		p.call(unix.SYS_MOVE_MOUNT, d.mount, "", dev, d.name, unix.MOVE_MOUNT_F_EMPTY_PATH)
		p.closeSlot(d.mount)
	}
	p.makeFile(dev, "try", 0o444, p.spec.Marker)
	for _, fs := range []struct {
		name, fstype string
		options      []string
	}{
		// No gid=5: with one id mapped it is EINVAL (HAZARDS B16).
		{"pts", "devpts", []string{"newinstance", "", "ptmxmode", "0666", "mode", "620"}},
		{"shm", "tmpfs", []string{"mode", "1777"}},
		{"mqueue", "mqueue", nil},
	} {
		p.on("/dev/" + fs.name)
		mkdir(fs.name)
		m := p.newMount(fs.fstype, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC|fsDev(fs.fstype), fs.options...)
		p.call(unix.SYS_MOVE_MOUNT, m, "", dev, fs.name, unix.MOVE_MOUNT_F_EMPTY_PATH)
		p.closeSlot(m)
	}
	p.on("/dev")
	p.restrict(dev, unix.MOUNT_ATTR_RDONLY)
	p.closeSlot(dev)
}

// fsDev is NODEV for all but devpts, whose files are devices.
func fsDev(fstype string) int {
	if fstype == "devpts" {
		return 0
	}
	return unix.MOUNT_ATTR_NODEV
}

// makeFile writes a file below the directory descriptor dir. The umask is the
// caller's, so the mode is set.
func (p *plan) makeFile(dir slot, name string, mode uint32, content string) {
	p.call(unix.SYS_OPENAT, dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	fd := p.into()
	if content != "" {
		p.call(unix.SYS_WRITE, fd, p.data([]byte(content)), len(content))
	}
	p.call(unix.SYS_FCHMOD, fd, int(mode))
	p.closeSlot(fd)
}

// pantry is where the tmpfs of covers and files lies while clones are taken:
// a mount that is attached nowhere cannot be cloned (before Linux 6.15). The
// session's own /dev comes to lie over it. It is not unmounted: that waits
// for an RCU grace period, some milliseconds.
const pantry = "/dev"

// stockPantry makes one tmpfs with an empty directory, an unreadable file and
// the private files, and takes a clone for each place where one will lie.
func (p *plan) stockPantry() {
	if len(p.spec.Covers) == 0 && len(p.spec.Files) == 0 && !p.masked {
		return
	}
	m := p.newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "mode", "0755")
	p.call(unix.SYS_MKDIRAT, m, "dir", 0o555)
	p.makeFile(m, "none", 0, "")
	for i, f := range p.spec.Files {
		p.on(f.Path)
		p.makeFile(m, pantryName(i), f.Mode, string(f.Content))
	}
	p.on("")
	p.restrict(m, unix.MOUNT_ATTR_RDONLY)
	p.move(m, pantry, 0)
	p.closeSlot(m)
	p.findCovers()
	for i, c := range p.covers {
		name := "/none"
		if c.dir {
			name = "/dir"
		}
		p.covers[i].mount = p.cloneMount(pantry+name, 0)
	}
	for i := range p.spec.Files {
		p.files = append(p.files, p.cloneMount(pantry+"/"+pantryName(i), 0))
	}
}

func pantryName(i int) string { return "f" + itoa(i) }

// A coverAt hides what lies at path.
type coverAt struct {
	path  string
	dir   bool
	proc  bool // lies in /proc and is hidden as soon as that is mounted
	mount slot
}

// findCovers looks which covered paths exist, and as what.
func (p *plan) findCovers() {
	for _, path := range p.spec.Covers {
		if st, err := os.Stat(path); err == nil {
			p.covers = append(p.covers, coverAt{path: path, dir: st.IsDir()})
		}
	}
	if !p.masked {
		return
	}
	for _, path := range maskedProc {
		if st, err := os.Stat(path); err == nil {
			p.covers = append(p.covers, coverAt{path: path, dir: st.IsDir(), proc: true})
		}
	}
}

func (p *plan) cover() {
	for _, c := range p.covers {
		if !c.proc {
			p.coverOne(c)
		}
	}
}

// coverOne follows symbolic links, as whoever opens the path would.
func (p *plan) coverOne(c coverAt) {
	p.on(c.path)
	p.move(c.mount, c.path, unix.MOVE_MOUNT_T_SYMLINKS)
	p.tolerate(unix.ENOENT) // gone in the branch, or hidden by an outer cover
	p.closeSlot(c.mount)
}

func (p *plan) bindFiles() {
	for i, f := range p.spec.Files {
		p.on(f.Path)
		p.move(p.files[i], f.Path, unix.MOVE_MOUNT_T_SYMLINKS)
		p.tolerate(unix.ENOENT)
		p.closeSlot(p.files[i])
	}
}

// What root must not reach through /proc, since for it ownership is enough,
// with capabilities or without (FACTS R); the lists are those of the
// container runtimes.
var (
	maskedProc = []string{
		"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
	}
	readOnlyProc = []string{
		"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/proc/asound",
		"/proc/driver", "/proc/mtrr", "/proc/dynamic_debug",
	}
)

func (p *plan) mountProc() {
	p.on("/proc")
	m := p.newMount("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	p.move(m, "/proc", 0)
	p.closeSlot(m)
	if p.spec.Root && p.spec.Processes > 0 {
		// RLIMIT_NPROC does not bind the real root. The limit of pids is one
		// of the namespace's since 6.14; Start refuses older kernels, where
		// this file is the host's.
		p.step("limit processes", "")
		p.write("/proc/sys/kernel/pid_max", itoa(max(p.spec.Processes, pidMaxLeast)))
	}
	// In a cgroup namespace of its own a program could mount the hierarchy
	// anew, writable, and freeze or kill what is outside in the caller's cgroup,
	// where that is the caller's (root's, or delegated; cgroup_namespaces(7)).
	p.step("limit cgroup namespaces", "")
	p.write("/proc/sys/user/max_cgroup_namespaces", "0", unix.ENOENT)
	if !p.masked {
		return
	}
	p.step("mask proc", "")
	for _, c := range p.covers {
		if c.proc {
			p.coverOne(c)
		}
	}
	for _, path := range readOnlyProc {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		p.on(path)
		m := p.cloneMount(path, 0)
		p.restrict(m, unix.MOUNT_ATTR_RDONLY)
		p.move(m, path, 0)
		p.closeSlot(m)
	}
}

// pidMaxLeast is the least that the kernel takes for pid_max
// (kernel/pid.c, pid_max_min).
const pidMaxLeast = 301
