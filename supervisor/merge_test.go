package supervisor_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// mergers are branches that are merged into one, and what committing that does.
var mergers = []struct {
	name, base string
	changes    []string
	conflicts  string // the paths that are decided by args; none: it needs no decision
	args       string
	want       string // natively
}{
	{
		"apart, alike, and lines of one text",
		lines + " > a; echo 1 | tee b c > d; mkdir o", []string{
			"sed -i s/^3$/three/ a; echo 2 | tee b c; rm d; mkdir -p n/m; echo 2 > n/m/f; echo 2 > o/f",
			"sed -i s/^18$/eighteen/ a; echo 2 > c; rm d; mkdir -p n/m; echo 3 > n/m/g; echo 2 > o/g; ln -s x l; mkfifo p",
		}, "", "",
		"sed -i -e s/^3$/three/ -e s/^18$/eighteen/ a; echo 2 | tee b c; rm d; mkdir -p n/m; echo 2 > n/m/f; echo 3 > n/m/g; echo 2 | tee o/f > o/g; ln -s x l; mkfifo p",
	}, {
		"three",
		lines + " > a", []string{"sed -i s/^3$/three/ a; echo 1 > x", "sed -i s/^9$/nine/ a; echo 1 > y", "sed -i s/^18$/eighteen/ a; echo 1 > z"}, "", "",
		"sed -i -e s/^3$/three/ -e s/^9$/nine/ -e s/^18$/eighteen/ a; echo 1 | tee x y > z",
	}, {
		"deleted and changed",
		"echo 1 | tee a b c", []string{"rm a b c", "echo 2 | tee a b c"}, "a b c", "--ours a --theirs b --skip c",
		"rm a; echo 2 > b",
	}, {
		"made on both sides",
		":", []string{"echo 1 | tee a b c; mkdir d; echo 1 > d/f", "echo 2 | tee a b c; mkdir d; echo 2 > d/f"}, "a b c d/f", "--ours=a --theirs d --skip .",
		"echo 1 > a; mkdir d; echo 2 > d/f",
	}, {
		"a directory removed, and something made in it: removed",
		"mkdir -p d/e; echo 1 | tee d/a > d/e/b", []string{"rm -r d; echo 2 > k", "echo 3 > d/e/new; echo 3 > j"}, "d/e", "--ours d",
		"rm -r d; echo 2 > k; echo 3 > j",
	}, {
		"kept",
		"mkdir -p d/e; echo 1 | tee d/a > d/e/b", []string{"rm -r d; echo 2 > k", "echo 3 > d/e/new; echo 3 > j"}, "d/e", "--theirs d",
		"rm d/a; echo 3 > d/e/new; echo 2 > k; echo 3 > j",
	}, {
		"the other way round",
		"mkdir -p d/e; echo 1 | tee d/a > d/e/b", []string{"echo 3 > d/e/new; echo 3 > j", "rm -r d; echo 2 > k"}, "d/e", "--theirs d",
		"rm -r d; echo 2 > k; echo 3 > j",
	}, {
		"a directory removed, and a file in it changed",
		"mkdir d; echo 1 | tee d/a > d/b", []string{"rm -r d; echo 2 > k", "echo 3 > d/b"}, "d/b", "--theirs d/b",
		"rm d/a; echo 3 > d/b; echo 2 > k",
	}, {
		"a directory made anew, and changes in it",
		"mkdir -p d/e; echo 1 | tee d/a d/b d/c > d/e/f", []string{"rm -r d; mkdir d; echo 2 > d/a; echo 2 > d/n; echo 1 > d/c", "rm d/b d/c; echo 3 > d/m"}, "", "",
		"rm -r d/b d/c d/e; echo 2 > d/a; echo 2 > d/n; echo 3 > d/m",
	}, {
		"types",
		"echo 1 | tee a b c; mkdir d", []string{"rm a; mkdir a; echo 2 > a/f; rm b; ln -s x b; rmdir d; echo 2 > d", "echo 3 | tee a b; mkdir d/e"}, "a b d", "--ours a --theirs b --theirs d",
		"rm a; mkdir a; echo 2 > a/f; echo 3 > b; mkdir d/e",
	}, {
		"metadata",
		"mkdir d e; echo 1 | tee f d/g", []string{"chmod 700 d; chmod 711 e; chmod 600 f; touch d/g", "chmod 700 d; chmod 755 f; echo 2 > d/g; setfattr -n user.k -v v e"}, "e f", "--theirs e --ours f",
		"chmod 700 d; setfattr -n user.k -v v e; chmod 600 f; echo 2 > d/g",
	}, {
		"closed directories",
		"mkdir -p r/s; echo 1 | tee r/a > r/s/b; chmod 0555 r r/s", []string{
			"chmod u+w r; echo 2 > r/a; mkdir z; echo 1 > z/a; chmod 0555 r z", "chmod u+w r/s; echo 3 > r/s/b; mkdir z; echo 1 > z/b; chmod 0555 r/s z",
		}, "", "",
		"chmod u+w r r/s; echo 2 > r/a; echo 3 > r/s/b; mkdir z; echo 1 | tee z/a > z/b; chmod 0555 z r/s r",
	},
}

