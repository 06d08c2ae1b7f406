package main

import (
	"context"
	"errors"

	"try/supervisor"
)

// commitCmd is `try commit`.
type commitCmd struct {
	Name    branchArg `arg:"" optional:"" help:"Branch; none: the only or newest one of this directory."`
	Allow   []raw     `sep:"none" placeholder:"GLOB" help:"Commit paths that the policy would ask about. Repeatable."`
	Exclude []raw     `sep:"none" placeholder:"GLOB" help:"Leave these changes in the branch. Repeatable."`
	Ours    []raw     `sep:"none" placeholder:"GLOB" help:"Where both sides changed: keep the base, drop the branch's change. Repeatable."`
	Theirs  []raw     `sep:"none" placeholder:"GLOB" help:"Where both sides changed: commit the branch's change. Repeatable."`
	Merge   []raw     `sep:"none" placeholder:"GLOB" help:"Where both sides changed: merge the texts, as git does. Repeatable."`
	Skip    []raw     `sep:"none" placeholder:"GLOB" help:"Where both sides changed: leave it in the branch for now. Repeatable."`
	Edit    bool      `help:"Open texts with conflict markers in $VISUAL or $EDITOR."`
	Force   bool      `help:"Take over a branch of another machine that shares the store. Nothing there may use it any more."`
	Damaged bool      `help:"Commit a branch that was not written to disk before the machine went down. Files may have holes."`
	Quiet   bool      `short:"q" help:"Print no summary."`
	JSON    bool      `name:"json" help:"Print one result document on stdout."`

	only []string // what stands behind "--"
	args []string // what stands before
}

// Help is printed by `try commit --help`.
func (*commitCmd) Help() string {
	return `All changes are applied, or none. What someone else changed since the branch
was made is never overwritten: that is a conflict, every path of it is named with
what is known of both sides, and the branch is kept. On a terminal you are
asked about each; --ours, --theirs, --merge and --skip decide beforehand, the
first whose GLOB matches. As when git merges a branch, ours is the base.
Nothing is written before all is decided.

A merge needs what the base held when the branch was made. That is kept with
the branch for texts up to 1 MiB; without it both versions are set beside one
another. If both sides changed the same lines, the text gets git's conflict
markers, in the branch: nothing is committed, and "try commit NAME --edit"
opens it in your editor and goes on.

  try commit mine --merge '*.go' --ours go.sum --theirs .

With GLOBs behind "--" only the changes that one of them matches are applied,
all or none; the others stay in the branch, to be looked at, committed or
dropped later. Globs are read as git reads them: relative to the working
directory, a directory means all below it, *.txt is found at any depth, **
stands for any number of directories; ~/ and / begin other places. New
directories above a chosen file come along.

  try commit mine -- src/ '*.md'         only these
  try commit mine --exclude 'build/**'   all but these
`
}

// Run applies the branch.
func (c *commitCmd) Run(p *program) (err error) {
	home, name, err := openForced(c.Name, c.Force)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	ui := newTerminal(p, quiet(c.Quiet))
	late := catchLate()
	r, err := home.Commit(context.Background(), name, supervisor.CommitOptions{
		Allow: texts(c.Allow), Damaged: c.Damaged, Only: c.only, Exclude: texts(c.Exclude),
		Decisions: decisions(c.args, map[string][]raw{"ours": c.Ours, "theirs": c.Theirs, "merge": c.Merge, "skip": c.Skip}),
		Edit:      c.Edit, Resolver: ui,
	}, ui)
	if err != nil {
		return err
	}
	// CMD's status was returned by the run that kept the branch.
	r.ExitCode = 0
	late.exit(r.Status())
	return p.finish(r, ui, c.JSON)
}

// quiet is the style of -q.
func quiet(q bool) style {
	if q {
		return style{summary: "none"}
	}
	return style{}
}
