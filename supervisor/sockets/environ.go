package sockets

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// named resolves what was named and notes it as passed.
func (c *chooser) named() error {
	var errs []error
	for _, n := range c.Named {
		if strings.Contains(n, "/") {
			errs = append(errs, c.namedPath(n))
			continue
		}
		if n == "keyring" {
			if !c.choice.Keyring {
				c.choice.Keyring = true
				c.choice.Named = append(c.choice.Named, Named{Name: n, What: "the caller's keyring"})
			}
			continue
		}
		i := slices.IndexFunc(executing, func(s service) bool { return s.name == n })
		if i < 0 {
			errs = append(errs, fmt.Errorf("socket %q: neither a path nor one of %s", n, strings.Join(Names(), ", ")))
			continue
		}
		c.namedService(&executing[i])
	}
	return errors.Join(errs...)
}

func (c *chooser) namedPath(n string) error {
	p := n
	if rest, ok := strings.CutPrefix(n, "~/"); ok {
		p = c.Home + "/" + rest
	}
	real, err := filepath.Abs(p)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err == nil {
		_, err = lookAt(real)
	}
	if err != nil {
		return fmt.Errorf("socket %s: %w", n, err)
	}
	if !printable(real) {
		return fmt.Errorf("socket %q: control bytes in its path", n)
	}
	c.pass(real, Named{What: "the socket", Path: real})
	return nil
}

// namedService passes every socket of a service. A service that is not there
// is no error: it is named in a policy for the days when it is.
func (c *chooser) namedService(s *service) {
	if c.keep[s.name] {
		return
	}
	c.keep[s.name] = true
	n := len(c.choice.Named)
	paths := c.paths(s)
	for _, name := range s.env {
		paths = append(paths, c.pointed(name, c.env[name])...)
	}
	for _, p := range paths {
		real, err := filepath.EvalSymlinks(p)
		if err != nil || !printable(real) {
			continue
		}
		if at, err := lookAt(real); err == nil && at.trusted(c.UID) {
			c.pass(real, Named{Name: s.name, What: s.what, Path: real})
		}
	}
	for _, pattern := range s.dirs {
		for _, d := range c.expand(pattern) {
			if info, err := os.Lstat(d); err == nil && info.IsDir() {
				c.choice.Named = append(c.choice.Named, Named{Name: s.name, What: s.what, Path: d})
			}
		}
	}
	if len(c.choice.Named) == n {
		if s.name == "x11" && c.env["DISPLAY"] != "" { // over TCP: ssh -X
			c.choice.Named = append(c.choice.Named, Named{Name: s.name, What: s.what})
			return
		}
		c.warn("--socket %s: no socket of %s found", s.name, s.what)
	}
}

// pass notes a named socket, and binds it in where it would be hidden.
func (c *chooser) pass(p string, n Named) {
	if c.passed[p] {
		return
	}
	c.passed[p] = true
	c.choice.Named = append(c.choice.Named, n)
	if c.hidden(p) {
		c.choice.Pass = append(c.choice.Pass, p)
	}
}

// notSockets are variables that begin with a slash on every system and never
// name a socket; leaving them out saves a call each.
var notSockets = []string{"PATH", "HOME", "PWD", "OLDPWD", "SHELL", "_", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"}

// variables looks where the environment leads, and unsets what leads to a
// socket that does not pass.
func (c *chooser) variables() {
	for i := range answering {
		for _, name := range answering[i].env {
			for _, p := range c.pointed(name, c.env[name]) {
				real, err := filepath.EvalSymlinks(p)
				if err != nil || isExecuting(real) {
					continue
				}
				c.candidate(real, true)
				if at, err := lookAt(real); err == nil && !at.trusted(c.UID) && c.hidden(real) && !c.passed[real] {
					c.warn("$%s leads to %s of user %d, which does not pass unless named: --socket", name, real, at.owner)
				}
			}
		}
	}
	for i := range executing {
		s := &executing[i]
		for _, name := range s.env {
			value, ok := c.env[name]
			if !ok {
				continue
			}
			paths := c.pointed(name, value)
			if c.keep[s.name] || c.anyPasses(paths) || overNetwork(name, value) {
				continue
			}
			c.lead(paths)
			c.choice.Unset = append(c.choice.Unset, name)
			for _, a := range s.aliases {
				if _, ok := c.env[a]; ok {
					c.choice.Unset = append(c.choice.Unset, a)
				}
			}
		}
	}
	for name, value := range c.env {
		if !strings.HasPrefix(value, "/") && !strings.HasPrefix(value, "unix:") || slices.Contains(notSockets, name) || inTable(name) {
			continue
		}
		var st unix.Stat_t
		for _, p := range c.pointed(name, value) {
			if unix.Stat(p, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
				continue
			}
			if real, err := filepath.EvalSymlinks(p); err == nil && !c.passed[real] && !answers(real) {
				c.candidate(real, false)
				c.choice.Unset = append(c.choice.Unset, name)
			}
			break
		}
	}
}

// lead looks at where a variable leads whose service does not pass.
func (c *chooser) lead(paths []string) {
	for _, p := range paths {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			c.candidate(real, false)
		}
	}
}

