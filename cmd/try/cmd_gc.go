package main

import (
	"context"
	"errors"

	"try/supervisor"
	"try/supervisor/printable"
)

// gcCmd is `try gc`.
type gcCmd struct {
	DryRun bool `help:"Say what would go, and touch nothing."`
	JSON   bool `name:"json" help:"Print an array with one object for each commit."`
}

// Help is printed by `try gc --help`.
func (*gcCmd) Help() string {
	return `Forgets the commits that the policy does not keep any longer, oldest first;
they can then not be undone any more. Every try does the same behind its back.
What a program still writes to, or what has been written to since it was
displaced, is kept nowhere else: such a commit stays, and is named.

examples:
  try gc --dry-run            what would go, and why
  try gc                      let it go

The limits are [undo] keep, max_bytes and max_count of the user's policy.
`
}

// Run trims the undo records.
func (c *gcCmd) Run(p *program) (err error) {
	home, err := supervisor.OpenHome()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	list, err := home.GC(context.Background(), c.DryRun)
	if c.JSON {
		return errors.Join(err, writeCollected(p, list, c.DryRun))
	}
	gone, bytes := 0, int64(0)
	for i := range list {
		g := &list[i]
		if g.Kept != "" {
			say(p.stdout, "%s stays, though it is %s: %s", printable.Name(g.Branch), g.Reason, g.Kept)
			continue
		}
		gone++
		bytes += g.Bytes
		word := "forgot"
		if c.DryRun {
			word = "would forget"
		}
		say(p.stdout, "%s %s: %s, %s", word, printable.Name(g.Branch), g.Reason, humanBytes(g.Bytes))
	}
	if gone == 0 && err == nil {
		say(p.stdout, "nothing to collect")
	}
	return err
}

// writeCollected prints the array of `try gc --json`.
func writeCollected(p *program, list []supervisor.Collected, dry bool) error {
	j := newJSON(p.stdout)
	j.nested("[", "]", func() {
		for i := range list {
			g := &list[i]
			j.element(func() {
				j.text("branch", g.Branch)
				j.text("id", g.ID)
				j.number("number", int64(g.Number))
				j.time("committed", g.Committed)
				j.number("bytes", g.Bytes)
				j.text("reason", g.Reason)
				j.bool("collected", g.Kept == "" && !dry)
				j.optional("kept", g.Kept)
			})
		}
	})
	return j.flush()
}
