package supervisor_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// crashBase and crashChange have each kind of step in them: add, replace,
// delete, exchange of directories and types, metadata in place, closed
// directories, links, attributes, directory times.
const (
	crashBase = `
		mkdir -p keep gone/sub swap/a type ro/in meta
		for i in 1 2 3; do echo old $i | tee keep/$i gone/$i gone/sub/$i swap/a/$i ro/in/$i meta/$i > type/$i; done
		ln -s old keep/link; mkfifo keep/fifo; ln keep/3 keep/three
		touch top; chmod 0555 ro/in ro` + fixed
	crashChange = `
		echo new > keep/1; echo new > keep/new; rm keep/2; ln -sfn new keep/link; rm keep/fifo
		rm -r gone
		rm -r swap; mkdir -p swap/b; echo new > swap/b/new
		rm type/1 type/2; mkdir type/1; echo new > type/1/x; ln -s 3 type/2
		chmod u+w ro ro/in; echo new > ro/in/new; rm ro/in/1; mkdir ro/made; echo new > ro/made/f; chmod 0555 ro/made ro/in ro
		chmod 4711 meta/1; chmod 0700 meta; touch top
		mkdir -p fresh/deep/er; echo new | tee fresh/f fresh/deep/f > fresh/deep/er/f; ln fresh/f fresh/g; chmod 0500 fresh/deep
		echo new > zz` + fixed
)

// crashRig makes and makes again a project with a kept branch, "mine".
type crashRig struct {
	*rig
	change        string
	template      string
	made          int
	before, after snapshot // the only trees that may ever be seen
}

func newCrashRig(t *testing.T, base, change string) *crashRig {
	t.Helper()
	r := makeRig(t)
	if os.Getuid() == 0 {
		r.become(stranger) // an ordinary user's commits have more steps
	}
	c := &crashRig{rig: r, change: change, template: filepath.Join(r.dir, "template")}
	c.outside(base)
	c.must(os.Rename(c.proj, c.template))
	c.make()
	c.before = c.tree()
	c.outside(change)
	c.after = c.tree()
	if c.before.differs(c.after) == "" {
		t.Fatal("nothing changes")
	}
	return c
}

// make makes the project as it was.
func (c *crashRig) make() {
	c.t.Helper()
	// Removed at the end: ext4 is slow to make files where many were removed
	// just now (FACTS D4).
	if err := os.Rename(c.proj, fmt.Sprintf("%s.%d", c.proj, c.made)); !errors.Is(err, os.ErrNotExist) {
		c.must(err)
	}
	c.made++
	cmd := c.command("cp", "-a", c.template, c.proj)
	cmd.Dir = c.dir
	if c.uid != os.Getuid() {
		c.must(os.Chown(c.dir, c.uid, c.uid))
	}
	c.finish(cmd).want(0)
}

// branch makes the project and a kept branch.
func (c *crashRig) branch() {
	c.t.Helper()
	c.make()
	c.sh("-q", "--keep", "-b", "mine", c.change).want(0)
}

// tree is the project but for its own time, which is that of the copy.
func (c *crashRig) tree() snapshot {
	c.t.Helper()
	s := c.project()
	delete(s, ".")
	return s
}

// which says whether the new tree is there, and ends the test if it is neither
// that nor the old one.
func (c *crashRig) which(when string) (after bool) {
	c.t.Helper()
	got := c.tree()
	if c.before.differs(got) == "" {
		return false
	}
	if diff := c.after.differs(got); diff != "" {
		c.t.Fatalf("%s: neither the old tree nor the new one (new, then there):%s", when, diff)
	}
	return true
}

// crash runs the program, which ends by SIGKILL at a point; false if it does
// not come there and ends well.
func (c *crashRig) crash(point string, args ...string) bool {
	c.t.Helper()
	cmd := c.program(args...)
	cmd.Env = append(cmd.Env, "TRY_TEST_CRASH="+point)
	o := c.finish(cmd)
	if o.code == 0 {
		return false
	}
	o.want(128 + int(unix.SIGKILL))
	return true
}

