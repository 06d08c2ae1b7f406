package commit

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/sys"
)

// Writers lists the files of the base that plan displaces and somebody has open
// for writing, or mapped: what they write later would go to a file that has no
// name in the base any more. A file that another user owns, or whose file
// system has no leases, is not known of.
func Writers(plan *changes.Plan) ([]Conflict, error) {
	var found []Conflict
	uid := uint32(unix.Geteuid())
	for i := range plan.Roots {
		p := &plan.Roots[i]
		w := nodeWay{top: p.Root.Base}
		look := func(n *sys.Node, st *sys.Stat) error {
			if st == nil || !st.IsRegular() || uid != 0 && st.UID != uid {
				return nil
			}
			d, err := w.to(n.Parent)
			if err == nil {
				err = lease(d, n.Name)
			}
			if errors.Is(err, errOpen) {
				found = append(found, Conflict{p.Root.Path, n.Path(), openFor(st)})
			} else if err != nil && !elsewhere(err) {
				return fmt.Errorf("ask who writes to %s/%s: %w", p.Root.Path, n.Path(), err)
			}
			return nil
		}
		var err error
		for k := 0; k < len(p.Changes) && err == nil; k++ {
			c := &p.Changes[k]
			if c.Fields != nil {
				continue
			}
			err = look(c.Node, c.Base)
			if c.Carry == nil {
				continue
			}
			for n := 0; n < len(c.Carry.Kept) && err == nil; n++ {
				err = look(c.Carry.Kept[n].Node, &c.Carry.Kept[n].Base)
			}
		}
		w.close()
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// elsewhere says that an entry is closed to the caller, or no longer where it
// was listed: that is for others to say.
func elsewhere(err error) bool {
	for _, e := range []error{unix.EACCES, unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV, sys.ErrMoved} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

var errOpen = errors.New("open for writing")

// lease asks, by a read lease, whether anyone has the file open for writing
// (fcntl(2), F_SETLEASE): such a descriptor would go on writing to what is the
// base's file after the commit, or to what it was before. Where there are no
// leases nothing is known. The lease ends with the descriptor.
func lease(d *sys.Dir, name string) error {
	fd, err := d.OpenFD(name, unix.O_RDONLY, 0)
	if errors.Is(err, unix.EAGAIN) { // somebody else's lease on what he writes
		return errOpen
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	if errors.Is(err, unix.EAGAIN) {
		return errOpen
	}
	return nil // EINVAL, EACCES, ENOLCK: this file system or owner has none
}

// openFor names who writes to a file, where that can be seen.
func openFor(st *sys.Stat) string {
	const most = 3
	list, more := holders(st, most)
	if len(list) == 0 {
		return "open for writing"
	}
	text := "open for writing by " + strings.Join(list, ", ")
	if more {
		text += " and others"
	}
	return text
}

// holders lists processes that have the file open for writing or mapped, as
// far as /proc tells the caller (proc(5)).
func holders(st *sys.Stat, most int) (list []string, more bool) {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err != nil || !holds("/proc/"+p.Name(), st) {
			continue
		}
		if len(list) == most {
			return list, true
		}
		comm, _ := os.ReadFile("/proc/" + p.Name() + "/comm")
		list = append(list, fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(comm)), p.Name()))
	}
	return list, false
}

func holds(proc string, st *sys.Stat) bool {
	fds, _ := os.ReadDir(proc + "/fd")
	for _, fd := range fds {
		var at unix.Stat_t
		if unix.Stat(proc+"/fd/"+fd.Name(), &at) != nil || at.Ino != st.Ino || at.Dev != st.Dev {
			continue
		}
		info, _ := os.ReadFile(proc + "/fdinfo/" + fd.Name())
		for line := range strings.Lines(string(info)) {
			text, ok := strings.CutPrefix(line, "flags:")
			flags, err := strconv.ParseUint(strings.TrimSpace(text), 8, 64)
			if ok && err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY {
				return true
			}
		}
	}
	maps, _ := os.ReadFile(proc + "/maps")
	for line := range strings.Lines(string(maps)) {
		// address perms offset dev inode path; on btrfs dev is not that of stat(2)
		f := strings.Fields(line)
		if len(f) < 6 || !strings.HasPrefix(f[1], "rw") || !strings.HasSuffix(f[1], "s") || f[4] != strconv.FormatUint(st.Ino, 10) {
			continue
		}
		var at unix.Stat_t
		_, path, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "/")
		if unix.Stat("/"+path, &at) == nil && at.Ino == st.Ino && at.Dev == st.Dev {
			return true
		}
	}
	return false
}

// nodeWay is a way by nodes: their paths are never joined.
type nodeWay struct {
	top   *sys.Dir
	at    *sys.Descent
	stack []*sys.Node
	depth map[*sys.Node]int // of those in stack: place behind it
}

// to returns the directory of n, nil for the top, open until the next call.
func (w *nodeWay) to(n *sys.Node) (*sys.Dir, error) {
	if w.at == nil {
		at, err := sys.NewDescent(w.top)
		if err != nil {
			return nil, err
		}
		w.at, w.stack, w.depth = at, nil, map[*sys.Node]int{}
	}
	var down []*sys.Node
	for ; n != nil && w.depth[n] == 0; n = n.Parent {
		down = append(down, n)
	}
	for len(w.stack) > w.depth[n] {
		last := len(w.stack) - 1
		delete(w.depth, w.stack[last])
		w.stack = w.stack[:last]
		if err := w.at.Leave(); err != nil {
			w.close()
			return nil, err
		}
	}
	for i := len(down) - 1; i >= 0; i-- {
		if err := w.at.Enter(down[i].Name); err != nil {
			return nil, err
		}
		w.stack = append(w.stack, down[i])
		w.depth[down[i]] = len(w.stack)
	}
	return w.at.Dir(), nil
}

func (w *nodeWay) close() {
	if w.at != nil {
		w.at.Close()
		w.at = nil
	}
}
