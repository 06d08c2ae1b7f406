package sockets

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Request is what a choice depends on. Paths are absolute and without
// symlinks, but for those in the environment and in Named.
type Request struct {
	Environ []string // of the caller, as os.Environ returns it
	Home    string
	User    string // name of the caller; for screen
	UID     int
	Root    bool     // a root session: uid 0 is believed by every daemon (H4)
	Hidden  []string // roots, and private directories: what hides the base's sockets
	Through []string // below those, where the real thing shows: --allow-write
	Named   []string // --socket and session.sockets: names, or paths with a slash

	procNet string // tests: in place of /proc/net/unix
}

// Named is a socket, or another way out, that was named and passes.
type Named struct {
	Name string // of the table, or "" for a path
	What string // "a tmux server"; in words for the summary
	Path string // "" if it is none
}

// Choice is which sockets a session reaches. Lists are sorted, but Named.
type Choice struct {
	Pass     []string // to be bound in: a layer or private directory hides them
	Cover    []string // to be covered: sockets, and directories that hold them
	Copies   []string // symlinks into what is covered, whose content the session needs (/etc/resolv.conf)
	Unset    []string // variables that lead to what does not pass
	Named    []Named  // what the summary must name
	Keyring  bool     // keep the caller's session keyring
	Warnings []string
}

