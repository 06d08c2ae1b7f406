package main

import (
	"context"
	"fmt"
	"time"

	"try/supervisor"
)

const runHelp = `try: run any command in a copy-on-write branch of the file system,
see what it changed, then commit or drop it

usage:
  try [FLAGS] [--] CMD [ARG]...    run CMD in a branch, then settle
  try [FLAGS]                      the same with your shell

examples:
  try npm install                  run, look at the changes, decide
  try -y make install              commit whatever it does
  try --check "go test ./..." -- gofmt -w .
                                   commit only what passes the tests
  try --keep -b upgrade ./upgrade.sh
  try changes upgrade              look at it later,
  try commit upgrade               from any directory
  try -- commit                    a command named like one of our words
`

const runStatus = `
exit status: that of CMD, whatever was settled; 128+n if signal n ended it;
  124 after --timeout; 126 if CMD cannot be run, 127 if it is not found;
  125 if try itself failed: then nothing was committed, and the branch is kept

man try says it all: policy, files, environment
`

// runCmd is `try [FLAGS] [--] CMD [ARG]…`. What its flags mean stands in
// flagHelp: kong reads every tag at each start, and long ones made up half of
// the time that parsing takes.
type runCmd struct {
	globalFlags

	Commit    bool `short:"y"`
	Abort     bool
	Keep      bool
	ExitCode  bool
	Ask       bool
	OnSuccess supervisor.Fate
	OnFailure supervisor.Fate
	Check     []raw     `sep:"none"`
	Allow     []raw     `sep:"none"`
	Branch    branchArg `short:"b"`

	Root       []raw  `sep:"none"`
	Scope      string `enum:",user,dir" default:""`
	Cover      []raw  `sep:"none"`
	AllowWrite []raw  `sep:"none"`
	Deny       []raw  `sep:"none"`
	Socket     []raw  `sep:"none"`

	Net          string `enum:",host,none" default:""`
	Engine       string `enum:",auto,overlay,fuse" default:""`
	Serializable bool
	Grace        *duration
	Wait         bool
	Timeout      *duration
	Pty          *bool `negatable:""`

	Quiet      bool   `short:"q"`
	Summary    string `enum:",auto,full,none" default:""`
	JSON       bool   `name:"json"`
	StatusFD   *int   `name:"status-fd"`
	PolicyFile raw    `name:"policy"`
	NoPolicy   bool

	raceFlags

	argv []string
}

// run runs CMD, shows what it changed, and leaves the status in p.
func (c *runCmd) run(p *program) error {
	if c.Race || c.given() != "" {
		return c.race(p)
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	ui := newTerminal(p, c.style())
	if c.StatusFD != nil {
		if ui.events, err = openEvents(*c.StatusFD); err != nil {
			return err
		}
		o.KeepClosed = append(o.KeepClosed, *c.StatusFD)
	}
	late := catchLate()
	// What cannot be started is told to a machine too: --json always prints
	// one document.
	r, err := supervisor.Run(context.Background(), o, ui)
	if err != nil {
		r = &supervisor.Result{Command: o.Argv, Settled: supervisor.Unchanged, Err: err}
		if !c.JSON {
			return err
		}
	}
	late.exit(r.Status())
	return p.finish(r, ui, c.JSON)
}

// options says what was asked for in the supervisor's words.
func (c *runCmd) options() (supervisor.Options, error) {
	success, failure, err := c.fates()
	if err != nil {
		return supervisor.Options{}, err
	}
	if c.PolicyFile != "" && c.NoPolicy {
		return supervisor.Options{}, usage("--policy and --no-policy contradict each other")
	}
	if c.Quiet && c.Summary != "" && c.Summary != "none" {
		return supervisor.Options{}, usage("-q/--quiet and --summary=%s contradict each other", c.Summary)
	}
	o := supervisor.Options{
		Argv:           c.argv,
		Branch:         string(c.Branch),
		OnSuccess:      success,
		OnFailure:      failure,
		Checks:         texts(c.Check),
		Allow:          texts(c.Allow),
		Scope:          c.Scope,
		Roots:          texts(c.Root),
		Cover:          texts(c.Cover),
		AllowWrite:     texts(c.AllowWrite),
		Deny:           texts(c.Deny),
		Sockets:        texts(c.Socket),
		Net:            c.Net,
		Engine:         c.Engine,
		Serializable:   c.Serializable,
		Grace:          (*time.Duration)(c.Grace),
		Wait:           c.Wait,
		StdoutToStderr: c.JSON,
		Unseen:         !c.JSON && (c.Quiet || c.Summary == "none"),
		PolicyFile:     string(c.PolicyFile),
		NoPolicy:       c.NoPolicy,
	}
	if c.Timeout != nil {
		if o.Timeout = time.Duration(*c.Timeout); o.Timeout == 0 {
			return o, usage("--timeout 0: a command cannot end in no time")
		}
	}
	if c.Pty != nil {
		o.Terminal = supervisor.NoTerminal
		if *c.Pty {
			o.Terminal = supervisor.ForceTerminal
		}
	}
	return o, c.branchName()
}

// fates makes one answer for success and one for failure of the settle flags,
// of which several may be given as long as they agree.
func (c *runCmd) fates() (success, failure supervisor.Fate, err error) {
	var onSuccess, onFailure string // the flag that said so
	for _, f := range []struct {
		given            bool
		flag             string
		success, failure supervisor.Fate
	}{
		{c.Commit, "-y/--commit", supervisor.Commit, supervisor.Commit},
		{c.Abort, "--abort", supervisor.Abort, supervisor.Abort},
		{c.Keep, "--keep", supervisor.Keep, supervisor.Keep},
		{c.ExitCode, "--exit-code", supervisor.Commit, supervisor.Abort},
		{c.Ask, "--ask", supervisor.Ask, supervisor.Ask},
		{c.OnSuccess != 0, "--on-success", c.OnSuccess, 0},
		{c.OnFailure != 0, "--on-failure", 0, c.OnFailure},
	} {
		if !f.given {
			continue
		}
		if f.success != 0 {
			if success != 0 && success != f.success {
				return 0, 0, usage("%s and %s contradict each other", onSuccess, f.flag)
			}
			success, onSuccess = f.success, f.flag
		}
		if f.failure != 0 {
			if failure != 0 && failure != f.failure {
				return 0, 0, usage("%s and %s contradict each other", onFailure, f.flag)
			}
			failure, onFailure = f.failure, f.flag
		}
	}
	return success, failure, nil
}

// branchName refuses names that are none before anything is done.
func (c *runCmd) branchName() error {
	name := string(c.Branch)
	if name == "" {
		return nil
	}
	for i, r := range []byte(name) {
		letter := r|0x20 >= 'a' && r|0x20 <= 'z' || r >= '0' && r <= '9'
		if !letter && (i == 0 || r != '.' && r != '_' && r != '-') || i > 63 {
			return usage("-b/--branch %q: a name has 1 to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit", name)
		}
	}
	return nil
}

// style says how results are shown.
func (c *runCmd) style() style {
	s := style{summary: c.Summary}
	if c.Quiet {
		s.summary = "none"
	}
	return s
}

// usage is a usage error of `try CMD`.
func usage(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}
