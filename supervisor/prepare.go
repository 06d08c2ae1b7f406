package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/branch"
	"try/fs/engine"
	"try/fs/sys"
	"try/ns"
	"try/supervisor/policy"
	"try/supervisor/sockets"
)

// Marker is the file by which a session knows itself.
const Marker = "/dev/try"

// ErrNested says that `try` was started inside a session.
var ErrNested = errors.New("already inside a branch: a branch within a branch is not supported yet")

// setup is all that is known of a run before it has a branch.
type setup struct {
	opts     Options
	home     *Home
	dir      string // the working directory as the caller names it
	policy   *policy.Policy
	settings policy.Settings
	places   policy.Places
	snapshot []byte
	mounts   []sys.Mount
	coverage *branch.Coverage
	stores   []string
	sockets  *sockets.Choice
	covers   []string
	warnings []string

	confined bool // there are no namespaces
	told     sync.Once

	surveyed sync.Once
	seen     *policy.Survey
}

// survey is what the policy protects, in the base as it was when it was first
// asked for. The branches of a run have the same roots.
func (s *setup) survey(b *branch.Branch) *policy.Survey {
	s.surveyed.Do(func() { s.seen = s.policy.Survey(rootNames(b), TheBase{s.stores}) })
	return s.seen
}

// rootNames lists the roots of a branch, and of those below the ones that the
// user knows.
func rootNames(b *branch.Branch) []string {
	var names []string
	for i := range b.Roots {
		names = append(names, b.Roots[i].Path)
		for _, name := range b.Roots[i].Names {
			if name != b.Roots[i].Path {
				names = append(names, name)
			}
		}
	}
	return names
}

