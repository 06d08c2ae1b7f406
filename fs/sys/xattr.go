package sys

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The attributes that are a POSIX ACL (acl(5)): what a directory gives to what is
// made in it, and what counts for the entry itself.
const (
	DefaultACL = "system.posix_acl_default"
	AccessACL  = "system.posix_acl_access"
)

// IsACL says that the attribute is one of them.
func IsACL(attr string) bool { return attr == DefaultACL || attr == AccessACL }

// XattrNames lists the extended attributes of name itself; "" is the
// directory. A file system without any has none.
func (d *Dir) XattrNames(name string) ([]string, error) {
	var small [1 << 10]byte // called directly, not by retry, so that it stays on the stack
	buf := small[:]
	for {
		n, err := listxattr(d.fd, name, buf)
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

// SetOrder compares names of attributes by the order in which they are set on
// one entry: AccessACL last, for it can take from the owner the right to write,
// without which he can set no user.* (xattr(7)).
func SetOrder(a, b string) int {
	if last := a == AccessACL; last != (b == AccessACL) {
		if last {
			return 1
		}
		return -1
	}
	return strings.Compare(a, b)
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
	err := retry(func() error { return removexattr(d.fd, name, attr) })
	return d.fail("removexattr "+attr, name, err)
}

// The calls that are made for each file have forms with a directory's
// descriptor since Linux 6.13 (listxattrat, removexattrat): they save the way
// through /proc, which takes longer than all the rest. They refuse an O_PATH
// descriptor itself, and a container's seccomp filter may know neither.

func listxattr(fd int, name string, buf []byte) (int, error) {
	if name == "" {
		return unix.Listxattr(proc(fd, ""), buf)
	}
	if path, err := unix.BytePtrFromString(name); err == nil && !olderThan613.Load() {
		n, _, errno := unix.Syscall6(unix.SYS_LISTXATTRAT, uintptr(fd), uintptr(unsafe.Pointer(path)),
			unix.AT_SYMLINK_NOFOLLOW, uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)), 0)
		if !unknown(errno) {
			return result(int(n), errno)
		}
	}
	return unix.Llistxattr(proc(fd, name), buf)
}

func removexattr(fd int, name, attr string) error {
	if name == "" {
		return unix.Removexattr(proc(fd, ""), attr)
	}
	path, err1 := unix.BytePtrFromString(name)
	key, err2 := unix.BytePtrFromString(attr)
	if err1 == nil && err2 == nil && !olderThan613.Load() {
		_, _, errno := unix.Syscall6(unix.SYS_REMOVEXATTRAT, uintptr(fd), uintptr(unsafe.Pointer(path)),
			unix.AT_SYMLINK_NOFOLLOW, uintptr(unsafe.Pointer(key)), 0, 0)
		if !unknown(errno) {
			_, err := result(0, errno)
			return err
		}
	}
	return unix.Lremovexattr(proc(fd, name), attr)
}

// olderThan613 is set once the kernel has said so.
var olderThan613 atomic.Bool

// unknown says that the call may not be there: the old way then decides.
func unknown(errno unix.Errno) bool {
	if errno == unix.ENOSYS {
		olderThan613.Store(true)
	}
	return errno == unix.ENOSYS || errno == unix.EPERM
}

func result(n int, errno unix.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return n, nil
}
