package commit

import (
	"errors"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/fs/vfs"
)

// forward does s, or what of it is not done yet. A *refusal says why it cannot
// be: then nothing, or something that [world.back] recognises, has happened.
//
// again says that s may have been done before a crash; look that what a done
// step displaced is still to be looked at.
func (w *world) forward(s *step, again, look bool) error {
	if w.roots[s.from.root].gone {
		return nil
	}
	switch s.kind {
	case move:
		return w.move(s, again, look)
	case swap:
		return w.swap(s, again, look)
	case strip:
		return w.strip(s, again)
	case mode:
		return w.mode(s, again)
	case meta:
		return w.change(s, again)
	case times:
		return w.setTimes(s, again)
	}
	panic("unknown " + s.kind.String())
}

// baseAt is the place of s in the base, which a message names; what goes aside
// has none.
func (s *step) baseAt() place {
	if (s.kind == move || s.kind == swap || s.kind == strip) && s.to.area == inBase {
		return s.to
	}
	return s.from
}

func (w *world) refuse(s *step, why string, err error) error {
	return &refusal{s.baseAt(), why, err}
}

func (w *world) move(s *step, again, look bool) error {
	st, from, name, err := w.look(s.from)
	if err != nil {
		return err
	}
	displaces := s.to.area == inSlots
	if !s.new.is(st) {
		// Ours is gone from its place, or was taken from the base: judged by the
		// side that nobody else renames in.
		if !again {
			return w.refuse(s, s.new.difference(st), nil)
		}
		if displaces {
			in, _, _, err := w.look(s.to)
			if err != nil {
				return err
			}
			if in == nil {
				return w.refuse(s, s.new.difference(st), nil)
			}
		}
		return w.settled(s, look)
	}
	why := s.new.difference(st)
	if s.from.area == inBase {
		why = s.new.untouched(st)
	}
	if why != "" {
		return w.refuse(s, why, nil)
	}
	if err := w.ready(from, name, &s.new); err != nil {
		return w.refuse(s, errnoText(err), err)
	}
	to, toName, err := w.at(s.to)
	if err != nil {
		return err
	}
	err = w.fs.Rename(from, name, to, toName)
	if err != nil {
		if done, e := w.gone(s); e != nil || !done {
			if errors.Is(err, unix.EEXIST) {
				return w.refuse(s, "exists in the base now", err)
			}
			return w.refuse(s, errnoText(err), errors.Join(err, e))
		}
	}
	return w.settled(s, displaces)
}

// gone says that a rename took place although it reported an error.
func (w *world) gone(s *step) (bool, error) {
	a, _, _, err := w.look(s.from)
	if err != nil {
		return false, err
	}
	b, _, _, err := w.look(s.to)
	if s.kind == swap {
		return err == nil && a != nil && !s.new.is(a) && s.new.is(b), err
	}
	return err == nil && !s.new.is(a) && s.new.is(b), err
}

// settled finishes a move that has taken place.
func (w *world) settled(s *step, look bool) error {
	if isDir(s.new.id) {
		w.release()
	}
	if s.to.area != inSlots && !s.new.opened && len(s.new.marks) == 0 {
		return nil
	}
	st, d, name, err := w.look(s.to)
	if err != nil {
		return err
	}
	if s.to.area == inSlots {
		if look {
			if err := w.displaced(s, &s.new, st, d, name); err != nil {
				return err
			}
		}
		return w.shut(d, name, &s.new, st)
	}
	return w.arrived(d, name, &s.new, st)
}

// arrived finishes what lies in the base now. Marks are taken off once more,
// since their removal may not have reached the disk before a crash.
func (w *world) arrived(d *sys.Dir, name string, is *side, st *sys.Stat) error {
	if !is.is(st) || !is.opened && len(is.marks) == 0 {
		return nil // as it should be, or somebody else's by now
	}
	if !isDir(is.id) && st.Perm() == is.perm && len(is.marks) == 0 {
		return nil
	}
	h, err := hold(d, name, is.id)
	if err != nil {
		if absent(err) || errors.Is(err, unix.ESTALE) {
			return nil
		}
		return err
	}
	defer h.Close()
	if err := w.stripMarks(h, "", is, st.Perm()); err != nil {
		return err
	}
	return w.perm(h, "", st.Perm(), is.perm, is)
}

