package ns

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An op is one system call of the child, or one of the few operations below
// that are no system call. It has no pointers: strings lie in the arena.
type op struct {
	nr       uint32
	out      uint16    // slot that gets the result; 0: nowhere
	kind     [8]uint8  // what each argument is; a word, to be read at once
	tolerate [2]uint16 // errnos that count as success
	to       int32     // where an error goes on; 0: it ends the program
	arg      [6]uint64
}

// Kinds of argument.
const (
	argValue   = iota // as it is
	argArena          // address of the arena + value
	argSlot           // what the slot holds
	argAddress        // the address of the slot
)

// Operations that are no system call, numbered where the kernel has none.
const (
	opEnd     = 1<<16 + iota // the program is done
	opJump                   // go on at to
	opNote                   // set bit arg[0] in the notes of the ready report
	opEqual                  // arg[0] address of 8 bytes; & arg[1] must be arg[2], else EXDEV
	opSome                   // arg[0] must not be 0, else EPIPE
	opExec                   // execve(arg[0], arg[1], arg[2]); arg[3]: argv for /bin/sh; arg[4]: found by PATH
	opTell                   // report that the program is about to be executed
	opReady                  // report that the session stands
	opHand                   // report that descriptor arg[0] wants a server, for mount arg[1]
	opReset                  // signals: default dispositions where a handler was, and the mask at arg[0]
	opEvents                 // out = the descriptor that signals are read from
	opWitness                // out = a pidfd of a child that has ended and stays
	opProve                  // the witness arg[0] must be out of our reach, else EXDEV
	opGuard                  // fork init; this process stands guard from here on
)

// A program is what the parent compiled: operations, the memory that they
// point into, and for messages the name of each.
type program struct {
	ops    []op
	arena  []byte
	fix    []uint32 // places in the arena that hold an offset and want an address
	slots  int
	labels []label // one per op; stays in the parent
}

type label struct{ step, what string }

// A builder compiles a program. The last op added is the one that into,
// tolerate and orElse speak of.
type builder struct {
	program
	now     label
	known   map[string]uint64 // strings already in the arena
	pending map[*target][]int
	err     error
}

// A slot is a result that later operations use.
type slot int

// A target is a place in the program that errors and jumps lead to.
type target struct{ at int }

// at is an address in the arena.
type at uint64

// addressOf is the address of a slot, for calls that write a result.
type addressOf slot

func newBuilder() *builder {
	b := &builder{known: map[string]uint64{}, pending: map[*target][]int{}}
	b.slots = 1
	b.arena = make([]byte, 8, 16<<10) // offset 0 stays unused
	b.ops, b.labels = make([]op, 0, 400), make([]label, 0, 400)
	return b
}

// step names what follows, as an error quotes it; what is the path or object.
func (b *builder) step(name, what string) { b.now = label{name, what} }

func (b *builder) slot() slot {
	b.slots++
	return slot(b.slots - 1)
}

// call adds an operation. Arguments: numbers, strings, slot, at, addressOf.
func (b *builder) call(nr uintptr, args ...any) {
	o := op{nr: uint32(nr)}
	for i, a := range args {
		switch a := a.(type) {
		case string:
			o.kind[i], o.arg[i] = argArena, b.text(a)
		case at:
			o.kind[i], o.arg[i] = argArena, uint64(a)
		case slot:
			o.kind[i], o.arg[i] = argSlot, uint64(a)
		case addressOf:
			o.kind[i], o.arg[i] = argAddress, uint64(a)
		case int:
			o.arg[i] = uint64(a)
		case uint64:
			o.arg[i] = a
		default:
			panic(fmt.Sprintf("ns: argument of type %T", a))
		}
	}
	b.ops = append(b.ops, o)
	b.labels = append(b.labels, b.now)
}

// into keeps the result of the last op in a slot of its own.
func (b *builder) into() slot {
	s := b.slot()
	b.ops[len(b.ops)-1].out = uint16(s)
	return s
}

// tolerate makes up to two errnos of the last op no failure.
func (b *builder) tolerate(errs ...unix.Errno) {
	o := &b.ops[len(b.ops)-1]
	for i, e := range errs {
		o.tolerate[i] = uint16(e)
	}
}

// orElse lets any error of the last op go on at t.
func (b *builder) orElse(t *target) { b.pending[t] = append(b.pending[t], len(b.ops)-1) }

func (b *builder) jump(t *target) {
	b.call(opJump)
	b.orElse(t)
}

// here is where t leads to.
func (b *builder) here(t *target) {
	t.at = len(b.ops)
	for _, i := range b.pending[t] {
		b.ops[i].to = int32(t.at)
	}
	delete(b.pending, t)
}

