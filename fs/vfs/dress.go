package vfs

import (
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// Dress gives name in d, a copy, its owner, nil to leave it, the attributes attrs,
// and the mode and times of s, in an order in which none takes another away: a
// new owner clears capabilities and set-id bits (chown(2)), an ACL alters the
// mode, and a symbolic link has none.
func Dress(fs FS, d *sys.Dir, name string, s *sys.Stat, owner *Owner, attrs map[string][]byte) error {
	var list []Attr
	if owner != nil {
		list = append(list, Attr{Owner: owner})
	}
	for _, attr := range slices.SortedFunc(maps.Keys(attrs), sys.SetOrder) {
		list = append(list, Attr{Xattr: attr, Value: attrs[attr]})
	}
	if s.Type() != unix.S_IFLNK {
		list = append(list, Attr{Mode: new(s.Perm())})
	}
	for _, a := range append(list, Attr{Times: &Times{Access: s.Atime, Modify: s.Mtime}}) {
		if err := fs.Set(d, name, a); err != nil {
			return err
		}
	}
	return nil
}
