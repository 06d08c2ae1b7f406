package commit

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
	"try/fs/vfs"
)

// stage copies what lies on another file system into the slots, with all that
// belongs to it and without marks. What cannot be copied is removed again by
// unstage; nothing else has been altered.
func (c *compiler) stage(ctx context.Context) error {
	links := map[linkKey]string{}
	for i := range c.copies {
		if err := ctx.Err(); err != nil {
			return err
		}
		k := &c.copies[i]
		s := &c.journal.steps[k.step]
		if err := c.stageOne(k, s, links); err != nil {
			return c.staging(k, err)
		}
	}
	return nil
}

// staging explains a copy that did not work; of a full file system it says how
// much is missing.
func (c *compiler) staging(k *copied, err error) error {
	what := fmt.Errorf("stage %s: %w", c.w.path(place{k.root, inBase, k.from.path}), err)
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return what
	}
	n := c.needs[k.root]
	free := int64(0)
	if st, e := c.w.roots[k.root].slots.StatFS(); e == nil {
		free = int64(st.Bavail) * st.Bsize
	}
	reason := fmt.Sprintf("%s while %d bytes in %d files were copied", errnoText(err), n.bytes, n.inodes)
	if missing := n.bytes - free; missing > 0 {
		reason += fmt.Sprintf(": %d bytes are missing", missing)
	}
	return &ConflictError{Conflicts: []Conflict{{c.w.roots[k.root].path, k.from.path, reason}}, Err: what}
}

// stageOne copies one entry, and below it if it is a directory, and makes the
// step one of the copy.
func (c *compiler) stageOne(k *copied, s *step, links map[linkKey]string) error {
	_, from, name, err := c.w.look(k.from)
	if err != nil {
		return err
	}
	slots := c.w.roots[k.root].slots
	sum, err := c.copyTree(k, from, name, slots, s, links)
	if err != nil {
		return err
	}
	st, err := slots.Stat(k.slot)
	if err != nil {
		return err
	}
	opened, open := s.new.opened, s.new.open
	s.new = sideOf(st)
	s.new.tree = sum
	if st.IsDir() {
		s.new.opened, s.new.open = opened, open
	}
	return nil
}

// copyTree copies name and all below it. The way down is iterative in both
// trees; the copy of a directory gets its mode and times when it is complete.
func (c *compiler) copyTree(k *copied, from *sys.Dir, name string, to *sys.Dir, s *step, links map[linkKey]string) (tree, error) {
	st, err := from.Stat(name)
	if err != nil {
		return tree{}, err
	}
	if s.new.difference(&st) != "" {
		return tree{}, fmt.Errorf("%s changed in the branch: %w", from.Name(), unix.ESTALE)
	}
	st.Mode = st.Type() | s.new.perm // it may be open for looking
	if err := c.copyEntry(from, name, &st, to, k.slot, linkAt{linkKey{k.root, st.Identity()}, k.slot, ""}, links); err != nil || !st.IsDir() {
		return tree{}, err
	}
	in, err := from.Sub(name)
	if err != nil {
		return tree{}, err
	}
	defer in.Close()
	out, err := to.Sub(k.slot)
	if err != nil {
		return tree{}, err
	}
	defer out.Close()
	way, err := sys.NewDescent(out)
	if err != nil {
		return tree{}, err
	}
	defer way.Close()
	w := &copyWalk{c: c, way: way, paths: newKeys(key{}), links: links, root: k.root, from: k.from.path, base: k.slot, dark: -1}
	if s.new.opened && s.new.perm&0o500 != 0o500 {
		w.dark = 0
	}
	if err := sys.Walk(in, w.pre, w.post); err != nil {
		return tree{}, err
	}
	return w.sum, c.finish(from, name, out, "", &st)
}

// readable says that a directory's content can be listed and looked at. What
// is below one that cannot is in no sum: it could not be summed again.
func readable(d *sys.Dir, name string) bool {
	return d.Access(name, unix.R_OK|unix.X_OK) == nil
}

// copyWalk is the state of copyTree: way is where the copy of what the walk is
// in lies.
type copyWalk struct {
	c     *compiler
	way   *sys.Descent
	links map[linkKey]string
	root  uint32
	from  string // path of what is copied in the layer
	base  string // path of the copy in the slots
	sum   tree
	paths *keys
	dark  int // depth below which nothing is summed; -1: everything is
}

