package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"

	"try/supervisor"
)

// changesCmd is `try changes`.
type changesCmd struct {
	Name branchArg `arg:"" optional:"" help:"Branch; none: the only or newest one of this directory."`
	JSON bool      `name:"json" help:"Print one document, with the same roots as that of a run."`
	Diff bool      `short:"d" help:"Print the changes in full."`
}

// Help is printed by `try changes --help`.
func (*changesCmd) Help() string {
	return `One line for each change: A added, M modified, D deleted, T of another type,
m other metadata (mode, owner, attributes), t only touched. Names that could
be misread are escaped in quotes, as git does. The counts come last.
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
