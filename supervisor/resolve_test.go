package supervisor_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const lines = "seq 1 20"

// resolutions are conflicts and how they are decided.
var resolutions = []struct {
	name, base, change, neighbour string
	args                          string
	want                          string // natively, after base and neighbour
	stays                         bool   // something stays in the branch
}{
	{
		"ours, theirs, and the rest",
		"echo 1 | tee a b > c", "echo 2 | tee a b c > d", "echo 3 | tee a > b",
		"--ours a --theirs b", "echo 2 | tee b c > d", false,
	}, {
		"the first that matches",
		"echo 1 | tee a.x > b.x", "echo 2 | tee a.x > b.x", "echo 3 | tee a.x > b.x",
		"--theirs=a.x --ours *.x", "echo 2 > a.x", false,
	}, {
		"the other way round",
		"echo 1 | tee a.x > b.x", "echo 2 | tee a.x > b.x", "echo 3 | tee a.x > b.x",
		"--ours *.x --theirs=a.x", ":", false,
	}, {
		"skip",
		"echo 1 | tee a > b", "echo 2 | tee a > b", "echo 3 > a",
		"--skip a", "echo 2 > b", true,
	}, {
		"skip and ours alone",
		"echo 1 | tee a > b", "echo 2 | tee a > b", "echo 3 | tee a > b",
		"--skip a --ours b", ":", true,
	}, {
		"merge",
		lines + " > a; " + lines + " > b", "sed -i s/^3$/three/ a; sed -i s/^5$/five/ b; chmod 755 a", "sed -i s/^18$/eighteen/ a; sed -i s/^5$/five/ b",
		"--merge .", "sed -i s/^3$/three/ a; chmod 755 a", false,
	}, {
		"deleted here, changed there, and the other way round",
		"echo 1 | tee a b c > d", "rm a b; echo 2 | tee c > d", "echo 3 | tee a > b; rm c d",
		"--theirs a --ours b --theirs c --ours d", "rm a; echo 2 > c", false,
	}, {
		"made on both sides",
		":", "echo 2 | tee a > b; mkdir d; echo 2 > d/f", "echo 3 | tee a > b; mkdir d; echo 3 > d/f; echo 3 > d/g",
		"--theirs a --ours b --theirs d/f", "echo 2 | tee a > d/f", false,
	}, {
		"types",
		"echo 1 | tee a b > c", "rm a b c; mkdir a; echo 2 > a/f; ln -s x b; mkfifo c", "echo 3 | tee a b > c",
		"--theirs a --theirs b --ours c", "rm a b; mkdir a; echo 2 > a/f; ln -s x b", false,
	}, {
		"a directory removed, and a new file in it: theirs",
		"mkdir -p d/e; echo 1 | tee d/a > d/e/b; echo 1 > k", "rm -r d; echo 2 > k", "echo 3 > d/e/new",
		"--theirs d", "rm -r d; echo 2 > k", false,
	}, {
		"ours",
		"mkdir -p d/e; echo 1 | tee d/a > d/e/b; echo 1 > k", "rm -r d; echo 2 > k", "echo 3 > d/e/new",
		"--ours d/e/new", "rm d/a d/e/b; echo 2 > k", false,
	}, {
		"ours of all that drifted",
		"mkdir -p d/e; echo 1 | tee d/a > d/e/b; echo 1 > k", "rm -r d; echo 2 > k", "echo 3 > d/e/new",
		"--ours d", "rm d/a; echo 2 > k", false,
	}, {
		"skip of a part of what was made anew",
		"mkdir d; echo 1 | tee d/a > d/b", "rm -r d; mkdir d; echo 2 | tee d/b > d/c", "echo 3 > d/b",
		"--skip d/b", "rm d/a; echo 2 > d/c", true,
	}, {
		"metadata",
		"echo 1 | tee a > b; mkdir d", "chmod 700 a b d", "chmod 711 a b d",
		"--theirs a --ours .", "chmod 700 a", false,
	}, {
		"a directory above was replaced",
		"mkdir d e; echo 1 | tee d/f e/f d/g > e/g", "echo 2 | tee d/f > e/f", "mv d x; cp -a x d; mv e y; cp -a y e",
		"--theirs d --ours e", "echo 2 > d/f", false,
	}, {
		"some of it",
		"echo 1 | tee a b > c", "echo 2 | tee a b > c", "echo 3 | tee a > b",
		"--theirs a -- a", "echo 2 > a", true,
	},
}

