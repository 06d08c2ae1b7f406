package branch

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// MountPoints are empty directories, in a store, to mount on in the namespace
// of the supervisor.
type MountPoints struct {
	Paths []string

	store  *Store
	place  string // id of the further store; "": the home store
	holder *sys.Dir
	parent *sys.Dir // of holder, if that is nobody else's; else nil
	id     string
}

// Where a mount is in nobody's way: below a root, where the home store may lie,
// it would keep the kernel's overlay from every session that starts meanwhile
// (FACTS B4).
const sharedMemory = "/dev/shm"

func pointName(i int) string { return "m" + strconv.Itoa(i) }

func isPoint(name string) bool {
	number, ok := strings.CutPrefix(name, "m")
	_, err := strconv.Atoi(number)
	return ok && err == nil
}

// MountPoints makes count mount points for b, in the user's runtime directory,
// in shared memory, or beside the layers, whichever is to be had first.
func (b *Branch) MountPoints(count int, mounts []sys.Mount, runtime string) (*MountPoints, error) {
	m := &MountPoints{store: b.store, id: b.ID}
	err := holding(b.store.dir, lockName, func() error {
		p, err := b.store.pointPlace(mounts, runtime)
		if err != nil {
			return err
		}
		if p == nil {
			m.holder, err = b.dir.Sub("")
			return err
		}
		m.place = p.id
		if err := p.dir.Mkdir(b.ID, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		if m.parent, err = p.dir.Sub(""); err != nil {
			return err
		}
		m.holder, err = p.dir.Sub(b.ID)
		return err
	})
	for i := 0; i < count && err == nil; i++ {
		if err = m.holder.Mkdir(pointName(i), 0o700); err == nil {
			m.Paths = append(m.Paths, filepath.Join(m.holder.Name(), pointName(i)))
		}
	}
	if err != nil {
		return nil, errors.Join(err, m.Remove())
	}
	return m, nil
}

// pointPlace finds or makes the store for mount points; nil: there is none but
// the home store.
func (s *Store) pointPlace(mounts []sys.Mount, runtime string) (*place, error) {
	t := &site{store: s, mounts: mounts}
	var dirs []string
	for _, dir := range []string{runtime, sharedMemory} {
		if real, err := filepath.EvalSymlinks(dir); err == nil && filepath.IsAbs(real) {
			dirs = append(dirs, real)
		}
	}
	p, err := t.known(func(p *place) bool { return slices.Contains(dirs, filepath.Dir(p.dir.Name())) })
	for i := 0; i < len(dirs) && p == nil && err == nil; i++ {
		p, err = t.makeIn(dirs[i], func(sys.Stat) bool { return true })
	}
	return p, err
}

// Open makes the directories above the mount points what they were made as: who
// is kept from writing only may have changed their modes (chmod(2)).
func (m *MountPoints) Open() error {
	var errs []error
	for _, d := range []*sys.Dir{m.parent, m.holder} {
		if d != nil {
			errs = append(errs, d.Chmod("", 0o700))
		}
	}
	return errors.Join(errs...)
}

// Remove removes the mount points, on which nothing is mounted here any more.
// With a directory go the mounts that other namespaces have on it, which took
// copies of ours while it was there (rmdir(2), __detach_mounts): but for the
// session's own, which lies elsewhere, nobody keeps any.
func (m *MountPoints) Remove() error {
	var errs []error
	for i := range m.Paths {
		errs = append(errs, m.holder.Rmdir(pointName(i)))
	}
	if m.parent != nil && m.holder != nil {
		// Layers of the branch may lie there too.
		if err := m.parent.Rmdir(m.id); !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, err)
		}
	}
	for _, d := range []*sys.Dir{m.holder, m.parent} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	if m.place != "" {
		err := holding(m.store.dir, lockName, m.forget)
		if !errors.Is(err, unix.ENOENT) { // somebody else was faster
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// forget lets the store go that was made for mount points, if nobody needs it.
// The store's lock is held.
func (m *MountPoints) forget() error {
	p, err := m.store.openFurther(m.place)
	if err != nil {
		return err
	}
	used, err := m.store.usedStores()
	if err != nil || used[m.place] {
		return err
	}
	if entries, err := p.dir.Entries(); err != nil || len(entries) > 0 {
		return err
	}
	return m.store.forget(m.place)
}

// Abandoned has unmount called for each mount of the type fstype, in mounts, on
// a mount point of a branch that nobody holds: its supervisor was killed.
// Nothing else is a mount point of ours but what lies, by that name, in a store
// that the home store knows and that is still the same directory. unmounted
// says whether there was one.
func (s *Store) Abandoned(mounts []sys.Mount, fstype string, unmount func(path string) error) (unmounted bool, err error) {
	var errs []error
	for _, m := range mounts {
		if m.FSType != fstype {
			continue
		}
		holder, point := filepath.Split(m.Target)
		store, id := filepath.Split(filepath.Clean(holder))
		if !isPoint(point) || !isID(id) || !s.isPointPlace(filepath.Clean(store)) {
			continue
		}
		err := s.ifNobodyHolds(id, func() error {
			err := unmount(m.Target)
			if err == nil {
				unmounted = true
				err = unix.Rmdir(m.Target)
			}
			return err
		})
		if err == nil && !s.isHomePart(filepath.Clean(store)) {
			// As above; a layer's directory is not empty.
			_ = unix.Rmdir(filepath.Clean(holder))
		}
		errs = append(errs, err)
	}
	return unmounted, errors.Join(errs...)
}

// sweepPoints removes the mount points in in/id that a killed session left, and
// the directory if there is nothing else in it.
func sweepPoints(in *sys.Dir, id string) error {
	d, err := in.Sub(id)
	if err != nil {
		return err
	}
	defer d.Close()
	entries, err := d.Entries()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !isPoint(e.Name) {
			continue
		}
		if err := d.Rmdir(e.Name); err != nil && !errors.Is(err, unix.EBUSY) { // it is mounted on: see Abandoned
			return err
		}
	}
	if err := in.Rmdir(id); !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// isHomePart says whether path is where branches lie in the home store.
func (s *Store) isHomePart(path string) bool {
	return path == s.branches.Name() || path == s.spare.Name() || path == s.trash.Name()
}

func (s *Store) isPointPlace(path string) bool {
	if s.isHomePart(path) {
		return true
	}
	id, further := strings.CutPrefix(filepath.Base(path), storePrefix)
	if !further || !isID(id) {
		return false
	}
	p, err := s.openFurther(id)
	return err == nil && p.dir.Name() == path
}

// ifNobodyHolds calls f with the lock of the branch id, if there is such a
// branch, and not at all if somebody has that.
func (s *Store) ifNobodyHolds(id string, f func() error) error {
	for _, in := range []*sys.Dir{s.spare, s.branches} {
		dir, err := in.Sub(id)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return err
		}
		l, err := existingLock(dir, lockName)
		if err := errors.Join(err, dir.Close()); err != nil {
			return err
		}
		defer l.release()
		if err := l.try(); errors.Is(err, ErrLocked) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return f()
}
