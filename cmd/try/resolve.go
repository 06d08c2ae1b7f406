package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/sys"
	"try/supervisor"
	"try/supervisor/printable"
)

// decisions lists the globs of --ours, --theirs, --merge and --skip in the order
// of the command line, which the parser does not keep between flags: the first
// that matches counts.
func decisions(args []string, globs map[string][]raw) []supervisor.Decision {
	hows := map[string]supervisor.How{
		"ours": supervisor.Ours, "theirs": supervisor.Theirs, "merge": supervisor.Merge, "skip": supervisor.Skip,
	}
	var list []supervisor.Decision
	for i := 0; i < len(args); i++ {
		name, _, whole := strings.Cut(strings.TrimPrefix(args[i], "--"), "=")
		how, ok := hows[name]
		if !ok || !strings.HasPrefix(args[i], "--") || len(globs[name]) == 0 {
			continue
		}
		list = append(list, supervisor.Decision{How: how, Glob: string(globs[name][0])})
		globs[name] = globs[name][1:]
		if !whole {
			i++
		}
	}
	return list
}

const resolveHelp = `  o, ours     the base stays; the branch's change is dropped
  t, theirs   the branch's change is committed
  m, merge    a text with the changes of both is committed; where both changed
              the same lines it gets conflict markers, and nothing is committed
  s, skip     it is not committed now and stays in the branch
  d, diff     show how the branch differs from the base
  O, T, M, S  the same for this one and all that follow
  end of input leaves everything as it is
`

// Resolve asks about conflicts, one after the other; it is part of
// [supervisor.Resolver].
func (t *terminal) Resolve(r *supervisor.Result, list []supervisor.Dispute) (answers []supervisor.How, err error) {
	tty, err := openTTY()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tty.close()) }()
	answers = make([]supervisor.How, len(list))
	err = tty.watched(func(interrupted <-chan struct{}) error {
		all := supervisor.Undecided
		for i := range list {
			d := &list[i]
			if all != supervisor.Undecided && (all != supervisor.Merge || d.NoMerge == "") {
				answers[i] = all
				continue
			}
			dispute(tty.f, d)
			how, rest, err := tty.resolve(r, d, interrupted)
			if isEnd(err) {
				tty.print("\n")
				clear(answers)
				return nil
			}
			if err != nil {
				return fmt.Errorf("ask on the terminal: %w", err)
			}
			if answers[i] = how; rest {
				all = how
			}
		}
		return nil
	})
	return answers, err
}

// resolve asks about one conflict until a line is exactly one of the choices.
func (t *tty) resolve(r *supervisor.Result, d *supervisor.Dispute, interrupted <-chan struct{}) (how supervisor.How, rest bool, err error) {
	name := printable.Name(shortHome(d.At()))
	choices := map[string]supervisor.How{"o": supervisor.Ours, "t": supervisor.Theirs, "s": supervisor.Skip}
	offer := "[o]urs [t]heirs [s]kip [d]iff"
	if d.NoMerge == "" {
		choices["m"], offer = supervisor.Merge, "[o]urs [t]heirs [m]erge [s]kip [d]iff"
	}
	for letter, how := range choices {
		choices[how.String()] = how
		choices[strings.ToUpper(letter)] = how
	}
	for {
		line, err := t.question(name+": "+offer+", a capital for all the rest, ? for help: ", interrupted)
		if err != nil {
			return 0, false, err
		}
		if how, ok := choices[line]; ok {
			return how, len(line) == 1 && line == strings.ToUpper(line), nil
		}
		switch line {
		case "d", "diff":
			if err := page(only(r, d)); err != nil {
				t.print("try: " + strings.ReplaceAll(err.Error(), "\n", " ") + "\n")
			}
		case "?", "h", "help":
			t.print(resolveHelp)
		case "m", "M", "merge":
			t.print("try: it cannot be merged: " + printable.Text(d.NoMerge) + "\n")
		case "":
		default:
			t.slow = t.slow || strings.Contains(line, "\x1b")
			t.print("try: that is none of the choices\n")
		}
	}
}

// only is r with the changes at and below a conflict alone.
func only(r *supervisor.Result, d *supervisor.Dispute) *supervisor.Result {
	one := *r
	plan := *r.Plan
	plan.Roots = nil
	for _, root := range r.Plan.Roots {
		if root.Root.Path != d.Root {
			continue
		}
		root.Changes = slices.DeleteFunc(slices.Clone(root.Changes), func(c changes.Change) bool {
			path := c.Path()
			_, in := below(path, d.Path)
			return path != d.Path && !in && d.Path != ""
		})
		plan.Roots = append(plan.Roots, root)
	}
	one.Plan = &plan
	return &one
}

// dispute says who changed what.
func dispute(w io.Writer, d *supervisor.Dispute) {
	say(w, "conflict: %s: %s", printable.Name(shortHome(d.At())), d.Reason)
	switch {
	case d.Then == nil:
	case d.Then.Absent:
		say(w, "  base then: not there")
	default:
		say(w, "  base then: %s", sideText(d.Then.ID.Type, d.Then.Size, d.Then.Mtime))
	}
	c := d.Change
	if c == nil {
		return
	}
	say(w, "  base now:  %s", statText(c.Base))
	say(w, "  branch:    %s, %s", c.Kind, statText(c.Layer))
	if d.NoMerge == "" && d.TwoWay {
		say(w, "  what the base held when the branch was made is not known: a merge sets both versions beside one another")
	}
}

func statText(s *sys.Stat) string {
	if s == nil {
		return "not there"
	}
	return sideText(s.Type(), s.Size, s.Mtime)
}

func sideText(kind uint32, size int64, mtime sys.Time) string {
	name := "device"
	switch kind {
	case unix.S_IFREG:
		name = "file, " + humanBytes(size)
	case unix.S_IFDIR:
		name = "directory"
	case unix.S_IFLNK:
		name = "link"
	case unix.S_IFIFO:
		name = "fifo"
	}
	if mtime == 0 {
		return name
	}
	return name + ", " + time.Unix(0, int64(mtime)).Format("2006-01-02 15:04:05")
}

// Edit opens a text in the user's editor, as git does; it is part of
// [supervisor.Resolver]. The editor works on a copy: the branch gets what it
// leaves there.
func (t *terminal) Edit(path string, text []byte) (edited []byte, err error) {
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"))
	if editor == "" {
		return nil, errors.New("neither VISUAL nor EDITOR says which editor to use")
	}
	dir, err := os.MkdirTemp("", "try-edit-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	name := filepath.Join(dir, filepath.Base(path)) // its ending tells the editor the language
	if err := os.WriteFile(name, text, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command("sh", "-c", editor+` "$@"`, editor, name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, t.p.stderr, t.p.stderr
	if isTerminal(t.p.stdout) {
		cmd.Stdout = t.p.stdout
	}
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("editor %s: %w", printable.Text(editor), err)
	}
	edited, err = os.ReadFile(name)
	if err == nil && bytes.IndexByte(edited, 0) >= 0 {
		err = errors.New("what the editor left is no text")
	}
	return edited, err
}
