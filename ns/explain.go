package ns

import (
	"strings"

	"golang.org/x/sys/unix"
)

// An explanation says what an errno of a step means where the errno itself
// misleads, and what can be done.
type explanation struct {
	step    string // "" is any
	errno   unix.Errno
	meaning string
	hint    string
}

// Pasteable lines for what a system forbids.
const (
	allowUserNamespaces = `sudo sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=15000`
	allowAppArmor       = `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`
	loadFuse            = `sudo modprobe fuse`
	allowFuse           = `sudo chmod 666 /dev/fuse`
	allowFuseInDocker   = `docker run --device /dev/fuse …`
	allowProcInDocker   = `docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined …`
)

// explanations: the first that fits holds.
var explanations = []explanation{
	{"make namespaces", unix.EPERM, "this system forbids user namespaces to ordinary users, or a sandbox around us does", allowUserNamespaces},
	{"make namespaces", unix.ENOSPC, "the limit of namespaces is reached, or is 0", allowUserNamespaces},
	{"make namespaces", unix.EUSERS, "user namespaces are nested too deep", ""},
	{"make namespaces", unix.EINVAL, "the kernel was built without a namespace that is needed", "build the kernel with CONFIG_USER_NS, CONFIG_PID_NS and CONFIG_IPC_NS"},
	{"make namespaces", unix.EAGAIN, "the user may start no more processes", "ulimit -u"},
	{"make namespaces", unix.ENOMEM, "there is no memory, or the PID namespace is ending", ""},
	{"map ids", unix.EPERM, "a security module gives user namespaces no capabilities", allowAppArmor},
	{"map ids", unix.EACCES, "a security module gives user namespaces no capabilities", allowAppArmor},
	{"make mounts private", unix.EPERM, "a Landlock sandbox around us, or a security module, forbids mounts", allowAppArmor},
	{"make mounts private", unix.EACCES, "a security module gives user namespaces no capabilities", allowAppArmor},
	{"create overlay", unix.ENODEV, "the kernel has no overlayfs", "sudo modprobe overlay"},
	{"create overlay", unix.EINVAL, "the file system cannot hold a layer, a mount lies below the root, or the layer was in use when its session ended", "put the store on ext4, xfs, btrfs or tmpfs: TRY_STORE=DIR"},
	{"create overlay", unix.EOPNOTSUPP, "the file system cannot hold a layer: it has no user xattrs", "put the store on ext4, xfs, btrfs or tmpfs: TRY_STORE=DIR"},
	{"create overlay", unix.ELOOP, "a layer lies in the root that it is for, or overlays lie on one another too deep", ""},
	{"create overlay", unix.ESTALE, "the layer belongs to another base directory", ""},
	{"create overlay", unix.EBUSY, "another session has this layer mounted", ""},
	{"create FUSE mount", unix.ENOENT, "there is no /dev/fuse here", loadFuse},
	{"create FUSE mount", unix.ENODEV, "the kernel has no FUSE", loadFuse},
	{"create FUSE mount", unix.EACCES, "only root may open /dev/fuse here", allowFuse},
	{"create FUSE mount", unix.EPERM, "a sandbox around us keeps /dev/fuse", allowFuseInDocker},
	{"make the tree read-only", unix.EBUSY, "a file is open for writing through a mount of the session", ""},
	{"mount proc", unix.EPERM, "parts of /proc are covered here, as in containers, and the kernel then allows no new one", allowProcInDocker},
	{"limit processes", unix.EOPNOTSUPP, "for root only a kernel from 6.14 on can hold a session to a number of processes", "set no limit: processes = 0 in the policy"},
	{"limit processes", unix.EINVAL, "the kernel takes no such limit", "set a limit of at least 301 processes"},
	{"start program", unix.EAGAIN, "the session may start no more processes", ""},
	{"", unix.ENOSYS, "the kernel is older than 5.15, or a sandbox around us hides the call", "uname -r"},
	{"", unix.ENOSPC, "the limit of mounts is reached, or memory is used up", "sudo sysctl -w fs.mount-max=200000"},
	{"", unix.EMFILE, "too many files are open", "ulimit -n"},
}

func (f *Failure) explain() explanation {
	if f.Errno == 0 {
		return explanation{meaning: "it ended without a word; was it killed?"}
	}
	for _, e := range explanations {
		if (e.step == "" || e.step == f.Step) && e.errno == f.Errno {
			return e
		}
	}
	return explanation{}
}

// Hint is what the user can do, or "".
func (f *Failure) Hint() string { return f.explain().hint }

// kernelLog makes one line of what a file system context said: records that
// begin with “e ”, “w ” or “i ”.
func kernelLog(raw []byte) string {
	text := strings.TrimSpace(unix.ByteSliceToString(raw))
	if len(text) > 2 && text[1] == ' ' {
		text = text[2:]
	}
	return strings.ReplaceAll(text, "\n", "; ")
}
