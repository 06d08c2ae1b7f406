package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"try/fs/sys"
	"try/ns"
	"try/supervisor"
	"try/supervisor/printable"
)

// doctorCmd is `try doctor`.
type doctorCmd struct{}

// Help is printed by `try doctor --help`.
func (*doctorCmd) Help() string {
	return `Each line is tried out here and now, with your own rights, in this directory;
nothing is changed. The exit status is 0 if try works here, else 1.
`
}

// finding is what one probe found.
type finding struct {
	name    string
	state   verdict
	found   string // what there is
	meaning string // what follows from it; empty if all is well
	fix     string // a line to paste; may be empty
}

// verdict says how bad a finding is.
type verdict uint8

const (
	_       verdict = iota
	fine            // as it should be
	limited         // try works, something does not
	missing         // try cannot work without it
)

// Run prints every finding, then whether a session works.
func (*doctorCmd) Run(p *program) error {
	store, hostMount, layers := probeStore()
	session := trySession("auto") // which tidies up behind the probes, too
	for _, f := range slices.Concat(probeSystem(layers), hostMount, []finding{store}) {
		f.print(p)
	}
	session.print(p)
	if session.state != missing {
		say(p.stdout, "try works here")
		return nil
	}
	p.status = statusNo
	f, forbidden := probeConfined()
	if forbidden {
		f.print(p)
	}
	if forbidden && f.state != missing {
		say(p.stdout, "try works here by --engine fuse only, less well guarded")
	} else {
		say(p.stdout, "try does not work here")
	}
	return nil
}

func (f finding) print(p *program) {
	word, color := "ok", green
	switch f.state {
	case fine:
	case limited:
		word, color = "limited", yellow
	case missing:
		word, color = "missing", red
	default:
		panic(fmt.Sprintf("unknown verdict %d", f.state))
	}
	on := p.global.colors(p.stdout)
	fmt.Fprintf(p.stdout, "%s %-18s %s\n", paint(on, color, fmt.Sprintf("%-8s", word)), f.name, printable.Text(f.found))
	if f.meaning != "" {
		fmt.Fprintf(p.stdout, "%27s %s\n", "", printable.Text(f.meaning))
	}
	for line := range strings.Lines(f.fix) {
		fmt.Fprintf(p.stdout, "%27s %s\n", "fix:", printable.Text(strings.TrimSuffix(line, "\n")))
	}
}

// probeSystem asks the system for each thing that a session needs, in this
// directory; layers is on the file system where its layers would lie.
func probeSystem(layers string) []finding {
	list := []finding{{name: "kernel", state: fine, found: kernelRelease()}}
	cwd, err := os.Getwd()
	if err != nil {
		return append(list, finding{name: "cwd", state: missing, found: err.Error(), meaning: "the working directory is gone"})
	}
	for _, fact := range ns.Probe(cwd, layers) {
		f := finding{name: fact.Name, state: fine, found: cmp.Or(fact.Found, "works"), meaning: fact.Meaning, fix: fact.Fix}
		if fact.Err != nil {
			f.state, f.found = limited, fact.Err.Error()
			if fact.Needed {
				f.state = missing
			}
		}
		list = append(list, f)
	}
	return list
}

func kernelRelease() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown; Linux 5.15 or later is needed"
	}
	return strings.TrimSpace(string(text))
}

// trySession runs a whole session in this directory: its namespaces, overlays
// on all roots, /proc, the devices and terminals of its own. An error names
// the step that failed.
func trySession(engine string) finding {
	f := finding{name: "session", state: fine}
	quiet := &observer{}
	r, err := supervisor.Run(context.Background(), supervisor.Options{
		Argv: []string{"true"}, OnSuccess: supervisor.Abort, OnFailure: supervisor.Abort,
		Terminal: supervisor.NoTerminal, NoPolicy: true, Engine: engine,
	}, quiet)
	if err == nil {
		err = r.Err
	}
	if err != nil {
		f.state, f.found = missing, err.Error()
		f.meaning = "no command can run in a branch here"
		f.fix = supervisor.Hint(err)
		return f
	}
	f.found = fmt.Sprintf("engine %s; namespaces, overlays, /proc, /dev and devpts stand", r.Engine)
	if len(quiet.warnings) > 0 {
		f.state, f.meaning = limited, strings.Join(quiet.warnings, "; ")
	}
	return f
}

// probeConfined says what there would be without the namespaces that this system
// forbids, by a whole session of that kind.
func probeConfined() (f finding, forbidden bool) {
	forbidden, err := supervisor.ProbeConfined()
	switch {
	case !forbidden:
		return finding{}, false
	case err != nil:
		f = finding{
			state: missing, found: err.Error(), fix: supervisor.Hint(err),
			meaning: "--engine fuse cannot do without them either",
		}
	default:
		if f = trySession("fuse"); f.state != missing {
			f.state, f.found = limited, "--engine fuse runs commands at a private mount point"
		}
	}
	f.name = "no namespaces"
	return f, true
}

// probeStore opens the home store, which must be ours alone, and says where a
// layer can be tried out. An ordinary user's is asked for more: whether a FUSE
// mount can be made outside of the session.
func probeStore() (f finding, hostMount []finding, layers string) {
	f = finding{name: "store", state: fine}
	layers = os.TempDir()
	home, err := supervisor.OpenHome()
	if err == nil {
		layers = home.Store()
		f.found = shortHome(layers)
		if !sys.Root() {
			hostMount = append(hostMount, probeHostMount(home))
		}
		err = home.Close()
	}
	if err != nil {
		f.state, f.found, f.fix = missing, err.Error(), supervisor.Hint(err)
		f.meaning = "branches, journals and layers have no place"
	}
	return f, hostMount, layers
}

// probeHostMount asks for the second way to mount FUSE. Root's sessions map all
// ids and need none.
func probeHostMount(home *supervisor.Home) finding {
	f := finding{name: "fusermount3", state: fine, found: "mounts outside: files of others and of all your groups are as outside behind fuse"}
	if err := home.ProbeHostMount(); err != nil {
		f.state, f.found = limited, err.Error()
		f.meaning = "files of others, and yours of another group than the first, cannot be written in a branch"
		f.fix = supervisor.Hint(err)
	}
	return f
}

// observer is a [supervisor.UI] that only listens.
type observer struct{ warnings []string }

func (o *observer) Event(supervisor.Event)   {}
func (o *observer) Warn(message string)      { o.warnings = append(o.warnings, message) }
func (o *observer) CanAsk() bool             { return false }
func (o *observer) Progress(done, total int) {}

// Ask is never called: nothing is left to ask.
func (o *observer) Ask(*supervisor.Result) (supervisor.Fate, error) { return supervisor.Abort, nil }