// Names returns what --socket takes besides paths.
func Names() []string {
	names := []string{"keyring"}
	for _, s := range executing {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return names
}

// chooser is the state of one choice.
type chooser struct {
	Request
	env        map[string]string
	runs       []string        // runtime directories that are there
	inRun      map[string]bool // paths directly in them
	gnupg      []string
	runSockets []string        // the sockets among those,
	runPipes   []string        // and the FIFOs
	passed     map[string]bool // named sockets, resolved
	keep       map[string]bool // names of services that were named
	done       map[string]bool // paths that were looked at
	dirs       []string        // covered whole
	choice     Choice
}

// Choose decides about every socket that is found. An error is a Named entry
// that is unknown or no socket, or a root session without /proc/net/unix.
func Choose(r Request) (*Choice, error) {
	c := &chooser{Request: r, passed: map[string]bool{}, keep: map[string]bool{}, done: make(map[string]bool, 128)}
	c.readEnviron()
	if err := c.named(); err != nil {
		return nil, err
	}
	c.variables()
	for i := range answering {
		for _, p := range c.paths(&answering[i]) {
			if c.hidden(p) {
				c.candidate(p, true)
			}
		}
	}
	for i := range executing {
		for _, p := range c.paths(&executing[i]) {
			c.candidate(p, false)
		}
		for _, pattern := range executing[i].dirs {
			for _, d := range c.expand(pattern) {
				if !c.keep[executing[i].name] {
					c.directory(d)
				}
			}
		}
	}
	for _, p := range c.runSockets { // ssh renames its control sockets, so no list has them
		c.candidate(p, answers(p))
	}
	if c.Root {
		c.runPipes = append(c.runPipes, "/run/initctl") // telinit(8)
		c.systemd()
	}
	for _, p := range c.runPipes {
		c.pipe(p)
	}
	listening, err := c.listening()
	switch {
	case err != nil && c.Root:
		return nil, fmt.Errorf("look for sockets that a root session must not reach: %w", err)
	case err != nil:
		c.warn("look for sockets: %v", err)
	}
	for _, p := range listening {
		c.candidate(p, answers(p))
	}
	c.finish()
	return &c.choice, nil
}

func (c *chooser) warn(format string, args ...any) {
	c.choice.Warnings = append(c.choice.Warnings, fmt.Sprintf(format, args...))
}

func (c *chooser) readEnviron() {
	c.env = make(map[string]string, len(c.Environ))
	for _, e := range c.Environ {
		if name, value, ok := strings.Cut(e, "="); ok {
			c.env[name] = value
		}
	}
	runs := []string{"/run/user/" + strconv.Itoa(c.UID)}
	if run := c.env["XDG_RUNTIME_DIR"]; filepath.IsAbs(run) && filepath.Clean(run) != runs[0] {
		runs = append(runs, filepath.Clean(run))
	}
	c.inRun = map[string]bool{}
	for _, run := range runs {
		entries, err := os.ReadDir(run)
		if err != nil {
			continue // not there, or not the caller's
		}
		c.runs = append(c.runs, run)
		for _, e := range entries {
			p := run + "/" + e.Name()
			c.inRun[p] = true
			switch e.Type() {
			case fs.ModeSocket:
				c.runSockets = append(c.runSockets, p)
			case fs.ModeNamedPipe:
				c.runPipes = append(c.runPipes, p)
			}
		}
	}
	c.gnupg = []string{c.Home + "/.gnupg"}
	if dir := c.env["GNUPGHOME"]; filepath.IsAbs(dir) {
		c.gnupg = append(c.gnupg, filepath.Clean(dir))
	}
	for _, r := range c.runs {
		c.gnupg = append(c.gnupg, r+"/gnupg")
	}
}

// expand replaces what stands in braces.
func (c *chooser) expand(p string) []string {
	if !strings.HasPrefix(p, "{") && !strings.Contains(p, "{u") {
		return []string{p}
	}
	p = strings.ReplaceAll(p, "{uid}", strconv.Itoa(c.UID))
	p = strings.ReplaceAll(p, "{user}", c.User)
	over := func(mark string, dirs []string) []string {
		var out []string
		for _, d := range dirs {
			out = append(out, d+p[len(mark):])
		}
		return out
	}
	switch {
	case strings.HasPrefix(p, "{run}"):
		first, _, _ := strings.Cut(p[len("{run}/"):], "/")
		return over("{run}", slices.DeleteFunc(slices.Clone(c.runs), func(r string) bool { return !c.inRun[r+"/"+first] }))
	case strings.HasPrefix(p, "{gnupg}"):
		return over("{gnupg}", c.gnupg)
	case strings.HasPrefix(p, "{home}"):
		return over("{home}", []string{c.Home})
	case strings.HasPrefix(p, "{tmux}"):
		dir := "/tmp"
		if t := c.env["TMUX_TMPDIR"]; filepath.IsAbs(t) {
			dir = filepath.Clean(t)
		}
		return over("{tmux}", []string{dir})
	}
	return []string{p}
}

// paths returns where a service may listen: those of the table, with * made
// into the sockets that are there. What could not concern this session is left
// out before anything is looked at: the start pays for each call.
func (c *chooser) paths(s *service) []string {
	named := c.keep[s.name] && s.name != ""
	answer := s.name == ""
	var out []string
	for _, pattern := range s.paths {
		for _, p := range c.expand(pattern) {
			dir, all := strings.CutSuffix(p, "/*")
			if !all {
				out = append(out, p)
				continue
			}
			if !named && c.hidden(dir) != answer {
				continue
			}
			out = append(out, socketsIn(dir)...)
		}
	}
	return out
}

// socketsIn returns the sockets directly in a directory. One that cannot be
// read is not there, or closed to the session as well.
func socketsIn(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if e.Type() == fs.ModeSocket {
			out = append(out, dir+"/"+e.Name())
		}
	}
	return out
}

// hidden says whether a layer or private directory lies over the path.
func (c *chooser) hidden(p string) bool {
	in := func(dirs []string) bool {
		return slices.ContainsFunc(dirs, func(d string) bool { return under(p, d) })
	}
	return in(c.Hidden) && !in(c.Through)
}

func under(p, dir string) bool {
	return strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/' || strings.HasSuffix(dir, "/"))
}

