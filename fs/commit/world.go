package commit

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/fs/vfs"
)

// world is the open directories of a journal's roots, and what was found
// there.
type world struct {
	fs    vfs.FS
	roots []rootDirs
	// known has the identity of each directory in which steps act. A directory
	// of another identity in its place is never acted in.
	known map[place]sys.Identity
	// perms are the permissions that steps give a directory at one time or other.
	perms map[permOf]bool
	// held are the directories opened last, freshly from their root's
	// descriptor: a run of steps in one directory opens it once.
	held [4]heldDir
	used int
	// near: only looking is done. A directory is opened from the one above if
	// that is held, since deep ones take long from the top.
	near bool
	// record: the journal undoes or redoes what an undo record holds. What lies in
	// its layers and slots is the record's own, and no copy that was staged.
	record bool
	// foreign are the directories in which somebody else was met: their times
	// are not put back.
	foreign map[place]bool
	left    []Left
	// restored is what of the base was displaced or altered and is back.
	restored []Restored
}

type permOf struct {
	root uint32
	id   sys.Identity
	perm uint32
}

type rootDirs struct {
	path               string
	gone               bool // a memory file system of another boot: its steps count as settled
	base, layer, slots *sys.Dir
	layerPath, slotsAt string
}

type heldDir struct {
	at   place
	dir  *sys.Dir
	used int // the least recently used is closed first: never one of the step at hand
}

// openWorld opens j's roots; dir is the branch's directory, to which the paths
// of layers and slots are relative. again: the journal may be from before a
// reboot, after which a memory file system is another.
func openWorld(fs vfs.FS, j *journal, dir string, again bool) (*world, error) {
	w := &world{fs: fs, known: map[place]sys.Identity{}, perms: map[permOf]bool{}, foreign: map[place]bool{}}
	for i := range j.roots {
		r := &j.roots[i]
		d := rootDirs{path: r.path, layerPath: below(dir, r.layer), slotsAt: below(dir, r.slots)}
		if err := d.open(r, again); err != nil {
			d.close()
			w.close()
			return nil, err
		}
		w.roots = append(w.roots, d)
	}
	w.learn(j.steps)
	return w, nil
}

// learn notes what the steps say of directories as a whole.
func (w *world) learn(steps []step) {
	for i := range steps {
		switch s := &steps[i]; s.kind {
		case times:
			w.known[s.from] = s.new.id
		case mode:
			w.perms[permOf{s.from.root, s.new.id, s.before}] = true
			w.perms[permOf{s.from.root, s.new.id, s.after}] = true
		case meta:
			if s.meta.newPerm != nil {
				w.perms[permOf{s.from.root, s.new.id, *s.meta.newPerm}] = true
			}
		}
	}
}

// ourPerm says that a directory has permissions that another step gave it.
func (w *world) ourPerm(s *step, perm uint32) bool {
	return w.perms[permOf{s.from.root, s.new.id, perm}]
}

