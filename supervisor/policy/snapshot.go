package policy

import (
	"encoding/json"
	"errors"
	"fmt"
)

// snapshotVersion is that of the stored form. Readers refuse newer ones.
const snapshotVersion = 1

// snapshot is the stored form of a policy: the texts of its files, not what
// was made of them, so that what a rule means is decided in one place. Paths
// are bytes, since JSON holds no others than UTF-8.
type snapshot struct {
	Version int
	Stacks  []storedStack
}

type storedStack struct {
	Home, Config, Executable           []byte
	Protected, StartUp, Path, Policies [][]byte
	Processes                          int64
	Layers                             []storedLayer
}

type storedLayer struct {
	Source    string
	File, Dir []byte
	Text      string
	Trusted   bool
}

// Snapshot returns the policy in the form that is kept with a branch.
func (p *Policy) Snapshot() ([]byte, error) {
	out := snapshot{Version: snapshotVersion}
	for _, s := range p.stacks {
		st := storedStack{
			Home: []byte(s.facts.Home), Config: []byte(s.facts.Config), Executable: []byte(s.facts.Executable),
			Protected: asBytes(s.facts.Protected), StartUp: asBytes(s.facts.StartUp), Path: asBytes(s.facts.Path), Policies: asBytes(s.facts.Policies),
			Processes: s.layers[0].settings[0].Number,
		}
		for _, l := range s.layers[1:] {
			st.Layers = append(st.Layers, storedLayer{l.source.String(), []byte(l.file), []byte(l.dir), l.text, l.trusted})
		}
		out.Stacks = append(out.Stacks, st)
	}
	return json.Marshal(out)
}

// Restore returns the policy that Snapshot stored. Built-in rules are those of
// this version.
func Restore(data []byte) (*Policy, error) {
	var in snapshot
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("read stored policy: %w", err)
	}
	if in.Version != snapshotVersion {
		return nil, fmt.Errorf("read stored policy: format %d; this try reads %d", in.Version, snapshotVersion)
	}
	if len(in.Stacks) == 0 {
		return nil, errors.New("read stored policy: no layers")
	}
	p := &Policy{}
	for _, st := range in.Stacks {
		s := newStack(facts{
			Home: string(st.Home), Config: string(st.Config), Executable: string(st.Executable),
			Protected: asStrings(st.Protected), StartUp: asStrings(st.StartUp), Path: asStrings(st.Path), Policies: asStrings(st.Policies),
		})
		s.layers[0].settings[0].Number = st.Processes
		for _, l := range st.Layers {
			source, err := parseSource(l.Source)
			if err != nil {
				return nil, fmt.Errorf("read stored policy: %w", err)
			}
			lay := &layer{source: source, file: string(l.File), dir: string(l.Dir), text: l.Text, trusted: l.Trusted}
			if err := s.add(lay); err != nil {
				return nil, fmt.Errorf("read stored policy: %w", err)
			}
			if !lay.trusted {
				s.restrict(lay)
			}
		}
		p.stacks = append(p.stacks, s)
	}
	return p, nil
}

func parseSource(name string) (Source, error) {
	for s, n := range sourceNames {
		if n == name && n != "" && Source(s) != BuiltIn {
			return Source(s), nil
		}
	}
	return 0, fmt.Errorf("unknown layer %q", name)
}

func asBytes(s []string) [][]byte {
	var b [][]byte
	for _, e := range s {
		b = append(b, []byte(e))
	}
	return b
}

func asStrings(b [][]byte) []string {
	var s []string
	for _, e := range b {
		s = append(s, string(e))
	}
	return s
}
