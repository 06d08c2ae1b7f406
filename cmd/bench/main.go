package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == workerWord {
		os.Exit(work(os.Args[2:]))
	}
	os.Exit(run(os.Args[1:]))
}

// A section measures one group of rows. Its error means that it could not go
// on; what it had measured until then stays in the table.
type section struct {
	name string
	run  func(*lab) error
}

// The order matters to ext4 (see the package comment): first what creates
// many files, last what deletes many.
var sections = []section{
	{"start", start},
	{"creation", creation},
	{"memory", memory},
	{"inside", inside},
	{"fuse", behindFUSE},
	{"race", racing},
	{"plan", planning},
	{"settle", settle},
	{"undo", undoing},
}

func run(args []string) int {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	short := flags.Bool("short", false, "a smoke run of less than a minute: fewer samples, no 1 GB, no 100,000 files")
	only := flags.String("only", "", "run one `section`: start, creation, memory, inside, fuse, race, plan, settle, undo")
	try := flags.String("try", "bin/try", "the `binary` to measure")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	l, err := open(ctx, *try, *short)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		return 1
	}
	code := 0
	for _, s := range sections {
		if *only != "" && *only != s.name {
			continue
		}
		fmt.Fprintf(os.Stderr, "bench: %s\n", s.name)
		if err := s.run(l); err != nil {
			l.table.missing(s.name, err.Error())
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", s.name, err)
			code = 1
		}
		if ctx.Err() != nil {
			break
		}
	}
	facts := l.facts()
	if err := l.close(); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		code = 1
	}
	for _, f := range facts {
		fmt.Println(f)
	}
	fmt.Println()
	if err := l.table.print(os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		code = 1
	}
	if l.table.failed {
		code = 1
	}
	return code
}
