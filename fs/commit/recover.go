package commit

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/fs/vfs"
)

// Outcome is what became of a commit.
type Outcome uint8

const (
	_          Outcome = iota
	Nothing            // no commit was begun: the branch is as it was
	Committed          // the base holds the changes
	RolledBack         // the base is as it was before, and so is the branch
)

var outcomes = [...]string{"invalid", "nothing", "committed", "rolled back"}

func (o Outcome) String() string { return outcomes[o] }

// Recover finishes the commit whose journal lies in dir, the branch's
// directory, from what is on the disk alone: forward if it was applying,
// backward if it was rolling back. It may be repeated, and may itself be
// interrupted at any point. If it rolls back the error is a *ConflictError that
// says why; if that was done before, nil. A journal that does not verify is refused
// (ErrDamaged), and nothing is touched.
//
// The caller holds the locks of the store and of the branch.
func Recover(fs vfs.FS, dir string) (Outcome, error) {
	d, err := sys.OpenDir(dir)
	if err != nil {
		return 0, fmt.Errorf("recover %s: %w", dir, err)
	}
	defer d.Close()
	return recoverJournal(fs, d, journalName)
}

// recoverJournal is Recover for one journal in d.
func recoverJournal(fs vfs.FS, d *sys.Dir, name string) (Outcome, error) {
	dir := d.Name()
	fail := func(err error) (Outcome, error) { return 0, fmt.Errorf("recover %s: %w", dir, err) }
	j, err := readJournal(d, name)
	if err != nil {
		return fail(err)
	}
	switch {
	case j == nil:
		return Nothing, nil
	case j.state == doneCommitted:
		return Committed, nil
	case j.state == doneRolledBack:
		return RolledBack, nil
	}
	w, err := openWorld(fs, j, dir, true)
	if err != nil {
		return fail(err)
	}
	defer w.close()
	w.record = name != journalName
	fs.Part("recover")
	f, err := reopen(fs, d, name, j)
	if err != nil {
		return fail(err)
	}
	outcome, err := Committed, error(nil)
	if j.state == rollingBack {
		outcome = RolledBack
		if err = w.undo(j, f, len(j.steps)-1, nil); err == nil {
			err = &ConflictError{Conflicts: []Conflict{j.conflict()}, Left: w.left, RolledBack: true, Restored: w.restored}
		}
	} else {
		err = w.apply(j, f, true, nil)
	}
	if e := f.f.Close(); err == nil && e != nil {
		return fail(e) // after the last sync nothing hangs on it but the report
	}
	var c *ConflictError
	if errors.As(err, &c) {
		return RolledBack, c
	}
	if err != nil {
		return fail(err)
	}
	return outcome, nil
}

// Info is what a journal says of itself.
type Info struct {
	Branch  string // Job.ID
	Pending bool   // the commit was begun and is neither finished nor taken back
	Back    bool   // and it is to be taken back
	Roots   []string
	Steps   int
}

// Inspect reads the journal in dir; nil if nothing was ever begun there. The
// caller compares Branch and Roots with the branch's own metadata before it
// has anything recovered.
func Inspect(dir string) (*Info, error) { return inspect(dir, journalName) }

func inspect(dir, name string) (*Info, error) {
	d, err := sys.OpenDir(dir)
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		return nil, err
	}
	defer d.Close()
	j, err := readJournal(d, name)
	if err != nil || j == nil {
		return nil, err
	}
	i := &Info{
		Branch: j.branch, Steps: len(j.steps),
		Pending: j.state == applying || j.state == rollingBack, Back: j.state == rollingBack,
	}
	for _, r := range j.roots {
		i.Roots = append(i.Roots, r.path)
	}
	return i, nil
}