func (w *copyWalk) pre(v sys.Visit) (bool, error) {
	c := w.c
	if layer.IsWhiteout(v.Stat) || v.Stat.Type() == unix.S_IFSOCK {
		return false, nil
	}
	if err := w.entry(v); err != nil {
		return false, err
	}
	if !v.Stat.IsDir() {
		return false, w.add(v)
	}
	if !readable(v.Dir, v.Node.Name) {
		if w.dark < 0 {
			w.dark = w.way.Depth() + 1
		}
		h, err := inode(v.Dir, v.Node.Name)
		if err != nil {
			return false, err
		}
		defer h.Close()
		if err := c.openNow(h, v.Stat.Perm()); err != nil {
			return false, err
		}
	}
	return true, w.way.Enter(v.Node.Name)
}

func (w *copyWalk) entry(v sys.Visit) error {
	at := linkAt{linkKey: linkKey{w.root, v.Stat.Identity()}}
	if v.Stat.IsRegular() && v.Stat.Nlink > 1 {
		rel := "/" + v.Node.Path()
		at.path, at.in = w.base+rel, w.from+rel
	}
	return w.c.copyEntry(v.Dir, v.Node.Name, &v.Stat, w.way.Dir(), v.Node.Name, at, w.links)
}

func (w *copyWalk) post(v sys.Visit) error {
	if err := w.c.finish(v.Dir, v.Node.Name, w.way.Dir(), "", &v.Stat); err != nil {
		return err
	}
	if err := w.way.Leave(); err != nil {
		return err
	}
	if w.dark > w.way.Depth() {
		w.dark = -1
	}
	return w.add(v)
}

// add sums up the copy of v, which is complete.
func (w *copyWalk) add(v sys.Visit) error {
	if w.dark >= 0 {
		return nil
	}
	st, err := w.way.Dir().Stat(v.Node.Name)
	if err == nil {
		w.sum.add(w.paths.of(v.Node), &st, false)
	}
	return err
}

// copyEntry copies one entry; a directory is left empty and open for its owner.
func (c *compiler) copyEntry(from *sys.Dir, name string, st *sys.Stat, to *sys.Dir, toName string, at linkAt, links map[linkKey]string) error {
	fs := c.w.fs
	switch st.Type() {
	case unix.S_IFDIR:
		if err := fs.Make(to, toName, vfs.New{Mode: unix.S_IFDIR | 0o700}); err != nil {
			return err
		}
		return nil // attributes come last: a default ACL would be inherited (acl(5))
	case unix.S_IFLNK:
		target, err := from.Readlink(name)
		if err != nil {
			return err
		}
		if err := fs.Make(to, toName, vfs.New{Mode: unix.S_IFLNK, Target: target}); err != nil {
			return err
		}
	case unix.S_IFREG:
		if at.in != "" && len(c.within) > 0 {
			if made, err := c.copyName(to, toName, at); err != nil || made {
				return err
			}
		}
		if st.Nlink > 1 {
			made, err := c.copyLink(to, toName, at, links)
			if err != nil || made {
				return err
			}
		}
		if err := c.copyFile(from, name, st, to, toName); err != nil {
			return err
		}
	default:
		if err := fs.Make(to, toName, vfs.New{Mode: st.Type() | 0o600, Dev: st.Rdev}); err != nil {
			return err
		}
	}
	return c.finish(from, name, to, toName, st)
}

// linkKey is a file of a root's layer that has several names, linkAt with the
// path that a copy of it would have in the slots.
type linkKey struct {
	root uint32
	id   sys.Identity
}

type linkAt struct {
	linkKey
	path string
	in   string // its path in the layer; of what is below a copied directory
}

// copyLink makes a further name of a file that has been copied under another,
// or notes this as the first. A first copy in a directory that is complete, and
// closed to its owner, cannot be linked: then the file is copied again.
func (c *compiler) copyLink(to *sys.Dir, toName string, at linkAt, links map[linkKey]string) (bool, error) {
	first, ok := links[at.linkKey]
	if !ok {
		links[at.linkKey] = at.path
		return false, nil
	}
	up, name := split(first)
	d, err := c.w.roots[at.root].slots.Sub(up)
	if errors.Is(err, unix.EACCES) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer d.Close()
	return true, c.w.fs.Make(to, toName, vfs.New{From: d, Name: name})
}

