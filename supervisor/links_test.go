package supervisor_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// files is a set of files with several names each, below directories of the
// project, as shell scripts make them.
type files struct {
	names [][]string // by file
	next  int
}

// start makes the script that makes n of them.
func (f *files) start(rng *rand.Rand, n int) string {
	var b strings.Builder
	b.WriteString("mkdir -p a/b c d\n")
	for i := range n {
		list := []string{f.fresh(rng)}
		fmt.Fprintf(&b, "echo file %d > %s\n", i, list[0])
		for range 1 + rng.IntN(3) {
			list = append(list, f.fresh(rng))
			fmt.Fprintf(&b, "ln %s %s\n", list[0], list[len(list)-1])
		}
		f.names = append(f.names, list)
	}
	return b.String()
}

func (f *files) fresh(rng *rand.Rand) string {
	f.next++
	return fmt.Sprintf("%s/%d", []string{".", "a", "a/b", "c", "d"}[rng.IntN(5)], f.next)
}

// script does one thing to each file: two names of one file that are both
// written to in a session part there.
func (f *files) script(rng *rand.Rand, round int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "mkdir -p new%d/in\n", round)
	for i := range f.names {
		if len(f.names[i]) == 0 {
			continue
		}
		k := rng.IntN(len(f.names[i]))
		p := f.names[i][k]
		q := f.fresh(rng)
		switch rng.IntN(11) {
		case 0, 1:
			fmt.Fprintf(&b, "echo more %d >> %s\n", round, p)
		case 2:
			fmt.Fprintf(&b, "echo cut %d > %s\n", round, p)
		case 3:
			fmt.Fprintf(&b, "chmod %s %s\n", []string{"600", "640", "755"}[rng.IntN(3)], p)
		case 4:
			fmt.Fprintf(&b, "rm %s\n", p)
			f.names[i] = append(f.names[i][:k:k], f.names[i][k+1:]...)
		case 5:
			fmt.Fprintf(&b, "echo replaced %d > %s.tmp; mv %s.tmp %s\n", round, p, p, p)
			f.names[i] = append(f.names[i][:k:k], f.names[i][k+1:]...)
		case 6:
			fmt.Fprintf(&b, "ln %s %s\n", p, q)
			f.names[i] = append(f.names[i], q)
		case 7:
			q = fmt.Sprintf("new%d/in/%d", round, f.next)
			fmt.Fprintf(&b, "ln %s %s\n", p, q)
			f.names[i] = append(f.names[i], q)
		case 8:
			fmt.Fprintf(&b, "ln %s %s; echo both %d >> %s\n", p, q, round, q)
			f.names[i] = append(f.names[i], q)
		case 9:
			fmt.Fprintf(&b, "truncate -s %d %s\n", rng.IntN(100_000), p)
		}
	}
	return b.String()
}

// TestLinksAsNative: which names are names of one file, and what is in it, is
// after a commit what it is natively.
func TestLinksAsNative(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	asEach(t, func(t *testing.T, r *rig) {
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		n := makeRig(t)
		if r.uid != os.Getuid() {
			n.become(r.uid)
		}
		var f files
		script := f.start(rng, 12)
		r.outside(script)
		n.outside(script)
		for round := range 5 {
			script := f.script(rng, round)
			n.outside(script)
			if round%2 == 1 {
				r.sh("--keep", "-q", "-b", "mine", script).want(0)
				r.try("commit", "-q", "mine").want(0)
			} else {
				r.sh("-y", "-q", script).want(0)
			}
			want, got := n.project(), r.project()
			want.timeless()
			got.timeless()
			r.must(want.names(n.proj))
			r.must(got.names(r.proj))
			if diff := want.differs(got); diff != "" {
				t.Fatalf("round %d (native, then branch):%s\nscript:\n%s", round, diff, script)
			}
		}
		r.clean()
	})
}

// TestNamesOutsideTheRoots: names of a changed file that lie elsewhere are said,
// and keep their content; one that a commit displaced is not one of them.
func TestNamesOutsideTheRoots(t *testing.T) {
	r := newRig(t)
	r.write("f", "old")
	r.must(os.Link(r.at("f"), filepath.Join(r.dir, "elsewhere")))
	o := r.sh("-y", "echo new > f").want(0).says("1 more of its names")
	r.wantFile("f", "new\n")
	if b, err := os.ReadFile(filepath.Join(r.dir, "elsewhere")); err != nil || string(b) != "old" {
		t.Errorf("the name outside holds %q, %v", b, err)
	}
	if !strings.Contains(o.stderr, "/proj/f") {
		t.Errorf("which file is not said: %s", o.stderr)
	}

	r.write("a", "old")
	r.must(os.Link(r.at("a"), r.at("b")))
	r.must(os.Link(r.at("a"), filepath.Join(r.home, "c")))
	d := r.try("-y", "--json", "--root", r.proj, "--root", r.home, "--", "/bin/sh", "-c", "echo new > a").want(0).document()
	if len(d.Warnings) != 0 {
		t.Errorf("warnings: %q", d.Warnings)
	}
	r.wantFile("b", "new\n")
	if b, err := os.ReadFile(filepath.Join(r.home, "c")); err != nil || string(b) != "new\n" {
		t.Errorf("the name in another root holds %q, %v", b, err)
	}
}
