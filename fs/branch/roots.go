package branch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/engine"
	"try/fs/sys"
)

// Scope says how much a branch captures by itself.
type Scope uint8

// The scopes of DESIGN §5.
const (
	_         Scope = iota
	ScopeUser       // cwd, HOME, /tmp, /var/tmp
	ScopeDir        // cwd, or the roots that were named
)

var scopeNames = [...]string{ScopeUser: "user", ScopeDir: "dir"}

func (s Scope) String() string {
	if s == 0 || int(s) >= len(scopeNames) {
		return fmt.Sprintf("Scope(%d)", uint8(s))
	}
	return scopeNames[s]
}

// UnmarshalText accepts the two names.
func (s *Scope) UnmarshalText(text []byte) error {
	for i, name := range scopeNames {
		if i > 0 && name == string(text) {
			*s = Scope(i)
			return nil
		}
	}
	return fmt.Errorf("unknown scope %q: one of user, dir", text)
}

// CoverageOptions is what Roots goes by.
type CoverageOptions struct {
	Scope   Scope
	Dir     string          // the working directory, as the kernel names it
	Home    string          // may be empty or missing
	Roots   []string        // --root
	Cover   []string        // --cover
	Engines []engine.Engine // the first that does not refuse serves a root
	Foreign engine.Engine   // nil, or asked first for a root with files of unmapped ids that the user may write
	Refused string          // if there is no Foreign: why such files cannot be written; empty: nothing is looked for
	Mounts  []sys.Mount
	Stores  []string // Places
	Temp    []string // nil: /tmp and /var/tmp; tests have their own
}

// Coverage is what a session captures, and what else becomes of the places
// that people expect to be able to write to.
type Coverage struct {
	Roots []Root // outer ones first; one lies in another only on a mount of its own
	// ReadOnly are the mounts below a root that are not captured. What shows a
	// root hides them, so they are put back, to be read.
	ReadOnly []string
	Private  []string // get an empty memory file system that is dropped at the end
	Notes    []string // one line each, for the summary
}

// want is a directory that should be captured.
type want struct {
	name     string // as given
	path     string // without symbolic links
	why      string // "the working directory"
	required bool   // what cannot be captured is an error, else a note
	temp     bool
	stat     sys.Stat
	dir      *sys.Dir
}

// Roots computes what a session captures (DESIGN §5). Directories that lie in
// others are part of their layer; what cannot be written anyway is not
// captured; where the engine refuses, the working directory, HOME and what was
// named end the run, and temporary directories become private.
func Roots(o CoverageOptions) (*Coverage, error) {
	c := &coverage{CoverageOptions: o, result: &Coverage{}}
	if c.Temp == nil {
		c.Temp = []string{"/tmp", "/var/tmp"}
	}
	defer c.close()
	if err := c.gather(); err != nil {
		return nil, err
	}
	if err := c.build(); err != nil {
		return nil, err
	}
	return c.result, nil
}

type coverage struct {
	CoverageOptions
	wants  []*want
	result *Coverage
}

func (c *coverage) close() {
	for _, w := range c.wants {
		w.dir.Close()
	}
}

func (c *coverage) note(format string, args ...any) {
	c.result.Notes = append(c.result.Notes, fmt.Sprintf(format, args...))
}

// gather lists what should be captured, in the order of importance.
func (c *coverage) gather() error {
	for _, dir := range c.Roots {
		if err := c.add(&want{name: dir, why: "--root", required: true}); err != nil {
			return err
		}
	}
	if c.Scope == ScopeUser || len(c.Roots) == 0 {
		if err := c.addDir(); err != nil {
			return err
		}
	}
	if c.Scope == ScopeUser && c.Home != "" {
		if err := c.add(&want{name: c.Home, why: "HOME", required: true}); err != nil {
			return err
		}
	}
	for _, dir := range c.Cover {
		if err := c.add(&want{name: dir, why: "--cover", required: true}); err != nil {
			return err
		}
	}
	for _, dir := range c.Temp {
		if c.Scope == ScopeUser {
			if err := c.add(&want{name: dir, why: "a temporary directory", temp: true}); err != nil {
				return err
			}
		} else if err := c.addPrivate(dir); err != nil {
			return err
		}
	}
	return nil
}

func (c *coverage) addDir() error {
	if filepath.Clean(c.Dir) == "/" {
		if c.Scope == ScopeDir {
			return &engine.Refusal{Root: "/", Why: "the whole file system cannot be captured", Help: "change to a directory below it, or name one with --root"}
		}
		c.note("the working directory is /, which is not captured: HOME and the temporary directories are")
		return nil
	}
	if err := c.add(&want{name: c.Dir, why: whyDir, required: true}); err != nil {
		return err
	}
	common, err := worktreeCommon(c.Dir)
	if err != nil {
		return err
	}
	if common != "" {
		return c.add(&want{name: common, why: "the git directory of this worktree"})
	}
	return nil
}