func (c *compiler) copyFile(from *sys.Dir, name string, st *sys.Stat, to *sys.Dir, toName string) error {
	var src *os.File
	open := func() (err error) {
		src, err = from.OpenFile(name, unix.O_RDONLY|unix.O_NOATIME, 0)
		if errors.Is(err, unix.EPERM) { // another user's (open(2))
			src, err = from.OpenFile(name, unix.O_RDONLY, 0)
		}
		return err
	}
	err := open()
	if errors.Is(err, unix.EACCES) && st.UID == c.uid {
		err = layer.Opened(from, name, *st, open)
	}
	if err != nil {
		return err
	}
	defer src.Close()
	if now, err := sys.StatFD(int(src.Fd())); err != nil || now.Identity() != st.Identity() {
		return errors.Join(err, unix.ESTALE)
	}
	dst, err := c.w.fs.Open(to, toName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(dst.CopyFrom(src), dst.Close())
}

// finish gives a copy owner, attributes, mode and times.
func (c *compiler) finish(from *sys.Dir, name string, to *sys.Dir, toName string, st *sys.Stat) error {
	owner, err := c.owner(to, toName, st)
	if err != nil {
		return err
	}
	var attrs map[string][]byte
	if st.Type() != unix.S_IFLNK {
		if attrs, err = attrsOf(from, name); err != nil {
			return err
		}
	}
	return vfs.Dress(c.w.fs, to, toName, st, owner, attrs)
}

// owner is what a copy gets: its group alone, where the caller is not root.
func (c *compiler) owner(to *sys.Dir, toName string, st *sys.Stat) (*vfs.Owner, error) {
	if c.uid == 0 {
		return &vfs.Owner{UID: int(st.UID), GID: int(st.GID)}, nil
	}
	now, err := to.Stat(toName)
	if err != nil || now.GID == st.GID {
		return nil, err
	}
	return &vfs.Owner{UID: -1, GID: int(st.GID)}, nil
}

// attrsOf reads the attributes that a session's entry has, by the names that
// they have in a base.
func attrsOf(from *sys.Dir, name string) (map[string][]byte, error) {
	st, err := from.Stat(name)
	if err != nil {
		return nil, err
	}
	raw, err := layer.Xattrs(from, name, st)
	if err != nil {
		return nil, err
	}
	attrs := make(map[string][]byte, len(raw))
	for name, value := range raw {
		if attr, visible := layer.Visible(name); visible && !layer.Reserved(attr) {
			attrs[attr] = value
		}
	}
	return attrs, nil
}

// unstage removes copies that no step has used, or that a roll-back has taken
// out of the base again. begun says that steps may have been done: then what
// was displaced may lie where a copy was.
func (w *world) unstage(j *journal, begun bool) error {
	if w.record {
		return nil
	}
	var all error
	for i := range j.steps {
		s := &j.steps[i]
		if s.kind != move && s.kind != swap || s.from.area != inSlots || w.roots[s.from.root].gone {
			continue
		}
		d := w.roots[s.from.root].slots
		st, err := d.Stat(s.from.path)
		if absent(err) || err == nil && begun && !s.new.is(&st) {
			continue // not staged, moved on, or what was displaced
		}
		if err != nil {
			return err
		}
		all = errors.Join(all, w.removeTree(d, s.from.path, &st))
	}
	return all
}

// removeTree removes a copy, with all below it.
func (w *world) removeTree(d *sys.Dir, name string, st *sys.Stat) error {
	if !st.IsDir() {
		return w.fs.Remove(d, name, false)
	}
	if err := w.fs.Set(d, name, vfs.Attr{Mode: new(uint32(0o700))}); err != nil {
		return err
	}
	top, err := d.Sub(name)
	if err != nil {
		return err
	}
	defer top.Close()
	err = sys.Walk(top, func(v sys.Visit) (bool, error) {
		if !v.Stat.IsDir() {
			return false, w.fs.Remove(v.Dir, v.Node.Name, false)
		}
		return true, w.fs.Set(v.Dir, v.Node.Name, vfs.Attr{Mode: new(uint32(0o700))})
	}, func(v sys.Visit) error {
		return w.fs.Remove(v.Dir, v.Node.Name, true)
	})
	if err != nil {
		return err
	}
	return w.fs.Remove(d, name, true)
}
