package commit

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/sys"
	"try/fs/vfs"
)

// since says from when on something must not have changed.
func (v *reverser) since() string {
	if v.redo {
		return "since it was undone"
	}
	return "since the commit"
}

// no is a conflict at f. What was looked at on the way is not acted in.
func (v *reverser) no(f *fact, why string) error {
	v.refuse(f.at.root, f.at.path, "%s", why)
	return nil
}

// turn compiles the step that exchanges the two states of f, if both are what
// they must be.
func (v *reverser) turn(f *fact, g *guard) error {
	st, d, name, err := v.w.look(f.at)
	var r *refusal
	if errors.As(err, &r) {
		return v.no(f, r.reason+" "+v.since())
	}
	if err != nil {
		return err
	}
	if why := g.why(v.w.path(f.at), st, f.meta != nil || f.kind == changes.Touched); why != "" {
		return v.no(f, why)
	}
	switch {
	case f.kind == changes.Touched:
		return v.touch(f, st)
	case f.meta != nil:
		return v.meta(f, st, d, name)
	}
	here, why, err := v.inBase(f, st, d, name)
	if err != nil {
		return err
	}
	if why != "" {
		return v.no(f, why)
	}
	away, why, err := v.inRecord(f)
	if err != nil {
		return err
	}
	if why != "" {
		return v.no(f, why)
	}
	if ok, err := v.reach(f, st); err != nil || !ok {
		return err
	}
	s := step{kind: swap, from: f.kept, to: f.at, new: away, old: here}
	switch {
	case f.here.none():
		s = step{kind: move, from: f.kept, to: f.at, new: away}
	case f.away.none():
		if v.w.roots[f.at.root].slots == nil {
			return v.no(f, "the store has no place on this file system")
		}
		s = step{kind: move, from: f.at, to: v.newSlot(f.at.root), new: here}
	}
	v.moves = append(v.moves, s)
	v.turned = append(v.turned, f)
	return nil
}

// inBase says whether what is in the base is what was left there, and may be
// taken out of it.
func (v *reverser) inBase(f *fact, st *sys.Stat, d *sys.Dir, name string) (s side, why string, err error) {
	if f.here.none() {
		if st != nil {
			return s, "made by somebody else " + v.since(), nil
		}
		return s, "", nil
	}
	if why := v.expected(f.here).difference(st); why != "" {
		return s, why + " " + v.since(), nil
	}
	s = sideOf(*st)
	s.shared = st.Nlink > 1 && !st.IsDir()
	if why, err := v.takeable(f.at, st, d, name, &s); why != "" || err != nil {
		return s, why, err
	}
	if st.IsRegular() && errors.Is(lease(d, name), errOpen) {
		return s, openFor(st), nil
	}
	if !st.IsDir() {
		return s, "", nil
	}
	sum, err := sumTree(d, name, false)
	if err != nil {
		return s, "", err
	}
	if sum != f.here.tree {
		return s, "something below it was added or changed " + v.since(), nil
	}
	s.tree, why, err = displacedSum(d, name)
	return s, why, err
}

// displacedSum sums up what leaves the base, or has left it, or says who writes
// to it.
func displacedSum(d *sys.Dir, name string) (t tree, why string, err error) {
	t, err = sumTree(d, name, true)
	if writer, ok := errors.AsType[*writerError](err); ok {
		return t, writer.Error(), nil
	}
	return t, "", err
}

// inRecord says whether what lies in the record is what was displaced: it may
// have other names in the base, and programs that had it open (H9, H15).
func (v *reverser) inRecord(f *fact) (s side, why string, err error) {
	if f.away.none() {
		return s, "", nil
	}
	if f.kept.area == inLayer {
		up, _ := f.kept.split()
		if ok, err := v.ensureLayer(up); err != nil || !ok {
			return s, "what was there before cannot be reached", err
		}
	}
	st, d, name, err := v.w.look(f.kept)
	if err != nil {
		return s, "", err
	}
	if why := v.expected(f.away).difference(st); why != "" {
		return s, "what was there before is not what it was: " + why + ", by a program that had it open or under another name", nil
	}
	s = sideOf(*st)
	s.shared = st.Nlink > 1 && !st.IsDir()
	if st.IsRegular() && errors.Is(lease(d, name), errOpen) {
		return s, "what was there before is " + openFor(st), nil
	}
	if !st.IsDir() {
		return s, "", nil
	}
	sum, why, err := displacedSum(d, name)
	if err != nil || why != "" {
		return s, "what was there before: " + why, err
	}
	if sum != f.away.tree {
		return s, "what was there before is not what it was: something below it was changed by a program that had it open or under another name", nil
	}
	if err := d.Access(name, unix.W_OK); err != nil {
		if !errors.Is(err, unix.EACCES) || st.UID != v.uid {
			return s, "what was there before cannot be moved: " + errnoText(err), nil
		}
		s.opened, s.open = true, st.Perm()|0o700
	}
	s.tree, err = sumTree(d, name, false)
	return s, "", err
}