// TestMerge: the branch that others are merged into does what they do, and they
// stay as they are.
func TestMerge(t *testing.T) {
	for _, p := range mergers {
		t.Run(p.name, func(t *testing.T) {
			asEach(t, func(t *testing.T, r *rig) {
				n := makeRig(t)
				if r.uid != n.uid {
					n.become(r.uid)
				}
				r.outside(p.base + fixed)
				n.outside(p.base + fixed + "\n" + p.want)
				var names, were []string
				for i, change := range p.changes {
					name := fmt.Sprintf("b%d", i+1)
					r.sh("-q", "--keep", "-b", name, change).want(0)
					names, were = append(names, name), append(were, r.try("changes", name).want(0).stdout)
				}
				args := append(append([]string{"merge"}, names...), "--into", "all")
				before := r.project()
				if p.conflicts != "" {
					o := r.try(args...).want(125)
					for path := range strings.FieldsSeq(p.conflicts) {
						o.says("conflict: " + r.at(path) + ": ")
					}
					if got := strings.Count(o.stderr, "conflict: "); got != len(strings.Fields(p.conflicts)) {
						t.Errorf("%d conflicts:\n%s", got, o.stderr)
					}
				}
				r.try(append(args, strings.Fields(p.args)...)...).want(0)
				r.same(before)
				for i, name := range names {
					if now := r.try("changes", name).want(0).stdout; now != were[i] {
						t.Errorf("%s is now\n%s", name, now)
					}
				}
				r.try("commit", "all").want(0)
				want, got := n.project(), r.project()
				want.timeless()
				got.timeless()
				if diff := want.differs(got); diff != "" {
					t.Fatalf("native, then merged:%s", diff)
				}
				for _, name := range names {
					r.try("abort", name).want(0)
				}
				r.try("--abort", "-q", "true").want(0)
				r.clean()
			})
		})
	}
}

// TestMergeSharesNothing: a file that was committed by way of a merge is the
// base's alone: writing to it in place leaves the branch that it came from.
func TestMergeSharesNothing(t *testing.T) {
	r := newRig(t)
	r.outside("echo 1 > k")
	r.sh("-q", "--keep", "-b", "a", "echo mine > new; ln new twin; echo 2 > k").want(0)
	r.sh("-q", "--keep", "-b", "b", "echo 1 > other").want(0)
	r.try("merge", "a", "b", "--into", "both").want(0)
	r.try("commit", "both").want(0)
	r.outside("test new -ef twin; echo later >> new; echo later >> k")
	if diff := r.try("changes", "--diff", "a").want(0).stdout; !strings.Contains(diff, " mine\n-later\n") {
		t.Errorf("a changes\n%s", diff)
	}
}

// TestMergeRefused: what cannot be merged makes no branch.
func TestMergeRefused(t *testing.T) {
	r := newRig(t)
	r.outside(lines + " > a; mkdir sub")
	r.sh("-q", "--keep", "-b", "a", "sed -i s/^3$/three/ a").want(0)
	r.sh("-q", "--keep", "-b", "b", "sed -i s/^3$/drei/ a").want(0)
	cmd := r.shell("-q", "--keep", "-b", "elsewhere", "echo 1 > x")
	cmd.Dir = r.at("sub")
	r.finish(cmd).want(0)
	r.try("merge", "a", "--into", "n").want(2)
	r.try("merge", "a", "b").want(2)
	r.try("merge", "a", "nobody", "--into", "n").want(1)
	r.try("merge", "a", "a", "--into", "n").want(125).says("named twice")
	r.try("merge", "a", "elsewhere", "--into", "n").want(125).says("do not cover the same")
	r.try("merge", "a", "b", "--into", "b", "--ours", ".").want(125).says("b: ")
	r.try("merge", "a", "b", "--into", "../n", "--ours", ".").want(125)
	r.try("merge", "a", "b", "--into", "n").want(125).says("conflict: ", "/a: a and b both changed it", "try changes a --against b")
	if list := r.branches(); len(list) != 3 {
		t.Errorf("branches are %v", list)
	}
	// With markers, which a commit does not take.
	r.try("merge", "a", "b", "--into", "n", "--merge", "a").want(0)
	r.try("commit", "n").want(125).says("has conflict markers")
	cmd = r.program("commit", "n", "--edit")
	cmd.Env = append(cmd.Env, "EDITOR=sed -i '/^[<=>]/d'")
	r.finish(cmd).want(0)
	if got := r.read("a"); !strings.Contains(got, "\nthree\ndrei\n") {
		t.Errorf("a holds %q", got)
	}
}

