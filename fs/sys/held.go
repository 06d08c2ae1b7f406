package sys

import "golang.org/x/sys/unix"

// Entry holds name itself open (O_PATH), whatever it is, so that it can be
// looked at, changed and read after its name is gone. What comes back is a Dir
// of which, unless name is a directory, only the calls with the name "" mean
// anything.
func (d *Dir) Entry(name string) (*Dir, error) {
	fd, err := openat2(d.fd, name, unix.O_PATH|unix.O_NOFOLLOW, 0, beneath)
	if err != nil {
		return nil, pathError("open", d.path(name), err)
	}
	return &Dir{fd, &Node{d.name, name}}, nil
}

// Reopen opens what d itself is, a regular file that Entry holds: by its link
// in /proc, which leads nowhere else (proc(5)).
func (d *Dir) Reopen(flags int) (int, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Open(proc(d.fd, ""), flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return -1, pathError("open", d.Name(), err)
	}
	return fd, nil
}

// LinkHere gives what d itself is, held by Entry, the name toName. It needs
// /proc, but no capability as AT_EMPTY_PATH did before Linux 6.10.
func (d *Dir) LinkHere(to *Dir, toName string) error {
	err := retry(func() error {
		return unix.Linkat(unix.AT_FDCWD, proc(d.fd, ""), to.fd, toName, unix.AT_SYMLINK_FOLLOW)
	})
	return d.failLink("link", "", to, toName, err)
}

// Tmpfile makes a regular file without a name in d (open(2), O_TMPFILE) and
// returns a descriptor for reading and writing.
func (d *Dir) Tmpfile(perm uint32) (int, error) {
	fd, err := openat2(d.fd, ".", unix.O_TMPFILE|unix.O_RDWR, perm, beneath)
	if err != nil {
		return -1, pathError("open", d.Name(), err)
	}
	return fd, nil
}

// RenameAway moves name over whatever is at toName and leaves a whiteout, a
// character device 0:0, in its place, in one step (rename(2), RENAME_WHITEOUT).
// EINVAL means that the file system cannot.
func (d *Dir) RenameAway(name string, to *Dir, toName string) error {
	err := unix.Renameat2(d.fd, name, to.fd, toName, unix.RENAME_WHITEOUT)
	return d.failLink("rename", name, to, toName, err)
}

// HeldFD is Entry for a descriptor that is open already; it stays the caller's.
func HeldFD(fd int, name string) (*Dir, error) { return dup(fd, &Node{Name: name}) }
