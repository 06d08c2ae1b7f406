package supervisor

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// TestLogKeepsHeadAndTail: a log of an output without end stays at its size,
// holds the head and the tail, and says what is lost (H29).
func TestLogKeepsHeadAndTail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		lines int // of 1 MiB
		lost  int64
	}{
		{"short", 3, 0},
		{"head and a piece", 40, 0},
		{"head and two pieces", 60, 0},
		{"one piece lost", 64 + 2, 15},
		{"many", 150, 15 * 6}, // a record has a head of its own: 15 go into a piece, and 31 into the first
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l, err := createLog(dir)
			if err != nil {
				t.Fatal(err)
			}
			line := bytes.Repeat([]byte("x"), 1<<20)
			for i := range c.lines {
				copy(line, fmt.Sprintf("\n%d ", i))
				l.write(1+i%2, line)
			}
			size := int64(0)
			for _, name := range pieces(l.path) {
				if info, err := os.Stat(name); err == nil {
					size += info.Size()
				}
			}
			if size > logHead+2*logPiece {
				t.Errorf("the log has %d bytes, more than %d", size, logHead+2*logPiece)
			}
			opened, err := openLog(dir)
			if err != nil {
				t.Fatal(err)
			}
			for how, replay := range map[string]func(stdout, stderr io.Writer) error{"live": l.replay, "later": opened.Replay} {
				var out bytes.Buffer
				if err := replay(&out, &out); err != nil {
					t.Fatal(err)
				}
				text := strings.ReplaceAll(out.String(), "x", "")
				said := int64(0)
				if _, rest, ok := strings.Cut(text, "try: "); ok {
					if _, err := fmt.Sscan(rest, &said); err != nil {
						t.Fatal(err)
					}
				}
				held := int64(strings.Count(text, "\n"))
				if said > 0 {
					held-- // the line that says so
				}
				if said != c.lost<<20 || held+c.lost != int64(c.lines) || !strings.HasPrefix(text, "\n0 \n1 ") || !strings.HasSuffix(text, fmt.Sprintf("\n%d ", c.lines-1)) {
					t.Errorf("%s: %d bytes are said to be lost, want %d; %d of %d lines are held", how, said, c.lost<<20, held, c.lines)
				}
			}
			if err := opened.Close(); err != nil {
				t.Error(err)
			}
			l.close()
		})
	}
}
