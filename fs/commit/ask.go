package commit

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// sameFS refuses a root whose entries cannot be renamed from or to the store.
func (c *compiler) sameFS(root uint32) error {
	w, r := c.w, c.jobs[root]
	base, err := w.roots[root].base.Stat("")
	if err != nil {
		return err
	}
	for _, d := range []*sys.Dir{w.roots[root].layer, w.roots[root].slots} {
		if d == nil || r.Copy && d == w.roots[root].layer {
			continue
		}
		st, err := d.Stat("")
		if err != nil {
			return err
		}
		if st.Dev != base.Dev || st.MntID != base.MntID {
			c.refuse(root, "", "it lies on another file system or mount than %s", d.Name())
		}
	}
	return nil
}

// parent asks whether an entry may be added to, or taken out of, its directory
// in the base, and in the layer if it comes from there, and makes the
// directories accessible.
func (c *compiler) parent(base place, old *sys.Stat, fromLayer bool) (bool, error) {
	up, _ := base.split()
	ok, err := c.ensure(up, true)
	if err != nil || !ok {
		return false, err
	}
	if fromLayer {
		in := place{up.root, inLayer, up.path}
		if ok, err := c.ensureLayer(in); err != nil || !ok {
			return false, err
		}
		if err := c.keepLayerTimes(in); err != nil {
			return false, err
		}
	}
	why, err := c.sticky(base, old)
	if why != "" {
		c.refuse(base.root, base.path, "%s", why)
	}
	return why == "" && err == nil, err
}

// sticky says why an entry that is there cannot be taken out of its directory
// (unlink(2)).
func (c *compiler) sticky(base place, old *sys.Stat) (why string, err error) {
	if old == nil || c.uid == 0 || old.UID == c.uid {
		return "", nil
	}
	up, _ := base.split()
	d, err := c.w.dir(up)
	if err != nil {
		return "", err
	}
	st, err := d.Stat("")
	if err == nil && st.Mode&unix.S_ISVTX != 0 && st.UID != c.uid {
		why = "it belongs to another user, in a sticky directory"
	}
	return why, err
}

// ensure asks whether the base directory p can be written to. Its owner may
// have locked it (0555); then it is opened for the time of the commit.
func (c *compiler) ensure(p place, write bool) (bool, error) {
	if ok, known := c.ensured[p]; known {
		return ok, nil
	}
	d, err := c.w.dir(p)
	if err != nil {
		var r *refusal
		if errors.As(err, &r) {
			c.refuse(p.root, p.path, "%s", r.reason)
			c.ensured[p] = false
			return false, nil
		}
		return false, err
	}
	st, err := d.Stat("")
	if err != nil {
		return false, err
	}
	ok := true
	no := func(format string, args ...any) {
		c.refuse(p.root, p.path, format, args...)
		ok = false
	}
	top, err := c.w.top(p).Stat("")
	if err != nil {
		return false, err
	}
	if st.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0 {
		no("the directory is immutable or append-only (chattr -i -a)")
	}
	if st.Dev != top.Dev {
		no("the directory is another subvolume than its root")
	}
	if slots := c.w.roots[p.root].slots; slots != nil && ok {
		in, err := slots.Stat("")
		if err != nil {
			return false, err
		}
		if (st.Attributes^in.Attributes)&unix.STATX_ATTR_ENCRYPTED != 0 {
			no("the directory is encrypted otherwise than the store")
		}
	}
	if err := d.Access("", unix.W_OK|unix.X_OK); err != nil && write && ok {
		if !errors.Is(err, unix.EACCES) {
			no("the directory: %s", errnoText(err))
		} else if st.UID != c.uid {
			no("the directory is not writable for you")
		} else {
			c.openStep(p, p, st)
		}
	}
	c.ensured[p] = ok
	c.times = append(c.times, c.timesStep(p, st))
	return ok, nil
}

