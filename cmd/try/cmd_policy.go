package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"try/supervisor"
	"try/supervisor/policy"
	"try/supervisor/printable"
)

// policyCmd is `try policy`.
type policyCmd struct {
	Check policyCheckCmd `cmd:"" help:"Say which rule decides a path."`
	Show  policyShowCmd  `cmd:"" help:"List every rule and setting, where it comes from and why."`
	Allow policyAllowCmd `cmd:"" help:"Trust this project's .try.toml as it is now."`
}

// policyFlags choose the policy, as those of `try CMD` do.
type policyFlags struct {
	Policy   raw  `placeholder:"FILE" help:"Use this policy instead of the installed ones."`
	NoPolicy bool `help:"Use no policy but the built-in one."`
}

// load reads the policy that a run in this directory would obey.
func (f *policyFlags) load(p *program) (policy.Places, *policy.Policy, error) {
	if f.Policy != "" && f.NoPolicy {
		return policy.Places{}, nil, &usageError{err: errors.New("--policy and --no-policy contradict each other"), word: "policy"}
	}
	places, err := policyPlaces()
	if err != nil {
		return places, nil, err
	}
	places.File, places.None = string(f.Policy), f.NoPolicy
	loaded, warnings, err := policy.Load(places)
	for _, w := range warnings {
		say(p.stderr, "warning: %s", w)
		p.hint(w.Hint)
	}
	return places, loaded, err
}

func policyPlaces() (places policy.Places, err error) {
	home, err := supervisor.OpenHome()
	if err != nil {
		return places, err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	return home.Places()
}

// policyCheckCmd is `try policy check`.
type policyCheckCmd struct {
	policyFlags
	Kind string `enum:",added,modified,deleted,replaced,metadata,touched" default:"" placeholder:"KIND" help:"Kind of change; none: modified if the path is there, else added."`
	Path []raw  `arg:"" optional:"" help:"Paths; none: only read the policy."`
}

// Help is printed by `try policy check --help`.
func (*policyCheckCmd) Help() string {
	return `The exit status is 1 if a commit of one of the paths would be refused or asked
about, or if a policy file cannot be read.
`
}

// Run explains the verdict on each path.
func (c *policyCheckCmd) Run(p *program) error {
	places, loaded, err := c.load(p)
	if _, wrong := errors.AsType[*policy.Error](err); wrong {
		p.complain(err)
		p.status = statusNo
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range loaded.Files() {
		trust := ""
		if !f.Trusted {
			trust = " (not trusted: only what is stricter is obeyed; see try policy allow)"
		}
		fmt.Fprintf(p.stdout, "%s policy: %s%s\n", f.Source, printable.Name(f.Path), trust)
	}
	for _, path := range c.Path {
		if err := c.explain(p, places, loaded, string(path)); err != nil {
			return err
		}
	}
	return nil
}

func (c *policyCheckCmd) explain(p *program, places policy.Places, loaded *policy.Policy, path string) error {
	change, err := changeAt(path, c.Kind)
	if err != nil {
		return err
	}
	x := loaded.Explain([]string{places.Cwd, places.Home, "/tmp", "/var/tmp"}, supervisor.TheBase{Stores: places.Protected}, change)
	action := x.Verdict.Action
	if x.Verdict.Rule == nil {
		action = policy.Allow
	}
	if action >= policy.Ask {
		p.status = statusNo
	}
	fmt.Fprintf(p.stdout, "%s %s (%s): %s\n", action, printable.Name(shortHome(change.Path)), change.Kind, printable.Text(x.Verdict.Why()))
	for _, l := range x.Layers {
		if l.Rule == nil {
			continue
		}
		fmt.Fprintf(p.stdout, "  %s: %s %s\n", printable.Text(l.Rule.At()), l.Rule.Action, printable.Name(l.Glob))
	}
	return nil
}

// changeAt is a change of a path as it is in the base now.
func changeAt(path, kind string) (policy.Change, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return policy.Change{}, fmt.Errorf("resolve %s: %w", path, err)
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(full)); err == nil {
		full = filepath.Join(dir, filepath.Base(full))
	}
	c := policy.Change{Path: full, Kind: kind, Type: "file"}
	info, err := os.Lstat(full)
	if c.Kind == "" {
		c.Kind = "modified"
		if err != nil {
			c.Kind = "added"
		}
	}
	if err != nil {
		if strings.HasSuffix(path, "/") {
			c.Type = "dir"
		}
		return c, nil // not there, or not to be seen: then its type is a guess
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		c.Type = "dir"
	case mode&os.ModeSymlink != 0:
		c.Type = "symlink"
	case mode&os.ModeNamedPipe != 0:
		c.Type = "fifo"
	case mode&os.ModeDevice != 0:
		c.Type = "device"
	default:
		c.Exec, c.Size = mode&0o111 != 0, info.Size()
	}
	return c, nil
}

// policyShowCmd is `try policy show`.
type policyShowCmd struct{ policyFlags }

// Run lists the policy.
func (c *policyShowCmd) Run(p *program) error {
	_, loaded, err := c.load(p)
	if err != nil {
		return err
	}
	return loaded.Show(p.stdout, printable.Text)
}

// policyAllowCmd is `try policy allow`.
type policyAllowCmd struct {
	File raw `arg:"" optional:"" help:"Policy file; none: the .try.toml that a run in this directory reads."`
}

// Help is printed by `try policy allow --help`.
func (*policyAllowCmd) Help() string {
	return `What a project's policy makes stricter is always obeyed; the rest only once
its content was allowed. After any change to the file it must be allowed again.
`
}

// Run trusts the file and prints what was trusted.
func (c *policyAllowCmd) Run(p *program) error {
	places, err := policyPlaces()
	if err != nil {
		return err
	}
	file := string(c.File)
	if file == "" {
		if file, err = policy.FindProject(places); err != nil {
			return err
		}
	}
	if file == "" {
		say(p.stderr, "no .try.toml here or above")
		p.status = statusNo
		return nil
	}
	if file, err = filepath.Abs(file); err != nil {
		return fmt.Errorf("resolve %s: %w", file, err)
	}
	allowed, text, err := places.Trust.Allow(file, places.Home)
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		fmt.Fprintln(p.stdout, printable.Line(strings.TrimSuffix(line, "\n")))
	}
	say(p.stderr, "allowed %s as above (sha256 %s)", printable.Name(shortHome(allowed.Path)), allowed.SHA256)
	return nil
}
