package policy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	systemFile  = "/etc/try/policy.toml"
	projectFile = ".try.toml"

	// maxFile bounds a policy file; the largest sensible one has some kilobytes.
	maxFile = 256 << 10
)

// Places says where a policy is looked for, and what the built-in rules need
// to know. Paths are absolute.
type Places struct {
	Home   string // the caller's home directory; "" if there is none
	Config string // $XDG_CONFIG_HOME; "" is Home/.config
	Cwd    string // without symlinks; "": no project file is looked for
	File   string // --policy FILE; may be relative to the process's cwd
	None   bool   // --no-policy

	Executable string   // the running try, which no session may replace
	Protected  []string // stores, which no session may change
	StartUp    []string // shell start-up files at unusual places: StartUpFiles
	Path       string   // $PATH

	Trust *Trust // who is trusted; nil: no project file is

	system string // tests: in place of /etc/try/policy.toml
}

// Policy is what decides about the changes of one branch. It is immutable.
type Policy struct {
	stacks []*stack // one; two after Join
}

// stack is the layers that were read at one moment.
type stack struct {
	facts   facts
	layers  []*layer // built-in first, then by growing closeness to the project
	compile func()   // makes the built-in rules, which most runs never need
}

// Load reads the policy that is in force in p.Cwd. Warnings name what was not
// obeyed. What is wrong in a file is an error that joins one *Error for each.
func Load(p Places) (*Policy, []Warning, error) {
	s := newStack(factsOf(p))
	var warnings []Warning
	var errs []error
	read := func(source Source, file string) {
		text, err := readFile(file)
		if err != nil {
			if p.File != file && errors.Is(err, fs.ErrNotExist) {
				return
			}
			errs = append(errs, fmt.Errorf("read policy: %w", err))
			return
		}
		dir := ""
		if file == p.File {
			dir = absDir(file)
		}
		errs = append(errs, s.add(&layer{source: source, file: file, dir: dir, text: text, trusted: true}))
	}
	if !p.None {
		read(System, withDefault(p.system, systemFile))
		switch config := p.config(); {
		case p.File != "":
			read(User, p.File)
		case config != "":
			read(User, filepath.Join(config, "try", "policy.toml"))
		}
	}
	if !p.None && p.File == "" && p.Cwd != "" {
		project, more, err := findProject(p, s.facts.Home)
		warnings = append(warnings, more...)
		errs = append(errs, err)
		if project != nil {
			err := s.add(project)
			errs = append(errs, err)
			if err == nil && !project.trusted {
				warnings = append(warnings, s.restrict(project)...)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	return &Policy{stacks: []*stack{s}}, warnings, nil
}

// Join returns the policy for settling a kept branch: of each verdict of the
// policy at the start and of the one now, the stricter counts.
func Join(start, now *Policy) *Policy {
	return &Policy{stacks: slices.Concat(start.stacks, now.stacks)}
}

// config is the directory that holds try/policy.toml, or "".
func (p Places) config() string {
	if p.Config == "" && p.Home != "" {
		return filepath.Join(p.Home, ".config")
	}
	return p.Config
}

func withDefault(s, value string) string {
	if s == "" {
		return value
	}
	return s
}

func absDir(file string) string {
	abs, err := filepath.Abs(file)
	if err != nil {
		return "" // relative paths in the file are then refused
	}
	return filepath.Dir(abs)
}

// clean is filepath.Clean under a name that says what for: settings may hold
// "..", globs may not.
func clean(p string) string { return filepath.Clean(p) }

func newStack(f facts) *stack {
	b := &layer{source: BuiltIn, trusted: true}
	b.settings = []Setting{
		{Key: "limits.processes", Source: BuiltIn, Number: defaultProcesses()},
		{Key: "undo.keep", Source: BuiltIn, Number: int64(7 * 24 * time.Hour)},
		{Key: "undo.max_bytes", Source: BuiltIn, Number: 5 << 30},
		{Key: "undo.max_count", Source: BuiltIn, Number: 1000},
	}
	s := &stack{facts: f, layers: []*layer{b}}
	s.compile = sync.OnceFunc(func() { b.rules = builtInRules(f) })
	return s
}

// defaultProcesses is 4096, or half of what the caller may have if that is
// less: a fork bomb leaves the other half to whoever ends it.
func defaultProcesses() int64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &l); err != nil || l.Cur/2 > 4096 {
		return 4096
	}
	return max(int64(l.Cur/2), 1)
}

// add decodes a layer and puts it on the stack.
func (s *stack) add(l *layer) error {
	if err := l.decode(s.facts.Home); err != nil {
		return err
	}
	s.layers = append(s.layers, l)
	return nil
}

// readFile reads a regular file; a FIFO or device in its place must neither
// hang nor be read.
func readFile(name string) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, unix.ENOTDIR) {
			err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
		}
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", &fs.PathError{Op: "read", Path: name, Err: errors.New("not a regular file")}
	case info.Size() > maxFile:
		return "", &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("policy of %d bytes; at most %d", info.Size(), maxFile)}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	return string(text), err
}

