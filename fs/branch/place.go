package branch

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"try/fs/engine"
	"try/fs/sys"
)

// entry is what the home store knows of a further store: the file stores/ID.
// A directory is a store of ours only if an entry names it and it is still the
// same directory (H1).
type entry struct {
	Version int          `json:"version"`
	ID      string       `json:"id"`
	Path    text         `json:"path"`
	Dir     sys.Identity `json:"dir"` // zero: about to be made
}

// text is a string of any bytes that survives JSON.
type text string

func (t text) MarshalText() ([]byte, error) { return []byte(encodeText(string(t))), nil }

func (t *text) UnmarshalText(b []byte) error {
	s, err := decodeText(string(b))
	*t = text(s)
	return err
}

// prefix of a further store's name in a directory that is not ours alone.
const storePrefix = ".try-"

// temporary are the directories that the system empties by itself: layers
// that are to last do not stay there (B24).
var temporary = []string{"/tmp", "/var/tmp", "/dev/shm"}

// entries reads what is known of further stores. An entry that cannot be read
// is an error: without it a store might stay uncovered.
func (s *Store) entries() ([]entry, error) {
	names, err := s.stores.Entries()
	if err != nil {
		return nil, err
	}
	var list []entry
	for _, n := range names {
		if !isID(n.Name) {
			continue // a temporary file of replaceFile
		}
		e, err := s.readEntry(n.Name)
		if errors.Is(err, unix.ENOENT) {
			continue // forgotten meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

func (s *Store) readEntry(id string) (entry, error) {
	data, err := readFile(s.stores, id, 64<<10)
	if err != nil {
		return entry{}, err
	}
	var e entry
	if err := json.Unmarshal(data, &e); err != nil {
		return e, fmt.Errorf("read %s/%s: %w", s.stores.Name(), id, err)
	}
	if e.Version != storeFormat || e.ID != id || filepath.Base(string(e.Path)) != storePrefix+id {
		return e, fmt.Errorf("read %s/%s: not the entry of a store", s.stores.Name(), id)
	}
	return e, nil
}

func (s *Store) writeEntry(e entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return replaceFile(s.stores, e.ID, data, false)
}

// openFurther opens the further store id and verifies that it is the directory
// that was made for it.
func (s *Store) openFurther(id string) (*place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.further[id]; p != nil {
		return p, nil
	}
	e, err := s.readEntry(id)
	if err != nil {
		return nil, err
	}
	dir, err := trustedDir(string(e.Path), false)
	if err != nil {
		return nil, err
	}
	st, err := checkOwn(dir)
	if err == nil && st.Identity() != e.Dir {
		err = &Untrusted{Path: string(e.Path), Why: "is not the directory that was made as a store"}
	}
	if err == nil {
		var gives bool
		if gives, err = givesMore(dir, st); gives {
			err = bare(dir)
		}
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	p := &place{id: id, dir: dir, stat: st, volatile: isVolatile(dir)}
	s.further[id] = p
	return p, nil
}

// isVolatile says whether what lies in d may go without us: with a reboot, or
// by the system's cleaner.
func isVolatile(d *sys.Dir) bool {
	for _, t := range temporary {
		if _, below := relative(d.Name(), t); below {
			return true
		}
	}
	st, err := d.StatFS()
	return err != nil || int64(st.Type) == unix.TMPFS_MAGIC || int64(st.Type) == unix.RAMFS_MAGIC
}

// makeFurther makes a further store in the directory parent. The entry comes
// first, so that no directory of ours is ever unknown. The store's lock is
// held.
func (s *Store) makeFurther(parent *sys.Dir) (*place, error) {
	id := newID()
	e := entry{Version: storeFormat, ID: id, Path: text(filepath.Join(parent.Name(), storePrefix+id))}
	if err := s.writeEntry(e); err != nil {
		return nil, err
	}
	undo := func(err error) (*place, error) {
		return nil, errors.Join(err, s.stores.Unlink(id))
	}
	if err := parent.Mkdir(storePrefix+id, 0o700); err != nil {
		return undo(err)
	}
	st, err := parent.Stat(storePrefix + id)
	if err == nil {
		e.Dir = st.Identity()
		err = s.writeEntry(e)
	}
	if err != nil {
		return undo(errors.Join(err, parent.Rmdir(storePrefix+id)))
	}
	p, err := s.openFurther(id)
	if err == nil {
		spread(p.dir)
	}
	return p, err
}

// spread has ext4 put each directory that is made in d, where branches begin,
// among other inodes than the one before ("top of directory hierarchies",
// chattr(1), find_group_orlov in fs/ext4/ialloc.c). All branches would lie
// where those lay that were thrown away just now; without a journal ext4 goes
// past each inode that was freed in the last minutes (recently_deleted), one by
// one, for each that it takes: 10,000 files took 9 s instead of 0.4 s. It is a
// hint; other file systems have no such flag.
func spread(d *sys.Dir) {
	f, err := d.OpenFile(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS); err == nil {
		unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|topDir)
	}
}

const topDir = 0x00020000 // FS_TOPDIR_FL, include/uapi/linux/fs.h

// site finds places for layers; it lives for one Create or Slots.
type site struct {
	store   *Store
	mounts  []sys.Mount
	runtime string // XDG_RUNTIME_DIR
	holds   map[held]error
}

// held is a question to an engine and what it was about.
type held struct {
	by engine.Engine
	in *place
}

// isOn says whether a rename between p and a directory with this stat can
// work: one file system, through one mount.
func (p *place) isOn(st sys.Stat) bool {
	return p.stat.Dev == st.Dev && p.stat.MntID == st.MntID
}

// holdsLayers asks the engine, once for each place.
func (t *site) holdsLayers(eng engine.Engine, p *place) error {
	err, ok := t.holds[held{eng, p}]
	if !ok {
		err = eng.Holds(p.dir.Name())
		t.holds[held{eng, p}] = err
	}
	return err
}

// own finds a place on the root's own file system, making one where there is
// none; nil if nothing there is the user's to write and safe.
func (t *site) own(path string, st sys.Stat) (*place, error) {
	if t.store.home.isOn(st) {
		return &t.store.home, nil
	}
	if p, err := t.known(func(p *place) bool { return p.isOn(st) }); p != nil || err != nil {
		return p, err
	}
	for _, dir := range t.candidates(path, st) {
		p, err := t.makeIn(dir, func(d sys.Stat) bool { return d.Dev == st.Dev && d.MntID == st.MntID })
		if p != nil || err != nil {
			return p, err
		}
	}
	return nil, nil
}

// known finds an existing further store. One that does not verify, or is gone
// with a reboot, is passed over; nothing in it is read.
func (t *site) known(fits func(*place) bool) (*place, error) {
	entries, err := t.store.entries()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if p, err := t.store.openFurther(e.ID); err == nil && fits(p) {
			return p, nil
		}
	}
	return nil, nil
}

// candidates lists where on the file system of path a store may be made: in
// a temporary directory itself, else as near to the mount point as possible.
func (t *site) candidates(path string, st sys.Stat) []string {
	var list []string
	for _, dir := range temporary {
		if _, ok := relative(path, dir); ok {
			list = append(list, dir)
		}
	}
	top := "/"
	for _, m := range t.mounts {
		if uint64(m.ID) == st.MntID {
			top = m.Target
		}
	}
	var down []string
	for dir := path; ; dir = filepath.Dir(dir) {
		down = append(down, dir)
		if dir == top || dir == "/" {
			break
		}
	}
	slices.Reverse(down)
	return append(list, down...)
}

// makeIn makes a further store in dir if dir can be trusted, written, and fits.
func (t *site) makeIn(dir string, fits func(sys.Stat) bool) (*place, error) {
	d, err := trustedDir(dir, false)
	if err != nil {
		return nil, nil //lint:allow error a place that cannot be used is passed over
	}
	defer d.Close()
	if st, err := d.Stat(""); err != nil || !fits(st) || d.Access("", unix.W_OK|unix.X_OK) != nil {
		return nil, nil //lint:allow error as above
	}
	p, err := t.store.makeFurther(d)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil, nil
	}
	return p, err
}

// elsewhere finds a place on another file system, for a layer whose root's own
// cannot hold one (DESIGN §5): the home store, a writable volume, the user's
// runtime directory, shared memory.
func (t *site) elsewhere(eng engine.Engine) (*place, error) {
	if t.holdsLayers(eng, &t.store.home) == nil {
		return &t.store.home, nil
	}
	good := func(p *place) bool { return t.holdsLayers(eng, p) == nil }
	if p, err := t.known(good); p != nil || err != nil {
		return p, err
	}
	var dirs []string
	for _, m := range t.mounts {
		if slices.Contains([]string{"ext4", "xfs", "btrfs", "f2fs", "bcachefs", "zfs"}, m.FSType) && !m.Has("ro") {
			dirs = append(dirs, m.Target)
		}
	}
	if t.runtime != "" {
		dirs = append(dirs, t.runtime)
	}
	dirs = append(dirs, "/dev/shm")
	for _, dir := range dirs {
		p, err := t.makeIn(dir, func(sys.Stat) bool { return true })
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue
		}
		if good(p) {
			return p, nil
		}
		if err := t.store.forget(p.id); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("find a place for layers: %w", t.holdsLayers(eng, &t.store.home))
}

// forget removes a further store that holds nothing, and its entry. The
// store's lock is held.
func (s *Store) forget(id string) error {
	e, err := s.readEntry(id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if p := s.further[id]; p != nil {
		delete(s.further, id)
		p.dir.Close()
	}
	s.mu.Unlock()
	if err := removeFurther(e); err != nil {
		return err
	}
	return s.stores.Unlink(id)
}

// removeFurther removes the directory of a further store if it is the one that
// was made for it, and only if it is empty. Whatever else is there now is not
// ours to touch.
func removeFurther(e entry) error {
	parent, err := trustedDir(filepath.Dir(string(e.Path)), false)
	if _, untrusted := errors.AsType[*Untrusted](err); untrusted || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	name := storePrefix + e.ID
	st, err := parent.Stat(name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	case e.Dir == (sys.Identity{}):
		// A crash came between the directory and its entry: it is empty, or it
		// is not ours; its name is 128 random bits.
		if err := parent.Rmdir(name); !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
		return nil
	case st.Identity() != e.Dir:
		return nil
	}
	return parent.Rmdir(name)
}
