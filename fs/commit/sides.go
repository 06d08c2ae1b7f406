package commit

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/layer"
	"try/fs/sys"
	"try/fs/vfs"
)

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
	shared := !st.IsDir() && c.names[st.Identity()]
	if st.IsRegular() && c.overlaid(base.root) {
		if *st, err = c.copyUp(d, name, st); err != nil {
			return side{}, false, err
		}
	}
	s := sideOf(*st)
	s.shared = shared
	if why, err := c.takeable(base, st, d, name, &s); err != nil || why != "" {
		if why != "" {
			c.refuse(base.root, base.path, "%s", why)
		}
		return s, false, err
	}
	if !st.IsDir() {
		if st.Nlink > 1 {
			c.names[s.id] = true
		}
		return s, true, nil
	}
	ok, err := c.below(base, d, name, &s, ch, below)
	return s, ok, err
}

// takeable asks whether the base's entry can be taken out; s says afterwards
// whether it must be opened for that.
func (c *compiler) takeable(base place, st *sys.Stat, d *sys.Dir, name string, s *side) (why string, err error) {
	if st.Attributes&fixed != 0 {
		return "it is immutable or append-only (chattr -i -a)", nil
	}
	if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return "it is a mount", nil
	}
	if !st.IsDir() {
		return "", nil
	}
	if c.mounts == nil {
		if c.mounts, err = sys.Mounts(); err != nil {
			return "", err
		}
	}
	full := c.w.path(base)
	for _, m := range c.mounts {
		if within(m.Target, full) {
			return m.Target + " is a mount", nil
		}
	}
	up, err := d.Stat("")
	if err != nil {
		return "", err
	}
	if st.Dev != up.Dev {
		return "it is another subvolume than its directory", nil
	}
	// A directory that gets another parent must be writable itself (rename(2)),
	// and it is walked once more afterwards.
	if err := d.Access(name, unix.W_OK); err != nil {
		if !errors.Is(err, unix.EACCES) || st.UID != c.uid {
			return "the directory cannot be moved: " + errnoText(err), nil
		}
		s.opened, s.open = true, st.Perm()|0o700
	}
	return "", nil
}

// overlaid says that a root lies on an overlay that is not ours.
func (c *compiler) overlaid(root uint32) bool {
	st, err := c.w.roots[root].base.StatFS()
	return err == nil && st.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// copyUp has a file of an overlay copied up, as its rename would do. It is
// another file from then on if it has several names, or if the overlay's
// layers lie on several file systems.
func (c *compiler) copyUp(d *sys.Dir, name string, st *sys.Stat) (sys.Stat, error) {
	perm := st.Perm()
	if err := c.w.fs.Set(d, name, vfs.Attr{Mode: &perm}); err != nil && !errors.Is(err, unix.EPERM) {
		return *st, err
	}
	return d.Stat(name)
}

// below compares everything below a base directory that goes with it with what
// the plan has listed, and sums it up.
func (c *compiler) below(base place, d *sys.Dir, name string, s *side, ch *changes.Change, below []changes.Change) (bool, error) {
	type entry struct {
		node *sys.Node
		base *sys.Stat
	}
	listed := make(map[key]entry, len(below))
	paths := newKeys(key{})
	for i := range below {
		if below[i].Base != nil {
			listed[paths.of(below[i].Node)] = entry{below[i].Node, below[i].Base}
		}
	}
	if ch.Carry != nil {
		for i := range ch.Carry.Kept {
			k := &ch.Carry.Kept[i]
			listed[paths.of(k.Node)] = entry{k.Node, &k.Base}
		}
	}
	here, in := newKeys(paths.of(ch.Node)), newKeys(key{})
	top, err := d.Sub(name)
	if err != nil {
		return false, err
	}
	defer top.Close()
	fine := true
	no := func(n *sys.Node, why string) {
		c.refuse(base.root, n.Path(), "%s since the changes were listed", why)
		fine = false
	}
	err = sys.Walk(top, func(v sys.Visit) (bool, error) {
		at := here.of(v.Node)
		was, ok := listed[at]
		if !ok {
			c.refuse(base.root, base.path+"/"+v.Node.Path(), "added to a directory that is to go since the changes were listed")
			fine = false
			return false, nil
		}
		delete(listed, at)
		e := sideOf(*was.base)
		e.shared = !v.Stat.IsDir() && v.Stat.Nlink > 1
		if why := e.untouched(&v.Stat); why != "" {
			no(was.node, why)
		}
		if v.Stat.Attributes&fixed != 0 && v.Stat.IsDir() {
			c.refuse(base.root, was.node.Path(), "it is immutable or append-only (chattr -i -a)")
			fine = false
		}
		s.tree.add(in.of(v.Node), &v.Stat, true)
		return true, nil
	}, nil)
	if err != nil {
		c.refuse(base.root, base.path, "what is below it cannot be looked at: %s", errnoText(err))
		return false, nil
	}
	for _, e := range listed {
		no(e.node, "gone")
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
	if why := c.pinned(&s, st); why != "" {
		c.refuse(base.root, base.path, "%s", why)
		return s, false, nil
	}
	s = sideOf(*st)
	n := &c.needs[base.root]
	n.inodes++
	n.bytes += st.Blocks * 512
	if why, err := c.entry(d, name, st, &s); err != nil || why != "" {
		if err == nil {
			c.refuse(base.root, base.path, "%s", why)
		}
		return s, false, err
	}
	if ch.Base != nil && ch.Base.IsRegular() && st.IsRegular() && ch.OfBase() {
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
	ok, err := c.tree(from, base, d, name, st, &s, ch, below)
	return s, ok, err
}

// pinned says how an entry of the layer is not the one that was listed. Looking
// at another name of it may have moved its ctime.
func (c *compiler) pinned(was *side, st *sys.Stat) string {
	why := was.difference(st)
	if why == "" && st.Ctime != was.ctime && st.Ctime != c.looked[was.id] {
		why = "changed"
	}
	if why != "" {
		why += " in the branch since the changes were listed"
	}
	return why
}

// entry reads the marks of an entry of the layer and makes sure that nobody
// writes to it; why says what forbids to commit it.
func (c *compiler) entry(d *sys.Dir, name string, st *sys.Stat, s *side) (why string, err error) {
	if st.Attributes&fixed != 0 {
		return "it is immutable or append-only in the branch (chattr -i -a)", nil
	}
	if !st.IsRegular() && !st.IsDir() {
		return "", nil
	}
	names, err := d.XattrNames(name)
	if err != nil {
		return "", err
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
			return lease(d, name)
		}
		return nil
	}
	err = look()
	if errors.Is(err, unix.EACCES) && st.UID == c.uid {
		err = layer.Opened(d, name, *st, look)
		if now, e := d.Stat(name); e == nil && now.Nlink > 1 {
			c.looked[now.Identity()] = now.Ctime
		}
	}
	if errors.Is(err, errOpen) {
		return "still open for writing by a process outside", nil
	}
	if err == nil && marked && c.uid != 0 && st.Perm()&0o200 == 0 && !st.IsDir() {
		s.opened, s.open = true, st.Perm()|0o600
	}
	return "", err
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
		if slices.ContainsFunc(s.marks, func(m mark) bool { return m.to == attr }) {
			continue // a session has set its own
		}
		list = append(list, mark{to: attr, value: value})
	}
	slices.SortFunc(list, func(a, b mark) int { return strings.Compare(a.to, b.to) })
	s.marks = append(s.marks, list...)
	if len(list) > 0 && c.uid != 0 && s.perm&0o200 == 0 {
		s.opened, s.open = true, s.perm|0o600
	}
	return nil
}
