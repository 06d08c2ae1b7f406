package changes

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
)

// kind is what a difference in these fields alone makes: 0 for none.
func (f *Fields) kind() Kind {
	switch {
	case f == nil:
		return 0
	case f.Mode || f.Owner || len(f.Xattrs) > 0:
		return Metadata
	case f.Mtime:
		return Touched
	}
	return 0
}

// compareDir compares a directory of both sides but for its mtime, which
// counts only when all in it is known.
func (m *maker) compareDir(f *frame, in, from *sys.Dir, at string) (*Fields, error) {
	made, ours := f.preparedAs(m)
	f.prepared = ours
	f.moved = !ours || made.Mtime != f.layer.Mtime
	fields := &Fields{
		Mode:  f.layer.Perm() != f.base.Perm() && !(ours && made.Perm() == f.layer.Perm()),
		Owner: m.root.Owners && (f.layer.UID != f.base.UID || f.layer.GID != f.base.GID),
	}
	var err error
	fields.Xattrs, err = m.compareXattrs(in, from, at)
	return fields, err
}

// preparedAs finds the directory among those that we made. Only a directory
// in a prepared one can be prepared, so few paths are joined.
func (f *frame) preparedAs(m *maker) (sys.Stat, bool) {
	if len(m.root.Prepared) == 0 {
		return sys.Stat{}, false
	}
	if parent := m.parent(); parent != nil && !parent.prepared {
		return sys.Stat{}, false
	}
	s, ok := m.root.Prepared[f.node.Path()]
	return s, ok
}

// compareFile compares two entries of one type that are no directories: their
// content (target, device number), and if that is the same the fields. in and
// out are looked at anew if that changed them or they cannot be read.
func (m *maker) compareFile(name string, in, out *side) (same bool, fields *Fields, err error) {
	switch in.stat.Type() {
	case unix.S_IFREG:
		if in.stat.Size != out.stat.Size {
			return false, nil, nil
		}
	case unix.S_IFLNK:
		if same, err = m.sameTarget(name); err != nil || !same {
			return false, nil, err
		}
	case unix.S_IFCHR, unix.S_IFBLK:
		if in.stat.Rdev != out.stat.Rdev {
			return false, nil, nil
		}
	}
	compare := func() error {
		same, err = true, nil
		if in.stat.IsRegular() {
			if same, err = m.sameContent(name, in.stat, out); err != nil || !same {
				return err
			}
		}
		fields = &Fields{
			Mode:  in.stat.Perm() != out.stat.Perm(),
			Owner: m.root.Owners && (in.stat.UID != out.stat.UID || in.stat.GID != out.stat.GID),
			Mtime: in.stat.Mtime != out.stat.Mtime,
		}
		if in.stat.Type() == unix.S_IFLNK {
			return nil // links have none that a session could set
		}
		fields.Xattrs, err = m.compareXattrs(m.layer.Dir(), m.base.Dir(), name)
		return err
	}
	if !in.stat.IsRegular() || !m.locked(in.stat, 0o400) {
		err = compare()
		return same, fields, err
	}
	d := m.layer.Dir()
	if err = layer.Opened(d, name, *in.stat, compare); err != nil {
		return false, nil, err
	}
	*in.stat, err = d.Stat(name) // opening moved its change time
	return same, fields, err
}

func (m *maker) sameTarget(name string) (bool, error) {
	a, err := m.layer.Dir().Readlink(name)
	if err != nil {
		return false, err
	}
	b, err := m.base.Dir().Readlink(name)
	return a == b, changing(err)
}

// sameContent compares two regular files of one size. A base file that the
// caller may not read counts as different, since the layer holds a copy.
func (m *maker) sameContent(name string, in *sys.Stat, out *side) (bool, error) {
	if in.Size == 0 {
		return true, nil
	}
	a, err := openRegular(m.layer.Dir(), name, in)
	if err != nil {
		return false, err
	}
	defer unix.Close(a)
	b, err := openRegular(m.base.Dir(), name, out.stat)
	switch {
	case errors.Is(err, unix.EACCES):
		return false, nil
	case errors.Is(err, unix.EXDEV): // a mount on the file
		out.err = err
		return false, nil
	case err != nil:
		return false, changing(err)
	}
	defer unix.Close(b)
	same, err := m.sameBytes(a, b, in.Size, in.Blocks*512 < in.Size || out.stat.Blocks*512 < in.Size)
	if err != nil {
		return false, &os.PathError{Op: "compare", Path: m.base.Dir().Name() + "/" + name, Err: err}
	}
	return same, nil
}