// expected is how an entry that a journal describes must be now: a change in
// place may have come to it under another name.
func (v *reverser) expected(s side) *side {
	s.opened = false
	f := v.metas[s.id]
	if f == nil {
		return &s
	}
	c := f.meta
	if c.newPerm != nil {
		s.perm = *c.newPerm
	}
	if c.newOwner != nil {
		s.uid, s.gid = c.newOwner[0], c.newOwner[1]
	}
	if c.newTimes != nil {
		s.mtime = c.newTimes[1]
	}
	return &s
}

// reach makes the directory of f writable for the steps, or refuses f.
func (v *reverser) reach(f *fact, old *sys.Stat) (bool, error) {
	up, _ := f.at.split()
	before := len(v.refused)
	ok, err := v.ensure(up, true)
	if err != nil {
		return false, err
	}
	if !ok {
		why := "its directory cannot be changed"
		if len(v.refused) > before {
			why = v.refused[before].Reason
			v.refused = v.refused[:before]
		}
		return false, v.no(f, why)
	}
	sticky, err := v.sticky(f.at, old)
	if err != nil || sticky == "" {
		return err == nil, err
	}
	return false, v.no(f, sticky)
}

// meta compiles the way back of a change in place.
func (v *reverser) meta(f *fact, st *sys.Stat, d *sys.Dir, name string) error {
	want := v.expected(f.id)
	if st != nil && st.IsDir() {
		want.mtime = st.Mtime // its neighbours'
	}
	if why := want.difference(st); why != "" {
		return v.no(f, why+" "+v.since())
	}
	c := f.meta
	for _, x := range c.xattrs {
		now, err := d.Xattr(name, x.name)
		if errors.Is(err, unix.ENODATA) {
			now, err = nil, nil
		}
		if err != nil && !errors.Is(err, unix.EACCES) {
			return err
		}
		if err == nil && !equal(now, x.new) {
			return v.no(f, "its attribute "+x.name+" changed "+v.since())
		}
	}
	back := &change{oldPerm: c.newPerm, newPerm: c.oldPerm, oldOwner: c.newOwner, newOwner: c.oldOwner}
	if c.newTimes != nil {
		back.oldTimes, back.newTimes = &[2]sys.Time{sys.KeepTime, st.Mtime}, c.oldTimes
	}
	for _, x := range c.xattrs {
		back.xattrs = append(back.xattrs, xattr{name: x.name, old: x.new, new: x.old})
	}
	before := len(v.refused)
	if ok, err := v.alterable(f.at, d, name, st, back); err != nil || !ok {
		if len(v.refused) == before && err == nil {
			return v.no(f, "it cannot be altered")
		}
		return err
	}
	s := step{kind: meta, from: f.at, to: f.at, new: sideOf(*st), meta: back}
	s.new.shared = st.Nlink > 1 && !st.IsDir()
	if len(back.xattrs) > 0 && st.Type() != unix.S_IFLNK && v.uid != 0 {
		s.new.opened, s.new.open = true, st.Perm()|0o600
	}
	if st.IsDir() {
		if v.r.times[f.at] != nil {
			if ok, err := v.ensure(f.at, false); err != nil || !ok {
				return err
			}
		}
		v.dirs = append(v.dirs, s)
	} else {
		v.compiler.metas = append(v.compiler.metas, s)
	}
	v.turned = append(v.turned, f)
	return nil
}

// touch notes the step of a directory of which only the times were set.
func (v *reverser) touch(f *fact, st *sys.Stat) error {
	if t := v.r.times[f.at]; st == nil || st.Identity() != t.id {
		return v.no(f, "the directory was moved or replaced "+v.since())
	}
	before := len(v.refused)
	if ok, err := v.ensure(f.at, false); err != nil || !ok {
		if err == nil && len(v.refused) == before {
			return v.no(f, "the directory cannot be opened")
		}
		return err
	}
	v.turned = append(v.turned, f)
	return nil
}

// Changed lists what lies in the record and is not what was displaced: somebody
// still wrote to it, and it is kept nowhere else.
func (r *Record) Changed() ([]Conflict, error) {
	var all []Conflict
	for _, redo := range []bool{false, true} {
		v, err := r.reverser(vfs.Disk(), redo)
		if err != nil {
			return nil, err
		}
		v.refused = nil // of roots that cannot be opened: nothing can have changed there by itself
		for _, f := range v.chosen {
			_, why, err := v.inRecord(f)
			if err != nil {
				v.close()
				return nil, fmt.Errorf("look at what %s was before: %w", filepath.Join(r.roots[f.at.root].path, f.at.path), err)
			}
			if why != "" {
				v.refuse(f.at.root, f.at.path, "%s", why)
			}
		}
		all = append(all, v.refused...)
		v.close()
	}
	return all, nil
}
