package main

import "time"

const (
	goalNative = 1.15 // read-heavy and build workloads against native
	goalBare   = 1.05 // write-heavy ones against a bare kernel overlay
)

// workload is one row of work: what each place does, and what it is judged by.
type workload struct {
	name   string
	repeat int  // samples in one round
	warm   bool // one more before that is not counted
	writes bool // judged against a bare overlay, else against native
	late   bool // after all rounds: it deletes many files
	step   func(p *place) step
	after  func(p *place) step // not timed, behind each sample; nil: nothing
	finish func(p *place) step // not timed, behind the last sample of a round; nil: nothing
	before func(p *place) step // not timed, before the first sample of a round; nil: nothing
	rounds int                 // 0: all

	// Goals behind FUSE.
	peer   float64 // against fuse-overlayfs; 0: goalPeer
	native float64 // against native; 0: none
	passed float64 // with passthrough; 0: native
}

// inside does the same work natively, in a bare kernel overlay and in a session.
func inside(l *lab) error {
	l.table.head("Inside a session (default scope) against native and a bare kernel overlay of HOME (userxattr,volatile)")
	return l.works([]string{native, bare, branch}, l.report)
}

// works does the same work in each kind of place, and reports each workload.
func (l *lab) works(kinds []string, report func(w workload, took map[string][]time.Duration)) error {
	rounds := 5
	if l.short {
		rounds = 1
	}
	l.sets++
	m, err := l.materials()
	if err != nil {
		return err
	}
	for round := range rounds {
		for _, kind := range kinds {
			if err := m.place(kind, round); err != nil {
				return err
			}
		}
	}
	var standing []*place
	defer func() {
		for _, p := range standing {
			if err := p.leave(); err != nil {
				l.table.missing("end of a place", err.Error())
			}
		}
		reap()
	}()
	took := make([]map[string][]time.Duration, len(m.work))
	for i := range took {
		took[i] = map[string][]time.Duration{}
	}
	failed := map[string]error{}
	for round := range rounds {
		var places []*place
		for i := range kinds { // another one is first in each round
			kind := kinds[(i+round)%len(kinds)]
			if failed[kind] != nil {
				continue
			}
			p, err := l.stand(kind, round)
			if err != nil {
				failed[kind] = err
				continue
			}
			places = append(places, p)
		}
		standing = append(standing, places...)
		for i, w := range m.work {
			if !w.late && (w.rounds == 0 || round < w.rounds) {
				if err := l.measure(w, places, took[i]); err != nil {
					m.work[i].step = nil
					l.table.missing(w.name, err.Error())
				}
			}
		}
	}
	for i, w := range m.work {
		if w.late {
			if err := l.measure(w, standing, took[i]); err != nil {
				l.table.missing(w.name, err.Error())
			}
		}
	}
	for i, w := range m.work {
		report(w, took[i])
	}
	for _, a := range m.absent {
		l.table.absent(a.name, a.missing)
	}
	for _, kind := range kinds {
		if err := failed[kind]; err != nil {
			l.table.missing("place "+kind, err.Error())
		}
	}
	if n := median(took[0][native]); n > time.Second {
		l.table.note("untar natively took %s: inodes deleted here in the last minutes slow ext4 down for all; run again later", span(n))
	}
	return l.ctx.Err()
}

// measure has each place take the step of one workload, in turn.
func (l *lab) measure(w workload, places []*place, took map[string][]time.Duration) error {
	if w.step == nil {
		return nil // has failed before
	}
	repeat := w.repeat
	if w.warm {
		repeat++
	}
	for i := range repeat {
		for _, p := range places {
			if w.writes {
				if err := l.quiet(); err != nil {
					return err
				}
			}
			if i == 0 && w.before != nil {
				if _, err := p.do(w.before(p)); err != nil {
					return err
				}
			}
			d, err := p.do(w.step(p))
			if err != nil {
				return err
			}
			if !w.warm || i > 0 {
				took[p.kind] = append(took[p.kind], d)
			}
			clean := w.after
			if i == repeat-1 && w.finish != nil {
				clean = w.finish
			}
			if clean != nil {
				if _, err := p.do(clean(p)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// report writes the rows of one workload: native, bare overlay, try.
func (l *lab) report(w workload, took map[string][]time.Duration) {
	for _, kind := range []string{native, bare, branch} {
		d := took[kind]
		if len(d) == 0 {
			continue
		}
		name := w.name
		if kind != native {
			name = "  … in " + kind
		}
		var ratios []ratio
		switch {
		case kind == bare:
			ratios = []ratio{against(d, took[native], native, 0, 0)}
		case kind == branch && w.writes:
			ratios = []ratio{against(d, took[bare], bare, goalBare, 0), against(d, took[native], native, 0, 0)}
		case kind == branch:
			ratios = []ratio{against(d, took[native], native, goalNative, 0), against(d, took[bare], bare, 0, 0)}
		}
		l.table.times(name, d, ratios...)
	}
	if o, n, t := median(took[bare]), median(took[native]), median(took[branch]); !w.writes && n > 0 && o > 0 &&
		float64(t) > goalNative*float64(n) && float64(t) <= goalBare*float64(o) {
		l.table.note("the kernel's overlay itself takes that long; the session adds %.0f %%", max(0, 100*(float64(t)/float64(o)-1)))
	}
}
