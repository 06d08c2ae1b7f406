package sys

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// open is how many directories of one way down stay open: those deepest.
const open = 32

// ErrMoved says that a directory was moved while a walk was below it, so that
// its ".." leads elsewhere.
var ErrMoved = errors.New("the directory was moved while it was read")

// Descent is a way down from a directory, of any depth, with a bounded number
// of descriptors: of the directories on the way only the deepest are held,
// the others are entered again by ".." and must be the same inode then.
type Descent struct {
	levels []level
	held   int // levels[held:] have their directory open; the top always
}

type level struct {
	dir *Dir // nil: closed to save descriptors
	ino uint64
}

// NewDescent starts at d, which stays the caller's and must stay open.
func NewDescent(d *Dir) (*Descent, error) {
	own, err := d.Sub("")
	if err != nil {
		return nil, err
	}
	t := &Descent{}
	if err := t.push(own); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Descent) push(d *Dir) error {
	s, err := d.Stat("")
	if err != nil {
		d.Close()
		return err
	}
	t.levels = append(t.levels, level{d, s.Ino})
	if len(t.levels)-t.held > open {
		t.levels[t.held].dir.Close()
		t.levels[t.held].dir = nil
		t.held++
	}
	return nil
}

// Dir is the directory where the way ends now. It is closed by Leave, or when
// the way has become much longer: ask anew after each Enter and Leave.
func (t *Descent) Dir() *Dir { return t.levels[len(t.levels)-1].dir }

// Depth counts the Enters without Leave.
func (t *Descent) Depth() int { return len(t.levels) - 1 }

// Enter goes on to the directory name, one part, of Dir.
func (t *Descent) Enter(name string) error {
	d, err := t.Dir().Sub(name)
	if err != nil {
		return err
	}
	return t.push(d)
}

// Leave goes back to the directory from which Dir was entered; ErrMoved if
// it had to be entered again and Dir is no longer in it.
func (t *Descent) Leave() error {
	top := len(t.levels) - 1
	dir := t.levels[top].dir
	if up := &t.levels[top-1]; up.dir == nil {
		d, err := dir.parent(dir.name.Parent)
		if err != nil {
			return err
		}
		s, err := d.Stat("")
		if err != nil {
			d.Close()
			return err
		}
		if s.Ino != up.ino {
			d.Close()
			return pathError("leave", dir.Name(), ErrMoved)
		}
		up.dir = d
		t.held = top - 1
	}
	dir.Close()
	t.levels = t.levels[:top]
	return nil
}

// Close closes what is still open.
func (t *Descent) Close() {
	for _, l := range t.levels {
		if l.dir != nil {
			l.dir.Close()
		}
	}
	t.levels = nil
}

// Visit is one entry that Walk has come to.
type Visit struct {
	Dir  *Dir  // the directory that holds the entry; only until the function returns
	Node *Node // the entry's path from the directory where the walk began
	Stat Stat  // as it was before the entry was entered
}

// Walk visits everything below d, depth first, the names of a directory in
// order of their bytes, without recursion and with a bounded number of
// descriptors. pre is called for each entry and says whether to go into a
// directory (true for anything else has no effect); post, which may be nil, is
// called for each directory that was gone into when all below it is done. An
// error of either ends the walk. An entry that vanishes before it was looked
// at is left out; a directory that cannot be read is an error, and pre may make
// it readable. A mount point below d is EXDEV.
func Walk(d *Dir, pre func(Visit) (descend bool, err error), post func(Visit) error) error {
	t, err := NewDescent(d)
	if err != nil {
		return err
	}
	defer t.Close()
	type frame struct {
		visit   Visit // of the directory itself; Node nil at the top
		entries []Dirent
		next    int
	}
	entries, err := sorted(t.Dir())
	if err != nil {
		return err
	}
	stack := []frame{{entries: entries}}
	for {
		f := &stack[len(stack)-1]
		if f.next == len(f.entries) {
			if len(stack) == 1 {
				return nil
			}
			if err := t.Leave(); err != nil {
				return err
			}
			v := f.visit
			v.Dir = t.Dir()
			stack = stack[:len(stack)-1]
			if post != nil {
				if err := post(v); err != nil {
					return err
				}
			}
			continue
		}
		name := f.entries[f.next].Name
		f.entries[f.next] = Dirent{} // the name belongs to the node now
		f.next++
		s, err := t.Dir().Stat(name)
		if isGone(err) {
			continue
		}
		if err != nil {
			return err
		}
		v := Visit{t.Dir(), &Node{f.visit.Node, name}, s}
		descend, err := pre(v)
		if err != nil {
			return err
		}
		if !descend || !s.IsDir() {
			continue
		}
		if err := t.Enter(name); err != nil {
			return err
		}
		if t.levels[len(t.levels)-1].ino != s.Ino {
			return pathError("enter", t.Dir().Name(), ErrMoved)
		}
		entries, err := sorted(t.Dir())
		if err != nil {
			return err
		}
		stack = append(stack, frame{visit: v, entries: entries})
	}
}

func sorted(d *Dir) ([]Dirent, error) {
	entries, err := d.Entries()
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	slices.SortFunc(entries, func(a, b Dirent) int { return cmp.Compare(a.Name, b.Name) })
	return entries, nil
}
