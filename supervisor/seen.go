package supervisor

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/branch"
	"try/fs/changes"
	"try/fs/commit"
	"try/fs/sys"
)

// seenPath is one path of commit.Observe as it lies in a branch's metadata.
// Paths are bytes: JSON strings hold only UTF-8.
type seenPath struct {
	Path []byte      `json:"path"`
	Seen commit.Seen `json:"seen"`
}

// observe records in the branch what the base looks like now. What drift has
// found already stays a conflict.
func observe(b *branch.Branch, plan *changes.Plan, drifted []commit.Conflict) error {
	all, err := commit.Observe(plan, drifted)
	if err != nil {
		return fmt.Errorf("record the base for %s: %w", b.Name, err)
	}
	for i := range b.Roots {
		if err := b.SetSeen(i, seenList(all[b.Roots[i].Path])); err != nil {
			return fmt.Errorf("record the base for %s: %w", b.Name, err)
		}
	}
	return nil
}

// seenList is what was seen of a root as it lies in the metadata; never nil,
// which would mean that nothing was recorded.
func seenList(seen map[string]commit.Seen) []seenPath {
	list := make([]seenPath, 0, len(seen))
	for path, s := range seen {
		list = append(list, seenPath{[]byte(path), s})
	}
	return list
}

// seenOf is what observe has recorded of root i, nil if nothing.
func seenOf(b *branch.Branch, i int) (map[string]commit.Seen, error) {
	r := &b.Roots[i]
	if len(r.Seen) == 0 {
		return nil, nil
	}
	var list []seenPath
	if err := json.Unmarshal(r.Seen, &list); err != nil {
		return nil, fmt.Errorf("read what branch %s has seen of %s: %w", b.Name, r.Path, err)
	}
	seen := make(map[string]commit.Seen, len(list))
	for _, p := range list {
		seen[string(p.Path)] = p.Seen
	}
	return seen, nil
}

// forgive accepts the change times that a roll-back has given to what it put
// back. Without it the branch would be in conflict with its own commit.
func forgive(b *branch.Branch, restored []commit.Restored) error {
	for i := range b.Roots {
		paths := restoredIn(restored, b.Roots[i].Path)
		seen, err := seenOf(b, i)
		if err != nil {
			return err
		}
		if seen == nil || len(paths) == 0 {
			continue
		}
		if err := forgiveIn(b.Roots[i].Path, seen, paths); err != nil {
			return fmt.Errorf("record the base for %s: %w", b.Name, err)
		}
		if err := b.SetSeen(i, seenList(seen)); err != nil {
			return fmt.Errorf("record the base for %s: %w", b.Name, err)
		}
	}
	return nil
}

func forgiveIn(root string, seen map[string]commit.Seen, paths map[string]bool) error {
	base, err := sys.OpenDir(root)
	if err != nil {
		return err
	}
	defer base.Close()
	for path := range paths {
		was, ok := seen[path]
		if !ok {
			continue
		}
		dir, name := filepath.Split(path)
		in, err := base.Sub(strings.TrimSuffix(dir, "/"))
		if err != nil {
			continue // somebody else's by now, as Drift will say
		}
		if st, err := in.Stat(name); err == nil {
			seen[path] = was.Restored(&st)
		}
		in.Close()
	}
	return nil
}

func restoredIn(restored []commit.Restored, root string) map[string]bool {
	paths := map[string]bool{}
	for _, r := range restored {
		if r.Root == root {
			paths[r.Path] = true
		}
	}
	return paths
}

// altered writes the paths of a commit as the store keeps them for branches
// that were forked before: the change's letter, d for a directory or -, path.
func altered(plan *changes.Plan) []string {
	var list []string
	for _, p := range commit.Paths(plan) {
		kind := byte('-')
		if p.Dir {
			kind = 'd'
		}
		list = append(list, string([]byte{p.Kind.Letter(), kind})+p.Path)
	}
	return list
}

// others lists the commits since the fork of b.
func others(b *branch.Branch) ([]commit.List, error) {
	since, err := b.Since()
	if err != nil {
		return nil, err
	}
	var lists []commit.List
	for _, l := range since {
		list := commit.List{Number: int64(l.Number), Branch: l.Name}
		for _, text := range l.Paths {
			kind, ok := kindOf(text)
			if !ok {
				return nil, fmt.Errorf("read the paths of commit %d: %q is none", l.Number, text)
			}
			list.Paths = append(list.Paths, commit.Altered{Path: text[2:], Kind: kind, Dir: text[1] == 'd'})
		}
		lists = append(lists, list)
	}
	return lists, nil
}

func kindOf(text string) (changes.Kind, bool) {
	if len(text) < 3 || text[2] != '/' {
		return 0, false
	}
	for k := changes.Added; k <= changes.Touched; k++ {
		if k.Letter() == text[0] {
			return k, true
		}
	}
	return 0, false
}

// clock reads the clocks beside those of the fork of b.
func clock(b *branch.Branch) (commit.Clock, error) {
	c := commit.Clock{Fork: commit.Moment{Real: b.Real, Boot: b.Boottime, BootID: b.Boot}}
	var err error
	if c.Now.BootID, err = branch.BootID(); err != nil {
		return c, err
	}
	for _, read := range []struct {
		clock int32
		into  *sys.Time
	}{{unix.CLOCK_REALTIME, &c.Now.Real}, {unix.CLOCK_BOOTTIME, &c.Now.Boot}} {
		if *read.into, err = branch.Now(read.clock); err != nil {
			return c, err
		}
	}
	return c, nil
}
