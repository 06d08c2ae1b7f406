package sockets

import (
	"path"
	"strings"
)

// service is something that listens. In paths and dirs {run} stands for each
// runtime directory, {home}, {uid} and {user} for the caller's, {tmux} and
// {gnupg} for where these keep theirs; a last segment * is every socket there.
type service struct {
	name    string   // for --socket; "" for those that answer
	paths   []string // where it usually listens
	dirs    []string // covered whole: they may hold FIFOs, or sockets of any name
	env     []string // variables that lead there
	aliases []string // variables that mean nothing without it
	what    string   // for the summary
}

// executing is every service with a name for --socket. What is not in here is
// covered as well, if /proc/net/unix or the environment shows it; the table is
// what makes the names, and finds those that neither shows.
var executing = []service{
	{name: "dbus", what: "the session and system bus",
		paths: []string{"{run}/bus", "{run}/at-spi/*", "/run/dbus/system_bus_socket"},
		env:   []string{"DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DBUS_STARTER_ADDRESS", "AT_SPI_BUS_ADDRESS"}},
	{name: "systemd", what: "systemd",
		paths: []string{"{run}/systemd/*", "/run/systemd/private", "/run/systemd/notify"},
		env:   []string{"NOTIFY_SOCKET"}},
	{name: "tmux", what: "a tmux server", paths: []string{"{tmux}/tmux-{uid}/*"}, env: []string{"TMUX"}, aliases: []string{"TMUX_PANE"}},
	{name: "screen", what: "a screen session", dirs: []string{"/run/screen/S-{user}"}, paths: []string{"{home}/.screen/*"}, env: []string{"STY"}},
	{name: "x11", what: "the X server", paths: []string{"/tmp/.X11-unix/*"}, env: []string{"DISPLAY"}},
	{name: "docker", what: "docker",
		paths: []string{"/run/docker.sock", "{run}/docker.sock", "{home}/.docker/run/docker.sock", "{home}/.docker/desktop/docker.sock"},
		env:   []string{"DOCKER_HOST"}},
	{name: "podman", what: "podman", paths: []string{"/run/podman/podman.sock", "{run}/podman/podman.sock"}, env: []string{"CONTAINER_HOST"}},
	{name: "containerd", what: "containerd",
		paths: []string{"/run/containerd/containerd.sock", "/run/containerd/containerd.sock.ttrpc", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock", "/run/buildkit/buildkitd.sock", "{run}/buildkit/buildkitd.sock"},
		env:   []string{"CONTAINERD_ADDRESS", "BUILDKIT_HOST"}},
	{name: "lxd", what: "lxd or incus", paths: []string{"/var/lib/lxd/unix.socket", "/var/snap/lxd/common/lxd/unix.socket", "/var/lib/incus/unix.socket"}, env: []string{"LXD_SOCKET", "INCUS_SOCKET"}},
	{name: "libvirt", what: "libvirt", paths: []string{"/run/libvirt/libvirt-sock", "{run}/libvirt/*"}},
	{name: "snapd", what: "snapd", paths: []string{"/run/snapd.socket", "/run/snapd-snap.socket"}},
	{name: "ssh-control", what: "open ssh connections", paths: []string{"{home}/.ssh/*"}},
	{name: "editor", what: "a running editor",
		paths: []string{"{run}/emacs/*"},
		env:   []string{"NVIM", "NVIM_LISTEN_ADDRESS", "EMACS_SOCKET_NAME", "VSCODE_IPC_HOOK", "VSCODE_IPC_HOOK_CLI", "VSCODE_GIT_IPC_HANDLE"}},
	{name: "terminal", what: "a running terminal or window manager",
		env: []string{"KITTY_LISTEN_ON", "WEZTERM_UNIX_SOCKET", "ALACRITTY_SOCKET", "SWAYSOCK", "I3SOCK", "NIRI_SOCKET", "HYPRLAND_INSTANCE_SIGNATURE", "SESSION_MANAGER"}},
}

// answering is what passes unasked.
var answering = []service{
	{paths: []string{"{home}/.ssh/agent/*"}, env: []string{"SSH_AUTH_SOCK"}},
	{paths: []string{"{gnupg}/S.gpg-agent", "{gnupg}/S.gpg-agent.extra", "{gnupg}/S.gpg-agent.browser", "{gnupg}/S.gpg-agent.ssh", "{gnupg}/S.dirmngr", "{gnupg}/S.scdaemon"}},
	{env: []string{"WAYLAND_DISPLAY", "PULSE_SERVER", "PIPEWIRE_REMOTE"}},
	{paths: []string{"{run}/wayland-0", "{run}/pulse/native", "{run}/pipewire-0"}},
	{paths: []string{"/tmp/.s.PGSQL.5432", "/tmp/mysql.sock", "/tmp/redis.sock"}, env: []string{"PGHOST", "MYSQL_UNIX_PORT"}},
}

// answers says by its name whether a listening socket only answers.
func answers(p string) bool {
	dir, name := path.Split(p)
	dir = strings.TrimSuffix(dir, "/")
	parent := path.Base(dir)
	switch {
	// ssh's agents: ssh-agent(1), gnome-keyring, gcr, and forwarded ones.
	case strings.HasPrefix(parent, "ssh-") && strings.HasPrefix(name, "agent."),
		name == "ssh" && (parent == "keyring" || parent == "gcr"),
		parent == "agent" && strings.HasSuffix(dir, "/.ssh/agent"):
		return true
	// gpg-agent and what it and gpg need. keyboxd is not among them: it writes
	// the base's key ring for its client.
	case strings.HasPrefix(name, "S.gpg-agent"), name == "S.dirmngr", name == "S.scdaemon":
		return true
	case strings.HasPrefix(name, "wayland-") && digits(name[len("wayland-"):]):
		return true
	case parent == "pulse" && name == "native",
		strings.HasPrefix(name, "pipewire-") && digits(name[len("pipewire-"):]):
		return true
	case strings.HasPrefix(name, ".s.PGSQL.") && digits(name[len(".s.PGSQL."):]):
		return true
	case name == "mysqld.sock", name == "mysql.sock", name == "mysqlx.sock", name == "mariadb.sock":
		return true
	case strings.HasPrefix(name, "redis") && strings.HasSuffix(name, ".sock"):
		return true
	}
	return nameService(p)
}

// nameService says whether it is asked for users, hosts and the log by libc:
// whoami, getaddrinfo and logger must work as outside.
func nameService(p string) bool {
	switch p {
	case "/run/nscd/socket", "/run/nscd.sock", "/run/avahi-daemon/socket", "/run/samba/winbindd/pipe",
		"/run/systemd/resolve/io.systemd.Resolve", "/run/systemd/journal/socket", "/run/systemd/journal/stdout", "/run/systemd/journal/dev-log":
		return true
	}
	return strings.HasPrefix(p, "/var/lib/sss/pipes/") && !strings.Contains(p, "/private/") ||
		strings.HasPrefix(p, "/run/systemd/userdb/")
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