// TestResolve: conflicts that were decided are committed so, all at once.
func TestResolve(t *testing.T) {
	for _, p := range resolutions {
		t.Run(p.name, func(t *testing.T) {
			asEach(t, func(t *testing.T, r *rig) {
				n := makeRig(t)
				if r.uid != n.uid {
					n.become(r.uid)
				}
				r.outside(p.base)
				n.outside(p.base + "\n" + p.neighbour + "\n" + p.want)
				r.sh("-q", "--keep", "-b", "mine", p.change).want(0)
				r.outside(p.neighbour)
				before := r.project()
				r.try("commit", "mine").want(125).says("conflict: ", "--theirs")
				r.same(before)
				doc := r.try(append([]string{"commit", "--json", "mine"}, strings.Fields(p.args)...)...).want(0).document()
				if len(doc.Resolved) == 0 {
					t.Error("the document names no decision")
				}
				want, got := n.project(), r.project()
				want.timeless()
				got.timeless()
				if diff := want.differs(got); diff != "" {
					t.Fatalf("native, then branch:%s", diff)
				}
				if _, there := r.branches()["mine"]; there != p.stays {
					t.Errorf("the branch is there: %v", there)
				}
				if p.stays {
					r.try("abort", "mine").want(0)
				}
				r.try("--abort", "-q", "true").want(0)
				r.clean()
			})
		})
	}
}

// TestResolveUndecided: as long as one conflict is undecided nothing is written,
// not even what was decided, and all are named with both sides.
func TestResolveUndecided(t *testing.T) {
	r := newRig(t)
	r.outside("for f in a b c; do " + lines + " > $f; done; printf '\\0' > bin; echo 1 | tee gone > new")
	r.sh("-q", "--keep", "-b", "mine", "sed -i s/3/three/ a b c; echo 22 > bin; rm gone").want(0)
	r.outside("for f in a b c; do echo 21 >> $f; done; printf '\\0\\0' > bin; echo 3 > gone; touch -d 2001-02-03 b")
	before, layer := r.project(), r.try("changes", "--diff", "mine").want(0).stdout
	r.try("commit", "mine", "--merge", "a", "--ours", "c").want(125).says(
		"/b: changed in the base since", "base then: file, 51 B", "base now:  file, 54 B, 2001-02-03", "branch:    modified, file, 5", "branch:    deleted, not there")
	r.try("commit", "mine", "--theirs", "a", "--merge", ".").want(125).says("/bin: changed", "cannot be merged: not text", "/gone: ", "not two files")
	r.same(before)
	if now := r.try("changes", "--diff", "mine").want(0).stdout; now != layer {
		t.Errorf("the branch is now\n%s", now)
	}
	r.try("abort", "mine").want(0)
	r.clean()
}

