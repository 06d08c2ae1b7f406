package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/commit"
	"try/supervisor"
	"try/supervisor/printable"
)

// undoFlags are those of `try undo` and `try redo`.
type undoFlags struct {
	Name    branchArg `arg:"" optional:"" help:"Commit, by the name of its branch; none: the last one that changed something below this directory."`
	Partial bool      `help:"Leave what was changed since, and turn the rest."`
	Quiet   bool      `short:"q" help:"Print no summary."`
	JSON    bool      `name:"json" help:"Print one result document on stdout."`
}

// undoCmd is `try undo`.
type undoCmd struct {
	undoFlags
	List bool `help:"List the commits that can be undone or redone, newest first."`
}

// Help is printed by `try undo --help`.
func (*undoCmd) Help() string {
	return `Every path that the commit changed is as it was before: content, mode, owner,
times, attributes. All of it, or none. A path that was changed since is a
conflict: every one is named, and nothing is touched; --partial undoes the
rest. A second try undo goes one commit further back.

examples:
  try undo                    undo the last commit below this directory
  try undo --list             what there is to undo
  try undo calm-otter         undo the commit of this branch
  try undo --partial          leave what was changed since

The policy says how long commits can be undone ([undo] keep, max_bytes,
max_count; try policy show).
`
}

// Run undoes a commit, or lists them.
func (c *undoCmd) Run(p *program) error {
	if c.List {
		if c.Name != "" || c.Partial {
			return &usageError{err: errors.New("--list takes neither a name nor --partial"), word: "undo"}
		}
		return c.list(p)
	}
	return c.turn(p, false)
}

// redoCmd is `try redo`.
type redoCmd struct{ undoFlags }

// Help is printed by `try redo --help`.
func (*redoCmd) Help() string {
	return `What try undo took back comes again, as it was committed. It can until
something else is committed below this directory.

examples:
  try redo                    redo what was undone last below this directory
  try redo calm-otter         redo the commit of this branch
`
}

// Run redoes a commit.
func (c *redoCmd) Run(p *program) error { return c.turn(p, true) }

func (c *undoFlags) turn(p *program, redo bool) (err error) {
	home, err := supervisor.OpenHome()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	ui := newTerminal(p, quiet(c.Quiet))
	late := catchLate()
	u, err := home.Undo(context.Background(), string(c.Name), supervisor.UndoOptions{Redo: redo, Partial: c.Partial}, ui)
	if err != nil {
		return err
	}
	p.status = statusOfUndone(u, c.Partial)
	late.exit(p.status)
	ui.endProgress()
	p.undone(u, ui)
	if c.JSON {
		return writeUndone(p, u)
	}
	return nil
}

// statusOfUndone is 0 if something was done, 1 if --partial left all of it.
func statusOfUndone(u *supervisor.Undone, partial bool) int {
	switch {
	case u.Err == nil:
		return 0
	case partial && len(u.Left) > 0 && !errors.Is(u.Err, commit.ErrUnfinished):
		return statusNo
	}
	return statusFailed
}

// undone says what became of it.
func (p *program) undone(u *supervisor.Undone, t *terminal) {
	if u.Err != nil {
		word := "undo"
		if u.Redo {
			word = "redo"
		}
		if len(u.Left) == 0 {
			p.complain(u.Err)
			return
		}
		p.complain(fmt.Errorf("cannot %s the commit of %s: nothing was touched", word, u.Branch))
		listLeft(t, u.Left)
		p.hint("try " + word + " --partial " + u.Branch + " leaves these and turns the rest")
		return
	}
	if t.style.summary != "none" {
		for _, r := range rootsOf(u.Done) {
			fmt.Fprintln(p.stderr, paint(p.color, bold, printable.Name(shortHome(r.path))))
			for i := range r.changes {
				c := &r.changes[i]
				if i >= linesAbove {
					fmt.Fprintf(p.stderr, "  … and %s more\n", thousands(len(r.changes)-i))
					break
				}
				fmt.Fprintln(p.stderr, "  "+paint(p.color, colorOf(c.Kind), lineOf(c)))
			}
		}
		fmt.Fprintln(p.stderr, counted(countsOf(u.Done)))
	}
	if len(u.Left) > 0 { // said even if no summary is wanted
		listLeft(t, u.Left)
	}
	if t.style.summary == "none" {
		return
	}
	word, back := "undone", "redo"
	if u.Redo {
		word, back = "redone", "undo"
	}
	say(p.stderr, "%s: %s", word, describeRecord(&u.Record))
	t.hintBack("try " + back + " " + u.Branch)
}

// hintBack says on a terminal how to turn what was just done.
func (t *terminal) hintBack(command string) {
	if isTerminal(t.p.stderr) {
		t.p.hint(command + " takes it back")
	}
}

func listLeft(t *terminal, left []commit.Conflict) {
	for _, c := range left {
		say(t.p.stderr, "left: %s: %s", printable.Name(shortHome(joinRoot(c.Root, c.Path))), c.Reason)
	}
}

// describeRecord names a commit in a message.
func describeRecord(r *supervisor.Record) string {
	return fmt.Sprintf("%s, %s ago: %s", r.Branch, age(time.Since(r.Committed)), shorten(printable.Words(r.Command)))
}

