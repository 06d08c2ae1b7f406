package main

import (
	"errors"

	"try/supervisor"
	"try/supervisor/printable"
)

// recoverCmd is `try recover`.
type recoverCmd struct{}

// Help is printed by `try recover --help`.
func (*recoverCmd) Help() string {
	return `A commit that was cut short is finished, or rolled back if it had not passed
its commit point. Every other try does the same unasked.
`
}

// Run recovers every branch that needs it; one that cannot be does not stop
// the others.
func (*recoverCmd) Run(p *program) (err error) {
	home, err := supervisor.OpenHome()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	list := home.Recovered()
	for _, r := range list {
		if r.Err != nil {
			p.status = max(p.status, p.report(r.Err))
			continue
		}
		what := ""
		if r.Undo {
			what = "undo or redo "
		}
		say(p.stdout, "%s: %s%v", printable.Name(r.Branch), what, r.Outcome)
	}
	if len(list) == 0 {
		say(p.stdout, "nothing to recover")
	}
	return nil
}
