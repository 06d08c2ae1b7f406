package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"try/supervisor"
	"try/supervisor/printable"
)

// raceFlags are those of `try --race`; what they mean stands in raceHelp.
type raceFlags struct {
	Race       bool
	Variants   *int  `short:"n"`
	Command    []raw `short:"c" sep:"none"`
	Jobs       *int
	Deadline   *duration
	OnNone     *int
	Output     string `enum:",board,prefix,winner,none" default:""`
	Stdin      string `enum:",empty,all" default:""`
	KeepLosers bool
	Fallback   bool
}

var raceHelp = []flagLine{
	{"race", "", "Run several variants side by side; the first to exit with 0 and pass its checks is settled, the others are ended and dropped"},
	{"variants", "N", "Run CMD N times. {i} in its arguments is 1 to N ({{i}} is a literal {i}); TRY_INDEX and TRY_COUNT are in the environment"},
	{"command", "CMD", "Run CMD by sh -c as a variant, as it stands. Repeatable, instead of -n"},
	{"jobs", "J", "Run at most J at once. Default: all"},
	{"deadline", "D", "End the race after this time. --timeout is for each variant"},
	{"on-none", "X", "Exit with X if none succeeds. Default: the status of the last one"},
	{"output", "HOW", "board (one line for each variant, then what the winner wrote; the default on a terminal), prefix (all of it as lines that begin with [i]; the default elsewhere), winner or none"},
	{"stdin", "HOW", "empty (the default), or all: each variant gets a copy"},
	{"keep-losers", "", "Keep the losers for a look (try changes NAME.2, try log NAME.2); they cannot be committed"},
	{"fallback", "", "If the winner's commit meets a conflict, let the next success try"},
}

// given names the first flag that only a race knows, "" if there is none.
func (f *raceFlags) given() string {
	for _, flag := range []struct {
		name  string
		given bool
	}{
		{"-n/--variants", f.Variants != nil}, {"-c/--command", f.Command != nil}, {"--jobs", f.Jobs != nil},
		{"--deadline", f.Deadline != nil}, {"--on-none", f.OnNone != nil}, {"--output", f.Output != ""},
		{"--stdin", f.Stdin != ""}, {"--keep-losers", f.KeepLosers}, {"--fallback", f.Fallback},
	} {
		if flag.given {
			return flag.name
		}
	}
	return ""
}

const raceUsage = "write: try -n 3 --race CMD {i}, or: try --race -c CMD1 -c CMD2"

// raceError is a usage error that says what to write.
func raceError(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...), hint: raceUsage}
}

// commands are the variants that were asked for.
func (f *raceFlags) commands(argv []string) ([][]string, error) {
	switch {
	case f.Command != nil && f.Variants != nil:
		return nil, raceError("-n and -c contradict each other: each -c is one variant")
	case f.Command != nil && len(argv) > 0:
		return nil, raceError("-c says what to run, and so does %s", argv[0])
	case f.Command != nil:
		var list [][]string
		for _, c := range f.Command {
			list = append(list, []string{"sh", "-c", string(c)})
		}
		return list, nil
	case f.Variants == nil:
		return nil, raceError("--race without variants")
	case *f.Variants < 1:
		return nil, raceError("-n %d: a race has at least one variant", *f.Variants)
	case len(argv) == 0:
		return nil, raceError("--race without a command")
	}
	list := make([][]string, *f.Variants)
	for i := range list {
		for _, arg := range argv {
			list[i] = append(list[i], withIndex(arg, i+1))
		}
	}
	return list, nil
}

// withIndex puts a variant's number in for {i}; {{i}} stands for {i}.
func withIndex(arg string, index int) string {
	var b strings.Builder
	for {
		at := strings.Index(arg, "{i}")
		if at < 0 {
			b.WriteString(arg)
			return b.String()
		}
		if at > 0 && arg[at-1] == '{' && strings.HasPrefix(arg[at+3:], "}") {
			b.WriteString(arg[:at-1] + "{i}")
			arg = arg[at+4:]
			continue
		}
		b.WriteString(arg[:at] + strconv.Itoa(index))
		arg = arg[at+3:]
	}
}

// exploration says what was asked for in the supervisor's words.
func (c *runCmd) exploration() (supervisor.Exploration, error) {
	e := supervisor.Exploration{OnNone: c.OnNone, KeepLosers: c.KeepLosers, Fallback: c.Fallback}
	var err error
	if e.Variants, err = c.commands(c.argv); err != nil {
		return e, err
	}
	if e.Options, err = c.options(); err != nil {
		return e, err
	}
	e.Options.Argv = nil
	switch {
	case c.OnFailure != 0 && c.OnFailure != supervisor.Abort:
		return e, raceError("--on-failure %s: a variant that fails has lost, and is dropped; --keep-losers keeps them for a look", c.OnFailure)
	case c.Pty != nil && *c.Pty:
		return e, raceError("--pty: variants have no terminal")
	case c.Jobs != nil && *c.Jobs < 1:
		return e, raceError("--jobs %d: at least one variant must run", *c.Jobs)
	case c.OnNone != nil && (*c.OnNone < 0 || *c.OnNone > 255):
		return e, raceError("--on-none %d: an exit status is 0 to 255", *c.OnNone)
	case c.Deadline != nil && *c.Deadline == 0:
		return e, raceError("--deadline 0: a race cannot end in no time")
	}
	if c.Jobs != nil {
		e.Schedule = supervisor.Jobs(*c.Jobs)
	}
	if c.Deadline != nil {
		e.Deadline = time.Duration(*c.Deadline)
	}
	if c.Stdin == "all" {
		e.Stdin = os.Stdin
	}
	return e, nil
}

