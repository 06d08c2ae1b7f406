package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// Lossy is a real file system that can lose power. It remembers how to undo
// each call, and [Lossy.Crash] undoes some of those that nothing has made
// durable. So inodes, and what tells them apart, are those of a real disk, and
// recovery reads the disk alone.
//
// It promises what fsync(2) promises and nothing more. An entry's change of
// place is one change, whole or not at all, of both directories; it is durable
// once either is synced. The changes of one directory, or of one inode's
// metadata, reach the disk in their order. With InOrder all metadata do, and a
// sync of anything takes along what was altered before it, as on ext4 and xfs.
// Content reaches the disk on its own, the sectors of a file in any order.
type Lossy struct {
	FS
	InOrder bool

	grave *sys.Dir   // where removed entries wait
	held  []*sys.Dir // until the crash
	ops   []*lossyOp
	count int
}

type lossyOp struct {
	what    string
	keys    []sys.Identity // directories, or the inode, that it altered
	data    bool           // content: ordered with nothing
	durable bool
	undo    func() error
}

// NewLossy wraps the disk; grave is an empty directory on the same file system
// as all that will be altered.
func NewLossy(grave string, inOrder bool) (*Lossy, error) {
	d, err := sys.OpenDir(grave)
	if err != nil {
		return nil, err
	}
	return &Lossy{FS: disk{}, InOrder: inOrder, grave: d}, nil
}

// Unsynced says that the content of a file was written and not synced.
func (l *Lossy) Unsynced(d *sys.Dir, name string) error {
	h, id, err := l.handle(d, name)
	if err != nil {
		return err
	}
	l.add(&lossyOp{what: "content of " + name, keys: []sys.Identity{id}, data: true, undo: func() error {
		return empty(h)
	}})
	return nil
}

// empty cuts a file, whatever its mode, and leaves mode and time as they are.
func empty(h *sys.Dir) error {
	st, err := h.Stat("")
	if err != nil {
		return err
	}
	return errors.Join(
		h.Chmod("", st.Perm()|0o200), unix.Truncate(fmt.Sprintf("/proc/self/fd/%d", h.FD()), 0),
		h.Chmod("", st.Perm()), h.SetTimes("", sys.KeepTime, st.Mtime))
}

// Crash undoes what is lost. keep decides for each change that may survive;
// what hangs on a lost one is lost as well.
func (l *Lossy) Crash(keep func() bool) error {
	lost := make([]bool, len(l.ops))
	broken := map[sys.Identity]bool{}
	all := false
	for i, o := range l.ops {
		if o.durable {
			continue
		}
		if o.data {
			lost[i] = !keep()
			continue
		}
		for _, k := range o.keys {
			lost[i] = lost[i] || broken[k]
		}
		lost[i] = lost[i] || l.InOrder && all || !keep()
		if lost[i] {
			all = true
			for _, k := range o.keys {
				broken[k] = true
			}
		}
	}
	for i := len(l.ops) - 1; i >= 0; i-- {
		if !lost[i] {
			continue
		}
		if err := l.ops[i].undo(); err != nil {
			return fmt.Errorf("lose %q: %w", l.ops[i].what, err)
		}
	}
	err := l.grave.Close()
	for _, h := range l.held {
		err = errors.Join(err, h.Close())
	}
	l.ops, l.held = nil, nil
	return err
}

func (l *Lossy) add(o *lossyOp) { l.ops = append(l.ops, o) }

// settle makes durable what has one of keys, and what that hangs on.
func (l *Lossy) settle(data bool, keys ...sys.Identity) {
	want := map[sys.Identity]bool{}
	for _, k := range keys {
		want[k] = true
	}
	any := false
	for i := len(l.ops) - 1; i >= 0; i-- {
		o := l.ops[i]
		hit := l.InOrder && any && !o.data
		for _, k := range o.keys {
			hit = hit || want[k] && (!o.data || data)
		}
		if !hit {
			continue
		}
		o.durable = true
		if !o.data {
			any = true
			for _, k := range o.keys {
				want[k] = true
			}
		}
	}
}

