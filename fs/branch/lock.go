package branch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// A lock is a write lock on the whole of a file, held by an open file
// description (fcntl_locking(2), F_OFD_SETLK): as with flock(2) it goes when
// the last copy of the descriptor is closed, however the holder died, so a
// forked child must close it first of all (H14). Unlike flock it can be asked
// for without being taken, so that who lists branches is in nobody's way.
type lock struct {
	file *os.File
}

// openLock opens the lock file name in d, making it if it is missing.
func openLock(d *sys.Dir, name string) (*lock, error) {
	f, err := d.OpenFile(name, unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		return nil, err
	}
	return &lock{f}, nil
}

// existingLock is openLock for a file that must be there.
func existingLock(d *sys.Dir, name string) (*lock, error) {
	f, err := d.OpenFile(name, unix.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &lock{f}, nil
}

func (l *lock) control(cmd int, lk *unix.Flock_t) error {
	for {
		err := unix.FcntlFlock(l.file.Fd(), cmd, lk)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "lock", Path: l.file.Name(), Err: err}
		}
		return nil
	}
}

// try takes the lock, or ErrLocked.
func (l *lock) try() error {
	err := l.control(unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return ErrLocked
	}
	return err
}

// wait takes the lock, however long that takes.
func (l *lock) wait() error {
	return l.control(unix.F_OFD_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
}

// isHeld asks whether another open file description holds it.
func (l *lock) isHeld() (bool, error) {
	lk := unix.Flock_t{Type: unix.F_WRLCK}
	if err := l.control(unix.F_OFD_GETLK, &lk); err != nil {
		return false, err
	}
	return lk.Type != unix.F_UNLCK, nil
}

// release gives the lock back: at once, even if a child that another goroutine
// has just forked still has a copy of the descriptor.
func (l *lock) release() error {
	err := l.control(unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
	return errors.Join(err, l.file.Close())
}

// holding opens the lock file name in d, waits for it, and calls f.
func holding(d *sys.Dir, name string, f func() error) error {
	l, err := openLock(d, name)
	if err != nil {
		return err
	}
	if err := l.wait(); err != nil {
		return errors.Join(err, l.release())
	}
	return errors.Join(f(), l.release())
}

// CommitLock is held by whoever applies a commit or rolls one back.
type CommitLock struct {
	l *lock
}

// holderLen is what a name of a branch and a process take at most.
const holderLen = 128

// Unlock gives it back.
func (c *CommitLock) Unlock() error { return c.l.release() }

// LockCommits waits for the store's commit lock. If that takes longer than a
// second waiting is called, once, with who holds it. who is said to those who
// wait for us.
func (s *Store) LockCommits(ctx context.Context, who string, waiting func(holder string)) (*CommitLock, error) {
	l, err := openLock(s.dir, "commit.lock")
	if err != nil {
		return nil, err
	}
	err = l.try()
	if errors.Is(err, ErrLocked) {
		err = l.waitFor(ctx, waiting)
	}
	if err != nil {
		if ctx.Err() == nil {
			err = errors.Join(err, l.release())
		}
		return nil, fmt.Errorf("wait for another commit: %w", err)
	}
	// Only a word for those who wait: that it is the lock that counts. It is
	// always as long, so that the file system has nothing to do but keep it.
	_, _ = fmt.Fprintf(l.file, "%-*s", holderLen, fmt.Sprintf("%s (process %d)", who, os.Getpid()))
	return &CommitLock{l}, nil
}

// waitFor is wait with a word after a second and an end by ctx. When ctx ends
// it, the lock file is closed as soon as the kernel lets go of it.
func (l *lock) waitFor(ctx context.Context, waiting func(holder string)) error {
	got := make(chan error, 1)
	go func() { got <- l.wait() }()
	word := time.NewTimer(time.Second)
	defer word.Stop()
	for {
		select {
		case err := <-got:
			return err
		case <-word.C:
			holder := make([]byte, holderLen)
			n, _ := l.file.ReadAt(holder, 0)
			if waiting != nil {
				waiting(strings.TrimRight(string(holder[:n]), " "))
			}
		case <-ctx.Done():
			go func() {
				<-got
				l.file.Close()
			}()
			return ctx.Err()
		}
	}
}
