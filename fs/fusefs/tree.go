package fusefs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
)

// tree is base and layers as one: what is where, and the nodes for it.
type tree struct {
	sync.RWMutex // see the package doc

	table
	fds   *fds
	root  *node
	work  *workshop
	watch *watch

	orphans atomic.Int32 // descriptors of what has no name any more
	room    room
	attic   *node // the workshop as a directory: where that is when those are too many

	base    int          // the level of the base: the last
	dev     uint64       // the base's device: inode numbers of others are marked
	owners  layer.Owners // what copies in the layer keep of the base's
	me      fuse.Owner   // whose they are otherwise
	umask   uint32       // of this process, which the kernel below applies
	reads   func(rel string, st sys.Stat)
	merged  func(rel string, st sys.Stat)
	openOwn func(fd int) (int, error)
	ownAttr func(fd int, attr string) ([]byte, error)
}

// openTree opens the directories of root and makes the node of its top.
func openTree(root Root, o Options) (*tree, error) {
	most, err := budget()
	if err != nil {
		return nil, err
	}
	t := &tree{
		fds: newFDs(most), base: len(root.Layers), owners: layer.OwnersOf(sys.Root(), o.OutsideIDs), me: fuse.Owner{Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())}, reads: o.Reads, merged: o.Merged, openOwn: o.OpenOwn, ownAttr: o.OwnXattr,
		table: table{byID: make(map[uint64]*node), byKey: make(map[key]*node), limits: usual},
	}
	top := &node{typ: unix.S_IFDIR, dir: &directory{hidden: hide(root.Base, o.Hidden)}}
	var parts []*part
	var base sys.Stat
	for level, path := range append(append([]string{}, root.Layers...), root.Base) {
		d, err := sys.OpenDir(path)
		if err != nil {
			t.close()
			return nil, err
		}
		s, err := d.Stat("")
		if err != nil {
			d.Close()
			t.close()
			return nil, err
		}
		p := &part{level: level, key: keyOf(s), mnt: s.MntID}
		t.fds.put(&p.slot, &held{dir: d}) // in use for good: never closed for want of room
		parts = append(parts, p)
		top.ino, t.dev, base = s.Ino, s.Dev, s
	}
	top.setParts(parts...)
	top.owner.Store(t.ownerOf(base))
	t.root = t.table.add(top, key{})
	if t.umask, err = umask(); err != nil {
		t.close()
		return nil, err
	}
	if t.work, err = openWorkshop(root.Work, &t.room); err != nil {
		t.close()
		return nil, err
	}
	if err := t.openAttic(); err != nil {
		t.close()
		return nil, err
	}
	t.watch = openWatch(t)
	return t, nil
}

func (t *tree) openAttic() error {
	d, err := t.work.dir.Sub("")
	if err != nil {
		return err
	}
	p := &part{}
	t.fds.put(&p.slot, &held{dir: d})
	t.attic = &node{typ: unix.S_IFDIR, dir: &directory{}}
	t.attic.setParts(p)
	return nil
}

// close closes what is open; no call may be under way.
func (t *tree) close() {
	if t.watch != nil {
		t.watch.close()
	}
	if t.work != nil {
		t.work.close()
	}
	for _, n := range t.table.all() {
		if n.gone != nil {
			n.gone.Close()
		}
	}
	for _, d := range []*node{t.root, t.attic} {
		if d == nil {
			continue
		}
		for _, p := range d.parts() {
			t.fds.done(p.slot.h)
		}
	}
	t.fds.closeAll()
}

// umask asks for the process's own without changing it for a moment, as
// umask(2) would.
func umask() (uint32, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	var mask uint32
	for line := range bytes.Lines(text) {
		if n, _ := fmt.Sscanf(string(line), "Umask:\t%o", &mask); n == 1 {
			return mask, nil
		}
	}
	return 0, errors.New("/proc/self/status names no umask")
}

// errStale says that somebody outside put something else in a place. The
// kernel looks the path up anew then.
var errStale = error(unix.ESTALE)

// open opens the directory of n that p is. Its users hold the tree.
func (t *tree) open(n *node, p *part) (*held, error) {
	if h := t.fds.use(&p.slot, false); h != nil {
		return h, nil
	}
	if h := t.openFromBelow(n, p); h != nil {
		return h, nil
	}
	// From the nearest directory above that is open, name by name.
	way, h := []*node{n}, (*held)(nil)
	for at := n; h == nil; {
		at = at.dir.parent
		if at == nil {
			return nil, errStale
		}
		up := at.part(p.level)
		if up == nil {
			return nil, errStale
		}
		if h = t.fds.use(&up.slot, false); h == nil {
			way = append(way, at)
		}
	}
	for i := len(way) - 1; i >= 0; i-- {
		q := way[i].part(p.level)
		if i == 0 {
			q = p
		}
		d, err := h.dir.Sub(way[i].dir.name)
		t.fds.done(h)
		if err != nil {
			return nil, staleIfGone(err)
		}
		s, err := d.Stat("")
		if err == nil && keyOf(s) != q.key {
			err = errStale
		}
		if err != nil {
			d.Close()
			return nil, err
		}
		h = t.fds.put(&q.slot, &held{dir: d})
		way[i].dir.parent.dir.near.Store(way[i])
	}
	return h, nil
}

