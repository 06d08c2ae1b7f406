package branch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// storeFormat is the version of the store's layout. A reader takes all older
// ones and refuses newer ones by name.
const storeFormat = 1

const formatLine = "try store "

// Names in the home store; doc.go draws them.
const (
	branchesName = "branches"
	spareName    = "spare"
	trashName    = "trash"
	commitsName  = "commits"
	groupsName   = "groups"
	storesName   = "stores"
	undoName     = "undo"
	formatName   = "format"
	lockName     = "lock"
	metaName     = "meta"
	journalName  = "journal"
	spareJournal = "spare.journal"
)

// Store is an open home store. It may be used by several goroutines.
type Store struct {
	dir      *sys.Dir // the home store itself
	home     place
	named    string   // how it was named, links included
	defaults []string // other places where a home store would be looked for

	branches, spare, trash, commits, groups, stores, undo *sys.Dir

	// mu guards further. It is never held while a lock of the store is waited
	// for.
	mu      sync.Mutex
	further map[string]*place // by id; opened and verified
}

// place is a directory that layers can lie in: the home store or a further one.
type place struct {
	id       string // "" for the home store
	dir      *sys.Dir
	stat     sys.Stat
	volatile bool // memory, or cleaned by the system: not for kept branches
}

// OpenStore opens the home store at path, making it if it is missing, and
// checks that nobody but the user and root can reach into it. others are the
// places where a home store would be looked for if path had not been given;
// they are covered and protected like it.
func OpenStore(path string, others ...string) (*Store, error) {
	dir, err := trustedDir(path, true)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{dir: dir, named: path, defaults: others, further: map[string]*place{}}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", dir.Name(), err), s.Close())
	}
	return s, nil
}

func (s *Store) open() error {
	st, err := checkOwn(s.dir)
	if err != nil {
		return err
	}
	s.home = place{dir: s.dir, stat: st}
	if err := s.checkFormat(); err != nil {
		return err
	}
	gives, err := givesMore(s.dir, st)
	if err != nil {
		return err
	}
	for _, d := range []struct {
		name string
		dir  **sys.Dir
	}{
		{branchesName, &s.branches}, {spareName, &s.spare}, {trashName, &s.trash},
		{commitsName, &s.commits}, {groupsName, &s.groups}, {storesName, &s.stores},
		{undoName, &s.undo},
	} {
		sub, err := s.dir.Sub(d.name)
		if errors.Is(err, unix.ENOENT) {
			if err := s.dir.Mkdir(d.name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
				return err
			}
			if sub, err = s.dir.Sub(d.name); err == nil && (d.name == spareName || d.name == trashName) {
				spread(sub)
			}
		}
		if err != nil {
			return err
		}
		*d.dir = sub
		if gives {
			if err := bare(sub); err != nil {
				return err
			}
		}
	}
	if gives {
		return bare(s.dir) // the last, by which we know
	}
	return nil
}

// checkFormat reads the format file. A directory without one becomes a store
// only if it is empty: what is there may be anybody's (H1).
func (s *Store) checkFormat() error {
	text, err := readFile(s.dir, formatName, 256)
	if errors.Is(err, unix.ENOENT) {
		other, e := s.otherThanFormat()
		if e != nil {
			return e
		}
		if other == "" {
			return replaceFile(s.dir, formatName, []byte(formatLine+strconv.Itoa(storeFormat)+"\n"), false)
		}
		// Another first run has made it a store between the two looks, or nobody has.
		if text, err = readFile(s.dir, formatName, 256); errors.Is(err, unix.ENOENT) {
			return &Untrusted{Path: s.dir.Name(), Why: "is no store, and holds " + strconv.Quote(other), Help: "set TRY_STORE to an empty or a new directory"}
		}
	}
	if err != nil {
		return err
	}
	number, ok := strings.CutPrefix(strings.TrimSuffix(string(text), "\n"), formatLine)
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 {
		return &Untrusted{Path: s.dir.Name(), Why: "its format file is not a store's"}
	}
	if n > storeFormat {
		return fmt.Errorf("written by a newer try: format %d, this one reads 1–%d", n, storeFormat)
	}
	return nil
}

// otherThanFormat finds what is neither the format file nor another first run's
// temporary one: these are the first that a store holds.
func (s *Store) otherThanFormat() (string, error) {
	entries, err := s.dir.Entries()
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name, formatName) {
			return e.Name, nil
		}
	}
	return "", nil
}

