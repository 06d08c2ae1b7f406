package examples_test

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// needs skips a test that lacks a program, with its name.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is not installed: .ci/run must see to it", p)
			}
			t.Skip("no " + p + " here")
		}
	}
}

func TestRace(t *testing.T) {
	needs(t, "cc", "patch", "git")
	u := copied(t, "race")
	before := u.files()
	out := u.must("./race.sh")
	if !strings.Contains(out, "[3] all tests passed") || !strings.Contains(out, "committed: variant 3 was the first to succeed") {
		t.Errorf("output:\n%s", out)
	}
	after := u.files()
	if got := after["race/median.c"]; !strings.Contains(got, "(x > y) - (x < y)") {
		t.Errorf("median.c is %s", got)
	}
	delete(after, "race/median")
	for name := range after {
		if name != "race/median.c" && before[name] != after[name] {
			t.Errorf("%s was left", name)
		}
	}
	if out := u.must("./check"); !strings.Contains(out, "all tests passed") {
		t.Errorf("outside: %s", out)
	}
	if out := u.must("try", "branches"); !strings.Contains(out, "no branches") {
		t.Errorf("branches: %s", out)
	}
}

func TestAgentLoop(t *testing.T) {
	needs(t, "python3")
	u := copied(t, "agent-loop")
	before := u.files()
	out := u.must("./agent.py")
	want := `as it is: 14 boxes, would write boxes.json, aborted
1.py: 8 boxes, kept as a branch that changes boxes.json, pack.py
2.py: 6 boxes, kept as a branch that changes boxes.json, pack.py
3.py: a box is too full, aborted
2.py is the best: committed
`
	if out != want {
		t.Errorf("it says:\n%s\nwant:\n%s", out, want)
	}
	after := u.files()
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] && name != "agent-loop/pack.py" && name != "agent-loop/boxes.json" {
			t.Errorf("%s was left", name)
		}
	}
	if after["agent-loop/pack.py"] != before["agent-loop/candidates/2.py"] {
		t.Errorf("pack.py is %s", after["agent-loop/pack.py"])
	}
	if out := u.must("try", "branches"); !strings.Contains(out, "no branches") {
		t.Errorf("branches: %s", out)
	}
}