func (c *chooser) anyPasses(paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		real, err := filepath.EvalSymlinks(p)
		return err == nil && c.passed[real]
	})
}

func inTable(name string) bool {
	in := func(services []service) bool {
		return slices.ContainsFunc(services, func(s service) bool { return slices.Contains(s.env, name) })
	}
	return in(executing) || in(answering)
}

// isExecuting says whether a path is one of the table's that execute, whatever
// variable it stands in.
func isExecuting(p string) bool {
	name := filepath.Base(p)
	return strings.HasSuffix(name, "docker.sock") || name == "podman.sock" || name == "bus" || name == "system_bus_socket" ||
		strings.HasPrefix(name, "containerd.sock") || under(p, "/run/systemd") && !nameService(p)
}

// overNetwork says whether a variable names a host. Connections over the
// network are --net's, not ours. An X display is taken away in any form: it is
// always on a machine with a keyboard.
func overNetwork(name, value string) bool {
	scheme, _, ok := strings.Cut(value, "://")
	return ok && scheme != "unix" && name != "DISPLAY"
}

// pointed returns the socket paths that a variable's value can mean.
func (c *chooser) pointed(name, value string) []string {
	if value == "" {
		return nil
	}
	switch name {
	case "WAYLAND_DISPLAY", "PIPEWIRE_REMOTE", "EMACS_SOCKET_NAME":
		if !filepath.IsAbs(value) {
			var out []string
			for _, r := range c.runs {
				if name == "EMACS_SOCKET_NAME" {
					r += "/emacs"
				}
				out = append(out, r+"/"+value)
			}
			return out
		}
	case "PGHOST":
		port := c.env["PGPORT"]
		if port == "" {
			port = "5432"
		}
		if filepath.IsAbs(value) && digits(port) {
			return []string{filepath.Clean(value) + "/.s.PGSQL." + port}
		}
		return nil
	case "DISPLAY":
		return display(value)
	case "STY":
		dir := c.env["SCREENDIR"]
		if dir == "" {
			dir = "/run/screen/S-" + c.User
		}
		return []string{filepath.Clean(dir + "/" + value)}
	case "PULSE_SERVER":
		if strings.HasPrefix(value, "{") { // {machine-id}unix:/path
			_, value, _ = strings.Cut(value, "}")
		}
	}
	return addresses(value)
}

// display returns the socket of a local X display: ":0.1", "unix:0", or a path.
func display(value string) []string {
	if filepath.IsAbs(value) {
		return []string{filepath.Clean(value)}
	}
	host, rest, ok := strings.Cut(value, ":")
	number, _, _ := strings.Cut(rest, ".")
	if n, err := strconv.Atoi(number); ok && err == nil && n >= 0 && (host == "" || host == "unix") {
		return []string{"/tmp/.X11-unix/X" + number}
	}
	return nil
}

// addresses reads the forms in which programs write a socket: a path, perhaps
// with more behind a comma (tmux); unix:/path and unix:///path; D-Bus'
// unix:path=…,guid=…;… with its escapes.
func addresses(value string) []string {
	var out []string
	add := func(p string) {
		if p = strings.TrimPrefix(p, "//"); filepath.IsAbs(p) && len(p) < 4096 && strings.IndexByte(p, 0) < 0 {
			out = append(out, filepath.Clean(p))
		}
	}
	if filepath.IsAbs(value) {
		add(value)
		if i := strings.IndexByte(value, ','); i > 0 {
			add(value[:i])
		}
		return out
	}
	for part := range strings.SplitSeq(value, ";") {
		rest, ok := strings.CutPrefix(part, "unix:")
		if !ok {
			continue
		}
		if filepath.IsAbs(rest) {
			add(rest)
			continue
		}
		for field := range strings.SplitSeq(rest, ",") {
			if p, ok := strings.CutPrefix(field, "path="); ok {
				add(unescape(p))
			}
		}
	}
	return out
}

// unescape replaces %XX, as in D-Bus addresses.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
