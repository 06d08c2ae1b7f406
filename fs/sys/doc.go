// Package sys is the one thin place for file-system calls. Every call starts
// at a held directory ([Dir]) and takes a name in it, so that a tree that
// somebody rearranges meanwhile cannot lead a call elsewhere.
//
// It guarantees:
//
//  1. No call follows a symbolic link, a magic link or a mount: openat2(2)
//     with BENEATH, NO_SYMLINKS, NO_MAGICLINKS, NO_XDEV, and the no-follow
//     form of all others. [OpenDir] alone takes a path, and follows all of it
//     but its last part.
//  2. Every descriptor is close-on-exec.
//  3. An error is an *os.PathError, *os.LinkError or *os.SyscallError and
//     keeps its errno.
//  4. A call that was interrupted is repeated, except exchange and close,
//     which must not be done twice.
//  5. Walking needs a bounded number of descriptors and no recursion, however
//     deep the tree is ([Descent], [Walk]).
//
// A Dir may be used by several goroutines until it is closed. Nothing here
// has a finalizer: what is opened must be closed.
package sys

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// retry repeats f while it is interrupted; only for calls that may be done
// twice. A call that sleeps (FUSE, NFS) can return EINTR at any signal, and
// the Go runtime sends itself SIGURG.
func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// pathError names the call and the path; a nil err stays nil.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: path, Err: err}
}

// isGone says that there is nothing by that name. Only ENOENT means no.
func isGone(err error) bool { return errors.Is(err, unix.ENOENT) }

// isNotSupported says that the file system or kernel lacks the operation.
// ENOTSUP and EOPNOTSUPP are one number on Linux.
func isNotSupported(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}
