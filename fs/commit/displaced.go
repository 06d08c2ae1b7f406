package commit

import (
	"errors"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/fs/vfs"
)

// displaced judges what a step took out of the base. Nobody can open it there
// any more: who has it open for writing now had it before.
func (w *world) displaced(s *step, was *side, st *sys.Stat, d *sys.Dir, name string) error {
	if why := was.displacement(st); why != "" {
		return w.refuse(s, why, nil)
	}
	if s.baseAt().area != inBase {
		return nil
	}
	if was.id.Type == unix.S_IFREG {
		if err := lease(d, name); errors.Is(err, errOpen) {
			return w.refuse(s, openFor(st), nil)
		}
		return nil
	}
	if !isDir(was.id) || was.opened && was.perm&0o500 != 0o500 {
		return nil // what its owner cannot read, but for the move, was never summed up
	}
	t, err := sumTree(d, name, true)
	if writer, ok := errors.AsType[*writerError](err); ok {
		return w.refuse(s, writer.Error(), nil)
	}
	if err != nil {
		return w.refuse(s, "looking at what was displaced: "+errnoText(err), err)
	}
	if t != was.tree {
		return w.refuse(s, "something below it was added or changed", nil)
	}
	return nil
}

// keepTime gives a directory the time that an exchange took from it, see
// [side.displacement]. doubt: somebody may have been in it since; then its time
// is theirs.
func (w *world) keepTime(d *sys.Dir, name string, is *side, st *sys.Stat, doubt bool) error {
	if !isDir(is.id) || !is.is(st) || st.Mtime == is.mtime {
		return nil
	}
	if doubt {
		for _, ctimes := range []bool{false, true} { // a new one's sum, or one of the base's
			t, err := sumTree(d, name, ctimes)
			if err != nil && !errors.Is(err, unix.EACCES) && !errors.Is(err, sys.ErrMoved) {
				return err
			}
			if doubt = err != nil || t != is.tree; !doubt {
				break
			}
		}
		if doubt {
			return nil
		}
	}
	h, err := hold(d, name, is.id)
	if err != nil {
		return err
	}
	defer h.Close()
	return w.fs.Set(h, "", vfs.Attr{Times: &vfs.Times{Access: sys.KeepTime, Modify: is.mtime}})
}
