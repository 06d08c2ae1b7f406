package layer

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// Kind is what an entry of a layer, or of a base, is to a session.
type Kind uint8

const (
	_ Kind = iota
	File
	Dir
	Symlink
	FIFO
	Socket
	Device
	Whiteout // not there
)

var kinds = [...]string{"invalid", "file", "dir", "symlink", "fifo", "socket", "device", "whiteout"}

func (k Kind) String() string { return kinds[k] }

// The attributes that the format gives a meaning.
const (
	prefix       = "user.overlay."
	escaped      = "user.overlay.overlay."
	OpaqueAttr   = prefix + "opaque"
	whiteoutAttr = prefix + "whiteout"
	OriginAttr   = prefix + "origin"
)

// reserved are the names behind the prefix that overlayfs itself reads
// (fs/overlayfs/overlayfs.h). A user's own attribute of such a name would
// change the meaning of a base file for every later session.
var reserved = map[string]bool{
	"opaque": true, "whiteout": true, "metacopy": true, "redirect": true, "origin": true,
	"impure": true, "nlink": true, "upper": true, "uuid": true, "protattr": true,
}

// IsWhiteout says that s is a whiteout of the form that engines write.
func IsWhiteout(s sys.Stat) bool { return s.Type() == unix.S_IFCHR && s.Rdev == 0 }

// Entry is what the format says of one entry.
type Entry struct {
	Kind     Kind
	Opaque   bool // a directory that hides the base's
	CopiedUp bool // has the origin mark: was the base's once, at this path or another
	Marked   bool // has attributes that must not reach the base as they are

	// Refused are attributes that a session made, by its names, and that must
	// not reach the base at all: overlayfs reads them itself.
	Refused []string
}

// Look classifies the entry name of d, of which s is the Stat. It reads
// nothing but the attributes, and those only of regular files and directories,
// since nothing else can have any of user.*.
func Look(d *sys.Dir, name string, s sys.Stat) (Entry, error) {
	e := Entry{Kind: kindOf(s)}
	if e.Kind != File && e.Kind != Dir {
		return e, nil
	}
	names, err := d.XattrNames(name)
	if err != nil {
		return e, err
	}
	for _, attr := range names {
		if !strings.HasPrefix(attr, prefix) {
			continue
		}
		e.Marked = true
		switch attr {
		case whiteoutAttr:
			if e.Kind == File && s.Size == 0 {
				return Entry{Kind: Whiteout}, nil
			}
		case OriginAttr:
			e.CopiedUp = true
		case OpaqueAttr:
			value, err := readOpaque(d, name, s)
			if err != nil {
				return e, err
			}
			e.Opaque = e.Kind == Dir && value == "y"
		default:
			if made, visible := Unescape(attr); visible && Reserved(made) {
				e.Refused = append(e.Refused, made)
			}
		}
	}
	return e, nil
}

// readOpaque reads the mark of a directory even if its mode forbids its owner
// to: a layer's directory of mode 000 is opaque or not all the same, and the
// value of user.* needs read permission (xattr(7)).
func readOpaque(d *sys.Dir, name string, s sys.Stat) (string, error) {
	value, err := d.Xattr(name, OpaqueAttr)
	if errors.Is(err, unix.EACCES) && s.IsDir() {
		err = Opened(d, name, s, func() error {
			value, err = d.Xattr(name, OpaqueAttr)
			return err
		})
	}
	return string(value), err
}

// Opened runs f while the owner's permissions on name, an entry of a layer and
// no symbolic link, are all set, and puts the mode back. Never for a base.
func Opened(d *sys.Dir, name string, s sys.Stat, f func() error) error {
	if err := d.Chmod(name, s.Perm()|0o700); err != nil {
		return err
	}
	return errors.Join(f(), d.Chmod(name, s.Perm()))
}

// Xattrs reads all attributes of name, an entry of a layer, by the names that
// they have there; also of one that its owner may not read.
func Xattrs(d *sys.Dir, name string, s sys.Stat) (attrs map[string][]byte, err error) {
	read := func() (err error) {
		attrs, err = d.Xattrs(name)
		return err
	}
	if err = read(); errors.Is(err, unix.EACCES) && s.Type() != unix.S_IFLNK {
		err = Opened(d, name, s, read)
	}
	return attrs, err
}

// MakeOpaque keeps what the base has at name from showing in it, a directory of
// the layer; also in one that its owner may not write, and so not mark.
func MakeOpaque(d *sys.Dir, name string) error {
	mark := func() error { return d.SetXattr(name, OpaqueAttr, []byte("y")) }
	err := mark()
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	s, err := d.Stat(name)
	if err != nil {
		return err
	}
	return Opened(d, name, s, mark)
}

// Hidden says that an entry of a base is not there for a session.
func Hidden(d *sys.Dir, name string, s sys.Stat) (bool, error) {
	if IsWhiteout(s) {
		return true, nil
	}
	if !s.IsRegular() || s.Size != 0 {
		return false, nil
	}
	e, err := Look(d, name, s)
	return e.Kind == Whiteout, err
}

func kindOf(s sys.Stat) Kind {
	switch s.Type() {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Dir
	case unix.S_IFLNK:
		return Symlink
	case unix.S_IFIFO:
		return FIFO
	case unix.S_IFSOCK:
		return Socket
	}
	if IsWhiteout(s) {
		return Whiteout
	}
	return Device
}

// MakeWhiteout deletes name, in the form that the kernel writes. It needs no
// capability on an ordinary file system.
func MakeWhiteout(d *sys.Dir, name string) error {
	return d.Mknod(name, unix.S_IFCHR, 0)
}
