package commit

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/sys"
)

// syncFiles is up to how many new files are synced one by one: one syncfs for
// all costs more than that, and waits for other people's data too.
const syncFiles = 32

// WriteAhead has the kernel begin to write out what a commit of plan would
// sync, so that the disk is at work while the plan is judged: a few files one
// by one, else their file systems. It saves time and promises nothing: errors
// are for the sync to hear, which has descriptors of its own
// (sync_file_range(2), SYNC_FILE_RANGE_WRITE; syncfs(2)).
func WriteAhead(plan *changes.Plan) {
	var files []*changes.Change
	var layers []*sys.Dir // of each file
	for i := range plan.Roots {
		r := &plan.Roots[i]
		before := len(files)
		for k := range r.Changes {
			c := &r.Changes[k]
			if c.Layer != nil && c.Layer.IsRegular() && c.Kind != changes.Metadata && c.Kind != changes.Touched {
				files, layers = append(files, c), append(layers, r.Root.Layer)
			}
			if len(files)-before > syncFiles {
				files, layers = files[:before], layers[:before]
				syncBehind(r.Root.Layer)
				break
			}
		}
	}
	var open []*os.File
	for i, c := range files {
		if f, err := layers[i].OpenFile(c.Path(), unix.O_RDONLY, 0); err == nil {
			open = append(open, f)
		}
	}
	go func() {
		for _, f := range open {
			_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
			f.Close()
		}
	}()
}

func syncBehind(layer *sys.Dir) {
	if f, err := layer.OpenFile(".", unix.O_RDONLY|unix.O_DIRECTORY, 0); err == nil {
		go func() {
			_ = unix.Syncfs(int(f.Fd()))
			f.Close()
		}()
	}
}

// sync makes everything durable that the journal speaks of, and the journal
// itself but for its head: a few files one by one, else one syncfs for each
// file system that new entries come from. Errors since the fork are heard: by
// syncfs through the descriptor of then, by fsync since nobody else has heard
// of them (errseq in the kernel's Documentation/core-api).
func (c *compiler) sync(f *file, dir *sys.Dir) error {
	home, err := dir.Stat("")
	if err != nil {
		return err
	}
	done := map[uint64]bool{}
	files := make([][]place, len(c.jobs))
	for i := range c.jobs {
		few := false
		if files[i], few = c.fresh(uint32(i)); !few {
			if err := c.syncLayer(uint32(i), done); err != nil {
				return fmt.Errorf("sync the layer of %s: %w", c.jobs[i].Path, err)
			}
		}
	}
	return c.w.fs.Both(func() error { return c.syncFiles(files) }, func() error {
		if done[home.Dev] {
			return nil // the journal lies on one of them
		}
		return c.syncJournal(f, dir, home)
	})
}

// syncFiles syncs files one by one, listed by root.
func (c *compiler) syncFiles(files [][]place) error {
	for i, list := range files {
		for _, p := range list {
			if err := c.syncFile(p); err != nil {
				return fmt.Errorf("sync the layer of %s: %w", c.jobs[i].Path, err)
			}
		}
	}
	return nil
}

// syncJournal syncs the journal, less its head, and its name in dir.
func (c *compiler) syncJournal(f *file, dir *sys.Dir, home sys.Stat) error {
	if err := f.f.Sync(); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	if c.w.fs.Ordered(dir) {
		if c.together(home.Dev) {
			return nil // no step can reach the disk before the journal's name
		}
		return c.w.fs.SyncDir(dir) // and with it all above
	}
	all, err := dir.OpenFile(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(c.w.fs.SyncFS(all), all.Close())
}

// together says that all roots lie on the file system of the journal.
func (c *compiler) together(home uint64) bool {
	for i := range c.w.roots {
		if st, err := c.w.roots[i].base.Stat(""); err != nil || st.Dev != home {
			return false
		}
	}
	return true
}

func (c *compiler) syncFile(p place) error {
	d, name, err := c.w.at(p)
	if err != nil {
		return err
	}
	return c.w.fs.SyncFile(d, name)
}

// fresh lists what a root's steps bring into the base; few says that these are
// only files, few enough, and their file system such that a file's sync covers
// its name.
func (c *compiler) fresh(root uint32) (list []place, few bool) {
	few = true
	for i := range c.journal.steps {
		s := &c.journal.steps[i]
		if s.from.root != root || s.kind != move && s.kind != swap || s.to.area != inBase {
			continue
		}
		list = append(list, s.from)
		if s.new.id.Type != unix.S_IFREG || s.new.perm&0o400 == 0 || len(list) > syncFiles {
			return nil, false
		}
	}
	if len(list) > 0 && (c.jobs[root].Copy || !c.w.fs.Ordered(c.w.own(root))) {
		return nil, false
	}
	return list, few
}

func (c *compiler) syncLayer(root uint32, done map[uint64]bool) error {
	r := c.jobs[root]
	f := r.SyncFD
	if f == nil {
		own, err := c.w.own(root).OpenFile(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer own.Close()
		f = own
	}
	st, err := sys.StatFD(int(f.Fd()))
	if err != nil {
		return err
	}
	if !done[st.Dev] || r.SyncFD != nil && r.Copy {
		done[st.Dev] = true
		if err := c.w.fs.SyncFS(f); err != nil {
			return err
		}
	}
	if r.Copy {
		return c.w.syncRoot(root, done)
	}
	return nil
}
