package sockets

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// machine is a small one: a home directory, a /tmp-like and a /run-like
// directory, with real listening sockets.
type machine struct {
	t              *testing.T
	home, tmp, run string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	// Not t.TempDir: the name of a test would make the 108 bytes of a socket's path.
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	m := &machine{t, dir + "/h", dir + "/t", dir + "/r"}
	for _, d := range []string{m.home, m.tmp, m.run} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// listen makes a real server.
func (m *machine) listen(path string) string {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		m.t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { l.Close() })
	return path
}

func (m *machine) request(env ...string) Request {
	return Request{
		Environ: append([]string{"XDG_RUNTIME_DIR=" + m.run, "TMUX_TMPDIR=" + m.tmp, "PATH=/bin", "HOME=" + m.home}, env...),
		Home:    m.home, User: "u", UID: os.Getuid(), Hidden: []string{m.home, m.tmp},
	}
}

func (m *machine) choose(r Request) *Choice {
	m.t.Helper()
	c, err := Choose(r)
	if err != nil {
		m.t.Fatal(err)
	}
	// The machine that runs the tests has sockets of its own.
	dir := filepath.Dir(m.home)
	c.Cover = slices.DeleteFunc(c.Cover, func(p string) bool { return !under(p, dir) })
	c.Pass = slices.DeleteFunc(c.Pass, func(p string) bool { return !under(p, dir) })
	return c
}

// want compares, with paths written as ~ for home, T for tmp, R for run.
func (m *machine) want(what string, got []string, want ...string) {
	m.t.Helper()
	short := make([]string, len(got))
	for i, g := range got {
		short[i] = strings.NewReplacer(m.home, "~", m.tmp, "T", m.run, "R").Replace(g)
	}
	slices.Sort(short)
	slices.Sort(want)
	if !slices.Equal(short, want) {
		m.t.Errorf("%s = %q, want %q", what, short, want)
	}
}

func TestAnsweringSocketsPass(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	agent := m.listen(m.tmp + "/ssh-XXXX/agent.42")
	m.listen(m.tmp + "/.s.PGSQL.5432")
	m.listen(m.home + "/db/mysqld.sock")
	m.listen(m.home + "/.gnupg/S.gpg-agent")
	m.listen(m.home + "/.gnupg/S.keyboxd")
	m.listen(m.run + "/gnupg/S.gpg-agent")
	m.listen(m.run + "/wayland-1")
	m.listen(m.run + "/pulse/native")
	m.listen(m.run + "/pipewire-0")
	m.listen(m.run + "/pipewire-0-manager")
	c := m.choose(m.request("SSH_AUTH_SOCK="+agent, "WAYLAND_DISPLAY=wayland-1"))
	m.want("pass", c.Pass, "T/ssh-XXXX/agent.42", "T/.s.PGSQL.5432", "~/db/mysqld.sock", "~/.gnupg/S.gpg-agent")
	m.want("cover", c.Cover, "R/pipewire-0-manager")
	m.want("unset", c.Unset)
	if c.Named != nil {
		t.Errorf("named = %v, want none: nobody named any", c.Named)
	}
}

func TestAgentBehindSymlinks(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	agent := m.listen(m.tmp + "/any/where")
	link := m.home + "/auth_sock" // as in many a .bashrc
	if err := os.Symlink(agent, link); err != nil {
		t.Fatal(err)
	}
	c := m.choose(m.request("SSH_AUTH_SOCK=" + link))
	m.want("pass", c.Pass, "T/any/where")
	m.want("unset", c.Unset)
}

func TestExecutingSocketsAreCoveredAndUnset(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	uid := strconv.Itoa(os.Getuid())
	bus := m.listen(m.run + "/bus")
	m.listen(m.run + "/systemd/private")
	m.listen(m.run + "/docker.sock")
	m.listen(m.run + "/own/server") // runs what it reads: no table knows it
	code := m.listen(m.run + "/vscode-ipc-1.sock")
	unknown := m.listen(m.run + "/x/y.sock")
	m.listen(m.home + "/server")
	tmux := m.listen(m.tmp + "/tmux-" + uid + "/default")
	c := m.choose(m.request("DBUS_SESSION_BUS_ADDRESS=unix:path="+bus+",guid=ab", "TMUX="+tmux+",123,0", "TMUX_PANE=%1", "DOCKER_HOST=unix://"+m.run+"/docker.sock",
		"DISPLAY=:0", "VSCODE_IPC_HOOK_CLI="+code, "MY_SERVER="+unknown, "STY=1.pts", "EDITOR=/bin/vi", "FILE="+m.home, "NOTIFY_SOCKET=@/org/x"))
	m.want("pass", c.Pass)
	m.want("cover", c.Cover, "R/bus", "R/systemd/private", "R/docker.sock", "R/own/server", "R/vscode-ipc-1.sock", "R/x/y.sock")
	m.want("unset", c.Unset, "DBUS_SESSION_BUS_ADDRESS", "TMUX", "TMUX_PANE", "DOCKER_HOST", "DISPLAY", "VSCODE_IPC_HOOK_CLI", "MY_SERVER", "STY", "NOTIFY_SOCKET")
}

