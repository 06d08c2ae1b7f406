package changes

import (
	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// Kind says what a commit would do to a path.
type Kind uint8

const (
	_        Kind = iota
	Added         // not in the base
	Modified      // other content of the same type; a directory: see Opaque
	Deleted       // in the base only
	Replaced      // of another type in the base
	Metadata      // only mode, owner, attributes, and maybe mtime, differ
	Touched       // only mtime differs
)

var kindNames = [...]string{"invalid", "added", "modified", "deleted", "replaced", "metadata", "touched"}

func (k Kind) String() string { return kindNames[k] }

// Letter is the kind in a listing.
func (k Kind) Letter() byte { return "?AMDTmt"[k] }

// Type is what a changed path is: in the layer, or in the base if deleted.
type Type uint8

const (
	_ Type = iota
	File
	Dir
	Symlink
	FIFO
	Device
)

var typeNames = [...]string{"invalid", "file", "dir", "symlink", "fifo", "device"}

func (t Type) String() string { return typeNames[t] }

// Change is one path that a commit would alter.
//
// The step of a change that is not Within:
//
//	Added     layer's entry → base, where nothing is (a directory with all below)
//	Modified  layer's entry ↔ base's, one inode for the other (also if Opaque)
//	Replaced  the same; a directory on either side goes with all below
//	Deleted   base's entry is taken out, with all below
//	Metadata  the values of Fields are set on the base's inode
//	Touched   its mtime is set
//
// The first three move the layer's entry, and all that Carry says goes with
// it or must not. With Link it is a further name of that file instead, and the
// layer may have no entry here; then Layer is that of the file.
type Change struct {
	Node  *sys.Node // nil: the root itself
	Kind  Kind
	Type  Type
	Base  *sys.Stat // nil: not there, or Unknown
	Layer *sys.Stat // nil: deleted. Pinned: what was shown is what is committed

	Target string // of a symbolic link in the layer, or of the base's if deleted
	// Within: an ancestor's step carries this one. It is listed and checked
	// like any other, but has no step of its own.
	Within bool
	// Opaque: a directory that was removed and made again. The layer's stands
	// alone and takes the base's place as a whole. Its Kind is Modified.
	Opaque bool
	// Unknown: the caller may not read the base here, so it cannot be said
	// what is there (Base nil) or below (Base set): such a change can be
	// shown and not committed. Err says why.
	Unknown bool
	Err     error
	// CopiedUp: the layer's entry began as a copy of the base's, at this path
	// or, if it is no directory, at another. An added directory with it was in
	// the base at the fork and is gone there. A copy of a file that has several
	// names in the base does not carry it.
	CopiedUp bool

	Fields *Fields // of Metadata and Touched: what differs
	Carry  *Carry  // of changes with a moving step: what moves along; nil: nothing to mind
	Link   *Link   // of changes with a moving step: the file of which this is a further name
}

// Path is the path of the change from its root, "" for the root itself.
func (c *Change) Path() string { return c.Node.Path() }

// Fields says which metadata differ. Old and new values of mode, owner and
// mtime are those of Base and Layer.
type Fields struct {
	Mode, Owner, Mtime bool
	Xattrs             []Xattr // sorted by name
}

// Xattr is an extended attribute (an ACL is one, see acl(5)) that differs, by
// the name it has in the base; nil: not there, empty: there without a value.
type Xattr struct {
	Name     string
	Old, New []byte
}

// Carry is what a change with a moving step brings or takes along, beyond the
// changes Within it.
type Carry struct {
	// Marked are the entries of the layer, this one and those below, that have
	// user.overlay.* attributes to be stripped (layer.Marks); parents first.
	Marked []*sys.Node
	// Leave are entries of the layer below that must not come into the base:
	// sockets and whiteouts.
	Leave []*sys.Node
	// Kept are the entries of the base below that are displaced though they
	// are no changes: what came back identical, sockets, hidden entries.
	Kept []Kept
	// Displaced counts all entries of the base below this one: those of Kept
	// and of the changes Within that have a Base.
	Displaced int
}

// Kept is an entry of the base, by its path from the root.
type Kept struct {
	Node *sys.Node
	Base sys.Stat
}

// Closed is a directory and its true mode (permissions only).
type Closed struct {
	Node *sys.Node
	Mode uint32
}

// Touch is a directory of both base and layer in which entries change. When
// that is done it gets the times that it has in the layer.
type Touch struct {
	Node        *sys.Node // nil: the root itself
	Base, Layer sys.Stat
	// Steps: an entry directly in it is added, taken out or exchanged, so it
	// must be writable. Otherwise only its own times are to be set.
	Steps bool
}

// Root is one root of the branch, base and layer.
type Root struct {
	Path  string   // absolute, for messages
	Base  *sys.Dir // the root in the base, or in the parent's view
	Layer *sys.Dir
	// Prepared has the directories that we made in the layer, by path from
	// the root ("" is the root), as they were made: one that is still so is
	// no change, though it differs from the base's in owner.
	Prepared map[string]sys.Stat
	// Owners: the session could give files away, so owner and group count.
	Owners bool
	// OwnXattr, which may be nil, reads an attribute of what an O_PATH descriptor
	// holds, also where its mode keeps it from its owner.
	OwnXattr func(fd int, attr string) ([]byte, error)
	// Stores lists the directories that no session sees; it is asked where the
	// other names of a file must be looked for. nil: there are none.
	Stores func() ([]string, error)
	// Stamp is the time of the fork by this file system's clock, 0 if unknown.
	// A base directory whose own mtime is not before it was changed by a
	// neighbour: then the layer's older time is no change.
	Stamp sys.Time
}

// Plan is what a commit of the branch would do.
type Plan struct {
	Roots    []RootPlan
	Warnings []string // printable, one line each
}

// RootPlan is the part of one root.
type RootPlan struct {
	Root    Root
	Changes []Change
	// Dirs are the directories whose entries changed, with the times they had
	// inside; children before parents, so that setting them in this order
	// leaves each as said.
	Dirs []Touch
	// Closed are the directories of the layer, changed or only on the way,
	// whose mode forbids their owner to list, enter or write; parents first.
	// They must be opened before anything in them is stripped or moved out, and
	// before they are moved themselves, since ".." is written then (rename(2)).
	Closed []Closed
}

// Empty says that a commit would do nothing.
func (p *Plan) Empty() bool {
	for _, r := range p.Roots {
		if len(r.Changes) > 0 {
			return false
		}
	}
	return true
}

// Counts are the numbers of a summary.
type Counts struct {
	Added, Modified, Deleted, Replaced, Metadata, Touched int

	// Bytes is the size of all regular files that are new to the base: added,
	// modified, replaced.
	Bytes int64
}

// Total is the number of changes.
func (c Counts) Total() int {
	return c.Added + c.Modified + c.Deleted + c.Replaced + c.Metadata + c.Touched
}

// Counts counts the changes of all roots.
func (p *Plan) Counts() Counts {
	var sum Counts
	for _, r := range p.Roots {
		sum.add(r.Counts())
	}
	return sum
}

// Counts counts the changes of one root.
func (r *RootPlan) Counts() Counts {
	var sum Counts
	for i := range r.Changes {
		sum.count(&r.Changes[i])
	}
	return sum
}

func (c *Counts) count(ch *Change) {
	switch ch.Kind {
	case Added:
		c.Added++
	case Modified:
		c.Modified++
	case Deleted:
		c.Deleted++
	case Replaced:
		c.Replaced++
	case Metadata:
		c.Metadata++
	case Touched:
		c.Touched++
	}
	if ch.Layer != nil && ch.Layer.IsRegular() && ch.Link == nil && ch.Kind != Metadata && ch.Kind != Touched {
		c.Bytes += ch.Layer.Size
	}
}

func (c *Counts) add(d Counts) {
	c.Added += d.Added
	c.Modified += d.Modified
	c.Deleted += d.Deleted
	c.Replaced += d.Replaced
	c.Metadata += d.Metadata
	c.Touched += d.Touched
	c.Bytes += d.Bytes
}

func typeOf(s *sys.Stat) Type {
	switch s.Type() {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Dir
	case unix.S_IFLNK:
		return Symlink
	case unix.S_IFIFO:
		return FIFO
	}
	return Device
}
