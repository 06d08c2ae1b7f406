package commit

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/layer/layertest"
	"try/fs/vfs"
)

// TestEachCallFails fails each call of a commit in turn, then each call of the
// recovery from that. What is left must be the old tree with the branch as it
// was, or the new one, and what Commit says must be true.
func TestEachCallFails(t *testing.T) {
	layertest.Skip(t)
	for _, copies := range []bool{false, true} {
		for _, errno := range []unix.Errno{unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EACCES} {
			said := map[string]int{}
			n := 0
			for more := true; more; n += step1() {
				t.Run(fmt.Sprintf("copy=%t/%s/%d", copies, unix.ErrnoName(errno), n+1), func(t *testing.T) {
					r := newRig(t, mixedBase...)
					r.copy = copies
					r.session(mixed...)
					before, want := look(t, r.base()), r.want()
					var failed vfs.Op
					count := 0
					err := r.commit(&vfs.Fault{FS: vfs.Disk(), Before: func(op vfs.Op) error {
						if count++; count == n+1 {
							failed = op
							return errno
						}
						return nil
					}})
					if more = failed.Number > 0; !more {
						check(t, err)
						same(t, "base", look(t, r.base()), want)
						return
					}
					said[r.afterFault(err, failed, errno, before, want)]++
				})
			}
			t.Logf("copy=%t %s: %d calls: %v", copies, unix.ErrnoName(errno), n, said)
		}
	}
}

func step1() int { return *every }

// afterFault checks what a commit said whose call failed with errno.
func (r *rig) afterFault(err error, failed vfs.Op, errno unix.Errno, before, want map[string]entry) string {
	r.t.Helper()
	c, conflict := errors.AsType[*ConflictError](err)
	switch {
	case err == nil:
		r.t.Errorf("%s failed with %v, and nobody heard", failed, errno)
		return "nothing"
	case !errors.Is(err, errno):
		r.t.Errorf("%s failed with %v: the error does not say so: %v", failed, errno, err)
	}
	if errors.Is(err, ErrUnfinished) {
		// One more fault on the way, then for good.
		_, _ = Recover(&vfs.Fault{FS: vfs.Disk(), Before: func(op vfs.Op) error {
			if op.Number%5 == 0 {
				return errno
			}
			return nil
		}}, r.store())
		r.settle(before, want)
		return "unfinished"
	}
	r.whole(Nothing, before, want)
	if conflict && len(c.Left) > 0 {
		r.t.Errorf("%s failed: left %v", failed, c.Left)
	}
	check(r.t, r.commit(vfs.Disk()))
	same(r.t, "base after the second try", look(r.t, r.base()), want)
	if conflict && c.RolledBack {
		return "rolled back"
	}
	return "refused"
}
