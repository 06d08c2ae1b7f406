package policy

import (
	"fmt"
	"testing"
)

// TestLayerPairs is H23: every combination of what the layers say of a path,
// with a built-in ask and without, the project's file trusted or not.
func TestLayerPairs(t *testing.T) {
	t.Parallel()
	actions := []Action{0, Allow, Yield, Drop, Ask, Deny} // 0: the layer says nothing
	for _, builtIn := range []bool{false, true} {
		path := map[bool]string{false: "~/plain", true: "~/.bashrc"}[builtIn]
		for _, trusted := range []bool{false, true} {
			for _, system := range actions {
				for _, user := range actions {
					for _, project := range actions {
						layers := map[Source]string{}
						for source, action := range map[Source]Action{System: system, User: user, Project: project} {
							if action != 0 {
								layers[source] = rule(action.String(), "", "/home/u/p/x", path)
							}
						}
						// In words: deny > ask > drop > yield > allow; a project
						// that is not trusted is heard if it asks or denies; a
						// built-in ask stands unless the user says something
						// milder.
						heard := project
						if !trusted && project < Ask {
							heard = 0
						}
						want := max(Allow, system, user, heard)
						if builtIn && (user == 0 || user >= Ask) {
							want = max(want, Ask)
						}
						p := testPolicy(t, layers, trusted)
						got := p.Evaluate(Input{Roots: testRoots, Changes: changes("modified " + path)}).Verdicts[0].Action
						if got != want {
							t.Errorf("built-in ask %v, system %v, user %v, project %v (trusted %v): %v, want %v",
								builtIn, system, user, project, trusted, got, want)
						}
					}
				}
			}
		}
	}
}

// TestJoinedPairs: of the policies at the start and of now the stricter counts.
func TestJoinedPairs(t *testing.T) {
	t.Parallel()
	actions := []Action{0, Allow, Yield, Drop, Ask, Deny}
	one := func(a Action) *Policy {
		if a == 0 {
			return testPolicy(t, nil, false)
		}
		return testPolicy(t, map[Source]string{User: rule(a.String(), "", "~/plain", "~/.bashrc")}, false)
	}
	for _, start := range actions {
		for _, now := range actions {
			snapshot, err := one(start).Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			restored, err := Restore(snapshot)
			if err != nil {
				t.Fatal(err)
			}
			v := Join(restored, one(now)).Evaluate(Input{Roots: testRoots, Changes: changes("modified ~/plain", "modified ~/.bashrc")}).Verdicts
			want := fmt.Sprint(max(Allow, start, now))
			lifted := func(a Action) Action { // a built-in ask, as the user has it
				if a == 0 {
					return Ask
				}
				return a
			}
			want += " " + fmt.Sprint(max(lifted(start), lifted(now)))
			if got := fmt.Sprint(v[0].Action, " ", v[1].Action); got != want {
				t.Errorf("start %v, now %v: %s, want %s", start, now, got, want)
			}
		}
	}
}
