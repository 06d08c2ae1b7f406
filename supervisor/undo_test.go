package supervisor_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// commits makes the project anew and commits the change as "mine".
func (c *crashRig) commits() {
	c.t.Helper()
	c.make()
	c.sh("-y", "-q", "-b", "mine", c.change).want(0)
	if !c.which("committed") {
		c.t.Fatal("the commit did nothing")
	}
}

// TestUndoTurns: undone the tree is the one before, redone the one after, in
// every detail, and nothing is left but the record.
func TestUndoTurns(t *testing.T) {
	t.Parallel()
	c := newCrashRig(t, crashBase, crashChange)
	c.commits()
	for range 2 {
		c.try("undo", "-q").want(0)
		if c.which("undone") {
			t.Fatal("undo did nothing")
		}
		c.try("redo", "-q").want(0)
		if !c.which("redone") {
			t.Fatal("redo did nothing")
		}
	}
	c.clean()
}

// TestUndoCrash: SIGKILL at the calls of an undo and of a redo, then recovery,
// asked for or not: the tree before or the tree after, and the record can be
// turned on.
func TestUndoCrash(t *testing.T) {
	t.Parallel()
	for _, part := range []struct {
		name string
		step int
	}{{"journal", 1}, {"apply", 3}, {"seal", 1}} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			c := newCrashRig(t, crashBase, crashChange)
			c.commits()
			points, turned, committed := 0, 0, true
			for n := 1; ; n += part.step {
				word := "undo"
				if !committed {
					word = "redo"
				}
				at := fmt.Sprintf("%s, %s:%d", word, part.name, n)
				if !c.crash(fmt.Sprintf("%s:%d", part.name, n), word, "mine") {
					break
				}
				points++
				c.try([][]string{{"recover"}, {"branches"}, {"--abort", "-q", "true"}}[n%3]...).want(0)
				now := c.which(at)
				if now != committed {
					turned++
				}
				committed = now
				state := "committed"
				if !committed {
					state = "undone"
				}
				if list := c.try("undo", "--list").want(0).stdout; !strings.Contains(list, "mine  "+state+" ") {
					t.Fatalf("%s: the list says\n%s\nwant %s", at, list, state)
				}
			}
			if c.which("uninterrupted") == committed {
				t.Error("the last one did nothing")
			}
			c.clean()
			t.Logf("%d points, %d of them turned", points, turned)
			if points == 0 || part.name == "apply" && turned != points {
				t.Error("no point in it, or taken back behind the commit point")
			}
		})
	}
}

// TestUndoRecoveriesAtOnce: two that recover the same undo are safe.
func TestUndoRecoveriesAtOnce(t *testing.T) {
	t.Parallel()
	c := newCrashRig(t, crashBase, crashChange)
	c.commits()
	for _, point := range []string{"journal:3", "apply:2", "apply:20", "seal:1"} {
		word := "undo"
		if !c.which("before " + point) {
			word = "redo"
		}
		if !c.crash(point, word, "mine") {
			t.Fatalf("no point %s", point)
		}
		var list []*running
		for range 2 {
			list = append(list, c.begin(c.program("recover")))
		}
		for _, p := range list {
			p.wait().want(0)
		}
		c.which("after " + point)
	}
	c.clean()
}

// TestUndoIsSeen: a branch that was forked before an undo or a redo is in
// conflict with it, also where no time tells: in a directory that was exchanged
// as a whole (H5).
func TestUndoIsSeen(t *testing.T) {
	r := newRig(t)
	r.outside(`mkdir -p d e; echo 0 | tee d/f e/f > d/g`)
	r.sh("-y", "-q", "-b", "one", `rm -r d; mkdir d; echo 1 | tee d/f > d/g; echo 1 > e/f`).want(0)
	r.sh("-q", "--keep", "-b", "two", `echo 2 > d/f`).want(0)
	r.sh("-q", "--keep", "-b", "three", `echo 3 > e/f`).want(0)
	r.sh("-q", "--keep", "-b", "four", `echo 4 > e/other`).want(0)
	r.try("undo", "-q").want(0)
	r.wantFile("d/f", "0\n")
	for _, name := range []string{"two", "three"} {
		r.try("commit", "-q", name).want(125)
	}
	r.wantFile("d/f", "0\n")
	r.wantFile("e/f", "0\n")
	r.try("commit", "-q", "four").want(0)
	r.wantFile("e/other", "4\n")
	// And what is forked after it sees it.
	r.sh("-y", "-q", `grep 0 d/f && echo 5 > d/f`).want(0)
	r.wantFile("d/f", "5\n")
	// The commits since are in the way of the first: its redo touches d.
	r.try("redo").want(1).says("was committed since")
	r.try("redo", "one").want(125).says("since it was undone")
}

