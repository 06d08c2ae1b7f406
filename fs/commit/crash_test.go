package commit

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/layer/layertest"
	"try/fs/sys"
	"try/fs/vfs"
)

var (
	every = flag.Int("every", 7, "kill at each n-th call of the mixed commit; 1: at all")
	kills = flag.Int("kills", 6, "random moments at which the commit of 2,000 changes is killed")
	seed  = flag.Uint64("seed", 1, "seed of the random moments")
)

const (
	child   = "TRY_TEST_COMMIT" // the child's part: commit, undo, redo, announce, count or recover
	turnEnv = "TRY_TEST_TURN"   // count: what, if not a commit; recover: the number of the undoing
)

// childMain is a process of its own that commits or recovers the rig at
// os.Args's last. It is killed by TRY_TEST_CRASH or by its parent.
func childMain() {
	dir := os.Args[len(os.Args)-1]
	t := &childT{}
	r := &rig{t: t, dir: dir, copy: os.Getenv("TRY_TEST_COPY") != ""}
	d, err := sys.OpenDir(r.base())
	check(t, err)
	st, err := d.Stat("")
	check(t, err)
	r.root = Root{Path: r.base(), ID: st.Identity(), Layer: r.layer(), Slots: r.store() + "/slots"}
	fs := vfs.Disk()
	switch os.Getenv(child) {
	case "announce":
		said := false
		fs = &vfs.Fault{FS: fs, Before: func(op vfs.Op) error {
			if !said && op.Part == "journal" {
				said = true
				fmt.Println("journal")
			}
			return nil
		}}
	case "count":
		fs = &vfs.Fault{FS: fs, Before: func(op vfs.Op) error {
			fmt.Printf("%s:%d\n", op.Part, op.Number)
			return nil
		}}
	}
	part := os.Getenv(child)
	if turn := os.Getenv(turnEnv); part == "count" && turn != "" {
		part = turn
	}
	switch part {
	case "commit", "count", "announce":
		err = r.commit(fs)
	case "undo":
		err = r.undo(fs)
	case "redo":
		err = r.redo(fs)
	case "recover":
		if turn := os.Getenv(turnEnv); turn == "" {
			_, err = Recover(fs, r.store())
		} else {
			var number uint64
			if number, err = strconv.ParseUint(turn, 10, 64); err == nil {
				_, err = RecoverRecord(fs, r.store(), number)
			}
		}
	}
	check(t, err)
	t.end()
	os.Exit(0)
}

// childT lets the helpers of tests be used in the child.
type childT struct {
	testing.TB
	cleanups []func()
}

func (t *childT) Helper() {}
func (t *childT) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}
func (t *childT) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }
func (t *childT) end() {
	for _, f := range t.cleanups {
		f()
	}
}

func command(part, dir string, env ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", dir)
	cmd.Env = append(append(os.Environ(), child+"="+part), env...)
	return cmd
}

