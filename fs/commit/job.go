package commit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/sys"
	"try/fs/vfs"
)

// Root is one root of a branch that is to be committed.
type Root struct {
	Path  string       // absolute, resolved
	ID    sys.Identity // of the base directory at the fork
	Layer string       // path of the layer
	// Slots is an existing private directory on the root's own file system and
	// mount. Displaced entries are renamed into it. Empty: only plans that
	// delete nothing and are no copies can be committed.
	Slots string
	Stamp sys.Time // of the fork, by the root's own clock
	// Strict: the stamp was waited out instead of made finer than its
	// neighbours, so only a ctime after it is drift.
	Strict bool
	// Copy: the layer lies on another file system and is copied first.
	Copy bool
	// SyncFD was opened at the fork on the layer's file system, and so hears of
	// each write-back error since; nil: one is opened now.
	SyncFD *os.File
	// View is the root in the session while it stands; nil when it is gone.
	View *os.File
	// Merged are, by path, the numbers of the base's directories that a session
	// without a view says it has merged.
	Merged map[string]uint64
	// Seen is what [Observe] recorded at the session's end. If it is set, drift
	// is inequality with it, and times do not count.
	Seen map[string]Seen
	// Restored are paths at which a roll-back has moved the change time since
	// the fork: without Seen, that alone is no drift there.
	Restored map[string]bool
}

// Job is one commit.
type Job struct {
	Dir   string // the branch's directory in the home store: the journal lies there
	ID    string // of the branch; it is in the journal
	Roots []Root
	// Protected are directories, stores and the places of stores, that no
	// commit may touch: a plan that does is refused whole.
	Protected []string
	// Spare is the path of a preallocated journal, see [Preallocate].
	Spare string
}

// Commit applies plan. Up to the commit point nothing outside the store is
// altered, and in the layers nothing at all; ctx counts until then. progress,
// which may be nil, is told from time to time how many steps are done.
//
// A *ConflictError says that nothing was applied, or that all was taken back:
// the branch is as it was. ErrUnfinished says that [Recover] must go on. Any
// other error says that nothing was applied.
func (j *Job) Commit(ctx context.Context, fs vfs.FS, plan *changes.Plan, progress func(done, total int)) error {
	if plan.Empty() {
		return nil
	}
	dir, err := sys.OpenDir(j.Dir)
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	defer dir.Close()
	if err := fresh(dir); err != nil {
		return err
	}
	fs.Part("compile")
	c, err := j.compile(ctx, fs, plan)
	if c != nil {
		defer c.close()
	}
	if err != nil {
		return err
	}
	fs.Part("stage")
	err = errors.Join(c.stage(ctx), c.closeAgain())
	if err == nil {
		err = c.stageLinks()
	}
	if err != nil {
		return errors.Join(err, c.w.unstage(&c.journal, false))
	}
	fs.Part("journal")
	f, err := create(fs, dir, journalName, &c.journal, j.Spare)
	if err != nil {
		return errors.Join(err, c.w.unstage(&c.journal, false))
	}
	return c.run(ctx, f, dir, progress)
}

// run syncs, commits and applies, and closes the journal.
func (c *compiler) run(ctx context.Context, f *file, dir *sys.Dir, progress func(done, total int)) (err error) {
	defer func() {
		if e := f.f.Close(); err == nil {
			err = e
		}
	}()
	err = c.sync(f, dir)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = f.commit()
	}
	if err != nil {
		if errors.Is(err, ErrUnfinished) {
			return err
		}
		return errors.Join(err, c.w.unstage(&c.journal, false))
	}
	c.w.fs.Part("apply")
	return c.w.apply(&c.journal, f, false, progress)
}

// fresh says that no other commit of the branch is under way, or has been: its
// journal is then what undoing it needs.
func fresh(dir *sys.Dir) error {
	old, err := readJournal(dir, journalName)
	if err != nil {
		return err
	}
	if old == nil {
		return nil
	}
	switch old.state {
	case applying, rollingBack:
		return fmt.Errorf("commit %s: %w", old.branch, ErrUnfinished)
	case doneCommitted:
		return fmt.Errorf("commit %s: it has been committed already", old.branch)
	}
	return nil
}

// guard knows the protected directories: by path, and by what the path means
// now under any other name.
type guard struct {
	paths []string
	names map[inodeOf]string // of them and of all above
}

type inodeOf struct{ dev, ino uint64 }

func guardOf(protected []string) (*guard, error) {
	g := &guard{protected, map[inodeOf]string{}}
	for _, p := range protected {
		for up := p; ; up = filepath.Dir(up) {
			var st unix.Stat_t
			err := unix.Stat(up, &st)
			if err == nil {
				g.names[inodeOf{st.Dev, st.Ino}] = p
			} else if !absent(err) {
				return nil, &os.PathError{Op: "stat", Path: up, Err: err}
			}
			if up == "/" || up == "." {
				break
			}
		}
	}
	return g, nil
}

// is says why an entry of the base cannot be displaced.
func (g *guard) is(st *sys.Stat) string {
	if p, ok := g.names[inodeOf{st.Dev, st.Ino}]; ok {
		return "is " + p + " or above it, where branches are stored"
	}
	return ""
}

// why says why the absolute path cannot be altered; st is what is there, nil
// for nothing. inPlace: it is not displaced.
func (g *guard) why(path string, st *sys.Stat, inPlace bool) string {
	if st != nil && !inPlace {
		if why := g.is(st); why != "" {
			return why
		}
	}
	for _, p := range g.paths {
		if within(path, p) || !inPlace && within(p, path) {
			return "touches " + p + ", where branches are stored"
		}
	}
	return ""
}

// protect refuses a plan with a change at, below or above a protected
// directory.
func (j *Job) protect(plan *changes.Plan) ([]Conflict, error) {
	g, err := guardOf(j.Protected)
	if err != nil {
		return nil, err
	}
	var found []Conflict
	for i := range plan.Roots {
		r := &plan.Roots[i]
		for k := range r.Changes {
			c := &r.Changes[k]
			inPlace := c.Kind == changes.Metadata || c.Kind == changes.Touched
			why := ""
			if !c.Within {
				why = g.why(filepath.Join(r.Root.Path, c.Path()), c.Base, inPlace)
			} else if c.Base != nil && !inPlace {
				why = g.is(c.Base) // by path it is judged with what carries it
			}
			if why != "" {
				found = append(found, Conflict{r.Root.Path, c.Path(), why})
			}
		}
	}
	return found, nil
}

// within says that path is dir or lies below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir) && path[len(dir)] == '/'
}
