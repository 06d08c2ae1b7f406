package fusefs

import (
	"encoding/binary"
	"slices"

	"try/fs/layer"
	"try/fs/sys"
)

// A POSIX ACL as an attribute has a header, and entries of a tag, permissions
// and an id (linux/posix_acl_xattr.h). Those of the owner, the group and all
// others are in each; an entry for somebody else brings a mask.
const (
	aclHeader = 4
	aclEntry  = 8
	aclUser   = 0x02
	aclGroup  = 0x08
	aclLeast  = aclHeader + 3*aclEntry
)

// shown is what the session sees of the attribute. A mount of an ordinary
// user's own namespaces has an id for him and for his group, and no other: the
// kernel takes an ACL with an entry for anybody else for a broken one, and
// answers with EINVAL to who asks for it, or for what it decides about
// (fs/posix_acl.c, posix_acl_from_xattr). No process of the session is anybody
// else, so it is shown without. Entries for further groups of the user's are
// left out with them: what they give is to be had by MountHost only.
func (t *tree) shown(attr string, value []byte) []byte {
	if t.owners != layer.Own || !sys.IsACL(attr) || len(value) < aclHeader {
		return value
	}
	acl := value[:aclHeader:aclHeader]
	for entry := range slices.Chunk(value[aclHeader:], aclEntry) {
		if t.hasID(entry) {
			acl = append(acl, entry...)
		}
	}
	return acl
}

func (t *tree) hasID(entry []byte) bool {
	if len(entry) < aclEntry {
		return true
	}
	id := binary.LittleEndian.Uint32(entry[4:])
	switch binary.LittleEndian.Uint16(entry) {
	case aclUser:
		return id == t.me.Uid
	case aclGroup:
		return id == t.me.Gid
	}
	return true
}

// loses says that to set the attribute would take from others what their
// entries give them, which the session does not see: the kernel's overlay
// answers with EINVAL, too, to who sets what it shows of such entries. To leave
// no entries is to leave none of theirs.
func (t *tree) loses(at spot, attr string, value []byte) bool {
	if t.owners != layer.Own || !sys.IsACL(attr) || len(value) <= aclLeast {
		return false
	}
	now, err := at.dir.Xattr(at.name, attr)
	return err == nil && len(t.shown(attr, now)) < len(now)
}
