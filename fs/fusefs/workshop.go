package fusefs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
)

// workshop is a directory on the layer's file system where entries are made
// before they move into the layer in one step, and where what left it goes.
type workshop struct {
	outer *sys.Dir
	name  string
	dir   *sys.Dir
	next  atomic.Uint64

	mu       sync.Mutex
	whiteout string // a whiteout, of which all others are links

	room    *room
	trash   chan string // names of directories to be removed
	stopped chan struct{}

	dead   chan *sys.Dir // what was removed and is to be let go of
	buried chan struct{}
}

// openWorkshop makes a directory of its own below path: what an engine that
// was killed left there stays for whoever removes the branch.
func openWorkshop(path string, room *room) (*workshop, error) {
	outer, err := sys.OpenDir(path)
	if err != nil {
		return nil, err
	}
	w := &workshop{outer: outer, room: room, trash: make(chan string, 1<<10), stopped: make(chan struct{}),
		dead: make(chan *sys.Dir, 1<<8), buried: make(chan struct{})}
	for i := 0; ; i++ {
		w.name = fmt.Sprintf("fuse-%d", i)
		err = outer.Mkdir(w.name, 0o700)
		if !errors.Is(err, unix.EEXIST) {
			break
		}
	}
	if err == nil {
		w.dir, err = outer.Sub(w.name)
	}
	if err != nil {
		outer.Close()
		return nil, err
	}
	room.dir = w.dir
	go w.sweep()
	go w.digger()
	return w, nil
}

// close removes what is left, which is little unless much was removed just
// now. An error is of no account: the whole is the branch's to remove.
func (w *workshop) close() {
	close(w.trash)
	close(w.dead)
	<-w.stopped
	<-w.buried
	w.remove("")
	w.dir.Close()
	w.outer.Rmdir(w.name)
	w.outer.Close()
}

// fresh is a name that nothing has.
func (w *workshop) fresh() string { return fmt.Sprintf("%x", w.next.Add(1)) }

// putWhiteout puts a whiteout where nothing is. All are links of one inode, as
// overlayfs has it: that is faster, and one inode instead of thousands.
func (w *workshop) putWhiteout(d *sys.Dir, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.whiteout != "" {
		err := w.dir.Link(w.whiteout, d, name)
		if !errors.Is(err, unix.EMLINK) {
			return err
		}
	}
	w.whiteout = w.fresh()
	if err := layer.MakeWhiteout(w.dir, w.whiteout); err != nil {
		w.whiteout = ""
		return err
	}
	return w.dir.Link(w.whiteout, d, name)
}

// aside makes a whiteout in the workshop, to be moved over something.
func (w *workshop) aside() (string, error) {
	as := w.fresh()
	return as, w.putWhiteout(w.dir, as)
}

// scrap has the directory name, which is in the workshop, removed by and by.
func (w *workshop) scrap(name string) {
	w.room.hold()
	select {
	case w.trash <- name:
	default: // much to do: it waits for close
	}
}

// bury closes the last descriptor of a removed file: of the layer behind the
// requests, as to free what it held takes the file system as long as all the
// rest.
func (w *workshop) bury(d *sys.Dir, ours bool) {
	if ours {
		select {
		case w.dead <- d:
			return
		default:
		}
	}
	d.Close()
	w.room.free()
}

func (w *workshop) digger() {
	defer close(w.buried)
	for d := range w.dead {
		d.Close()
		w.room.free()
	}
}

func (w *workshop) sweep() {
	defer close(w.stopped)
	for name := range w.trash {
		w.remove(name)
		w.room.free()
	}
}

// remove removes a directory and all below it; "" leaves the workshop itself.
func (w *workshop) remove(name string) {
	d, err := w.dir.Sub(name)
	if err != nil {
		return
	}
	defer d.Close()
	if d.Chmod("", 0o700) != nil {
		return
	}
	err = sys.Walk(d, func(v sys.Visit) (bool, error) {
		if v.Stat.IsDir() {
			return true, v.Dir.Chmod(v.Node.Name, 0o700)
		}
		return false, v.Dir.Unlink(v.Node.Name)
	}, func(v sys.Visit) error { return v.Dir.Rmdir(v.Node.Name) })
	if err == nil && name != "" {
		w.dir.Rmdir(name)
	}
}