// text puts a NUL-terminated string into the arena.
func (b *builder) text(s string) uint64 {
	if off, ok := b.known[s]; ok {
		return off
	}
	if strings.IndexByte(s, 0) >= 0 {
		b.err = fmt.Errorf("%s: %q holds a NUL byte: %w", b.now.step, s, unix.EINVAL)
	}
	off := uint64(b.data(append([]byte(s), 0)))
	b.known[s] = off
	return off
}

// data puts bytes into the arena, aligned for any use.
func (b *builder) data(p []byte) at {
	for len(b.arena)%8 != 0 {
		b.arena = append(b.arena, 0)
	}
	off := len(b.arena)
	b.arena = append(b.arena, p...)
	return at(off)
}

// words puts 64-bit words into the arena.
func (b *builder) words(ws ...uint64) at {
	var p []byte
	for _, w := range ws {
		p = binary.NativeEndian.AppendUint64(p, w)
	}
	return b.data(p)
}

// strings puts a NULL-terminated array of strings into the arena.
func (b *builder) strings(list []string) at {
	offs := make([]uint64, 0, len(list)+1)
	for _, s := range list {
		offs = append(offs, b.text(s))
	}
	a := b.words(append(offs, 0)...)
	for i := range list {
		b.fix = append(b.fix, uint32(a)+uint32(8*i))
	}
	return a
}

// child makes what the forked process works on. All its memory exists when
// it returns; nothing in it moves or is written by the parent afterwards.
func (p *program) child() *child {
	c := &child{ops: p.ops, arena: slices.Clone(p.arena), slot: make([]uintptr, p.slots)}
	c.base = uintptr(unsafe.Pointer(&c.arena[0]))
	c.slots = uintptr(unsafe.Pointer(&c.slot[0]))
	c.first = uintptr(unsafe.Pointer(&c.ops[0]))
	for _, at := range p.fix {
		off := binary.NativeEndian.Uint64(c.arena[at:])
		binary.NativeEndian.PutUint64(c.arena[at:], off+uint64(c.base))
	}
	return c
}

// encode writes a child for a process that does not share our memory, to go
// on at op resume. The labels stay here: it reports numbers.
func (p *program) encode(c *child, resume int) []byte {
	var b []byte
	number := func(ns ...int) {
		for _, n := range ns {
			b = binary.NativeEndian.AppendUint64(b, uint64(n))
		}
	}
	number(len(p.ops), len(p.fix), p.slots, len(c.views), len(c.entry), len(c.maps))
	number(resume, int(c.control), int(c.gate), int(c.tty), int(c.both), int(c.alone), c.outer)
	b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&p.ops[0])), len(p.ops)*opSize)...)
	for _, f := range p.fix {
		number(int(f))
	}
	for _, v := range c.views {
		number(int(v))
	}
	for _, e := range c.entry {
		number(int(e))
	}
	for _, m := range c.maps {
		number(len(m.name), len(m.text))
		b = append(append(b, m.name...), m.text...)
	}
	return append(b, p.arena...)
}

// opSize is what an op takes; it has no pointers.
const opSize = int(unsafe.Sizeof(op{}))

// decode is the other side of encode. Nothing checks what it reads: it comes
// from the process that became this one.
func decode(raw []byte) (c *child, resume int) {
	number := func() int {
		n := int(binary.NativeEndian.Uint64(raw))
		raw = raw[8:]
		return n
	}
	p := &program{ops: make([]op, number()), fix: make([]uint32, number()), slots: number()}
	views, entry, maps := make([]uint16, number()), make([]int32, number()), make([]idMap, number())
	resume = number()
	control, gate, tty := number(), slot(number()), slot(number())
	both, alone, outer := slot(number()), slot(number()), number()
	raw = raw[copy(unsafe.Slice((*byte)(unsafe.Pointer(&p.ops[0])), len(p.ops)*opSize), raw):]
	for i := range p.fix {
		p.fix[i] = uint32(number())
	}
	for i := range views {
		views[i] = uint16(number())
	}
	for i := range entry {
		entry[i] = int32(number())
	}
	for i := range maps {
		name, text := number(), number()
		maps[i] = idMap{string(raw[:name]), string(raw[name : name+text])}
		raw = raw[name+text:]
	}
	p.arena = append(make([]byte, 0, len(raw)), raw...)
	c = p.child()
	c.control, c.gate, c.tty, c.both, c.alone, c.outer = uintptr(control), gate, tty, both, alone, outer
	c.views, c.entry, c.maps = views, entry, maps
	return c, resume
}
