package supervisor_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/fusefs"
)

// account is an ordinary user that has an entry in the user database on every
// system, without which fusermount3 serves nobody; team is a group of his.
const (
	account = 1 // daemon
	team    = 4321
)

// newTeam makes a rig of an ordinary user in a group, with what is others' in
// the project: another's file that all may write, another's sticky directory, a
// file and a directory of the group, one's own file of a group of another's.
func newTeam(t *testing.T) *rig {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can give files to others")
	}
	r := newRig(t)
	r.become(account)
	r.groups = []uint32{team}
	r.mountsOutside()
	r.asRoot(fmt.Sprintf(`
		umask 0; echo theirs > all; mkdir -m 1777 sticky; echo theirs > sticky/theirs
		mkdir team; chgrp %[1]d team; chmod 2775 team; echo theirs > team/f; chmod 664 team/f
		echo mine > mine; chown %[2]d:%[1]d mine; chmod 664 mine; echo no > locked; chmod 644 locked`, team, account))
	return r
}

// mountsOutside gives the rig a runtime directory, where mount points are made,
// and sees to it that nothing is left there and mounted. It skips, and says why,
// where fusermount3 cannot be used; CI sets TRY_TEST_FUSE: there it must be.
func (r *rig) mountsOutside() {
	r.t.Helper()
	r.needFuse()
	if _, err := fusefs.Helper(); err != nil {
		if os.Getenv("TRY_TEST_FUSE") != "" {
			r.t.Fatal(err)
		}
		r.t.Skip(err)
	}
	run := filepath.Join(r.dir, "run")
	r.must(errors.Join(os.Mkdir(run, 0o700), os.Chown(run, r.uid, r.uid)))
	r.env = append(r.env, "XDG_RUNTIME_DIR="+run)
	r.t.Cleanup(func() {
		if left := r.hostMounts(); len(left) > 0 {
			r.t.Errorf("mounts are left: %q", left)
			for _, path := range left {
				_ = fusefs.UnmountHost(path)
			}
		}
		if entries, err := os.ReadDir(run); err != nil || len(entries) > 0 {
			r.t.Errorf("the runtime directory holds %v, %v", entries, err)
		}
	})
}

func (r *rig) asRoot(script string) {
	r.t.Helper()
	cmd := exec.Command("/bin/sh", "-euc", script)
	cmd.Dir = r.proj
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%q: %v: %s", script, err, out)
	}
}

// hostMounts are the FUSE mounts of the rig in this namespace.
func (r *rig) hostMounts() []string {
	r.t.Helper()
	text, err := os.ReadFile("/proc/self/mounts")
	r.must(err)
	var list []string
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[2] == fusefs.HostType && strings.HasPrefix(f[1], r.dir+"/") {
			list = append(list, f[1])
		}
	}
	return list
}

// asOutside is a script that does what ids decide on, and prints how it ended.
const asOutside = `
	try() { if sh -c "$1" 2>/dev/null; then echo "yes: $1"; else echo "no: $1"; fi; }
	try "echo more >> all"; try "chmod 600 all"; try "chgrp $(id -g) all"; try "echo more >> locked"
	try "echo x > sticky/new"; try "rm sticky/theirs"; try "mv sticky/theirs sticky/x"; try "chmod 755 sticky"
	try "echo more >> team/f"; try "chmod 600 team/f"; try "echo x > team/new; mkdir team/d"; try "mv team/f team/g"
	try "echo more >> mine"; try "chmod 640 mine"; try "touch -d 2001-01-01 mine"; try "touch -d 2001-01-01 all"
	try "rm locked"; try "rmdir team"; try "ln mine team/link"; try "test -w all"; try "test -w locked"; try "test -O all"`