// timesStep keeps the times of a directory in which steps act; see touch for
// those that get new ones. Times of another user's directory, /tmp for one, are
// not ours to set (utimensat(2)).
func (c *compiler) timesStep(p place, st sys.Stat) step {
	s := step{kind: times, from: p, to: p, new: sideOf(st), oldTime: keepTimes, newTime: keepTimes}
	if c.owns(&st) {
		s.oldTime[1] = st.Mtime
	}
	return s
}

func (c *compiler) owns(st *sys.Stat) bool { return c.uid == 0 || st.UID == c.uid }

func (c *compiler) openStep(p, to place, st sys.Stat) {
	c.opens = append(c.opens, step{
		kind: mode, from: p, to: to, new: sideOf(st), before: st.Perm(), after: st.Perm() | 0o700,
	})
}

// ensureLayer makes the layer's directory p, and those above it, accessible:
// now, for looking, and by a step, for moving out of it.
func (c *compiler) ensureLayer(p place) (bool, error) {
	if ok, known := c.ensured[p]; known {
		return ok, nil
	}
	if p.path != "" {
		up, _ := p.split()
		if ok, err := c.ensureLayer(up); err != nil || !ok {
			return ok, err
		}
	}
	d, err := c.w.dir(p)
	if err != nil {
		return false, err
	}
	st, err := d.Stat("")
	if err != nil {
		return false, err
	}
	copied := c.jobs[p.root].Copy
	need := uint32(unix.R_OK | unix.W_OK | unix.X_OK)
	if copied {
		need = unix.R_OK | unix.X_OK
	}
	if err := d.Access("", need); err != nil {
		if !errors.Is(err, unix.EACCES) || st.UID != c.uid {
			c.refuse(p.root, p.path, "its layer is not writable: %s", errnoText(err))
			c.ensured[p] = false
			return false, nil
		}
		if err := c.openNow(d, st.Perm()); err != nil {
			return false, err
		}
		if !copied {
			c.openStep(p, p, st)
		}
	}
	c.ensured[p] = true
	return true, nil
}

// keepLayerTimes emits the step that gives the layer's directory p, which an
// entry leaves, its times back on the way back.
func (c *compiler) keepLayerTimes(p place) error {
	if c.jobs[p.root].Copy || c.stamped[p] {
		return nil
	}
	d, err := c.w.dir(p)
	if err != nil {
		return err
	}
	st, err := d.Stat("")
	if err != nil {
		return err
	}
	c.stamped[p] = true
	c.times = append(c.times, c.timesStep(p, st))
	return nil
}

// openNow opens an inode of the layer for looking; closeAgain closes it.
func (c *compiler) openNow(d *sys.Dir, perm uint32) error {
	own, err := d.Sub("")
	if err != nil {
		return err
	}
	if err := own.Chmod("", perm|0o700); err != nil {
		own.Close()
		return err
	}
	c.parted = append(c.parted, reopened{own, perm})
	return nil
}

// room asks whether the copies of a root will fit.
func (c *compiler) room(root uint32) error {
	n := c.needs[root]
	if n.inodes == 0 || !c.jobs[root].Copy {
		return nil
	}
	st, err := c.w.roots[root].slots.StatFS()
	if err != nil {
		return err
	}
	free := int64(math.MaxInt64)
	if st.Bavail < math.MaxInt64/uint64(st.Bsize) {
		free = int64(st.Bavail) * st.Bsize
	}
	if n.bytes > free {
		c.refuse(root, "", "%d bytes are to be copied, %d are free: %d are missing", n.bytes, free, n.bytes-free)
	}
	if st.Files > 0 && uint64(n.inodes) > st.Ffree { // 0: the file system has no fixed number
		c.refuse(root, "", "%d files are to be copied, room is for %d: %d inodes are missing", n.inodes, st.Ffree, uint64(n.inodes)-st.Ffree)
	}
	return nil
}
