package supervisor

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/branch"
	"try/fs/sys"
	"try/supervisor/policy"
)

// What a session must leave of each file system that its layers are on: 2 % of
// the room and of the inodes, but a large disk has enough with 1 GiB.
const (
	leaveParts = 50
	leaveMost  = 1 << 30
)

// How often a watch looks: seldom enough to cost nothing, and oftener where a
// fast disk could be filled in between.
const (
	watchPeriod = time.Second
	watchNear   = watchPeriod / 5
	nearBytes   = 2 << 30
)

// StarvedError says that a session was ended because of what it had written:
// no disk is filled up, and no limit is only noticed at the commit (H29).
type StarvedError struct{ Why string }

func (e *StarvedError) Error() string { return "the command was ended: " + e.Why }

// watch looks at the file systems that the layers of a branch are on while its
// commands run.
type watch struct {
	max   policy.Limit // of the bytes that the layers hold
	disks []disk
	held  int64         // what the layers held when they were last walked
	grown int64         // what had been taken from the disks then
	rest  time.Time     // before which they are not walked again
	every time.Duration // from now to the next look
	said  bool          // that somebody else fills a disk
}

// disk is one file system.
type disk struct {
	layers []string
	name   string // of a root on it
	fsid   unix.Fsid
	start  room
}

// room is what is left of a file system.
type room struct{ bytes, inodes, allBytes, allInodes int64 }

// newWatch looks at the file systems before anything is written.
func newWatch(b *branch.Branch, max policy.Limit) (*watch, error) {
	w := &watch{max: max, every: watchPeriod}
	for i := range b.Roots {
		layer, err := b.Layer(i)
		if err != nil {
			return nil, err
		}
		now, id, err := roomOf(layer)
		if err != nil {
			return nil, err
		}
		if d := w.disk(id); d != nil {
			d.layers = append(d.layers, layer)
			continue
		}
		w.disks = append(w.disks, disk{[]string{layer}, b.Roots[i].Path, id, now})
	}
	return w, nil
}

func (w *watch) disk(id unix.Fsid) *disk {
	for i := range w.disks {
		if w.disks[i].fsid == id {
			return &w.disks[i]
		}
	}
	return nil
}

func roomOf(path string) (r room, id unix.Fsid, err error) {
	dir, err := sys.OpenDir(path)
	if err != nil {
		return r, id, err
	}
	defer dir.Close()
	st, err := dir.StatFS()
	size := int64(st.Frsize)
	return room{int64(st.Bavail) * size, int64(st.Ffree), int64(st.Blocks) * size, int64(st.Files)}, st.Fsid, err
}

// floor is what must be left of a file system on which there was so much at the
// start: who begins with less may use half of it.
func (r room) floor() (bytes, inodes int64) {
	return min(r.allBytes/leaveParts, leaveMost, r.bytes/2), min(r.allInodes/leaveParts, r.inodes/2)
}

// look says why the session must end, if it must. The layers are walked only
// if they can be the reason, and for a twentieth of the time at most.
func (w *watch) look(warn func(string)) (*StarvedError, error) {
	w.every = watchPeriod
	grown := int64(0)
	for i := range w.disks {
		d := &w.disks[i]
		now, _, err := roomOf(d.layers[0])
		if err != nil {
			return nil, err
		}
		grown += d.start.bytes - now.bytes
		bytes, inodes := d.start.floor()
		if now.bytes < bytes+nearBytes {
			w.every = watchNear
		}
		if now.bytes >= bytes && now.inodes >= inodes || !w.mayWalk() {
			continue
		}
		// Without what the layers hold there would be enough: else it is
		// somebody else who fills the disk, and ending the command no help.
		held := w.walk(d.layers)
		switch {
		case now.bytes < bytes && (!held.whole || held.bytes >= bytes-now.bytes):
			return &StarvedError{fmt.Sprintf("it left %d bytes on the file system of %s, fewer than %d", now.bytes, d.name, bytes)}, nil
		case now.inodes < inodes && (!held.whole || held.inodes >= inodes-now.inodes):
			return &StarvedError{fmt.Sprintf("it left %d inodes on the file system of %s, fewer than %d", now.inodes, d.name, inodes)}, nil
		case !w.said:
			w.said = true
			warn(fmt.Sprintf("the file system of %s is nearly full, and not because of this command", d.name))
		}
	}
	if !w.max.Set || grown-w.grown <= w.max.Max-w.held || !w.mayWalk() {
		return nil, nil
	}
	w.held, w.grown = 0, grown
	for i := range w.disks {
		held := w.walk(w.disks[i].layers)
		if !held.whole {
			held.bytes = max(held.bytes, grown)
		}
		w.held += held.bytes
	}
	if w.held > w.max.Max {
		return &StarvedError{fmt.Sprintf("its changes hold %d bytes, and max_bytes is %d (%s)", w.held, w.max.Max, w.max.At)}, nil
	}
	return nil, nil
}

func (w *watch) mayWalk() bool { return !time.Now().Before(w.rest) }

// holding is what layers hold, if whole, and at least if not.
type holding struct {
	bytes, inodes int64
	whole         bool
}

// walk counts what layers hold on their disk while they are written to. What
// the command closed, or moves meanwhile, is not seen.
func (w *watch) walk(layers []string) holding {
	began := time.Now()
	held := holding{whole: true}
	for _, layer := range layers {
		dir, err := sys.OpenDir(layer)
		if err != nil {
			held.whole = false
			continue
		}
		err = sys.Walk(dir, func(v sys.Visit) (bool, error) {
			links := int64(max(v.Stat.Nlink, 1))
			if v.Stat.IsDir() {
				links = 1
			}
			held.bytes += v.Stat.Blocks * 512 / links
			held.inodes++
			if v.Stat.IsDir() && v.Stat.Mode&0o500 != 0o500 && !sys.Root() {
				held.whole = false
				return false, nil
			}
			return true, nil
		}, nil)
		held.whole = held.whole && err == nil
		dir.Close() // O_PATH
	}
	w.rest = time.Now().Add(20 * time.Since(began))
	return held
}
