package main

import (
	"context"
	"errors"

	"try/supervisor"
	"try/supervisor/printable"
)

// mergeCmd is `try merge`.
type mergeCmd struct {
	Names  []branchArg `arg:"" name:"branches" help:"Kept branches, two or more."`
	Into   branchArg   `required:"" placeholder:"NAME" help:"Name of the new branch."`
	Ours   []raw       `sep:"none" placeholder:"GLOB" help:"Where they overlap: take what the branch named first has. Repeatable."`
	Theirs []raw       `sep:"none" placeholder:"GLOB" help:"Where they overlap: take what the later one has. Repeatable."`
	Merge  []raw       `sep:"none" placeholder:"GLOB" help:"Where they overlap: leave both in the text, with conflict markers. Repeatable."`
	Skip   []raw       `sep:"none" placeholder:"GLOB" help:"Where they overlap: take neither. Repeatable."`
	Quiet  bool        `short:"q" help:"Print no summary."`
	JSON   bool        `name:"json" help:"Print one result document on stdout."`

	args []string
}

// Help is printed by `try merge --help`.
func (*mergeCmd) Help() string {
	return `The new branch has what one of the branches changed alone, what they changed
alike, and texts of which they changed different lines, merged. Where they
overlap otherwise you are asked on a terminal, or the flags decide, the first
whose GLOB matches; ours is the branch named first. The branches stay as they
are. Commit the new one as usual.

  try merge fix-a fix-b --into both
  try changes fix-a --against fix-b      what would overlap
`
}

// Run merges.
func (c *mergeCmd) Run(p *program) (err error) {
	if len(c.Names) < 2 {
		return &usageError{err: errors.New("two branches or more are to be merged"), word: "merge"}
	}
	home, err := supervisor.OpenHome()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	var names []string
	for _, n := range c.Names {
		picked, err := home.Pick(string(n))
		if err != nil {
			return err
		}
		names = append(names, picked)
	}
	ui := newTerminal(p, quiet(c.Quiet))
	r, err := home.Merge(context.Background(), names, supervisor.MergeOptions{
		Into:      string(c.Into),
		Decisions: decisions(c.args, map[string][]raw{"ours": c.Ours, "theirs": c.Theirs, "merge": c.Merge, "skip": c.Skip}),
		Resolver:  ui,
	}, ui)
	if err != nil {
		if overlap, ok := errors.AsType[*supervisor.OverlapError](err); ok {
			objections(p.stderr, &supervisor.Result{Conflicts: overlap.Conflicts})
		}
		return err
	}
	return home.Changes(context.Background(), r.Branch, ui, func(made *supervisor.Result) error {
		made.Resolved, made.Reason = r.Resolved, r.Reason
		if !c.JSON && !c.Quiet {
			summarize(p.stderr, made, ui.style)
			say(p.stderr, "made branch %s", printable.Name(made.Branch))
			p.hint(keptHint(made.Branch))
		}
		if c.JSON {
			return writeResult(p.stdout, made)
		}
		return nil
	})
}