func TestNetworkAddressesStay(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	c := m.choose(m.request("DOCKER_HOST=tcp://127.0.0.1:2375", "CONTAINER_HOST=ssh://h/x", "DISPLAY=localhost:10.0"))
	m.want("unset", c.Unset, "DISPLAY")
	r := m.request("DISPLAY=localhost:10.0")
	r.Named = []string{"x11"}
	c = m.choose(r)
	m.want("unset", c.Unset)
	if got := fmt.Sprint(c.Named); got != "[{x11 the X server }]" {
		t.Errorf("named = %s", got)
	}
}

func TestNamedSocketsPassAndAreNamed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	uid := strconv.Itoa(os.Getuid())
	tmux := m.listen(m.tmp + "/tmux-" + uid + "/default")
	m.listen(m.tmp + "/tmux-" + uid + "/other")
	bus := m.listen(m.run + "/bus")
	docker := m.listen(m.run + "/docker.sock")
	own := m.listen(m.home + "/own.sock")
	control := m.listen(m.home + "/.ssh/cm-host")
	r := m.request("TMUX="+tmux+",1,0", "TMUX_PANE=%1", "DBUS_SESSION_BUS_ADDRESS=unix:path="+bus, "DOCKER_HOST=unix://"+docker, "OWN="+own)
	r.Named = []string{"tmux", "dbus", "~/own.sock", "keyring", "ssh-control", "keyring", "tmux", docker}
	c := m.choose(r)
	m.want("pass", c.Pass, "T/tmux-"+uid+"/default", "T/tmux-"+uid+"/other", "~/own.sock", "~/.ssh/cm-host")
	m.want("cover", c.Cover)
	m.want("unset", c.Unset)
	var named []string
	for _, n := range c.Named {
		if n.Path == "" || under(n.Path, filepath.Dir(m.home)) { // not the machine's system bus
			named = append(named, strings.TrimSpace(n.Name+" "+n.What+" "+n.Path))
		}
	}
	m.want("named", named, "tmux a tmux server T/tmux-"+uid+"/default", "tmux a tmux server T/tmux-"+uid+"/other", "dbus the session and system bus R/bus",
		"the socket ~/own.sock", "keyring the caller's keyring", "ssh-control open ssh connections ~/.ssh/cm-host", "the socket R/docker.sock")
	if !c.Keyring {
		t.Error("keyring is not kept")
	}
	_ = control
}

func TestNamedMistakes(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	file := m.home + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"tmxu": "neither a path nor one of", file: "socket operation on non-socket", m.home: "socket operation on non-socket", m.home + "/absent": "no such file",
	} {
		r := m.request()
		r.Named = []string{name}
		if _, err := Choose(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--socket %s: %v, want %q", name, err, want)
		}
	}
	r := m.request()
	r.Named = []string{"podman"}
	r.Environ = append(r.Environ, "CONTAINER_HOST=unix://"+m.run+"/none")
	if c := m.choose(r); len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "no socket of podman found") {
		t.Errorf("warnings = %q, want that none was found", c.Warnings)
	}
}

func TestAllowWriteShowsTheRealSockets(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.listen(m.home + "/open/server")
	m.listen(m.home + "/open/S.gpg-agent")
	r := m.request()
	r.Through = []string{m.home + "/open"}
	c := m.choose(r)
	m.want("cover", c.Cover, "~/open/server")
	m.want("pass", c.Pass)
}

func TestScopeDirSeesHomeReadOnly(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.listen(m.home + "/.ssh/cm-host")
	m.listen(m.home + "/.gnupg/S.gpg-agent")
	r := m.request()
	r.Hidden = []string{m.tmp}
	c := m.choose(r)
	m.want("cover", c.Cover, "~/.ssh/cm-host")
	m.want("pass", c.Pass)
}