// TestHostMountIDs: behind a mount of the first namespace each call is allowed
// or refused as outside, and a commit keeps modes, groups, and the owners of
// what was not written in place.
func TestHostMountIDs(t *testing.T) {
	native := newTeam(t)
	want := native.finish(native.command("/bin/sh", "-euc", asOutside)).want(0).stdout
	owned := native.owners()
	if strings.Count(want, "yes: ") < 10 || strings.Count(want, "no: ") < 5 {
		t.Fatalf("outside:\n%s", want)
	}
	for name, flags := range map[string][]string{
		"auto": {"-y"}, "fuse": {"-y", "--engine", "fuse"}, "serializable": {"-y", "--serializable"}, "kept": {"--keep", "-b", "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTeam(t)
			o := r.sh(append(flags, asOutside)...).want(0)
			if o.stdout != want {
				t.Errorf("inside:\n%s\noutside:\n%s", o.stdout, want)
			}
			o.says("proj/all", "with a commit it becomes yours")
			if name == "kept" {
				if got := r.owners(); got == owned {
					t.Errorf("before the commit the project is\n%s", got)
				}
				r.try("commit", "mine").want(0)
			}
			// What was written in place and is another's is the user's now: all,
			// and team/f, by now team/g, whose group stays.
			as := strings.NewReplacer("all 666 0:0", fmt.Sprintf("all 666 %[1]d:%[1]d", account),
				fmt.Sprintf("team/g 664 0:%d", team), fmt.Sprintf("team/g 664 %d:%d", account, team))
			if got := r.owners(); got != as.Replace(owned) {
				t.Errorf("committed:\n%s\nwant\n%s", got, as.Replace(owned))
			}
			if name != "serializable" { // the record keeps what was read
				r.clean()
			}
		})
	}
}

// owners lists the project with modes and owners.
func (r *rig) owners() string {
	r.t.Helper()
	var b strings.Builder
	r.must(filepath.WalkDir(r.proj, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		err = errors.Join(err, unix.Lstat(path, &st))
		rel, _ := filepath.Rel(r.proj, path)
		fmt.Fprintf(&b, "%s %o %d:%d\n", rel, st.Mode&0o7777, st.Uid, st.Gid)
		return err
	}))
	return b.String()
}

// TestHostMountAborted: nothing comes of it, with one session or several.
func TestHostMountAborted(t *testing.T) {
	r := newTeam(t)
	before := r.project()
	r.sh("--abort", "! chgrp $(id -g) mine 2>/dev/null; echo more >> all; echo more >> team/f; grep -q '"+fusefs.HostType+"' /proc/self/mounts").want(0)
	r.same(before)
	r.try("--race", "-n", "3", "--", "/bin/sh", "-euc", "echo $TRY_INDEX >> team/f; echo x > team/new; exit 1").want(1)
	r.same(before)
	r.clean()
	r.try("--race", "-n", "3", "--", "/bin/sh", "-euc", "test $TRY_INDEX = 2; echo $TRY_INDEX >> team/f").want(0)
	r.wantFile("team/f", "theirs\n2\n")
}

// TestHostMountRefusedCommit: what could only be exchanged for another file, and
// must not be taken away, is refused before anything is done.
func TestHostMountRefusedCommit(t *testing.T) {
	r := newTeam(t)
	before := r.project()
	r.sh("-y", "-b", "mine", "echo more >> sticky/theirs; echo x > new").want(125).says("sticky/theirs", "belongs to another user, in a sticky directory")
	r.same(before)
	r.try("commit", "mine", "--", "new").want(0)
	r.wantFile("new", "x\n")
	r.try("abort", "mine").want(0)
}

// TestHostMountHidden: the mount shows in the session at its root alone; a
// session of the kernel's overlay that starts meanwhile is not disturbed.
func TestHostMountHidden(t *testing.T) {
	r := newTeam(t)
	r.sh("--abort", `test -z "$(ls -A "$XDG_RUNTIME_DIR"/.try-*)"; ! find "$XDG_RUNTIME_DIR" -name m0 | grep .`).want(0)
	killed := r.stall()
	engine := map[bool]string{false: "overlay", true: "fuse"}[onFuse()]
	r.sh("--engine", engine, "--root", r.home, "--root", r.proj, "-y", "echo x > beside").want(0)
	r.wantFile("beside", "x\n")
	if left := r.hostMounts(); len(left) != 1 {
		t.Errorf("another run left of the mount of a live one %q", left)
	}
	killed()
	r.try("abort", "mine").want(0)
	r.clean()
}

