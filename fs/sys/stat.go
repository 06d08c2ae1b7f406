package sys

import (
	"errors"
	"math"
	"sync"

	"golang.org/x/sys/unix"
)

// Time is a file time in nanoseconds since the epoch.
type Time int64

// KeepTime leaves a time as it is ([Dir.SetTimes]).
const KeepTime Time = math.MinInt64

// Stat is what statx(2) tells about an entry.
type Stat struct {
	Ino                        uint64
	Mode                       uint32 // all of st_mode: type and permissions
	Nlink, UID, GID            uint32
	Size, Blocks               int64
	Mtime, Ctime, Btime, Atime Time   // Btime is 0 where the file system has none, see below
	Rdev, Dev                  uint64 // as unix.Mkdev makes them
	MntID                      uint64
	Attributes                 uint64 // unix.STATX_ATTR_*
}

// Type is the S_IFMT part of the mode.
func (s Stat) Type() uint32 { return s.Mode & unix.S_IFMT }

// Perm is the mode without its type: permissions, set-id and sticky bits.
func (s Stat) Perm() uint32 { return s.Mode &^ unix.S_IFMT }

// IsDir says that the entry is a directory.
func (s Stat) IsDir() bool { return s.Type() == unix.S_IFDIR }

// IsRegular says that the entry is a regular file.
func (s Stat) IsRegular() bool { return s.Type() == unix.S_IFREG }

// overlays remembers which devices are overlayfs, whose files get another birth
// time when they are copied up, while they keep their number
// (Documentation/filesystems/overlayfs.rst, “Inode properties”): there it
// tells nothing. Such devices have no major number.
var overlays sync.Map // uint64 → bool

func overlaid(fd int, name string, dev uint64) bool {
	if unix.Major(dev) != 0 {
		return false
	}
	if is, ok := overlays.Load(dev); ok {
		return is.(bool)
	}
	var st unix.Statfs_t
	own := fd
	if name != "" { // it may be a mount
		var err error
		if own, err = unix.Openat(fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
			return false
		}
	}
	err := retry(func() error { return unix.Fstatfs(own, &st) })
	if own != fd {
		unix.Close(own)
	}
	is := err == nil && st.Type == unix.OVERLAYFS_SUPER_MAGIC
	overlays.Store(dev, is)
	return is
}

// Identity tells an inode from all others of its file system, for as long as
// numbers may be used again: a new inode with an old number has another birth
// time. The device is no part of it, since its number changes at a reboot.
type Identity struct {
	Ino   uint64
	Btime Time
	Type  uint32 // S_IFMT
}

// Identity returns what identifies the entry.
func (s Stat) Identity() Identity { return Identity{s.Ino, s.Btime, s.Type()} }

const statMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME | unix.STATX_MNT_ID

// Stat looks at name without following it; "" is the directory itself.
func (d *Dir) Stat(name string) (Stat, error) {
	s, err := statx(d.fd, name)
	return s, d.fail("stat", name, err)
}

// StatFD looks at an open file.
func StatFD(fd int) (Stat, error) {
	s, err := statx(fd, "")
	return s, pathError("stat", "descriptor", err)
}

func statx(fd int, name string) (Stat, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	var x unix.Statx_t
	for {
		err := unix.Statx(fd, name, flags, statMask, &x)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return Stat{}, err
		}
		s := Stat{
			Ino: x.Ino, Mode: uint32(x.Mode), Nlink: x.Nlink, UID: x.Uid, GID: x.Gid,
			Size: int64(x.Size), Blocks: int64(x.Blocks),
			Mtime: fileTime(x.Mtime), Ctime: fileTime(x.Ctime), Btime: fileTime(x.Btime), Atime: fileTime(x.Atime),
			Rdev: unix.Mkdev(x.Rdev_major, x.Rdev_minor), Dev: unix.Mkdev(x.Dev_major, x.Dev_minor),
			MntID: x.Mnt_id, Attributes: x.Attributes,
		}
		if overlaid(fd, name, s.Dev) {
			s.Btime = 0
		}
		return s, nil
	}
}

func fileTime(t unix.StatxTimestamp) Time { return Time(t.Sec*1e9 + int64(t.Nsec)) }

// timespec splits t so that times before the epoch keep a positive fraction.
func (t Time) timespec() unix.Timespec {
	if t == KeepTime {
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	}
	sec, nsec := int64(t)/1e9, int64(t)%1e9
	if nsec < 0 {
		sec, nsec = sec-1, nsec+1e9
	}
	return unix.Timespec{Sec: sec, Nsec: nsec}
}
