package main

import (
	"slices"
	"strings"
	"testing"

	"try/supervisor"
)

// TestResolveQuestion: conflicts are asked about one by one, answers are whole
// lines, and a capital letter answers for the rest; the end of the input leaves
// everything as it is.
func TestResolveQuestion(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.sh(`for f in a b c d e; do seq 1 20 > $f; done; printf '\0' > bin
		try --scope dir -q --keep -b mine -- sh -c 'sed -i s/^3$/three/ a b c d e; echo 2 > bin'
		for f in a b c d e; do sed -i s/^18$/eighteen/ $f; done; printf '\0\0' > bin`)
	before := d.sh("cat a b c d e")
	y := d.sit("try", "commit", "mine")
	y.talk("conflict: ~/proj/a: changed in the base since", "", "base then: file, 51 B", "",
		"branch:    modified, file, 55 B", "", "~/proj/a: [o]urs [t]heirs [m]erge [s]kip [d]iff", "")
	y.asked("t\n")
	y.talk("conflict: ~/proj/b", "")
	y.asked("\x04")
	y.ends(125)
	if now := d.sh("cat a b c d e"); now != before {
		t.Errorf("the base is now\n%s", now)
	}

	y = d.sit("try", "commit", "mine")
	y.asked("x\n")
	y.sees("none of the choices")
	y.asked("\x1b[?1;2o\n")
	y.sees("none of the choices")
	y.asked("?\n")
	y.sees("the base stays", "O, T, M, S")
	y.asked("d\n")
	y.sees("+three")
	y.asked("o\n") // a
	y.talk("conflict: ~/proj/b", "")
	y.asked("merge\n") // b
	y.talk("conflict: ~/proj/bin", "", "~/proj/bin: [o]urs [t]heirs [s]kip", "")
	y.asked("m\n")
	y.sees("cannot be merged: not text")
	y.asked("s\n") // bin
	y.talk("conflict: ~/proj/c", "")
	y.asked("T\n") // c d e
	y.ends(0)
	want := map[string][2]bool{"a": {false, true}, "b": {true, true}, "c": {true, false}, "d": {true, false}, "e": {true, false}}
	for name, has := range want {
		if text := d.has(name); strings.Contains(text, "three") != has[0] || strings.Contains(text, "eighteen") != has[1] {
			t.Errorf("%s holds %q", name, text)
		}
	}
	if left := d.sh("try changes mine"); !strings.HasPrefix(left, "M bin\n1 modified") {
		t.Errorf("left is\n%s", left)
	}
}

// TestDecisionOrder: the flags count in the order of the command line, however
// they are written.
func TestDecisionOrder(t *testing.T) {
	t.Parallel()
	args := []string{"commit", "--skip", "a", "mine", "--ours=b", "--json", "--skip=--ours", "--theirs", "c", "--ours", "d"}
	got := decisions(args, map[string][]raw{"ours": {"b", "d"}, "theirs": {"c"}, "skip": {"a", "--ours"}})
	want := []supervisor.Decision{
		{How: supervisor.Skip, Glob: "a"}, {How: supervisor.Ours, Glob: "b"}, {How: supervisor.Skip, Glob: "--ours"},
		{How: supervisor.Theirs, Glob: "c"}, {How: supervisor.Ours, Glob: "d"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("decisions are %v, want %v", got, want)
	}
}
