package supervisor_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// partials are commits of some of the changes of a branch: what natively would
// be done by first, and then by rest.
var partials = []struct {
	name, base, change string
	args               string // of try commit mine
	first, rest        string // natively
}{
	{
		"files",
		"echo old | tee a b > c", "echo new > a; echo new > b; rm c; echo new > d",
		"-- a c", "echo new > a; rm c", "echo new > b; echo new > d",
	}, {
		"exclude",
		"echo old | tee a b > c", "echo new > a; echo new > b; rm c; echo new > d",
		"--exclude b --exclude d", "echo new > a; rm c", "echo new > b; echo new > d",
	}, {
		"a pattern at any depth, but for one",
		"mkdir -p s/t; echo old | tee x.c s/y.c > s/t/z.c", "for f in x.c s/y.c s/t/z.c; do echo new > $f; done; echo new > s/n.h",
		"--exclude s/t -- *.c", "echo new > x.c; echo new > s/y.c", "echo new > s/t/z.c; echo new > s/n.h",
	}, {
		"new directories come along",
		"", "mkdir -p n/m/o n/p; echo 1 > n/m/f; echo 2 > n/m/g; echo 3 > n/m/o/h; chmod 0750 n/m; chmod 0555 n/p",
		"-- n/m/f", "mkdir -p n/m; echo 1 > n/m/f; chmod 0750 n/m", "mkdir -p n/m/o n/p; echo 2 > n/m/g; echo 3 > n/m/o/h; chmod 0555 n/p",
	}, {
		"some of a directory that was made anew",
		"mkdir -p d/s d/t d/same; echo 1 | tee d/a d/b d/s/x d/s/y d/t/z > d/same/f", `
			rm -r d; mkdir -p d/s d/same; echo 2 > d/b; echo 2 > d/c; echo 2 > d/s/y; echo 1 > d/same/f`,
		"-- d/a d/c d/s/x", "rm d/a d/s/x; echo 2 > d/c", "rm -r d/t; echo 2 > d/b; echo 2 > d/s/y",
	}, {
		"all of a directory that was made anew below one that was",
		"mkdir -p d/s; echo 1 | tee d/a d/s/x > d/s/y", "rm -r d; mkdir -p d/s; echo 2 > d/b; echo 2 > d/s/y; chmod 0700 d/s",
		"-- d/s", "rm -r d/s; mkdir d/s; echo 2 > d/s/y; chmod 0700 d/s", "rm d/a; echo 2 > d/b",
	}, {
		"all but that",
		"mkdir -p d/s; echo 1 | tee d/a d/s/x > d/s/y", "rm -r d; mkdir -p d/s; echo 2 > d/b; echo 2 > d/s/y",
		"--exclude d/s", "rm d/a; echo 2 > d/b", "rm d/s/x; echo 2 > d/s/y",
	}, {
		"some of what was deleted with its directory",
		"mkdir -p d/e/f; echo 1 | tee d/a d/e/b d/e/f/c > d/e/f/g", "rm -r d",
		"-- d/e/b d/e/f/c", "rm d/e/b d/e/f/c", "rm -r d",
	}, {
		"a deleted directory",
		"mkdir -p d/e; echo 1 | tee d/a > d/e/b; echo 1 > k", "rm -r d; echo 2 > k",
		"-- d/", "rm -r d", "echo 2 > k",
	}, {
		"types",
		"mkdir d e; echo 1 > d/f; echo 1 > t; echo 1 > u; ln -s x l", `
			rm -r d; echo 2 > d; rm t; mkdir t; echo 2 > t/a; echo 2 > t/b; rm l; mkfifo l; rm u; ln -s y u; rmdir e; ln -s z e`,
		"-- d t/a u", "rm -r d; echo 2 > d; rm t; mkdir t; echo 2 > t/a; rm u; ln -s y u", "echo 2 > t/b; rm l; mkfifo l; rmdir e; ln -s z e",
	}, {
		"what a file replaced",
		"mkdir d; echo 1 | tee d/f > d/g", "rm -r d; echo 2 > d",
		"-- d/f", "rm d/f", "rm -r d; echo 2 > d",
	}, {
		"metadata of directories",
		"mkdir -p d/e f; echo 1 | tee d/a > f/b", "chmod 0700 d; chmod 0711 f; echo 2 > d/a; echo 2 > f/b; setfattr -n user.k -v v d/e",
		"-- d/a f", "echo 2 > d/a; chmod 0711 f; echo 2 > f/b", "chmod 0700 d; setfattr -n user.k -v v d/e",
	}, {
		"closed directories",
		"mkdir -p r/s; echo 1 | tee r/a r/b > r/s/c; chmod 0555 r r/s",
		"chmod u+w r r/s; echo 2 > r/a; echo 2 > r/b; rm r/s/c; mkdir z; echo 2 | tee z/m > z/n; chmod 0444 z/m; chmod 0 z/n; chmod 0555 z r/s r",
		"-- r/a r/s/c z/m", "chmod u+w r r/s; echo 2 > r/a; rm r/s/c; mkdir z; echo 2 > z/m; chmod 0444 z/m; chmod 0555 z r/s r",
		"chmod u+rwx z r; echo 2 > r/b; echo 2 > z/n; chmod 0 z/n; chmod 0555 z r",
	}, {
		"links",
		"echo 1 > k", "echo 2 | tee a > p; ln a b; ln a c; ln p q; echo 2 > k",
		"-- a b k", "echo 2 > a; ln a b; echo 2 > k", "echo 2 | tee c > p; ln p q",
	}, {
		"names of a file of the base",
		"mkdir o; echo 1 > a; ln a o/b; echo 1 > c; ln c o/d; echo 1 > k; echo 1 > m", "echo 2 >> a; echo 2 >> o/d; ln k n; ln m o/m; echo 2 > x",
		"-- o/b n", "echo 2 >> a; ln k n", "echo 2 >> c; ln m o/m; echo 2 > x",
	}, {
		"names that are globs",
		"echo 1 > '*.c'; echo 1 > x.c", "echo 2 > '*.c'; echo 2 > x.c; echo 2 > 'a[b]'",
		`-- \*.c a\[b]`, "echo 2 > '*.c'; echo 2 > 'a[b]'", "echo 2 > x.c",
	},
}

