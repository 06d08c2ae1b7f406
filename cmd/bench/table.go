package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// table collects rows and prints them; nothing else in this program knows how
// a row looks.
type table struct {
	rows   []row
	failed bool // a row has no figure that should have one
}

type row struct {
	head    string // of a group; then nothing else is set
	name    string
	n       int
	median  string
	spread  string // 10th to 90th percentile
	ratios  []ratio
	missing string // why there is no figure
	note    string
}

// ratio is one comparison, or one absolute limit, with its verdict.
type ratio struct {
	text, goal, verdict string
}

func (t *table) head(format string, args ...any) {
	t.rows = append(t.rows, row{head: fmt.Sprintf(format, args...)})
}

// times adds a row of durations.
func (t *table) times(name string, samples []time.Duration, ratios ...ratio) {
	t.rows = append(t.rows, row{
		name: name, n: len(samples), median: span(median(samples)),
		spread: span(percentile(samples, 10)) + "–" + span(percentile(samples, 90)), ratios: ratios,
	})
}

// value adds a row with one figure that is not a duration.
func (t *table) value(name, text string, n int, ratios ...ratio) {
	t.rows = append(t.rows, row{name: name, n: n, median: text, ratios: ratios})
}

// note adds a line of explanation below the row before it.
func (t *table) note(format string, args ...any) {
	t.rows = append(t.rows, row{note: fmt.Sprintf(format, args...)})
}

// missing adds a row that should have a figure and has none: the run fails.
func (t *table) missing(name, why string) {
	t.failed = true
	t.absent(name, why)
}

// absent adds a row that has no figure on this machine or in this mode.
func (t *table) absent(name, why string) {
	t.rows = append(t.rows, row{name: name, missing: why})
}

// against compares samples that were taken in turn: the ratio is the median of
// those of neighbours, as what slows the machine down for seconds slows both.
// Goal and stretch of 0 are none.
func against(a, b []time.Duration, name string, goal, stretch float64) ratio {
	n := min(len(a), len(b))
	if n == 0 {
		return ratio{}
	}
	q := make([]float64, n)
	for i := range q {
		q[i] = float64(a[i]) / float64(b[i])
	}
	slices.Sort(q)
	return compare((q[(n-1)/2]+q[n/2])/2, 1, name, goal, stretch)
}

func compare(a, b float64, name string, goal, stretch float64) ratio {
	q := a / b
	r := ratio{text: fmt.Sprintf("%.2f × %s", q, name)}
	if goal == 0 {
		return r
	}
	r.goal = fmt.Sprintf("≤ %.2f", goal)
	if stretch > 0 {
		r.goal += fmt.Sprintf(" (%.2f)", stretch)
	}
	switch {
	case stretch > 0 && q <= stretch:
		r.verdict = "met, stretch too"
	case q <= goal:
		r.verdict = "met"
	default:
		r.verdict = "MISSED"
	}
	return r
}

// limit judges a figure against an absolute goal.
func limit(a, goal float64, text, goalText string) ratio {
	r := ratio{text: text, goal: "≤ " + goalText, verdict: "met"}
	if a > goal {
		r.verdict = "MISSED"
	}
	return r
}

var columns = []string{"", "n", "median", "p10–p90", "ratio", "goal", ""}

// print writes the table, columns as wide as their widest cell.
func (t *table) print(w io.Writer) error {
	lines := [][]string{columns}
	for _, r := range t.rows {
		lines = append(lines, r.lines()...)
	}
	width := make([]int, len(columns))
	for _, cells := range lines {
		if len(cells) != len(columns) {
			continue
		}
		for i, c := range cells {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, cells := range lines {
		if len(cells) != len(columns) {
			b.WriteString(cells[0] + "\n")
			continue
		}
		var line strings.Builder
		for i, c := range cells {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i >= 1 && i <= 3 { // figures to the right
				line.WriteString(pad + c + "  ")
			} else {
				line.WriteString(c + pad + "  ")
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// lines is the row as cells; a line of one cell runs through all columns.
func (r row) lines() [][]string {
	switch {
	case r.head != "":
		return [][]string{{""}, {r.head}}
	case r.note != "":
		return [][]string{{"      " + r.note}}
	case r.missing != "":
		return [][]string{{"  " + r.name + ": not had: " + r.missing}}
	}
	first := []string{"  " + r.name, fmt.Sprint(r.n), r.median, r.spread, "", "", ""}
	var more [][]string
	for i, q := range slices.DeleteFunc(slices.Clone(r.ratios), func(q ratio) bool { return q.text == "" }) {
		cells := first
		if i > 0 {
			cells = make([]string, len(columns))
			more = append(more, cells)
		}
		cells[4], cells[5], cells[6] = q.text, q.goal, q.verdict
	}
	return append([][]string{first}, more...)
}

func median(d []time.Duration) time.Duration { return percentile(d, 50) }

// percentile is the sample below which p of 100 lie; 0 of nothing.
func percentile(d []time.Duration, p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(d))
	if p == 50 && len(s)%2 == 0 {
		return (s[len(s)/2-1] + s[len(s)/2]) / 2
	}
	return s[(len(s)-1)*p/100]
}

// span prints a duration with three digits that matter.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + span(-d)
	case d < time.Millisecond:
		return fmt.Sprintf("%.3f ms", float64(d)/1e6)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/1e6)
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