// prepare reads the policy from the base and decides what the session will be
// made of. It changes nothing but the store's own directories.
func prepare(o Options) (*setup, error) {
	if nested() {
		return nil, withHint(ErrNested, "run the command as it is: the branch around it captures what it writes")
	}
	s := &setup{opts: o}
	var err error
	if s.dir, err = workingDir(); err != nil {
		return nil, err
	}
	if s.home, err = OpenHome(); err != nil {
		return nil, err
	}
	s.warnings = append(s.warnings, s.home.notes...)
	for _, r := range s.home.recovered {
		s.warnings = append(s.warnings, r.String())
	}
	if err := s.readPolicy(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := s.confine(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := s.cover(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// workingDir is the working directory as the caller names it. The session
// enters it by that name, so it must lead there: a mount can lie over it.
func workingDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	here, err := os.Stat(".")
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	if there, err := os.Stat(dir); err != nil || !os.SameFile(here, there) {
		return "", withHint(fmt.Errorf("the working directory is no longer what lies at %s", dir), "cd %s", dir)
	}
	return dir, nil
}

func (s *setup) close() error { return s.home.Close() }

// readPolicy loads the policy and lets it fill in what the options leave open.
func (s *setup) readPolicy() error {
	places, err := s.home.places(s.dir)
	if err != nil {
		return err
	}
	places.File, places.None = s.opts.PolicyFile, s.opts.NoPolicy
	s.places, s.stores = places, places.Protected
	p, warnings, err := policy.Load(places)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		s.warnings = append(s.warnings, w.String())
	}
	s.policy, s.settings = p, p.Settings()
	if s.snapshot, err = p.Snapshot(); err != nil {
		return fmt.Errorf("store the policy: %w", err)
	}
	return s.merge()
}

// merge puts the policy's [settle], [limits] and [session] under the options.
func (s *setup) merge() error {
	o, set := &s.opts, &s.settings
	text := func(into *string, from, otherwise string) {
		if *into == "" {
			*into = from
		}
		if *into == "" {
			*into = otherwise
		}
	}
	text(&o.Scope, set.Scope, "user")
	text(&o.Net, set.Net, "host")
	text(&o.Engine, set.Engine, "auto")
	if set.Net == "none" {
		o.Net = "none" // what a policy closes no flag opens
	}
	fate := func(into *Fate, from string) error {
		if *into != 0 || from == "" {
			return nil
		}
		return into.UnmarshalText([]byte(from))
	}
	if err := errors.Join(fate(&o.OnSuccess, set.OnSuccess), fate(&o.OnFailure, set.OnFailure)); err != nil {
		return err
	}
	if o.Grace == nil {
		grace := defaultGrace
		if set.GraceSet {
			grace = set.Grace
		}
		o.Grace = &grace
	}
	if t := time.Duration(set.Timeout.Max); set.Timeout.Set && (o.Timeout == 0 || t < o.Timeout) {
		o.Timeout = t
	}
	o.Checks = append(append([]string(nil), o.Checks...), set.Checks...)
	o.Roots = append(append([]string(nil), o.Roots...), set.Roots...)
	o.Cover = append(append([]string(nil), o.Cover...), set.Cover...)
	o.AllowWrite = append(append([]string(nil), o.AllowWrite...), set.AllowWrite...)
	o.Deny = append(append([]string(nil), o.Deny...), set.Deny...)
	o.Sockets = append(append([]string(nil), o.Sockets...), set.Sockets...)
	return nil
}

// cover decides which directories are captured and by what, and what is hidden.
func (s *setup) cover() error {
	s.mounts = s.home.mounts
	engines, foreign, err := enginesOf(s.opts.Engine, s.opts.Serializable)
	if err != nil {
		return err
	}
	if s.confined {
		engines = []engine.Engine{foreign}
	}
	var scope branch.Scope
	if err := scope.UnmarshalText([]byte(s.opts.Scope)); err != nil {
		return err
	}
	refused := ""
	if s.opts.Engine == "overlay" && !sys.Root() {
		refused = "and cannot be written under the overlay engine: --engine fuse"
	}
	s.coverage, err = branch.Roots(branch.CoverageOptions{
		Scope: scope, Dir: s.places.Cwd, Home: s.places.Home,
		Roots: absolute(s.dir, s.opts.Roots), Cover: absolute(s.dir, s.opts.Cover),
		Engines: engines, Foreign: foreign, Refused: refused, Mounts: s.mounts, Stores: s.stores,
	})
	if err != nil {
		return err
	}
	s.warnings = append(s.warnings, s.coverage.Notes...)
	if err := errors.Join(s.deny(), s.keepStoresClosed()); err != nil {
		return err
	}
	if s.confined {
		if err := s.checkConfined(); err != nil {
			return err
		}
	}
	return s.chooseSockets()
}

// chooseSockets decides which sockets of the base the session may reach.
func (s *setup) chooseSockets() error {
	hidden := append([]string(nil), s.coverage.Private...)
	for _, r := range s.coverage.Roots {
		hidden = append(hidden, r.Path)
	}
	var err error
	s.sockets, err = sockets.Choose(sockets.Request{
		Environ: os.Environ(), Home: s.home.user, User: os.Getenv("USER"), UID: os.Geteuid(),
		Root:   os.Geteuid() == 0, // in a user namespace of one id too: to a daemon outside it may be the real one
		Hidden: hidden, Through: absolute(s.dir, s.opts.AllowWrite), Named: s.opts.Sockets,
	})
	if err != nil {
		return err
	}
	s.covers = append(s.covers, s.sockets.Cover...)
	s.warnings = append(s.warnings, s.sockets.Warnings...)
	return nil
}

// environment is the caller's, less what leads to sockets that do not pass.
func (s *setup) environment() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains(s.sockets.Unset, name)
	})
}

// doors names what was let through on purpose.
func (s *setup) doors() []string {
	var list []string
	for _, n := range s.sockets.Named {
		list = append(list, strings.TrimSpace(n.What+" "+n.Path)+" (--socket)")
	}
	for _, path := range absolute(s.dir, s.opts.AllowWrite) {
		list = append(list, path+" (--allow-write)")
	}
	return list
}

// deny lists what was denied.
func (s *setup) deny() error {
	for _, path := range absolute(s.dir, s.opts.Deny) {
		real, err := filepath.EvalSymlinks(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // nothing to hide
		}
		if err != nil {
			return fmt.Errorf("--deny %s: %w", path, err)
		}
		s.covers = append(s.covers, s.shown(real)...)
	}
	return nil
}

