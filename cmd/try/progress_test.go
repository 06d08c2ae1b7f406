package main

import (
	"strings"
	"testing"
)

// manyFiles makes more changes, each a step of its own, than a commit needs for
// a line about its progress.
const manyFiles = `i=0; while test $i -lt 5200; do echo $i > d/$i; i=$((i+1)); done`

// A long commit says on a terminal how far it is, on one line that is gone at
// the end, and nothing of it where nobody watches.
func TestProgress(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.sh("mkdir d")
	y := d.sit("try", "-y", "sh", "-c", manyFiles)
	y.sees("\rtry: committing, ", " % of 5,2", "\r\x1b[K", "5,200 added", "try: committed")
	y.ends(0)
	if late := y.screen(); strings.LastIndex(late, "committing, ") > strings.LastIndex(late, "try: committed") {
		t.Errorf("progress is told of after the end: %q", late[max(0, len(late)-200):])
	}
	d.sh("rm -r d; mkdir d")
	r := d.run("try", "-y", "sh", "-c", manyFiles)
	if r.status != 0 || strings.Contains(r.out+r.err, "committing") || strings.Contains(r.out+r.err, "\r") || !strings.Contains(r.err, "5,200 added") {
		t.Errorf("in a pipe: %d, %.300q", r.status, r.err)
	}
}
