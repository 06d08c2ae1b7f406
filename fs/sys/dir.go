package sys

import (
	"errors"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// beneath keeps a lookup inside the directory it starts from (openat2(2)).
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// onMount is beneath for "..", which leaves the directory on purpose.
const onMount = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

const openDir = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// Dir is an open directory (an O_PATH descriptor). Names are looked up from
// it, never from the working directory. Its own name is for messages only.
type Dir struct {
	fd   int
	name *Node
}

// OpenDir opens the directory at an absolute path. Symbolic links on the way
// are followed, one at the end is refused with ENOTDIR: resolve first.
func OpenDir(path string) (*Dir, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, pathError("open", path, unix.EINVAL)
	}
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Open(path, openDir, 0)
		return err
	})
	if err != nil {
		return nil, pathError("open", path, err)
	}
	return &Dir{fd, &Node{Name: path}}, nil
}

// DupDir is a Dir of its own on the directory that f holds open; name is for
// messages.
func DupDir(f *os.File, name string) (*Dir, error) {
	return dup(int(f.Fd()), &Node{Name: name})
}

func dup(fd int, name *Node) (*Dir, error) {
	var n int
	err := retry(func() (err error) {
		n, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		return err
	})
	if err != nil {
		return nil, pathError("dup", name.shown(), err)
	}
	return &Dir{n, name}, nil
}

// Sub opens the directory rel below d; rel may have slashes and may be longer
// than the kernel takes at once. "" and "." are d itself. A symbolic link or a
// mount on the way is refused: ELOOP (or ENOTDIR at the end), EXDEV.
func (d *Dir) Sub(rel string) (*Dir, error) {
	if rel == "" || rel == "." {
		return dup(d.fd, d.name)
	}
	from, rest := d, rel
	for {
		piece := rest
		if len(rest) >= unix.PathMax {
			cut := strings.LastIndexByte(rest[:unix.PathMax], '/')
			if cut <= 0 {
				if from != d {
					from.Close()
				}
				return nil, pathError("open", d.path(rel), unix.ENAMETOOLONG)
			}
			piece = rest[:cut]
		}
		fd, err := openat2(from.fd, piece, openDir, 0, beneath)
		if from != d {
			from.Close()
		}
		if err != nil {
			return nil, pathError("open", d.path(rel), err)
		}
		next := &Dir{fd, &Node{d.name, rel}}
		if piece == rest {
			return next, nil
		}
		from, rest = next, strings.TrimLeft(rest[len(piece):], "/")
		if rest == "" {
			return next, nil
		}
	}
}

// parent opens d's "..": the caller compares what it gets.
func (d *Dir) parent(name *Node) (*Dir, error) {
	fd, err := openat2(d.fd, "..", openDir, 0, onMount)
	if err != nil {
		return nil, pathError("open", name.shown(), err)
	}
	return &Dir{fd, name}, nil
}

// Up opens d's "..", which leaves d: the caller compares it with what it is to
// be. Through a mount's root is refused with EXDEV.
func (d *Dir) Up() (*Dir, error) { return d.parent(d.name.above()) }

// Close closes the descriptor. It is never repeated: Linux has freed the
// number even when it reports EINTR (close(2)).
func (d *Dir) Close() error {
	fd := d.fd
	d.fd = -1
	if err := unix.Close(fd); err != nil && !errors.Is(err, unix.EINTR) {
		return pathError("close", d.Name(), err)
	}
	return nil
}

// Name is the path by which d was opened, for messages.
func (d *Dir) Name() string { return d.name.shown() }

// FD is the descriptor, valid until Close.
func (d *Dir) FD() int { return d.fd }

// path names an entry of d in messages.
func (d *Dir) path(name string) string {
	if name == "" {
		return d.Name()
	}
	return (&Node{d.name, name}).shown()
}