// race runs the variants, shows what the winner changed, and leaves the status
// in p.
func (c *runCmd) race(p *program) error {
	if !c.Race {
		return raceError("%s belongs to a race", c.given())
	}
	e, err := c.exploration()
	if err != nil {
		return err
	}
	ui := &raceUI{terminal: newTerminal(p, c.style()), output: c.outputMode(p)}
	if c.StatusFD != nil {
		if ui.events, err = openEvents(*c.StatusFD); err != nil {
			return err
		}
		e.KeepClosed = append(e.KeepClosed, *c.StatusFD)
	}
	ui.stdout = p.stdout
	if c.JSON {
		ui.stdout = p.stderr
	}
	late := catchLate()
	ui.show(len(e.Variants))
	g, err := supervisor.Explore(context.Background(), e, ui)
	ui.hide()
	if err != nil {
		if !c.JSON {
			return err
		}
		g = &supervisor.GroupResult{Result: &supervisor.Result{Settled: supervisor.Unchanged, Err: err}, Why: err.Error()}
	}
	late.exit(g.Status())
	if ui.style.summary != "none" {
		ui.losers(g)
	}
	if err := p.finish(g.Result, ui.terminal, false); err != nil || !c.JSON {
		return err
	}
	return writeGroup(p.stdout, g)
}

// outputMode is --output, or what suits where stderr leads.
func (c *runCmd) outputMode(p *program) string {
	switch {
	case c.Output != "":
		return c.Output
	case isTerminal(p.stderr) && os.Getenv("TERM") != "dumb":
		return "board"
	}
	return "prefix"
}

// display shows a race while it runs. Its methods may be called at any time,
// from any goroutine.
type display interface {
	write(index, stream int, p []byte)
	change(index int, state supervisor.VariantState)
	// aside prints something else without a mess.
	aside(print func())
	// end is called once; what is not printed yet is printed or taken away.
	end()
}

// raceUI is how a race speaks with the user; it implements
// [supervisor.ExploreUI].
type raceUI struct {
	*terminal
	output string
	stdout *os.File
	display
}

var _ supervisor.ExploreUI = (*raceUI)(nil)

// show begins to show what happens.
func (u *raceUI) show(variants int) {
	switch u.output {
	case "board":
		u.display = newBoard(u.p.stderr, variants)
	case "prefix":
		u.display = newPrefixer(u.stdout, u.p.stderr)
	default:
		u.display = silent{}
	}
}

// hide ends that.
func (u *raceUI) hide() {
	u.end()
	u.display = silent{}
}

// Warn prints a warning beside the display.
func (u *raceUI) Warn(message string) { u.aside(func() { u.terminal.Warn(message) }) }

// Output shows what a variant wrote.
func (u *raceUI) Output(index, stream int, p []byte) { u.write(index, stream, p) }

// Change shows how far a variant is.
func (u *raceUI) Change(index int, state supervisor.VariantState) { u.change(index, state) }

// Progress is shown while nothing else is.
func (u *raceUI) Progress(done, total int) {
	if _, quiet := u.display.(silent); quiet {
		u.terminal.Progress(done, total)
	}
}

// Done ends the display and prints what the winner wrote, unless that was
// shown already, or was not wanted.
func (u *raceUI) Done(winner func(stdout, stderr io.Writer) error) {
	u.hide()
	if winner == nil || u.output == "prefix" || u.output == "none" {
		return
	}
	if err := winner(u.stdout, u.p.stderr); err != nil && !errors.Is(err, unix.EPIPE) {
		u.terminal.Warn(err.Error())
	}
}

// losers says of each variant why it did not win, when nothing was committed:
// then that is what one wants to know.
func (u *raceUI) losers(g *supervisor.GroupResult) {
	const most = 20
	if g.Winner != 0 && g.Err == nil {
		return
	}
	for i, r := range g.Variants {
		if i == most {
			say(u.p.stderr, "… and %d more", len(g.Variants)-most)
			return
		}
		if i+1 != g.Winner {
			say(u.p.stderr, "[%d] %s", i+1, r.Reason)
		}
	}
	for i, r := range g.Variants {
		if i+1 != g.Winner && r.Settled == supervisor.Kept && r.Branch != g.Branch {
			say(u.p.stderr, "[%d] kept as %s", i+1, printable.Name(r.Branch))
		}
	}
}

// silent shows nothing.
type silent struct{}

func (silent) write(int, int, []byte)              {}
func (silent) change(int, supervisor.VariantState) {}
func (silent) aside(print func())                  { print() }
func (silent) end()                                {}
