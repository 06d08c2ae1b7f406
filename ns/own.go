package ns

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// OpenOwn opens the file that the O_PATH descriptor fd holds for reading, also
// where its mode keeps its owner from it: over one's own files one has every
// capability, in a user namespace of one's own (user_namespaces(7)). The mode
// stays as it is.
func OpenOwn(fd int) (int, error) {
	fds, err := errand(unix.CLONE_NEWUSER, []int{fd}, func(p *plan) {
		p.step("open", fmt.Sprintf("/proc/self/fd/%d", fd))
		p.call(unix.SYS_OPENAT, unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOATIME|unix.O_CLOEXEC)
		p.call(opHand, p.into(), 0)
	})
	if err == nil && len(fds) != 1 {
		err = fmt.Errorf("open one's own file: %d descriptors came: %w", len(fds), unix.EPROTO)
	}
	if err != nil {
		closeAll(fds)
		return -1, err
	}
	return fds[0], nil
}

// OwnXattr reads an extended attribute of the file that the O_PATH descriptor
// fd holds, also where OpenOwn is needed to read its content: a descriptor does
// not help, for each call asks for the mode anew (xattr(7)).
func OwnXattr(fd int, attr string) ([]byte, error) {
	const most = 64 << 10 // XATTR_SIZE_MAX
	out, err := unix.MemfdCreate("try-attribute", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file for attribute %s: %w", attr, err)
	}
	f := os.NewFile(uintptr(out), attr)
	defer f.Close()
	fds, err := errand(unix.CLONE_NEWUSER, []int{fd, out}, func(p *plan) {
		value := p.data(make([]byte, most))
		p.step("read attribute", attr)
		p.call(unix.SYS_GETXATTR, fmt.Sprintf("/proc/self/fd/%d", fd), attr, value, most)
		n := p.into()
		p.call(unix.SYS_WRITE, out, value, n)
	})
	closeAll(fds)
	if err != nil {
		return nil, err
	}
	value, err := io.ReadAll(io.NewSectionReader(f, 0, most))
	if err != nil {
		return nil, fmt.Errorf("read attribute %s: %w", attr, err)
	}
	return value, nil
}
