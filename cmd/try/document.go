package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/supervisor"
)

// documentVersion is that of every JSON document and event. Fields are only
// ever added; a reader that meets a higher number must not guess.
const documentVersion = 1

// writeResult writes the result document (DESIGN §8). Optional fields are
// null, lists are always lists.
func writeResult(w io.Writer, r *supervisor.Result) error {
	j := newJSON(w)
	j.nested("{", "}", func() { j.result(r) })
	return j.flush()
}

// result writes the fields of a result document.
func (j *jsonWriter) result(r *supervisor.Result) {
	j.number("version", documentVersion)
	j.optional("branch", r.Branch)
	j.optional("id", r.ID)
	j.texts("command", r.Command)
	j.optional("cwd", r.Dir)
	j.optional("engine", r.Engine)
	if r.Started.IsZero() { // CMD never ran
		j.null("exit_code")
	} else {
		j.number("exit_code", int64(r.ExitCode))
	}
	j.optional("signal", r.Signal)
	j.bool("timed_out", r.TimedOut)
	j.time("started", r.Started)
	j.number("duration_ms", r.Duration.Milliseconds())
	j.text("settled", string(r.Settled))
	j.optional("reason", r.Reason)
	j.changes(r)
	j.number("remaining", int64(r.Stay))
	j.list("conflicts", func() {
		for _, c := range r.Conflicts {
			j.element(func() {
				j.text("path", joinRoot(c.Root, c.Path))
				j.text("reason", c.Reason)
			})
		}
	})
	j.list("resolved", func() {
		for _, d := range r.Resolved {
			j.element(func() {
				j.text("path", d.Path)
				j.text("how", d.How.String())
			})
		}
	})
	j.list("killed", func() {
		for _, p := range r.Killed {
			j.element(func() {
				j.number("pid", int64(p.PID))
				j.text("command", p.Command)
			})
		}
	})
	j.texts("warnings", warnings(r))
	if r.Err == nil {
		j.null("error")
	} else {
		j.text("error", r.Err.Error())
	}
}

// writeChanges writes the document of `try changes --json`.
func writeChanges(w io.Writer, r *supervisor.Result) error {
	j := newJSON(w)
	j.nested("{", "}", func() {
		j.number("version", documentVersion)
		j.text("branch", r.Branch)
		j.text("id", r.ID)
		j.changes(r)
		j.texts("warnings", warnings(r))
	})
	return j.flush()
}

// writeComparison writes the document of `try changes --against --json`.
func writeComparison(w io.Writer, name, other string, list []supervisor.Difference, alike int) error {
	j := newJSON(w)
	j.nested("{", "}", func() {
		j.number("version", documentVersion)
		j.text("branch", name)
		j.text("against", other)
		j.list("paths", func() {
			for _, d := range list {
				j.element(func() {
					j.text("path", d.Path)
					for _, side := range []struct {
						name string
						c    *changes.Change
					}{{"kind", d.First}, {"against_kind", d.Other}} {
						if side.c == nil {
							j.null(side.name)
						} else {
							j.text(side.name, side.c.Kind.String())
						}
					}
				})
			}
		})
		j.number("alike", int64(alike))
	})
	return j.flush()
}

// warnings is all that the summary says beside the changes.
func warnings(r *supervisor.Result) []string {
	list := append([]string(nil), r.Warnings...)
	for _, door := range r.Passed {
		list = append(list, "let through: "+door)
	}
	for _, path := range r.Dropped {
		list = append(list, "left out: "+path)
	}
	for _, line := range r.Denied {
		list = append(list, "the policy forbids "+line)
	}
	for _, line := range r.Asks {
		list = append(list, "the policy asks about "+line)
	}
	return list
}

// changes writes the fields "changes" and "roots".
func (j *jsonWriter) changes(r *supervisor.Result) {
	all := groups(r)
	if r.Plan == nil {
		j.null("changes")
	} else {
		j.object("changes", func() { j.counts(r.Plan.Counts()) })
	}
	j.list("roots", func() {
		for _, g := range all {
			j.element(func() {
				j.text("path", g.path)
				j.list("changes", func() {
					for i := range g.entries {
						j.element(func() { j.change(&g.entries[i]) })
					}
				})
			})
		}
	})
}

func (j *jsonWriter) counts(c changes.Counts) {
	j.number("added", int64(c.Added))
	j.number("modified", int64(c.Modified))
	j.number("deleted", int64(c.Deleted))
	j.number("replaced", int64(c.Replaced))
	j.number("metadata", int64(c.Metadata))
	j.number("touched", int64(c.Touched))
	j.number("bytes", c.Bytes)
}

// change writes what a commit would make of one path; of a deleted one
// nothing is left to tell.
func (j *jsonWriter) change(e *entry) {
	j.text("path", e.path)
	j.text("kind", e.Kind.String())
	j.text("type", e.Type.String())
	if e.Layer == nil || e.Kind == changes.Deleted {
		j.null("size")
		j.null("mode")
		j.null("target")
		return
	}
	if e.Type == changes.File {
		j.number("size", e.Layer.Size)
	} else {
		j.null("size")
	}
	j.text("mode", fmt.Sprintf("%04o", e.Layer.Perm()))
	j.optional("target", e.Target)
}

func (j *jsonWriter) time(name string, t time.Time) {
	if t.IsZero() {
		j.null(name)
		return
	}
	j.text(name, t.UTC().Format(time.RFC3339Nano))
}

// eventLog writes the events of --status-fd, one JSON line each. A reader that
// went away does not disturb the run.
type eventLog struct{ f *os.File }

// openEvents takes the caller's descriptor n. Ours are all close-on-exec, so
// one that is not came from the caller; 0 to 2 belong to CMD.
func openEvents(n int) (*eventLog, error) {
	if n < 3 {
		return nil, usage("--status-fd %d: 0, 1 and 2 are the command's own", n)
	}
	flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return nil, usage("--status-fd %d: not open; redirect it, as in %d>events", n, n)
	}
	mode, err := unix.FcntlInt(uintptr(n), unix.F_GETFL, 0)
	if err != nil || mode&unix.O_ACCMODE == unix.O_RDONLY || mode&unix.O_PATH != 0 {
		return nil, usage("--status-fd %d: not open for writing", n)
	}
	unix.CloseOnExec(n)
	return &eventLog{os.NewFile(uintptr(n), "status")}, nil
}

// write reports one event. Each line goes out by one write(2).
func (l *eventLog) write(e supervisor.Event) {
	j := newJSON(l.f)
	j.nested("{", "}", func() {
		j.number("version", documentVersion)
		j.text("event", e.Kind)
		if e.Index > 0 { // a variant of a race
			j.number("index", int64(e.Index))
		}
		switch e.Kind {
		case "branch":
			j.text("name", e.Result.Branch)
			j.text("id", e.Result.ID)
		case "started":
			j.number("pid", int64(e.PID))
		case "exited":
			j.number("exit_code", int64(e.Result.ExitCode))
			j.optional("signal", e.Result.Signal)
		case "settled":
			j.text("settled", string(e.Result.Settled))
			j.optional("reason", e.Result.Reason)
		}
	})
	_ = j.flush() // nobody is left to be told
}
