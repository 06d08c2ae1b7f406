package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestWithIndex(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"": "", "x": "x", "{i}": "7", "a{i}b": "a7b", "{i}{i}": "77", "{{i}}": "{i}", "{{{i}}}": "{{i}}", "{{i}": "{7", "{i}}": "7}",
		"{ i }": "{ i }", "{i": "{i", "i}": "i}", "{{i}}{i}": "{i}7", "{i}{{i}}": "7{i}", "\xff{i}\xfe": "\xff7\xfe", "${i}": "$7",
	} {
		if got := withIndex(arg, 7); got != want {
			t.Errorf("withIndex(%q, 7) = %q, want %q", arg, got, want)
		}
	}
}

// What has been escaped comes out as it was.
func FuzzWithIndex(f *testing.F) {
	for _, s := range []string{"", "{i}", "a{i}b", "{i}{i}", "{x{i}x}", "\xff{i}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "{{") || strings.Contains(s, "}}") {
			return // cannot be told from an escape
		}
		if got := withIndex(strings.ReplaceAll(s, "{i}", "{{i}}"), 3); got != s && !strings.Contains(s, "{{i}") {
			t.Errorf("%q came back as %q", s, got)
		}
		if got := withIndex(s, 3); strings.Contains(got, "{i}") {
			t.Errorf("withIndex(%q, 3) = %q", s, got)
		}
	})
}

// pieces notes each write.
type pieces struct {
	mu   sync.Mutex
	list []string
}

func (p *pieces) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, string(b))
	return len(b), nil
}

// Lines are written whole, by one write each, in the order of each variant.
func TestPrefixerNeverTearsLines(t *testing.T) {
	t.Parallel()
	var out, errs pieces
	p := newPrefixer(&out, &errs)
	var all sync.WaitGroup
	const variants, lines = 8, 200
	for i := range variants {
		all.Go(func() {
			var text strings.Builder
			for n := range lines {
				fmt.Fprintf(&text, "line %d of %d %s\n", n, i+1, strings.Repeat("x", n))
			}
			rest := text.String()
			for len(rest) > 0 {
				n := min(len(rest), 1+i*7)
				p.write(i+1, 1, []byte(rest[:n]))
				rest = rest[n:]
			}
			p.write(i+1, 2, []byte("no end"))
		})
	}
	all.Wait()
	p.end()
	next := map[int]int{}
	for _, line := range out.list {
		var prefix, n, of int
		var x string
		if _, err := fmt.Sscanf(line, "[%d] line %d of %d %s\n", &prefix, &n, &of, &x); err != nil && n > 0 || prefix != of {
			t.Fatalf("torn: %q", line)
		}
		if n != next[of] || len(x) != n {
			t.Fatalf("variant %d: line %d came as number %d: %q", of, n, next[of], line)
		}
		next[of]++
	}
	if len(out.list) != variants*lines {
		t.Errorf("%d lines, want %d", len(out.list), variants*lines)
	}
	slices.Sort(errs.list)
	if len(errs.list) != variants || errs.list[2] != "[3] no end\n" {
		t.Errorf("stderr: %q", errs.list)
	}
}

// A line without end is printed in pieces, and nothing of it is lost.
func TestPrefixerCutsEndlessLines(t *testing.T) {
	t.Parallel()
	var out pieces
	p := newPrefixer(&out, io.Discard)
	text := bytes.Repeat([]byte("0123456789"), 300_000)
	for chunk := range slices.Chunk(text, 32<<10) {
		p.write(1, 1, chunk)
	}
	if len(out.list) != 2 {
		t.Errorf("%d pieces before the end, want 2", len(out.list))
	}
	p.end()
	var got strings.Builder
	for _, line := range out.list {
		rest, ok := strings.CutPrefix(line, "[1] ")
		if !ok || len(line) > maxLine+1 {
			t.Errorf("a piece of %d bytes begins with %.10q", len(line), line)
		}
		got.WriteString(strings.TrimSuffix(rest, "\n"))
	}
	if got.String() != string(text) {
		t.Errorf("%d bytes came, want %d", got.Len(), len(text))
	}
	p.write(1, 1, []byte("a\n\nb\n"))
	if tail := out.list[len(out.list)-3:]; !slices.Equal(tail, []string{"[1] a\n", "[1] \n", "[1] b\n"}) {
		t.Errorf("empty lines: %q", tail)
	}
}

