package sys

import (
	"bytes"
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

// XattrNames lists the extended attributes of name itself; "" is the
// directory. A file system without any has none.
func (d *Dir) XattrNames(name string) ([]string, error) {
	path := proc(d.fd, name)
	var small [1 << 10]byte // called directly, not by retry, so that it stays on the stack
	buf := small[:]
	for {
		var n int
		var err error
		if name == "" {
			n, err = unix.Listxattr(path, buf)
		} else {
			n, err = unix.Llistxattr(path, buf)
		}
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ERANGE):
			buf = make([]byte, 64<<10) // XATTR_LIST_MAX
			continue
		case isNotSupported(err):
			return nil, nil
		case err != nil:
			return nil, d.fail("listxattr", name, err)
		case n == 0:
			return nil, nil
		}
		var names []string
		for rest := buf[:n]; len(rest) > 0; {
			end := bytes.IndexByte(rest, 0)
			if end < 0 {
				end = len(rest) - 1
			}
			names = append(names, string(rest[:end]))
			rest = rest[end+1:]
		}
		return names, nil
	}
}

// Xattr reads one extended attribute of name itself; ENODATA if it has none
// of that name, or the file system none at all.
func (d *Dir) Xattr(name, attr string) ([]byte, error) {
	path := proc(d.fd, name)
	var small [256]byte
	buf := small[:]
	for {
		var n int
		var err error
		if name == "" {
			n, err = unix.Getxattr(path, attr, buf)
		} else {
			n, err = unix.Lgetxattr(path, attr, buf)
		}
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ERANGE) && len(buf) < 64<<10:
			buf = make([]byte, 64<<10) // XATTR_SIZE_MAX
			continue
		case isNotSupported(err):
			err = unix.ENODATA
		}
		if err != nil {
			return nil, d.fail("getxattr "+attr, name, err)
		}
		return append([]byte{}, buf[:n]...), nil
	}
}

// Xattrs reads all extended attributes of name itself that the caller can
// see; nil if there are none. One that goes away meanwhile is left out.
func (d *Dir) Xattrs(name string) (map[string][]byte, error) {
	names, err := d.XattrNames(name)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	all := make(map[string][]byte, len(names))
	for _, attr := range names {
		value, err := d.Xattr(name, attr)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all[attr] = value
	}
	return all, nil
}

// SetXattr sets an extended attribute of name itself.
func (d *Dir) SetXattr(name, attr string, value []byte) error {
	set := unix.Lsetxattr
	if name == "" {
		set = unix.Setxattr
	}
	err := retry(func() error { return set(proc(d.fd, name), attr, value, 0) })
	return d.fail("setxattr "+attr, name, err)
}

// RemoveXattr removes an extended attribute of name itself; ENODATA if there
// is none.
func (d *Dir) RemoveXattr(name, attr string) error {
	remove := unix.Lremovexattr
	if name == "" {
		remove = unix.Removexattr
	}
	err := retry(func() error { return remove(proc(d.fd, name), attr) })
	return d.fail("removexattr "+attr, name, err)
}