// TestMergeClash: lines that both sides changed end in the branch, between
// git's markers; the editor resolves them, and then all is committed.
func TestMergeClash(t *testing.T) {
	asEach(t, func(t *testing.T, r *rig) {
		r.outside("mkdir d; " + lines + " > d/a; " + lines + " > b; chmod 0444 d/a")
		r.sh("-q", "--keep", "-b", "mine", "chmod u+w d/a; sed -i s/^3$/three/ d/a b; chmod 0444 d/a; chmod 0555 d").want(0)
		r.outside("chmod u+w d/a; sed -i s/^3$/drei/ d/a; chmod 0444 d/a; sed -i s/^9$/neun/ b")
		before := r.project()
		r.try("commit", "mine", "--merge", ".").want(125).says("the same lines", "d/a", "--edit")
		r.same(before)
		diff := r.try("changes", "--diff", "mine").want(0).stdout
		for _, line := range []string{"+<<<<<<< base", " drei", "+=======", "+three", "+>>>>>>> mine"} {
			if !strings.Contains(diff, "\n"+line+"\n") {
				t.Errorf("no line %q in\n%s", line, diff)
			}
		}
		r.try("commit", "mine").want(125).says("has conflict markers")
		r.try("commit", "mine", "--merge", ".").want(125).says("--edit")
		edit := func(script string) *outcome {
			cmd := r.program("commit", "mine", "--edit")
			cmd.Env = append(cmd.Env, "EDITOR="+script, "TMPDIR="+r.home)
			return r.finish(cmd)
		}
		edit("false").want(125).says("editor false")
		edit("true").want(125).says("the same lines")
		r.same(before)
		edit(`sed -i -e 's/^drei$/drei, three/' -e '/^[<=>]/d' -e '/^three$/d'`).want(0)
		if got := r.read("d/a"); !strings.Contains(got, "\n2\ndrei, three\n4\n") || strings.ContainsAny(got, "<=>") {
			t.Errorf("a holds %q", got)
		}
		if got := r.read("b"); !strings.Contains(got, "\nthree\n") || !strings.Contains(got, "\nneun\n") {
			t.Errorf("b holds %q", got)
		}
		if st, err := os.Stat(r.at("d/a")); err != nil || st.Mode().Perm() != 0o444 {
			t.Errorf("mode %v, %v", st.Mode(), err)
		}
		r.try("--abort", "-q", "true").want(0)
		r.clean()
	})
}

// TestMergeWithoutAncestor: what drifted while the session ran has no known
// ancestor. That is said, and a merge sets both beside one another.
func TestMergeWithoutAncestor(t *testing.T) {
	r := newRig(t)
	r.outside("printf '1\\n2\\n3\\n' > a")
	p := r.open("-q", "--keep", "-b", "mine", "sed -i s/3/three/ a\nWAIT")
	r.outside("sed -i s/1/eins/ a")
	p.end().want(0)
	before := r.project()
	r.try("commit", "mine").want(125).says("is not known")
	r.try("commit", "mine", "--merge", "a").want(125).says("the same lines")
	r.same(before)
	r.try("commit", "mine", "--theirs", "a").want(0) // as it is, markers and all
	if got := r.read("a"); !strings.Contains(got, "<<<<<<< base\n") {
		t.Errorf("a holds %q", got)
	}
}

// TestDecidedIsWhatWasSeen: what changes in the base after a decision is a new
// conflict, and nothing is committed (H11).
func TestDecidedIsWhatWasSeen(t *testing.T) {
	r := newRig(t)
	r.outside("echo 1 > a; " + lines + " > b")
	r.sh("-q", "--keep", "-b", "mine", "echo 2 > a; sed -i s/^3$/three/ b").want(0)
	r.outside("echo 3 > a; sed -i s/^3$/drei/ b")
	cmd := r.program("commit", "mine", "--theirs", "a", "--merge", "b", "--edit")
	cmd.Env = append(cmd.Env, `EDITOR=f() { sed -i '/^[<=>]/d' "$1"; echo 4 > a; }; f`)
	r.finish(cmd).want(125).says("/a: ")
	r.wantFile("a", "4\n")
	if got := r.read("b"); strings.Contains(got, "three") {
		t.Errorf("b holds %q", got)
	}
	// The merge is done, and only the new conflict is left.
	doc := r.try("commit", "--json", "mine").want(125).document()
	if got := doc.conflicts(); len(got) != 1 || !got[r.at("a")] {
		t.Errorf("conflicts %v, want a alone", got)
	}
	r.try("commit", "mine", "--theirs", "a").want(0)
	r.wantFile("a", "2\n")
	r.try("--abort", "-q", "true").want(0)
	r.clean()
}