// handle holds an inode, so that it can be put right wherever it is by then.
func (l *Lossy) handle(d *sys.Dir, name string) (*sys.Dir, sys.Identity, error) {
	var h *sys.Dir
	var err error
	if name == "" {
		h, err = d.Sub("")
	} else {
		var f *os.File
		if f, err = d.OpenFile(name, unix.O_PATH, 0); err == nil {
			h, err = sys.DupDir(f, filepath.Join(d.Name(), name))
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return nil, sys.Identity{}, err
	}
	l.held = append(l.held, h)
	st, err := h.Stat("")
	return h, st.Identity(), err
}

// names does f, which alters the names of dirs, and notes how to undo it.
func (l *Lossy) names(what string, f, undo func() error, dirs ...*sys.Dir) error {
	o := &lossyOp{what: what}
	type was struct {
		dir   *sys.Dir
		mtime sys.Time
	}
	var before []was
	for _, d := range dirs {
		h, id, err := l.handle(d, "")
		if err != nil {
			return err
		}
		st, err := h.Stat("")
		if err != nil {
			return err
		}
		o.keys = append(o.keys, id)
		before = append(before, was{h, st.Mtime})
	}
	if err := f(); err != nil {
		return err
	}
	o.undo = func() error {
		err := forced(undo, dirs)
		for _, w := range before {
			err = errors.Join(err, w.dir.SetTimes("", sys.KeepTime, w.mtime))
		}
		return err
	}
	l.add(o)
	return nil
}

// forced does f while dirs are open for their owner, whatever their modes are
// by now.
func forced(f func() error, dirs []*sys.Dir) error {
	modes := map[int]uint32{}
	for i, d := range dirs {
		st, err := d.Stat("")
		if err == nil && st.IsDir() {
			modes[i] = st.Perm()
			err = d.Chmod("", st.Perm()|0o700)
		}
		if err != nil {
			return err
		}
	}
	err := f()
	for i := len(dirs) - 1; i >= 0; i-- {
		if mode, ok := modes[i]; ok {
			err = errors.Join(err, dirs[i].Chmod("", mode))
		}
	}
	return err
}

// moving is undo with the entry, which may be a directory that its mode forbids
// to move, open meanwhile.
func (l *Lossy) moving(d *sys.Dir, name string, undo func() error) func() error {
	return func() error {
		h, _, err := l.handle(d, name)
		if err != nil {
			return err
		}
		st, err := h.Stat("")
		if err == nil && st.IsDir() {
			err = forced(undo, []*sys.Dir{h})
		} else if err == nil {
			err = undo()
		}
		return err
	}
}

// pair holds two directories of their own, since the caller closes his.
func (l *Lossy) pair(from, to *sys.Dir) (*sys.Dir, *sys.Dir, error) {
	a, err := from.Sub("")
	if err != nil {
		return nil, nil, err
	}
	b, err := to.Sub("")
	if err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	l.held = append(l.held, a, b)
	return a, b, nil
}

// Rename renames, and can be lost; so the others.
func (l *Lossy) Rename(from *sys.Dir, name string, to *sys.Dir, toName string) error {
	a, b, err := l.pair(from, to)
	if err != nil {
		return err
	}
	return l.names("rename to "+toName, func() error { return l.FS.Rename(from, name, to, toName) },
		l.moving(b, toName, func() error { return b.Rename(toName, a, name) }), a, b)
}

// Exchange exchanges.
func (l *Lossy) Exchange(from *sys.Dir, name string, to *sys.Dir, toName string) error {
	a, b, err := l.pair(from, to)
	if err != nil {
		return err
	}
	return l.names("exchange with "+toName, func() error { return l.FS.Exchange(from, name, to, toName) },
		l.moving(b, toName, l.moving(a, name, func() error { return b.Exchange(toName, a, name) })), a, b)
}

// bury keeps what is about to be removed.
func (l *Lossy) bury(d *sys.Dir, name string) (string, error) {
	l.count++
	as := fmt.Sprint(l.count)
	return as, d.Rename(name, l.grave, as)
}

// Replace replaces; what was there is kept for the undoing.
func (l *Lossy) Replace(from *sys.Dir, name string, to *sys.Dir, toName string) error {
	a, b, err := l.pair(from, to)
	if err != nil {
		return err
	}
	as := ""
	return l.names("replace "+toName, func() error {
		if _, err := to.Stat(toName); err == nil {
			if as, err = l.bury(to, toName); err != nil {
				return err
			}
		}
		return l.FS.Replace(from, name, to, toName)
	}, func() error {
		err := b.Rename(toName, a, name)
		if as != "" {
			err = errors.Join(err, l.grave.Rename(as, b, toName))
		}
		return err
	}, a, b)
}

// Remove removes.
func (l *Lossy) Remove(d *sys.Dir, name string, dir bool) error {
	own, _, err := l.handle(d, "")
	if err != nil {
		return err
	}
	as := ""
	return l.names("remove "+name, func() (err error) {
		as, err = l.bury(d, name)
		return err
	}, func() error { return l.grave.Rename(as, own, name) }, own)
}

// Make makes.
func (l *Lossy) Make(d *sys.Dir, name string, n New) error {
	own, _, err := l.handle(d, "")
	if err != nil {
		return err
	}
	return l.names("make "+name, func() error { return l.FS.Make(d, name, n) }, func() error {
		_, err := l.bury(own, name)
		return err
	}, own)
}

// Set sets.
func (l *Lossy) Set(d *sys.Dir, name string, a Attr) error {
	h, id, err := l.handle(d, name)
	if err != nil {
		return err
	}
	st, err := h.Stat("")
	if err != nil {
		return err
	}
	var undo func() error
	switch {
	case a.Mode != nil:
		undo = func() error { return h.Chmod("", st.Perm()) }
	case a.Owner != nil:
		undo = func() error { return errors.Join(h.Chown("", int(st.UID), int(st.GID)), h.Chmod("", st.Perm())) }
	case a.Times != nil:
		undo = func() error { return h.SetTimes("", st.Atime, st.Mtime) }
	default:
		old, err := h.Xattr("", a.Xattr)
		if err != nil && !errors.Is(err, unix.ENODATA) {
			return err
		}
		undo = func() error {
			if old == nil {
				return h.RemoveXattr("", a.Xattr)
			}
			return h.SetXattr("", a.Xattr, old)
		}
	}
	if err := l.FS.Set(d, name, a); err != nil {
		return err
	}
	l.add(&lossyOp{what: "set " + name, keys: []sys.Identity{id}, undo: undo})
	return nil
}

// Open opens; a file that it makes can be lost, and so can all that is written.
func (l *Lossy) Open(d *sys.Dir, name string, flags int, perm uint32) (File, error) {
	_, err := d.Stat(name)
	made := errors.Is(err, unix.ENOENT)
	var f File
	open := func() (err error) {
		f, err = l.FS.Open(d, name, flags, perm)
		return err
	}
	if !made {
		if err := open(); err != nil {
			return nil, err
		}
	} else {
		own, _, err := l.handle(d, "")
		if err != nil {
			return nil, err
		}
		err = l.names("make "+name, open, func() error {
			_, err := l.bury(own, name)
			return err
		}, own)
		if err != nil {
			return nil, err
		}
	}
	h, id, err := l.handle(d, name)
	if err != nil {
		return nil, err
	}
	return &lossyFile{f, l, h, id}, nil
}

type lossyFile struct {
	File
	l  *Lossy
	h  *sys.Dir
	id sys.Identity
}

const sectorSize = 512

// WriteAt writes; each sector is lost or not by itself.
func (f *lossyFile) WriteAt(p []byte, off int64) (int, error) {
	path := fmt.Sprintf("/proc/self/fd/%d", f.h.FD())
	for at := off / sectorSize * sectorSize; at < off+int64(len(p)); at += sectorSize {
		old := make([]byte, sectorSize)
		r, err := os.Open(path)
		if err != nil {
			return 0, err
		}
		_, err = r.ReadAt(old, at)
		if err != nil && !errors.Is(err, io.EOF) { // behind the end all is zeros
			return 0, errors.Join(err, r.Close())
		}
		if err := r.Close(); err != nil {
			return 0, err
		}
		f.l.add(&lossyOp{what: fmt.Sprintf("sector at %d", at), keys: []sys.Identity{f.id}, data: true, undo: func() error {
			w, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = w.WriteAt(old, at)
			return errors.Join(err, w.Close())
		}})
	}
	return f.File.WriteAt(p, off)
}

// CopyFrom copies; the content is lost as a whole.
func (f *lossyFile) CopyFrom(src *os.File) error {
	if err := f.File.CopyFrom(src); err != nil {
		return err
	}
	f.l.add(&lossyOp{what: "content", keys: []sys.Identity{f.id}, data: true, undo: func() error {
		return empty(f.h)
	}})
	return nil
}

func (f *lossyFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return err
	}
	f.l.settle(true, f.id)
	return nil
}

// Both does one after the other.
func (l *Lossy) Both(one, other func() error) error { return errors.Join(one(), other()) }

// Ordered is InOrder.
func (l *Lossy) Ordered(*sys.Dir) bool { return l.InOrder }

// SyncFile makes a file durable.
func (l *Lossy) SyncFile(d *sys.Dir, name string) error {
	st, err := d.Stat(name)
	if err == nil {
		err = l.FS.SyncFile(d, name)
	}
	if err == nil {
		l.settle(true, st.Identity())
	}
	return err
}

// SyncDir makes a directory's names durable.
func (l *Lossy) SyncDir(d *sys.Dir) error {
	st, err := d.Stat("")
	if err == nil {
		err = l.FS.SyncDir(d)
	}
	if err == nil {
		l.settle(true, st.Identity())
	}
	return err
}

// SyncFS makes everything durable.
func (l *Lossy) SyncFS(f *os.File) error {
	if err := l.FS.SyncFS(f); err != nil {
		return err
	}
	for _, o := range l.ops {
		o.durable = true
	}
	return nil
}
