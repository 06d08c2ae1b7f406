package sys

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// Chmod sets the permissions of name, which may be "" and must be no symbolic
// link (EOPNOTSUPP). It needs no permission on the file, only its ownership.
func (d *Dir) Chmod(name string, mode uint32) error {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags = unix.AT_EMPTY_PATH
	}
	err := retry(func() error { return unix.Fchmodat(d.fd, name, mode, flags) })
	// fchmodat2 came with 6.6; a container's seccomp filter that does not know
	// it says EPERM. Then an O_PATH descriptor's /proc link does it.
	if isNotSupported(err) || errors.Is(err, unix.EPERM) {
		err = d.chmodByProc(name, mode)
	}
	return d.fail("chmod", name, err)
}

func (d *Dir) chmodByProc(name string, mode uint32) error {
	fd := d.fd
	if name != "" {
		n, err := openat2(d.fd, name, unix.O_PATH|unix.O_NOFOLLOW, 0, onMount)
		if err != nil {
			return err
		}
		defer unix.Close(n)
		fd = n
	}
	s, err := statx(fd, "")
	if err != nil {
		return err
	}
	if s.Type() == unix.S_IFLNK { // some kernels would change the link's own
		return unix.EOPNOTSUPP
	}
	return retry(func() error { return unix.Chmod(proc(fd, ""), mode) })
}

// Chown sets owner and group of name itself; −1 leaves one as it is, "" is
// the directory. The kernel may clear set-id bits (chown(2)).
func (d *Dir) Chown(name string, uid, gid int) error {
	err := retry(func() error { return unix.Fchownat(d.fd, name, uid, gid, noFollow(name)) })
	return d.fail("chown", name, err)
}

// SetTimes sets access and modification time of name itself; "" is the
// directory. KeepTime leaves one as it is.
func (d *Dir) SetTimes(name string, atime, mtime Time) error {
	ts := []unix.Timespec{atime.timespec(), mtime.timespec()}
	err := retry(func() error { return unix.UtimesNanoAt(d.fd, name, ts, noFollow(name)) })
	return d.fail("utimes", name, err)
}

// Access asks whether the caller, with the permissions it acts with, may use
// name so: a union of unix.R_OK, W_OK, X_OK (faccessat2(2)).
func (d *Dir) Access(name string, mode uint32) error {
	err := retry(func() error { return unix.Faccessat(d.fd, name, mode, unix.AT_EACCESS|noFollow(name)) })
	return d.fail("access", name, err)
}

func noFollow(name string) int {
	if name == "" {
		return unix.AT_EMPTY_PATH
	}
	return unix.AT_SYMLINK_NOFOLLOW
}

// proc is a path to name in the open directory fd, for the calls that have no
// *at form. Followed for "", not followed otherwise.
func proc(fd int, name string) string {
	path := "/proc/self/fd/" + strconv.Itoa(fd)
	if name != "" {
		path += "/" + name
	}
	return path
}