// stall starts a session that waits, mounted here and not yet taken over, and
// returns what kills its supervisor.
func (r *rig) stall() (kill func()) {
	r.t.Helper()
	in, out, err := os.Pipe()
	r.must(err)
	defer out.Close()
	r.t.Cleanup(func() { in.Close() })
	// Full: the event that comes between the two will not go in.
	fd := int(out.Fd())
	r.must(unix.SetNonblock(fd, true))
	for err == nil {
		_, err = unix.Write(fd, make([]byte, 4096))
	}
	r.must(unix.SetNonblock(fd, false))
	// Not os.Open: the runtime's own poll would take the news.
	mounts, err := unix.Open("/proc/self/mounts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	r.must(err)
	defer unix.Close(mounts)
	before := len(r.hostMounts())
	cmd := r.program("--keep", "-b", "mine", "--status-fd", "3", "--", "true")
	cmd.ExtraFiles = []*os.File{out}
	p := r.begin(cmd)
	r.untilMounted(mounts, before+1)
	return func() {
		r.t.Helper()
		r.must(p.cmd.Process.Kill())
		p.wait().want(137)
	}
}

// untilMounted waits until so many mounts are there, by a descriptor of
// /proc/self/mounts that was opened before.
func (r *rig) untilMounted(mounts, count int) {
	r.t.Helper()
	for len(r.hostMounts()) != count {
		// The kernel tells of each change (proc_pid_mounts(5)).
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(mounts), Events: unix.POLLPRI}}, 10_000)
		if err != nil && !errors.Is(err, unix.EINTR) || n == 0 && err == nil {
			r.t.Fatalf("ten seconds, and mounted are %q: %v", r.hostMounts(), err)
		}
	}
}

