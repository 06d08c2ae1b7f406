package commit

import (
	"errors"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/fs/vfs"
)

// back undoes s, or what of it has been done. What somebody else has made
// meanwhile stays, and is noted in w.left. An error is a call that did not
// work: the roll-back stops and is to be finished later.
func (w *world) back(s *step) error {
	if w.roots[s.from.root].gone {
		return nil
	}
	switch s.kind {
	case move:
		return w.moveBack(s)
	case swap:
		return w.swapBack(s)
	case strip:
		st, d, name, err := w.find(s)
		if err != nil || st == nil {
			return w.passed(err)
		}
		return w.restore(d, name, &s.new, st)
	case mode:
		err := w.setMode(s, s.after, s.before, true)
		if err == nil {
			w.isBack(s.from)
		}
		var r *refusal
		if errors.As(err, &r) && r.err == nil {
			w.leave(s, r.reason, place{})
			return nil
		}
		return w.passed(err)
	case meta:
		return w.changeBack(s)
	case times:
		return w.timesBack(s)
	}
	panic("unknown " + s.kind.String())
}

// isBack notes that p, if it is in the base, is as it was but for its ctime.
func (w *world) isBack(p place) {
	if p.area == inBase {
		w.restored = append(w.restored, Restored{w.roots[p.root].path, p.path})
	}
}

// passed drops a refusal that says a directory is not the one that was acted
// in: it is somebody else's by now.
func (w *world) passed(err error) error {
	var r *refusal
	if errors.As(err, &r) && (r.err == nil || errors.Is(r.err, unix.ELOOP) || errors.Is(r.err, unix.EXDEV) || absent(r.err)) {
		return nil
	}
	return err
}

// leave notes that s cannot be undone, and where the old entry is kept.
func (w *world) leave(s *step, why string, kept place) {
	at := s.baseAt()
	l := Left{Path: w.path(at), Why: why}
	if kept.area != 0 {
		l.Kept = w.path(kept)
	}
	w.left = append(w.left, l)
	up, _ := at.split()
	w.foreign[up] = true
}

func (w *world) moveBack(s *step) error {
	st, from, name, err := w.look(s.from)
	if err := w.passed(err); err != nil {
		return err
	}
	in, to, toName, err := w.look(s.to)
	if err := w.passed(err); err != nil {
		return err
	}
	if s.to.area != inSlots {
		if s.new.is(st) { // not done
			return w.restore(from, name, &s.new, st)
		}
		why, err := w.ours(&s.new, in, to, toName)
		if err != nil {
			return err
		}
		if why != "" {
			w.leave(s, why, place{})
			return nil
		}
	} else {
		// In the slots lies what the step took away, whatever it is.
		if in == nil {
			return w.restore(from, name, &s.new, st)
		}
		if st != nil || from == nil {
			w.leave(s, "made anew by somebody else", s.to)
			return nil
		}
	}
	if err := w.open(to, toName, &s.new, in); err != nil {
		return err
	}
	if err := w.fs.Rename(to, toName, from, name); err != nil {
		if s.to.area == inSlots && errors.Is(err, unix.EEXIST) {
			w.leave(s, "made anew by somebody else", s.to)
			return w.shut(to, toName, &s.new, in)
		}
		if now, _, _, e := w.look(s.from); e != nil || now == nil || now.Identity() != in.Identity() {
			return err
		}
	}
	if isDir(in.Identity()) {
		w.release()
	}
	st, from, name, err = w.look(s.from)
	if err != nil || st == nil {
		return err
	}
	w.isBack(s.from)
	return w.restore(from, name, &s.new, st)
}

// ours says why an entry in the base is not, or not only, what we put there.
func (w *world) ours(is *side, st *sys.Stat, d *sys.Dir, name string) (string, error) {
	if why := is.displacement(st); why != "" {
		return why, nil
	}
	if !isDir(is.id) || is.tree.count == 0 && st.Mtime == is.mtime {
		return "", nil
	}
	t, err := sumTree(d, name, false)
	if errors.Is(err, sys.ErrMoved) {
		return "changed while it was looked at", nil
	}
	if err != nil {
		return "", err
	}
	if t != is.tree {
		return "something below it was added or changed", nil
	}
	return "", nil
}

// open makes a directory movable again.
func (w *world) open(d *sys.Dir, name string, is *side, st *sys.Stat) error {
	if !is.opened || !isDir(is.id) || !is.is(st) || st.Perm() == is.open {
		return nil
	}
	h, err := hold(d, name, is.id)
	if err != nil {
		return err
	}
	defer h.Close()
	return w.fs.Set(h, "", vfs.Attr{Mode: &is.open})
}