func openat2(fd int, name string, flags int, perm uint32, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: resolve}
	if flags&(unix.O_CREAT|unix.O_TMPFILE&^unix.O_DIRECTORY) != 0 {
		how.Mode = uint64(perm)
	}
	var n int
	err := retry(func() (err error) {
		n, err = unix.Openat2(fd, name, &how)
		return err
	})
	return n, err
}

// OpenFD opens name and returns the bare descriptor, for callers on a hot
// path. A file opened for reading is opened with O_NONBLOCK, so that a FIFO in
// its place does not hang the caller (open(2)); it has no effect on regular
// files. perm counts with O_CREAT and O_TMPFILE only, and goes through the
// umask.
func (d *Dir) OpenFD(name string, flags int, perm uint32) (int, error) {
	if flags&unix.O_ACCMODE == unix.O_RDONLY && flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK
	}
	fd, err := openat2(d.fd, name, flags|unix.O_NOFOLLOW, perm, beneath)
	if err != nil {
		return -1, pathError("open", d.path(name), err)
	}
	return fd, nil
}

// OpenFile is OpenFD with an *os.File around it.
func (d *Dir) OpenFile(name string, flags int, perm uint32) (*os.File, error) {
	fd, err := d.OpenFD(name, flags, perm)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), d.path(name)), nil
}

// Dirent is a name in a directory.
type Dirent struct {
	Name string
	Ino  uint64
	Type uint8 // unix.DT_*; DT_UNKNOWN where the file system does not tell
}

// Entries lists d without "." and "..", in the file system's order.
func (d *Dir) Entries() ([]Dirent, error) {
	var list []Dirent
	err := d.Each(func(e Dirent) error {
		list = append(list, e)
		return nil
	})
	return list, err
}

// Each calls f for each entry of d, in the file system's order, until f
// returns an error, which it then returns.
func (d *Dir) Each(f func(Dirent) error) error {
	fd, err := openat2(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0, beneath)
	if err != nil {
		return pathError("open", d.Name(), err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 32<<10)
	for {
		var n int
		err := retry(func() (err error) {
			n, err = unix.Getdents(fd, buf)
			return err
		})
		if err != nil {
			return pathError("readdir", d.Name(), err)
		}
		if n == 0 {
			return nil
		}
		for rest := buf[:n]; len(rest) > 0; {
			// struct linux_dirent64: ino, off, reclen, type, name (getdents64(2)).
			reclen := int(*(*uint16)(unsafe.Pointer(&rest[16])))
			e := Dirent{Ino: *(*uint64)(unsafe.Pointer(&rest[0])), Type: rest[18]}
			name := rest[19:reclen]
			rest = rest[reclen:]
			for i, c := range name {
				if c == 0 {
					name = name[:i]
					break
				}
			}
			if string(name) == "." || string(name) == ".." {
				continue
			}
			e.Name = string(name)
			if err := f(e); err != nil {
				return err
			}
		}
	}
}

// Sync writes the directory itself, its names, to disk (fsync(2)).
func (d *Dir) Sync() error {
	fd, err := openat2(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0, beneath)
	if err != nil {
		return pathError("open", d.Name(), err)
	}
	err = retry(func() error { return unix.Fsync(fd) })
	return errors.Join(pathError("fsync", d.Name(), err), pathError("close", d.Name(), unix.Close(fd)))
}

// StatFS tells how much room the file system of d has (statfs(2)).
func (d *Dir) StatFS() (unix.Statfs_t, error) {
	var st unix.Statfs_t
	err := retry(func() error { return unix.Fstatfs(d.fd, &st) })
	return st, pathError("statfs", d.Name(), err)
}

// SyncFS writes all of the file system that holds f to disk, and reports a
// write-back error that happened since f was opened (syncfs(2)).
func SyncFS(f *os.File) error {
	err := retry(func() error { return unix.Syncfs(int(f.Fd())) })
	return pathError("syncfs", f.Name(), err)
}
