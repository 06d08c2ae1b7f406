// Command attack is the attacker of the supervisor's tests, and sets their
// stage. It says what it tried and what came of it; the tests judge.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
)

// modes are what it can do: the first argument.
var modes = map[string]func(args []string) error{
	"private": private,
	"serve":   serve,
	"connect": connect,
	"fd":      throughDescriptor,
	"stdin":   readLine,
	"pid1":    takeOverInit,
	"keys":    keys,
	"handle":  printHandle,
	"open":    openByHandle,
	"fork":    forkUntilRefused,
	"group":   signalGroup,
	"vsock":   vsock,
	"pipe":    writePipe,
	"freeze":  freezeInit,
	"outside": outside,
	"bomb":    bomb,
}

func main() {
	args := os.Args[1:]
	if len(args) == 0 || modes[args[0]] == nil {
		fmt.Fprintln(os.Stderr, "attack: no such mode")
		os.Exit(98)
	}
	if err := modes[args[0]](args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "attack %s: %v\n", args[0], err)
		os.Exit(99)
	}
}

// cut splits at "--".
func cut(args []string) (before, after []string) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:]
	}
	return args, nil
}

// run runs a command in the foreground and ends with its status.
func run(argv []string) error {
	if len(argv) == 0 {
		return nil
	}
	c := exec.Command(argv[0], argv[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return ended(c.Run())
}

// say prints what came of an attempt.
func say(what string, err error) {
	if err != nil {
		fmt.Printf("%s: %v\n", what, err)
		return
	}
	fmt.Printf("%s: DONE\n", what)
}