// restore gives an entry that is back in its place, or never left it, its
// marks and permissions.
func (w *world) restore(d *sys.Dir, name string, is *side, st *sys.Stat) error {
	if !is.is(st) || !is.opened && len(is.marks) == 0 {
		return nil
	}
	h, err := hold(d, name, is.id)
	if err != nil {
		return err
	}
	defer h.Close()
	found := st.Perm()
	if len(is.marks) > 0 {
		if is.opened && found != is.open {
			if err := w.fs.Set(h, "", vfs.Attr{Mode: &is.open}); err != nil {
				return err
			}
			found = is.open
		}
		if err := w.putMarks(h, "", is.marks); err != nil {
			return err
		}
	}
	return w.perm(h, "", found, is.perm, is)
}

func (w *world) swapBack(s *step) error {
	in, from, name, err := w.look(s.from)
	if err := w.passed(err); err != nil {
		return err
	}
	at, to, toName, err := w.look(s.to)
	if err := w.passed(err); err != nil {
		return err
	}
	if s.new.is(in) { // not done, or undone already
		if err := w.keepTime(from, name, &s.new, in, true); err != nil {
			return err
		}
		if err := w.keepTime(to, toName, &s.old, at, true); err != nil {
			return err
		}
		if err := w.restore(from, name, &s.new, in); err != nil {
			return err
		}
		return w.restore(to, toName, &s.old, at)
	}
	if in == nil {
		w.leave(s, "what it displaced is gone", place{})
		return nil
	}
	why, err := w.ours(&s.new, at, to, toName)
	if err != nil {
		return err
	}
	if why != "" {
		w.leave(s, why, s.from)
		return w.shut(from, name, &s.old, in)
	}
	if err := errors.Join(w.open(from, name, &s.old, in), w.open(to, toName, &s.new, at)); err != nil {
		return err
	}
	if err := w.fs.Exchange(to, toName, from, name); err != nil {
		if now, _, _, e := w.look(s.from); e != nil || !s.new.is(now) {
			return err
		}
	}
	if isDir(s.new.id) || isDir(in.Identity()) {
		w.release()
	}
	if in, from, name, err = w.look(s.from); err != nil {
		return err
	}
	if err := w.keepTime(from, name, &s.new, in, true); err != nil {
		return err
	}
	if !s.new.is(in) && in != nil {
		// Replaced between look and exchange: theirs goes back into the base, and
		// what was there before stays in the branch.
		if err := w.fs.Exchange(from, name, to, toName); err != nil {
			return err
		}
		w.leave(s, "replaced by another", s.from)
		return nil
	}
	w.isBack(s.to)
	if err := w.restore(from, name, &s.new, in); err != nil {
		return err
	}
	if at, to, toName, err = w.look(s.to); err != nil {
		return err
	}
	if err := w.keepTime(to, toName, &s.old, at, true); err != nil {
		return err
	}
	return w.restore(to, toName, &s.old, at)
}

func (w *world) changeBack(s *step) error {
	st, d, name, err := w.look(s.from)
	if err := w.passed(err); err != nil {
		return err
	}
	if !s.new.is(st) {
		w.leave(s, s.new.difference(st), place{})
		return nil
	}
	h, err := hold(d, name, s.new.id)
	if err != nil {
		return err
	}
	defer h.Close()
	if s.meta.newPerm != nil && st.Perm() != *s.meta.newPerm && st.Perm() != *s.meta.oldPerm && w.ourPerm(s, st.Perm()) {
		return nil // a directory that is still open for other steps: not done
	}
	why, err := s.meta.foreign(h, &s.new)
	if err != nil {
		return err
	}
	if why != "" {
		w.leave(s, why, place{})
		return nil
	}
	w.isBack(s.from)
	return w.set(h, s.meta, &s.new, true)
}

// timesBack undoes what the steps did to a directory's times, unless somebody
// else was there: then it shows, as it should, that something changed.
func (w *world) timesBack(s *step) error {
	if w.foreign[s.from] {
		return nil
	}
	st, d, name, err := w.look(s.from)
	if err != nil || !s.new.is(st) {
		return w.passed(err)
	}
	if s.oldTime == keepTimes || st.Mtime == s.oldTime[1] {
		return nil
	}
	w.isBack(s.from)
	return w.passed(w.timesOf(d, name, s, s.oldTime))
}