// TestMergeDrift: what the base did since any of the branches was made is a
// conflict of the merged one.
func TestMergeDrift(t *testing.T) {
	r := newRig(t)
	r.outside("echo 1 | tee a b c > d")
	r.sh("-q", "--keep", "-b", "a", "echo 2 | tee a > b").want(0)
	r.outside("echo 3 > a")
	r.sh("-q", "--keep", "-b", "b", "echo 2 > c; echo 2 > a").want(0)
	r.outside("echo 3 > c")
	before := r.project()
	r.try("merge", "a", "b", "--into", "n").want(0)
	doc := r.try("commit", "--json", "n").want(125).document()
	if got := doc.conflicts(); len(got) != 2 || !got[r.at("a")] || !got[r.at("c")] {
		t.Errorf("conflicts %v, want a and c", got)
	}
	r.same(before)
	r.try("commit", "n", "--theirs", "a", "--ours", "c").want(0)
	for name, want := range map[string]string{"a": "2\n", "b": "2\n", "c": "3\n"} {
		r.wantFile(name, want)
	}
}

// TestMergeCrashed: a merge that was killed leaves no branch, and the others as
// they are.
func TestMergeCrashed(t *testing.T) {
	r := newRig(t)
	r.outside("mkdir d; echo 1 | tee d/a d/b > d/c")
	r.sh("-q", "--keep", "-b", "a", "echo 2 > d/a; mkdir n; echo 2 > n/f").want(0)
	r.sh("-q", "--keep", "-b", "b", "echo 2 > d/b; rm d/c; mkdir n; echo 2 > n/g").want(0)
	before, points := r.project(), 0
	for n := 1; ; n += 3 {
		cmd := r.program("merge", "a", "b", "--into", "n")
		cmd.Env = append(cmd.Env, fmt.Sprintf("TRY_TEST_CRASH=combine:%d", n))
		o := r.finish(cmd)
		if o.code == 0 {
			break
		}
		o.want(137)
		points++
		if list := r.branches(); len(list) != 2 {
			t.Fatalf("after %d: branches are %v", n, list)
		}
		r.same(before)
		r.try("commit", "n").want(1)
	}
	t.Logf("%d points", points)
	if points < 5 {
		t.Error("too few")
	}
	r.try("commit", "n").want(0)
	r.outside("cat d/a d/b n/f n/g; test ! -e d/c")
	r.try("abort", "a").want(0)
	r.try("abort", "b").want(0)
	r.try("--abort", "-q", "true").want(0)
	r.clean()
}

// TestMergeModel: a random branch, cut by its changes in two that are merged
// again, does what it did.
func TestMergeModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	asEach(t, func(t *testing.T, r *rig) {
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 2))
		n := makeRig(t)
		if r.uid != os.Getuid() {
			n.become(r.uid)
		}
		base := script(rng, 60, r.uid == 0, r.uid) + fixed
		r.outside(base)
		n.outside(base)
		for round := range 4 {
			s := script(rng, 20, r.uid == 0, r.uid) + fixed
			// Both do the same, and each something more.
			for i, more := range []string{"mkdir -p x; echo 1 > x/a", "mkdir -p x y; echo 2 > y/a; echo 2 > x/b"} {
				r.sh("--keep", "-q", "-b", fmt.Sprintf("b%d", i), s+"\n"+fmt.Sprintf(strings.ReplaceAll(more, "x", "x%[1]d"), round)+fixed).want(0)
			}
			n.outside(s + "\n" + fmt.Sprintf("mkdir -p x%[1]d y; echo 1 > x%[1]d/a; echo 2 > y/a; echo 2 > x%[1]d/b", round) + fixed)
			r.try("merge", "b0", "b1", "--into", "both", "--ours", ".").want(0)
			r.try("commit", "-q", "both").want(0)
			r.try("abort", "b0").want(0)
			r.try("abort", "b1").want(0)
			want, got := n.project(), r.project()
			want.timeless()
			got.timeless()
			if diff := want.differs(got); diff != "" {
				t.Fatalf("round %d (native, then merged):%s\nscript:\n%s", round, diff, s)
			}
		}
		if names := r.branches(); len(names) != 0 {
			t.Errorf("left are %v", slices.Sorted(keys(names)))
		}
	})
}

func keys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
