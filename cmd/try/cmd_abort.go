package main

import "errors"

// abortCmd is `try abort`.
type abortCmd struct {
	Name  branchArg `arg:"" optional:"" help:"Branch; none: the only or newest one of this directory."`
	Force bool      `help:"Take over a branch of another machine that shares the store. Nothing there may use it any more."`
	Quiet bool      `short:"q" help:"Print nothing."`
	JSON  bool      `name:"json" help:"Print one result document on stdout."`
}

// Help is printed by `try abort --help`.
func (*abortCmd) Help() string { return "The branch and all its changes are gone at once.\n" }

// Run drops the branch.
func (c *abortCmd) Run(p *program) (err error) {
	if done, err := c.race(p); done || err != nil {
		return err
	}
	home, name, err := openForced(c.Name, c.Force)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	ui := newTerminal(p, quiet(c.Quiet))
	r, err := home.Abort(name, ui)
	if err != nil {
		return err
	}
	r.ExitCode = 0 // CMD's status was returned by the run that kept the branch
	return p.finish(r, ui, c.JSON)
}
