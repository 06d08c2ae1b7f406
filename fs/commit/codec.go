package commit

import (
	"encoding/binary"

	"try/fs/sys"
)

// encoder writes the content of records: numbers as varints, strings with
// their length before them, a list with its count. Each step has all fields of
// its kind in the order of the type.
type encoder struct{ b []byte }

func (e *encoder) u(v uint64)         { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) t(v sys.Time)       { e.b = binary.AppendVarint(e.b, int64(v)) }
func (e *encoder) flag(v bool)        { e.b = append(e.b, b2u(v)) }
func (e *encoder) text(s string)      { e.u(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) bytes(v []byte)     { e.u(uint64(len(v))); e.b = append(e.b, v...) }
func (e *encoder) place(p place)      { e.u(uint64(p.root)); e.u(uint64(p.area)); e.text(p.path) }
func (e *encoder) pair(p [2]sys.Time) { e.t(p[0]); e.t(p[1]) }

func b2u(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func (e *encoder) id(id sys.Identity) {
	e.u(id.Ino)
	e.t(id.Btime)
	e.u(uint64(id.Type))
}

func (e *encoder) header(j *journal) {
	e.text(j.branch)
	e.u(uint64(len(j.roots)))
	for i := range j.roots {
		r := &j.roots[i]
		e.text(r.path)
		e.id(r.id)
		e.text(r.layer)
		e.text(r.slots)
		e.text(r.boot)
	}
}

func (e *encoder) side(s *side) {
	e.id(s.id)
	e.u(uint64(s.perm))
	e.u(uint64(s.uid))
	e.u(uint64(s.gid))
	e.u(uint64(s.size))
	e.t(s.mtime)
	e.t(s.ctime)
	e.u(s.rdev)
	e.flag(s.shared)
	e.flag(s.opened)
	if s.opened {
		e.u(uint64(s.open))
	}
	e.u(uint64(len(s.marks)))
	for _, m := range s.marks {
		e.text(m.from)
		e.text(m.to)
		e.bytes(m.value)
	}
	e.u(s.tree.count)
	if s.tree.count > 0 {
		e.b = append(e.b, s.tree.sum[:]...)
	}
}

func (e *encoder) step(s *step) {
	e.u(uint64(s.kind))
	e.place(s.from)
	e.side(&s.new)
	switch s.kind {
	case move:
		e.place(s.to)
	case swap:
		e.place(s.to)
		e.side(&s.old)
	case strip:
		e.place(s.to)
	case mode:
		e.place(s.to)
		e.u(uint64(s.before))
		e.u(uint64(s.after))
	case meta:
		e.change(s.meta)
	case times:
		e.place(s.to)
		e.pair(s.oldTime)
		e.pair(s.newTime)
	}
}

func (e *encoder) change(c *change) {
	e.flag(c.newPerm != nil)
	if c.newPerm != nil {
		e.u(uint64(*c.oldPerm))
		e.u(uint64(*c.newPerm))
	}
	e.flag(c.newOwner != nil)
	if c.newOwner != nil {
		for _, v := range []uint32{c.oldOwner[0], c.oldOwner[1], c.newOwner[0], c.newOwner[1]} {
			e.u(uint64(v))
		}
	}
	e.flag(c.newTimes != nil)
	if c.newTimes != nil {
		e.pair(*c.oldTimes)
		e.pair(*c.newTimes)
	}
	e.u(uint64(len(c.xattrs)))
	for _, x := range c.xattrs {
		e.text(x.name)
		for _, v := range [][]byte{x.old, x.new} {
			e.flag(v != nil)
			if v != nil {
				e.bytes(v)
			}
		}
	}
}

// decoder reads what encoder writes. bad stays set once anything was wrong;
// what is read then means nothing.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) u() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad = true
		d.b = nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) u32() uint32 {
	v := d.u()
	if v > 1<<32-1 {
		d.bad = true
	}
	return uint32(v)
}

func (d *decoder) t() sys.Time {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad = true
		d.b = nil
		return 0
	}
	d.b = d.b[n:]
	return sys.Time(v)
}

