package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"try/fs/branch"
	"try/fs/commit"
	"try/fs/sys"
)

// readsName is the file in a branch's directory with what its command has read
// of the base, if it was run with --serializable.
const readsName = "reads"

const readSince = "the command has read it, and it has changed since"

// reads are what was read of one root, by path below it. The first look
// counts: what looked different later has changed.
type reads struct {
	mu   sync.Mutex
	root string
	seen map[string]sys.Stat
}

// note is called by the server's goroutines.
func (r *reads) note(path string, st sys.Stat) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.seen[path]; !known {
		r.seen[path] = st
	}
}

// readPath is one path as it lies on disk. Paths are bytes: JSON strings hold
// only UTF-8.
type readPath struct {
	Root []byte   `json:"root"`
	Path []byte   `json:"path"`
	Stat sys.Stat `json:"stat"`
}

// keepReads writes what was read, for a commit now or later.
func (s *session) keepReads() error {
	if !s.set.opts.Serializable {
		return nil
	}
	var list []readPath
	for _, r := range s.reads {
		for _, path := range slices.Sorted(maps.Keys(r.seen)) {
			list = append(list, readPath{[]byte(r.root), []byte(path), r.seen[path]})
		}
	}
	return writeReads(s.b, list)
}

func writeReads(b *branch.Branch, list []readPath) error {
	text, err := json.Marshal(list)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.Path(), readsName), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("record what was read in %s: %w", b.Name, err)
	}
	return nil
}

// readsOf is what the command of b has read, if that was recorded.
func readsOf(b *branch.Branch) ([]readPath, error) {
	text, err := os.ReadFile(filepath.Join(b.Path(), readsName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var list []readPath
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("look up what was read in %s: %w", b.Name, err)
	}
	return list, nil
}

// readAndChanged lists what the command of b has read and what is another thing
// now. The stores are left out: only init has looked for them, to cover them.
func readAndChanged(b *branch.Branch, store *branch.Store) ([]commit.Conflict, error) {
	list, err := readsOf(b)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	stores, err := store.Places()
	if err != nil {
		return nil, err
	}
	var conflicts []commit.Conflict
	roots := map[string]*sys.Dir{}
	defer func() {
		for _, d := range roots {
			d.Close()
		}
	}()
	for _, r := range list {
		root := string(r.Root)
		full := filepath.Join(root, string(r.Path))
		if slices.ContainsFunc(stores, func(s string) bool { return isBelow(full, s) }) {
			continue
		}
		if roots[root] == nil {
			if roots[root], err = sys.OpenDir(root); err != nil {
				return nil, err
			}
		}
		same, err := unchangedAt(roots[root], string(r.Path), r.Stat)
		if err != nil {
			return nil, fmt.Errorf("look up what was read in %s: %w", b.Name, err)
		}
		if !same {
			conflicts = append(conflicts, commit.Conflict{Root: root, Path: string(r.Path), Reason: readSince})
		}
	}
	return conflicts, nil
}

// unchangedAt says that path below root is still what it was when it was read. Of a
// directory that was listed only its entries were read.
func unchangedAt(root *sys.Dir, path string, was sys.Stat) (bool, error) {
	dir, name := filepath.Split(path)
	now := sys.Stat{}
	in, err := root.Sub(strings.TrimSuffix(dir, "/"))
	if err == nil {
		defer in.Close()
		now, err = in.Stat(name)
	}
	absent := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
	switch {
	case absent || was == (sys.Stat{}):
		return absent && was == (sys.Stat{}), nil
	case err != nil:
		return false, err
	case was.IsDir():
		return now.Identity() == was.Identity() && now.Mtime == was.Mtime, nil
	}
	return now.Identity() == was.Identity() && now.Mtime == was.Mtime && now.Ctime == was.Ctime && now.Size == was.Size, nil
}

// copyReads gives a branch what the commands of others have read.
func copyReads(b *branch.Branch, from []*kept) error {
	var all []readPath
	for _, k := range from {
		list, err := readsOf(k.b)
		if err != nil {
			return err
		}
		all = append(all, list...)
	}
	if len(all) == 0 {
		return nil
	}
	return writeReads(b, all)
}
