package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"try/supervisor"
	"try/supervisor/printable"
)

// board shows a race on a terminal: one line for each variant, redrawn in
// place, gone at the end. The escape sequences are those that every terminal
// since the VT100 knows: cursor up, erase, and no automatic margin, which
// would turn a long line into two.
type board struct {
	f    *os.File
	stop chan struct{}
	over chan struct{} // closed when nobody draws any more

	mu    sync.Mutex
	rows  []boardRow
	drawn int // lines on the screen
	ended bool
}

// boardRow is what is known of one variant.
type boardRow struct {
	index   int
	state   supervisor.VariantState
	began   time.Time
	took    time.Duration // once it has ended
	partial []byte        // of the line that it is writing
	last    string        // the last one with something in it, made printable
}

// frame is how often the board is drawn.
const frame = 100 * time.Millisecond

func newBoard(f *os.File, variants int) *board {
	b := &board{f: f, stop: make(chan struct{}), over: make(chan struct{}), rows: make([]boardRow, variants)}
	for i := range b.rows {
		b.rows[i].index, b.rows[i].state = i+1, supervisor.Queued
	}
	go b.run()
	return b
}

// run redraws until the end. What ends within the first frame is never shown.
func (b *board) run() {
	defer close(b.over)
	t := time.NewTicker(frame)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			b.mu.Lock()
			if !b.ended {
				b.draw()
			}
			b.mu.Unlock()
		case <-b.stop:
			return
		}
	}
}

func (b *board) write(index, _ int, p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows[index-1].add(p)
}

// add follows what a variant writes; of a line that is longer than any
// terminal is wide the beginning is enough.
func (r *boardRow) add(p []byte) {
	const enough = 1024
	for _, c := range p {
		if c != '\n' && c != '\r' {
			if len(r.partial) < enough {
				r.partial = append(r.partial, c)
			}
			continue
		}
		r.finish()
		r.partial = r.partial[:0]
	}
	r.finish()
}

// finish takes the line as it is, unless there is nothing to see.
func (r *boardRow) finish() {
	if text := strings.TrimSpace(printable.Text(withoutSequences(string(r.partial)))); text != "" {
		r.last = text
	}
}

func (b *board) change(index int, state supervisor.VariantState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &b.rows[index-1]
	r.state = state
	switch state {
	case supervisor.Started:
		r.began = time.Now()
	case supervisor.Queued, supervisor.Checking:
	default:
		if !r.began.IsZero() && r.took == 0 {
			r.took = time.Since(r.began)
		}
	}
}

func (b *board) aside(print func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.erase()
	print()
}

func (b *board) end() {
	b.mu.Lock()
	if !b.ended {
		b.ended = true
		b.erase()
		close(b.stop)
	}
	b.mu.Unlock()
	<-b.over
}

// erase takes the board off the screen.
func (b *board) erase() {
	if b.drawn > 0 {
		fmt.Fprintf(b.f, "\x1b[%dA\r\x1b[J", b.drawn)
		b.drawn = 0
	}
}

// draw puts the board on the screen, by one write.
func (b *board) draw() {
	height, width := 24, 80
	if size, err := unix.IoctlGetWinsize(int(b.f.Fd()), unix.TIOCGWINSZ); err == nil && size.Row > 0 && size.Col > 0 {
		height, width = int(size.Row), int(size.Col)
	}
	var out strings.Builder
	out.WriteString("\x1b[?7l")
	if b.drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA\r", b.drawn)
	}
	lines := b.lines(max(1, height-1))
	for _, l := range lines {
		if r := []rune(l); len(r) > width {
			l = string(r[:width])
		}
		out.WriteString("\x1b[2K" + l + "\n")
	}
	out.WriteString("\x1b[J\x1b[?7h")
	b.drawn = len(lines)
	_, _ = b.f.WriteString(out.String()) // a terminal that is gone shows nothing
}

// lines are at most so many: where variants do not all fit, those that run
// come first.
func (b *board) lines(most int) []string {
	rows := make([]*boardRow, len(b.rows))
	for i := range b.rows {
		rows[i] = &b.rows[i]
	}
	hidden := map[supervisor.VariantState]int{}
	if len(rows) > most {
		slices.SortStableFunc(rows, func(x, y *boardRow) int { return cmp.Compare(urgency(x.state), urgency(y.state)) })
		for _, r := range rows[most-1:] {
			hidden[r.state]++
		}
		rows = rows[:most-1]
		slices.SortFunc(rows, func(x, y *boardRow) int { return cmp.Compare(x.index, y.index) })
	}
	pad := len(fmt.Sprint(len(b.rows)))
	var lines []string
	for _, r := range rows {
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%*d  %-8s %6s  %s", pad, r.index, r.state, r.elapsed(), r.last), " "))
	}
	if len(hidden) > 0 {
		var more []string
		for _, state := range []supervisor.VariantState{supervisor.Started, supervisor.Checking, supervisor.Succeeded, supervisor.Queued, supervisor.Failed, supervisor.Stopped} {
			if hidden[state] > 0 {
				more = append(more, fmt.Sprintf("%d %s", hidden[state], state))
			}
		}
		lines = append(lines, "… "+strings.Join(more, ", "))
	}
	return lines
}

// urgency says which rows are worth a line first.
func urgency(s supervisor.VariantState) int {
	switch s {
	case supervisor.Succeeded:
		return 0
	case supervisor.Started, supervisor.Checking:
		return 1
	case supervisor.Queued:
		return 3
	default:
		return 2
	}
}

// elapsed is how long the variant has run: "4.2s", "1:04", "2:00:03".
func (r *boardRow) elapsed() string {
	d := r.took
	if d == 0 {
		if r.began.IsZero() {
			return ""
		}
		d = time.Since(r.began)
	}
	s := int(d.Seconds())
	switch {
	case s < 60:
		return fmt.Sprintf("%.1fs", d.Truncate(frame).Seconds())
	case s < 3600:
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// withoutSequences takes colours and other control sequences (ECMA-48) out of
// a line, so that it does not show as escapes. It makes nothing safe: what is
// left goes through package printable.
func withoutSequences(s string) string {
	if !strings.Contains(s, "\x1b") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != 0x1b {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			break
		}
		switch s[i] {
		case '[': // to its final byte
			for i++; i < len(s) && (s[i] < 0x40 || s[i] > 0x7e); i++ {
			}
		case ']', 'P', '_', '^': // to BEL or ST
			for i++; i < len(s) && s[i] != 0x07 && s[i] != 0x1b; i++ {
			}
			if i < len(s) && s[i] == 0x1b {
				i++
			}
		}
	}
	return b.String()
}
