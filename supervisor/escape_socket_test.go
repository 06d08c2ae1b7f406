package supervisor_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// mark is what a server is asked to do: something that shows, outside.
const mark = `"touch $D/mark"`

// servers are where something listens that runs what it reads: temporary
// directories, HOME, the cwd, a runtime directory and its depths, elsewhere on
// the read-only tree; a stream or packets; no path at all.
func servers(l *lab) (all []string) {
	for _, a := range []string{"/tmp/exec", "/tmp/d/exec", "/var/tmp/exec", "$D/home/exec", "$D/home/.s/exec", "$D/proj/exec", "$D/run/exec", "$D/run/a/b/exec", "dgram:$D/run/packets", "$D/out/exec", "dgram:$D/out/packets"} {
		all = append(all, strings.Replace(a, "$D", l.dir, 1))
	}
	return append(all, "@"+filepath.Base(l.dir))
}

// TestServersThatExecute: no server that runs what it reads is reached (H3,
// B18, H4). In roots the overlay stops it; elsewhere candidate and cover in
// supervisor/sockets; abstract sockets Landlock's scope in ns/program_steps.go.
func TestServersThatExecute(t *testing.T) {
	for _, scope := range []string{"user", "dir"} {
		t.Run(scope, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				addrs := strings.Join(servers(l), " ")
				// The stage is set right: outside each does as it is told.
				out := l.sh("attack serve " + addrs + " -- attack connect true " + addrs)
				if n := strings.Count(out, "RAN") + strings.Count(out, "SENT"); n != len(servers(l)) {
					t.Fatalf("%d of the servers answer outside:\n%s", n, out)
				}
				l.sh("find $D -type s -delete")
				out = l.sh("attack serve " + addrs + " -- try --scope " + scope + " --abort -q attack connect " + mark + " " + addrs)
				if strings.Contains(out, "RAN") || strings.Contains(out, "SENT") {
					t.Errorf("reached from inside:\n%s", out)
				}
				l.none("mark")
			})
		})
	}
}

// TestNamedSocketPasses: what was named is reached, alone, and the summary
// says so (H3).
func TestNamedSocketPasses(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		addrs := strings.Join([]string{"/tmp/exec", "$D/home/exec", "$D/run/exec", "$D/out/exec"}, " ")
		for _, a := range strings.Fields(addrs) {
			others := strings.Replace(addrs, a, "", 1)
			out := l.says("rm -f $D/home/exec $D/run/exec $D/out/exec; attack serve "+addrs+" -- try --abort --socket "+a+" sh -c 'attack connect true "+a+"; echo; attack connect "+mark+" "+others+"'",
				"exec: RAN\n", "let through: the socket ")
			if strings.Count(out, "RAN") != 1 {
				t.Errorf("--socket %s: not it alone is reached:\n%s", a, out)
			}
		}
		l.none("mark")
	})
}

// TestLiveTmux: a tmux server runs commands for whoever connects. Its socket
// lies in a root, in a private directory, or on the read-only tree (H3).
func TestLiveTmux(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		if out := l.sh("command -v tmux || echo none"); strings.Contains(out, "none") {
			t.Skip("there is no tmux")
		}
		const attackTmux = `sh -c 'test -z "$TMUX" || echo TMUX is set; tmux -L x run-shell "touch $D/mark" 2>/dev/null && echo reached; tmux run-shell "touch $D/mark" 2>/dev/null && echo reached; true'`
		for _, dir := range []string{"/tmp", "$D/run", "$D/home"} {
			start := "export TMUX_TMPDIR=" + dir + "; tmux -L x -f /dev/null new-session -d cat && tmux -f /dev/null new-session -d cat && export TMUX=" + dir + "/tmux-$(id -u)/default,1,0; tmux run-shell true && "
			l.want(start+"try --abort -q "+attackTmux+"; try --scope dir --abort -q "+attackTmux+"; tmux -L x kill-server; tmux kill-server", "")
			l.none("mark")
			l.says(start+`try --abort --socket tmux sh -c 'tmux run-shell "touch $D/mark" && echo reached'`, "reached\n", "let through: a tmux server ")
			l.sh("test -e $D/mark && rm $D/mark; rm -rf $D/run/tmux* $D/home/tmux*")
		}
	})
}

