package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"try/fs/branch"
	"try/fs/changes"
	"try/fs/commit"
	"try/fs/engine"
	"try/fs/vfs"
)

// RecordState is how much of a commit is undone.
type RecordState string

// The values of "state" in the list of undo records.
const (
	RecordCommitted RecordState = "committed"
	RecordUndone    RecordState = "undone"
	RecordPartly    RecordState = "partly undone"
	RecordDamaged   RecordState = "damaged"
)

// Record is a commit that can be undone, or redone.
type Record struct {
	Branch, ID string
	Number     uint64 // later commits have greater numbers
	Last       uint64 // of the last undoing or redoing, 0 if there was none
	Committed  time.Time
	Command    []string
	Dir        string
	State      RecordState
	Changes    []commit.Change // what the commit did
	Bytes      int64           // that the record takes
	Kept       string          // why it is not collected, however old: somebody wrote to what it holds
	Err        error           // it cannot be read: State is damaged

	paths []string
}

// Touches says whether the commit altered something at or below dir, or took
// dir away with what is above it.
func (r *Record) Touches(dir string) bool {
	for i, path := range r.paths {
		if isBelow(path, dir) || r.Changes[i].Kind != changes.Metadata && r.Changes[i].Kind != changes.Touched && isBelow(dir, path) {
			return true
		}
	}
	return false
}

// isBelow says whether path is dir or lies below it.
func isBelow(path, dir string) bool { return path == dir || engine.IsBelow(path, dir) }

// Undone is what became of undoing or redoing a commit.
type Undone struct {
	Record
	Redo    bool
	Done    []commit.Change   // what it altered
	Left    []commit.Conflict // what it did not, and why; with Err: why nothing was
	Started time.Time
	Err     error // then nothing is altered, unless it is commit.ErrUnfinished
}

// UndoOptions is how a commit is undone.
type UndoOptions struct {
	Redo    bool // bring it again
	Partial bool // leave what cannot be undone
}

// NothingToUndoError says that there is no such commit. Try is what was asked
// for: undo or redo.
type NothingToUndoError struct {
	Try, Name, Dir string
	Newer          string // the commit that a redo would be behind
}

func (e *NothingToUndoError) Error() string {
	switch {
	case e.Newer != "":
		return fmt.Sprintf("nothing to redo below %s: %s was committed since", e.Dir, e.Newer)
	case e.Name != "":
		return fmt.Sprintf("no commit named %q to %s", e.Name, e.Try)
	}
	return fmt.Sprintf("nothing to %s below %s", e.Try, e.Dir)
}

// Hint says where to look.
func (e *NothingToUndoError) Hint() string { return "try undo --list shows the commits that are known" }

// ExitCode is that of a negative answer.
func (e *NothingToUndoError) ExitCode() int { return 1 }

// Records lists the commits that can be undone or redone, the newest first.
func (h *Home) Records() ([]Record, error) {
	names, err := h.store.Records()
	if err != nil {
		return nil, err
	}
	var list []Record
	for _, n := range names {
		r, err := h.record(n)
		if errors.Is(err, branch.ErrUnknown) || errors.Is(err, branch.ErrForeign) {
			continue
		}
		if err != nil {
			r.State, r.Err = RecordDamaged, err
		}
		list = append(list, r)
	}
	return list, nil
}

// record reads one record without its lock: it may be turned meanwhile.
func (h *Home) record(n branch.RecordName) (Record, error) {
	out := Record{ID: n.ID, Number: n.Number}
	b, err := h.store.LookAt(n)
	if err != nil {
		return out, err
	}
	defer b.Close()
	if _, err := out.read(b); err != nil {
		return out, err
	}
	if out.Bytes, err = b.Size(); err != nil {
		return out, err
	}
	out.Kept, err = b.Kept()
	return out, err
}

