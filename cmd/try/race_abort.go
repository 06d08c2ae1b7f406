package main

import (
	"errors"
	"fmt"

	"try/supervisor"
)

// race drops all that is left of a race, if that is what was named.
func (c *abortCmd) race(p *program) (done bool, err error) {
	if c.Name == "" {
		return false, nil
	}
	home, err := supervisor.OpenHome()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	members, err := home.Members(string(c.Name))
	if err != nil || len(members) < 2 {
		return false, err // of one that is left alone the name means that
	}
	if c.JSON {
		return true, &usageError{err: fmt.Errorf("%s is a race of %d branches: --json is about one", c.Name, len(members)), word: "abort"}
	}
	ui := newTerminal(p, quiet(c.Quiet))
	var errs []error
	for _, name := range members {
		r, err := home.Abort(name, ui)
		if err == nil {
			err = r.Err
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return true, err
	}
	if !c.Quiet {
		say(p.stderr, "dropped %s of race %s", plural(len(members), "branch"), string(c.Name))
	}
	return true, nil
}
