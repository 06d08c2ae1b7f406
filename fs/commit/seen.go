package commit

import (
	"try/fs/changes"
	"try/fs/sys"
)

// Seen is one path of the base as it was at the end of a session. From then on
// the branch waits, and drift is inequality with this, never order.
type Seen struct {
	Absent bool         `json:"absent,omitempty"`
	ID     sys.Identity `json:"id,omitzero"`
	Mode   uint32       `json:"mode,omitempty"`
	UID    uint32       `json:"uid,omitempty"`
	GID    uint32       `json:"gid,omitempty"`
	Size   int64        `json:"size,omitempty"`
	Mtime  sys.Time     `json:"mtime,omitempty"`
	Ctime  sys.Time     `json:"ctime,omitempty"`
	// Place: a directory that stays. Its neighbours may alter its times.
	Place bool `json:"place,omitempty"`
	// Conflict is what [Drift] had found here already.
	Conflict string `json:"conflict,omitempty"`
}

// Observe records the base at the paths of plan and the directories above
// them, by root. drifted is what Drift has said of the same plan: it stays a
// conflict for as long as the branch waits.
func Observe(plan *changes.Plan, drifted []Conflict) (map[string]map[string]Seen, error) {
	all := map[string]map[string]Seen{}
	for i := range plan.Roots {
		p := &plan.Roots[i]
		seen := map[string]Seen{}
		d := newDrift(p, nil)
		defer d.close()
		for k := range p.Changes {
			c := &p.Changes[k]
			if c.Within && c.Base == nil {
				continue // part of what is new: nothing is there
			}
			path := c.Path()
			seen[path] = See(c)
			if c.Within {
				continue
			}
			for up, _ := split(path); up != ""; up, _ = split(up) {
				if _, ok := seen[up]; ok {
					break
				}
				st, err := d.base(up)
				if err != nil {
					return nil, err
				}
				if st == nil {
					seen[up] = Seen{Absent: true}
					continue
				}
				seen[up] = Seen{ID: st.Identity(), Place: true}
			}
		}
		all[p.Root.Path] = seen
	}
	for _, c := range drifted {
		if seen, ok := all[c.Root]; ok {
			s := seen[c.Path]
			s.Conflict = c.Reason
			seen[c.Path] = s
		}
	}
	return all, nil
}

// See is what the base holds at a change, as the plan has it.
func See(c *changes.Change) Seen {
	if c.Base == nil {
		return Seen{Absent: true}
	}
	b := c.Base
	s := Seen{ID: b.Identity(), Mode: b.Mode, UID: b.UID, GID: b.GID, Size: b.Size, Mtime: b.Mtime, Ctime: b.Ctime}
	if b.IsDir() && (c.Kind == changes.Metadata || c.Kind == changes.Touched) {
		s.Place, s.Size, s.Mtime, s.Ctime = true, 0, 0, 0
	}
	return s
}

// Restored is s for an entry that a roll-back has put back: with the change time
// that it has now, if nothing else about it is new.
func (s Seen) Restored(st *sys.Stat) Seen {
	now := Seen{
		ID: st.Identity(), Mode: st.Mode, UID: st.UID, GID: st.GID, Size: st.Size, Mtime: st.Mtime,
		Ctime: s.Ctime, Conflict: s.Conflict,
	}
	if now == s {
		s.Ctime = st.Ctime
	}
	return s
}

// unlike says how a change's base entry differs from what was seen.
func (d *drift) unlike(path string, c *changes.Change) string {
	was, ok := d.root.Seen[path]
	switch {
	case !ok && c.Base == nil:
		return "" // it was part of what is new
	case !ok && c.Base.IsDir() && c.Kind == changes.Touched:
		return "" // what was in it has become none of the branch's changes
	case !ok:
		return "changed in the base since the session"
	case was.Conflict != "":
		return was.Conflict
	case was.Absent && c.Base == nil:
		return ""
	case was.Absent:
		return "made in the base since the session"
	case c.Base == nil:
		return "gone from the base since the session"
	case was.Place, c.Base.IsDir() && (c.Kind == changes.Metadata || c.Kind == changes.Touched):
		return was.unlikeDir(c.Base) // also where it was to be replaced, and a part of that is left
	}
	now := See(c)
	now.Conflict = ""
	if c.Base.IsDir() {
		// Its own times are those of what is directly in it, and that is listed.
		now.Size, was.Size = 0, 0
	}
	if now == was {
		return ""
	}
	if now.Mtime == was.Mtime && now.ID == was.ID && now.Size == was.Size {
		return "metadata, link count or renamed in the base since the session"
	}
	return "changed in the base since the session"
}

func (s Seen) unlikeDir(st *sys.Stat) string {
	switch {
	case s.Conflict != "":
		return s.Conflict
	case s.Absent:
		return "" // made inside and outside: merged
	case st.Identity() != s.ID:
		return "the directory was moved or replaced since the session"
	case s.Mode != 0 && (st.Mode != s.Mode || st.UID != s.UID || st.GID != s.GID):
		return "its metadata changed in the base since the session"
	}
	return ""
}
