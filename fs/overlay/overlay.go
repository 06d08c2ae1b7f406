// Package overlay is the engine that lets the kernel's overlayfs do it. It
// knows what overlayfs demands of a root and of the place of a layer, and says
// so before anything is mounted; the options themselves are written by init,
// which knows whether this kernel takes them one by one or as one string.
//
// What is asked here is static. A mount that is refused all the same (a third
// overlay on two others, a security module) fails the set-up of the session,
// before CMD runs. See Documentation/filesystems/overlayfs.rst and
// fs/overlayfs/params.c in the kernel.
package overlay

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"try/fs/engine"
	"try/fs/sys"
)

// Overlay is the kernel's overlayfs with userxattr and volatile.
type Overlay struct{}

var _ engine.Engine = Overlay{}

// Name is "overlay".
func (Overlay) Name() string { return "overlay" }

// lowerless are the file system types that overlayfs refuses even as a lower
// layer, because they bring their own way to compare names or to walk
// (ovl_dentry_weird).
var lowerless = map[string]bool{"vfat": true, "msdos": true, "exfat": true, "autofs": true}

// Probe refuses a root that holds a mount, because in a user namespace the
// copies of the host's mounts are locked and a lower layer may not have any
// below it (FACTS B4), and one on a file system that overlayfs cannot read.
func (o Overlay) Probe(root string, mounts []sys.Mount) error {
	if engine.Off("overlay") {
		return &engine.Refusal{Root: root, Why: "the overlay engine is switched off by TRY_TEST_NO"}
	}
	on, err := engine.MountOf(root, mounts)
	if err != nil {
		return err
	}
	if m, found := engine.Below(root, on, mounts); found {
		return &engine.Refusal{
			Root: root, Below: m.Target,
			Why:  fmt.Sprintf("%s is a mount below it, which an overlay cannot hold", m.Target),
			Help: "use --scope dir in a directory without mounts, or unmount it",
		}
	}
	if lowerless[on.FSType] || engine.Unreal(on) {
		return &engine.Refusal{Root: root, Why: fmt.Sprintf("it lies on %s, which an overlay cannot read", on.FSType)}
	}
	return nil
}

// upperless are the file systems that overlayfs refuses as an upper layer or
// that cannot hold what it writes, by statfs(2)'s f_type.
var upperless = map[int64]string{
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
	unix.NFS_SUPER_MAGIC:       "NFS",
	unix.FUSE_SUPER_MAGIC:      "FUSE",
	unix.MSDOS_SUPER_MAGIC:     "FAT",
	unix.EXFAT_SUPER_MAGIC:     "exFAT",
	unix.RAMFS_MAGIC:           "ramfs",
	unix.V9FS_MAGIC:            "9p",
	unix.CIFS_SUPER_MAGIC:      "CIFS",
	unix.SMB2_SUPER_MAGIC:      "SMB",
	unix.SQUASHFS_MAGIC:        "squashfs",
	unix.ECRYPTFS_SUPER_MAGIC:  "eCryptfs",
}

// uppers are known to do; any other type is asked by an attribute.
var uppers = map[int64]bool{
	unix.EXT4_SUPER_MAGIC:  true,
	unix.XFS_SUPER_MAGIC:   true,
	unix.BTRFS_SUPER_MAGIC: true,
	unix.F2FS_SUPER_MAGIC:  true,
}

// probeAttr is set on a directory of ours and removed again, to learn whether
// its file system keeps user attributes (tmpfs: since Linux 6.6).
const probeAttr = "user.try.probe"

// Holds refuses file systems that cannot be an upper layer. dir is a directory
// of ours: an attribute may be set on it for a moment.
func (Overlay) Holds(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("statfs %s: %w", dir, err)
	}
	kind := int64(st.Type)
	if name, ok := upperless[kind]; ok {
		return &engine.Refusal{Root: dir, Why: "layers cannot lie on " + name}
	}
	if uppers[kind] {
		return nil
	}
	var err error
	if kind == unix.TMPFS_MAGIC && engine.Off("tmpfs-xattr") {
		err = unix.ENOTSUP
	} else if err = unix.Lsetxattr(dir, probeAttr, []byte{'y'}, 0); err == nil {
		// ENODATA: another run asks at the same time.
		if err = unix.Lremovexattr(dir, probeAttr); errors.Is(err, unix.ENODATA) {
			err = nil
		}
	}
	if errors.Is(err, unix.ENOTSUP) {
		return &engine.Refusal{Root: dir, Why: "its file system keeps no user attributes", Err: err}
	}
	if err != nil {
		return fmt.Errorf("set an attribute on %s: %w", dir, err)
	}
	return nil
}

// OutsideIDs is false: the kernel refuses to change what has an id that is not
// mapped (FACTS B6).
func (Overlay) OutsideIDs() bool { return false }

// Mount puts the layer on top of the root itself. The flags of the mount below
// are handed on, since an overlay mount starts without any (B30).
func (Overlay) Mount(root, layer, work string, below sys.Mount) engine.Mount {
	return engine.Mount{
		Type: "overlay", Target: root, Lower: []string{root}, Upper: layer, Work: work,
		NoExec: below.Has("noexec"), NoSuid: below.Has("nosuid"), NoDev: below.Has("nodev"),
	}
}
