package supervisor_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"try/supervisor"
)

// silent is a UI that shows nothing and asks nothing.
type silent struct{}

func (silent) Event(supervisor.Event)                          {}
func (silent) Warn(string)                                     {}
func (silent) CanAsk() bool                                    { return false }
func (silent) Ask(*supervisor.Result) (supervisor.Fate, error) { return supervisor.Keep, nil }
func (silent) Progress(int, int)                               {}
func (silent) Output(int, int, []byte)                         {}
func (silent) Change(int, supervisor.VariantState)             {}
func (silent) Done(func(stdout, stderr io.Writer) error)       {}

// Two ways to write a file race; the first that passes the check is
// committed, the other leaves nothing. A program that does so calls ns.Init
// and supervisor.Sweep first thing in main.
func ExampleExplore() {
	defer inDirectory()()
	g, err := supervisor.Explore(context.Background(), supervisor.Exploration{
		Options: supervisor.Options{Scope: "dir", Checks: []string{"grep -q right answer"}},
		Variants: [][]string{
			{"sh", "-c", "echo wrong >answer"},
			{"sh", "-c", "echo right >answer; echo $TRY_INDEX >who"},
		},
		Schedule: supervisor.Jobs(2),
		Rule:     supervisor.FirstSuccess{},
	}, silent{})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, _ := os.ReadFile("answer")
	fmt.Printf("variant %d was %s: %s", g.Winner, g.Settled, answer)
	fmt.Printf("variant 1 was %s\n", g.Variants[0].Settled)
	// Output:
	// variant 2 was committed: right
	// variant 1 was aborted
}

// inDirectory goes to an empty directory, HOME for the time.
func inDirectory() (back func()) {
	before, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "try-example-")
	if err != nil {
		panic(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		panic(err)
	}
	home := os.Getenv("HOME")
	for _, d := range []string{"home", "project"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			panic(err)
		}
	}
	os.Setenv("HOME", filepath.Join(dir, "home"))
	os.Setenv("TRY_SYNC", "1")
	if err := os.Chdir(filepath.Join(dir, "project")); err != nil {
		panic(err)
	}
	return func() {
		os.Setenv("HOME", home)
		os.Unsetenv("TRY_SYNC")
		os.Chdir(before)
		if err := removeAll(dir); err != nil {
			panic(err)
		}
	}
}