// read fills r in from a record that was opened.
func (r *Record) read(b *branch.Record) (*commit.Record, error) {
	r.Branch, r.ID, r.Number, r.Command, r.Dir = b.Name, b.ID, b.Number, b.Command, b.Dir
	st, err := os.Stat(filepath.Join(b.Path(), "journal"))
	if err != nil {
		return nil, err
	}
	r.Committed = st.ModTime()
	rec, err := commit.OpenRecord(b.Path())
	if err != nil {
		return nil, err
	}
	if err := verifyRecord(b, rec.Branch, rec.Roots()); err != nil {
		return nil, err
	}
	r.Last, r.Changes, r.paths = rec.Last, rec.Summary(), rec.Paths()
	undone := len(rec.Changes(true))
	switch undone {
	case 0:
		r.State = RecordCommitted
	case len(r.Changes):
		r.State = RecordUndone
	default:
		r.State = RecordPartly
	}
	return rec, nil
}

// verifyRecord says that a journal, with the id and roots that it names, is
// this very record's (H1).
func verifyRecord(b *branch.Record, id string, roots []string) error {
	if id != b.ID {
		return fmt.Errorf("undo record of %s: its journal is of branch %s", b.Name, id)
	}
	for _, root := range roots {
		if !slices.ContainsFunc(b.Roots, func(r branch.Root) bool { return r.Path == root }) {
			return fmt.Errorf("undo record of %s: its journal names %s, which is no root of the branch", b.Name, root)
		}
	}
	return nil
}

// pickRecord finds the commit that name means: the newest of that name, or for
// "" the last one below the working directory, that is there to be undone; or
// the one undone last there, unless something was committed there since.
func (h *Home) pickRecord(name string, redo bool, ui UI) (*Record, error) {
	word := "undo"
	if redo {
		word = "redo"
	}
	dir, err := os.Getwd()
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	names, err := h.store.Records()
	if err != nil {
		return nil, err
	}
	var best, newest *Record
	for _, n := range names {
		r := &Record{}
		b, err := h.store.LookAt(n)
		if err == nil {
			_, err = r.read(b)
			err = errors.Join(err, b.Close())
		}
		switch {
		case err == nil:
		case errors.Is(err, branch.ErrUnknown), errors.Is(err, branch.ErrForeign):
			continue
		case name != "" && (r.Branch == name || n.ID == name):
			return nil, err
		default:
			if name == "" && !errors.Is(err, commit.ErrUnfinished) { // by another try, now
				ui.Warn("a commit is passed over: " + err.Error())
			}
			continue
		}
		switch {
		case name != "" && r.Branch != name && r.ID != name, name == "" && !r.Touches(dir):
			continue
		case !redo:
			if r.State == RecordCommitted || name != "" && r.State == RecordPartly {
				return r, nil
			}
			continue
		}
		if r.State == RecordCommitted && newest == nil {
			newest = r
		}
		if r.State != RecordCommitted && (best == nil || r.Last > best.Last) {
			best = r
		}
	}
	if best == nil {
		return nil, &NothingToUndoError{Try: word, Name: name, Dir: dir}
	}
	if name == "" && newest != nil && newest.Number > best.Last {
		return nil, &NothingToUndoError{Try: word, Dir: dir, Newer: newest.Branch}
	}
	return best, nil
}

// Undo takes a commit back, or brings it again. name "" is the last one below
// the working directory. An error says that none was found, or opened.
func (h *Home) Undo(ctx context.Context, name string, o UndoOptions, ui UI) (*Undone, error) {
	sig := catch()
	defer sig.release()
	u := &Undone{Redo: o.Redo, Started: time.Now()}
	for try := 1; ; try++ {
		b, err := h.openPicked(ctx, name, u, ui)
		if err != nil {
			return nil, err
		}
		u.Err = h.turn(ctx, b, u, o, ui)
		if err := b.Close(); err != nil && u.Err == nil {
			u.Err = err
		}
		// Another try has turned it between the look and the lock: then the
		// last commit is another one now.
		if name != "" || try == maxPicks || !errors.Is(u.Err, commit.ErrNothing) {
			break
		}
	}
	h.tidyBehind(ui)
	return u, nil
}

// maxPicks is how many times a commit to undo is looked for.
const maxPicks = 8