// list is `try undo --list`.
func (c *undoCmd) list(p *program) (err error) {
	home, err := supervisor.OpenHome()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	list, err := home.Records()
	if err != nil {
		return err
	}
	if c.JSON {
		return writeRecords(p, list)
	}
	if len(list) == 0 {
		say(p.stderr, "no commits to undo")
		return nil
	}
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATE\tAGE\tCHANGES\tSIZE\tROOT\tCOMMAND")
	for i := range list {
		r := &list[i]
		counts := countsOf(r.Changes)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable.Name(cmp.Or(r.Branch, r.ID)), r.State,
			age(time.Since(r.Committed)), thousands(counts.Total()), humanBytes(r.Bytes),
			printable.Name(shortHome(r.Dir)), shorten(printable.Words(r.Command)))
	}
	err = w.Flush()
	for i := range list {
		if r := &list[i]; r.Kept != "" {
			say(p.stderr, "%s is kept however old it is: %s", printable.Name(r.Branch), r.Kept)
		} else if r.Err != nil {
			say(p.stderr, "%s: %v", printable.Name(cmp.Or(r.Branch, r.ID)), r.Err)
		}
	}
	return err
}

// rootChanges are the changes of one root, in the order of their paths.
type rootChanges struct {
	path    string
	changes []commit.Change
}

func rootsOf(list []commit.Change) []rootChanges {
	var all []rootChanges
	for _, c := range list {
		i := slices.IndexFunc(all, func(r rootChanges) bool { return r.path == c.Root })
		if i < 0 {
			i = len(all)
			all = append(all, rootChanges{path: c.Root})
		}
		all[i].changes = append(all[i].changes, c)
	}
	for _, r := range all {
		slices.SortFunc(r.changes, func(a, b commit.Change) int { return comparePaths(a.Path, b.Path) })
	}
	slices.SortFunc(all, func(a, b rootChanges) int { return comparePaths(a.path, b.path) })
	return all
}

func lineOf(c *commit.Change) string {
	path := cmp.Or(c.Path, ".")
	if c.Dir() && path != "." {
		path += "/"
	}
	text := string(c.Kind.Letter()) + " " + printable.Name(path)
	if c.Below > 0 && c.Kind != changes.Metadata {
		text += "  with " + thousands(int(c.Below)) + " " + pluralWord(int(c.Below), "entry", "entries")
	}
	return text
}

// countsOf counts changes, with what a directory holds that comes or goes.
func countsOf(list []commit.Change) changes.Counts {
	var n changes.Counts
	for i := range list {
		c := &list[i]
		below := int(c.Below)
		switch c.Kind {
		case changes.Added:
			n.Added += 1 + below
		case changes.Deleted:
			n.Deleted += 1 + below
		case changes.Modified:
			n.Modified++
		case changes.Replaced:
			n.Replaced++
		case changes.Metadata:
			n.Metadata++
		case changes.Touched:
			n.Touched++
		}
		if c.Kind == changes.Added || c.Kind == changes.Modified {
			n.Bytes += c.Size
		}
	}
	return n
}

// writeUndone prints the result document of `try undo` and `try redo`.
func writeUndone(p *program, u *supervisor.Undone) error {
	j := newJSON(p.stdout)
	j.nested("{", "}", func() {
		j.number("version", documentVersion)
		j.bool("redo", u.Redo)
		j.record(&u.Record)
		j.object("changes", func() { j.counts(countsOf(u.Done)) })
		j.list("roots", func() {
			for _, r := range rootsOf(u.Done) {
				j.element(func() {
					j.text("path", r.path)
					j.list("changes", func() {
						for i := range r.changes {
							j.element(func() { j.turned(&r.changes[i]) })
						}
					})
				})
			}
		})
		j.list("conflicts", func() {
			for _, c := range u.Left {
				j.element(func() {
					j.text("path", joinRoot(c.Root, c.Path))
					j.text("reason", c.Reason)
				})
			}
		})
		if u.Err == nil {
			j.null("error")
		} else {
			j.text("error", u.Err.Error())
		}
	})
	return j.flush()
}

// record writes what names a commit.
func (j *jsonWriter) record(r *supervisor.Record) {
	j.optional("branch", r.Branch)
	j.text("id", r.ID)
	j.number("number", int64(r.Number))
	j.texts("command", r.Command)
	j.optional("cwd", r.Dir)
	j.time("committed", r.Committed)
	j.text("state", string(r.State))
}

// turned writes what became of one path.
func (j *jsonWriter) turned(c *commit.Change) {
	j.text("path", cmp.Or(c.Path, "."))
	j.text("kind", c.Kind.String())
	j.text("type", typeOf(c.Type).String())
	j.number("below", int64(c.Below))
}

func typeOf(format uint32) changes.Type {
	switch format {
	case unix.S_IFDIR:
		return changes.Dir
	case unix.S_IFLNK:
		return changes.Symlink
	case unix.S_IFIFO:
		return changes.FIFO
	case unix.S_IFREG:
		return changes.File
	}
	return changes.Device
}

// writeRecords prints the array of `try undo --list --json`.
func writeRecords(p *program, list []supervisor.Record) error {
	j := newJSON(p.stdout)
	j.nested("[", "]", func() {
		for i := range list {
			r := &list[i]
			j.element(func() {
				j.record(r)
				j.object("changes", func() { j.counts(countsOf(r.Changes)) })
				j.number("bytes", r.Bytes)
				j.optional("kept", r.Kept)
				if r.Err == nil {
					j.null("error")
				} else {
					j.text("error", r.Err.Error())
				}
			})
		}
	})
	return j.flush()
}