// recovered runs the program once more, one way or another, and then wants a
// whole tree, and a branch only with the old one.
func (c *crashRig) recovered(when string, rng int) (after bool) {
	c.t.Helper()
	words := [][]string{{"recover"}, {"branches"}, {"--abort", "-q", "true"}}[rng%3]
	o := c.try(words...).want(0)
	after = c.which(when)
	state := c.branches()["mine"]
	if after != (state == "") || !after && state != "kept" {
		c.t.Fatalf("%s: new tree %v, branch %q\n%s%s", when, after, state, o.stdout, o.stderr)
	}
	if after {
		c.try("--abort", "-q", "true").want(0) // which empties the trash
		c.clean()
	}
	return after
}

// TestCrashAtEachStep: SIGKILL at every call of a commit that alters the disk,
// then recovery, asked for or not: the old tree or the new one.
func TestCrashAtEachStep(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"compile", "stage", "journal", "apply", "seal"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			c := newCrashRig(t, crashBase, crashChange)
			c.branch()
			n := 1
			for ; c.crash(fmt.Sprintf("%s:%d", part, n), "commit", "mine"); n++ {
				if c.recovered(fmt.Sprintf("after %s:%d", part, n), n) {
					c.branch()
				}
			}
			if !c.which("uninterrupted") {
				t.Error("the commit did nothing")
			}
			c.clean()
			t.Logf("%d points", n-1)
			if n == 1 && (part == "journal" || part == "apply" || part == "seal") {
				t.Error("no point in it")
			}
		})
	}
}

// TestCrashOfRecovery: recovery itself may be killed at each of its steps.
func TestCrashOfRecovery(t *testing.T) {
	t.Parallel()
	c := newCrashRig(t, crashBase, crashChange)
	for _, from := range []struct {
		start string
		every int
	}{{"apply:1", 3}, {"seal:1", 5}} {
		points := 0
		for part, n := "recover", 1; ; n += from.every {
			c.branch()
			if !c.crash(from.start, "commit", "mine") {
				t.Fatalf("no point %s", from.start)
			}
			point := fmt.Sprintf("%s:%d", part, n)
			if !c.crash(point, "recover") {
				c.recovered(from.start+", uninterrupted", 0)
				if part == "seal" {
					break
				}
				part, n = "seal", 1-from.every
				continue
			}
			points++
			if !c.recovered(from.start+", then "+point, n) {
				t.Fatalf("%s, then %s: taken back", from.start, point)
			}
		}
		t.Logf("%d points after %s", points, from.start)
		if points == 0 {
			t.Error("no point in it")
		}
	}
}

// TestCrashOfRollBack: what was begun is taken back when recovery meets a
// neighbour's file, through a crash at each step of the way back as well. With
// the neighbour gone the branch can still be committed.
func TestCrashOfRollBack(t *testing.T) {
	t.Parallel()
	c := newCrashRig(t, crashBase, crashChange)
	c.make()
	if !c.crash("apply:8", "-y", "-b", "mine", "--", "/bin/sh", "-euc", c.change) {
		t.Fatal("no point apply:8")
	}
	c.takenBack("a session", "", false)
	points := 0
	for part, n := "turn", 1; ; n++ {
		point := fmt.Sprintf("%s:%d", part, n)
		c.branch()
		if !c.crash("apply:8", "commit", "mine") {
			t.Fatal("no point apply:8")
		}
		if c.takenBack("crashed at "+point, point, true) {
			points++
			continue
		}
		next := map[string]string{"turn": "rollback", "rollback": "seal"}[part]
		if next == "" {
			break
		}
		part, n = next, 0
	}
	t.Logf("%d points", points)
	if points < 10 {
		t.Error("too few points")
	}
}

