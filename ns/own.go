package ns

import (
	"fmt"

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
