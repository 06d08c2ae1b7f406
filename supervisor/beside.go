package supervisor

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/supervisor/policy"
)

// TheBase is the base as it is now, for those who ask a policy about a path
// without a branch.
type TheBase struct {
	Stores []string // whose links, of old branches, are nobody's business
}

var _ policy.Base = TheBase{}

// Readlink returns where a symbolic link leads to, "" if there is none.
func (TheBase) Readlink(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return "" // no link, or none that a commit could change
	}
	return target
}

// maxListed bounds how many entries are looked at for links.
const maxListed = 2000

// Links lists the symbolic links below dir.
func (b TheBase) Links(dir string, depth int) []string {
	var list []string
	left := maxListed
	level := []string{""}
	for ; depth > 0 && len(level) > 0; depth-- {
		var next []string
		for _, sub := range level {
			at := filepath.Join(dir, sub)
			if slices.Contains(b.Stores, at) {
				continue
			}
			entries, err := os.ReadDir(at)
			if err != nil {
				continue // not there, or no directory
			}
			for _, e := range entries {
				if left--; left < 0 {
					return list
				}
				switch name := filepath.Join(sub, e.Name()); {
				case e.Type()&os.ModeSymlink != 0:
					list = append(list, name)
				case e.IsDir():
					next = append(next, name)
				}
			}
		}
		level = next
	}
	return list
}

// Lookup says whether there is anything at path, and whether it can be run.
func (TheBase) Lookup(path string) (there, runs bool) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return false, false
	}
	return true, st.Mode&unix.S_IFMT == unix.S_IFREG && unix.Access(path, unix.X_OK) == nil
}

// Contents knows of no branch.
func (TheBase) Contents(string) (before, after []byte, err error) {
	return nil, nil, policy.ErrUnknown
}

// beside is the base with the branch that is judged.
type beside struct {
	TheBase
	c *committer
	v *verdict
}

// Contents reads both sides of a change.
func (b *beside) Contents(path string) (before, after []byte, err error) {
	i, ok := b.v.index[path]
	if !ok {
		return nil, nil, policy.ErrUnknown
	}
	at := b.v.at[i]
	root := &b.c.res.Plan.Roots[at.root]
	change := &root.Changes[at.change]
	rel := change.Path()
	if change.Base != nil {
		if before, err = readAll(root.Root.Path, rel); err != nil {
			return nil, nil, err
		}
	}
	if change.Layer != nil {
		layer, err := b.c.b.Layer(at.root)
		if err != nil {
			return nil, nil, err
		}
		if after, err = readAll(layer, rel); err != nil {
			return nil, nil, err
		}
	}
	return before, after, nil
}

// headOf reads the beginning of a regular file; a FIFO in its place is not
// waited for.
func headOf(path string, n int) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, n)
	_, err = io.ReadFull(f, head)
	return head, err
}

// readAll reads a regular file below root, through no symbolic link.
func readAll(root, rel string) ([]byte, error) {
	dir, err := sys.OpenDir(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := dir.OpenFile(rel, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > policy.MaxContents {
		return nil, &os.PathError{Op: "read", Path: f.Name(), Err: unix.EINVAL}
	}
	text, err := io.ReadAll(io.LimitReader(f, policy.MaxContents))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", rel, err)
	}
	return text, nil
}
