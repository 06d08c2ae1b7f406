package branch

import (
	"context"
	"testing"
)

// BenchmarkCreate is four roots with the spare skeleton ready, which is what
// every run but the first has.
func BenchmarkCreate(b *testing.B) {
	for _, spare := range []string{"spare", "none"} {
		b.Run(spare, func(b *testing.B) {
			w := newWorld(b)
			for b.Loop() {
				b.StopTimer()
				if spare == "spare" {
					if err := w.store.Tidy(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
				br, err := w.store.Create(w.options(""))
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := br.Discard(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

func BenchmarkDiscard(b *testing.B) {
	w := newWorld(b)
	for b.Loop() {
		b.StopTimer()
		br, err := w.store.Create(w.options(""))
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := br.Discard(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpenStore(b *testing.B) {
	w := newWorld(b)
	for b.Loop() {
		s, err := OpenStore(w.path("store"))
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

func BenchmarkRoots(b *testing.B) {
	w := newWorld(b)
	for b.Loop() {
		w.coverage()
	}
}