func (d *decoder) flag() bool {
	v := d.u()
	d.bad = d.bad || v > 1
	return v == 1
}

func (d *decoder) raw(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.bad = true
		d.b = nil
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) text() string { return string(d.raw(d.u())) }

func (d *decoder) bytes() []byte { return append([]byte{}, d.raw(d.u())...) }

// count reads a list's length; no element is shorter than a byte.
func (d *decoder) count() int {
	n := d.u()
	if n > uint64(len(d.b)) {
		d.bad = true
		return 0
	}
	return int(n)
}

func (d *decoder) id() sys.Identity {
	return sys.Identity{Ino: d.u(), Btime: d.t(), Type: d.u32()}
}

// place reads a place in one of the journal's roots, and no path that leads
// out of them: it could not be opened, but what cannot be must not be read.
func (d *decoder) place(roots int) place {
	p := place{root: d.u32()}
	a := d.u()
	p.area, p.path = area(a), d.text()
	if a < uint64(inBase) || a > uint64(inSlots) || int64(p.root) >= int64(roots) || !clean(p.path) {
		d.bad = true
	}
	return p
}

// clean says that path is "" or names joined by single slashes, none of them
// "." or "..", no NUL.
func clean(path string) bool {
	if path == "" {
		return true
	}
	start := 0
	for i := 0; i <= len(path); i++ {
		if i < len(path) && path[i] == 0 {
			return false
		}
		if i == len(path) || path[i] == '/' {
			switch path[start:i] {
			case "", ".", "..":
				return false
			}
			start = i + 1
		}
	}
	return true
}

func (d *decoder) header(j *journal) {
	j.branch = d.text()
	for range d.count() {
		j.roots = append(j.roots, journalRoot{path: d.text(), id: d.id(), layer: d.text(), slots: d.text(), boot: d.text()})
	}
}

func (d *decoder) side(s *side) {
	s.id = d.id()
	s.perm, s.uid, s.gid = d.u32(), d.u32(), d.u32()
	s.size = int64(d.u())
	s.mtime, s.ctime = d.t(), d.t()
	s.rdev = d.u()
	s.shared = d.flag()
	if s.opened = d.flag(); s.opened {
		s.open = d.u32()
	}
	for range d.count() {
		s.marks = append(s.marks, mark{from: d.text(), to: d.text(), value: d.bytes()})
	}
	if s.tree.count = d.u(); s.tree.count > 0 {
		copy(s.tree.sum[:], d.raw(uint64(len(s.tree.sum))))
	}
}

func (d *decoder) pair() [2]sys.Time { return [2]sys.Time{d.t(), d.t()} }

func (d *decoder) step(s *step, roots int) {
	k := d.u()
	s.kind = kind(k)
	s.from = d.place(roots)
	d.side(&s.new)
	switch {
	case k == uint64(move):
		s.to = d.place(roots)
	case k == uint64(swap):
		s.to = d.place(roots)
		d.side(&s.old)
	case k == uint64(strip):
		s.to = d.place(roots)
	case k == uint64(mode):
		s.to = d.place(roots)
		s.before, s.after = d.u32(), d.u32()
	case k == uint64(meta):
		s.meta = d.change()
	case k == uint64(times):
		s.to = d.place(roots)
		s.oldTime, s.newTime = d.pair(), d.pair()
	default:
		d.bad = true
	}
}

func (d *decoder) change() *change {
	c := &change{}
	if d.flag() {
		old, new := d.u32(), d.u32()
		c.oldPerm, c.newPerm = &old, &new
	}
	if d.flag() {
		c.oldOwner, c.newOwner = &[2]uint32{d.u32(), d.u32()}, nil
		c.newOwner = &[2]uint32{d.u32(), d.u32()}
	}
	if d.flag() {
		old, new := d.pair(), d.pair()
		c.oldTimes, c.newTimes = &old, &new
	}
	for range d.count() {
		x := xattr{name: d.text()}
		for _, v := range []*[]byte{&x.old, &x.new} {
			if d.flag() {
				*v = d.bytes()
			}
		}
		c.xattrs = append(c.xattrs, x)
	}
	return c
}