// TestPipesThatExecute: the reader of a FIFO in a runtime directory is as good
// as a server. Stopped by pipe in supervisor/sockets/choose.go; in a root by
// the overlay, in whose FIFO nobody reads.
func TestPipesThatExecute(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.want(`for d in $D/run $HOME; do
				mkfifo $d/pipe; (exec 3<>$d/pipe; while read line <&3; do sh -c "$line"; done) &
				try --abort -q sh -c 'attack pipe $1/pipe "touch $D/mark" 2>/dev/null' - $d
				attack pipe $d/pipe "touch $D/was"; attack pipe $d/pipe "exit"
				attack pipe $d/pipe "echo done > $d/done"; while ! test -e $d/done; do :; done
				test -e $D/was && rm $D/was && echo it works
			done; test -e $D/mark && echo escaped; kill %1 %2 2>/dev/null; true`, "it works\nit works\n")
	})
}

// TestPlainFilesInTheNameOfSockets: the path of a socket that is gone, where a
// file or a directory is now, is no way to write there (H31). Stopped by
// lookAt in supervisor/sockets and same in ns/steps.go.
func TestPlainFilesInTheNameOfSockets(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		// The server listens on; its path means something else now.
		paths := "/tmp/.s.PGSQL.5432 $D/home/mysql.sock $D/proj/redis.sock"
		l.want(`attack serve `+paths+` -- sh -c 'for p in `+paths+`; do rm $p; mkdir $p.d; echo base > $p; done
			rm /tmp/.s.PGSQL.5432; mkdir /tmp/.s.PGSQL.5432
			ln -sf $D/out/f redis.sock
			echo base > $D/out/f
			try --abort -q sh -c "for p in `+paths+`; do (echo x > \$p; touch \$p/x; chmod 700 \$p) 2>/dev/null; done; true"
			ls -A /tmp/.s.PGSQL.5432; cat $D/home/mysql.sock $D/out/f; stat -c %a $D/home/mysql.sock'`, "base\nbase\n644\n")
	})
}

// TestRootIsNobodyToDaemons: a daemon that believes uid 0 is not reached from
// root's session, and packages see a system that was not booted with systemd
// (H4). Stopped by systemd and cover in supervisor/sockets/choose.go.
func TestRootIsNobodyToDaemons(t *testing.T) {
	t.Parallel()
	l := rootLab(t)
	l.with = []string{"tmpfs:/run"}
	const daemons = "/run/systemd/private /run/systemd/notify /run/dbus/system_bus_socket /run/docker.sock /run/some/daemon /run/daemon $D/run/daemon $D/out/daemon"
	const setUp = "mkdir -p /run/systemd/system; "
	out := l.sh(setUp + "attack serve -root " + daemons + " -- attack connect true " + daemons)
	if strings.Count(out, "RAN") != 8 {
		t.Fatalf("a daemon does not answer:\n%s", out)
	}
	l.sh("find $D -type s -delete")
	out = l.sh(setUp + "attack serve -root " + daemons + " -- try --abort -q sh -c 'attack connect " + mark + " " + daemons + "; test -e /run/systemd/system && echo booted; test -z \"$(ls -A /run/systemd)\" || echo seen'")
	for _, bad := range []string{"RAN", "booted", "seen"} {
		if strings.Contains(out, bad) {
			t.Errorf("a daemon is reached, or systemd is seen:\n%s", out)
		}
	}
	l.none("mark")
	l.sh("find $D -type s -delete")
	l.says(setUp+"attack serve -root "+daemons+" -- try --abort --socket systemd attack connect true /run/systemd/private /run/some/daemon",
		"private: RAN\n", "daemon: connection refused\n", "let through: systemd /run/systemd/private")
}
