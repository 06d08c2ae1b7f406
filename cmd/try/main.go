// Command try runs any command in a copy-on-write branch of the file system,
// then commits or drops what it changed.
//
// This package holds words and flags: it cuts and parses the command line,
// prints, asks, and maps results to exit codes. What a session is, and what a
// commit does, it does not know.
package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"try/ns"
	"try/supervisor"
)

func main() {
	// Both take over and do not return when this process is one that we
	// started ourselves: the init of a session, the child that empties the
	// trash. They come before everything else, since neither has our flags.
	ns.Init()
	supervisor.Sweep()
	os.Exit(run(os.Args[1:]))
}

// run is the whole program but for the exit, so that every defer runs. What
// goes wrong is reported here and nowhere else.
func run(args []string) int {
	p := &program{stdout: os.Stdout, stderr: os.Stderr}
	l, err := parse(args)
	p.global = l.global
	p.color = p.global.colors(p.stderr)
	if err != nil {
		return p.report(err)
	}
	err = l.do(p)
	if err != nil && !errors.Is(err, unix.EPIPE) { // who closed our stdout has seen enough
		return p.report(err)
	}
	return p.status
}

// program is one call of try: where it prints, and what it will return.
type program struct {
	stdout, stderr *os.File
	global         globalFlags
	color          bool // whether stderr gets colours
	status         int
}