// openFromBelow opens what p is as the parent of a directory in it that is
// open, if there is one. Who leaves a deep tree goes up like that, by one step
// for each directory, when those above have long been closed.
func (t *tree) openFromBelow(n *node, p *part) *held {
	c := n.dir.near.Load()
	if c == nil || c.dir.parent != n || c.dir.mount {
		return nil
	}
	in := c.part(p.level)
	if in == nil {
		return nil
	}
	h := t.fds.use(&in.slot, false)
	if h == nil {
		return nil
	}
	defer t.fds.done(h)
	d, err := h.dir.Up()
	if err != nil {
		return nil
	}
	if s, err := d.Stat(""); err != nil || keyOf(s) != p.key {
		d.Close()
		return nil
	}
	return t.fds.put(&p.slot, &held{dir: d})
}

// staleIfGone makes an error of what must be there: if it is not, or is
// something else, somebody outside changed it.
func staleIfGone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return errStale
	}
	return err
}

// found is an entry of the merged tree.
type found struct {
	level int
	st    sys.Stat
	ino   uint64
	owner *fuse.Owner // as it is shown, if that is not st's
	parts []*part     // of a directory
	mount bool
}

// find looks a name up on all levels of p; ENOENT if it is nowhere, or
// deleted on the topmost level where it is.
func (t *tree) find(p *node, name string) (found, error) {
	var f found
	if p.dir.mount || p.dir.hidden.has(name) {
		return f, unix.ENOENT
	}
	t.watch.add(p)
	for _, part := range p.parts() {
		h, err := t.open(p, part)
		if err != nil {
			return f, err
		}
		more, err := t.add1(&f, h.dir, name, part)
		if err == nil && !more && f.ino == 0 && !f.st.IsDir() && f.st.Mode != 0 {
			f.ino = t.inoOf(f.st)
			if f.level < t.base {
				err = t.origin(&f, p, h.dir, name)
			}
		}
		t.fds.done(h)
		if err != nil {
			return f, err
		}
		if !more {
			break
		}
	}
	if f.st.Mode == 0 {
		return f, unix.ENOENT
	}
	return f, nil
}

// add1 adds what name is on one level, and says whether lower ones matter.
func (t *tree) add1(f *found, d *sys.Dir, name string, in *part) (more bool, err error) {
	s, err := d.Stat(name)
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if hidden, err := layer.Hidden(d, name, s); hidden || err != nil {
		return false, err
	}
	above := f.st.Mode != 0
	if !s.IsDir() {
		if !above {
			f.level, f.st = in.level, s
		}
		return false, nil
	}
	if s.MntID != in.mnt {
		if !above {
			f.level, f.st, f.ino, f.mount = in.level, s, t.inoOf(s), true
		}
		return false, nil
	}
	if !above {
		f.level, f.st = in.level, s
	}
	f.ino = t.inoOf(s)
	if above && in.level == t.base {
		f.owner = t.ownerOf(s)
	}
	f.parts = append(f.parts, &part{level: in.level, key: keyOf(s), mnt: in.mnt})
	if in.level == t.base {
		return false, nil
	}
	e, err := layer.Look(d, name, s)
	return !e.Opaque, err
}

// inoOf is the inode number that is shown: as it is below for the base's
// file system, marked for another one's, so that two files never show one.
func (t *tree) inoOf(s sys.Stat) uint64 {
	if s.Dev == t.dev {
		return s.Ino
	}
	return s.Ino | 1<<62
}

// origin gives a copied-up entry the number, and the owner, that it had in the base, which is
// at the same path unless it was renamed.
func (t *tree) origin(f *found, p *node, d *sys.Dir, name string) error {
	in := p.part(t.base)
	if in == nil {
		return nil
	}
	h, err := t.open(p, in)
	if err != nil {
		return err
	}
	defer t.fds.done(h)
	s, err := h.dir.Stat(name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if s.Type() != f.st.Type() || s.Nlink != 1 {
		return nil
	}
	if e, err := layer.Look(d, name, f.st); err != nil || !e.CopiedUp {
		return err
	}
	if f.st.Nlink == 1 { // else by its other names it would be another inode
		f.ino = t.inoOf(s)
	}
	f.owner = t.ownerOf(s)
	return nil
}

// ownerOf is what is shown as the owner of a copy of s, nil for its own.
func (t *tree) ownerOf(s sys.Stat) *fuse.Owner {
	if t.owners != layer.Groups || s.UID == t.me.Uid && s.GID == t.me.Gid {
		return nil
	}
	return &fuse.Owner{Uid: s.UID, Gid: s.GID}
}

// below says whether name is to be seen on a level of p under the layer: then
// only a whiteout in the layer deletes it. isDir: and it is a directory, with
// which a new one in the layer would be merged.
func (t *tree) below(p *node, name string) (there, isDir bool, err error) {
	for _, part := range p.parts() {
		if part.level == 0 {
			continue
		}
		h, err := t.open(p, part)
		if err != nil {
			return false, false, err
		}
		s, err := h.dir.Stat(name)
		hidden := false
		if err == nil {
			hidden, err = layer.Hidden(h.dir, name, s)
		}
		t.fds.done(h)
		switch {
		case errors.Is(err, unix.ENOENT):
			continue
		case err != nil:
			return false, false, err
		}
		return !hidden, !hidden && s.IsDir(), nil
	}
	return false, false, nil
}