// ready opens an entry that is to be moved, and takes its marks off.
func (w *world) ready(d *sys.Dir, name string, is *side) error {
	if !is.opened && len(is.marks) == 0 {
		return nil
	}
	if is.opened {
		if err := w.fs.Set(d, name, vfs.Attr{Mode: &is.open}); err != nil {
			return err
		}
	}
	if err := w.takeMarks(d, name, is.marks); err != nil {
		return err
	}
	if is.opened && !isDir(is.id) { // a file needs it for its marks alone
		return w.fs.Set(d, name, vfs.Attr{Mode: &is.perm})
	}
	return nil
}

// shut gives an entry its own permissions back.
func (w *world) shut(d *sys.Dir, name string, is *side, st *sys.Stat) error {
	if !is.opened || !is.is(st) {
		return nil
	}
	h, err := hold(d, name, is.id)
	if err != nil {
		return err
	}
	defer h.Close()
	return w.perm(h, "", st.Perm(), is.perm, is)
}

// perm sets the permissions that is had, if those found are the move's.
func (w *world) perm(d *sys.Dir, name string, found, want uint32, is *side) error {
	if !is.opened || found == want || found != is.open {
		return nil
	}
	return w.fs.Set(d, name, vfs.Attr{Mode: &want})
}

// takeMarks makes an entry of the layer one of the base.
func (w *world) takeMarks(d *sys.Dir, name string, marks []mark) error {
	for _, m := range marks {
		if m.from != "" {
			if err := w.fs.Set(d, name, vfs.Attr{Xattr: m.from, Remove: true}); err != nil && !errors.Is(err, unix.ENODATA) {
				return err
			}
		}
		if m.to != "" {
			if err := w.fs.Set(d, name, vfs.Attr{Xattr: m.to, Value: m.value}); err != nil {
				return err
			}
		}
	}
	return nil
}

// putMarks is takeMarks backwards.
func (w *world) putMarks(d *sys.Dir, name string, marks []mark) error {
	for i := len(marks) - 1; i >= 0; i-- {
		m := marks[i]
		if m.to != "" {
			if err := w.fs.Set(d, name, vfs.Attr{Xattr: m.to, Remove: true}); err != nil && !errors.Is(err, unix.ENODATA) {
				return err
			}
		}
		if m.from != "" {
			if err := w.fs.Set(d, name, vfs.Attr{Xattr: m.from, Value: m.value}); err != nil {
				return err
			}
		}
	}
	return nil
}

// stripMarks takes marks off where that may have been done already: it looks
// first, so that a done step costs no write.
func (w *world) stripMarks(d *sys.Dir, name string, is *side, found uint32) error {
	if len(is.marks) == 0 {
		return nil
	}
	names, err := d.XattrNames(name)
	if err != nil {
		return err
	}
	if marksTaken(names, is.marks) {
		return nil
	}
	if is.opened && found != is.open {
		if err := w.fs.Set(d, name, vfs.Attr{Mode: &is.open}); err != nil {
			return err
		}
	}
	if err := w.takeMarks(d, name, is.marks); err != nil {
		return err
	}
	if is.opened && !isDir(is.id) {
		return w.fs.Set(d, name, vfs.Attr{Mode: &is.perm})
	}
	return nil
}

func marksTaken(names []string, marks []mark) bool {
	has := make(map[string]bool, len(names))
	for _, n := range names {
		has[n] = true
	}
	for _, m := range marks {
		if m.from != "" && has[m.from] || m.to != "" && !has[m.to] {
			return false
		}
	}
	return true
}

func (w *world) swap(s *step, again, look bool) error {
	in, from, name, err := w.look(s.from)
	if err != nil {
		return err
	}
	if !s.new.is(in) {
		if !again {
			return w.refuse(s, w.inside(inLayer)+": "+s.new.difference(in), nil)
		}
		if in == nil {
			return w.refuse(s, "what it displaced is no longer at "+w.path(s.from), nil)
		}
		return w.swapped(s, in, from, name, true, look)
	}
	if why := s.new.difference(in); why != "" {
		return w.refuse(s, w.inside(inLayer)+": "+why, nil)
	}
	at, to, toName, err := w.look(s.to)
	if err != nil {
		return err
	}
	if why := s.old.untouched(at); why != "" {
		return w.refuse(s, why, nil)
	}
	if err := w.ready(from, name, &s.new); err != nil {
		return w.refuse(s, errnoText(err), err)
	}
	if err := w.ready(to, toName, &s.old); err != nil {
		return w.refuse(s, errnoText(err), err)
	}
	if err := w.fs.Exchange(from, name, to, toName); err != nil {
		if done, e := w.gone(s); e != nil || !done {
			return w.refuse(s, errnoText(err), errors.Join(err, e))
		}
	}
	in, from, name, err = w.look(s.from)
	if err != nil {
		return err
	}
	return w.swapped(s, in, from, name, false, true)
}