// TestControlSocketsAreFoundByLooking: ssh binds its control socket under
// another name than the one at which it stays.
func TestControlSocketsAreFoundByLooking(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if err := os.Rename(m.listen(m.run+"/cm.XYZ"), m.run+"/cm"); err != nil {
		t.Fatal(err)
	}
	m.want("cover", m.choose(m.request()).Cover, "R/cm")
}

func TestOddlyBoundPaths(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.listen(m.run + "//a//s")
	if err := os.Symlink(m.run, m.run+"-link"); err != nil {
		t.Fatal(err)
	}
	m.listen(m.run + "-link/b/s")
	m.want("cover", m.choose(m.request()).Cover, "R/a/s", "R/b/s")
}

// TestProcNetUnixOnlyProposes: what it names is judged by what is there (H31).
func TestProcNetUnixOnlyProposes(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.listen(m.tmp + "/.s.PGSQL.5432")
	m.listen(m.run + "/q/exec")
	for _, p := range []string{m.tmp + "/.s.PGSQL.1", m.run + "/q/file"} {
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{m.tmp + "/.s.PGSQL.2", m.run + "/q/dir"} {
		if err := os.Mkdir(p, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(m.tmp+"/.s.PGSQL.1", m.tmp+"/.s.PGSQL.3"); err != nil {
		t.Fatal(err)
	}
	list := m.home + "/unix"
	var lines []string
	for _, p := range []string{m.tmp + "/.s.PGSQL.5432", m.tmp + "/.s.PGSQL.1", m.tmp + "/.s.PGSQL.2", m.tmp + "/.s.PGSQL.3", m.tmp + "/.s.PGSQL.4", m.run + "/q/exec", m.run + "/q/file", m.run + "/q/dir",
		"relative", "@" + m.run + "/abstract"} {
		lines = append(lines, line("00010000", 1, 1, p))
	}
	if err := os.WriteFile(list, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	r := m.request()
	r.procNet = list
	c := m.choose(r)
	m.want("pass", c.Pass, "T/.s.PGSQL.5432")
	m.want("cover", c.Cover, "R/q/exec")

	r.procNet = m.home + "/absent"
	if c := m.choose(r); len(c.Warnings) != 1 {
		t.Errorf("warnings = %q, want that the list is missing", c.Warnings)
	}
	r.Root = true
	if _, err := Choose(r); err == nil {
		t.Error("a root session starts without the list")
	}
}

func TestSocketsOfOthersDoNotPass(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root to make a socket of another user")
	}
	m := newMachine(t)
	agent := m.listen(m.tmp + "/agent")
	if err := os.Chown(agent, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	r := m.request("SSH_AUTH_SOCK=" + agent)
	c := m.choose(r)
	m.want("pass", c.Pass)
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "of user 12345") {
		t.Errorf("warnings = %q", c.Warnings)
	}
	r.Named = []string{agent}
	m.want("pass, named", m.choose(r).Pass, "T/agent")
}

func TestWhatCannotBeConnectedNeedsNoCover(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	closed := m.listen(m.run + "/closed")
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	r := m.request()
	want := []string{}
	if os.Getuid() == 0 { // modes do not stop root
		want = []string{"R/closed"}
	}
	m.want("cover", m.choose(r).Cover, want...)
	r.Root = true
	m.want("cover, root", m.choose(r).Cover, "R/closed")
}

func line(flags string, kind, state int, path string) string {
	return fmt.Sprintf("0000000096545858: 00000002 00000000 %s %04x %02x 12345 %s\n", flags, kind, state, path)
}

func TestParse(t *testing.T) {
	t.Parallel()
	data := "Num       RefCount Protocol Flags    Type St Inode Path\n" +
		line("00010000", 1, 1, "/a") + line("00000000", 1, 3, "/a") + line("00010000", 5, 1, "/b c") +
		line("00000000", 2, 1, "/dgram") + line("00000000", 2, 3, "/connected") + line("00010000", 1, 1, "@/abstract") +
		line("00010000", 1, 1, "rel/ative") + line("00010000", 1, 1, "/esc\x1b[m") + line("00010000", 1, 1, "/nl\n0: 1 2 3 /forged") +
		line("00010000", 1, 1, "/nl\n0000000000000000: 00000002 00000000 00010000 0001 01 1 /forged2") +
		"0: 1 00010000 /short\n0: 0 0 zz 1 1 1 /bad\n"
	if got, want := parse([]byte(data)), []string{"/a", "/b c", "/dgram", "/nl", "/nl", "/forged2"}; !slices.Equal(got, want) {
		t.Errorf("parse = %q, want %q", got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(line("00010000", 1, 1, "/a") + line("00000000", 2, 1, "/b\x00c")))
	f.Add([]byte("Num       RefCount Protocol Flags    Type St Inode Path\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, p := range parse(data) {
			if !filepath.IsAbs(p) || strings.ContainsFunc(p, func(r rune) bool { return r < 0x20 || r == 0x7f }) || !bytes.Contains(data, []byte(p)) {
				t.Errorf("parse gives %q", p)
			}
		}
	})
}

func FuzzAddresses(f *testing.F) {
	for _, s := range []string{"/a,1,2", "unix:path=/a%20b,guid=1;unix:abstract=x", "unix:///a", "unix:/a", ":0.1", "{x}unix:/p", "%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		c := &chooser{env: map[string]string{}, runs: []string{"/run/user/1"}}
		for _, name := range []string{"X", "DISPLAY", "PULSE_SERVER", "PGHOST", "STY", "WAYLAND_DISPLAY"} {
			for _, p := range c.pointed(name, value) {
				if !filepath.IsAbs(p) {
					t.Errorf("$%s=%q leads to %q", name, value, p)
				}
			}
		}
	})
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"/tmp/t,1,0":                           "/tmp/t,1,0 /tmp/t",
		"unix:path=/a%20b,guid=1;unix:path=/c": "/a b /c",
		"unix:abstract=/tmp/x":                 "",
		"unix:///run/d.sock":                   "/run/d.sock",
		"unix:/run/d.sock":                     "/run/d.sock",
		"tcp://1.2.3.4:5":                      "",
		"unixexec:path=/bin/sh":                "",
		"tcp:host=x;unix:guid=2,path=/z":       "/z",
	} {
		if got := strings.Join(addresses(value), " "); got != want {
			t.Errorf("addresses(%q) = %q, want %q", value, got, want)
		}
	}
	for value, want := range map[string]string{":0": "/tmp/.X11-unix/X0", "unix:12.3": "/tmp/.X11-unix/X12", "localhost:10.0": "", ":x": "", "/p/X0": "/p/X0"} {
		if got := strings.Join(display(value), " "); got != want {
			t.Errorf("display(%q) = %q, want %q", value, got, want)
		}
	}
}

func TestNameServiceAnswers(t *testing.T) {
	t.Parallel()
	for p, want := range map[string]bool{
		"/run/nscd/socket": true, "/var/lib/sss/pipes/nss": true, "/var/lib/sss/pipes/private/pam": false, "/run/systemd/private": false,
		"/run/systemd/journal/socket": true, "/run/user/1/keyring/control": false, "/run/user/1/keyring/ssh": true, "/run/user/1/pipewire-0-manager": false,
		"/run/postgresql/.s.PGSQL.5432": true, "/x/.s.PGSQL.x": false, "/home/u/.ssh/agent/s.x": true, "/run/redis/redis-server.sock": true, "/run/x/redis": false,
	} {
		if got := answers(p); got != want {
			t.Errorf("answers(%s) = %v, want %v", p, got, want)
		}
	}
}

// TestNothingIsLeftOpen: looking at sockets keeps no descriptor.
func TestNothingIsLeftOpen(t *testing.T) {
	m := newMachine(t) // not parallel: others open descriptors
	m.listen(m.run + "/bus")
	before := descriptors(t)
	m.choose(m.request())
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

func descriptors(t *testing.T) (n int) {
	t.Helper()
	for fd := range 256 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			n++
		}
	}
	return n
}

func BenchmarkChoose(b *testing.B) {
	dir := b.TempDir()
	var lines strings.Builder
	for i := range 200 {
		lines.WriteString(line("00000000", 1, 3, "/run/systemd/journal/stdout"))
		if i%5 == 0 {
			lines.WriteString(line("00010000", 1, 1, fmt.Sprintf("%s/s%d", dir, i)))
		}
	}
	list := dir + "/unix"
	if err := os.WriteFile(list, []byte(lines.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	r := Request{Environ: os.Environ(), Home: dir, User: "u", UID: os.Getuid(), Hidden: []string{dir, "/tmp"}, procNet: list}
	for b.Loop() {
		if _, err := Choose(r); err != nil {
			b.Fatal(err)
		}
	}
}