// TestPartial: a commit of some of a branch's changes does just those, and the
// rest is what the branch holds then, no more and no less.
func TestPartial(t *testing.T) {
	for _, p := range partials {
		t.Run(p.name, func(t *testing.T) {
			asEach(t, func(t *testing.T, r *rig) {
				if onFuse() && p.name == "names of a file of the base" {
					t.Skip("behind fuse both names are changed, and after the touch at the end nothing says that they were one file")
				}
				n := makeRig(t)
				if r.uid != n.uid {
					n.become(r.uid)
				}
				args := append([]string{"commit", "--json", "mine"}, strings.Fields(p.args)...)
				base, change := p.base+fixed, p.change+fixed
				r.outside(base)
				r.sh("-q", "--keep", "-b", "mine", change).want(0)
				count := len(r.try("changes", "--json", "mine").want(0).document().Roots[0].Changes)
				n.outside(base + "\n" + p.first + fixed)
				doc := r.try(args...).want(0).document()
				if doc.Settled != "committed" || doc.Branch != "mine" || len(doc.Roots[0].Changes) >= count {
					t.Errorf("settled %q %q, %d changes of %d", doc.Settled, doc.Branch, len(doc.Roots[0].Changes), count)
				}
				want, got := n.project(), r.project()
				want.timeless()
				got.timeless()
				if diff := want.differs(got); diff != "" {
					t.Fatalf("after the part (native, then branch):%s", diff)
				}
				n.outside(p.rest + fixed)
				if left := r.try("changes", "--json", "mine").want(0).document().Roots[0].Changes; len(left) == 0 {
					t.Error("nothing is left")
				}
				r.try("commit", "mine").want(0)
				if diff := n.project().differs(r.project()); diff != "" {
					t.Fatalf("after the rest (native, then branch):%s", diff)
				}
				r.try("--abort", "-q", "true").want(0)
				r.clean()
			})
		})
	}
}

// TestPartialRefused: what cannot be parted, or is nothing, changes nothing.
func TestPartialRefused(t *testing.T) {
	r := newRig(t)
	r.outside("mkdir -p d/e; echo 1 | tee d/a d/e/b > k")
	r.sh("-q", "--keep", "-b", "mine", "rm -r d; echo 2 > k").want(0)
	before, changes := r.project(), r.try("changes", "mine").want(0).stdout
	r.try("commit", "mine", "--", "k", "nothing").want(1).says("nothing matches no change")
	r.try("commit", "mine", "--exclude", "nothing").want(1).says("nothing matches no change")
	r.try("commit", "mine", "--exclude", ".").want(125).says("no change of branch mine is chosen")
	r.try("commit", "mine", "--exclude", "d/e/b").want(125).says("d/e is removed as a whole", "d/e/b")
	r.try("commit", "mine", "--", "[").want(125).says("[")
	r.same(before)
	if now := r.try("changes", "mine").want(0).stdout; now != changes {
		t.Errorf("the branch has now\n%s", now)
	}
	r.try("commit", "mine", "--", ".").want(0)
	r.wantFile("k", "2\n")
	r.try("branches").want(0)
	r.clean()
}