// The board shows the last line with something in it, and nothing that a
// terminal obeys (H24).
func TestBoardRow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ written, want string }{
		{"one\ntwo\n", "two"},
		{"one\ntw", "tw"},
		{"one\n\n  \n", "one"},
		{"10 %\r20 %\r", "20 %"},
		{"\x1b[31mred\x1b[0m\n", "red"},
		{"\x1b]0;title\x07x\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\\n", "xlink"},
		{"a\x1b[2Jb\x1b", "ab"},
		{"a\u202eb\x9b31m\n", `a\342\200\256b\23331m`},
	} {
		var whole, bytewise boardRow
		whole.add([]byte(tt.written))
		for i := range len(tt.written) {
			bytewise.add([]byte{tt.written[i]})
		}
		if whole.last != tt.want || bytewise.last != tt.want {
			t.Errorf("%q shows %q, bytewise %q, want %q", tt.written, whole.last, bytewise.last, tt.want)
		}
	}
}

// On a terminal there is a board while it runs, which is gone at the end; then
// what the winner wrote, then the summary.
func TestRaceBoard(t *testing.T) {
	t.Parallel()
	p, proj := tryOn(t, nil, "-n", "3", "--race", "sh", "-c",
		`echo "step {i}"; [ {i} = 1 ] && exit 3; sleep 0.5; [ {i} = 3 ] && sleep 100; echo "done by {i}"; echo x >f{i}`)
	p.wait("1  failed", 1)
	p.wait("2  running", 2)
	p.wait("s  step 3", 1)
	p.wait("committed: variant 2 was the first to succeed", 1)
	p.decided("0 <nil>")
	screen := p.screen()
	end := strings.LastIndex(screen, "\x1b[3A\r\x1b[J")
	if end < 0 {
		t.Fatalf("the board was never taken away: %q", screen)
	}
	after := screen[end+len("\x1b[3A\r\x1b[J"):]
	if !strings.HasPrefix(after, "step 2\r\ndone by 2\r\ntry: changes in branch ") || strings.Contains(after, "step 3") {
		t.Errorf("after the board: %q", after)
	}
	if n := strings.Count(screen, "\x1b[?7l"); n != strings.Count(screen, "\x1b[?7h") {
		t.Errorf("the margin was left off: %q", screen)
	}
	if got := content(t, proj, "f2"); got != "x\n" {
		t.Errorf("f2 holds %q", got)
	}
}

// The terminal is not the variants': they cannot draw on the board.
func TestRaceHasNoTerminal(t *testing.T) {
	t.Parallel()
	p, proj := tryOn(t, nil, "-n", "2", "--race", "sh", "-c", `tty >f; (echo ESCAPED >/dev/tty) 2>&1; [ ! -t 0 ] && [ ! -t 1 ]`)
	p.wait("committed", 1)
	p.decided("0 <nil>")
	if strings.Contains(strings.ReplaceAll(p.screen(), "echo ESCAPED", ""), "ESCAPED") {
		t.Errorf("written to the terminal: %q", p.screen())
	}
	if got := content(t, proj, "f"); got != "not a tty\n" {
		t.Errorf("tty says %q", got)
	}
}

// --ask asks about the winner, after its output.
func TestRaceAsks(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{"c\n": "x\n", "a\n": ""} {
		p, proj := tryOn(t, honest, "--ask", "--race", "-c", "sleep 100", "-c", "echo hello; echo x >f")
		p.wait("hello", 1)
		p.wait(prompt, 1)
		p.send(answer)
		p.decided("0 <nil>")
		if got := content(t, proj, "f"); got != want {
			t.Errorf("after %q f holds %q", answer, got)
		}
	}
}

// Ctrl-C from the keyboard reaches all, traps or not: nothing is committed.
func TestRaceKeyboard(t *testing.T) {
	t.Parallel()
	p, proj := tryOn(t, nil, "-n", "3", "--race", "sh", "-c", `trap "exit 0" INT; echo up >f; echo up; while :; do sleep 0.05; done`)
	p.wait("s  up", 3)
	p.send("\x03")
	p.wait("dropped: stopped by SIGINT", 1)
	p.decided("130 exit status 130")
	if got := content(t, proj, "f"); got != "" {
		t.Errorf("f holds %q", got)
	}
}
