package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"try/fs/changes"
	"try/supervisor"
	"try/supervisor/printable"
)

// style says how results are shown.
type style struct {
	summary string // "auto" or empty, "full", "none"
	color   bool
}

const (
	// foldAbove is how many entries a new or removed directory may hold before
	// the summary names it alone, with counts.
	foldAbove = 9
	// linesAbove is how many lines of one root the summary prints before it
	// leaves out additions and modifications.
	linesAbove = 100
	// fewElsewhere is how many changes outside of the root that holds the
	// working directory are listed one by one: who looks for what went where it
	// was not meant to finds it.
	fewElsewhere = 20
)

// summarize prints what a branch changed, grouped by root, counts last.
func summarize(w io.Writer, r *supervisor.Result, s style) {
	all := groups(r)
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "try: changes in branch %s\n", printable.Name(r.Branch))
	for _, g := range all {
		fmt.Fprintln(w, paint(s.color, bold, printable.Name(shortHome(g.path))))
		lines := g.fold(s.summary == "full", !g.holds(r.Dir) && len(g.entries) <= fewElsewhere)
		hidden := 0
		for i, l := range lines {
			if s.summary != "full" && i >= linesAbove && !l.pinned {
				hidden++
				continue
			}
			fmt.Fprintln(w, "  "+paint(s.color, colorOf(l.kind), l.text))
		}
		if hidden > 0 {
			fmt.Fprintf(w, "  … and %s more, all additions and modifications (--summary=full lists them)\n", thousands(hidden))
		}
	}
	fmt.Fprintln(w, counted(r.Plan.Counts()))
}

// line is one line of a summary. Pinned lines are always printed.
type line struct {
	text   string
	kind   changes.Kind
	pinned bool
}

// fold gives the lines of a group: a large directory that is new, or gone, is
// one line with counts, and what carries a note follows it all the same (H25).
// What was only touched is counted, not listed. each: nothing is folded.
func (g group) fold(full, each bool) []line {
	var lines []line
	show := func(e *entry) {
		lines = append(lines, line{e.line(e.path), e.Kind, e.note != "" || e.Kind == changes.Deleted || e.Kind == changes.Replaced})
	}
	for i := 0; i < len(g.entries); i++ {
		e := &g.entries[i]
		if e.Kind == changes.Touched && !full {
			continue
		}
		end := i + 1
		for end < len(g.entries) && (e.path == "." || strings.HasPrefix(g.entries[end].path, e.path+"/")) {
			end++
		}
		whole := e.Type == changes.Dir && (e.Kind == changes.Added || e.Kind == changes.Deleted)
		if full || each || !whole || end-i-1 <= foldAbove {
			show(e)
			continue
		}
		inside := g.entries[i+1 : end]
		lines = append(lines, line{e.line(e.path) + "  " + contents(inside), e.Kind, true})
		for j := range inside {
			if inside[j].note != "" {
				show(&inside[j])
			}
		}
		i = end - 1
	}
	return lines
}

// holds says whether a directory lies in the group's root.
func (g group) holds(dir string) bool {
	_, ok := below(dir, g.path)
	return ok
}

// contents says in a few words what a folded directory holds, and how many of
// its entries deserve a look.
func contents(inside []entry) string {
	var files, dirs, links, others, executable, hidden int
	var bytes int64
	for i := range inside {
		e := &inside[i]
		stat := e.Layer
		if e.Kind == changes.Deleted {
			stat = e.Base
		}
		switch e.Type {
		case changes.File:
			files++
			if stat != nil {
				bytes += stat.Size
				if stat.Mode&0o111 != 0 {
					executable++
				}
			}
		case changes.Dir:
			dirs++
		case changes.Symlink:
			links++
		default:
			others++
		}
		if strings.HasPrefix(filepath.Base(e.path), ".") {
			hidden++
		}
	}
	list := []string{plural(files, "file")}
	for _, n := range []struct {
		count int
		text  string
	}{
		{dirs, pluralWord(dirs, "directory", "directories")},
		{links, pluralWord(links, "link", "links")},
		{others, pluralWord(others, "other", "others")},
		{executable, "executable"},
		{hidden, "hidden"},
	} {
		if n.count > 0 {
			list = append(list, thousands(n.count)+" "+n.text)
		}
	}
	return strings.Join(append(list, humanBytes(bytes)), ", ")
}

// fields says which metadata differ; attributes by name, since their values
// are anything.
func (e *entry) fields() string {
	if e.Kind != changes.Metadata || e.Fields == nil || e.Base == nil || e.Layer == nil {
		return ""
	}
	var list []string
	if e.Fields.Mode {
		list = append(list, fmt.Sprintf("mode %04o to %04o", e.Base.Perm(), e.Layer.Perm()))
	}
	if e.Fields.Owner {
		list = append(list, fmt.Sprintf("owner %d:%d to %d:%d", e.Base.UID, e.Base.GID, e.Layer.UID, e.Layer.GID))
	}
	for _, x := range e.Fields.Xattrs {
		list = append(list, printable.Name(x.Name))
	}
	return strings.Join(list, ", ")
}

// aftermath prints what else there is to know of a run: what got out, what was
// ended, what was left out, where the base moved.
func aftermath(w io.Writer, r *supervisor.Result) {
	for _, door := range r.Passed {
		say(w, "let through: %s", door)
	}
	if len(r.Killed) > 0 {
		var names []string
		for _, p := range r.Killed {
			names = append(names, fmt.Sprintf("%s (%d)", printable.Name(p.Command), p.PID))
		}
		say(w, "ended %s left by the command: %s", plural(len(names), "process"), strings.Join(names, ", "))
	}
	for _, path := range r.Dropped {
		say(w, "left out: %s", path)
	}
}

// plural counts regular English nouns.
func plural(n int, noun string) string {
	many := noun + "s"
	if strings.HasSuffix(noun, "s") || strings.HasSuffix(noun, "ch") {
		many = noun + "es"
	}
	return thousands(n) + " " + pluralWord(n, noun, many)
}

func pluralWord(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// shortHome writes a path below HOME with a tilde.
func shortHome(path string) string {
	home := os.Getenv("HOME")
	if !filepath.IsAbs(home) || home == "/" {
		return path
	}
	if rest, ok := below(path, filepath.Clean(home)); ok {
		if rest == "." {
			return "~"
		}
		return "~/" + rest
	}
	return path
}

// The few colours there are.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// paint colours a text, which is printable already.
func paint(on bool, code, text string) string {
	if !on || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func colorOf(k changes.Kind) string {
	switch k {
	case changes.Added:
		return green
	case changes.Deleted, changes.Replaced:
		return red
	case changes.Modified:
		return yellow
	case changes.Metadata, changes.Touched:
		return cyan
	}
	panic("unknown kind of change " + k.String())
}
