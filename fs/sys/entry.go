package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// Mkdir makes the directory name; perm goes through the umask.
func (d *Dir) Mkdir(name string, perm uint32) error {
	err := retry(func() error { return unix.Mkdirat(d.fd, name, perm) })
	return d.fail("mkdir", name, err)
}

// Mknod makes a file, FIFO or device; mode holds its type and, through the
// umask, its permissions (mknod(2)).
func (d *Dir) Mknod(name string, mode uint32, dev uint64) error {
	err := retry(func() error { return unix.Mknodat(d.fd, name, mode, int(dev)) })
	return d.fail("mknod", name, err)
}

// Symlink makes name a symbolic link to target.
func (d *Dir) Symlink(target, name string) error {
	if err := retry(func() error { return unix.Symlinkat(target, d.fd, name) }); err != nil {
		return &os.LinkError{Op: "symlink", Old: target, New: d.path(name), Err: err}
	}
	return nil
}

// Readlink returns the target of the symbolic link name.
func (d *Dir) Readlink(name string) (string, error) {
	for size := 256; ; size *= 2 {
		buf := make([]byte, size)
		var n int
		err := retry(func() (err error) {
			n, err = unix.Readlinkat(d.fd, name, buf)
			return err
		})
		if err != nil {
			return "", d.fail("readlink", name, err)
		}
		if n < size {
			return string(buf[:n]), nil
		}
	}
}

// Unlink removes the name of anything but a directory.
func (d *Dir) Unlink(name string) error {
	err := retry(func() error { return unix.Unlinkat(d.fd, name, 0) })
	return d.fail("unlink", name, err)
}

// Rmdir removes an empty directory.
func (d *Dir) Rmdir(name string) error {
	err := retry(func() error { return unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR) })
	return d.fail("rmdir", name, err)
}

// Link gives name a second name; a symbolic link is linked itself.
func (d *Dir) Link(name string, to *Dir, toName string) error {
	err := retry(func() error { return unix.Linkat(d.fd, name, to.fd, toName, 0) })
	return d.failLink("link", name, to, toName, err)
}

// Rename moves name to a place where nothing is: EEXIST otherwise
// (rename(2), RENAME_NOREPLACE).
func (d *Dir) Rename(name string, to *Dir, toName string) error {
	err := retry(func() error { return unix.Renameat2(d.fd, name, to.fd, toName, unix.RENAME_NOREPLACE) })
	return d.failLink("rename", name, to, toName, err)
}

// Replace moves name over whatever is at toName. Only for files of the
// store's own: what it replaces is gone.
func (d *Dir) Replace(name string, to *Dir, toName string) error {
	err := retry(func() error { return unix.Renameat(d.fd, name, to.fd, toName) })
	return d.failLink("replace", name, to, toName, err)
}

// Exchange swaps name and toName in one step: at every moment each name holds
// either its old or its new file (rename(2), RENAME_EXCHANGE). Both must
// exist, on one mount; EINVAL means that the file system cannot exchange.
//
// It is not retried: if the file system did it and was interrupted all the
// same, a second exchange would undo the first. The step looks and decides.
func (d *Dir) Exchange(name string, to *Dir, toName string) error {
	err := unix.Renameat2(d.fd, name, to.fd, toName, unix.RENAME_EXCHANGE)
	return d.failLink("exchange", name, to, toName, err)
}

func (d *Dir) fail(op, name string, err error) error {
	if err == nil {
		return nil // before the path is joined: this is a hot path
	}
	return pathError(op, d.path(name), err)
}

func (d *Dir) failLink(op, name string, to *Dir, toName string, err error) error {
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: op, Old: d.path(name), New: to.path(toName), Err: err}
}