// keepStoresClosed refuses to let a place through in which a home store lies or
// would be looked for: a covered store stays where it is, but the directories
// above it could be moved, and another store be made there, which the next run
// would believe (H1, H12).
func (s *setup) keepStoresClosed() error {
	homes := s.home.store.Homes()
	for _, home := range slices.Clone(homes) {
		homes = append(homes, branch.Aliases(home, s.mounts)...)
	}
	for _, path := range absolute(s.dir, s.opts.AllowWrite) {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return fmt.Errorf("--allow-write %s: %w", path, err)
		}
		for _, home := range homes {
			if home == real || engine.IsBelow(home, real) || engine.IsBelow(real, home) {
				return withHint(fmt.Errorf("--allow-write %s: %s, where branches are stored, cannot be let through", path, home), "name the directories below it that are meant, or capture it: --root")
			}
		}
	}
	return nil
}

// shown lists the names at which a path shows, its own first (H35).
func (s *setup) shown(path string) []string {
	return slices.DeleteFunc(append([]string{path}, branch.Aliases(path, s.mounts)...), func(p string) bool {
		_, err := os.Lstat(p)
		return err != nil
	})
}

// spec is what init makes of the session, whose FUSE mounts it serves.
func (s *setup) spec(of *session) (*ns.Spec, error) {
	b := of.b
	// Only now is every store known that the branch's layers lie in (H12).
	stores, err := s.home.store.Places()
	if err != nil {
		return nil, err
	}
	covers := slices.Clone(s.covers)
	for _, store := range stores {
		covers = append(covers, s.shown(store)...)
	}
	slices.Sort(covers)
	spec := &ns.Spec{
		Env: s.environment(), Dir: s.dir,
		Root: sys.Root(), UID: os.Geteuid(), GID: os.Getegid(),
		Private: s.coverage.Private, AllowWrite: absolute(s.dir, s.opts.AllowWrite),
		Covers: slices.Compact(covers), Sockets: s.sockets.Pass, Marker: b.Name + "\n",
		NetNone:     s.opts.Net == "none",
		Processes:   int(s.settings.Processes.Max),
		KeepKeyring: s.sockets.Keyring,
		Terminal:    s.terminal(),
	}
	if spec.Mounts, err = s.mountsOf(of, spec.Covers); err != nil {
		return nil, err
	}
	spec.Programs = []ns.Program{{Argv: b.Command}}
	for _, check := range s.opts.Checks {
		spec.Programs = append(spec.Programs, ns.Program{Argv: []string{"sh", "-c", check}})
	}
	if s.opts.StdoutToStderr {
		for i := range spec.Programs {
			spec.Programs[i].Stdio[1] = os.Stderr
		}
	}
	if s.confined {
		s.confinedSpec(spec, b.Name)
		return spec, nil
	}
	if spec.Files, err = sshConfig(); err != nil {
		return nil, err
	}
	for _, path := range s.sockets.Copies {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("copy what a covered directory holds: %w", err)
		}
		spec.Files = append(spec.Files, ns.File{Path: path, Content: content, Mode: 0o444})
	}
	return spec, nil
}

// terminal says whether the session has one of its own.
func (s *setup) terminal() bool {
	switch s.opts.Terminal {
	case ForceTerminal:
		return true
	case NoTerminal:
		return false
	default:
		return !s.opts.StdoutToStderr && isTerminal(0) && isTerminal(1)
	}
}

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// shell is what `try` without a command runs.
func shell() string {
	if sh := os.Getenv("SHELL"); sh != "" {
		return sh
	}
	return "/bin/sh"
}

// sshConfig copies the system's ssh configuration snippets, which OpenSSH
// refuses when their owner is not mapped (DESIGN §11).
func sshConfig() ([]ns.File, error) {
	const dir = "/etc/ssh/ssh_config.d"
	if sys.Root() {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil // not there, or not ours to read: then not ssh's either
	}
	var files []ns.File
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if filepath.Ext(path) != ".conf" {
			continue
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, os.ErrPermission) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("copy the ssh configuration: %w", err)
		}
		files = append(files, ns.File{Path: path, Content: content, Mode: 0o444})
	}
	return files, nil
}

// absolute joins relative paths to dir.
func absolute(dir string, paths []string) []string {
	list := make([]string, len(paths))
	for i, p := range paths {
		if list[i] = filepath.Clean(p); !filepath.IsAbs(p) {
			list[i] = filepath.Join(dir, p)
		}
	}
	return list
}
