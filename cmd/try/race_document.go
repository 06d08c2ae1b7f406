package main

import (
	"io"

	"try/supervisor"
)

// writeGroup writes the result document of a race: that of the winner, or of
// the race as a whole, and what became of each variant.
func writeGroup(w io.Writer, g *supervisor.GroupResult) error {
	j := newJSON(w)
	j.nested("{", "}", func() {
		j.result(g.Result)
		j.optional("group", g.Group)
		if g.Winner == 0 {
			j.null("winner")
		} else {
			j.number("winner", int64(g.Winner))
		}
		j.text("why", g.Why)
		j.list("variants", func() {
			for i, r := range g.Variants {
				j.element(func() { j.variant(i+1, r, g.Logs[i]) })
			}
		})
	})
	return j.flush()
}

// variant writes one of them. What of one that was never looked at cannot be
// known is null.
func (j *jsonWriter) variant(index int, r *supervisor.Result, log string) {
	j.number("index", int64(index))
	j.text("branch", r.Branch)
	j.text("id", r.ID)
	j.texts("command", r.Command)
	if r.Started.IsZero() {
		j.null("exit_code")
	} else {
		j.number("exit_code", int64(r.ExitCode))
	}
	j.optional("signal", r.Signal)
	j.bool("timed_out", r.TimedOut)
	j.number("duration_ms", r.Duration.Milliseconds())
	j.text("settled", string(r.Settled))
	j.optional("reason", r.Reason)
	if r.Plan == nil {
		j.null("changes")
	} else {
		j.object("changes", func() { j.counts(r.Plan.Counts()) })
	}
	j.optional("log", log)
	if r.Err == nil {
		j.null("error")
	} else {
		j.text("error", r.Err.Error())
	}
}
