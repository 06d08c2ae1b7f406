package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// Disk is the real one. If TRY_TEST_CRASH is set to part:number, the process
// is killed before that call; tests of whole programs do so.
func Disk() FS {
	if point := os.Getenv("TRY_TEST_CRASH"); point != "" {
		return &Fault{FS: disk{}, Before: KillAt(point)}
	}
	return disk{}
}

type disk struct{}

var _ FS = disk{}

func (disk) Part(string) {}

func (disk) Rename(from *sys.Dir, name string, to *sys.Dir, toName string) error {
	return from.Rename(name, to, toName)
}

func (disk) Exchange(from *sys.Dir, name string, to *sys.Dir, toName string) error {
	return from.Exchange(name, to, toName)
}

func (disk) Replace(from *sys.Dir, name string, to *sys.Dir, toName string) error {
	return from.Replace(name, to, toName)
}

func (disk) Remove(d *sys.Dir, name string, dir bool) error {
	if dir {
		return d.Rmdir(name)
	}
	return d.Unlink(name)
}

func (disk) Make(d *sys.Dir, name string, n New) error {
	switch {
	case n.From != nil:
		return n.From.Link(n.Name, d, name)
	case n.Mode&unix.S_IFMT == unix.S_IFLNK:
		return d.Symlink(n.Target, name)
	case n.Mode&unix.S_IFMT == unix.S_IFDIR:
		return d.Mkdir(name, n.Mode&^unix.S_IFMT)
	}
	return d.Mknod(name, n.Mode, n.Dev)
}

func (disk) Set(d *sys.Dir, name string, a Attr) error {
	switch {
	case a.Mode != nil:
		return d.Chmod(name, *a.Mode)
	case a.Owner != nil:
		return d.Chown(name, a.Owner.UID, a.Owner.GID)
	case a.Times != nil:
		return d.SetTimes(name, a.Times.Access, a.Times.Modify)
	case a.Remove:
		return d.RemoveXattr(name, a.Xattr)
	}
	return d.SetXattr(name, a.Xattr, a.Value)
}

func (disk) Open(d *sys.Dir, name string, flags int, perm uint32) (File, error) {
	f, err := d.OpenFile(name, flags, perm)
	if err != nil {
		return nil, err
	}
	return file{f}, nil
}

// Ordered: ext4 and xfs have one journal, memory loses all or nothing. Others
// may (btrfs has its tree log), but nothing says so.
func (disk) Ordered(d *sys.Dir) bool {
	st, err := d.StatFS()
	if err != nil {
		return false
	}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		return true
	}
	return false
}

func (disk) SyncFile(d *sys.Dir, name string) error {
	f, err := d.OpenFile(name, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (disk) SyncDir(d *sys.Dir) error { return d.Sync() }

func (disk) SyncFS(f *os.File) error { return sys.SyncFS(f) }

func (disk) Both(one, other func() error) error {
	done := make(chan error, 1)
	go func() { done <- other() }()
	return errors.Join(one(), <-done)
}

type file struct{ f *os.File }

// WriteAt writes all of p: os.File goes on after a partial write and after
// EINTR, and turns what is still missing into an error.
func (f file) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.f.WriteAt(p, off)
	if err == nil && n < len(p) {
		err = fmt.Errorf("write %s: %w", f.f.Name(), io.ErrShortWrite)
	}
	return n, err
}

func (f file) CopyFrom(src *os.File) error { return sys.CopyFile(f.f, src) }

// Begin is only a hint: what fails is heard by Sync.
func (f file) Begin() {
	_ = unix.SyncFileRange(int(f.f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}

func (f file) Sync() error {
	for {
		err := unix.Fdatasync(int(f.f.Fd()))
		if err == unix.EINTR { //lint:allow errno straight from the call
			continue
		}
		if err != nil {
			return &os.PathError{Op: "fdatasync", Path: f.f.Name(), Err: err}
		}
		return nil
	}
}

func (f file) Close() error { return f.f.Close() }
