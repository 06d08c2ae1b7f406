package fusefs

import (
	"cmp"
	"errors"
	"slices"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
)

// listing is a directory's names in the order in which they are told. Each
// has a number, ascending, that it keeps as long as the name is there: a reader
// goes on behind the last number it has seen, whatever happened meanwhile, and
// needs no descriptor of ours.
type listing struct {
	old     bool // names were changed since
	stamps  []sys.Time
	last    uint64
	entries []listed
}

type listed struct {
	sys.Dirent
	number uint64
}

// Numbers 1 and 2 are those of "." and "..".
const firstNumber = 2

// merge lists a directory on all its levels. The caller holds the tree.
func (t *tree) merge(n *node) ([]sys.Dirent, error) {
	parts := n.parts()
	var list []sys.Dirent
	var seen map[string]bool
	if len(parts) > 1 {
		seen = make(map[string]bool)
	}
	for i, p := range parts {
		h, err := t.open(n, p)
		if err != nil {
			return nil, err
		}
		err = h.dir.Each(func(e sys.Dirent) error {
			if seen[e.Name] || n.dir.hidden.has(e.Name) {
				return nil
			}
			if e.Type == unix.DT_CHR || e.Type == unix.DT_UNKNOWN {
				s, err := h.dir.Stat(e.Name)
				if errors.Is(err, unix.ENOENT) {
					return nil
				}
				if err != nil {
					return err
				}
				e.Type = uint8(s.Type() >> 12)
				if layer.IsWhiteout(s) {
					e.Type = 0
				}
			}
			if i < len(parts)-1 {
				seen[e.Name] = true
			}
			if e.Type != 0 {
				list = append(list, e)
			}
			return nil
		})
		t.fds.done(h)
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// list is the listing of n: anew, if something has changed and a reader
// begins.
func (t *tree) list(n *node, begin bool) (*listing, error) {
	n.mu.Lock()
	l := n.dir.listing
	n.mu.Unlock()
	if l != nil && !begin {
		return l, nil
	}
	t.watch.add(n)
	stamps, err := t.dirTimes(n)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	if l != nil && !l.old && slices.Equal(stamps, l.stamps) {
		n.mu.Unlock()
		return l, nil
	}
	if l != nil {
		l.old = false // from here on a change makes it old again
	}
	n.mu.Unlock()
	names, err := t.merge(n)
	if err != nil {
		return nil, err
	}
	next := renumber(l, names)
	next.stamps = stamps
	n.mu.Lock()
	defer n.mu.Unlock()
	if l != nil && l.old {
		next.old = true
	}
	n.dir.listing = next
	return next, nil
}

// dirTimes are when the directory was last changed, on each level.
func (t *tree) dirTimes(n *node) ([]sys.Time, error) {
	var times []sys.Time
	for _, p := range n.parts() {
		h, err := t.open(n, p)
		if err != nil {
			return nil, err
		}
		s, err := h.dir.Stat("")
		t.fds.done(h)
		if err != nil {
			return nil, err
		}
		times = append(times, s.Ctime)
	}
	return times, nil
}

// relist has the kernel forget its list of a directory that is not watched, if
// somebody changed it outside; it asks how the directory looks before it reads
// what it has. The caller holds the tree.
func (f *files) relist(n *node) {
	if !n.isDir() || watched(n.dir.watched.Load()) != cannotWatch {
		return
	}
	n.mu.Lock()
	l := n.dir.listing
	n.mu.Unlock()
	if l == nil {
		return
	}
	if times, err := f.t.dirTimes(n); err == nil && !slices.Equal(times, l.stamps) {
		n.changed()
		go f.conn.dropInode(n.id) // not before this is answered
	}
}

// renumber makes a listing of names in which those that before had keep their
// numbers.
func renumber(before *listing, names []sys.Dirent) *listing {
	l := &listing{last: firstNumber, entries: make([]listed, 0, len(names))}
	var had map[string]uint64
	if before != nil {
		l.last = before.last
		had = make(map[string]uint64, len(before.entries))
		for _, e := range before.entries {
			had[e.Name] = e.number
		}
	}
	for _, e := range names {
		number, ok := had[e.Name]
		if !ok {
			l.last++
			number = l.last
		}
		l.entries = append(l.entries, listed{e, number})
	}
	if had != nil {
		slices.SortFunc(l.entries, func(a, b listed) int { return cmp.Compare(a.number, b.number) })
	}
	return l
}

// after is the index of the first entry behind number.
func (l *listing) after(number uint64) int {
	i, _ := slices.BinarySearchFunc(l.entries, number+1, func(e listed, n uint64) int { return cmp.Compare(e.number, n) })
	return i
}

// ReadDir lists names and types.
func (f *files) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return f.readDir(in, func(_ *node, e fuse.DirEntry) bool { return out.AddDirEntry(e) })
}

// ReadDirPlus also looks each entry up, so that the kernel need not ask for
// those that a program looks at next.
func (f *files) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return f.readDir(in, func(n *node, e fuse.DirEntry) bool {
		if e.Name == "." || e.Name == ".." {
			return out.AddDirLookupEntry(e) != nil
		}
		c, s, err := f.t.lookup(n, e.Name)
		if errors.Is(err, unix.ENOENT) {
			return true
		}
		if err != nil { // the reader will hear of it when it looks
			return out.AddDirLookupEntry(e) != nil
		}
		e.Ino, e.Mode = c.ino, s.Mode
		entry := out.AddDirLookupEntry(e)
		if entry == nil {
			f.t.table.forget(c.id, 1)
			return false
		}
		f.entry(c, s, entry)
		return true
	})
}

func (f *files) readDir(in *fuse.ReadIn, add func(n *node, e fuse.DirEntry) bool) fuse.Status {
	n := f.t.get(in.NodeId)
	if n == nil || !n.isDir() {
		return fuse.ENOTDIR
	}
	f.t.RLock()
	defer f.t.RUnlock()
	if in.Offset < 1 && !add(n, fuse.DirEntry{Name: ".", Ino: n.ino, Mode: unix.S_IFDIR, Off: 1}) {
		return fuse.OK
	}
	if in.Offset < firstNumber {
		up := n
		if n.dir.parent != nil {
			up = n.dir.parent
		}
		if !add(n, fuse.DirEntry{Name: "..", Ino: up.ino, Mode: unix.S_IFDIR, Off: firstNumber}) {
			return fuse.OK
		}
	}
	if n.dir.mount {
		return fuse.OK
	}
	l, err := f.t.list(n, in.Offset == 0)
	if err != nil {
		return status(err)
	}
	if in.Offset == 0 {
		f.t.read(n)
		if watched(n.dir.watched.Load()) == cannotWatch {
			go f.conn.dropInode(n.id) // it may have been told before that how it looks lasts
		}
	}
	for _, e := range l.entries[l.after(max(in.Offset, firstNumber)):] {
		if !add(n, fuse.DirEntry{Name: e.Name, Ino: e.Ino, Mode: uint32(e.Type) << 12, Off: e.number}) {
			break
		}
	}
	return fuse.OK
}
