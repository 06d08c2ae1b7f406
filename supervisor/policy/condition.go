package policy

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// condition is what a built-in rule asks beyond its globs.
type condition uint8

const (
	always condition = iota
	// notBareDir: making or touching the directory itself is no harm; ssh makes
	// ~/.ssh on first use.
	notBareDir
	// existing: it was there before; who installs the tool may bring it.
	existing
	// hook: git would run it, in a repository that was there before and stays.
	hook
	// oldDir: the directory that holds it was there before. A clone may bring
	// what it likes.
	oldDir
	// gitKeys: a git configuration that was there before, or the user's, and a
	// key of those that git runs differs.
	gitKeys
	// shadows: a program by the name of another that PATH finds further behind.
	shadows
	// alone: a .pth file that no package beside it brings; pip's may.
	alone
	// launcher: it was there before, or stands before one of the system's.
	launcher
	// sameIndex: a git index that says the same as the base's but for stat data.
	sameIndex
)

// conditionWords say the conditions, for Show.
var conditionWords = [...]string{
	always:     "always",
	notBareDir: "making the directory itself is free",
	existing:   "if it was there before",
	hook:       "executable, not *.sample, in a repository that was there before",
	oldDir:     "in a directory that was there before",
	gitKeys:    gitKeysWords,
	shadows:    "an executable by the name of one that PATH finds further behind",
	alone:      "unless a package is installed beside it",
	launcher:   "if it was there before, or hides one of the system's",
	sameIndex:  "if no entry differs",
}

const gitKeysWords = "if a key of those that git runs or obeys differs"

// String says the condition in words.
func (c condition) String() string {
	if int(c) >= len(conditionWords) {
		return fmt.Sprintf("condition(%d)", uint8(c))
	}
	return conditionWords[c]
}

// holds checks what a built-in rule asks beyond its globs of a change, which
// has met it under the name path. detail is what the user should know of it.
func (e *evaluation) holds(only condition, c *Change, path string) (holds bool, detail string) {
	switch only {
	case always:
		return true, ""
	case notBareDir:
		return c.Type != "dir" || c.Kind != "added", ""
	case existing:
		return c.Kind != "added", ""
	case oldDir:
		return !e.isFresh(filepath.Dir(path)), ""
	case hook:
		if c.Type == "dir" || strings.HasSuffix(path, ".sample") || !c.Exec && c.Type != "symlink" {
			return false, ""
		}
		return e.isOldRepository(gitDir(path)), ""
	case gitKeys:
		if c.Type == "dir" || !e.isOldRepository(filepath.Dir(path)) {
			return false, ""
		}
		detail = e.gitKeys(c)
		return detail != "", detail
	case shadows:
		return e.shadowed(c, path)
	case alone:
		return !e.hasPackage(filepath.Dir(c.Path)), ""
	case launcher:
		if c.Type == "dir" {
			return false, ""
		}
		hides := false
		if e.in.Base != nil {
			hides, _ = e.in.Base.Lookup(filepath.Join("/usr/share/applications", filepath.Base(path)))
		}
		return c.Kind != "added" || hides, ""
	case sameIndex:
		if c.Kind != "modified" || c.Type != "file" || e.in.Base == nil {
			return false, ""
		}
		before, after, err := e.in.Base.Contents(c.Path)
		return err == nil && SameIndex(before, after), ""
	}
	panic("unknown condition of a built-in rule")
}

// isFresh says whether the branch makes the directory, or one that holds it.
func (e *evaluation) isFresh(dir string) bool {
	if e.fresh == nil {
		e.fresh = map[string]bool{}
		for i := range e.in.Changes {
			if c := &e.in.Changes[i]; c.Kind == "added" && c.Type == "dir" {
				e.fresh[c.Path] = true
			}
		}
	}
	for dir != "/" && dir != "." {
		if e.fresh[dir] {
			return true
		}
		dir = filepath.Dir(dir)
	}
	return false
}

// isOldRepository says whether a git directory was there before and still is.
func (e *evaluation) isOldRepository(dir string) bool {
	if i, ok := e.find(dir); ok && e.in.Changes[i].Kind == "deleted" {
		return false
	}
	return !e.isFresh(dir)
}

// gitDir returns the repository that a path of it, at or below hooks, belongs
// to: of a/.git/modules/m/hooks/x that is a/.git/modules/m.
func gitDir(path string) string {
	from := max(strings.Index(path, ".git/"), 0)
	if i := strings.Index(path[from:], "/hooks"); i >= 0 {
		return path[:from+i]
	}
	return path
}

// gitKeys names a key of a changed git configuration that matters.
func (e *evaluation) gitKeys(c *Change) string {
	if c.Kind == "metadata" {
		return ""
	}
	if c.Type != "file" {
		return "git would read what it stands for"
	}
	if e.in.Base == nil {
		return gitKeysWords
	}
	before, after, err := e.in.Base.Contents(c.Path)
	switch {
	case errors.Is(err, ErrUnknown):
		return gitKeysWords
	case err != nil:
		return "it cannot be read"
	}
	return gitRunsOther(before, after)
}

// shadowed says whether a change puts a program before one that PATH finds now.
func (e *evaluation) shadowed(c *Change, path string) (bool, string) {
	if e.in.Base == nil || c.Kind == "deleted" || c.Type != "symlink" && (c.Type != "file" || !c.Exec) {
		return false, ""
	}
	dir, command := filepath.Split(path)
	dir = filepath.Clean(dir)
	for _, s := range e.stacks {
		at := slices.Index(s.facts.Path, dir)
		// What the caller gets now: if that is here or before, nothing changes.
		now := slices.IndexFunc(s.facts.Path, func(d string) bool {
			_, runs := e.in.Base.Lookup(filepath.Join(d, command))
			return runs
		})
		if at >= 0 && now > at {
			return true, "stands before " + filepath.Join(s.facts.Path[now], command)
		}
	}
	return false, ""
}

// hasPackage says whether the branch installs a Python package in dir.
func (e *evaluation) hasPackage(dir string) bool {
	for i := range e.in.Changes {
		c := &e.in.Changes[i]
		parent, name := filepath.Split(c.Path)
		if c.Kind == "added" && strings.HasSuffix(name, ".dist-info") && filepath.Clean(parent) == dir {
			return true
		}
	}
	return false
}
