package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/supervisor"
)

func TestSummary(t *testing.T) {
	t.Setenv("HOME", "/home/u") // not parallel: the process has one
	for _, how := range []string{"auto", "full"} {
		var b bytes.Buffer
		summarize(&b, sample(), style{summary: how})
		aftermath(&b, sample())
		golden(t, "summary_"+how+".txt", b.Bytes())
	}
	var b bytes.Buffer
	summarize(&b, sample(), style{color: true})
	golden(t, "summary_color.txt", b.Bytes())
}

// planOf makes a result of one root.
func planOf(list ...changes.Change) *supervisor.Result {
	return &supervisor.Result{
		Branch: "b", Dir: "/r",
		Plan: &changes.Plan{Roots: []changes.RootPlan{{Root: changes.Root{Path: "/r"}, Changes: list}}},
	}
}

// A large new directory is one line with counts; what must not be overlooked
// in it is listed all the same.
func TestSummaryFoldsButHidesNothing(t *testing.T) {
	t.Parallel()
	list := []changes.Change{changed(changes.Added, "node_modules", dir, 0)}
	for i := range 10_000 {
		list = append(list, changed(changes.Added, fmt.Sprintf("node_modules/f%05d", i), file, 100))
	}
	out := changed(changes.Added, "node_modules/out", unix.S_IFLNK|0o777, 1)
	out.Target = "../../etc"
	in := changed(changes.Added, "node_modules/in", unix.S_IFLNK|0o777, 1)
	in.Target = "../x"
	list = append(list,
		changed(changes.Added, "node_modules/suid", unix.S_IFREG|0o4755, 1),
		changed(changes.Added, "node_modules/sgid", unix.S_IFREG|0o2755, 1),
		changed(changes.Added, "node_modules/dev", unix.S_IFCHR|0o666, 0),
		changed(changes.Added, "node_modules/F00001", file, 1),
		changed(changes.Added, "node_modules/pаypal", file, 1),
		changed(changes.Added, "node_modules/.hidden", file, 1),
		changed(changes.Added, "node_modules/lib/.git/hooks/post-checkout", unix.S_IFREG|0o755, 1),
		changed(changes.Added, "node_modules/lib/.git/hooks/pre-push.sample", unix.S_IFREG|0o755, 1),
		changed(changes.Added, "node_modules/ping", unix.S_IFREG|0o755, 1),
		changed(changes.Added, "node_modules/.envrc", file, 1),
		changed(changes.Added, "node_modules/.try.toml", file, 1),
		out, in,
		changed(changes.Added, "node_modules-2", file, 1))
	var b bytes.Buffer
	r := planOf(list...)
	r.Marked = map[string]string{
		"/r/node_modules/ping": "capabilities", "/r/node_modules/.envrc": "the policy asks about it", "/r/node_modules/.try.toml": "the policy forbids it",
	}
	summarize(&b, r, style{})
	got := b.String()
	want := `try: changes in branch b
/r
  A node_modules/  10,010 files, 2 links, 1 other, 5 executable, 3 hidden, 1.0 MB
  A node_modules/.envrc  (the policy asks about it)
  A node_modules/.try.toml  (the policy forbids it)
  A node_modules/dev  (device)
  A node_modules/f00001  (differs from node_modules/F00001 in case only)
  A node_modules/lib/.git/hooks/post-checkout  (git runs it)
  A node_modules/out -> ../../etc  (leads out of /r)
  A node_modules/ping  (capabilities)
  A node_modules/pаypal  (mixes alphabets that look alike)
  A node_modules/sgid  (set-group-ID)
  A node_modules/suid  (set-user-ID)
  A node_modules-2
10,015 added, 1.0 MB
`
	if got != want {
		t.Errorf("summary:\n%swant\n%s", got, want)
	}
}

