package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"

	"try/fs/changes"
	"try/supervisor"
	"try/supervisor/printable"
)

// changesCmd is `try changes`.
type changesCmd struct {
	Name branchArg `arg:"" optional:"" help:"Branch; none: the only or newest one of this directory."`
	JSON bool      `name:"json" help:"Print one document, with the same roots as that of a run."`
	Diff bool      `short:"d" help:"Print the changes in full."`

	Against branchArg `placeholder:"BRANCH" help:"Compare the two branches: list what they did not change alike."`
}

// Help is printed by `try changes --help`.
func (*changesCmd) Help() string {
	return `One line for each change: A added, M modified, D deleted, T of another type,
m other metadata (mode, owner, attributes), t only touched. Names that could
be misread are escaped in quotes, as git does. The counts come last.

With --against two letters stand before a path: what this branch did to it,
and what the other one did; a dot where one did nothing.
`
}

// Run lists the changes on stdout.
func (c *changesCmd) Run(p *program) (err error) {
	home, name, err := openPicked(c.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	ui := newTerminal(p, style{})
	if c.Against != "" {
		other, err := home.Pick(string(c.Against))
		if err != nil {
			return err
		}
		return c.compare(p, home, name, other, ui)
	}
	return home.Changes(context.Background(), name, ui, func(r *supervisor.Result) error {
		for _, warning := range r.Warnings {
			ui.Warn(warning)
		}
		switch {
		case c.JSON:
			return writeChanges(p.stdout, r)
		case c.Diff:
			return writeDiff(p.stdout, r)
		}
		return listChanges(p, r)
	})
}

// compare lists what two branches did not change alike.
func (c *changesCmd) compare(p *program, home *supervisor.Home, name, other string, ui *terminal) error {
	list, alike, err := home.Compare(context.Background(), name, other, ui)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeComparison(p.stdout, name, other, list, alike)
	}
	b := bufio.NewWriter(p.stdout)
	both := 0
	for _, d := range list {
		letters := []byte("..")
		for i, ch := range []*changes.Change{d.First, d.Other} {
			if ch != nil {
				letters[i] = ch.Kind.Letter()
			}
		}
		if d.First != nil && d.Other != nil {
			both++
		}
		fmt.Fprintf(b, "%s %s\n", letters, printable.Name(fromHere(d.Path)))
	}
	fmt.Fprintf(b, "%s: %s differently by both; %s alike\n", plural(len(list), "path"), thousands(both), thousands(alike))
	return b.Flush()
}

// fromHere writes a path as the user would type it here.
func fromHere(full string) string {
	if cwd, err := os.Getwd(); err == nil && cwd != "" {
		if rest, ok := below(full, cwd); ok {
			return rest
		}
	}
	return shortHome(full)
}

// listChanges prints one line each, paths as the user would type them here.
func listChanges(p *program, r *supervisor.Result) error {
	color := p.global.colors(p.stdout)
	cwd, err := os.Getwd()
	if err != nil {
		cwd = "" // gone: no path lies below it
	}
	b := bufio.NewWriter(p.stdout)
	for _, g := range groups(r) {
		for i := range g.entries {
			e := &g.entries[i]
			full := joinRoot(g.path, e.path)
			if rest, ok := below(full, cwd); ok && cwd != "" {
				full = rest
			} else {
				full = shortHome(full)
			}
			fmt.Fprintln(b, paint(color, colorOf(e.Kind), e.line(full)))
		}
	}
	if r.Plan == nil || r.Plan.Empty() {
		fmt.Fprintln(b, "no changes")
	} else {
		fmt.Fprintln(b, counted(r.Plan.Counts()))
	}
	return b.Flush()
}

// openPicked opens the store and finds the branch that a word is about.
func openPicked(name branchArg) (*supervisor.Home, string, error) {
	home, err := supervisor.OpenHome()
	if err != nil {
		return nil, "", err
	}
	picked, err := home.Pick(string(name))
	if err != nil {
		return nil, "", errors.Join(err, home.Close())
	}
	return home, picked, nil
}

// openForced is openPicked, and takes over a branch of another machine if force
// is set.
func openForced(name branchArg, force bool) (*supervisor.Home, string, error) {
	home, picked, err := openPicked(name)
	if err == nil && force {
		if err = home.Adopt(picked); err != nil {
			err = errors.Join(err, home.Close())
		}
	}
	return home, picked, err
}
