package layer

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// Owners says how far owner and group are to be as in the base.
type Owners uint8

const (
	Own    Owners = iota // the user's, and his first group
	Groups               // his, and the group of the base's if he may give it
	All                  // the base's: only root can have that
)

// OwnersOf is what a root of the branch has: all as it is for root, and groups
// where those of the base are outside what they are in a session.
func OwnersOf(root, outside bool) Owners {
	switch {
	case root:
		return All
	case outside:
		return Groups
	}
	return Own
}

// Give makes name in d, an entry of a layer that a copy of s is to be, as much
// s's as o says. It comes before the mode, which a change of group can alter,
// and before capabilities, which are lost with it (chown(2)).
func (o Owners) Give(d *sys.Dir, name string, s sys.Stat) error {
	switch o {
	case All:
		return d.Chown(name, int(s.UID), int(s.GID))
	case Groups:
		if int(s.GID) == os.Getegid() {
			return nil
		}
		if err := d.Chown(name, -1, int(s.GID)); !errors.Is(err, unix.EPERM) { // not one of his
			return err
		}
	}
	return nil
}

// reset gives a directory that was made beforehand the user's first group,
// which may have been another then; or it has that of a root that it was for.
func (o Owners) reset(d *sys.Dir) error {
	s, err := d.Stat("")
	if err != nil || o == All || int(s.GID) == os.Getegid() {
		return err
	}
	return d.Chown("", -1, os.Getegid())
}

// Prepare makes the directory name in parent as overlayfs would copy up base:
// with its mode, times and attributes. The root of a layer is made so, since a
// session sees the root's own mode and times as those of the layer; and a
// directory whose owner has no id in the session, since nothing can be copied
// up below it otherwise. It returns the directory as made, by which a plan
// knows later that a session left it alone.
func Prepare(parent *sys.Dir, name string, base *sys.Dir, owners Owners) (sys.Stat, error) {
	made, err := prepare(parent, name, base, owners)
	if err != nil {
		return sys.Stat{}, fmt.Errorf("prepare layer for %s: %w", base.Name(), err)
	}
	return made, nil
}

func prepare(parent *sys.Dir, name string, base *sys.Dir, owners Owners) (sys.Stat, error) {
	if err := parent.Mkdir(name, 0o700); err != nil {
		return sys.Stat{}, err
	}
	d, err := parent.Sub(name)
	if err != nil {
		return sys.Stat{}, err
	}
	defer d.Close()
	return Dress(d, base, owners)
}

// Dress does to an empty directory that is there what Prepare does to one that
// it makes, so that directories can be made beforehand.
func Dress(d, base *sys.Dir, owners Owners) (sys.Stat, error) {
	s, err := base.Stat("")
	if err != nil {
		return sys.Stat{}, err
	}
	attrs, err := copyable(base)
	if err != nil {
		return sys.Stat{}, err
	}
	if err := errors.Join(DropACLs(d, attrs), owners.reset(d), owners.Give(d, "", s)); err != nil {
		return sys.Stat{}, err
	}
	for _, attr := range slices.SortedFunc(maps.Keys(attrs), sys.SetOrder) {
		// A memory file system before 6.6 has no user.*: the session does
		// without, as it would with a copied-up directory there.
		if err := d.SetXattr("", attr, attrs[attr]); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return sys.Stat{}, err
		}
	}
	// Mode after the ACL and the owner, which both may change it; times last.
	if err := errors.Join(d.Chmod("", s.Perm()), d.SetTimes("", s.Atime, s.Mtime)); err != nil {
		return sys.Stat{}, err
	}
	return d.Stat("")
}

// DropACLs removes the ACLs that d has got from the directory in which it was
// made, but those that are among attrs, the attributes that it is to have.
func DropACLs(d *sys.Dir, attrs map[string][]byte) error {
	names, err := d.XattrNames("")
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, wanted := attrs[name]; !wanted && sys.IsACL(name) {
			if err := d.RemoveXattr("", name); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyable reads what overlayfs copies up of a directory's attributes: all but
// marks. A value that the caller may not read is left out, as a session could
// not read it either.
func copyable(base *sys.Dir) (map[string][]byte, error) {
	names, err := base.XattrNames("")
	if err != nil {
		return nil, err
	}
	attrs := make(map[string][]byte)
	for _, raw := range names {
		if _, visible := Visible(raw); !visible {
			continue
		}
		value, err := base.Xattr("", raw)
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, err
		}
		attrs[raw] = value
	}
	return attrs, nil
}

// PrepareBelow makes in the layer each directory on the way from the root to
// rel that is not there yet, and rel itself, and notes them in made by their
// path from the root, as they are when all is done. A directory that is in the
// layer already is left alone.
func PrepareBelow(layer, base *sys.Dir, rel string, owners Owners, made map[string]sys.Stat) error {
	in, err := layer.Sub("")
	if err != nil {
		return err
	}
	from, err := base.Sub("")
	if err != nil {
		in.Close()
		return err
	}
	defer func() { in.Close(); from.Close() }()
	path := ""
	for name := range strings.SplitSeq(rel, "/") {
		parent := path
		path = strings.TrimPrefix(path+"/"+name, "/")
		next, err := from.Sub(name)
		if err != nil {
			return err
		}
		from.Close()
		from = next
		before, err := in.Stat("")
		if err != nil {
			return err
		}
		switch s, err := Prepare(in, name, from, owners); {
		case errors.Is(err, unix.EEXIST):
		case err != nil:
			return err
		default:
			made[path] = s
			// The new name has moved the parent's time, and no session did that.
			if err := in.SetTimes("", sys.KeepTime, before.Mtime); err != nil {
				return err
			}
			if _, ours := made[parent]; ours {
				if made[parent], err = in.Stat(""); err != nil {
					return err
				}
			}
		}
		if next, err = in.Sub(name); err != nil {
			return err
		}
		in.Close()
		in = next
	}
	return nil
}
