package commit

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/layer"
	"try/fs/sys"
)

// origin is the mark of what was copied up (fs/overlayfs/overlayfs.h).
const origin = "user.overlay.origin"

const fixed = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND

// displace describes the base's entry that a step takes out, and asks whether
// it can be taken.
func (c *compiler) displace(base place, ch *changes.Change, below []changes.Change) (side, bool, error) {
	st, d, name, err := c.w.look(base)
	if err != nil {
		return side{}, false, err
	}
	if st == nil {
		c.refuse(base.root, base.path, "no longer there")
		return side{}, false, nil
	}
	s := sideOf(*st)
	no := func(why string) (side, bool, error) {
		c.refuse(base.root, base.path, "%s", why)
		return s, false, nil
	}
	if st.Attributes&fixed != 0 {
		return no("it is immutable or append-only (chattr -i -a)")
	}
	full := c.w.path(base)
	for _, m := range c.mounts {
		if within(m.Target, full) {
			return no(m.Target + " is a mount")
		}
	}
	if !st.IsDir() {
		s.shared = c.names[s.id]
		if st.Nlink > 1 {
			c.names[s.id] = true
		}
		return s, true, nil
	}
	up, err := d.Stat("")
	if err != nil {
		return s, false, err
	}
	if st.Dev != up.Dev {
		return no("it is another subvolume than its directory")
	}
	// A directory that gets another parent must be writable itself (rename(2)),
	// and it is walked once more afterwards.
	if err := d.Access(name, unix.W_OK); err != nil {
		if !errors.Is(err, unix.EACCES) || st.UID != c.uid {
			return no("the directory cannot be moved: " + errnoText(err))
		}
		s.opened, s.open = true, st.Perm()|0o700
	}
	ok, err := c.below(base, d, name, &s, ch, below)
	return s, ok, err
}

// below compares everything below a base directory that goes with it with what
// the plan has listed, and sums it up.
func (c *compiler) below(base place, d *sys.Dir, name string, s *side, ch *changes.Change, below []changes.Change) (bool, error) {
	listed := make(map[string]*sys.Stat, len(below))
	for i := range below {
		if below[i].Base != nil {
			listed[below[i].Path()] = below[i].Base
		}
	}
	if ch.Carry != nil {
		for i := range ch.Carry.Kept {
			listed[ch.Carry.Kept[i].Node.Path()] = &ch.Carry.Kept[i].Base
		}
	}
	top, err := d.Sub(name)
	if err != nil {
		return false, err
	}
	defer top.Close()
	fine := true
	no := func(path, why string) {
		c.refuse(base.root, path, "%s since the changes were listed", why)
		fine = false
	}
	err = sys.Walk(top, func(v sys.Visit) (bool, error) {
		rel := v.Node.Path()
		path := base.path + "/" + rel
		was := listed[path]
		if was == nil {
			no(path, "added to a directory that is to go")
			return false, nil
		}
		delete(listed, path)
		e := sideOf(*was)
		e.shared = !v.Stat.IsDir() && v.Stat.Nlink > 1
		if why := e.untouched(&v.Stat); why != "" {
			no(path, why)
		}
		if v.Stat.Attributes&fixed != 0 && v.Stat.IsDir() {
			c.refuse(base.root, path, "it is immutable or append-only (chattr -i -a)")
			fine = false
		}
		s.tree.add(rel, &v.Stat, true)
		return true, nil
	}, nil)
	if err != nil {
		c.refuse(base.root, base.path, "what is below it cannot be looked at: %s", errnoText(err))
		return false, nil
	}
	for path := range listed {
		no(path, "gone")
	}
	return fine, nil
}

