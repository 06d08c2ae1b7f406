package supervisor_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// session is a branch whose command, a shell, stops at each line WAIT of its
// script until it is let go.
type session struct {
	*running
	stdin io.WriteCloser
	ready *os.File
}

// open starts a script in a branch, and returns when it stops at its first
// WAIT.
func (r *rig) open(flagsAndScript ...string) *session {
	r.t.Helper()
	last := len(flagsAndScript) - 1
	script := strings.ReplaceAll(flagsAndScript[last], "WAIT", "echo ready >&3; read x || :")
	cmd := r.shell(append(flagsAndScript[:last:last], script)...)
	stdin, err := cmd.StdinPipe()
	r.must(err)
	ready, w, err := os.Pipe()
	r.must(err)
	r.t.Cleanup(func() { ready.Close() })
	cmd.ExtraFiles = []*os.File{w}
	s := &session{r.begin(cmd), stdin, ready}
	r.must(w.Close())
	s.stopped()
	return s
}

// stopped waits until the script stops at a WAIT.
func (s *session) stopped() {
	s.r.t.Helper()
	if _, err := io.ReadFull(s.ready, make([]byte, len("ready\n"))); err != nil {
		s.r.must(s.stdin.Close())
		o := s.wait()
		s.r.t.Fatalf("the script did not come to its WAIT: %v; %d, %s", err, o.code, o.stderr)
	}
}

// end lets the script go on to its end.
func (s *session) end() *outcome {
	s.r.t.Helper()
	s.r.must(s.stdin.Close())
	return s.wait()
}

// TestTwoAtOnce: the second commit conflicts only where paths overlap.
func TestTwoAtOnce(t *testing.T) {
	for _, c := range []struct {
		name, first, second string
		code                int
		conflicts           []string
	}{
		{"apart", "echo 1 > a", "echo 2 > b", 0, nil},
		{"apart in one directory", "echo 1 > d/a; rm d/x", "echo 2 > d/b; echo 2 > d/y", 0, nil},
		{"both make a directory", "mkdir logs; echo 1 > logs/a", "mkdir logs; echo 2 > logs/b", 0, nil},
		{"the same file", "echo 1 > f", "echo 2 > f; echo 2 > g", 125, []string{"f"}},
		{"both make it", "echo 1 > new", "echo 2 > new", 125, []string{"new"}},
		{"changed and deleted", "echo 1 > f", "rm f", 125, []string{"f"}},
		{"deleted and changed", "rm f", "echo 2 > f", 125, []string{"f"}},
		{"directory gone", "rm -r d", "echo 2 > d/x", 125, []string{"d"}},
		{"directory exchanged", "rm -r d; mkdir d; echo 1 > d/x", "echo 2 > d/y", 125, []string{"d"}},
		{"below what is deleted", "echo 1 > d/x", "rm -r d", 125, []string{"d/x"}},
		{"mode and content", "chmod 600 f", "echo 2 > f", 125, []string{"f"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			for _, name := range []string{"f", "g", "d/x", "d/y"} {
				r.write(name, "old\n")
			}
			one := r.open("-y", c.first+"\nWAIT")
			two := r.open("-y", "-b", "two", c.second+"\nWAIT")
			one.end().want(0)
			after := r.project()
			o := two.end().want(c.code)
			if c.code == 0 {
				r.clean()
				return
			}
			r.same(after)
			o.says(append(c.conflicts, "two")...)
			if got := r.branches(); got["two"] != "kept" {
				t.Errorf("branches are %v, want two kept", got)
			}
			// What the second had done is there and can be had.
			r.try("changes", "two").want(0)
			r.try("commit", "two").want(125)
			r.same(after)
			r.try("abort", "two").want(0)
			r.same(after)
			r.clean()
		})
	}
}

// TestConflictNamesAll: wherever the conflicts are, nothing is applied, each is
// named, the branch is kept, and both contents are there.
func TestConflictNamesAll(t *testing.T) {
	names := make([]string, 40)
	for i := range names {
		names[i] = fmt.Sprintf("f%02d", i)
	}
	for _, hit := range [][]int{{0}, {20}, {39}, {0, 20, 39}} {
		t.Run(fmt.Sprint(hit), func(t *testing.T) {
			r := newRig(t)
			for _, name := range names {
				r.write(name, "old")
			}
			s := r.open("-y", "--json", "-b", "mine", `WAIT
				for f in f*; do printf mine > $f; done; printf mine > new`)
			for _, i := range hit {
				r.write(names[i], "theirs")
			}
			before := r.project()
			doc := s.end().want(125).document()
			r.same(before)
			want := map[string]bool{}
			for _, i := range hit {
				want[r.at(names[i])] = true
			}
			if got := doc.conflicts(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("conflicts are %v, want %v", got, want)
			}
			if doc.Settled != "kept" || doc.Error == nil {
				t.Errorf("settled is %q, error %v", doc.Settled, doc.Error)
			}
			// The branch still holds its own.
			o := r.try("changes", "mine", "--json").want(0)
			if n := len(o.document().Roots[0].Changes); n != len(names)+1 {
				t.Errorf("the kept branch has %d changes, want %d", n, len(names)+1)
			}
			r.try("commit", "mine").want(125).says(names[hit[0]])
			r.same(before)
		})
	}
}