// TestResolveCommitted: what another branch has committed can be decided about,
// too, and what yields is never asked about.
func TestResolveCommitted(t *testing.T) {
	r := newRig(t)
	r.outside("echo 1 > a; mkdir -p node_modules/.cache; echo 1 > node_modules/.cache/x")
	r.sh("-q", "--keep", "-b", "mine", "echo 2 > a; echo 2 > node_modules/.cache/x").want(0)
	r.sh("-q", "-y", "echo 3 > a; echo 3 > node_modules/.cache/x").want(0)
	r.try("commit", "mine").want(125).says("conflict: ", "/a: ")
	r.try("commit", "mine", "--theirs", "a").want(0)
	r.wantFile("a", "2\n")
	r.wantFile("node_modules/.cache/x", "3\n")
	r.try("--abort", "-q", "true").want(0)
	r.clean()
}

// TestResolveInterrupted: a branch whose supervisor died is resolved as well.
func TestResolveInterrupted(t *testing.T) {
	r := newRig(t)
	r.outside("echo 1 | tee a b > c")
	p, _ := r.underReaper(nil, binary, "-y", "-b", "mine", "--", "/bin/sh", "-euc", "echo 2 | tee a b > c; echo ready >&3; exec sleep 1000")
	p.untilReady()
	r.must(unix.Kill(p.pid, unix.SIGKILL))
	p.wait().want(137)
	r.outside("echo 3 | tee a > b")
	r.try("commit", "mine", "--ours", "a", "--skip", "b").want(0)
	r.wantFile("a", "3\n")
	r.wantFile("b", "3\n")
	r.wantFile("c", "2\n")
	r.try("commit", "mine", "--theirs", "b").want(0)
	r.wantFile("b", "2\n")
	r.try("--abort", "-q", "true").want(0)
	r.clean()
}

// TestMergeCrash: SIGKILL while merged texts are put into the branch: the base
// is untouched, and merging again gives what one merge gives.
func TestMergeCrash(t *testing.T) {
	r := newRig(t)
	points := 0
	for n := 1; ; n++ {
		r.outside("rm -f a b; " + lines + " > a; " + lines + " > b")
		r.sh("-q", "--keep", "-b", "mine", "sed -i s/^3$/three/ a b").want(0)
		r.outside("sed -i s/^18$/eighteen/ a b")
		before := r.project()
		cmd := r.program("commit", "mine", "--merge", ".")
		cmd.Env = append(cmd.Env, fmt.Sprintf("TRY_TEST_CRASH=rewrite:%d", n))
		o := r.finish(cmd)
		if o.code == 0 {
			break
		}
		o.want(128 + int(unix.SIGKILL))
		points++
		r.same(before)
		r.try("commit", "mine", "--merge", ".").want(0)
		for _, name := range []string{"a", "b"} {
			if got := r.read(name); !strings.Contains(got, "\nthree\n") || !strings.Contains(got, "\neighteen\n") || strings.Contains(got, "<") {
				t.Fatalf("after %d: %s holds %q", n, name, got)
			}
		}
	}
	t.Logf("%d points", points)
	if points < 3 {
		t.Error("too few")
	}
	r.try("--abort", "-q", "true").want(0)
	r.clean()
}

// TestAncestorsKept: of texts only, and not of large ones.
func TestAncestorsKept(t *testing.T) {
	r := newRig(t)
	r.outside("echo 1 > text; printf 'a\\0b' > bin; head -c 1048577 /dev/zero | tr '\\0' x > large; echo 1 > gone")
	r.sh("-q", "--keep", "-b", "mine", "echo 2 | tee text bin large new > /dev/null; rm gone").want(0)
	var kept []string
	entries, err := os.ReadDir(strings.TrimSuffix(r.meta(), "meta") + "was")
	r.must(err)
	for _, e := range entries {
		kept = append(kept, e.Name())
	}
	if len(kept) != 1 || !slices.IsSorted(kept) {
		t.Errorf("kept are %q, want one", kept)
	}
	r.try("abort", "mine").want(0)
	r.clean()
}
