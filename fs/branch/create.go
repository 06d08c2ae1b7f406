package branch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
)

// CreateOptions is what a new branch is made of. All but Roots and Mounts is
// only noted.
type CreateOptions struct {
	Name    string      // empty: two words
	Roots   []Root      // of Roots
	Mounts  []sys.Mount // of the caller's namespace
	Runtime string      // XDG_RUNTIME_DIR; may hold layers that find no other place

	Command  []string
	Commands [][]string // of the members of a group, instead of Command
	Dir      string
	Scope    string
	Policy   string
	Parent   string
	Extra    json.RawMessage
}

// Create makes a branch and holds its lock. Its cost does not depend on the
// base: nothing is copied, and what can be made beforehand lies ready as the
// spare skeleton (Tidy).
func (s *Store) Create(opts CreateOptions) (*Branch, error) {
	if opts.Name != "" {
		if err := CheckName(opts.Name); err != nil {
			return nil, err
		}
	}
	var b *Branch
	err := holding(s.dir, lockName, func() error {
		list, err := s.create(opts, 0)
		if err == nil {
			b = list[0]
			err = s.publish(b)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create branch: %w", err)
	}
	return b, nil
}

// create makes drafts in spare/: one branch, or count members of a group. They
// hold their locks, but are no branches until they are published. The store's
// lock is held.
func (s *Store) create(opts CreateOptions, count int) (list []*Branch, err error) {
	base, err := s.fork(opts, count)
	if err != nil {
		return nil, err
	}
	t := &site{store: s, mounts: opts.Mounts, runtime: opts.Runtime, holds: map[held]error{}}
	places, err := t.placeAll(base.Roots)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, b := range list {
				err = errors.Join(err, b.drop(s.spare))
			}
			list = nil
		}
	}()
	for i := range max(1, count) {
		b, err := s.draft(base, places, i == 0)
		if err != nil {
			return list, err
		}
		list = append(list, b)
		if count > 0 {
			b.Name, b.Index = memberName(base.Name, i+1), i+1
			if len(opts.Commands) > 0 {
				b.Command = opts.Commands[i]
			}
		}
		for j := range b.Roots {
			if err := b.makeLayer(j, places[j]); err != nil {
				return list, fmt.Errorf("make the layer of %s: %w", b.Roots[j].Path, err)
			}
		}
	}
	return list, nil
}

// fork notes when, where and by whom the branch was made, and finds its name.
func (s *Store) fork(opts CreateOptions, count int) (Meta, error) {
	m := Meta{
		State: Running, Created: time.Now(), Command: opts.Command, Dir: opts.Dir, Engine: engines(opts.Roots),
		Scope: opts.Scope, Policy: opts.Policy, Parent: opts.Parent, Extra: opts.Extra,
	}
	var err error
	if m.Machine, err = machineID(); err != nil {
		return m, err
	}
	if m.Boot, err = BootID(); err != nil {
		return m, err
	}
	if m.Real, err = Now(unix.CLOCK_REALTIME); err != nil {
		return m, err
	}
	if m.Boottime, err = Now(unix.CLOCK_BOOTTIME); err != nil {
		return m, err
	}
	if m.Commits, err = s.seen(); err != nil {
		return m, err
	}
	taken, err := s.names()
	if err != nil {
		return m, err
	}
	names := func(name string) []string {
		list := []string{name}
		for i := range count {
			list = append(list, memberName(name, i+1))
		}
		return list
	}
	isTaken := func(name string) bool {
		for _, n := range names(name) {
			if taken[n] != "" {
				return true
			}
		}
		return false
	}
	if m.Name = opts.Name; m.Name == "" {
		m.Name = twoWords(isTaken)
	} else if isTaken(m.Name) {
		return m, fmt.Errorf("%s: %w", m.Name, ErrExists)
	}
	if count > 0 {
		if err := checkForm(memberName(m.Name, count)); err != nil {
			return m, err
		}
	}
	m.Roots = append(m.Roots, opts.Roots...)
	return m, nil
}

