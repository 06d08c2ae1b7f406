package branch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/engine"
	"try/fs/overlay"
	"try/fs/sys"
)

// A test that needs other processes runs this binary again, with the name of a
// role in the environment.
const roleVariable = "TRY_TEST_ROLE"

var roles = map[string]func() error{
	"hold":  func() error { return holdRole(false) },
	"begin": func() error { return holdRole(true) },
	"churn": churnRole,
}

func TestMain(m *testing.M) {
	name := os.Getenv(roleVariable)
	if name == "" {
		os.Exit(m.Run())
	}
	role := roles[name]
	if role == nil {
		role = func() error { return fmt.Errorf("no role %q", name) }
	}
	if err := role(); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// role prepares this binary to run as name in w.
func (w *world) role(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"="+name, "TRY_TEST_WORLD="+w.dir, "TRY_TEST_ARGS="+strings.Join(args, " "))
	cmd.Stderr = os.Stderr
	return cmd
}

// roleWorld is the world of the process that started us.
func roleWorld() (*Store, CreateOptions, error) {
	dir := os.Getenv("TRY_TEST_WORLD")
	s, err := OpenStore(dir + "/store")
	if err != nil {
		return nil, CreateOptions{}, err
	}
	mounts, err := sys.Mounts()
	if err != nil {
		return nil, CreateOptions{}, err
	}
	c, err := Roots(CoverageOptions{
		Scope: ScopeUser, Dir: dir + "/home/proj", Home: dir + "/home", Engines: []engine.Engine{overlay.Overlay{}}, Mounts: mounts,
		Temp: []string{dir + "/tmp"},
	})
	if err != nil {
		return nil, CreateOptions{}, err
	}
	return s, CreateOptions{Roots: c.Roots, Mounts: mounts}, nil
}

