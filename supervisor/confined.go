package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/engine"
	"try/fs/fusefs"
	"try/fs/sys"
	"try/ns"
	"try/supervisor/policy"
)

// Where user namespaces are forbidden a session of an ordinary user has none,
// and is Confined (package ns). Its roots show at mount points of its own, where
// the command is sent: cwd, HOME, and what else of the environment is the path of
// something in a root. That keeps it from less than namespaces do, so it is done
// for those only who name the fuse engine.

// insideVariable is by what a confined session knows itself: it has no Marker.
const insideVariable = "TRY_BRANCH"

// nested says whether this process is in a session.
func nested() bool {
	if _, err := os.Lstat(Marker); err == nil {
		return true
	}
	if os.Getenv(insideVariable) == "" {
		return false
	}
	on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return err == nil && on != 0
}

// namespaces says what forbids those of a session.
func namespaces() error {
	if engine.Off("userns") {
		return &ns.Failure{Step: "make namespaces", Errno: unix.EPERM}
	}
	return ns.Namespaces()
}

// confinable says why there could be no session without namespaces.
func confinable() error {
	if sys.Root() {
		return errors.New("root is kept from nothing")
	}
	if err := ns.Confinable(); err != nil {
		return withHint(err, "take a kernel from 6.12 on, with “landlock” in its lsm= parameter")
	}
	if _, err := fusefs.Helper(); err != nil {
		return withHint(err, "sudo apt install fuse3")
	}
	return nil
}

// ProbeConfined says whether the system forbids this user the namespaces of a
// session, and why there could be none without them.
func ProbeConfined() (forbidden bool, err error) {
	f, ok := errors.AsType[*ns.Failure](namespaces())
	return ok && f.Forbidden(), confinable()
}

// orConfined adds to what forbids namespaces that there is another way.
func orConfined(err error) error {
	if f, ok := errors.AsType[*ns.Failure](err); !ok || !f.Forbidden() || confinable() != nil {
		return err
	}
	const other = "or: try --engine fuse …, which runs it at a private mount point, less well guarded"
	return &hinted{err, strings.TrimPrefix(Hint(err)+"\n"+other, "\n")}
}

// confine decides whether the session is to be a confined one, and refuses what
// was asked for and could not be held then.
func (s *setup) confine() error {
	if s.opts.Engine != "fuse" || sys.Root() {
		return nil
	}
	forbidden := namespaces()
	f, ok := errors.AsType[*ns.Failure](forbidden)
	if !ok || !f.Forbidden() {
		return nil // what else is wrong is said by who needs it
	}
	refuse := func(err error) error {
		return withHint(fmt.Errorf("%w; and without namespaces: %w", forbidden, err), "%s", Hint(forbidden))
	}
	if err := confinable(); err != nil {
		return refuse(err)
	}
	o := &s.opts
	for _, asked := range []struct {
		is   bool
		what string
	}{
		{o.Net == "none", "--net none cannot be held"},
		{len(o.Deny) > 0, "--deny cannot be held: by its own path everything can be read"},
		{len(o.Sockets) > 0, "--socket cannot be held: sockets pass all or none"},
		{s.settings.Processes.At != policy.BuiltIn.String(), "[limits] processes (" + s.settings.Processes.At + ") cannot be held"},
	} {
		if asked.is {
			return refuse(errors.New(asked.what))
		}
	}
	s.confined = true
	return nil
}

// checkConfined refuses to let through what shows at two places, and says what
// is not there.
func (s *setup) checkConfined() error {
	for _, path := range absolute(s.dir, s.opts.AllowWrite) {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return fmt.Errorf("--allow-write %s: %w", path, err)
		}
		for i := range s.coverage.Roots {
			if root := s.coverage.Roots[i].Path; real == root || engine.IsBelow(real, root) || engine.IsBelow(root, real) {
				return fmt.Errorf("--allow-write %s: it shows at two places without namespaces, as %s is captured", path, root)
			}
		}
	}
	for _, path := range s.coverage.ReadOnly {
		s.warnings = append(s.warnings, fmt.Sprintf("%s, a mount below a root, is empty in the branch", path))
	}
	for _, path := range s.coverage.Private {
		s.warnings = append(s.warnings, fmt.Sprintf("%s cannot be written: without namespaces there is no private one (--root %s captures it)", path, path))
	}
	return nil
}

// confinedSpec is what remains of a session's specification without namespaces.
// of's mounts stand.
func (s *setup) confinedSpec(spec *ns.Spec, branch string) {
	spec.Confined = true
	spec.Private, spec.Sockets, spec.Files, spec.Marker = nil, nil, nil, ""
	spec.KeepKeyring = false
	if real, err := filepath.EvalSymlinks(s.dir); err == nil {
		spec.Dir = ns.Inside(spec.Mounts, real)
	}
	env := make([]string, 0, len(spec.Env)+3)
	temporary := ns.Inside(spec.Mounts, "/tmp")
	for _, e := range spec.Env {
		name, value, _ := strings.Cut(e, "=")
		switch name {
		case "PWD", insideVariable:
			continue
		case "TMPDIR":
			temporary = ""
		}
		env = append(env, name+"="+moved(spec.Mounts, value))
	}
	if temporary != "" && temporary != "/tmp" {
		env = append(env, "TMPDIR="+temporary)
	}
	spec.Env = append(env, "PWD="+spec.Dir, insideVariable+"="+branch)
}

// moved is where the value of a variable leads to in a confined session, if it is
// the path of something in a root: no list of paths, and no socket, which
// nobody listens on there.
func moved(mounts []ns.Mount, value string) string {
	if !filepath.IsAbs(value) || strings.Contains(value, ":") {
		return value
	}
	if st, err := os.Stat(value); err == nil && st.Mode()&os.ModeSocket != 0 {
		return value
	}
	if to := ns.Inside(mounts, filepath.Clean(value)); to != filepath.Clean(value) {
		return to
	}
	real, err := filepath.EvalSymlinks(value)
	if err != nil {
		return value
	}
	if to := ns.Inside(mounts, real); to != real {
		return to
	}
	return value
}

// tellConfined says once in a run what guards it less.
func (s *session) tellConfined(dir string) {
	s.set.told.Do(func() {
		s.warn(fmt.Sprintf("user namespaces are forbidden here: the command runs at %s; by absolute paths it sees the real files, "+
			"which it cannot write, but whose modes, groups and times it can change", dir))
	})
}
