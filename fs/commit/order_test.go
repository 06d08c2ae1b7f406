package commit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"try/fs/layer/layertest"
	"try/fs/vfs"
)

// trace records the calls of a commit: part, call, and last name of the path.
func (r *rig) trace() []string {
	r.t.Helper()
	var list []string
	check(r.t, r.commit(&vfs.Fault{FS: vfs.Disk(), Before: func(o vfs.Op) error {
		list = append(list, fmt.Sprintf("%s %s %s", o.Part, o.Kind, o.Path[strings.LastIndexByte(o.Path, '/')+1:]))
		return nil
	}}))
	return list
}

// TestOrderOfSyncs: what the journal speaks of is durable before its head, the
// head before the first step, and the steps before the mark of the end.
func TestOrderOfSyncs(t *testing.T) {
	layertest.Skip(t)
	small := newRig(t, op{"mkdir", "d"}, op{"write", "d/f", "old"})
	small.session(op{"write", "d/f", "new"}, op{"write", "d/g", "new"})
	got, want := small.trace(), []string{
		"journal open journal.new", "journal write journal.new", "journal replace journal",
		"journal sync file f", "journal sync file g", "journal sync journal.new", // content, then the body and its name
		"journal write journal.new", "journal sync journal.new", // the head: the commit point
		"apply set f", "apply exchange f", "apply rename g", "apply set d", // the mark goes, the time is put back
		"seal sync directory d", "seal write journal.new",
	}
	if !slices.Equal(got, want) {
		t.Errorf("a small commit does\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	for _, copies := range []bool{false, true} {
		r := newRig(t, mixedBase...)
		r.copy = copies
		r.session(mixed...)
		list := r.trace()
		head, first, last, done := -1, -1, -1, -1
		for i, c := range list {
			switch {
			case c == "journal write journal.new":
				head = i
			case strings.HasPrefix(c, "apply "):
				if last = i; first < 0 {
					first = i
				}
			case strings.HasPrefix(c, "seal write"):
				done = i
			}
		}
		before := func(i int) string { return list[i-1] }
		if head < 0 || list[head+1] != "journal sync journal.new" || head+2 != first {
			t.Errorf("copy=%t: the head is call %d, the first step %d:\n%s", copies, head, first, strings.Join(list, "\n"))
		}
		if !slices.ContainsFunc(list[:head], func(c string) bool { return strings.HasPrefix(c, "journal sync file system") }) {
			t.Errorf("copy=%t: the layer is not synced before the head", copies)
		}
		if done < last || !strings.HasPrefix(before(done), "seal sync") || list[len(list)-1] != "seal sync journal.new" {
			t.Errorf("copy=%t: the steps end at %d, the mark of the end is at %d", copies, last, done)
		}
	}
}