// TestPartialDrift: a part conflicts only with what drifted in it, the rest with
// what drifted there, before and after, and never with the part itself.
func TestPartialDrift(t *testing.T) {
	asEach(t, func(t *testing.T, r *rig) {
		const base = "mkdir d g; echo 1 | tee a b d/x d/y g/x > g/y"
		const change = "echo 2 | tee a > b; rm -r d g; mkdir d; echo 2 > d/z"
		r.outside(base)
		r.sh("-q", "--keep", "-b", "mine", change).want(0)
		r.outside("echo 3 > b")
		r.try("commit", "mine", "--", "b").want(125).says("conflict: ", "/b: ")
		r.wantFile("b", "3\n")
		r.try("commit", "mine", "--", "a", "g/x", "d/x").want(0)
		r.wantFile("a", "2\n")
		r.wantFile("b", "3\n")
		doc := r.try("commit", "--json", "mine").want(125).document()
		if got := doc.conflicts(); len(got) != 1 || !got[r.at("b")] {
			t.Errorf("conflicts %v, want b alone", got)
		}
		r.outside("echo 3 > g/new") // which the rest would take away
		doc = r.try("commit", "--json", "mine", "--exclude", "b").want(125).document()
		if got := doc.conflicts(); !got[r.at("g/new")] || got[r.at("d")] || got[r.at("a")] {
			t.Errorf("conflicts %v, want g/new", got)
		}
		r.outside("rm g/new")
		r.try("abort", "mine").want(0)
		r.clean()
	})
}

// TestPartialTimes: a directory in which nothing of the branch changes any more is
// no change, whatever time it has inside.
func TestPartialTimes(t *testing.T) {
	asEach(t, func(t *testing.T, r *rig) {
		r.outside("mkdir -p d/e p/q; echo 1 | tee d/a d/b d/e/c p/a > p/q/b" + fixed)
		r.sh("-q", "--keep", "-b", "mine", "rm -r d; mkdir d; echo 2 > d/b; echo 2 > p/a; rm p/q/b; echo 2 > p/q/c").want(0)
		r.try("commit", "mine", "--", "d/a", "p/q/b").want(0)
		if got := r.try("changes", "mine").want(0).stdout; got != "M d/b\nD d/e/\nD d/e/c\nM p/a\nA p/q/c\n1 added, 2 modified, 2 deleted, 6 B\n" {
			t.Errorf("left is\n%s", got)
		}
		r.try("commit", "mine").want(0)
		r.try("--abort", "-q", "true").want(0)
		r.clean()
	})
}

// TestPartialPolicy: the policy judges what is chosen, and a part that it refuses
// leaves the branch as it was.
func TestPartialPolicy(t *testing.T) {
	r := newRig(t)
	r.outside("mkdir -p .git/hooks; echo ref > .git/HEAD; echo 1 > a")
	r.sh("-q", "--keep", "-b", "mine", "echo 2 > a; echo x > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit").want(0)
	r.try("commit", "mine", "--", ".git").want(125).says("--allow")
	if list := r.branches(); len(list) != 1 || list["mine"] != "kept" {
		t.Fatalf("branches are %v", list)
	}
	r.try("commit", "mine", "--", "a").want(0)
	r.wantFile("a", "2\n")
	r.try("commit", "mine", "--allow", "**/.git/hooks/**").want(0)
	r.try("--abort", "-q", "true").want(0)
	r.clean()
}

