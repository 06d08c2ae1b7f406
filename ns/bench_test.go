package ns

import "testing"

// BenchmarkSession starts, runs and ends a session around true.
func BenchmarkSession(b *testing.B) {
	hidden := b.TempDir()
	for b.Loop() {
		s, err := Start(&Spec{Programs: []Program{{Argv: []string{"/bin/true"}}}, Dir: "/", Covers: []string{hidden}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompile is the part of it that Go does.
func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		p, control, err := prepare(&Spec{Programs: []Program{{Argv: []string{"/bin/true"}}}, Dir: "/"})
		if err != nil {
			b.Fatal(err)
		}
		control.Close()
		for _, f := range p.close {
			f.Close()
		}
		p.child()
	}
}
