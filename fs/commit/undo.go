package commit

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/sys"
	"try/fs/vfs"
)

// An undo record is the directory in which a commit was made, kept after its
// seal. Each path that the commit altered has two states: one is in the base,
// the other lies in the record, or is known from a journal. Undoing exchanges
// them, and redoing exchanges them again, each with a journal of its own,
// journal.NUMBER, by the same steps, roll-back and recovery as a commit. A
// journal that is done is never written to again: what the record holds now is
// what all of them say together, in their order.

// ErrNothing says that there is nothing to undo or redo in a record.
var ErrNothing = errors.New("nothing to undo")

// Record is an undo record that was read. It does not change with the disk.
type Record struct {
	Branch string // Job.ID
	Last   uint64 // number of the last undoing or redoing; 0: none

	dir   string
	roots []journalRoot
	facts []*fact
	times map[place]*dirTimes
}

// fact is one path that the commit altered, as the journals leave it.
type fact struct {
	at     place // in the base
	kind   changes.Kind
	undone bool

	here side  // what is in the base; no type: nothing
	away side  // what lies in the record instead; no type: nothing
	kept place // where

	meta *change // of a change in place: from old, which was before, to new, which is
	id   side    // and the entry as it was before
}

// dirTimes are those of a directory in which steps have acted. settled says
// that they set its time, so that now is known, and what was before.
type dirTimes struct {
	id          sys.Identity
	before, now sys.Time
	settled     bool
}

func (s *side) none() bool { return s.id.Type == 0 }

// JournalOf is the name of the journal of an undoing or a redoing.
func JournalOf(number uint64) string { return fmt.Sprintf("%s.%016x", journalName, number) }

func parseFlip(name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, journalName+".")
	n, err := strconv.ParseUint(digits, 16, 64)
	return n, ok && err == nil && name == JournalOf(n)
}

