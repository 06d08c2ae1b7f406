package supervisor_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestInheritedDescriptors: a descriptor that was opened outside is no way to
// the base, however it was opened (H2, B6). Stopped by reopen in ns/fds.go;
// with its line in ns.steps gone every case fails.
func TestInheritedDescriptors(t *testing.T) {
	for _, c := range []struct {
		name, path string
		flags      int
		fd         int
	}{
		{"stdin, a file in a root", "proj/f", unix.O_RDONLY, 0},
		{"stdin, a file outside", "out/f", unix.O_RDONLY, 0},
		{"stdin, a directory in a root", "proj", unix.O_RDONLY, 0},
		{"stdin, a directory outside", "out", unix.O_RDONLY, 0},
		{"stdin, a path", "proj/f", unix.O_PATH, 0},
		{"3, a file in a root", "proj/f", unix.O_RDONLY, 3},
		{"3, a file outside", "out/f", unix.O_RDONLY, 3},
		{"3, a directory in a root", "proj", unix.O_RDONLY, 3},
		{"3, a directory outside", "out", unix.O_RDONLY, 3},
		{"3, the path of a directory", "proj", unix.O_PATH, 3},
		{"3, the path of a directory outside", "out", unix.O_PATH, 3},
		{"3, the path of a file", "out/f", unix.O_PATH, 3},
		{"3, the store", "home/.local/state/try", unix.O_RDONLY, 3},
		{"3, a layer's place", "home/.local/state/try/branches", unix.O_PATH, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				l.write("proj/f", "base")
				l.write("out/f", "base")
				l.sh("try --scope dir -y -q true") // makes the store
				f, err := os.OpenFile(l.path(c.path), c.flags, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if l.in = f; c.fd != 0 {
					l.in, l.fds = nil, []*os.File{f}
				}
				// To what is written at the end attack has no access: the
				// program's own files, less the spare skeleton.
				l.unchanged(func() {
					l.sh("try --scope dir --abort -q attack fd " + string(rune('0'+c.fd)))
				}, "proj", "out")
				l.none("escaped", "escaped.d", "escaped.l", "escaped.p", "escaped.r", "escaped.h")
			})
		})
	}
}

// TestDescriptorOfTheWorkingDirectory: the cwd is inherited as well, and where
// it was opened says what can be reached by "..".
func TestDescriptorOfTheWorkingDirectory(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.unchanged(func() {
			l.want("try --scope dir --abort -q sh -c 'echo x > escaped; (echo x > ../escaped) 2>/dev/null || echo refused; readlink /proc/self/cwd'", "refused\n"+l.path("proj")+"\n")
		}, "proj", "out")
		l.none("escaped")
	})
}

// TestOffsetComesBack: what was read inside is read outside as well, though the
// descriptor inside is another (DESIGN §3).
func TestOffsetComesBack(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.write("proj/in", "one\ntwo\nthree\n")
		l.write("out/in", "one\ntwo\nthree\n")
		const script = "{ try --scope dir -y -q attack stdin; attack stdin; } < "
		l.want(script+"in", "one\ntwo\n")
		l.want(script+"$D/out/in", "one\ntwo\n")
		// Deleted: it cannot be had by path and comes through a pipe.
		l.want("cp in gone; exec 4<gone; rm gone; { try --scope dir -y -q attack stdin; attack stdin; } <&4 2>/dev/null", "one\ntwo\n")
		// Changed inside before it is read: as natively.
		l.want("try --scope dir -y -q sh -c 'attack stdin; echo 1234 > in; attack stdin' < in; cat in", "one\n1234\n"[:4]+"\n1234\n")
	})
}

// TestDescriptorsThatPass: the caller's own redirections, pipes and sockets
// reach CMD as they are (DESIGN §3).
func TestDescriptorsThatPass(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.want("echo in | try --scope dir -y -q sh -c 'cat; echo three >&3; echo out; echo err >&2' 3>$D/out/three >$D/out/one 2>$D/out/two; cat $D/out/one $D/out/two $D/out/three; ls", "in\nout\nerr\nthree\n")
	})
}

// TestDescriptorsOfOurOwn: CMD starts with nothing that is not the caller's
// (H13), --status-fd's included.
func TestDescriptorsOfOurOwn(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		out := l.sh("try --scope dir -y -q --status-fd 7 sh -c 'ls -l /proc/$$/fd' 7>$D/out/status 5>$D/out/five | sed -n 's/.* \\([0-9]* -> .*\\)/\\1/p'")
		for line := range strings.Lines(out) {
			if n, _, _ := strings.Cut(line, " "); !strings.Contains(" 0 1 2 5 ", " "+n+" ") {
				t.Errorf("CMD has descriptor %s", line)
			}
		}
		l.says("cat $D/out/status", `"event":"started"`)
	})
}