// swapped finishes an exchange that has taken place; in is what lies at from.
func (w *world) swapped(s *step, in *sys.Stat, from *sys.Dir, name string, again, look bool) error {
	if look || !s.old.is(in) {
		if err := w.displaced(s, &s.old, in, from, name); err != nil {
			return err
		}
	}
	if err := w.keepTime(from, name, &s.old, in, again); err != nil {
		return err
	}
	if err := w.shut(from, name, &s.old, in); err != nil {
		return err
	}
	if isDir(s.new.id) || isDir(s.old.id) {
		w.release()
	}
	if !isDir(s.new.id) && !s.new.opened && len(s.new.marks) == 0 {
		return nil
	}
	if !again && !isDir(s.new.id) && !s.new.opened {
		return nil // this process has just taken the marks
	}
	at, to, toName, err := w.look(s.to)
	if err != nil {
		return err
	}
	if err := w.keepTime(to, toName, &s.new, at, again); err != nil {
		return err
	}
	return w.arrived(to, toName, &s.new, at)
}

// strip finds its entry where it was or where a directory above took it.
func (w *world) strip(s *step, again bool) error {
	st, d, name, err := w.find(s)
	if err != nil {
		return err
	}
	if st == nil {
		if again {
			return nil // moved, then taken away by somebody
		}
		return w.refuse(s, "no longer in the layer", nil)
	}
	if again {
		if err := w.stripMarks(d, name, &s.new, st.Perm()); err != nil {
			return err
		}
		if st, d, name, err = w.find(s); err != nil || st == nil {
			return err
		}
		return w.shut(d, name, &s.new, st)
	}
	if why := s.new.difference(st); why != "" {
		return w.refuse(s, w.inside(inLayer)+": "+why, nil)
	}
	if err := w.ready(d, name, &s.new); err != nil {
		return w.refuse(s, errnoText(err), err)
	}
	if isDir(s.new.id) && s.new.opened {
		return w.fs.Set(d, name, vfs.Attr{Mode: &s.new.perm})
	}
	return nil
}

// find looks for the entry of s at from, then at to.
func (w *world) find(s *step) (*sys.Stat, *sys.Dir, string, error) {
	st, d, name, err := w.look(s.from)
	if err != nil || s.new.is(st) {
		return st, d, name, err
	}
	if s.to == s.from {
		return nil, nil, "", nil
	}
	st, d, name, err = w.look(s.to)
	if err != nil || s.new.is(st) {
		return st, d, name, err
	}
	return nil, nil, "", nil
}

func (w *world) mode(s *step, again bool) error {
	return w.setMode(s, s.before, s.after, again)
}

func (w *world) setMode(s *step, before, after uint32, again bool) error {
	st, d, name, err := w.find(s)
	if err != nil {
		return err
	}
	if st == nil {
		if again {
			return nil
		}
		return w.refuse(s, "the directory was moved or replaced", nil)
	}
	if st.Perm() == after {
		return nil
	}
	// Who does it again must get in again, whatever a later step has set.
	if st.Perm() != before && (!again || !w.ourPerm(s, st.Perm())) {
		return w.refuse(s, "its mode changed", nil)
	}
	h, err := hold(d, name, s.new.id)
	if err != nil {
		return w.refuse(s, errnoText(err), err)
	}
	defer h.Close()
	if err := w.fs.Set(h, "", vfs.Attr{Mode: &after}); err != nil {
		return w.refuse(s, errnoText(err), err)
	}
	return nil
}

func (w *world) setTimes(s *step, again bool) error {
	keep := s.newTime == keepTimes
	if keep && s.from.area != inBase {
		return nil // only for the way back
	}
	st, d, name, err := w.look(s.from)
	if err != nil {
		return err
	}
	if !s.new.is(st) {
		if again && s.to != s.from {
			return nil // moved on, so this had been done
		}
		return w.refuse(s, "the directory was moved or replaced", nil)
	}
	if keep {
		return nil
	}
	return w.timesOf(d, name, s, s.newTime)
}

var keepTimes = [2]sys.Time{sys.KeepTime, sys.KeepTime}

func (w *world) timesOf(d *sys.Dir, name string, s *step, t [2]sys.Time) error {
	h, err := hold(d, name, s.new.id)
	if err != nil {
		return w.refuse(s, errnoText(err), err)
	}
	defer h.Close()
	if err := w.fs.Set(h, "", vfs.Attr{Times: &vfs.Times{Access: t[0], Modify: t[1]}}); err != nil {
		return w.refuse(s, errnoText(err), err)
	}
	return nil
}