// findProject returns the nearest .try.toml at or above the cwd, not yet
// decoded, or nil; home is without symlinks, as the cwd is.
func findProject(p Places, home string) (*layer, []Warning, error) {
	var warnings []Warning
	for dir := clean(p.Cwd); ; dir = filepath.Dir(dir) {
		file := filepath.Join(dir, projectFile)
		info, err := os.Stat(file)
		switch {
		case err == nil && foreign(info, os.Geteuid()):
			warnings = append(warnings, Warning{File: file, Text: "left out: it belongs to another user"})
		case err == nil:
			text, err := readFile(file)
			if err != nil {
				return nil, warnings, fmt.Errorf("read policy: %w", err)
			}
			l := &layer{source: Project, file: file, dir: dir, text: text}
			if p.Trust != nil {
				l.trusted, err = p.Trust.Trusted(file, text)
			}
			return l, warnings, err
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOTDIR):
			return nil, warnings, fmt.Errorf("read policy: %w", err)
		}
		if dir == "/" || dir == home {
			return nil, warnings, nil
		}
		if err := unix.Access(filepath.Join(dir, ".git"), unix.F_OK); err == nil {
			return nil, warnings, nil
		}
	}
}

// foreign says whether a file was put there by somebody who is neither the
// caller nor root. Root obeys everybody's: such a file only makes things
// stricter, and `sudo try` in one's own project is no attack.
func foreign(info fs.FileInfo, uid int) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && uid != 0 && int(st.Uid) != uid && st.Uid != 0
}

// restrict marks what an untrusted project file may not decide as ignored, and
// says so.
func (s *stack) restrict(l *layer) []Warning {
	var ignored []string
	line := 0
	ignore := func(n int, what string) {
		ignored = append(ignored, fmt.Sprintf("%s (line %d)", what, n))
		if line == 0 || n < line {
			line = n
		}
	}
	inForce := merge(s.layers[:len(s.layers)-1])
	for i := range l.settings {
		if v := &l.settings[i]; !stricter(v, inForce[v.Key]) {
			v.Ignored = true
			ignore(v.Line, v.Key)
		}
	}
	for _, r := range l.rules {
		if r.Action < Ask {
			r.Ignored = true
			ignore(r.Line, "rule with action "+r.Action.String())
		}
	}
	if ignored == nil {
		return nil
	}
	return []Warning{{
		File: l.file, Line: line,
		Text: "not trusted, so these are ignored: " + strings.Join(ignored, ", "),
		Hint: "try policy allow " + quoteShell(l.file),
	}}
}

// stricter says whether an untrusted file may set v over what is in force.
func stricter(v *Setting, inForce *Setting) bool {
	switch v.Key {
	case "session.deny":
		return true
	case "session.net":
		return v.Text == "none"
	case "settle.on_success", "settle.on_failure":
		// In the order of how little reaches the base unasked.
		order := []string{"commit", "ask", "keep", "abort"}
		floor := 0
		if inForce != nil {
			floor = slices.Index(order, inForce.Text)
		}
		return slices.Index(order, v.Text) > floor
	}
	if strings.HasPrefix(v.Key, "limits.") {
		return inForce == nil || v.Number < inForce.Number
	}
	return false
}

// merge returns the setting of each single-valued key that is in force.
func merge(layers []*layer) map[string]*Setting {
	m := map[string]*Setting{}
	for _, l := range layers {
		for i := range l.settings {
			v := &l.settings[i]
			if v.Ignored || v.List != nil {
				continue
			}
			old := m[v.Key]
			switch {
			case old == nil || old.Source == BuiltIn && (l.trusted || v.Number < old.Number):
			case strings.HasPrefix(v.Key, "limits.") && v.Number >= old.Number:
				continue // the lowest limit counts
			case v.Key == "session.net" && old.Text == "none":
				continue
			}
			m[v.Key] = v
		}
	}
	return m
}