func below(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

func (d *rootDirs) open(r *journalRoot, again bool) error {
	// Of this boot it is only out of sight, in a mount namespace for one.
	lost := false
	if again && r.boot != "" {
		now, err := bootID()
		if err != nil {
			return err
		}
		lost = now != r.boot
	}
	var err error
	if d.base, err = openRoot(r.path, r.id); err != nil {
		if lost {
			d.gone = true
			return nil
		}
		return err
	}
	for _, o := range []struct {
		dir  **sys.Dir
		path string
	}{{&d.layer, d.layerPath}, {&d.slots, d.slotsAt}} {
		if o.path == "" {
			continue
		}
		if *o.dir, err = sys.OpenDir(o.path); err != nil {
			if lost && errors.Is(err, unix.ENOENT) {
				d.gone = true
				return nil
			}
			return err
		}
	}
	return nil
}

// openRoot opens the directory at path, which must be the one of the fork.
func openRoot(path string, id sys.Identity) (*sys.Dir, error) {
	d, err := sys.OpenDir(path)
	if err != nil {
		return nil, &ConflictError{Conflicts: []Conflict{{Root: path, Reason: "the root cannot be opened: " + errnoText(err)}}, Err: err}
	}
	st, err := d.Stat("")
	if err != nil {
		d.Close()
		return nil, err
	}
	if st.Identity() != id {
		d.Close()
		return nil, &ConflictError{Conflicts: []Conflict{{Root: path, Reason: "no longer the directory that this branch was forked from"}}}
	}
	return d, nil
}

func (d *rootDirs) close() {
	for _, o := range []*sys.Dir{d.base, d.layer, d.slots} {
		if o != nil {
			o.Close()
		}
	}
}

func (w *world) close() {
	w.release()
	for i := range w.roots {
		w.roots[i].close()
	}
}

// release forgets the held directories, so that each is resolved anew.
func (w *world) release() {
	for i := range w.held {
		if w.held[i].dir != nil {
			w.held[i].dir.Close()
			w.held[i] = heldDir{}
		}
	}
}

func (w *world) top(p place) *sys.Dir {
	r := &w.roots[p.root]
	switch p.area {
	case inBase:
		return r.base
	case inLayer:
		return r.layer
	case inSlots:
		return r.slots
	}
	panic("unknown " + p.area.String())
}

// path names p in messages.
func (w *world) path(p place) string {
	r := &w.roots[p.root]
	switch p.area {
	case inBase:
		return filepath.Join(r.path, p.path)
	case inLayer:
		return filepath.Join(r.layerPath, p.path)
	}
	return filepath.Join(r.slotsAt, p.path)
}

// dir opens the directory p from its root's descriptor, or returns the one
// held; it stays w's. A directory that is not the one known there is a
// refusal.
func (w *world) dir(p place) (*sys.Dir, error) {
	if p.path == "" {
		return w.top(p), nil
	}
	for i := range w.held {
		if w.held[i].dir != nil && w.held[i].at == p {
			w.used++
			w.held[i].used = w.used
			return w.held[i].dir, nil
		}
	}
	from, rel := w.top(p), p.path
	if w.near {
		if up, name := p.split(); up.path != "" {
			for i := range w.held {
				if w.held[i].dir != nil && w.held[i].at == up {
					from, rel = w.held[i].dir, name
				}
			}
		}
	}
	d, err := from.Sub(rel)
	if err != nil {
		return nil, &refusal{p, "cannot be opened: " + errnoText(err), err}
	}
	if id, ok := w.known[p]; ok {
		st, err := d.Stat("")
		if err == nil && st.Identity() != id {
			err = &refusal{p, "the directory was moved or replaced", nil}
		}
		if err != nil {
			d.Close()
			return nil, err
		}
	}
	h := &w.held[0]
	for i := range w.held {
		if w.held[i].used < h.used {
			h = &w.held[i]
		}
	}
	if h.dir != nil {
		h.dir.Close()
	}
	w.used++
	*h = heldDir{p, d, w.used}
	return d, nil
}

// at opens the directory that holds p.
func (w *world) at(p place) (*sys.Dir, string, error) {
	if p.path == "" {
		return w.top(p), "", nil
	}
	up, name := p.split()
	d, err := w.dir(up)
	return d, name, err
}

// look returns what lies at p, nil for nothing. A directory above that is
// gone, or is no directory any more, means nothing as well.
func (w *world) look(p place) (*sys.Stat, *sys.Dir, string, error) {
	d, name, err := w.at(p)
	if err != nil {
		if absent(err) {
			return nil, nil, name, nil
		}
		return nil, nil, name, err
	}
	st, err := d.Stat(name)
	if err != nil {
		if absent(err) {
			return nil, d, name, nil
		}
		return nil, nil, name, &refusal{p, errnoText(err), err}
	}
	return &st, d, name, nil
}

func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

// hold opens the inode at name in d, without any permission on it and without
// following it, as something whose "" can be altered. It must be id.
func hold(d *sys.Dir, name string, id sys.Identity) (*sys.Dir, error) {
	h, err := inode(d, name)
	if err != nil {
		return nil, err
	}
	st, err := h.Stat("")
	if err == nil && st.Identity() != id {
		err = fmt.Errorf("%s: replaced by another: %w", h.Name(), unix.ESTALE)
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

func inode(d *sys.Dir, name string) (*sys.Dir, error) {
	if name == "" {
		return d.Sub("")
	}
	f, err := d.OpenFile(name, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return sys.DupDir(f, filepath.Join(d.Name(), name))
}

// sumTree walks everything below the directory name in d. ctimes count where
// nobody but a third party can have moved them: in what was the base's. What is
// below an unreadable directory is left out. Of what was the base's, a file that
// is open for writing is a *writerError.
func sumTree(d *sys.Dir, name string, ctimes bool) (tree, error) {
	top, err := d.Sub(name)
	if err != nil {
		return tree{}, err
	}
	defer top.Close()
	var t tree
	paths := newKeys(key{})
	if !readable(top, "") {
		return t, nil
	}
	err = sys.Walk(top, func(v sys.Visit) (bool, error) {
		t.add(paths.of(v.Node), &v.Stat, ctimes)
		if ctimes && v.Stat.IsRegular() && errors.Is(lease(v.Dir, v.Node.Name), errOpen) {
			return false, &writerError{v.Node.Path(), openFor(&v.Stat)}
		}
		return !v.Stat.IsDir() || readable(v.Dir, v.Node.Name), nil
	}, nil)
	return t, err
}

// writerError says that somebody writes to a file below a displaced directory.
type writerError struct{ path, why string }

func (e *writerError) Error() string { return e.path + " below it is " + e.why }

// add adds one entry: sums of hashes do not depend on the order.
func (t *tree) add(path key, st *sys.Stat, ctimes bool) {
	var fixed [11 * 8]byte
	b := fixed[:0]
	for _, v := range []uint64{st.Ino, uint64(st.Btime), uint64(st.Mode), uint64(st.UID)<<32 | uint64(st.GID), uint64(st.Mtime), st.Rdev} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	size := uint64(st.Size)
	if st.IsDir() {
		size = 0
	}
	b = binary.LittleEndian.AppendUint64(b, size)
	if ctimes && (st.IsDir() || st.Nlink == 1) { // another name's step moves it
		b = binary.LittleEndian.AppendUint64(b, uint64(st.Ctime))
	}
	h := sha256.Sum256(append(b, path[:]...))
	lo, hi := binary.LittleEndian.Uint64(t.sum[:]), binary.LittleEndian.Uint64(t.sum[8:])
	binary.LittleEndian.PutUint64(t.sum[:], lo+binary.LittleEndian.Uint64(h[:]))
	binary.LittleEndian.PutUint64(t.sum[8:], hi+binary.LittleEndian.Uint64(h[8:]))
	t.count++
}

// errnoText is the bare reason of a call's error.
func errnoText(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}