// openPicked opens what name means, with its lock. Whoever held that before may
// have turned it, or taken it away: then it means another one now.
func (h *Home) openPicked(ctx context.Context, name string, u *Undone, ui UI) (*branch.Record, error) {
	for {
		picked, err := h.pickRecord(name, u.Redo, ui)
		if err != nil {
			return nil, err
		}
		b, err := h.store.WaitRecord(ctx, branch.RecordName{Number: picked.Number, ID: picked.ID}, func() {
			ui.Warn("waiting for another try that is at this commit")
		})
		if errors.Is(err, branch.ErrUnknown) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if _, err := u.read(b); err != nil || u.Last == picked.Last {
			return b, nil // what cannot be read turn says again
		}
		if err := b.Close(); err != nil {
			return nil, err
		}
	}
}

// turn undoes or redoes the record under the commit lock.
func (h *Home) turn(ctx context.Context, b *branch.Record, u *Undone, o UndoOptions, ui UI) error {
	lock, err := h.store.LockCommits(ctx, "try undo", func(holder string) {
		ui.Warn("waiting for " + holder + " to finish its commit")
	})
	if err != nil {
		return err
	}
	defer lock.Unlock()
	rec, err := u.read(b)
	if err != nil {
		return err
	}
	release, err := shield()
	if err != nil {
		return err
	}
	defer release()
	protected, err := h.store.Places()
	if err != nil {
		return err
	}
	number := uint64(0)
	done, left, err := rec.Reverse(ctx, vfs.Disk(), commit.Reversal{
		Redo: o.Redo, Partial: o.Partial, Protected: protected, Progress: ui.Progress,
		Announce: func(list []commit.Change) (uint64, error) {
			if err := b.Resized(); err != nil {
				return 0, err
			}
			number, err = b.Announce(turned(list), rec.Last)
			return number, err
		},
	})
	if err == nil {
		u.Done, u.Left, u.Last = done, left, number
		if err := b.Sealed(); err != nil { // it has happened all the same
			ui.Warn("undone, but not cleaned up: " + err.Error())
		}
		_, err = u.read(b)
		return err
	}
	if errors.Is(err, commit.ErrUnfinished) {
		return err // its journal decides, at the next try
	}
	if c, ok := errors.AsType[*commit.ConflictError](err); ok {
		u.Left = c.Conflicts
	}
	if number > 0 {
		err = errors.Join(err, b.Withdrawn(), b.Forget(commit.JournalOf(number)))
	}
	return err
}

// turned writes paths as altered does.
func turned(list []commit.Change) []string {
	out := make([]string, len(list))
	for i := range list {
		c := &list[i]
		kind := byte('-')
		if c.Dir() {
			kind = 'd'
		}
		out[i] = string([]byte{c.Kind.Letter(), kind}) + filepath.Join(c.Root, c.Path)
	}
	return out
}

// recoverRecord decides one undoing or redoing that a crash left.
func (h *Home) recoverRecord(n branch.RecordName) (r Recovery, ok bool, err error) {
	r.ID, r.Undo = n.ID, true
	b, err := h.store.OpenRecord(n)
	if errors.Is(err, branch.ErrLocked) || errors.Is(err, branch.ErrUnknown) || errors.Is(err, branch.ErrForeign) {
		return r, false, nil
	}
	if err != nil {
		r.Err = err
		return r, true, nil
	}
	defer func() { r.Err = errors.Join(r.Err, b.Close()) }()
	lock, err := h.store.LockCommits(context.Background(), "try recover", nil)
	if err != nil {
		return r, false, err
	}
	defer lock.Unlock()
	r.Branch = b.Name
	number, err := b.Announced()
	if err != nil || number == 0 { // somebody was faster
		return r, false, err
	}
	info, err := commit.InspectRecord(b.Path(), number)
	if err == nil && info != nil {
		err = verifyRecord(b, info.Branch, info.Roots)
	}
	if r.Err = err; err != nil {
		return r, true, nil
	}
	r.Outcome, r.Err = commit.RecoverRecord(vfs.Disk(), b.Path(), number)
	var c *commit.ConflictError
	if r.Outcome == commit.RolledBack && errors.As(r.Err, &c) { // else nothing is decided yet
		r.Conflicts, r.Err = c.Conflicts, nil
	}
	switch {
	case r.Err != nil:
	case r.Outcome == commit.Committed:
		r.Err = b.Sealed()
	default:
		r.Err = errors.Join(b.Forget(commit.JournalOf(number)), b.Withdrawn())
	}
	return r, true, nil
}