// engines names those of a branch.
func engines(roots []Root) string {
	var names []string
	for _, r := range roots {
		if name := r.Engine.Name(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, "+")
}

// placeAll finds a place for the layer of each root, and takes one stamp for
// each file system. What it finds out is written to roots.
func (t *site) placeAll(roots []Root) ([]*place, error) {
	places := make([]*place, len(roots))
	stamps := map[uint64]stamp{} // by device: one clock
	for i := range roots {
		r := &roots[i]
		dir, err := sys.OpenDir(r.Path)
		if err != nil {
			return nil, err
		}
		p, st, err := t.placeOne(r, dir, stamps)
		if err := errors.Join(err, dir.Close()); err != nil {
			return nil, fmt.Errorf("place the layer of %s: %w", r.Path, err)
		}
		places[i], r.Number, r.Store, r.Stamp, r.Strict = p, i, p.id, st.time, st.strict
	}
	return places, nil
}

func (t *site) placeOne(r *Root, dir *sys.Dir, stamps map[uint64]stamp) (*place, stamp, error) {
	st, err := dir.Stat("")
	if err != nil {
		return nil, stamp{}, err
	}
	if st.Identity() != r.ID {
		return nil, stamp{}, fmt.Errorf("it was replaced while the branch was made")
	}
	p, err := t.own(r.Path, st)
	if err != nil {
		return nil, stamp{}, err
	}
	own := p
	r.Copy = own == nil || t.holdsLayers(r.Engine, own) != nil
	if r.Copy {
		if p, err = t.elsewhere(r.Engine); err != nil {
			return nil, stamp{}, err
		}
	}
	mark, ok := stamps[st.Dev]
	if !ok {
		if own != nil {
			mark, err = takeStamp(dirStamp{own.dir})
		} else {
			mark, err = stampIn(dir)
		}
		if err != nil {
			return nil, stamp{}, fmt.Errorf("stamp its file system: %w", err)
		}
		stamps[st.Dev] = mark
	}
	return p, mark, nil
}

// draft takes the spare skeleton, or makes one, and locks it. Of the members of
// a group only the first looks for a spare one: beside it lie the drafts of
// the others, and looking through those would take N² steps.
func (s *Store) draft(base Meta, places []*place, first bool) (*Branch, error) {
	var id string
	var dir *sys.Dir
	var l *lock
	if first {
		var err error
		if id, dir, l, err = s.takeSpare(); err != nil {
			return nil, err
		}
	}
	if dir == nil {
		id = newID()
		var err error
		if dir, l, err = s.makeDraft(id); err != nil {
			return nil, err
		}
	}
	b := &Branch{Meta: base, store: s, dir: dir, lock: l, sync: map[string]*os.File{}}
	b.ID = id
	b.Roots = append([]Root(nil), base.Roots...)
	for _, p := range places {
		if b.sync[p.id] != nil {
			continue
		}
		if p.id != "" {
			if err := p.dir.Mkdir(id, 0o700); err != nil {
				return nil, errors.Join(err, b.drop(s.spare))
			}
		}
		// Opened before the first write to a layer, so that syncfs on it hears
		// of every write that failed since (H27).
		f, err := p.dir.OpenFile(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return nil, errors.Join(err, b.drop(s.spare))
		}
		b.sync[p.id] = f
	}
	return b, nil
}

// makeDraft makes an empty draft and locks it.
func (s *Store) makeDraft(id string) (*sys.Dir, *lock, error) {
	if err := s.spare.Mkdir(id, 0o700); err != nil {
		return nil, nil, err
	}
	dir, err := s.spare.Sub(id)
	if err != nil {
		return nil, nil, err
	}
	l, err := openLock(dir, lockName)
	if err == nil {
		err = l.try()
	}
	if err != nil {
		return nil, nil, errors.Join(err, dir.Close())
	}
	return dir, l, nil
}

// takeSpare takes the spare skeleton, if there is one that nobody has taken.
func (s *Store) takeSpare() (string, *sys.Dir, *lock, error) {
	entries, err := s.spare.Entries()
	if err != nil {
		return "", nil, nil, err
	}
	for _, e := range entries {
		if !isID(e.Name) {
			continue
		}
		dir, err := s.spare.Sub(e.Name)
		if err != nil {
			continue // being moved to the trash
		}
		if l := lockPristine(dir); l != nil {
			return e.Name, dir, l, nil
		}
		dir.Close()
	}
	return "", nil, nil, nil
}

// lockPristine locks the skeleton in dir if no branch has begun in it.
func lockPristine(dir *sys.Dir) *lock {
	if st, err := dir.Stat(""); err != nil {
		return nil
	} else if gives, err := givesMore(dir, st); gives || err != nil {
		return nil // made before its store was bare
	}
	l, err := existingLock(dir, lockName)
	if err != nil {
		return nil
	}
	if l.try() == nil {
		if st, err := dir.Stat(metaName); err == nil && st.Size == 0 {
			return l
		}
	}
	l.release()
	return nil
}

func upperName(number int) string { return "u" + strconv.Itoa(number) }
func workName(number int) string  { return "w" + strconv.Itoa(number) }

// makeLayer makes the layer's and the work directory of root i, and prepares
// the first as the overlay wants it: owner, mode, times and attributes of the
// merged root are those of the layer's directory (FACTS B3).
func (b *Branch) makeLayer(i int, p *place) error {
	r := &b.Roots[i]
	holder := b.dir
	if p.id != "" {
		d, err := p.dir.Sub(b.ID)
		if err != nil {
			return err
		}
		defer d.Close()
		holder = d
	}
	for _, name := range []string{upperName(r.Number), workName(r.Number)} {
		if err := holder.Mkdir(name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	upper, err := holder.Sub(upperName(r.Number))
	if err != nil {
		return err
	}
	defer upper.Close()
	base, err := sys.OpenDir(r.Path)
	if err != nil {
		return err
	}
	defer base.Close()
	owners := layer.OwnersOf(sys.Root(), r.Engine.OutsideIDs())
	made, err := layer.Dress(upper, base, owners)
	if err != nil {
		return err
	}
	r.Prepared = map[string]sys.Stat{"": made}
	wanted, err := foreignOnTheWay(base, r)
	if err != nil {
		return err
	}
	for _, below := range wanted {
		if err := layer.PrepareBelow(upper, base, below, owners, r.Prepared); err != nil {
			return err
		}
	}
	return nil
}

// foreignOnTheWay lists the directories between the root and the roots nested
// in it that a session with one mapped id could not copy up, because another
// user or group owns them or one further down (FACTS B6).
func foreignOnTheWay(base *sys.Dir, r *Root) ([]string, error) {
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	if sys.Root() {
		return nil, nil // all ids are mapped
	}
	var wanted []string
	for _, name := range r.Names {
		below, _ := relative(name, r.Path)
		parts := split(below)
		last := 0
		for i := range parts {
			st, err := statBelow(base, strings.Join(parts[:i+1], "/"))
			if err != nil {
				return nil, err
			}
			if st.UID != uid || st.GID != gid {
				last = i + 1
			}
		}
		if last > 0 {
			wanted = append(wanted, strings.Join(parts[:last], "/"))
		}
	}
	return wanted, nil
}

func statBelow(d *sys.Dir, path string) (sys.Stat, error) {
	sub, err := d.Sub(path)
	if err != nil {
		return sys.Stat{}, err
	}
	defer sub.Close()
	return sub.Stat("")
}

// publish writes a draft's metadata and makes it a branch, by one rename: what
// is in branches/ always has whole metadata and a lock.
func (s *Store) publish(b *Branch) error {
	text, err := b.Meta.encode()
	if err == nil {
		err = writeOnce(b.dir, metaName, text)
	}
	if err == nil {
		err = s.spare.Rename(b.ID, s.branches, b.ID)
	}
	if err != nil {
		return errors.Join(err, b.drop(s.spare))
	}
	dir, err := s.branches.Sub(b.ID) // for the path in messages
	if err != nil {
		return errors.Join(err, b.Discard())
	}
	b.dir.Close()
	b.dir = dir
	return nil
}

// writeOnce writes a file that nobody reads yet. A skeleton has it, empty.
func writeOnce(d *sys.Dir, name string, content []byte) error {
	f, err := d.OpenFile(name, unix.O_WRONLY|unix.O_CREAT, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}
