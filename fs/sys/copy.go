package sys

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// CopyFile copies the content of src into dst, which must be empty: by
// sharing the blocks where the file system can (ioctl_ficlone(2)), else piece
// by piece (copy_file_range(2)), and holes stay holes. Neither offset counts;
// both may have moved afterwards. Nothing but the content is copied.
func CopyFile(dst, src *os.File) error {
	out, in := int(dst.Fd()), int(src.Fd())
	if err := retry(func() error { return unix.IoctlFileClone(out, in) }); err == nil {
		return nil
	}
	fail := func(op string, err error) error {
		return &os.LinkError{Op: op, Old: src.Name(), New: dst.Name(), Err: err}
	}
	s, err := statx(in, "")
	if err != nil {
		return fail("stat", err)
	}
	for at := int64(0); at < s.Size; {
		data, err := unix.Seek(in, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing but a hole up to the end
			break
		}
		end := s.Size
		if err == nil {
			if end, err = unix.Seek(in, data, unix.SEEK_HOLE); err != nil {
				return fail("seek", err)
			}
		} else if !errors.Is(err, unix.EINVAL) { // EINVAL: knows no holes
			return fail("seek", err)
		} else {
			data = at
		}
		if err := copyRange(out, in, data, end); err != nil {
			return fail("copy", err)
		}
		at = end
	}
	// A hole at the end is made by the length alone.
	if err := retry(func() error { return unix.Ftruncate(out, s.Size) }); err != nil {
		return fail("truncate", err)
	}
	return nil
}

func copyRange(out, in int, at, end int64) error {
	from, to := at, at
	for from < end {
		var n int
		err := retry(func() (err error) {
			n, err = unix.CopyFileRange(in, &from, out, &to, int(min(end-from, 1<<30)), 0)
			return err
		})
		if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EINVAL) || isNotSupported(err) {
			return copyBytes(out, in, from, end)
		}
		if err != nil {
			return err
		}
		if n == 0 {
			// The end, or a file system such as procfs whose sizes mean nothing.
			return copyBytes(out, in, from, end)
		}
	}
	return nil
}

func copyBytes(out, in int, at, end int64) error {
	buf := make([]byte, min(end-at, 1<<20))
	for at < end {
		var n int
		err := retry(func() (err error) {
			n, err = unix.Pread(in, buf[:min(end-at, int64(len(buf)))], at)
			return err
		})
		if err != nil {
			return err
		}
		if n == 0 { // the file became shorter meanwhile
			return nil
		}
		for done := 0; done < n; {
			var w int
			err := retry(func() (err error) {
				w, err = unix.Pwrite(out, buf[done:n], at+int64(done))
				return err
			})
			if err != nil {
				return err
			}
			done += w
		}
		at += int64(n)
	}
	return nil
}
