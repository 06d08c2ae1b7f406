package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"try/fs/branch"
	"try/fs/changes"
	"try/supervisor"
	"try/supervisor/printable"
)

// branchesCmd is `try branches`.
type branchesCmd struct {
	JSON bool `name:"json" help:"Print an array with one object for each branch."`
}

// Help is printed by `try branches --help`.
func (*branchesCmd) Help() string {
	return `States: running; kept; interrupted (its try died, the changes are there);
damaged (the machine went down before they were written to disk, see
try commit --damaged); committing (try recover finishes it).
`
}

// branchRow is one branch with what it changed; nil if that is not known.
type branchRow struct {
	branch.Info
	changes *changes.Counts
	err     error // why the changes are not known
}

// Run lists the branches.
func (c *branchesCmd) Run(p *program) (err error) {
	home, err := supervisor.OpenHome()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	infos, err := home.Branches()
	if err != nil {
		return err
	}
	ui := newTerminal(p, style{})
	var rows []branchRow
	for _, info := range infos {
		row := branchRow{Info: info, err: info.Err}
		switch info.State {
		case branch.Kept, branch.Interrupted, branch.Damaged:
			if row.err == nil {
				row.changes, row.err = changesOf(home, info.Name, ui)
			}
		}
		rows = append(rows, row)
	}
	if c.JSON {
		err = writeBranches(p, rows)
	} else {
		err = listBranches(p, rows)
	}
	for _, row := range rows {
		if row.err != nil && !errors.Is(row.err, branch.ErrLocked) {
			say(p.stderr, "branch %s: %v", cmp.Or(row.Name, row.ID), row.err)
		}
	}
	return err
}

// changesOf counts what a branch changed.
func changesOf(home *supervisor.Home, name string, ui supervisor.UI) (*changes.Counts, error) {
	var counts *changes.Counts
	err := home.Changes(context.Background(), name, ui, func(r *supervisor.Result) error {
		c := r.Plan.Counts()
		counts = &c
		return nil
	})
	return counts, err
}

// listBranches prints a table.
func listBranches(p *program, rows []branchRow) error {
	if len(rows) == 0 {
		say(p.stderr, "no branches")
		return nil
	}
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATE\tAGE\tCHANGES\tSIZE\tROOT\tCOMMAND")
	for _, row := range rows {
		changed, size := "-", "-"
		if row.changes != nil {
			changed, size = thousands(row.changes.Total()), humanBytes(row.changes.Bytes)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable.Name(cmp.Or(row.Name, row.ID)), row.State,
			age(time.Since(row.Created)), changed, size, printable.Name(shortHome(row.Dir)), shorten(printable.Words(row.Command)))
	}
	return w.Flush()
}

// age is a duration in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// shorten keeps a table's last column on its line.
func shorten(s string) string {
	const most = 60
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	return string(runes[:most-1]) + "…"
}

// writeBranches prints the array of `try branches --json`.
func writeBranches(p *program, rows []branchRow) error {
	j := newJSON(p.stdout)
	j.nested("[", "]", func() {
		for _, row := range rows {
			j.element(func() {
				j.optional("name", row.Name)
				j.text("id", row.ID)
				j.text("state", row.State.String())
				j.optional("cwd", row.Dir)
				j.texts("command", row.Command)
				j.time("created", row.Created)
				j.optional("engine", row.Engine)
				if row.changes == nil {
					j.null("changes")
					j.null("bytes")
				} else {
					j.number("changes", int64(row.changes.Total()))
					j.number("bytes", row.changes.Bytes)
				}
				j.optional("parent", row.Parent)
			})
		}
	})
	return j.flush()
}
