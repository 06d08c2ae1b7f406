package supervisor_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// snapshot is a tree as a commit must leave it: path → type, mode, owner,
// mtime, attributes, content or target.
type snapshot map[string]string

// look takes the snapshot of a directory, itself included. It opens what its
// owner closed, and closes it again.
func (r *rig) look(dir string) snapshot {
	r.t.Helper()
	all := snapshot{}
	r.must(all.add(dir, "."))
	return all
}

// names adds to each file with several names in dir the first of them.
func (s snapshot) names(dir string) error {
	first := map[uint64]string{}
	for _, rel := range slices.Sorted(maps.Keys(s)) {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, rel), &st); err != nil {
			return fmt.Errorf("look at %s: %w", rel, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if name, ok := first[st.Ino]; ok {
			s[rel] += " = " + name
		} else {
			first[st.Ino] = rel
		}
	}
	return nil
}

// project is the snapshot of the project.
func (r *rig) project() snapshot { r.t.Helper(); return r.look(r.proj) }

func (s snapshot) add(dir, rel string) error {
	path := filepath.Join(dir, rel)
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	perm := st.Mode & 0o7777
	kind := st.Mode & unix.S_IFMT
	line := fmt.Sprintf("%o %d:%d %s", st.Mode, st.Uid, st.Gid, time.Unix(st.Mtim.Unix()).UTC().Format("2006-01-02T15:04:05.999999999"))
	closed := (kind == unix.S_IFDIR && perm&0o700 != 0o700 || kind == unix.S_IFREG && perm&0o400 == 0) && os.Getuid() != 0
	if closed {
		if err := os.Chmod(path, 0o700); err != nil {
			return err
		}
	}
	content, err := describe(path, kind, &st)
	if err != nil {
		return err
	}
	s[rel] = line + content
	if kind == unix.S_IFDIR {
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := s.add(dir, filepath.Join(rel, e.Name())); err != nil {
				return err
			}
		}
	}
	if closed {
		return unix.Chmod(path, perm)
	}
	return nil
}

func describe(path string, kind uint32, st *unix.Stat_t) (string, error) {
	attrs, err := attributes(path)
	if err != nil {
		return "", err
	}
	switch kind {
	case unix.S_IFREG:
		b, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		text := string(b)
		if len(b) > 64 {
			text = fmt.Sprintf("%x", sha256.Sum256(b))
		}
		return fmt.Sprintf("%s %d bytes %q", attrs, len(b), text), nil
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		return attrs + " -> " + target, err
	case unix.S_IFCHR, unix.S_IFBLK:
		return fmt.Sprintf("%s device %d", attrs, st.Rdev), nil
	}
	return attrs, nil
}

func attributes(path string) (string, error) {
	buf := make([]byte, 8192)
	n, err := unix.Llistxattr(path, buf)
	if errors.Is(err, unix.ENOTSUP) {
		return "", nil
	}
	if err != nil {
		return "", &fs.PathError{Op: "listxattr", Path: path, Err: err}
	}
	names := strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00")
	slices.Sort(names)
	text := ""
	for _, name := range names {
		if name == "" {
			continue
		}
		value := make([]byte, 8192)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return "", &fs.PathError{Op: "getxattr", Path: path, Err: err}
		}
		text += fmt.Sprintf(" %s=%q", name, value[:n])
	}
	return text, nil
}

// differs lists where two snapshots differ, "" if nowhere.
func (s snapshot) differs(other snapshot) string {
	text := ""
	both := maps.Clone(s)
	maps.Copy(both, other)
	for _, path := range slices.Sorted(maps.Keys(both)) {
		if a, b := s[path], other[path]; a != b {
			text += fmt.Sprintf("\n%q\n\t%s\n\t%s", path, a, b)
		}
	}
	return text
}

// same ends the test if the project is not as it was.
func (r *rig) same(want snapshot) {
	r.t.Helper()
	if diff := want.differs(r.project()); diff != "" {
		r.t.Fatalf("the project is not as it must be (want, then have):%s", diff)
	}
}

// inRecord is what an undo record consists of.
var inRecord = regexp.MustCompile(`^(journal(\.[0-9a-f]{16})?|lock|meta|size|kept|u[0-9]+|undo[0-9]+)$`)

// clean wants the home store to hold nothing but one spare skeleton, one
// preallocated journal and the undo records (B31).
func (r *rig) clean() {
	r.t.Helper()
	var left []string
	size := int64(0)
	spares := map[string]bool{}
	err := filepath.WalkDir(r.store(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == r.store() {
			return err
		}
		rel, _ := filepath.Rel(r.store(), path)
		parts := strings.Split(rel, "/")
		info, err := d.Info()
		if err != nil {
			return err
		}
		if d.Type().IsRegular() {
			size += info.Size()
		}
		switch {
		case parts[0] == "spare" && len(parts) > 1:
			spares[parts[1]] = true
		case len(parts) == 1:
		case parts[0] == "trust":
		case parts[0] == "undo" && (len(parts) == 2 || inRecord.MatchString(parts[2])):
			if d.Type().IsRegular() {
				size -= info.Size() // what a record holds is the user's
			}
			if d.IsDir() && len(parts) > 2 { // and may be deeper than a path is long
				return fs.SkipDir
			}
		case parts[0] == "commits" && info.Size() < 64: // the counter
		case parts[0] == "stores" && r.hasRecords(): // where what they displaced lies
		default:
			left = append(left, rel)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	r.must(err)
	if len(left) > 5 {
		left = append(left[:5], "…")
	}
	if len(left) > 0 || len(spares) > 1 || size > 80<<10 {
		r.t.Errorf("the store holds %d bytes, %d spare skeletons, and %q", size, len(spares), left)
	}
}

// hasRecords says that a commit can be undone.
func (r *rig) hasRecords() bool {
	entries, _ := os.ReadDir(filepath.Join(r.store(), "undo"))
	return len(entries) > 0
}