// killed says that the child ended by SIGKILL; any other failure is fatal.
func killed(t *testing.T, err error, stderr string) bool {
	t.Helper()
	if err == nil {
		return false
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if ok && exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGKILL {
		return true
	}
	t.Fatalf("child: %v: %s", err, stderr)
	return false
}

func run(t *testing.T, cmd *exec.Cmd) bool {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	err := cmd.Run()
	return killed(t, err, stderr.String())
}

// points lists the calls of a commit, part:number.
func points(t *testing.T, dir string, env ...string) []string {
	t.Helper()
	cmd := command("count", dir, env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	check(t, err)
	return strings.Fields(string(out))
}

// settle recovers what a killed commit left, and wants the old tree and the
// branch as it was, or the new tree.
func (r *rig) settle(before, want map[string]entry) Outcome {
	r.t.Helper()
	o, err := Recover(vfs.Disk(), r.store())
	if c, ok := errors.AsType[*ConflictError](err); ok && o == RolledBack {
		if len(c.Left) > 0 || c.Conflicts[0].Reason == "" {
			r.t.Errorf("recover: %+v", c)
		}
		err = nil
	}
	check(r.t, err)
	r.whole(o, before, want)
	again, err := Recover(vfs.Disk(), r.store())
	if err != nil || again != o {
		r.t.Errorf("second recovery: %v, %v, first was %v", again, err, o)
	}
	return o
}

func (r *rig) whole(o Outcome, before, want map[string]entry) {
	r.t.Helper()
	switch o {
	case Committed:
		same(r.t, "base, committed", look(r.t, r.base()), want)
		if _, mixed := want["lk2"]; mixed {
			r.wantNames(mixedNames...)
		}
	case Nothing, RolledBack:
		same(r.t, "base, "+o.String(), look(r.t, r.base()), before)
		if _, mixed := want["lk2"]; mixed {
			r.wantNames("lk/a = lk2")
		}
		same(r.t, "the branch, "+o.String(), r.want(), want)
	default:
		r.t.Errorf("outcome %v", o)
	}
}

func testKills(t *testing.T, copies bool) {
	layertest.Skip(t)
	var env []string
	if copies {
		env = append(env, "TRY_TEST_COPY=1")
	}
	make := func(t *testing.T) (*rig, map[string]entry, map[string]entry) {
		r := newRig(t, mixedBase...)
		r.copy = copies
		r.session(mixed...)
		if copies && os.Getuid() != 0 {
			// Copying opens what its owner may not read: a kill in between leaves it
			// open in the layer, as one while the plan is made does.
			r.session(op{"chmod", "closed", "755"}, op{"chmod", "closed/in", "755"}, op{"chmod", "closed/in/f", "644"}, op{"chmod", "secret", "600"})
		}
		return r, look(t, r.base()), r.want()
	}
	r, _, _ := make(t)
	list := points(t, r.dir, env...)
	outcomes := map[Outcome]int{}
	for i := 0; i < len(list); i += *every {
		point := list[i]
		t.Run(point, func(t *testing.T) {
			r, before, want := make(t)
			if !run(t, command("commit", r.dir, append(env, "TRY_TEST_CRASH="+point)...)) {
				t.Fatal("the child was not killed")
			}
			// The recovery is killed as well, somewhere, then done.
			run(t, command("recover", r.dir, fmt.Sprintf("TRY_TEST_CRASH=recover:%d", 1+i%40)))
			outcomes[r.settle(before, want)]++
		})
	}
	t.Logf("%d of %d points: %v", (len(list)+*every-1) / *every, len(list), outcomes)
	if outcomes[Committed] == 0 || outcomes[Nothing] == 0 {
		t.Errorf("outcomes %v: both must occur", outcomes)
	}
}

// TestKilledAtEachCall kills a process at the calls of a commit.
func TestKilledAtEachCall(t *testing.T)       { testKills(t, false) }
func TestKilledAtEachCallOfCopy(t *testing.T) { testKills(t, true) }

// TestKilledAtRandom kills the commit of 2,000 changes at random moments from
// its journal on.
func TestKilledAtRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 0))
	all := t.TempDir() // emptied at the end: ext4 is slow to make files where many were removed
	outcomes := map[Outcome]int{}
	for n := range *kills {
		dir := fmt.Sprintf("%s/%d", all, n)
		check(t, os.Mkdir(dir, 0o755))
		r := rigAt(t, dir)
		many(t, r, 2000)
		before, want := look(t, r.base()), r.want()
		cmd := command("announce", r.dir)
		out, err := cmd.StdoutPipe()
		check(t, err)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		check(t, cmd.Start())
		_, err = bufio.NewReader(out).ReadString('\n')
		check(t, err)
		// No event tells a moment within the commit: a busy wait does, and
		// whatever it hits is a fair one.
		for end := time.Now().Add(time.Duration(rng.IntN(60_000)) * time.Microsecond); time.Now().Before(end); {
		}
		if err := cmd.Process.Signal(unix.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, out)
		check(t, err)
		killed(t, cmd.Wait(), stderr.String())
		outcomes[r.settle(before, want)]++
		if t.Failed() {
			t.Fatalf("kill %d, -seed %d", n, *seed)
		}
	}
	t.Log(outcomes)
}
