package branch

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/engine"
	"try/fs/sys"
)

// A stamp is the moment of the fork by the clock of one file system, so that
// a change time can be held against it.
type stamp struct {
	time   sys.Time
	strict bool
}

// A stampFile is an inode of ours on the file system to be stamped.
type stampFile interface {
	touch() error // sets the change time to now, and nothing else
	ctime() (sys.Time, error)
}

// takeStamp learns T in two steps (FACTS D2): a change time is only exact if
// the one before it has been looked at. So the inode is changed, looked at,
// changed, and looked at. Of two equal results the time counts as coarse: the
// kernel (before 6.13) or the file system has no exact times.
//
// Where times are coarse but are our own clock's, drift is "later than T", and
// the command must not start before that clock has moved on (WaitStamp): a
// write before the fork has T at most. Where they are coarser than
// that, or another machine's, drift stays "at T or later", which finds
// conflicts that are none rather than missing one.
func takeStamp(f stampFile) (stamp, error) {
	before, err := Now(unix.CLOCK_REALTIME_COARSE)
	if err != nil {
		return stamp{}, err
	}
	var t sys.Time
	for range 3 {
		if err := f.touch(); err != nil {
			return stamp{}, err
		}
		if _, err := f.ctime(); err != nil {
			return stamp{}, err
		}
		if err := f.touch(); err != nil {
			return stamp{}, err
		}
		if t, err = f.ctime(); err != nil {
			return stamp{}, err
		}
		after, err := Now(unix.CLOCK_REALTIME_COARSE)
		if err != nil {
			return stamp{}, err
		}
		if t < before || t > after+sys.Time(time.Second) {
			return stamp{time: t}, nil // rounded down, or another machine's clock
		}
		// Only an exact time can lie beyond what the coarse clock shows; at or
		// before that, the clock may have ticked between the two steps.
		if t > after && !engine.Off("multigrain") {
			return stamp{time: t}, nil
		}
		if engine.Off("multigrain") {
			break
		}
	}
	return stamp{time: max(before, t), strict: true}, nil
}

// dirStamp stamps by a directory of ours whose mode is 0700.
type dirStamp struct{ dir *sys.Dir }

func (d dirStamp) touch() error { return d.dir.Chmod("", 0o700) }

func (d dirStamp) ctime() (sys.Time, error) {
	st, err := d.dir.Stat("")
	return st.Ctime, err
}

// fileStamp stamps by an open file that has no name, or soon none.
type fileStamp struct{ fd int }

func (f fileStamp) touch() error { return unix.Fchmod(f.fd, 0o600) }

func (f fileStamp) ctime() (sys.Time, error) {
	st, err := sys.StatFD(f.fd)
	return st.Ctime, err
}

// stampIn stamps the file system of a root in which no store lies, by a file
// without a name; where there are none, by one that is there for a moment.
func stampIn(root *sys.Dir) (stamp, error) {
	fd, err := root.OpenFD(".", unix.O_TMPFILE|unix.O_RDWR, 0o600)
	if err != nil {
		name := ".try-" + newID()
		if fd, err = root.OpenFD(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600); err != nil {
			return stamp{}, err
		}
		if err := root.Unlink(name); err != nil {
			unix.Close(fd)
			return stamp{}, err
		}
	}
	defer unix.Close(fd)
	return takeStamp(fileStamp{fd})
}

// WaitStamp returns when no write can have the same change time as one before
// the fork any more. It waits, for at most one tick of the kernel's clock,
// only where times are coarse; the command must not start before (B23).
func (b *Branch) WaitStamp(ctx context.Context) error {
	var last sys.Time
	for _, r := range b.Roots {
		if r.Strict {
			last = max(last, r.Stamp)
		}
	}
	// A tick is 10 ms at most. A clock that is set back meanwhile is told by
	// Real and Boottime, not by us.
	for range 80 {
		t, err := Now(unix.CLOCK_REALTIME_COARSE)
		if err != nil || t > last {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond / 4):
		}
	}
	return nil
}
