package branch

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// foreignLook is how many entries of a root are looked at: what is deeper, or
// behind them, is found by whoever names --engine fuse.
const foreignLook = 64

// errSeen ends a look.
var errSeen = errors.New("seen enough")

// findForeign says what directly in a root the user may write outside but not in
// a session that maps his one id and his first group: what is another's and open
// to a group of his or to all, and what is his own but of another group (FACTS
// B6); or that the root gives another group to files. "" if nothing was seen.
// Links, sockets and devices are not written.
func findForeign(dir *sys.Dir, st sys.Stat) (string, error) {
	groups, err := os.Getgroups()
	if err != nil {
		return "", fmt.Errorf("read own groups: %w", err)
	}
	me := ids{uint32(os.Geteuid()), uint32(os.Getegid()), groups}
	// Its layer is the user's, so that he can make files in it under any engine;
	// but a group that they are to get must be known.
	if st.GID != me.gid && st.Mode&unix.S_ISGID != 0 {
		return dir.Name() + " gives files another group", nil
	}
	what, left := "", foreignLook
	err = dir.Each(func(e sys.Dirent) error {
		if left--; left < 0 {
			return errSeen
		}
		if e.Type != unix.DT_REG && e.Type != unix.DT_DIR && e.Type != unix.DT_UNKNOWN {
			return nil
		}
		entry, err := dir.Stat(e.Name)
		if err == nil && me.foreign(entry) {
			what = fmt.Sprintf("%s/%s is another's or of another group", dir.Name(), e.Name)
			return errSeen
		}
		return nil //lint:allow error what is gone or cannot be looked at is not written
	})
	if errors.Is(err, errSeen) || errors.Is(err, unix.EACCES) { // it may be written but not listed
		err = nil
	}
	return what, err
}

// ids are those of a user outside.
type ids struct {
	uid, gid uint32
	groups   []int
}

func (i ids) foreign(s sys.Stat) bool {
	switch {
	case !s.IsRegular() && !s.IsDir():
		return false
	case s.UID == i.uid:
		return s.GID != i.gid
	}
	return s.Mode&0o002 != 0 || s.Mode&0o020 != 0 && slices.Contains(i.groups, int(s.GID))
}