// openRegular opens the regular file that s describes, and nothing else,
// without moving its access time where that is allowed (open(2), O_NOATIME).
func openRegular(d *sys.Dir, name string, s *sys.Stat) (int, error) {
	fd, err := d.OpenFD(name, unix.O_RDONLY|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) {
		fd, err = d.OpenFD(name, unix.O_RDONLY, 0)
	}
	if err != nil {
		return -1, err
	}
	now, err := sys.StatFD(fd)
	if err == nil && now.Identity() != s.Identity() {
		err = &os.PathError{Op: "open", Path: d.Name() + "/" + name, Err: ErrChanging}
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

const chunk = 128 << 10

// sameBytes compares the first size bytes of two open files; where both have a
// hole there is nothing to read.
func (m *maker) sameBytes(a, b int, size int64, holes bool) (bool, error) {
	if m.bufs[0] == nil {
		m.bufs = [2][]byte{make([]byte, chunk), make([]byte, chunk)}
	}
	for at, most := int64(0), int64(4<<10); at < size; most = chunk { // most often the first page differs
		if holes {
			next := min(nextData(a, at, size), nextData(b, at, size))
			if at = next; at >= size {
				return true, nil
			}
		}
		n := min(size-at, most)
		x, err := readAt(a, m.bufs[0][:n], at)
		if err != nil {
			return false, err
		}
		y, err := readAt(b, m.bufs[1][:n], at)
		if err != nil {
			return false, err
		}
		if !bytes.Equal(x, y) {
			return false, nil
		}
		if int64(len(x)) < n { // both became shorter
			return true, nil
		}
		at += n
		if err := m.ctx.Err(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// nextData is where the next data at or behind at begins; at itself where the
// file system cannot tell (lseek(2), SEEK_DATA).
func nextData(fd int, at, size int64) int64 {
	next, err := unix.Seek(fd, at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size
	}
	if err != nil {
		return at
	}
	return next
}

// readAt fills buf from at, or up to the end of the file.
func readAt(fd int, buf []byte, at int64) ([]byte, error) {
	done := 0
	for done < len(buf) {
		n, err := unix.Pread(fd, buf[done:], at+int64(done))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		done += n
	}
	return buf[:done], nil
}

// compareXattrs compares what a session sees of the attributes of one entry of
// both sides, "" for the directories themselves.
func (m *maker) compareXattrs(in, from *sys.Dir, at string) ([]Xattr, error) {
	names, err := in.XattrNames(at)
	if err != nil {
		return nil, err
	}
	news, _, err := visible(in, at, names)
	if err != nil {
		return nil, err
	}
	if names, err = from.XattrNames(at); err != nil {
		return nil, changing(err)
	}
	olds, unread, err := visible(from, at, names)
	if err != nil {
		return nil, changing(err)
	}
	var list []Xattr
	for attr, value := range news {
		if layer.Reserved(attr) {
			continue
		}
		old, had := olds[attr]
		if unread[attr] {
			if old, had = m.own(from, at, layer.Escape(attr)); !had {
				continue
			}
		}
		if !had && layer.Escape(attr) != attr {
			// The base's own of that name no session sees, but one may set it.
			if old, err = from.Xattr(at, attr); errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EACCES) {
				err = nil
			}
			if err != nil {
				return nil, changing(err)
			}
			had = old != nil
		}
		if had && bytes.Equal(old, value) {
			continue
		}
		list = append(list, Xattr{attr, old, value})
	}
	for attr, old := range olds {
		if _, has := news[attr]; !has && !layer.Reserved(attr) {
			list = append(list, Xattr{attr, old, nil})
		}
	}
	slices.SortFunc(list, func(a, b Xattr) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// own reads an attribute of the base that the mode keeps from the owner, where
// that is to be had.
func (m *maker) own(from *sys.Dir, at, raw string) (value []byte, ok bool) {
	if m.root.OwnXattr == nil {
		return nil, false
	}
	if at != "" {
		e, err := from.Entry(at)
		if err != nil {
			return nil, false
		}
		defer e.Close()
		from = e
	}
	value, err := m.root.OwnXattr(from.FD(), raw)
	return value, err == nil
}

// visible reads those of names that a session sees. unread are those whose
// value the caller may not read, and a session could not either before it
// changed the mode.
func visible(d *sys.Dir, at string, names []string) (values map[string][]byte, unread map[string]bool, err error) {
	if len(names) == 0 {
		return nil, nil, nil
	}
	values, unread = make(map[string][]byte), make(map[string]bool)
	for _, raw := range names {
		attr, ok := layer.Visible(raw)
		if !ok {
			continue
		}
		value, err := d.Xattr(at, raw)
		switch {
		case errors.Is(err, unix.ENODATA):
		case errors.Is(err, unix.EACCES):
			unread[attr] = true
		case err != nil:
			return nil, nil, err
		default:
			values[attr] = value
		}
	}
	return values, unread, nil
}