// TestUndoNextToWriter: a program that saves a file all the time, as editors
// do, loses nothing by undos and redos: what it saved last is in the base.
func TestUndoNextToWriter(t *testing.T) {
	r := newRig(t)
	r.outside(`mkdir d; for i in $(seq 40); do echo 0 > d/$i; done`)
	r.sh("-y", "-q", "-b", "one", `for i in $(seq 40); do echo 1 > d/$i; done`).want(0)
	writer := r.begin(r.command("sh", "-c", `i=0; while [ ! -e stop ]; do i=$((i+1)); echo saved $i > d/.20; mv d/.20 d/20; echo $i > last; done`))
	turned := 0
	for range 10 {
		for _, word := range []string{"undo", "redo"} {
			o := r.try(word, "--partial", "-q", "one")
			if o.code == 0 {
				turned++
			}
		}
	}
	r.outside("touch stop")
	writer.wait().want(0)
	last := strings.TrimSpace(r.read("last"))
	r.wantFile("d/20", "saved "+last+"\n")
	t.Logf("%d turns beside %s saves", turned, last)
	if turned == 0 {
		t.Error("nothing was ever turned")
	}
}

// TestGCCrash: gc killed before its rename leaves the record, and it can be
// undone; what it has renamed is gone as a whole.
func TestGCCrash(t *testing.T) {
	r := newRig(t)
	r.outside("echo 0 > f")
	r.sh("-y", "-q", "-b", "one", "echo 1 > f").want(0)
	r.must(os.MkdirAll(r.home+"/.config/try", 0o755))
	r.must(os.WriteFile(r.home+"/.config/try/policy.toml", []byte("[undo]\nmax_count = 0\n"), 0o644))
	cmd := r.program("gc")
	cmd.Env = append(cmd.Env, "TRY_TEST_CRASH=gc:1")
	r.finish(cmd).want(137)
	r.try("undo", "-q", "one").want(0)
	r.wantFile("f", "0\n")
	// That run has trimmed behind itself, which took the record away.
	r.try("undo", "--list").want(0).says("no commits to undo")
	r.clean()
}

// TestUndoForged: a journal that is not of its record is refused, and nothing is
// touched (H1).
func TestUndoForged(t *testing.T) {
	r := newRig(t)
	r.outside("echo 0 > f")
	r.sh("-y", "-q", "-b", "one", "echo 1 > f").want(0)
	r.sh("-y", "-q", "-b", "two", "echo 2 > f").want(0)
	r.outside(`cd ~/.local/state/try/undo && set -- * && cp $1/journal $2/journal`)
	r.try("undo", "two").want(125).says("its journal is of branch")
	r.wantFile("f", "2\n")
	r.try("undo", "--list").want(0).says("its journal is of branch")
}

// TestUndosAtOnce: two at once take back two commits, none of them twice.
func TestUndosAtOnce(t *testing.T) {
	r := newRig(t)
	r.outside("echo 0 > f")
	for i := range 4 {
		r.sh("-y", "-q", fmt.Sprintf("echo %d > f", i+1)).want(0)
	}
	for _, want := range []string{"2\n", "0\n"} {
		list := []*running{r.begin(r.program("undo", "-q")), r.begin(r.program("undo", "-q"))}
		for _, p := range list {
			p.wait().want(0)
		}
		r.wantFile("f", want)
	}
	r.try("undo").want(1).says("nothing to undo")
	r.sh("--abort", "-q", "true").want(0) // two at once leave tidying to each other
	r.clean()
}
