package branch

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"try/fs/engine"
)

// Facts is what `try doctor` says of a store.
type Facts struct {
	Path      string
	Home      bool  // the home store; else a further one
	Free      int64 // bytes for the user
	FreeNodes int64 // inodes; −1 where the file system makes them as needed
	Volatile  bool  // kept layers are moved from here to the home store
	Layers    error // why layers cannot lie here; nil: they can
	Err       error // why it is not used: it is gone, or does not verify
}

// Facts looks at each store that is known.
func (s *Store) Facts(eng engine.Engine) ([]Facts, error) {
	list := []Facts{s.home.facts(eng)}
	list[0].Home = true
	entries, err := s.entries()
	if err != nil {
		return list, err
	}
	for _, e := range entries {
		p, err := s.openFurther(e.ID)
		if err != nil {
			list = append(list, Facts{Path: string(e.Path), Err: err})
			continue
		}
		list = append(list, p.facts(eng))
	}
	return list, nil
}

func (p *place) facts(eng engine.Engine) Facts {
	f := Facts{Path: p.dir.Name(), Volatile: p.volatile, Layers: eng.Holds(p.dir.Name())}
	st, err := p.dir.StatFS()
	if err != nil {
		f.Err = err
		return f
	}
	f.Free = int64(st.Bavail) * st.Bsize
	f.FreeNodes = int64(st.Ffree)
	if st.Files == 0 { // btrfs
		f.FreeNodes = -1
	}
	return f
}

// Room is how much space and how many inodes are left to the user on the file
// system of root i's layer.
func (b *Branch) Room(i int) (bytes, nodes int64, err error) {
	path, err := b.holder(i)
	if err != nil {
		return 0, 0, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	nodes = int64(st.Ffree)
	if st.Files == 0 {
		nodes = -1
	}
	return int64(st.Bavail) * st.Bsize, nodes, nil
}

// CopyNotes says which layers lie on another file system than their root, so
// that a commit copies, and how much room is there.
func (b *Branch) CopyNotes() ([]string, error) {
	var notes []string
	for i, r := range b.Roots {
		if !r.Copy {
			continue
		}
		path, err := b.holder(i)
		if err != nil {
			return notes, err
		}
		free, _, err := b.Room(i)
		if err != nil {
			return notes, err
		}
		notes = append(notes, fmt.Sprintf("what changes below %s is kept in %s, with %d MiB free, and copied at a commit", r.Path, path, free>>20))
	}
	return notes, nil
}