// holdRole creates a branch, says its id, and waits to be killed. A child that
// it starts outlives it, and is its session's first process if begun.
func holdRole(begun bool) error {
	s, opts, err := roleWorld()
	if err != nil {
		return err
	}
	b, err := s.Create(opts)
	if err != nil {
		return err
	}
	child := exec.Command("/bin/cat")
	if child.Stdin, err = os.OpenFile("/dev/fd/0", os.O_RDONLY, 0); err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	if begun {
		if err := b.Began(child.Process.Pid); err != nil {
			return err
		}
	}
	fmt.Println(b.ID, child.Process.Pid)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// TestKilledHolderFreesItsBranch: the lock goes with the process, at once, and
// not with the children that it leaves (H14). Who opens the branch does so after
// the end of the session that was begun in it.
func TestKilledHolderFreesItsBranch(t *testing.T) {
	for _, role := range []string{"hold", "begin"} {
		t.Run(role, func(t *testing.T) { t.Parallel(); killedHolder(t, role) })
	}
}

func killedHolder(t *testing.T, role string) {
	w := newWorld(t)
	cmd := w.role(role)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close() // ends the child's child
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var id string
	var first int
	if _, err := fmt.Fscan(out, &id, &first); err != nil {
		t.Fatal(err)
	}
	if got := w.state(id); got != Running {
		t.Errorf("state while its holder lives = %v, want running", got)
	}
	if _, err := w.store.Open(id); !errors.Is(err, ErrLocked) {
		t.Errorf("Open while its holder lives = %v, want ErrLocked", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.Process.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := w.state(id); got != Interrupted {
		t.Errorf("state after SIGKILL = %v, want interrupted", got)
	}
	b, err := w.store.Open(id)
	if err != nil {
		t.Fatalf("Open after SIGKILL = %v, want the branch", err)
	}
	// Its child, if that is its session's, has ended, on its own or not.
	state := ""
	if _, fields, err := sys.Process(first); err == nil {
		state = fields[0]
	}
	if gone := state == "" || state == "Z"; gone != (role == "begin") {
		t.Errorf("its child is in state %q", state)
	}
	if b.State != Interrupted {
		t.Errorf("state as opened = %v, want interrupted", b.State)
	}
	if err := b.Discard(); err != nil {
		t.Error(err)
	}
}

// churnRole does what many runs do, until its input ends or it is killed.
func churnRole() error {
	s, opts, err := roleWorld()
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for range 25 {
		b, err := s.Create(opts)
		if err != nil {
			return err
		}
		list, err := s.CreateGroup(opts, 3)
		if err != nil {
			return err
		}
		if err := list[1].Decide(); err != nil {
			return err
		}
		for _, b := range append(list, b) {
			if err := b.Announce([]string{"/x"}); err != nil {
				return err
			}
			if _, err := b.Since(); err != nil {
				return err
			}
			if err := errors.Join(b.Sealed(), b.Discard()); err != nil {
				return err
			}
		}
		infos, err := s.Branches()
		if err != nil {
			return err
		}
		for _, info := range infos {
			if info.Err != nil {
				return info.Err
			}
		}
		if err := s.Tidy(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// TestManyProcesses: runs in one store do not disturb one another.
func TestManyProcesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			cmd := w.role("churn")
			if err := cmd.Run(); err != nil {
				t.Errorf("churn: %v", err)
			}
		})
	}
	running.Wait()
	w.checkTidy()
}

// checkTidy wants nothing left but one skeleton and the counter.
func (w *world) checkTidy() {
	w.t.Helper()
	// Twice: what the first finds in groups and lists may be what the second
	// can delete.
	for range 2 {
		if err := w.store.Tidy(context.Background()); err != nil {
			w.t.Errorf("Tidy: %v", err)
		}
	}
	left := w.left()
	left = slices.DeleteFunc(left, func(name string) bool { return name == "spare" || strings.HasPrefix(name, commitsName+"/") })
	if len(left) > 0 {
		w.t.Errorf("left behind: %q", left)
	}
	if files, err := w.store.commitFiles(); err != nil || len(files) > 1 {
		w.t.Errorf("lists of commits left behind: %v, %v; want the last at most", files, err)
	}
}

// TestKilledAnywhere kills runs at random moments: each branch that is listed
// can be opened and dropped, names stay unique, and nothing is left then.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 0))
	t.Logf("seed %d", os.Getpid())
	for range 25 {
		cmd := w.role("churn")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(rng.IntN(20_000)) * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Process.Wait()
		infos, err := w.store.Branches()
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, info := range infos {
			if info.Err != nil || info.State != Interrupted {
				t.Errorf("%s: state %v, %v; want interrupted", info.ID, info.State, info.Err)
			}
			if names[info.Name] {
				t.Errorf("two branches are called %s", info.Name)
			}
			names[info.Name] = true
		}
		if rng.IntN(2) == 0 {
			continue // let it pile up
		}
		for _, info := range infos {
			b, err := w.store.Open(info.Name)
			if err != nil {
				t.Fatalf("Open(%s): %v", info.Name, err)
			}
			if err := b.Discard(); err != nil {
				t.Fatal(err)
			}
		}
		w.checkTidy()
	}
}

func TestDecideOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 30 {
		list, err := w.store.CreateGroup(w.options("race"), 4)
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range list {
			if want := fmt.Sprintf("race.%d", i+1); b.Name != want || b.Index != i+1 {
				t.Fatalf("member %d is %s, %d; want %s", i, b.Name, b.Index, want)
			}
			if b.Roots[0].Stamp != list[0].Roots[0].Stamp {
				t.Fatal("members have different stamps")
			}
		}
		start := make(chan struct{})
		errs := make([]error, len(list))
		var deciding sync.WaitGroup
		for i, b := range list {
			deciding.Go(func() {
				<-start
				errs[i] = b.Decide()
			})
		}
		close(start)
		deciding.Wait()
		winner := slices.Index(errs, nil)
		if winner < 0 {
			t.Fatalf("nobody won: %v", errs)
		}
		for i, err := range errs {
			if i == winner {
				continue
			}
			stale, ok := errors.AsType[*StaleError](err)
			if !ok || stale.Winner != list[winner].Name || !errors.Is(err, unix.ESTALE) || !errors.Is(err, ErrStale) {
				t.Fatalf("Decide of member %d = %v, want stale, naming %s", i, err, list[winner].Name)
			}
		}
		if err := list[winner].Decide(); err != nil {
			t.Errorf("the winner asked again: %v", err)
		}
		other := list[(winner+1)%len(list)]
		// The winner's commit met a conflict: the next may try, and stays.
		if err := errors.Join(list[winner].Undecide(), other.Decide(), other.RaiseEpoch(), other.RaiseEpoch()); err != nil {
			t.Fatal(err)
		}
		if err := other.Undecide(); err != nil {
			t.Fatal(err)
		}
		if err := list[winner].Decide(); !errors.Is(err, ErrStale) {
			t.Errorf("after a commit: Decide = %v, want stale", err)
		}
		for _, b := range list {
			if err := b.Discard(); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.checkTidy()
}

// TestStaleStaysStale: a member that was kept is stale for whoever opens it.
func TestStaleStaysStale(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list, err := w.store.CreateGroup(w.options("race"), 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(list[0].Decide(), list[0].RaiseEpoch(), list[0].SetState(Committing), list[0].SetState(Committed), list[0].Discard(), list[1].Keep(context.Background()), list[1].Close(), w.store.Tidy(context.Background())); err != nil {
		t.Fatal(err)
	}
	b, err := w.open().Open("race.2")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.CheckStale(); !errors.Is(err, ErrStale) || !strings.Contains(err.Error(), "race.1") {
		t.Errorf("CheckStale = %v, want stale, naming race.1", err)
	}
	if _, err := w.store.Create(w.options("race")); !errors.Is(err, ErrExists) {
		t.Errorf("Create of the group's name = %v, want ErrExists while a member is kept", err)
	}
}

func TestCommitsAreSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old, b := w.create("old"), w.create("b")
	if err := b.Announce([]string{"/x/\xff", "/y"}); err != nil {
		t.Fatal(err)
	}
	during := w.create("during") // forked while b is being applied
	if err := b.Sealed(); err != nil {
		t.Fatal(err)
	}
	after := w.create("after")
	undone := w.create("undone")
	if err := errors.Join(undone.Announce([]string{"/z"}), undone.Withdrawn()); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		branch *Branch
		want   int
	}{{old, 1}, {during, 1}, {after, 0}, {b, 0}} {
		lists, err := row.branch.Since()
		if err != nil || len(lists) != row.want {
			t.Errorf("Since of %s = %v, %v; want %d lists", row.branch.Name, lists, err, row.want)
		}
		if row.want == 1 && err == nil && (!slices.Equal(lists[0].Paths, []string{"/x/\xff", "/y"}) || lists[0].Name != "b") {
			t.Errorf("Since of %s = %+v, want b's paths", row.branch.Name, lists[0])
		}
	}
	// As long as old lives, its lists live.
	if err := w.store.Tidy(context.Background()); err != nil {
		t.Fatal(err)
	}
	if lists, err := old.Since(); err != nil || len(lists) != 1 || len(lists[0].Paths) != 2 {
		t.Errorf("after Tidy: Since of old = %v, %v; want one list", lists, err)
	}
	for _, b := range []*Branch{old, b, during, undone} {
		if err := b.Discard(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(after.Announce(nil), after.Sealed()); err != nil {
		t.Fatal(err)
	}
	if files, err := w.store.commitFiles(); err != nil || !slices.ContainsFunc(files, func(c commitFile) bool { return c.number == 2 }) {
		t.Errorf("the second commit is not number 2: %v, %v", files, err)
	}
}

func timeAt(seconds int64) time.Time { return time.Unix(1_700_000_000+seconds, 123_456_789) }

// TestOpenAfterDiscard: who waits with the branch's directory open finds, with
// the lock in hand, that the branch is gone.
func TestOpenAfterDiscard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.create("otter")
	dir, err := w.store.branches.Sub(b.ID)
	if err != nil {
		t.Fatal(err)
	}
	l, err := existingLock(dir, lockName)
	if err != nil {
		t.Fatal(err)
	}
	late := &Branch{store: w.store, dir: dir, lock: l}
	defer late.Close()
	if err := late.load(b.ID); !errors.Is(err, ErrLocked) {
		t.Errorf("load of a running branch = %v, want ErrLocked", err)
	}
	if err := b.Discard(); err != nil {
		t.Fatal(err)
	}
	if err := late.load(b.ID); err == nil {
		t.Error("load of a discarded branch = nil error")
	}
}

// TestWaitForCommitLock: who waits is told for whom, and can give up.
func TestWaitForCommitLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, err := w.store.LockCommits(t.Context(), "calm-otter", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = w.open().LockCommits(ctx, "second", func(holder string) {
		if !strings.Contains(holder, "calm-otter") || !strings.Contains(holder, fmt.Sprint(os.Getpid())) {
			t.Errorf("waiting for %q, want the branch and the process", holder)
		}
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("LockCommits after giving up = %v, want the context's error", err)
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	// Whoever gave up may get the lock for a moment, and lets go of it.
	again, err := w.open().LockCommits(t.Context(), "third", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Unlock(); err != nil {
		t.Fatal(err)
	}
}
