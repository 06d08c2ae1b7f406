package policy

import (
	"bytes"
	"crypto/sha1"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// repository is a git repository in a temporary directory.
type repository struct {
	t   *testing.T
	dir string
}

func newRepository(t *testing.T, args ...string) *repository {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	r := &repository{t, t.TempDir()}
	r.git(append([]string{"init", "-q"}, args...)...)
	for _, name := range []string{"a", "dir/b", "dir/sub/c", "dir/sub/cc", "z"} {
		r.write(name, name)
	}
	r.git("add", ".")
	return r
}

func (r *repository) git(args ...string) {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", r.dir, "-c", "user.name=t", "-c", "user.email=t@t"}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+r.dir, "GIT_CONFIG_NOSYSTEM=1", "XDG_CONFIG_HOME="+r.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

func (r *repository) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// restat changes the stat data that the index holds, and nothing else.
func (r *repository) restat() {
	r.t.Helper()
	old := time.Unix(1e9, 0)
	for _, name := range []string{"a", "dir/sub/c"} {
		if err := os.Chtimes(filepath.Join(r.dir, name), old, old); err != nil {
			r.t.Fatal(err)
		}
	}
	r.git("update-index", "-q", "--refresh")
}

func (r *repository) index() []byte {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, ".git/index"))
	if err != nil {
		r.t.Fatal(err)
	}
	return data
}

func TestIndexThatDiffersInStatDataOnly(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2", "3", "4"} {
		for _, format := range []string{"sha1", "sha256"} {
			r := newRepository(t, "--object-format="+format)
			if version == "3" { // only with an extended flag is it version 3
				r.git("update-index", "--skip-worktree", "z")
			} else {
				r.git("update-index", "--index-version", version)
			}
			before := r.index()
			if string(rune('0'+before[7])) != version {
				t.Fatalf("index of version %d, want %s", before[7], version)
			}
			r.restat()
			after := r.index()
			if bytes.Equal(before, after) {
				t.Fatal("the index did not change at all")
			}
			if !SameIndex(before, after) {
				t.Errorf("version %s, %s: SameIndex after a refresh = false", version, format)
			}
		}
	}
}

func TestIndexThatDiffers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
	}{
		{"content", []string{"add", "a"}},
		{"new entry", []string{"add", "n"}},
		{"removed entry", []string{"rm", "-q", "--cached", "z"}},
		{"mode", []string{"update-index", "--chmod=+x", "z"}},
		{"assume-valid", []string{"update-index", "--assume-unchanged", "z"}},
		{"skip-worktree", []string{"update-index", "--skip-worktree", "z"}},
		{"intent-to-add", []string{"add", "-N", "n"}},
		{"split index", []string{"update-index", "--split-index"}},
	} {
		r := newRepository(t)
		before := r.index()
		r.write("a", "A")
		r.write("n", "n")
		r.git(c.args...)
		if SameIndex(before, r.index()) || SameIndex(r.index(), before) {
			t.Errorf("%s: SameIndex = true", c.name)
		}
	}
}

func TestIndexCachesDoNotCount(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	before := r.index()
	r.git("commit", "-q", "-m", "x") // writes the TREE extension
	after := r.index()
	if !bytes.Contains(after, []byte("TREE")) || !SameIndex(before, after) {
		t.Errorf("SameIndex with a tree cache = %v", SameIndex(before, after))
	}
	r.git("update-index", "--index-version", "4")
	if !SameIndex(after, r.index()) {
		t.Error("SameIndex of versions 2 and 4 = false")
	}
}

// FuzzSameIndex: nothing panics, an index that can be read equals itself, and
// one byte more or less makes it unreadable.
func FuzzSameIndex(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00"), []byte{})
	stat := make([]byte, statBytes+4+ownerBytes+sha1.Size)
	f.Add(slices.Concat([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01"), stat, []byte("\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x00\x00")), []byte{})
	f.Add(slices.Concat([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x02"), stat, []byte("\x40\x02\x40\x00\x00ab\x00"), stat, []byte("\x00\x02\x01c\x00TREE\x00\x00\x00\x00")), []byte{})
	f.Fuzz(func(t *testing.T, body, other []byte) {
		data := sealed(body)
		if x, err := openIndex(data); err == nil {
			for range x.count {
				if err = x.next(); err != nil {
					break
				}
			}
			if err == nil {
				_, err = x.extensions()
			}
			if got := SameIndex(data, data); got != (err == nil) {
				t.Errorf("SameIndex(x, x) = %v, reading it: %v", got, err)
			}
		}
		if SameIndex(data, append(data, 0)) || SameIndex(data, body) {
			t.Error("an index without a right checksum is understood")
		}
		_ = SameIndex(sealed(other), data)
		_ = SameIndex(body, other)
	})
}

func TestEvaluateYieldsTheIndex(t *testing.T) {
	t.Parallel()
	p := testPolicy(t, nil, false)
	empty := string(sealed([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00")))
	in := Input{Roots: testRoots, Changes: changes("modified .git/index", "modified sub/.git/index", "added new/.git/index"),
		Base: tree{"/home/u/p/.git/index": empty + "=>" + empty, "/home/u/p/sub/.git/index": empty + "=>other"}}
	o := p.Evaluate(in)
	if len(o.Yields) != 1 || o.Yields[0] != 0 {
		t.Errorf("yields = %v, want the one that differs in stat data only", o.Yields)
	}
}

// sealed appends the checksum that makes a body worth parsing.
func sealed(body []byte) []byte {
	sum := sha1.Sum(body)
	return append(bytes.Clone(body), sum[:]...)
}
