package main

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"try/supervisor/policy"
)

// words are the reserved words, each a command. A program of the same name
// runs behind "--".
type words struct {
	globalFlags

	Changes  changesCmd  `cmd:"" help:"List what a kept branch changed."`
	Commit   commitCmd   `cmd:"" help:"Apply a kept branch to the base."`
	Merge    mergeCmd    `cmd:"" help:"Make a new kept branch of the changes of others."`
	Abort    abortCmd    `cmd:"" help:"Drop a kept branch."`
	Branches branchesCmd `cmd:"" help:"List the branches."`
	Undo     undoCmd     `cmd:"" help:"Take a commit back."`
	Redo     redoCmd     `cmd:"" help:"Bring a commit again that was undone."`
	GC       gcCmd       `cmd:"" name:"gc" help:"Forget the commits that the policy does not keep."`
	Recover  recoverCmd  `cmd:"" help:"Finish or roll back what a crash left."`
	Doctor   doctorCmd   `cmd:"" help:"Say what works here, why not, and how to fix it."`
	Log      logCmd      `cmd:"" help:"Print what the variants of a race wrote."`
	Policy   policyCmd   `cmd:"" help:"Explain, list or trust the rules for commits."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
}

// globalFlags are understood everywhere.
type globalFlags struct {
	Help  bool   `short:"h" help:"Show help."`
	Color string `enum:"auto,always,never" default:"auto" placeholder:"WHEN" help:"Use colours: ${enum}. NO_COLOR in the environment means never."`
}

// commandLine is a command line, parsed.
type commandLine struct {
	global globalFlags
	do     func(*program) error
}

// parse understands a command line. On an error the global flags are those
// seen so far, so that the error is printed in the right colours.
func parse(args []string) (commandLine, error) {
	flags := &runCmd{}
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") && !slices.Contains(reserved(), args[0]) {
		flags.argv = args // no flags: the common case needs no parser
		return commandLine{do: flags.run}, nil
	}
	known := flagsOf(reflect.TypeFor[runCmd]())
	c := cut(args, known)
	if c.word {
		return parseWord(slices.Concat(c.flags, c.rest))
	}
	if err := parseFlags(flags, known, c.flags); err != nil {
		return commandLine{global: flags.globalFlags}, &usageError{err: parseError(err)}
	}
	flags.argv = c.rest
	if flags.Help {
		return commandLine{flags.globalFlags, func(p *program) error { return p.help() }}, nil
	}
	return commandLine{flags.globalFlags, flags.run}, nil
}

// parseWord understands a command line with a reserved word in it.
func parseWord(args []string) (commandLine, error) {
	all := &words{}
	parser, err := kong.New(all, parserOptions()...)
	if err != nil {
		return commandLine{}, fmt.Errorf("set up the command line: %w", err)
	}
	help := slices.Index(args, "help")
	if help >= 0 && !slices.ContainsFunc(args[:help], func(a string) bool { return !strings.HasPrefix(a, "-") }) {
		args = slices.Delete(slices.Clone(args), help, help+1)
		return commandLine{all.globalFlags, func(p *program) error { return p.helpOn(parser, args) }}, nil
	}
	if wantsHelp(args) {
		return commandLine{all.globalFlags, func(p *program) error { return p.helpOn(parser, args) }}, nil
	}
	if end := slices.Index(args, "--"); end >= 0 && wordIn(args[:end]) == "commit" {
		args, all.Commit.only = args[:end], args[end+1:]
	}
	all.Commit.args, all.Merge.args = args, args
	ctx, err := parser.Parse(args)
	if err != nil {
		return commandLine{global: all.globalFlags}, &usageError{err: parseError(err), word: wordIn(args)}
	}
	return commandLine{all.globalFlags, func(p *program) error {
		surviveBrokenPipes()
		return ctx.Run(p)
	}}, nil
}

// parserOptions are the same for both parsers: help is ours, and nothing in
// kong may end the process.
func parserOptions() []kong.Option {
	return []kong.Option{kong.Name("try"), kong.NoDefaultHelp(), kong.Exit(func(int) {})}
}

// parts is a command line, cut.
type parts struct {
	flags []string // ours
	word  bool     // rest begins with a reserved word
	rest  []string // the reserved word or CMD, with all that follows
}

// cut ends our flags at the first word that is not one.
func cut(args []string, known []flagField) parts {
	i := 0
	for i < len(args) {
		arg := args[i]
		if arg == "--" {
			return parts{flags: args[:i], rest: args[i+1:]}
		}
		if len(arg) < 2 || arg[0] != '-' {
			return parts{args[:i], slices.Contains(reserved(), arg), args[i:]}
		}
		i++
		if _, next := named(arg, known); next && i < len(args) {
			i++
		}
	}
	return parts{flags: args}
}

// reserved lists the words that are commands of ours.
func reserved() []string {
	return []string{"changes", "commit", "merge", "abort", "branches", "undo", "redo", "gc", "recover", "doctor", "policy", "version", "help", "log"}
}

// wordIn is the reserved word in a command line of ours.
func wordIn(args []string) string {
	for _, a := range args {
		if slices.Contains(reserved(), a) {
			return a
		}
	}
	return ""
}

// wantsHelp says whether one of the flags asks for help. kong would first
// complain of arguments that are missing.
func wantsHelp(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--help") || slices.Contains(args, "-h")
}

// parseError takes kong's wrapping off.
func parseError(err error) error {
	if p, ok := errors.AsType[*kong.ParseError](err); ok {
		err = p.Unwrap()
	}
	// A flag that was not given has an empty value, which is no choice.
	return errors.New(strings.Replace(err.Error(), `one of "",`, "one of ", 1))
}

// usageError is a command line that cannot be understood.
type usageError struct {
	err  error
	word string // the reserved word; empty for `try CMD`
	hint string
}

func (u *usageError) Error() string { return u.err.Error() }
func (u *usageError) Unwrap() error { return u.err }

// Hint points to the help.
func (u *usageError) Hint() string {
	switch {
	case u.hint != "":
		return u.hint
	case u.word != "":
		return fmt.Sprintf(`see "try %s --help"`, u.word)
	}
	return `see "try --help"`
}

// ExitCode is that of `try CMD` where CMD's status could be meant, and the
// usual 2 elsewhere (DESIGN §3).
func (u *usageError) ExitCode() int {
	if u.word != "" {
		return statusUsage
	}
	return statusFailed
}

// raw is an argument kept byte by byte: kong's own strings replace what is no
// UTF-8.
type raw string

// Decode takes one argument.
func (r *raw) Decode(ctx *kong.DecodeContext) error {
	token, err := ctx.Scan.PopValue("a")
	if err != nil {
		return err
	}
	*r = raw(token.String())
	return nil
}

// branchArg is the name of a branch. An empty one, of a shell variable that is
// not set, is a mistake: it must not mean the newest branch.
type branchArg raw

// Decode takes one argument that is not empty.
func (b *branchArg) Decode(ctx *kong.DecodeContext) error {
	if err := (*raw)(b).Decode(ctx); err != nil {
		return err
	}
	if *b == "" {
		return errors.New("the name of a branch is empty")
	}
	return nil
}

// texts gives plain strings.
func texts(list []raw) []string {
	var out []string
	for _, r := range list {
		out = append(out, string(r))
	}
	return out
}

// duration is Go's, and days ("2d", "1d12h").
type duration time.Duration

// Decode takes one argument.
func (d *duration) Decode(ctx *kong.DecodeContext) error {
	token, err := ctx.Scan.PopValue("a duration")
	if err != nil {
		return err
	}
	got, err := policy.ParseDuration(token.String())
	*d = duration(got)
	return err
}
