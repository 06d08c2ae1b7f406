package fusefs

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// key identifies an inode of the file systems below.
type key struct{ dev, ino uint64 }

func keyOf(s sys.Stat) key { return key{s.Dev, s.Ino} }

// stamp tells a file of the base from what somebody outside made of it since.
type stamp struct {
	key
	size         int64
	mtime, ctime sys.Time
}

func stampOf(s sys.Stat) stamp { return stamp{keyOf(s), s.Size, s.Mtime, s.Ctime} }

// A node is an inode as the kernel knows it: a directory at its one place, or
// anything else at all its names that were looked up.
type node struct {
	id  uint64
	ino uint64 // what stat(2) shows, as long as the kernel knows the node
	typ uint32 // S_IFMT

	lookups uint64 // guarded by table.mu; at 0 the node is dead
	keys    [2]key // in table.byKey: the base's, the layer's

	// Where it is. A directory's place changes under tree.Lock alone; the
	// names of anything else are guarded by mu.
	dir   *directory
	names []name

	// owner is what is shown, nil for what the inode below has: a copy in the
	// layer is the user's, whose ever the base's is. As long as the node is known,
	// and wherever the copy is found at the path of what it is a copy of.
	owner atomic.Pointer[fuse.Owner]
	fresh atomic.Bool // made here, with no file capabilities so far

	mu    sync.Mutex
	level atomic.Int32 // of anything but a directory: where its content is
	was   stamp        // what it was there, if that is not the layer
	slot  slot         // its content
	open  opened
	gone  *sys.Dir // held by itself: it has no name any more
	links int32    // what st_nlink below lacks, or has too many

	pinned bool // see links.go

	copying sync.Mutex // held while the content is copied up; first of all locks
}

// name is a place of a node that is no directory.
type name struct {
	in   *node
	name string
}

// directory is what a node has if it is one.
type directory struct {
	parent *node  // nil for the root and for what was removed
	name   string // in parent
	hidden *hidden
	mount  bool // something is mounted there, or it was removed: nothing is in it

	// parts are the directories that are merged here, topmost first. Changed
	// under node.mu with tree.RLock, or under tree.Lock; replaced, never
	// changed in place, so that a reader may keep what it has loaded.
	parts atomic.Pointer[[]*part]

	near atomic.Pointer[node] // in this one, the directory that was opened last

	watched atomic.Uint32 // its part in the base
	wd      atomic.Int32

	// The following are guarded by node.mu.
	children map[string]*node // those that the kernel knows
	listing  *listing
	acl      inherit // of the layer's part
	last     sys.Stat
}

// part is a directory on one level.
type part struct {
	level int
	key   key
	mnt   uint64
	slot  slot
}

func (n *node) parts() []*part { return *n.dir.parts.Load() }

func (n *node) setParts(parts ...*part) { n.dir.parts.Store(&parts) }

// part is the directory on level, or nil.
func (n *node) part(level int) *part {
	for _, p := range n.parts() {
		if p.level == level {
			return p
		}
	}
	return nil
}

// upper is the directory in the layer, or nil.
func (n *node) upper() *part {
	if parts := n.parts(); len(parts) > 0 && parts[0].level == 0 {
		return parts[0]
	}
	return nil
}

// child is the node that the kernel knows under that name, if any.
func (n *node) child(name string) *node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dir.children[name]
}

func (n *node) setChild(name string, c *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c == nil {
		delete(n.dir.children, name)
	} else {
		if n.dir.children == nil {
			n.dir.children = make(map[string]*node)
		}
		n.dir.children[name] = c
	}
	if n.dir.listing != nil {
		n.dir.listing.old = true
	}
}

// changed says that the names in the directory are others now.
func (n *node) changed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dir.listing != nil {
		n.dir.listing.old = true
	}
}

// onlyInLayer says that n is no directory and has one name, in the layer, which
// nobody else writes: there is no need to look.
func (n *node) onlyInLayer() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.isDir() && n.level.Load() == 0 && n.links == 0 && len(n.names) == 1
}