// takenBack has a commit that was killed early taken back because of a
// neighbour's file, with a crash on the way if it comes to that point.
func (c *crashRig) takenBack(when, point string, kept bool) (crashed bool) {
	c.t.Helper()
	c.must(os.WriteFile(c.at("zz"), []byte("theirs"), 0o644))
	if point != "" {
		crashed = c.crash(point, "recover")
	}
	c.try("recover").want(0)
	got := c.tree()
	if !strings.HasSuffix(got["zz"], `"theirs"`) {
		c.t.Fatalf("%s: the neighbour's file is %q", when, got["zz"])
	}
	delete(got, "zz")
	if diff := c.before.differs(got); diff != "" {
		c.t.Fatalf("%s: not the old tree (old, then there):%s", when, diff)
	}
	if state := c.branches()["mine"]; state != "kept" {
		c.t.Fatalf("%s: the branch is %q", when, state)
	}
	conflicts := c.try("commit", "--json", "mine").want(125).document().conflicts()
	if !conflicts[c.at("zz")] || !crashed && len(conflicts) > 1 {
		// What a recovery put back that was killed is not known as such.
		c.t.Fatalf("%s: conflicts are %v", when, conflicts)
	}
	if !crashed && kept { // what a session's end found in conflict stays so
		c.must(os.Remove(c.at("zz")))
		c.try("commit", "mine").want(0)
		if !c.which(when + ", commit") {
			c.t.Fatalf("%s: committed, and the tree is the old one", when)
		}
	} else {
		c.try("abort", "mine").want(0)
	}
	c.clean()
	return crashed
}

// TestRecoveriesAtOnce: several that find the same crash do not get in one
// another's way (DESIGN §6).
func TestRecoveriesAtOnce(t *testing.T) {
	t.Parallel()
	c := newCrashRig(t, crashBase, crashChange)
	for _, point := range []string{"apply:2", "apply:20", "seal:1"} {
		c.branch()
		if !c.crash(point, "commit", "mine") {
			t.Fatalf("no point %s", point)
		}
		var all []*running
		for _, args := range [][]string{{"recover"}, {"branches"}, {"recover"}, {"-q", "--abort", "true"}, {"recover"}} {
			all = append(all, c.begin(c.program(args...)))
		}
		for _, p := range all {
			p.wait().want(0)
		}
		if !c.recovered(point, 0) {
			t.Fatalf("%s: taken back", point)
		}
	}
}

// TestRootAwayAtRecovery: a commit whose root is not there, or is another, stays
// undecided until the root is back; nobody else has to wait for it (H18, H19).
func TestRootAwayAtRecovery(t *testing.T) {
	t.Parallel()
	c := newCrashRig(t, crashBase, crashChange)
	for _, point := range []string{"apply:12", "turn"} {
		c.branch()
		if !c.crash("apply:12", "commit", "mine") {
			t.Fatal("no point apply:12")
		}
		if point == "turn" { // taken back, but not to its end
			c.must(os.WriteFile(c.at("zz"), nil, 0o644))
			if !c.crash("rollback:3", "recover") {
				t.Fatal("no point rollback:3")
			}
			c.must(os.Remove(c.at("zz")))
		}
		away := c.proj + ".away"
		c.must(os.Rename(c.proj, away))
		for _, other := range []bool{false, true} {
			if other {
				c.must(os.Mkdir(c.proj, 0o755))
			}
			for _, args := range [][]string{{"branches"}, {"-q", "--abort", "true"}, {"recover"}, {"abort", "mine"}, {"commit", "mine"}} {
				cmd := c.program(args...)
				cmd.Dir = c.home
				o := c.finish(cmd)
				if o.code == 0 && (args[0] == "recover" || args[len(args)-1] == "mine") {
					t.Errorf("%q ended with 0 while the root is away: %s%s", args, o.stdout, o.stderr)
				}
				if o.code != 0 && (args[0] == "branches" || args[0] == "-q") {
					t.Errorf("%q ended with %d because of a commit elsewhere: %s%s", args, o.code, o.stdout, o.stderr)
				}
			}
		}
		c.must(os.Remove(c.proj))
		c.must(os.Rename(away, c.proj))
		c.try("recover").want(0)
		if after := c.which(point); after != (point != "turn") {
			t.Fatalf("%s: new tree %v", point, after)
		}
		for name := range c.branches() {
			c.try("abort", name).want(0)
		}
	}
}