// Close closes the store's descriptors; branches that are open stay so.
func (s *Store) Close() error {
	var errs []error
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.further {
		errs = append(errs, p.dir.Close())
	}
	s.further = nil
	for _, d := range []*sys.Dir{s.branches, s.spare, s.trash, s.commits, s.groups, s.stores, s.undo, s.dir} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	return errors.Join(errs...)
}

// Path is the home store's directory, without symbolic links.
func (s *Store) Path() string { return s.dir.Name() }

// Homes lists every directory that is a home store or would be taken for one:
// this one and the default places, as they are named, as they are, and as each
// symbolic link on the way names them. Not all of them need exist: who makes
// one that does not, or turns a link, decides what lies there.
func (s *Store) Homes() []string {
	list := []string{s.Path()}
	for _, d := range append([]string{s.named}, s.defaults...) {
		list = append(list, ways(filepath.Clean(d))...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Places lists every directory that is a store or would be taken for one:
// Homes and the further stores. Sessions cover them, and a plan that touches
// one is refused (H12).
func (s *Store) Places() ([]string, error) {
	list := s.Homes()
	entries, err := s.entries()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		list = append(list, string(e.Path))
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// ways lists the names of the entry at path by which the kernel comes to it:
// path, that with the first symbolic link replaced by what it says, and so on
// to the one without links. What is missing has no links.
func ways(path string) []string {
	list := []string{path}
	done, rest := "", split(path)
	for links := 0; len(rest) > 0 && links <= maxLinks; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			done = done[:max(0, strings.LastIndexByte(done, '/'))]
			continue
		}
		target, err := os.Readlink(done + "/" + name)
		if err != nil {
			done += "/" + name
			continue
		}
		if links++; filepath.IsAbs(target) {
			done = ""
		}
		rest = append(split(target), rest...)
		list = append(list, filepath.Join("/", done, filepath.Join(rest...)))
	}
	return append(list, filepath.Join("/", done))
}

// Aliases lists every path at which the directory at path, or a part of it, can
// be seen, path itself left out: a file system that is mounted twice shows it
// twice (H35).
func Aliases(path string, mounts []sys.Mount) []string {
	var list []string
	for _, m := range mounts {
		inside, ok := relative(path, m.Target)
		if !ok {
			continue
		}
		at := filepath.Join(m.Root, inside)
		for _, other := range mounts {
			if other.Dev != m.Dev {
				continue
			}
			if rest, ok := relative(at, other.Root); ok {
				list = append(list, filepath.Join(other.Target, rest))
			} else if _, ok := relative(other.Root, at); ok {
				list = append(list, other.Target)
			}
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(p string) bool { return p == path })
}

// relative is path without the directory dir in front; ok if it is dir or
// lies below it.
func relative(path, dir string) (string, bool) {
	if path == dir {
		return "", true
	}
	if dir == "/" {
		return strings.TrimPrefix(path, "/"), strings.HasPrefix(path, "/")
	}
	rest, ok := strings.CutPrefix(path, dir)
	if !ok || !strings.HasPrefix(rest, "/") {
		return "", false
	}
	return rest[1:], true
}

// readFile reads a small file of the store's own.
func readFile(d *sys.Dir, name string, limit int) ([]byte, error) {
	return readUntil(d, name, -1, limit)
}

// readUntil reads no further than it must to have the byte end; -1 is none.
func readUntil(d *sys.Dir, name string, end, limit int) ([]byte, error) {
	fd, err := d.OpenFD(name, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 0, min(limit, 4<<10))
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, cap(buf))
		}
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: d.Name() + "/" + name, Err: err}
		}
		if n == 0 {
			return buf, nil
		}
		if buf = buf[:len(buf)+n]; len(buf) > limit {
			return nil, &os.PathError{Op: "read", Path: d.Name() + "/" + name, Err: unix.EFBIG}
		}
		if end >= 0 && bytes.IndexByte(buf[len(buf)-n:], byte(end)) >= 0 {
			return buf, nil
		}
	}
}

// replaceFile writes a small file of the store's own so that at every moment
// its name holds the old content or the new; with durable also across a loss
// of power: content before name, name before return.
func replaceFile(d *sys.Dir, name string, content []byte, durable bool) error {
	temporary := name + "." + newID()
	f, err := d.OpenFile(temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && durable {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, d.Unlink(temporary))
	}
	if err := d.Replace(temporary, d, name); err != nil {
		return errors.Join(err, d.Unlink(temporary))
	}
	if durable {
		return d.Sync()
	}
	return nil
}
