package branch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"try/fs/engine"
	"try/fs/sys"
)

// Branch is a branch whose lock this process holds.
type Branch struct {
	Meta

	store *Store
	dir   *sys.Dir
	lock  *lock
	// number is that of the commit once it was announced.
	number uint64
	sync   map[string]*os.File // by store; opened at the fork, empty for a branch that was opened

	errand errand
	// newest is one more than the number of the newest record, as of some time
	// after the fork; 0: nobody has looked. Commits that came later have lists.
	newest atomic.Uint64
}

// Info is a branch as the listing shows it. It may have changed since.
type Info struct {
	Meta          // State is what it is now, not what was written last
	Journal bool  // a commit has begun: recovery decides first
	Foreign bool  // of another machine that shares the store
	Err     error // its metadata cannot be read: only ID is known
}

// Branches lists all branches, in no order. It takes no lock.
func (s *Store) Branches() ([]Info, error) {
	boot, err := BootID()
	if err != nil {
		return nil, err
	}
	machine, err := machineID()
	if err != nil {
		return nil, err
	}
	entries, err := s.branches.Entries()
	if err != nil {
		return nil, err
	}
	var list []Info
	for _, e := range entries {
		if !isID(e.Name) {
			continue
		}
		info, err := s.info(e.Name, boot, machine)
		if errors.Is(err, unix.ENOENT) {
			continue // settled meanwhile, or of a group that was never whole
		}
		if err != nil {
			info = Info{Meta: Meta{ID: e.Name, State: Damaged}, Err: err}
		}
		list = append(list, info)
	}
	return list, nil
}

func (s *Store) info(id, boot, machine string) (Info, error) {
	dir, err := s.branches.Sub(id)
	if err != nil {
		return Info{}, err
	}
	defer dir.Close()
	m, err := readMeta(dir)
	if err != nil {
		return Info{}, err
	}
	if m.ID != id {
		return Info{}, fmt.Errorf("metadata of branch %s are those of %s", id, m.ID)
	}
	if err := s.groupIsWhole(m.Group); err != nil {
		return Info{}, err
	}
	l, err := existingLock(dir, lockName)
	if err != nil {
		return Info{}, err
	}
	held, err := l.isHeld()
	if err := errors.Join(err, l.release()); err != nil {
		return Info{}, err
	}
	info := Info{Meta: m, Foreign: isForeign(m, machine)}
	info.Journal = hasJournal(dir)
	info.State = stateNow(m, boot, held, info.Journal)
	return info, nil
}

func hasJournal(dir *sys.Dir) bool {
	_, err := dir.Stat(journalName)
	return !errors.Is(err, unix.ENOENT)
}

func isForeign(m Meta, machine string) bool {
	return m.Machine != "" && machine != "" && m.Machine != machine
}

// stateNow is the state of a branch whose metadata say what its holder wrote
// last. That it lives is told by its lock alone, never by a process id.
func stateNow(m Meta, boot string, held, journal bool) State {
	if m.State == Running || m.State == Committing {
		switch {
		case journal || held && m.State == Committing:
			return Committing
		case held:
			return Running
		case m.Synced:
			return Kept // committing, and nothing had begun
		case m.Boot == boot:
			return Interrupted
		default:
			return Damaged
		}
	}
	if journal {
		return Committing
	}
	return m.State
}

// names maps the names that are taken to their ids. The store's lock is held,
// or a name may be gone by the time it is used.
func (s *Store) names() (map[string]string, error) {
	entries, err := s.branches.Entries()
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(entries))
	for _, e := range entries {
		if !isID(e.Name) {
			continue
		}
		dir, err := s.branches.Sub(e.Name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, err
		}
		name, err := readName(dir)
		dir.Close()
		if err != nil {
			continue // unreadable metadata: it has no name, Branches says why
		}
		names[name] = e.Name
		// The group's own name is taken as long as a member lives.
		if i := strings.LastIndexByte(name, '.'); i > 0 && isNumber(name[i+1:]) && names[name[:i]] == "" {
			names[name[:i]] = e.Name
		}
	}
	return names, nil
}

// Open takes the lock of the branch called name, or ErrLocked, and reads its
// state then: what was known before may be old (H14).
func (s *Store) Open(name string) (*Branch, error) { return s.openNamed(name, s.openID) }