// TestEditedBeforeRecovery: what somebody did to committed files after the crash
// stays, and is not taken for something undone (H17).
func TestEditedBeforeRecovery(t *testing.T) {
	t.Parallel()
	c := newCrashRig(t, `mkdir d; for i in 1 2 3 4 5; do echo old > d/$i; echo old > $i; done`,
		`for i in 1 2 3 4; do echo new > d/$i; echo new > $i; done; rm 5; rm d/5; mkdir n; echo new | tee n/1 > n/2`)
	c.branch()
	if !c.crash("seal:1", "commit", "mine") {
		t.Fatal("no point seal:1")
	}
	c.outside(`echo edited > d/1; echo edited >> 1
		echo edited > t; mv t d/2; cp 3 t; mv t 3; rm d/3; rm 2; mkdir 2; echo edited > 5
		echo edited > n/1; rm n/2; mv n m`)
	want := c.project()
	c.try("recover").want(0)
	got := c.project()
	for _, dir := range []string{".", "d", "m"} { // a directory's time may be set once more
		delete(want, dir)
		delete(got, dir)
	}
	if diff := want.differs(got); diff != "" {
		t.Fatalf("recovery changed (edited, then there):%s", diff)
	}
	if left := c.branches(); len(left) > 0 {
		t.Errorf("branches are left: %v", left)
	}
	c.clean()
}

// TestCrashAnywhere: SIGKILL at TRY_CRASHES random moments of a commit of 2,000
// changes.
func TestCrashAnywhere(t *testing.T) {
	t.Parallel()
	rounds := 10
	if n, err := strconv.Atoi(os.Getenv("TRY_CRASHES")); err == nil {
		rounds = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	// Two trees that are made into each other: 600 files modified, 600 deleted,
	// 600 added, 200 with another mode.
	change := func(from, to, date string) string {
		return `umask 022; for i in ` + numbers + `; do echo ` + to + ` > same/$i; echo ` + to + ` > ` + to + `/$i; done
			rm ` + from + `/*; chmod ` + map[string]string{"one": "644", "two": "600"}[to] + ` mode/*
			touch -d ` + date + ` same/* ` + to + `/*; touch -d ` + date + ` same one two`
	}
	there, back := change("one", "two", "2002-02-02"), change("two", "one", "2001-01-01")
	c := newCrashRig(t, `umask 022; mkdir one two same mode; cd mode; touch -d 2001-01-01 $(seq 200); cd ..; touch -d 2001-01-01 mode
		touch two/x; `+back, there)
	c.outside(back)
	if diff := c.before.differs(c.tree()); diff != "" {
		t.Fatal(diff)
	}
	var whole time.Duration
	ends := map[bool]int{}
	for round := 0; round < rounds; {
		c.sh("-q", "--keep", "-b", "mine", there).want(0)
		for after := false; !after; round++ {
			p := c.begin(c.program("commit", "mine"))
			at := time.Hour // measure first
			if whole > 0 {
				at = time.Duration(rng.Int64N(int64(whole)))
			}
			start := time.Now()
			timer := time.AfterFunc(at, func() { _ = p.cmd.Process.Kill() })
			p.wait()
			timer.Stop()
			if whole == 0 {
				whole = time.Since(start)
			}
			after = c.recovered(fmt.Sprintf("round %d, killed after %v of %v", round, at, whole), rng.IntN(3))
			ends[after]++
		}
		there, back = back, there
		c.before, c.after = c.after, c.before
	}
	t.Logf("old tree %d times, new tree %d times", ends[false], ends[true])
}

// numbers are 600 names.
var numbers = func() string {
	var b strings.Builder
	for i := range 600 {
		fmt.Fprintf(&b, " %d", i)
	}
	return b.String()
}()
