package commit

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// area says below which directory of a root a place lies.
type area uint8

const (
	inBase  area = iota + 1 // the real files
	inLayer                 // what the branch changed
	inSlots                 // where displaced entries go and copies come from
)

func (a area) String() string {
	switch a {
	case inBase:
		return "base"
	case inLayer:
		return "layer"
	case inSlots:
		return "slots"
	}
	return fmt.Sprintf("area %d", a)
}

// place is where an entry lies. path is relative; "" is the directory itself.
type place struct {
	root uint32
	area area
	path string
}

// split parts a place in the directory that holds it and its name there.
func (p place) split() (place, string) {
	if i := strings.LastIndexByte(p.path, '/'); i >= 0 {
		return place{p.root, p.area, p.path[:i]}, p.path[i+1:]
	}
	return place{p.root, p.area, ""}, p.path
}

// kind is what a step does. The numbers are part of the journal's format.
type kind uint8

const (
	// A move takes an entry to where nothing is: an addition into the base, a
	// deletion into the slots, what is not to be committed aside.
	move kind = iota + 1
	// A swap exchanges the entry at from with the one in the base, which then
	// lies at from.
	swap
	// A strip takes the marks off an entry that goes along with a directory
	// above it.
	strip
	// A mode step makes a directory accessible for the others, and a later one
	// puts its permissions back.
	mode
	// A meta step alters metadata of a base entry in place.
	meta
	// A times step sets the times of a directory in which other steps have
	// acted. It also holds the identity that the directory must have.
	times
)

var kinds = [...]string{move: "move", swap: "swap", strip: "strip", mode: "mode", meta: "metadata", times: "times"}

func (k kind) String() string {
	if k == 0 || int(k) >= len(kinds) {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return kinds[k]
}

// step is one journalled change. Which fields count depends on the kind.
type step struct {
	kind kind
	from place // move, swap: where the new entry lies; others: what is altered
	to   place // move, swap: where it goes; strip, mode, times: where it may be afterwards
	new  side  // move, swap: the entry at from; others: the entry altered
	old  side  // swap: the entry at to
	meta *change
	// mode: the permissions before and after
	before, after uint32
	// times: before and after; sys.KeepTime leaves one
	oldTime, newTime [2]sys.Time // access, modification
}

// side is an entry as it was when the journal was written.
type side struct {
	id       sys.Identity
	perm     uint32
	uid, gid uint32
	size     int64
	mtime    sys.Time
	ctime    sys.Time
	rdev     uint64
	// open, if opened is set, is the permissions that the entry has while it is
	// moved: a directory that changes its parent must be writable for its owner
	// (rename(2)), and so must be a file that loses an xattr (xattr(7)).
	opened bool
	open   uint32
	// shared says that an earlier step alters the inode under another name, or
	// may: its ctime proves nothing.
	shared bool
	marks  []mark
	tree   tree
}

// mark is an xattr of the layer's format, or a user's own that the format
// stores under another name: from is its name in the layer ("": not there), to
// the one in the base ("": not there).
type mark struct {
	from, to string
	value    []byte
}

// tree sums up everything below a directory, so that a later walk can tell
// whether anything was added, altered or taken away.
type tree struct {
	count uint64
	sum   [16]byte
}

// change is a meta step's old and new values; a nil pointer leaves a field.
type change struct {
	oldPerm, newPerm   *uint32
	oldOwner, newOwner *[2]uint32
	oldTimes, newTimes *[2]sys.Time
	xattrs             []xattr
}

// xattr is one attribute's old and new value; nil: absent.
type xattr struct {
	name     string
	old, new []byte
}

func sideOf(s sys.Stat) side {
	return side{
		id: s.Identity(), perm: s.Perm(), uid: s.UID, gid: s.GID,
		size: s.Size, mtime: s.Mtime, ctime: s.Ctime, rdev: s.Rdev,
	}
}

// is says that st is this very inode, whatever happened to it.
func (w *side) is(st *sys.Stat) bool { return st != nil && st.Identity() == w.id }

// difference says how st is not the entry as the journal has it; "" if it is.
// The permissions may be those of the move. ctime is not compared: a rename
// moves it.
func (w *side) difference(st *sys.Stat) string {
	switch {
	case st == nil:
		return wasGone
	case st.Identity() != w.id:
		return wasOther
	case st.UID != w.uid || st.GID != w.gid:
		return "its owner changed"
	case st.Perm() != w.perm && (!w.opened || st.Perm() != w.open):
		return "its mode changed"
	case st.Mtime != w.mtime:
		return "modified"
	case !st.IsDir() && st.Size != w.size:
		return "its size changed"
	case st.Rdev != w.rdev:
		return "its device number changed"
	}
	return ""
}

// displacement is difference after a rename or an exchange. An exchange of xfs
// moves the mtime of a directory that gets another parent
// (fs/xfs/xfs_inode.c, xfs_cross_rename); what was done in it the sum tells.
func (w *side) displacement(st *sys.Stat) string {
	if isDir(w.id) && st != nil {
		now := *st
		now.Mtime = w.mtime
		st = &now
	}
	return w.difference(st)
}

// untouched is difference before anything was moved: ctime counts too, unless
// an earlier step of ours has altered the inode (opened it, or another name).
func (w *side) untouched(st *sys.Stat) string {
	if why := w.difference(st); why != "" {
		return why
	}
	if st.Ctime != w.ctime && !w.opened && !w.shared {
		return "metadata, link count or renamed"
	}
	return ""
}

func isDir(id sys.Identity) bool { return id.Type == unix.S_IFDIR }