// TestPartialCrash: SIGKILL at every call of a partial commit: none of the part
// or all of it, and the rest is never lost.
func TestPartialCrash(t *testing.T) {
	t.Parallel()
	args := []string{"commit", "mine", "--", "keep", "gone", "fresh/deep", "swap/a/1", "meta/1"}
	whole := newCrashRig(t, crashBase, crashChange)
	whole.branch()
	whole.try(args...).want(0)
	part := whole.tree()
	for name, every := range map[string]int{"split": 5, "stage": 1, "journal": 1, "apply": 3, "seal": 2, "rest": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrashRig(t, crashBase, crashChange)
			c.branch()
			n, points := 1, 0
			for ; c.crash(fmt.Sprintf("%s:%d", name, n), args...); n += every {
				points++
				when := fmt.Sprintf("after %s:%d", name, n)
				c.try([]string{"recover", "branches"}[points%2]).want(0)
				if list := c.branches(); len(list) != 1 || list["mine"] != "kept" {
					t.Fatalf("%s: branches are %v", when, list)
				}
				got := c.tree()
				done := part.differs(got) == ""
				if diff := c.before.differs(got); diff != "" && !done {
					t.Fatalf("%s: neither the old tree nor that of the part:%s", when, diff)
				}
				if (name == "rest" || name == "split") && done != (name == "rest") {
					t.Fatalf("%s: done: %v", when, done)
				}
				if !done {
					c.try(args...).want(0)
				}
				c.try("commit", "mine").want(0)
				if !c.which(when) {
					t.Fatalf("%s: nothing was committed in the end", when)
				}
				c.try("--abort", "-q", "true").want(0)
				c.clean()
				c.branch()
			}
			t.Logf("%d points", points)
			if points == 0 && name != "stage" {
				t.Error("no point in it")
			}
		})
	}
}

// TestPartialModel: random changes, committed in random parts, are the changes
// committed at once, and none of a part is seen before it.
func TestPartialModel(t *testing.T) {
	const nothing = 1795299927041418803 // a part of which nothing is a change
	for _, seed := range []uint64{nothing, uint64(time.Now().UnixNano())} {
		asEach(t, func(t *testing.T, r *rig) { partialModel(t, r, seed) })
	}
}

func partialModel(t *testing.T, r *rig, seed uint64) {
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	n := makeRig(t)
	if r.uid != n.uid {
		n.become(r.uid)
	}
	base := script(rng, 80, r.uid == 0, r.uid) + fixed
	r.outside(base)
	n.outside(base)
	parts := 0
	for round := range 6 {
		s := script(rng, 40, r.uid == 0, r.uid) + fixed
		n.outside(s)
		r.sh("--keep", "-q", "-b", "mine", s).want(0)
		for tries := 0; tries < 8 && r.branches()["mine"] != ""; tries++ {
			roots := r.try("changes", "--json", "mine").want(0).document().Roots
			if len(roots) == 0 {
				break // what differs is no change to be committed
			}
			list := roots[0].Changes
			args, behind := []string{"commit", "--json", "mine"}, rng.IntN(2) == 0
			if behind {
				args = append(args, "--")
			}
			for range 1 + rng.IntN(3) {
				path := list[rng.IntN(len(list))].Path
				if !behind {
					args = append(args, "--exclude")
				}
				args = append(args, cmp.Or(path, "."))
			}
			o := r.try(args...)
			switch {
			case o.code == 0:
				parts++
			case o.code == 125 && strings.Contains(o.stderr, "is removed as a whole"),
				o.code == 125 && strings.Contains(o.stderr, "is chosen"):
			default:
				t.Fatalf("round %d: %q ended with %d: %s\nscript:\n%s", round, args, o.code, o.stderr, s)
			}
		}
		if r.branches()["mine"] != "" {
			r.try("commit", "-q", "mine").want(0)
		}
		if diff := n.project().differs(r.project()); diff != "" {
			t.Fatalf("round %d (native, then branch):%s\nscript:\n%s", round, diff, s)
		}
	}
	t.Logf("%d parts", parts)
	if parts == 0 {
		t.Error("no part was committed")
	}
	r.try("--abort", "-q", "true").want(0)
	r.clean()
}

// TestPartialUndo: a part is undone by itself; the rest still is what it was.
func TestPartialUndo(t *testing.T) {
	asEach(t, func(t *testing.T, r *rig) {
		r.outside("mkdir d; echo 1 | tee a b d/x > d/y" + fixed)
		r.sh("-q", "--keep", "-b", "mine", "echo 2 | tee a b; rm -r d; mkdir n; echo 2 | tee n/f > n/g").want(0)
		before := r.project()
		r.try("commit", "mine", "--", "a", "d/x", "n/f").want(0)
		r.wantFile("n/f", "2\n")
		r.try("undo").want(0)
		r.same(before)
		r.try("commit", "mine").want(125).says("/d/x: changed") // the rest would take it away, which nobody decided
		r.try("commit", "mine", "--theirs", "d/x").want(0)
		for name, want := range map[string]string{"a": "1\n", "b": "2\n", "n/g": "2\n"} {
			r.wantFile(name, want)
		}
		r.outside("test ! -e d && test ! -e n/f")
		r.try("--abort", "-q", "true").want(0)
		r.clean()
	})
}
