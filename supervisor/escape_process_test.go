package supervisor_test

import (
	"os"
	"strings"
	"testing"
)

// TestInitIsOutOfReach: PID 1 of the session holds the supervisor's memory and
// capabilities. CMD can neither look into it, nor trace it, nor stop it (H13,
// B19). Stopped three times: hide in ns/steps.go makes it not dumpable; it
// keeps the capabilities that programs drop (restrictProgram in
// ns/program_steps.go; in a root session those of the outer user namespace);
// and programs are in a Landlock domain, which init is not.
func TestInitIsOutOfReach(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		out := l.says("try --scope dir -y -q attack pid1; echo ended $?", "ptrace: ", "ended 0\n")
		out += l.says("try --scope dir -y -q unshare -Urm attack pid1; echo ended $?", "ptrace: ", "ended 0\n")
		if strings.Contains(out, "DONE") {
			t.Errorf("init is within reach:\n%s", out)
		}
	})
}

// TestSignalsStayInside: the process group of CMD has members outside, which
// get no signal from it. Stopped by Landlock's scope in ns/program_steps.go.
func TestSignalsStayInside(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.want(`trap 'echo hit' USR1 TERM; try --scope dir -y -q attack group; echo status $?`, "survived\nstatus 0\n")
	})
}

// TestProcessLimit: [limits] processes holds for users and for root (B28), in
// nested user namespaces too, and nothing outside is counted. Stopped by
// RLIMIT_NPROC in ns/program_steps.go; for root by pid_max in ns/dev.go.
func TestProcessLimit(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.write("home/.config/try/policy.toml", "[limits]\nprocesses = 30\n")
		limit := 30
		if l.uid == 0 {
			limit = 301 // the least that the kernel takes
		}
		for _, how := range []string{"", "unshare -Ur ", "sh -c 'ulimit -u unlimited 2>/dev/null; exec \"$@\"' - "} {
			out := l.sh("try --scope dir -y -q --grace 0s " + how + "attack fork 2000")
			lines := strings.Fields(out)
			n := 0
			for _, c := range lines[len(lines)-1] {
				n = 10*n + int(c-'0')
			}
			if n < 10 || n >= limit || !strings.Contains(out, "temporarily unavailable") {
				t.Errorf("%swith %d processes allowed:\n%s", how, limit, out)
			}
		}
	})
}

// TestForkBomb: it neither outruns nor outlives the session: the program ends
// in time, and of the bomb nothing is left. Stopped by the limit, and by the
// PID namespace (kill in ns/pid1.go).
func TestForkBomb(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.write("home/.config/try/policy.toml", "[limits]\nprocesses = 60\n")
		l.want(`count() { set -- /proc/[0-9]*; echo $#; }
			before=$(count)
			try --scope dir -y -q --grace 0s sh -c 'b() { trap "" TERM HUP; (b) & (b) & wait; }; b 2>/dev/null & exec attack fork 2000 >/dev/null' 2>/dev/null
			test $? -lt 125 && echo ended; test $before = $(count) && echo none left; try --scope dir -y -q touch x; ls`, "ended\nnone left\nx\n")
	})
}

// TestCgroups: a session cannot freeze or kill the caller's own cgroup by a
// cgroup file system that it mounts. Stopped by "limit cgroup namespaces" in
// ns/dev.go; to an ordinary user whose cgroup is not its own it is closed
// anyway.
func TestCgroups(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.want(`try --scope dir -y -q sh -c 'mkdir m; for t in "cgroup2 none" "cgroup -o freezer none" "cgroup -o pids none"; do
		unshare -Cm sh -c "mount -t $t m && test -w m/cgroup.procs && echo writable" 2>/dev/null; mount -t $t m 2>/dev/null && test -w m/cgroup.procs && echo writable; done; true'`, "")
	})
}

// TestLockGoesWithTheSupervisor: a branch is alive as long as its supervisor,
// whatever became of the session: with init stopped in a debugger the lock is
// free at once (H14), and no loop of others touches a branch that runs. Stopped
// by closeOthers in ns/steps.go, which closes the lock in init.
func TestLockGoesWithTheSupervisor(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		out := l.sh(`mkfifo $D/run/up
			try --scope dir --keep -q -b held --allow-write $D/run sh -c 'trap "" TERM HUP; echo x > mine; echo up > $D/run/up; exec sleep 1000' & pid=$!
			read x < $D/run/up
			for i in 1 2 3; do for cmd in "commit held" "abort held" "recover" "--scope dir --abort true"; do try $cmd >/dev/null 2>$D/run/err; grep -c "in use" $D/run/err; done; done
			try branches | cut -c1-13
			stopped=$(attack freeze $pid); wait $pid 2>/dev/null; echo $?
			try branches | cut -c1-17; try commit held 2>/dev/null; echo $?; cat mine
			kill -CONT ${stopped#stopped}`)
		want := strings.Repeat("1\n1\n0\n0\n", 3) + "NAME  STATE  \nheld  running\n137\nNAME  STATE     \nheld  interrupted\n0\nx\n"
		if out = strings.ReplaceAll(out, "NAME  STATE       ", "NAME  STATE     "); !strings.HasPrefix(strings.ReplaceAll(out, " ", ""), strings.ReplaceAll(want, " ", "")) {
			t.Errorf("wrote:\n%s\nwant:\n%s", out, want)
		}
	})
}

// TestBlockDevice: root's block device that was opened for reading is not
// opened for writing by its descriptor (issue 2, point 4). Stopped by
// inheritOne in ns/fds.go.
func TestBlockDevice(t *testing.T) {
	t.Parallel()
	l := rootLab(t)
	f, err := os.Open("/dev/loop0") // nothing lies behind it, and nothing is written
	if err != nil {
		t.Skipf("no block device to try: %v", err)
	}
	defer f.Close()
	const open = `for n in 0 3; do (: >> /proc/self/fd/$n) 2>/dev/null && test -b /proc/self/fd/$n && echo opened $n; done; true`
	l.in, l.fds = f, []*os.File{f}
	l.want(open, "opened 0\nopened 3\n")
	l.want("try --scope dir --abort -q sh -c '"+open+"' 2>/dev/null", "")
}
