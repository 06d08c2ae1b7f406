package layer

import (
	"strings"

	"try/fs/sys"
)

// Escape returns the name under which a layer keeps the attribute that a
// session calls attr.
func Escape(attr string) string {
	if rest, ok := strings.CutPrefix(attr, prefix); ok {
		return escaped + rest
	}
	return attr
}

// Unescape returns what a session calls the attribute that a layer or a base
// keeps under the name raw; false if it is a mark, which no session sees.
func Unescape(raw string) (attr string, visible bool) {
	if rest, ok := strings.CutPrefix(raw, escaped); ok {
		return prefix + rest, true
	}
	return raw, !strings.HasPrefix(raw, prefix)
}

// Reserved says that overlayfs reads the attribute itself, so that it must not
// be given to a file of the base, whoever made it.
func Reserved(attr string) bool {
	rest, ok := strings.CutPrefix(attr, prefix)
	return ok && (reserved[rest] || strings.HasPrefix(attr, escaped))
}

// Visible returns the name by which a session may see, and set, the attribute
// that a layer or a base keeps under the name raw: one of user.*, an ACL, or
// file capabilities. All else is not a session's: marks, and what differs
// between a file and its copy without anybody's doing, such as labels of
// security modules, trusted.* and inventions of file systems.
func Visible(raw string) (attr string, visible bool) {
	attr, visible = Unescape(raw)
	return attr, visible && (strings.HasPrefix(attr, "user.") || sessionSets[attr])
}

var sessionSets = map[string]bool{
	"security.capability": true, sys.AccessACL: true, sys.DefaultACL: true,
}

// Dropped returns, of the attributes of a base file, those that a copy in the
// layer lacks because copy-up leaves them out, not because a session removed
// them: marks of the base's own, and trusted.*, as far as the caller sees it, but
// for what is xfs's other name for an ACL (fs/xfs/libxfs/xfs_da_format.h).
// A commit that puts the layer's file in the base file's place gives them to
// it.
func Dropped(raw map[string][]byte) map[string][]byte {
	var lost map[string][]byte
	for name, value := range raw {
		_, visible := Unescape(name)
		if visible && !strings.HasPrefix(name, "trusted.") || strings.HasPrefix(name, "trusted.SGI_ACL_") {
			continue
		}
		if lost == nil {
			lost = make(map[string][]byte)
		}
		lost[name] = value
	}
	return lost
}

// Marks reads what must be done to a layer's entry before it is a base's: ours
// are all its user.overlay.* attributes, by the names they have in the layer,
// to be removed; users are those that a session made, by the names they have
// in a base, to be set. Names that overlayfs reads itself are only in ours.
// Setting ours again and removing users turns it back. name "" is d itself;
// reading needs read permission on the entry.
func Marks(d *sys.Dir, name string) (ours, users map[string][]byte, err error) {
	names, err := d.XattrNames(name)
	if err != nil {
		return nil, nil, err
	}
	for _, raw := range names {
		if !strings.HasPrefix(raw, prefix) {
			continue
		}
		value, err := d.Xattr(name, raw)
		if err != nil {
			return nil, nil, err
		}
		if ours == nil {
			ours = make(map[string][]byte)
		}
		ours[raw] = value
		if attr, visible := Unescape(raw); visible && !Reserved(attr) {
			if users == nil {
				users = make(map[string][]byte)
			}
			users[attr] = value
		}
	}
	return ours, users, nil
}
