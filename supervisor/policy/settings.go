package policy

import (
	"slices"
	"time"
)

// Limit is a limit on a branch. The zero value is no limit.
type Limit struct {
	Set bool
	Max int64
	At  string // "file:line", or "built-in"
}

// Settings is what the layers of a policy set, together; flags of the command
// line go over it. An empty string or list is not set.
type Settings struct {
	OnSuccess, OnFailure string   // commit, abort, keep, ask
	Checks               []string // of all layers

	MaxChanges, MaxBytes, MaxDeleted Limit
	Processes                        Limit // always set
	Timeout                          Limit // nanoseconds

	Scope, Net, Engine                      string
	Roots, Cover, AllowWrite, Deny, Sockets []string // of all layers; paths absolute
	Grace                                   time.Duration
	GraceSet                                bool

	Undo Undo // always set
}

// Undo is how long what commits displaced is kept: [undo].
type Undo struct {
	Keep               time.Duration
	MaxBytes, MaxCount int64
}

// Settings returns what is in force: of limits the lowest, of net "none", of
// lists all, of anything else what the layer nearest to the project says. Of a
// joined policy that at the start counts, limits and checks of both.
func (p *Policy) Settings() Settings {
	var s Settings
	for i, st := range p.stacks {
		m := merge(st.layers)
		limit := func(into *Limit, key string) {
			if v := m[key]; v != nil && (!into.Set || v.Number < into.Max) {
				*into = Limit{true, v.Number, v.At()}
			}
		}
		limit(&s.MaxChanges, "limits.max_changes")
		limit(&s.MaxBytes, "limits.max_bytes")
		limit(&s.MaxDeleted, "limits.max_deleted")
		limit(&s.Processes, "limits.processes")
		limit(&s.Timeout, "limits.timeout")
		st.list(&s.Checks, "settle.checks")
		if i > 0 {
			continue
		}
		text := func(into *string, key string) {
			if v := m[key]; v != nil {
				*into = v.Text
			}
		}
		text(&s.OnSuccess, "settle.on_success")
		text(&s.OnFailure, "settle.on_failure")
		text(&s.Scope, "session.scope")
		text(&s.Net, "session.net")
		text(&s.Engine, "session.engine")
		if v := m["session.grace"]; v != nil {
			s.Grace, s.GraceSet = time.Duration(v.Number), true
		}
		s.Undo = Undo{time.Duration(m["undo.keep"].Number), m["undo.max_bytes"].Number, m["undo.max_count"].Number}
		st.list(&s.Roots, "session.roots")
		st.list(&s.Cover, "session.cover")
		st.list(&s.AllowWrite, "session.allow_write")
		st.list(&s.Deny, "session.deny")
		st.list(&s.Sockets, "session.sockets")
	}
	return s
}

// list appends what all layers say to a list, each entry once.
func (s *stack) list(into *[]string, key string) {
	for _, l := range s.layers {
		for i := range l.settings {
			if v := &l.settings[i]; v.Key == key && !v.Ignored {
				for _, e := range v.List {
					if !slices.Contains(*into, e) {
						*into = append(*into, e)
					}
				}
			}
		}
	}
}