// Adopt makes a branch of another machine, which shares the store, one of this
// machine. Nothing there may use it any more, as only the caller can know: the
// locks of a shared file system may not reach so far.
func (s *Store) Adopt(name string) error {
	b, err := s.openNamed(name, s.openAny)
	if err != nil {
		return err
	}
	m, err := readWhole(b.dir) // with the state that was written, whatever it means here
	if err == nil {
		b.Meta = m
		b.Machine, err = machineID()
	}
	if err == nil {
		err = b.Save()
	}
	if err = errors.Join(err, b.Close()); err != nil {
		return fmt.Errorf("take over branch %s: %w", name, err)
	}
	return nil
}

// openNamed opens the branch called name, or of that id.
func (s *Store) openNamed(name string, open func(id string) (*Branch, error)) (*Branch, error) {
	id := name
	if !isID(name) {
		if err := checkForm(name); err != nil {
			return nil, err
		}
		names, err := s.names()
		if err != nil {
			return nil, err
		}
		id = names[name]
	}
	if id == "" {
		return nil, fmt.Errorf("%s: %w", name, ErrUnknown)
	}
	b, err := open(id)
	if errors.Is(err, unix.ENOENT) {
		err = ErrUnknown
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if !isID(name) && b.Name != name {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, ErrUnknown), b.Close())
	}
	return b, nil
}

func (s *Store) openID(id string) (*Branch, error) {
	b, err := s.openAny(id)
	if err != nil {
		return nil, err
	}
	machine, err := machineID()
	if err == nil && isForeign(b.Meta, machine) {
		err = ErrForeign
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// openAny is openID for a branch of whatever machine.
func (s *Store) openAny(id string) (*Branch, error) {
	dir, err := s.branches.Sub(id)
	if err != nil {
		return nil, err
	}
	l, err := existingLock(dir, lockName)
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	b := &Branch{store: s, dir: dir, lock: l, sync: map[string]*os.File{}}
	if err := b.load(id); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Branch) load(id string) error {
	if err := b.lock.try(); err != nil {
		return err
	}
	// Whoever held the lock before may have moved the branch to the trash.
	here, err := b.dir.Stat("")
	if err != nil {
		return err
	}
	there, err := b.store.branches.Stat(id)
	if err != nil {
		return err
	}
	if here.Ino != there.Ino {
		return ErrUnknown
	}
	m, err := readWhole(b.dir)
	if err != nil {
		return err
	}
	if m.ID != id {
		return fmt.Errorf("its metadata are those of %s", m.ID)
	}
	if err := b.store.groupIsWhole(m.Group); err != nil {
		return err
	}
	if m.Draft && !hasJournal(b.dir) {
		return ErrUnknown // never was one: whoever composed it is gone
	}
	boot, err := BootID()
	if err != nil {
		return err
	}
	m.State = stateNow(m, boot, false, hasJournal(b.dir))
	b.Meta = m
	if m.State == Interrupted {
		return b.outlive()
	}
	return nil
}

// Path is the branch's directory in the home store, where its journal lies.
func (b *Branch) Path() string { return b.dir.Name() }

// Stores are the places of all stores, which no session sees.
func (b *Branch) Stores() ([]string, error) { return b.store.Places() }

// holder is the directory in which the layer of root i lies.
func (b *Branch) holder(i int) (string, error) {
	id := b.Roots[i].Store
	if id == "" {
		return b.dir.Name(), nil
	}
	p, err := b.store.openFurther(id)
	if errors.Is(err, unix.ENOENT) {
		return "", &GoneError{Root: b.Roots[i].Path}
	}
	if err != nil {
		return "", err
	}
	if _, err := p.dir.Stat(b.ID); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return "", &GoneError{Root: b.Roots[i].Path}
		}
		return "", err
	}
	return filepath.Join(p.dir.Name(), b.ID), nil
}

// GoneError says that a root's layer is gone: it lay in memory, or in a
// directory that the system empties.
type GoneError struct{ Root string }

func (e *GoneError) Error() string {
	return e.Root + ": its layer is gone, with a reboot or a clean-up"
}

// Layer is the path of root i's layer. *GoneError if it is gone.
func (b *Branch) Layer(i int) (string, error) {
	dir, err := b.holder(i)
	return filepath.Join(dir, upperName(b.Roots[i].Number)), err
}