// arrive describes the layer's entry that a step brings into the base, adds
// the steps for what is below it, and pins all of it: what lies there must be
// what was listed, and nobody outside may have it open for writing.
func (c *compiler) arrive(from, base place, ch *changes.Change, below []changes.Change) (side, bool, error) {
	st, d, name, err := c.w.look(from)
	if err != nil {
		return side{}, false, err
	}
	s := sideOf(*ch.Layer)
	if !c.pinned(base.path, base.root, &s, st) {
		return s, false, nil
	}
	s = sideOf(*st)
	n := &c.needs[base.root]
	n.inodes++
	n.bytes += st.Blocks * 512
	ok, err := c.entry(base, d, name, st, &s)
	if err != nil || !ok {
		return s, ok, err
	}
	if ch.Base != nil && ch.Base.IsRegular() && st.IsRegular() && copiedUp(s.marks) {
		if err := c.dropped(base, &s); err != nil {
			return s, false, err
		}
	}
	if !st.IsDir() {
		return s, true, nil
	}
	if err := d.Access(name, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		if !errors.Is(err, unix.EACCES) || st.UID != c.uid {
			c.refuse(base.root, base.path, "the directory cannot be moved: %s", errnoText(err))
			return s, false, nil
		}
		s.opened, s.open = true, st.Perm()|0o700
	}
	ok, err = c.tree(from, base, d, name, st, &s, ch, below)
	return s, ok, err
}

// pinned says whether an entry of the layer is the one that was listed.
func (c *compiler) pinned(path string, root uint32, was *side, st *sys.Stat) bool {
	why := was.difference(st)
	if why == "" && st.Ctime != was.ctime {
		why = "changed"
	}
	if why != "" {
		c.refuse(root, path, "%s in the branch since the changes were listed", why)
	}
	return why == ""
}

// entry reads the marks of an entry of the layer and makes sure that nobody
// writes to it.
func (c *compiler) entry(base place, d *sys.Dir, name string, st *sys.Stat, s *side) (bool, error) {
	if st.Attributes&fixed != 0 {
		c.refuse(base.root, base.path, "it is immutable or append-only in the branch (chattr -i -a)")
		return false, nil
	}
	if !st.IsRegular() && !st.IsDir() {
		return true, nil
	}
	names, err := d.XattrNames(name)
	if err != nil {
		return false, err
	}
	marked := slices.ContainsFunc(names, func(n string) bool {
		attr, visible := layer.Unescape(n)
		return !visible || attr != n
	})
	look := func() (err error) {
		if marked {
			if s.marks, err = marksOf(d, name); err != nil {
				return err
			}
		}
		if st.IsRegular() {
			return lease(d, name, st)
		}
		return nil
	}
	err = look()
	if errors.Is(err, unix.EACCES) && st.UID == c.uid {
		err = layer.Opened(d, name, *st, look)
	}
	if errors.Is(err, errOpen) {
		c.refuse(base.root, base.path, "still open for writing by a process outside")
		return false, nil
	}
	if err == nil && marked && c.uid != 0 && st.Perm()&0o200 == 0 && !st.IsDir() {
		s.opened, s.open = true, st.Perm()|0o600
	}
	return err == nil, err
}

var errOpen = errors.New("open for writing")