// addName notes one more name of what is no directory.
func (n *node) addName(in *node, as string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Contains(n.names, name{in, as}) {
		n.names = append(n.names, name{in, as})
	}
}

// dropName forgets a name and returns how many are left.
func (n *node) dropName(in *node, as string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names = slices.DeleteFunc(n.names, func(x name) bool { return x == name{in, as} })
	return len(n.names)
}

// place is one name, or false if there is none.
func (n *node) place() (name, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.names) == 0 {
		return name{}, false
	}
	return n.names[0], true
}

func (n *node) isDir() bool { return n.dir != nil }

// table holds the nodes that the kernel knows.
type table struct {
	mu    sync.Mutex
	byID  map[uint64]*node
	byKey map[key]*node // all but directories
	next  uint64
	dead  int // nodes that went since the last trim

	limits limits
	pruned uint64 // next, when there was a surplus last

	// removed counts the names that sessions removed of an inode of the base
	// with several, which the base still has.
	removed map[key]int32
}

const rootID = 1

// get returns a node that the kernel named.
func (t *table) get(id uint64) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// find returns the living node of an inode below, with one lookup more.
func (t *table) find(k key) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byKey[k]
	if n != nil {
		n.lookups++
	}
	return n
}

// ref counts a lookup of n, unless n is dead.
func (t *table) ref(n *node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.lookups == 0 {
		return false
	}
	n.lookups++
	return true
}

// add makes n known with one lookup, under the key k if it is no directory.
// If another node was made for the same inode meanwhile, that one is returned.
func (t *table) add(n *node, k key) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !n.isDir() {
		if other := t.byKey[k]; other != nil {
			other.lookups++
			return other
		}
		n.keys[0] = k
		t.byKey[k] = n
		n.links = -t.removed[k]
	}
	t.next++
	n.id, n.lookups = t.next, 1
	t.byID[n.id] = n
	return n
}

// alias makes n known as the layer's copy of what it was.
func (t *table) alias(n *node, k key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.lookups > 0 {
		n.keys[1] = k
		t.byKey[k] = n
	}
}

// unlinked counts one more removed name.
func (t *table) unlinked(k key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.removed == nil {
		t.removed = make(map[key]int32)
	}
	t.removed[k]++
}

// disown lets the inode below be a new node from now on: somebody outside
// changed it.
func (t *table) disown(n *node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unkey(n)
}

func (t *table) unkey(n *node) {
	for _, k := range n.keys {
		if t.byKey[k] == n {
			delete(t.byKey, k)
		}
	}
}

// forget takes lookups back and says whether n is dead now.
func (t *table) forget(id, lookups uint64) (*node, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byID[id]
	if n == nil || id == rootID {
		return nil, false
	}
	n.lookups -= min(lookups, n.lookups)
	if n.lookups > 0 {
		return nil, false
	}
	delete(t.byID, id)
	t.unkey(n)
	t.dead++
	return n, true
}

// many are as many nodes as make it worth to give their memory back.
const many = 4_000

// trim makes the table as small as what is left in it, if very much has gone,
// and says whether it did: maps never shrink.
func (t *table) trim() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead < many {
		return false
	}
	t.byID, t.byKey, t.dead = shrunk(t.byID), shrunk(t.byKey), 0
	return true
}

// shrunk is m as if nothing more had ever been in it; maps.Clone keeps the size.
func shrunk[K comparable](m map[K]*node) map[K]*node {
	small := make(map[K]*node, len(m))
	maps.Copy(small, m)
	return small
}

// all lists the nodes that the kernel knows.
func (t *table) all() []*node {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*node, 0, len(t.byID))
	for _, n := range t.byID {
		list = append(list, n)
	}
	return list
}

// types that hold data.
func isRegular(typ uint32) bool { return typ == unix.S_IFREG }