// What is elsewhere than the working directory, and little, is listed one by
// one.
func TestSummaryListsWhatIsElsewhere(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{fewElsewhere: fewElsewhere, fewElsewhere + 1: 1} {
		list := []changes.Change{changed(changes.Added, "d", dir, 0)}
		for i := range n - 1 {
			list = append(list, changed(changes.Added, fmt.Sprintf("d/%02d", i), file, 1))
		}
		var b bytes.Buffer
		r := planOf(list...)
		r.Dir = "/elsewhere"
		summarize(&b, r, style{})
		if got := strings.Count(b.String(), "\n  A "); got != want {
			t.Errorf("%d changes elsewhere have %d lines, want %d", n, got, want)
		}
		b.Reset()
		r.Dir = "/r/sub"
		summarize(&b, r, style{})
		if got := strings.Count(b.String(), "\n  A "); got != 1 {
			t.Errorf("%d changes here have %d lines, want 1", n, got)
		}
	}
}

// Deletions are never left out, however many lines there are.
func TestSummaryShowsDeletions(t *testing.T) {
	t.Parallel()
	var list []changes.Change
	for i := range 300 {
		kind := changes.Modified
		if i >= 200 {
			kind = changes.Deleted
		}
		list = append(list, changed(kind, fmt.Sprintf("f%03d", i), file, 1))
	}
	var b bytes.Buffer
	summarize(&b, planOf(list...), style{})
	got := b.String()
	if n := strings.Count(got, "\n  D "); n != 100 {
		t.Errorf("%d of 100 deletions shown", n)
	}
	if n := strings.Count(got, "\n  M "); n != linesAbove {
		t.Errorf("%d modifications shown, want %d", n, linesAbove)
	}
	if !strings.Contains(got, "… and 100 more") || !strings.HasSuffix(got, "\n200 modified, 100 deleted, 200 B\n") {
		t.Errorf("summary ends in %q", got[len(got)-200:])
	}
	b.Reset()
	summarize(&b, planOf(list...), style{summary: "full"})
	if n := strings.Count(b.String(), "\n  "); n != 300 {
		t.Errorf("full summary has %d lines, want 300", n)
	}
}

// A directory that was removed is one line that says how much went with it.
func TestSummaryFoldsRemovedDirectories(t *testing.T) {
	t.Parallel()
	list := []changes.Change{changed(changes.Deleted, "old", dir, 0)}
	for i := range foldAbove + 1 {
		list = append(list, changed(changes.Deleted, fmt.Sprintf("old/%d", i), file, 10))
	}
	var b bytes.Buffer
	summarize(&b, planOf(list...), style{})
	if want := "  D old/  10 files, 100 B\n"; !strings.Contains(b.String(), want) {
		t.Errorf("summary %q lacks %q", b.String(), want)
	}
	b.Reset()
	summarize(&b, planOf(list[:foldAbove+1]...), style{})
	if n := strings.Count(b.String(), "\n  D "); n != foldAbove+1 {
		t.Errorf("a directory of %d has %d lines", foldAbove, n)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 999_949: "999.9 kB", 999_950: "1.0 MB", 34_100_000: "34.1 MB", 5e12: "5.0 TB", 5e15: "5000.0 TB"} {
		if got := humanBytes(n); got != want {
			t.Errorf("humanBytes(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ a, b string }{{"a", "a/b"}, {"a/b", "a-b"}, {"a", "b"}, {"", "a"}} {
		if comparePaths(tt.a, tt.b) >= 0 || comparePaths(tt.b, tt.a) <= 0 {
			t.Errorf("comparePaths: %q must come before %q", tt.a, tt.b)
		}
	}
	for _, tt := range []struct {
		path, dir, want string
		ok              bool
	}{{"/a/b", "/a", "b", true}, {"/a", "/a", ".", true}, {"/ab", "/a", "", false}, {"/a", "/", "a", true}} {
		if got, ok := below(tt.path, tt.dir); ok != tt.ok || ok && got != tt.want {
			t.Errorf("below(%s, %s) = %q, %t, want %q, %t", tt.path, tt.dir, got, ok, tt.want, tt.ok)
		}
	}
}