// candidate decides about one path at which a socket may listen.
func (c *chooser) candidate(p string, answer bool) {
	if p = runPath(p); c.done[p] || !printable(p) {
		return
	}
	c.done[p] = true
	if filepath.Clean(p) != p { // as bound: /run/user/1000//x
		if real, err := filepath.EvalSymlinks(p); err == nil {
			c.candidate(real, answers(real))
		}
		return
	}
	if c.passed[p] {
		return
	}
	hidden := c.hidden(p)
	if hidden != answer {
		// Hidden and executing: the layer does it. Seen and answering: let be.
		return
	}
	var st unix.Stat_t
	if unix.Lstat(p, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK && st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return // the usual case; cheaper than to open
	}
	s, err := lookAt(p)
	switch {
	case err == nil && answer:
		if s.trusted(c.UID) {
			c.choice.Pass = append(c.choice.Pass, p)
		}
	case err == nil:
		c.cover(p)
	case errors.Is(err, unix.ELOOP) && !answer:
		// Covered where it really is; never bound in.
		if real, err := filepath.EvalSymlinks(p); err == nil && real != p {
			c.candidate(real, answers(real))
		}
	}
}

// cover covers a socket that the session could connect to.
func (c *chooser) cover(p string) {
	if c.Root || unix.Access(p, unix.W_OK) == nil {
		c.choice.Cover = append(c.choice.Cover, p)
	}
}

// pipe covers a FIFO: it can be written to on a read-only tree as well, and
// whoever reads it may do as it says. What is let through is.
func (c *chooser) pipe(p string) {
	var st unix.Stat_t
	if slices.ContainsFunc(c.Through, func(d string) bool { return under(p, d) }) {
		return
	}
	if printable(p) && !c.hidden(p) && unix.Lstat(p, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		c.cover(p)
	}
}

// directory covers a directory whole, unless something in it passes.
func (c *chooser) directory(dir string) {
	for p := range c.passed {
		if under(p, dir) {
			return
		}
	}
	if info, err := os.Lstat(dir); err == nil && info.IsDir() && !c.hidden(dir) {
		c.choice.Cover = append(c.choice.Cover, dir)
		c.dirs = append(c.dirs, dir)
	}
}

// systemd hides all of /run/systemd: its sockets believe uid 0, and without
// /run/systemd/system the scripts of packages see a system that was not booted
// with it, sd_booted(3), and leave services alone.
func (c *chooser) systemd() {
	const dir = "/run/systemd"
	c.directory(dir)
	if !slices.Contains(c.choice.Cover, dir) {
		return
	}
	const resolv = "/etc/resolv.conf" // often a link to resolved's file there
	if target, err := filepath.EvalSymlinks(resolv); err == nil && under(target, dir) {
		c.choice.Copies = append(c.choice.Copies, resolv)
	}
}

// finish sorts, and drops what lies in a directory that is covered whole.
func (c *chooser) finish() {
	for _, list := range []*[]string{&c.choice.Pass, &c.choice.Cover, &c.choice.Unset} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	c.choice.Cover = slices.DeleteFunc(c.choice.Cover, func(p string) bool {
		return slices.ContainsFunc(c.dirs, func(d string) bool { return p != d && under(p, d) })
	})
}

// found is what lies at a path.
type found struct {
	owner int
}

// trusted says whether what is found may be bound in unasked.
func (f found) trusted(uid int) bool { return f.owner == 0 || f.owner == uid }

// lookAt opens a path as ns will, without symlinks, and wants a socket there.
func lookAt(p string) (found, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, p, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return found{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return found{}, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFSOCK:
		return found{owner: int(st.Uid)}, nil
	case unix.S_IFLNK:
		return found{}, unix.ELOOP
	}
	return found{}, unix.ENOTSOCK
}

// runPath writes /var/run, which is a link everywhere, as what it is.
func runPath(p string) string {
	if rest, ok := strings.CutPrefix(p, "/var/run/"); ok {
		return "/run/" + rest
	}
	return p
}

// printable says whether a path is absolute and without control bytes.
func printable(p string) bool {
	if !filepath.IsAbs(p) {
		return false
	}
	for i := range len(p) {
		if p[i] < 0x20 || p[i] == 0x7f {
			return false
		}
	}
	return true
}
