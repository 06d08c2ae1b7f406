package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"try/supervisor"
)

// logCmd is `try log`.
type logCmd struct {
	Name branchArg `arg:"" help:"Variant of a race, as in calm-otter.2; or a race: all variants that are left."`
}

// Help is printed by `try log --help`.
func (*logCmd) Help() string {
	return `A race keeps all that its variants write until they are settled: while it
runs, and later of those that were kept (--keep, --keep-losers, a conflict).
stdout and stderr go where they would have gone. Of a whole race each line
begins with the number of its variant.
`
}

// Run prints the log.
func (c *logCmd) Run(p *program) (err error) {
	home, err := supervisor.OpenHome()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	members, err := home.Members(string(c.Name))
	if err != nil {
		return err
	}
	if len(members) == 0 {
		return printLog(home, string(c.Name), p.stdout, p.stderr)
	}
	lines := newPrefixer(p.stdout, p.stderr)
	for _, name := range members {
		var index int
		fmt.Sscan(name[strings.LastIndexByte(name, '.')+1:], &index)
		err := printLog(home, name, lines.stream(index, 1), lines.stream(index, 2))
		if _, none := errors.AsType[*supervisor.NoLogError](err); err != nil && !none {
			return err // one that has not started has none yet
		}
		lines.end()
	}
	return nil
}

func printLog(home *supervisor.Home, name string, stdout, stderr io.Writer) error {
	log, err := home.Log(name)
	if err != nil {
		return err
	}
	return errors.Join(log.Replay(stdout, stderr), log.Close())
}

// stream is where one variant's stdout (1) or stderr (2) goes.
func (p *prefixer) stream(index, stream int) io.Writer { return prefixed{p, index, stream} }

type prefixed struct {
	p             *prefixer
	index, stream int
}

func (w prefixed) Write(b []byte) (int, error) {
	w.p.write(w.index, w.stream, b)
	return len(b), nil
}