// lease asks, by a read lease, whether anyone has the file open for writing
// (fcntl(2), F_SETLEASE): such a descriptor would go on writing to what is the
// base's file after the commit. Where there are no leases nothing is known.
func lease(d *sys.Dir, name string, want *sys.Stat) error {
	fd, err := d.OpenFD(name, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	if errors.Is(err, unix.EAGAIN) {
		return errOpen
	}
	if err != nil {
		return nil // EINVAL, EACCES, ENOLCK: this file system or owner has none
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return err
}

// marksOf reads what must be done to an entry of a layer when it becomes one
// of the base, in a fixed order.
func marksOf(d *sys.Dir, name string) ([]mark, error) {
	ours, _, err := layer.Marks(d, name)
	if err != nil {
		return nil, err
	}
	var list []mark
	for raw, value := range ours {
		m := mark{from: raw, value: value}
		if attr, visible := layer.Unescape(raw); visible && !layer.Reserved(attr) {
			m.to = attr
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b mark) int { return strings.Compare(a.from, b.from) })
	return list, nil
}

func copiedUp(marks []mark) bool {
	return slices.ContainsFunc(marks, func(m mark) bool { return m.from == origin })
}

// dropped adds the attributes of the base's file that its copy in the layer
// lacks only because copy-up left them out.
func (c *compiler) dropped(base place, s *side) error {
	_, d, name, err := c.w.look(base)
	if err != nil {
		return err
	}
	raw, err := d.Xattrs(name)
	if errors.Is(err, unix.EACCES) {
		return nil
	}
	if err != nil {
		return err
	}
	var list []mark
	for attr, value := range layer.Dropped(raw) {
		list = append(list, mark{to: attr, value: value})
	}
	slices.SortFunc(list, func(a, b mark) int { return strings.Compare(a.to, b.to) })
	s.marks = append(s.marks, list...)
	if len(list) > 0 && c.uid != 0 && s.perm&0o200 == 0 {
		s.opened, s.open = true, s.perm|0o600
	}
	return nil
}

// tree walks a directory of the layer that goes as a whole: pins it, sums it
// up, strips what is marked, and puts aside what must not come along.
func (c *compiler) tree(from, base place, d *sys.Dir, name string, st *sys.Stat, s *side, ch *changes.Change, below []changes.Change) (bool, error) {
	listed := make(map[string]*sys.Stat, len(below))
	for i := range below {
		if below[i].Layer != nil {
			listed[below[i].Path()] = below[i].Layer
		}
	}
	leave, same := map[string]bool{}, map[string]bool{}
	if ch.Carry != nil {
		for _, n := range ch.Carry.Leave {
			leave[n.Path()] = true
		}
		for i := range ch.Carry.Kept {
			same[ch.Carry.Kept[i].Node.Path()] = true
		}
	}
	if s.opened {
		h, err := inode(d, name)
		if err != nil {
			return false, err
		}
		defer h.Close()
		if err := c.openNow(h, s.perm); err != nil {
			return false, err
		}
	}
	top, err := d.Sub(name)
	if err != nil {
		return false, err
	}
	defer top.Close()
	start := len(c.moves)
	dark := ""
	if s.opened && s.perm&0o500 != 0o500 {
		dark = "/" // no path is so, so this stays
	}
	t := &treeWalk{c: c, from: from, base: base, listed: listed, leave: leave, same: same, top: s, fine: true, copy: c.jobs[base.root].Copy, dark: dark, stat: *st}
	if err := sys.Walk(top, t.visit, t.end); err != nil {
		return false, err
	}
	if len(c.moves) == start {
		return t.fine, nil
	}
	if t.aside[from.path] {
		t.keepTimes(from, base, *st)
	}
	if s.opened {
		self := *s
		self.marks, self.tree = nil, tree{}
		open := step{kind: mode, from: from, to: base, new: self, before: s.perm, after: s.open}
		shut := step{kind: mode, from: from, to: base, new: self, before: s.open, after: s.perm}
		c.moves = append(slices.Insert(c.moves, start, open), shut)
	}
	return t.fine, nil
}

// treeWalk is the state of that walk.
type treeWalk struct {
	c           *compiler
	from, base  place
	listed      map[string]*sys.Stat
	leave, same map[string]bool
	top         *side
	fine, copy  bool
	stat        sys.Stat        // of the top directory
	dark        string          // the unreadable directory that the walk is below
	aside       map[string]bool // directories out of which something goes aside
}

func (t *treeWalk) at(rel string) (from, to place) {
	from, to = t.from, t.base
	from.path, to.path = from.path+"/"+rel, to.path+"/"+rel
	return from, to
}

func (t *treeWalk) visit(v sys.Visit) (bool, error) {
	c := t.c
	rel := v.Node.Path()
	from, to := t.at(rel)
	st := &v.Stat
	if t.leave[to.path] || st.Type() == unix.S_IFSOCK || layer.IsWhiteout(*st) {
		if t.copy {
			return false, nil
		}
		return false, t.putAside(v, from)
	}
	was, known := t.listed[to.path]
	if !known && !t.same[to.path] {
		c.refuse(to.root, to.path, "added in the branch since the changes were listed")
		t.fine = false
		return false, nil
	}
	s := sideOf(*st)
	if known {
		pin := sideOf(*was)
		if !c.pinned(to.path, to.root, &pin, st) {
			t.fine = false
			return false, nil
		}
	}
	n := &c.needs[to.root]
	n.inodes++
	n.bytes += st.Blocks * 512
	ok, err := c.entry(to, v.Dir, v.Node.Name, st, &s)
	if err != nil || !ok {
		t.fine = t.fine && ok
		return false, err
	}
	if t.dark == "" {
		t.top.tree.add(rel, st, false)
	}
	closed := false
	if st.IsDir() {
		err := v.Dir.Access(v.Node.Name, unix.R_OK|unix.W_OK|unix.X_OK)
		if closed = errors.Is(err, unix.EACCES) && st.UID == c.uid; closed {
			s.opened, s.open = true, st.Perm()|0o700 // for its own marks
		} else if err != nil {
			return false, err
		}
	}
	if len(s.marks) > 0 && !t.copy {
		c.moves = append(c.moves, step{kind: strip, from: from, to: to, new: s})
	}
	if closed {
		return true, t.unlock(v, from, to, s)
	}
	return true, nil
}

// unlock opens a directory of the layer, now and by a step, for what is below
// it.
func (t *treeWalk) unlock(v sys.Visit, from, to place, s side) error {
	if t.dark == "" && s.perm&0o500 != 0o500 {
		t.dark = v.Node.Path()
	}
	if !t.copy {
		s.marks = nil
		t.c.moves = append(t.c.moves, step{
			kind: mode, from: from, to: to, new: s, before: s.perm, after: s.open,
		})
	}
	h, err := inode(v.Dir, v.Node.Name)
	if err != nil {
		return err
	}
	defer h.Close()
	return h.Chmod("", s.open)
}

// end closes a directory that visit opened, and emits its closing step.
func (t *treeWalk) end(v sys.Visit) error {
	from, to := t.at(v.Node.Path())
	if t.dark == v.Node.Path() {
		t.dark = ""
	}
	if t.aside[from.path] {
		t.keepTimes(from, to, v.Stat)
	}
	if now, err := v.Dir.Stat(v.Node.Name); err != nil || now.Perm() == v.Stat.Perm() {
		return err
	}
	if !t.copy {
		t.c.moves = append(t.c.moves, step{
			kind: mode, from: from, to: to, new: sideOf(v.Stat), before: v.Stat.Perm() | 0o700, after: v.Stat.Perm(),
		})
	}
	return v.Dir.Chmod(v.Node.Name, v.Stat.Perm())
}

// putAside takes what must not come along out of the tree, into the slots.
func (t *treeWalk) putAside(v sys.Visit, from place) error {
	up, _ := from.split()
	if !t.aside[up.path] {
		if t.aside == nil {
			t.aside = map[string]bool{}
		}
		t.aside[up.path] = true
		to, st := t.base, t.stat
		if v.Node.Parent != nil {
			var err error
			if st, err = v.Dir.Stat(""); err != nil {
				return err
			}
			_, to = t.at(v.Node.Parent.Path())
		}
		t.keepTimes(up, to, st)
	}
	s := sideOf(v.Stat)
	s.shared = true
	t.c.moves = append(t.c.moves, step{kind: move, from: from, to: t.c.newSlot(from.root), new: s})
	if t.c.w.roots[from.root].slots == nil {
		t.c.refuse(from.root, filepath.Join(t.base.path, v.Node.Path()), "the store has no place on this file system")
		t.fine = false
	}
	return nil
}

// keepTimes emits a step that sets a directory's times to what they are: after
// its entries went aside, and, before that, for the way back.
func (t *treeWalk) keepTimes(from, to place, st sys.Stat) {
	s := t.c.timesStep(from, st)
	s.to, s.newTime = to, s.oldTime
	t.c.moves = append(t.c.moves, s)
}
