package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// plumbing is a variant's descriptors on their way to init.
type plumbing struct{ stdio [3]*os.File }

// close closes our copies, once init has its own.
func (p *plumbing) close() {
	for _, f := range p.stdio {
		if f != nil {
			f.Close()
		}
	}
}

// plumb makes the descriptors of a variant, its log, and what reads them.
func (x *exploration) plumb(v *variant) (p *plumbing, err error) {
	p = &plumbing{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if v.log, err = createLog(v.s.b.Path()); err != nil {
		return p, err
	}
	if p.stdio[0], err = x.stdin(); err != nil {
		return p, err
	}
	for i := 1; i <= 2; i++ {
		var r *os.File
		if r, p.stdio[i], err = readPipe("output"); err != nil {
			return p, fmt.Errorf("variant %d: %w", v.index, err)
		}
		v.output = append(v.output, startPump(r, func(b []byte) {
			v.log.write(i, b)
			x.ui.Output(v.index, i, b)
		}))
	}
	return p, nil
}

// readPipe makes a pipe whose reading end is ours; that of the command blocks,
// as programs expect.
func readPipe(name string) (r, w *os.File, err error) {
	fds := make([]int, 2)
	if err := unix.Pipe2(fds, unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make a pipe for %s: %w", name, err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("make a pipe for %s: %w", name, err)
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// pump reads one stream until its end.
type pump struct {
	r    *os.File
	done chan struct{}
}

func startPump(r *os.File, each func([]byte)) *pump {
	p := &pump{r, make(chan struct{})}
	go func() {
		defer close(p.done)
		defer r.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := r.Read(buf)
			if n > 0 {
				each(buf[:n])
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				drain(r, buf, each)
			}
			if err != nil {
				return
			}
		}
	}()
	return p
}

// finish waits for the last of the stream. No process of the session is left;
// a copy of the descriptor that was sent to one outside must not keep us, so
// what is in the pipe now is all.
func (p *pump) finish() {
	_ = p.r.SetReadDeadline(time.Unix(1, 0)) // closed already: then it is done
	<-p.done
}

// drain reads what is there without waiting for more.
func drain(r *os.File, buf []byte, each func([]byte)) {
	if r.SetReadDeadline(time.Time{}) != nil {
		return
	}
	c, err := r.SyscallConn()
	if err != nil {
		return
	}
	for {
		n, got := 0, error(nil)
		err := c.Read(func(fd uintptr) bool {
			for {
				if n, got = unix.Read(int(fd), buf); !errors.Is(got, unix.EINTR) {
					return true
				}
			}
		})
		if err != nil || got != nil || n <= 0 {
			return
		}
		each(buf[:n])
	}
}

// stdin is one variant's: empty, or a copy of ours.
func (x *exploration) stdin() (*os.File, error) {
	if x.feed == nil {
		return os.Open(os.DevNull)
	}
	fds := make([]int, 2)
	if err := unix.Pipe2(fds, unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a pipe for stdin: %w", err)
	}
	r := os.NewFile(uintptr(fds[0]), "stdin")
	if err := unix.SetNonblock(fds[1], true); err != nil {
		unix.Close(fds[1])
		return nil, errors.Join(fmt.Errorf("make a pipe for stdin: %w", err), r.Close())
	}
	w := os.NewFile(uintptr(fds[1]), "stdin")
	go func() {
		// Who does not read to the end gets no more: EPIPE.
		_, _ = io.Copy(w, io.NewSectionReader(x.feed, 0, 1<<62))
		w.Close()
	}()
	return r, nil
}

// keepStdin keeps what r holds in memory, once for all variants. Whoever types
// it can break it off.
func keepStdin(ctx context.Context, r io.Reader, sig <-chan os.Signal) (*os.File, error) {
	if r == nil {
		return nil, nil
	}
	fd, err := unix.MemfdCreate("try stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("keep stdin: %w", err)
	}
	f := os.NewFile(uintptr(fd), "stdin")
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(f, r)
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				return nil, errors.Join(fmt.Errorf("read stdin: %w", err), f.Close())
			}
			return f, nil
		case s := <-sig:
			switch s {
			case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
				f.Close() // the copy ends with the process, or with its next write
				return nil, &InterruptedError{unix.SignalName(s.(syscall.Signal))}
			}
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		}
	}
}