// TestHostMountLeaves: while a command runs nothing of its session is mounted
// outside any more.
func TestHostMountLeaves(t *testing.T) {
	r := newTeam(t)
	mounts, err := unix.Open("/proc/self/mounts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	r.must(err)
	defer unix.Close(mounts)
	p, in := r.underReaper(nil, binary, "-y", "--", "/bin/sh", "-euc", "echo ready >&3; read line; echo more >> all")
	p.untilReady()
	r.untilMounted(mounts, 0)
	_, err = in.(interface{ Write([]byte) (int, error) }).Write([]byte("go\n"))
	r.must(err)
	p.wait().want(0)
	r.wantFile("all", "theirs\nmore\n")
}

// TestHostMountKilled: the mount that a killed supervisor leaves is taken away
// by the next run, whatever that is; one that merely looks like it stays.
func TestHostMountKilled(t *testing.T) {
	r := newTeam(t)
	alike := filepath.Join(r.dir, "run", strings.Repeat("0", 32))
	r.must(os.MkdirAll(alike+"/m0", 0o755))
	dev, err := fusefs.MountHost(alike+"/m0", false)
	r.must(err)
	r.must(dev.Close())
	r.stall()()
	left := r.hostMounts()
	if len(left) != 2 || left[0] != alike+"/m0" {
		t.Fatalf("mounted are %q", left)
	}
	r.finish(r.command("stat", "-f", left[1])).want(1).says("Transport endpoint is not connected")
	if got := r.branches()["mine"]; got != "interrupted" {
		t.Errorf("branch mine is %q", got)
	}
	if left := r.hostMounts(); len(left) != 1 || left[0] != alike+"/m0" {
		t.Errorf("mounted are %q, want the one that is not a store's", left)
	}
	r.must(fusefs.UnmountHost(alike + "/m0"))
	r.must(errors.Join(os.Remove(alike+"/m0"), os.Remove(alike)))
	r.try("abort", "mine").want(0)
	r.clean()
}

// TestHostMountRefused: where nobody mounts for the user, it is said why, and
// the session is what it was without.
func TestHostMountRefused(t *testing.T) {
	const script = "echo x > new; ! (echo x >> all) 2>/dev/null"
	t.Run("not installed", func(t *testing.T) {
		r := newTeam(t)
		cmd := r.shell("-y", script)
		cmd.Env = append(cmd.Env, "PATH=/nowhere")
		r.finish(cmd).want(0).says("another's or of another group", "fusermount3 is not installed")
		r.wantFile("new", "x\n")
		r.wantFile("all", "theirs\n")
		cmd = r.program("doctor")
		cmd.Env = append(cmd.Env, "PATH=/nowhere")
		if o := r.finish(cmd).want(0); !strings.Contains(o.stdout, "limited  fusermount3") || !strings.Contains(o.stdout, "fix: sudo apt install fuse3\n") {
			t.Errorf("doctor says\n%s", o.stdout)
		}
	})
	t.Run("elsewhere in HOME", func(t *testing.T) {
		r := newTeam(t)
		r.asRoot(fmt.Sprintf("umask 0; echo theirs > ../home/all; mkdir ../home/own; chown %[1]d:%[1]d ../home/own", account))
		for _, dir := range []string{r.home, filepath.Join(r.home, "own")} {
			cmd := r.shell("-y", "echo x > new")
			cmd.Dir, cmd.Env = dir, append(cmd.Env, "PATH=/nowhere")
			o := r.finish(cmd).want(0)
			if said := strings.Contains(o.stderr, "fusermount3"); said != (dir == r.home) {
				t.Errorf("in %s: %s", dir, o.stderr)
			}
		}
	})
	t.Run("overlay", func(t *testing.T) {
		if onFuse() {
			t.Skip("the suite runs on the fuse engine")
		}
		r := newTeam(t)
		r.sh("-y", "--engine", "overlay", script).want(0).says("another's or of another group", "--engine fuse")
		r.wantFile("new", "x\n")
	})
	t.Run("not refused", func(t *testing.T) {
		r := newTeam(t)
		if o := r.try("doctor").want(0); !strings.Contains(o.stdout, "ok       fusermount3") {
			t.Errorf("doctor says\n%s", o.stdout)
		}
		r.clean()
	})
	t.Run("no new privileges", func(t *testing.T) {
		r := newTeam(t)
		r.finish(r.command("setpriv", "--no-new-privs", binary, "-y", "--", "/bin/sh", "-euc", script)).want(0).says("no_new_privs")
		r.wantFile("new", "x\n")
	})
	t.Run("refuses", func(t *testing.T) {
		r := newTeam(t)
		r.asRoot(fmt.Sprintf("chown -R %[1]d:%[1]d ../home ../run; chown %[1]d:%[2]d .; chmod 2775 .; chown %[1]d:%[1]d ..", stranger, team))
		r.uid = stranger
		r.sh("-y", "--engine", "fuse", script).want(0).says("could not determine username")
		r.wantFile("new", "x\n")
	})
}

// TestHostMountAround: a root around the working directory is mounted outside for
// what lies in that; the other roots have the kernel's overlay.
func TestHostMountAround(t *testing.T) {
	r := newTeam(t)
	o := r.inPrivate("", `
		"$TRY" --scope user --root .. -y --json -- sh -euc 'echo more >> all; echo x > /tmp/x; grep -q " /tmp .* overlay " /proc/self/mountinfo ||
			grep -q " /tmp .* fuse " /proc/self/mountinfo; grep -q " `+r.dir+` .* `+fusefs.HostType+` " /proc/self/mountinfo'
		test "$(cat all /tmp/x)" = "theirs
more
x"`).want(0)
	if want := map[bool]string{false: `"engine":"overlay+fuse"`, true: `"engine":"fuse"`}[onFuse()]; !strings.Contains(o.stdout, want) {
		t.Errorf("the document does not name the engines: %s", o.stdout)
	}
}

// TestHostMountThenOverlay: what was made for a root of another group is used
// again for one of one's own.
func TestHostMountThenOverlay(t *testing.T) {
	r := newTeam(t)
	r.asRoot(fmt.Sprintf("chgrp %d .", team))
	for range 2 { // the first makes the spare skeleton, the second gives it back
		r.sh("--abort", "true").want(0)
	}
	r.asRoot(fmt.Sprintf("rm -r *; chown 0:%d .; chmod 1777 .", account))
	o := r.sh("-y", "--json", "test -G .; echo x > new").want(0)
	if want := map[bool]string{false: `"engine":"overlay"`, true: `"engine":"fuse"`}[onFuse()]; !strings.Contains(o.stdout, want) {
		t.Errorf("the document does not name the engine: %s", o.stdout)
	}
	r.wantFile("new", "x\n")
	r.clean()
}

// TestHostMountBelow: a mount below the root is captured in a layer of its own.
func TestHostMountBelow(t *testing.T) {
	r := newTeam(t)
	r.asRoot("mkdir -m 1777 own")
	r.inPrivate(r.at("own")+" mode=1777,size=1m", `
		"$TRY" -y -- sh -euc 'echo more >> all; echo x > own/f; grep -q " `+r.proj+` .* `+fusefs.HostType+` " /proc/self/mountinfo'
		test "$(cat own/f)" = x; test "$(cat all)" = "theirs
more"; ! grep "`+r.dir+`/.* `+fusefs.HostType+` " /proc/self/mounts`).want(0)
}
