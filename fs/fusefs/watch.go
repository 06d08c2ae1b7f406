package fusefs

import (
	"encoding/binary"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// watch tells the kernel when somebody outside changes what it has cached of
// the base (inotify(7)). Each directory of the base is watched from before it
// is first read, so what the kernel was told may last for ever: it is taken
// back when it is no longer true. A directory that cannot be watched, because
// there are too many, is believed for a second only.
type watch struct {
	file *os.File
	fd   int // of file, for adding and removing
	tree *tree
	conn *conn

	mu   sync.Mutex
	dirs map[int32]*node

	once  sync.Once
	ended chan struct{}
}

// watched is what became of a directory's watch.
type watched uint8

const (
	unwatched watched = iota
	isWatched
	cannotWatch
)

const outsideMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_ONLYDIR

// openWatch is without a watch, too, where there are too many instances.
func openWatch(t *tree) *watch {
	w := &watch{tree: t, dirs: make(map[int32]*node), fd: -1, ended: make(chan struct{})}
	if fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err == nil {
		w.fd, w.file = fd, os.NewFile(uintptr(fd), "inotify")
	}
	return w
}

// start begins to tell c.
func (w *watch) start(c *conn) {
	w.conn = c
	if w.file == nil {
		close(w.ended)
		return
	}
	go w.loop()
}

// close returns when the kernel is told nothing more. Until then requests must
// be answered.
func (w *watch) close() {
	w.once.Do(func() {
		if w.file != nil {
			w.file.Close()
		}
	})
	if w.conn != nil {
		<-w.ended
	}
}

// add watches the base's part of n, before anything is read there, and says
// whether what is read may last. The caller holds the tree.
func (w *watch) add(n *node) bool {
	switch watched(n.dir.watched.Load()) {
	case isWatched:
		return true
	case cannotWatch:
		return false
	}
	in := n.part(w.tree.base)
	if in == nil {
		return true
	}
	state := cannotWatch
	if h, err := w.tree.open(n, in); err == nil {
		w.mu.Lock()
		wd, err := unix.InotifyAddWatch(w.fd, "/proc/self/fd/"+strconv.Itoa(h.dir.FD()), outsideMask)
		if err == nil {
			w.dirs[int32(wd)] = n
			n.dir.wd.Store(int32(wd))
			state = isWatched
		}
		w.mu.Unlock()
		w.tree.fds.done(h)
	}
	n.dir.watched.Store(uint32(state))
	return state == isWatched
}

// drop ends the watch of a directory that the kernel has forgotten.
func (w *watch) drop(n *node) {
	if watched(n.dir.watched.Load()) != isWatched {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if wd := n.dir.wd.Load(); w.dirs[wd] == n { // and not of a newer node of the same directory
		delete(w.dirs, wd)
		unix.InotifyRmWatch(w.fd, uint32(wd))
	}
}

func (w *watch) loop() {
	defer close(w.ended)
	buf := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil { // closed
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(rest))
			mask := binary.NativeEndian.Uint32(rest[4:])
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			w.event(wd, mask, unix.ByteSliceToString(rest[unix.SizeofInotifyEvent:size]))
			rest = rest[size:]
		}
	}
}

// event takes back what was said of one name. No lock is held while the
// kernel is told: it waits until nobody looks anything up in the directory, so
// that an answer under way with what was true before is taken back, too.
func (w *watch) event(wd int32, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		w.conn.dropCaches(w.tree)
		return
	}
	w.mu.Lock()
	n := w.dirs[wd]
	w.mu.Unlock()
	if n == nil {
		return
	}
	if name == "" { // the directory itself: of one that is not the root its parent's watch tells more
		if mask&unix.IN_ATTRIB != 0 {
			w.conn.dropInode(n.id)
		}
		return
	}
	if mask&(unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO) != 0 {
		n.changed()
		w.conn.dropInode(n.id) // the kernel's list of its names
	}
	c := n.child(name)
	switch {
	case c == nil:
	case c.isDir() && mask&unix.IN_ATTRIB != 0:
		w.conn.dropInode(c.id)
		return
	case !c.isDir() && c.level.Load() == 0 || w.same(n, name, c):
		return
	default:
		w.tree.disown(c)
		n.dropChild(name, c)
	}
	w.conn.dropName(n.id, name)
}

func (w *watch) same(n *node, name string, c *node) bool {
	w.tree.RLock()
	defer w.tree.RUnlock()
	_, same := w.tree.same(n, name, c)
	return same
}

// lasting says whether what is read of the base in p may last.
func (t *tree) lasting(p *node) bool {
	return p == nil || p.part(t.base) == nil || watched(p.dir.watched.Load()) == isWatched
}