// add resolves a directory and decides whether it can be captured at all. What
// was named must be there; of the rest, what is not there is passed over and
// what cannot be written is left out with a note.
func (c *coverage) add(w *want) error {
	named := w.named()
	path, err := filepath.EvalSymlinks(w.name)
	if err == nil && !filepath.IsAbs(path) {
		err = &os.PathError{Op: "resolve", Path: w.name, Err: unix.EINVAL}
	}
	if err == nil {
		w.path = path
		w.dir, err = sys.OpenDir(path)
	}
	switch {
	case err == nil:
	case named:
		return fmt.Errorf("capture %s: %w", w.why, err)
	case errors.Is(err, os.ErrNotExist):
		return nil
	default:
		c.note("%s, %s, is not captured: %v", w.name, w.why, err)
		return nil
	}
	for _, store := range c.Stores {
		if _, inside := relative(path, store); inside {
			return errors.Join(&engine.Refusal{Root: path, Why: "it lies in the store of try itself", Help: "change to another directory"}, w.dir.Close())
		}
	}
	if w.stat, err = w.dir.Stat(""); err != nil {
		return errors.Join(err, w.dir.Close())
	}
	switch err := w.dir.Access("", unix.W_OK|unix.X_OK); {
	case path == "/" && !named:
		c.note("%s is /, which is not captured", w.why)
		return w.dir.Close()
	case errors.Is(err, unix.EROFS):
		c.note("%s, %s, is on a read-only file system and not captured", path, w.why)
		return w.dir.Close()
	// EINVAL: x/sys takes an EPERM, of an immutable directory or of /proc, for
	// a filter that does not know faccessat2(2), and then gives up.
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EINVAL):
		c.note("%s, %s, cannot be written by you and is not captured", path, w.why)
		return w.dir.Close()
	case err != nil:
		return errors.Join(err, w.dir.Close())
	}
	c.wants = append(c.wants, w)
	return nil
}

const whyDir = "the working directory"

// named says whether the user said it, or is in it.
func (w *want) named() bool { return strings.HasPrefix(w.why, "--") || w.why == whyDir }

// addPrivate makes a temporary directory private, unless a root lies in it or
// it in a root: then it is read-only, or part of that.
func (c *coverage) addPrivate(dir string) error {
	path, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, w := range c.wants {
		if _, ok := relative(w.path, path); ok {
			c.note("%s is read-only, since %s lies in it", path, w.path)
			return nil
		}
		if _, ok := relative(path, w.path); ok {
			return nil
		}
	}
	c.result.Private = append(c.result.Private, path)
	return nil
}

// build probes each directory and merges those that lie in others, on the same
// mount.
func (c *coverage) build() error {
	slices.SortStableFunc(c.wants, func(a, b *want) int { return len(a.path) - len(b.path) })
	for _, w := range c.wants {
		if c.nested(w) {
			continue
		}
		err := c.capture(w)
		if err == nil {
			continue
		}
		refusal, ok := errors.AsType[*engine.Refusal](err)
		if !ok || w.required {
			return fmt.Errorf("capture %s: %w", w.why, err)
		}
		if !w.temp {
			c.note("%s, %s, is read-only: %s", w.path, w.why, refusal.Why)
			continue
		}
		if inner := c.below(w); inner != nil {
			c.note("%s is read-only, since %s lies in it: %s", w.path, inner.path, refusal.Why)
			continue
		}
		c.note("%s is private to this run and dropped at its end: %s", w.path, refusal.Why)
		c.result.Private = append(c.result.Private, w.path)
	}
	return nil
}

// nested adds w to the root that holds it.
func (c *coverage) nested(w *want) bool {
	for i := range c.result.Roots {
		r := &c.result.Roots[i]
		if _, ok := relative(w.path, r.Path); ok && w.stat.MntID == uint64(r.Below.ID) {
			if !slices.Contains(r.Names, w.path) {
				r.Names = append(r.Names, w.path)
			}
			return true
		}
	}
	return false
}

// below finds a directory to be captured that lies in w.
func (c *coverage) below(w *want) *want {
	for _, other := range c.wants {
		if engine.IsBelow(other.path, w.path) {
			return other
		}
	}
	return nil
}

// worktreeCommon finds the git directory that a linked worktree around dir
// shares with its repository: its commits are written there (gitrepository-
// layout(5), gitdir and commondir). "" if there is none.
func worktreeCommon(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		path := filepath.Join(at, ".git")
		st, err := os.Lstat(path)
		if err == nil && !st.Mode().IsRegular() {
			return "", nil // a repository of its own
		}
		if err == nil {
			return readWorktree(path)
		}
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.EACCES) {
			return "", fmt.Errorf("look for a git repository: %w", err)
		}
		if at == "/" || at == "." {
			return "", nil
		}
	}
}

// readWorktree follows the .git file at path, but only to a repository that
// names this worktree itself: a hostile checkout could point anywhere.
func readWorktree(path string) (string, error) {
	gitDir, err := readPointer(path, "gitdir: ")
	if err != nil || gitDir == "" {
		return "", err
	}
	back, err := readPointer(filepath.Join(gitDir, "gitdir"), "")
	if err != nil || back == "" {
		return "", err // a submodule, for instance
	}
	here, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if there, err := os.Lstat(back); err != nil || !os.SameFile(here, there) {
		return "", nil //lint:allow error whatever it names, it is not this worktree
	}
	return readPointer(filepath.Join(gitDir, "commondir"), "")
}

// readPointer reads a file that holds one path, relative to its own directory.
// "" if there is none.
func readPointer(path, prefix string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EACCES) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for a git worktree: %w", err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return "", err
	}
	buf := make([]byte, unix.PathMax+len(prefix))
	n, err := f.Read(buf)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("look for a git worktree: %w", err)
	}
	line, _, _ := strings.Cut(string(buf[:n]), "\n")
	target, ok := strings.CutPrefix(line, prefix)
	if !ok || target == "" || strings.ContainsRune(target, 0) {
		return "", nil
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(path), target)
	}
	return target, nil
}