// Mount specifies the mount of root i for init. Only at the fork.
func (b *Branch) Mount(i int) (engine.Mount, error) {
	r := &b.Roots[i]
	dir, err := b.holder(i)
	if err != nil {
		return engine.Mount{}, err
	}
	upper, work := filepath.Join(dir, upperName(r.Number)), filepath.Join(dir, workName(r.Number))
	return r.Engine.Mount(r.Path, upper, work, r.Below), nil
}

// SyncFD is the descriptor on the file system of root i's layer that was
// opened at the fork; nil for a branch that was opened later.
func (b *Branch) SyncFD(i int) *os.File { return b.sync[b.Roots[i].Store] }

// Slots returns a directory on root i's own file system that entries displaced
// by a commit can be renamed into, making it at the first call. mounts are
// those of our namespace.
func (b *Branch) Slots(i int, mounts []sys.Mount) (string, error) {
	r := &b.Roots[i]
	name := "undo" + fmt.Sprint(i)
	root, err := sys.OpenDir(r.Path)
	if err != nil {
		return "", err
	}
	defer root.Close()
	st, err := root.Stat("")
	if err != nil {
		return "", err
	}
	var dir string
	err = holding(b.store.dir, lockName, func() error {
		t := &site{store: b.store, mounts: mounts}
		p, err := t.own(r.Path, st)
		if err != nil {
			return err
		}
		if p == nil {
			return &Untrusted{Path: r.Path, Why: "nowhere on its file system can the user keep what a commit displaces"}
		}
		holder := b.dir
		if p.id != "" {
			if err := p.dir.Mkdir(b.ID, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
				return err
			}
			if holder, err = p.dir.Sub(b.ID); err != nil {
				return err
			}
			defer holder.Close()
		}
		if err := holder.Mkdir(name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		dir = filepath.Join(holder.Name(), name)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("make a place for what a commit displaces in %s: %w", r.Path, err)
	}
	return dir, nil
}

// CheckRoot says that root i is still the directory from which the branch was
// forked (H19). The *os.PathError of one that is gone is passed on.
func (b *Branch) CheckRoot(i int) error {
	r := &b.Roots[i]
	dir, err := sys.OpenDir(r.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	st, err := dir.Stat("")
	if err == nil && st.Identity() != r.ID {
		err = fmt.Errorf("%s is no longer the directory that branch %s was forked from", r.Path, b.Name)
	}
	return err
}

// SetState moves the branch to another state, and writes that down unless the
// disk says so anyway: a journal makes it committing, and says when it is
// done; what was aborted goes to the trash next.
func (b *Branch) SetState(to State) error {
	if !b.State.mayBecome(to) {
		return fmt.Errorf("branch %s: %s cannot become %s", b.Name, b.State, to)
	}
	b.State = to
	switch to {
	case Committing:
		return b.writeOut()
	case Committed, Aborted:
		return nil
	case Running, Kept, Interrupted, Damaged:
		return b.Save()
	default:
		panic("unknown state " + to.String())
	}
}

// SetSeen notes the identities that a commit compares later; see Root.Seen.
func (b *Branch) SetSeen(i int, seen any) error {
	data, err := json.Marshal(seen)
	b.Roots[i].Seen = data
	return err
}

// writeOut has the file system allocate and begin to write the metadata of a
// branch that was never synced, so that no step of its commit reaches the disk
// before them: recovery needs both. Where a file system does not keep that
// order the commit syncs all of it (sync_file_range(2); ext4's data=ordered).
func (b *Branch) writeOut() error {
	if b.Synced {
		return nil
	}
	fd, err := b.dir.OpenFD(metaName, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE); err != nil {
		return &os.PathError{Op: "write out", Path: b.dir.Name() + "/" + metaName, Err: err}
	}
	return nil
}

// Save writes the metadata. They survive a loss of power only once the branch
// has been kept.
func (b *Branch) Save() error {
	text, err := b.Meta.encode()
	if err != nil {
		return err
	}
	return replaceFile(b.dir, metaName, text, b.Synced)
}

// Close lets go of the branch: its lock is free, its state what was written
// last.
func (b *Branch) Close() error {
	b.errand.end()
	var errs []error
	for id, f := range b.sync {
		errs = append(errs, f.Close())
		delete(b.sync, id)
	}
	if b.dir != nil {
		errs = append(errs, b.dir.Close())
		b.dir = nil
	}
	if b.lock != nil {
		errs = append(errs, b.lock.release())
		b.lock = nil
	}
	return errors.Join(errs...)
}
