package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"try/supervisor"
)

// maxLine is the longest line that is kept back until it is whole; one that is
// longer comes in pieces of this size, each a line of its own.
const maxLine = 1 << 20

// prefixer prints what variants write as lines that begin with "[i] ", stdout
// and stderr apart. A line goes out by one write(2), so that it is never torn.
type prefixer struct {
	mu  sync.Mutex
	out [2]io.Writer
	// rest is the beginning of a line by variant and stream, with its prefix.
	rest map[[2]int][]byte
}

func newPrefixer(stdout, stderr io.Writer) *prefixer {
	return &prefixer{out: [2]io.Writer{stdout, stderr}, rest: map[[2]int][]byte{}}
}

func (p *prefixer) write(index, stream int, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := [2]int{index, stream}
	line := p.rest[key]
	for len(b) > 0 {
		if len(line) == 0 {
			line = fmt.Appendf(nil, "[%d] ", index)
		}
		n := bytes.IndexByte(b, '\n')
		whole := n >= 0
		if !whole {
			n = len(b)
		}
		n = min(n, maxLine-len(line))
		line = append(line, b[:n]...)
		b = b[n:]
		switch {
		case whole && len(b) > 0 && b[0] == '\n':
			b = b[1:]
		case len(line) < maxLine:
			p.rest[key] = line
			return
		}
		p.line(stream, line)
		line = nil
	}
	delete(p.rest, key)
}

// line prints one. Who reads them may have gone; the race goes on.
func (p *prefixer) line(stream int, line []byte) {
	_, _ = p.out[stream-1].Write(append(line, '\n'))
}

func (p *prefixer) change(int, supervisor.VariantState) {}

func (p *prefixer) aside(print func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	print()
}

func (p *prefixer) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, line := range p.rest {
		p.line(key[1], line)
	}
	clear(p.rest)
}