// flips lists the journals of undoings and redoings in d, in their order.
func flips(d *sys.Dir) ([]uint64, error) {
	entries, err := d.Entries()
	if err != nil {
		return nil, err
	}
	var list []uint64
	for _, e := range entries {
		if n, ok := parseFlip(e.Name); ok {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, nil
}

// OpenRecord reads the undo record in dir. ErrUnfinished: an undoing is under
// way, or recovery must decide about it. ErrDamaged: nothing can be undone.
func OpenRecord(dir string) (*Record, error) {
	fail := func(err error) (*Record, error) { return nil, fmt.Errorf("read undo record %s: %w", dir, err) }
	d, err := sys.OpenDir(dir)
	if err != nil {
		return fail(err)
	}
	defer d.Close()
	j, err := readJournal(d, journalName)
	if err != nil {
		return fail(err)
	}
	// Its end may not have reached the disk when the power went, see world.lazy;
	// but only what was done becomes a record.
	if j == nil || j.state != applying && j.state != doneCommitted {
		return fail(errors.New("it holds no commit that was done"))
	}
	r := &Record{Branch: j.branch, dir: dir, roots: j.roots, times: map[place]*dirTimes{}}
	if err := r.read(j, map[place]*fact{}); err != nil {
		return fail(err)
	}
	known := map[place]*fact{}
	for _, f := range r.facts {
		known[f.at] = f
	}
	numbers, err := flips(d)
	if err != nil {
		return fail(err)
	}
	for _, n := range numbers {
		j, err := readJournal(d, JournalOf(n))
		if err != nil {
			return fail(err)
		}
		r.Last = n
		switch {
		case j == nil || j.state == doneRolledBack:
			continue // never begun, or taken back
		case j.state != doneCommitted:
			return fail(ErrUnfinished)
		}
		if err := r.read(j, known); err != nil {
			return fail(err)
		}
	}
	return r, nil
}

// read adds what a journal has done. known holds the facts by their paths; it is
// empty for the commit, whose journal makes them.
func (r *Record) read(j *journal, known map[place]*fact) error {
	root := make([]uint32, len(j.roots))
	for i := range j.roots {
		at := slices.IndexFunc(r.roots, func(o journalRoot) bool { return o.path == j.roots[i].path })
		if at < 0 {
			return fmt.Errorf("%w: it names %s, which the commit does not", ErrDamaged, j.roots[i].path)
		}
		root[i] = uint32(at)
	}
	first := len(known) == 0
	for i := range j.steps {
		s := &j.steps[i]
		p := s.baseAt()
		if p.area != inBase || s.kind == strip || s.kind == mode || s.kind == times && !s.late() {
			continue
		}
		p.root = root[p.root]
		if s.kind == times {
			r.readTimes(p, s)
			continue
		}
		f := known[p]
		if first {
			f = &fact{at: p, undone: true} // and now it is done
			r.facts = append(r.facts, f)
		} else if f == nil {
			return fmt.Errorf("%w: it alters %s, which the commit does not", ErrDamaged, p.path)
		}
		f.read(s, root)
		if first {
			f.kind = f.effect(false)
		}
	}
	r.touched(first, j, root, known)
	return nil
}

func (r *Record) readTimes(p place, s *step) {
	t := r.times[p]
	if t == nil {
		t = &dirTimes{}
		r.times[p] = t
	}
	t.id = s.new.id
	if s.newTime[1] != sys.KeepTime && s.oldTime[1] != sys.KeepTime {
		t.before, t.now, t.settled = s.oldTime[1], s.newTime[1], true
	}
}

// touched makes facts of the directories of which only the times were altered,
// and turns them.
func (r *Record) touched(first bool, j *journal, root []uint32, known map[place]*fact) {
	if first {
		acted := map[place]bool{}
		for _, f := range r.facts {
			acted[f.at] = true // its times go along
			if up, _ := f.at.split(); f.meta == nil {
				acted[up] = true
			}
		}
		for i := range j.steps {
			s := &j.steps[i]
			p := s.from
			p.root = root[p.root]
			if t := r.times[p]; s.kind == times && s.late() && p.area == inBase && t != nil && t.settled && !acted[p] {
				r.facts = append(r.facts, &fact{at: p, kind: changes.Touched})
			}
		}
		return
	}
	for i := range j.steps {
		s := &j.steps[i]
		p := s.from
		p.root = root[p.root]
		if f := known[p]; s.kind == times && f != nil && f.kind == changes.Touched {
			f.undone = !f.undone
		}
	}
}

// read turns f as s says.
func (f *fact) read(s *step, root []uint32) {
	f.undone = !f.undone
	f.here, f.away = side{}, side{}
	placed := func(p place) place {
		p.root = root[p.root]
		return p
	}
	switch {
	case s.kind == meta:
		f.meta, f.id = s.meta, s.new
	case s.kind == swap:
		f.here, f.away, f.kept = s.new, s.old, placed(s.from)
	case s.to.area == inBase:
		f.here = s.new
	default:
		f.away, f.kept = s.new, placed(s.to)
	}
}

// effect is what undoing f, or redoing it, would do to the base; in a fact that
// has just been read first: what the commit did.
func (f *fact) effect(turn bool) changes.Kind {
	before, after := &f.away, &f.here
	if turn {
		before, after = after, before
	}
	switch {
	case f.kind == changes.Touched:
		return changes.Touched
	case f.meta != nil:
		return changes.Metadata
	case before.none():
		return changes.Added
	case after.none():
		return changes.Deleted
	case before.id.Type != after.id.Type:
		return changes.Replaced
	}
	return changes.Modified
}

// Change is what undoing or redoing does to one path.
type Change struct {
	Root, Path string
	Kind       changes.Kind
	Type       uint32 // S_IFMT bits of what is there afterwards, or was there
	Size       int64
	Below      uint64 // entries that come, or go, with a directory
}

// Dir says whether it is or was a directory.
func (c *Change) Dir() bool { return c.Type == unix.S_IFDIR }

func (r *Record) change(f *fact) Change {
	c := Change{Root: r.roots[f.at.root].path, Path: f.at.path, Kind: f.effect(true)}
	s := &f.away
	switch {
	case f.kind == changes.Touched:
		c.Type = unix.S_IFDIR
		return c
	case f.meta != nil:
		s = &f.id
	case s.none():
		s = &f.here
	}
	c.Type, c.Below = s.id.Type, s.tree.count
	if !c.Dir() {
		c.Size = s.size
	}
	return c
}

// Changes lists what undoing would do, or redoing.
func (r *Record) Changes(redo bool) []Change {
	var list []Change
	for _, f := range r.facts {
		if f.undone == redo {
			list = append(list, r.change(f))
		}
	}
	return list
}

// Summary lists what the commit did, whatever of it is undone.
func (r *Record) Summary() []Change {
	list := make([]Change, len(r.facts))
	for i, f := range r.facts {
		list[i] = r.change(f)
		list[i].Kind = f.kind
	}
	return list
}

// Paths lists the absolute paths that the commit altered.
func (r *Record) Paths() []string {
	list := make([]string, len(r.facts))
	for i, f := range r.facts {
		list[i] = filepath.Join(r.roots[f.at.root].path, f.at.path)
	}
	return list
}

// Roots lists the roots that the journals name.
func (r *Record) Roots() []string {
	list := make([]string, len(r.roots))
	for i := range r.roots {
		list[i] = r.roots[i].path
	}
	return list
}

// RecoverRecord finishes, or takes back, the undoing or redoing of that number
// of the record in dir, which was cut short, as [Recover] does with a commit.
// The journal of one that did not happen may be removed.
func RecoverRecord(fs vfs.FS, dir string, number uint64) (Outcome, error) {
	d, err := sys.OpenDir(dir)
	if err != nil {
		return 0, fmt.Errorf("recover %s: %w", dir, err)
	}
	defer d.Close()
	return recoverJournal(fs, d, JournalOf(number))
}

// InspectRecord is [Inspect] for the journal of an undoing or a redoing.
func InspectRecord(dir string, number uint64) (*Info, error) { return inspect(dir, JournalOf(number)) }
