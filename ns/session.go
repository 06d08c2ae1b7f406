package ns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Session is a running session. Its methods may be called from several
// goroutines; Wait, Run, End and Linger are meant to follow one another.
type Session struct {
	plan    *plan
	child   *child // what init works on
	control *os.File
	conn    syscall.RawConn
	pid     int // of init, on the host
	pidfd   int
	views   map[string]*os.File // by target
	master  *relay              // nil: no terminal
	feeds   []*feed

	mu       sync.Mutex    // guards what follows
	moved    chan struct{} // closed and made anew at each change
	ready    bool
	started  bool
	program  int
	cmd      int // pid on the host
	failure  *Failure
	exec     unix.Errno
	exit     *Exit
	ending   bool
	empty    bool
	killed   []Process
	gone     error // why init can say no more
	warnings []string
	closed   bool
}

// errGone: init ended while something was still expected of it.
var errGone error = &Failure{Step: "run"}

func newSession(p *plan, c *child, control *os.File, pid, pidfd int) *Session {
	s := &Session{plan: p, child: c, control: control, pid: pid, pidfd: pidfd, moved: make(chan struct{})}
	s.warnings = p.warnings
	return s
}

// writeMaps gives the outer user namespace of a root session its ids, which
// takes privilege out here, and lets init go on.
func (s *Session) writeMaps(maps []idMap) error {
	for _, m := range maps {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", s.pid, m.name), []byte(m.text), 0); err != nil {
			f := &Failure{Step: "map ids", What: m.name}
			errors.As(err, &f.Errno)
			return f
		}
	}
	return s.request(request{})
}

// begin waits until the first program is about to be executed.
func (s *Session) begin() error {
	conn, err := s.control.SyscallConn()
	if err != nil {
		return fmt.Errorf("read the control socket: %w", err)
	}
	s.conn = conn
	go s.listen()
	err = s.until(context.Background(), func() bool { return s.started })
	if err == nil && s.master != nil {
		err = s.master.begin()
	}
	return err
}

// until waits for something that init tells. Failure and end of init break it
// off.
func (s *Session) until(ctx context.Context, done func() bool) error {
	for {
		s.mu.Lock()
		ok, failure, gone, moved := done(), s.failure, s.gone, s.moved
		s.mu.Unlock()
		switch {
		case failure != nil:
			return failure
		case ok:
			return nil
		case gone != nil:
			return gone
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// listen reads reports until there can be no more.
func (s *Session) listen() {
	for {
		r, pid, fds, err := s.receive()
		if err == nil && r.kind == reportServe {
			if err = s.serve(r, fds); err == nil {
				continue
			}
		}
		s.mu.Lock()
		if err != nil {
			s.gone = err
		} else {
			s.gone = s.take(r, pid, fds)
		}
		gone := s.gone
		close(s.moved)
		s.moved = make(chan struct{})
		s.mu.Unlock()
		if gone != nil {
			return
		}
	}
}

// receive reads one report, who sent it, and the descriptors with it.
func (s *Session) receive() (r *report, pid int, fds []int, err error) {
	r = new(report)
	p := unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r))
	oob := make([]byte, 4096)
	var n, oobn int
	err2 := s.conn.Read(func(fd uintptr) bool {
		n, oobn, _, _, err = unix.Recvmsg(int(fd), p, oob, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if err = errors.Join(err2, err); err != nil {
		return nil, 0, nil, fmt.Errorf("read the control socket: %w", err)
	}
	if n == 0 {
		return nil, 0, nil, errGone
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, 0, nil, fmt.Errorf("read the control socket: %w", err)
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_CREDENTIALS:
			if cred, err := unix.ParseUnixCredentials(&m); err == nil {
				pid = int(cred.Pid)
			}
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_RIGHTS:
			if fds, err = unix.ParseUnixRights(&m); err != nil {
				return nil, 0, nil, fmt.Errorf("read the control socket: %w", err)
			}
		}
	}
	if n != len(p) {
		closeAll(fds)
		return nil, 0, nil, fmt.Errorf("read the control socket: a report of %d bytes: %w", n, unix.EPROTO)
	}
	return r, pid, fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// take applies a report. What is not plausible ends the conversation: init is
// ours and makes no such thing. s.mu is held.
func (s *Session) take(r *report, pid int, fds []int) error {
	lie := fmt.Errorf("report %d of init is not plausible: %w", r.kind, unix.EPROTO)
	p := s.plan
	if r.kind != reportReady && len(fds) > 0 {
		closeAll(fds)
		return lie
	}
	switch r.kind {
	case reportReady:
		if s.ready || len(fds) != len(p.views) {
			closeAll(fds)
			return lie
		}
		s.ready = true
		s.stands(r, fds)
	case reportFailed:
		if r.at < 0 || r.at >= int64(len(p.labels)) {
			return lie
		}
		l := p.labels[r.at]
		s.failure = &Failure{Step: l.step, What: l.what, Errno: unix.Errno(r.code), Log: kernelLog(r.text[:])}
	case reportStarted:
		s.started, s.cmd = true, pid
	case reportExec:
		s.exec = unix.Errno(r.code)
	case reportExited:
		if r.at != int64(s.program) || !s.started {
			return nil // of a program whose start had failed
		}
		s.exit = exitOf(unix.WaitStatus(r.code), r.flag != 0, s.exec)
		s.exit.heard = r.notes[0]
		if !p.spec.Confined { // where the session's processes cannot signal init
			s.exit.heard &^= r.notes[1]
		}
	case reportStopped:
		if s.master != nil {
			select {
			case s.master.stops <- struct{}{}:
			default: // it is being dealt with
			}
		}
	case reportProcess:
		if p.spec.Confined {
			pid = int(r.at)
		}
		// An INT within the grace has them named once more.
		if !slices.ContainsFunc(s.killed, func(p Process) bool { return p.PID == pid }) {
			s.killed = append(s.killed, Process{PID: pid, Command: unix.ByteSliceToString(r.text[:])})
		}
	case reportEmpty:
		s.empty = true
	default:
		return lie
	}
	return nil
}

func exitOf(ws unix.WaitStatus, left bool, exec unix.Errno) *Exit {
	e := &Exit{Code: ws.ExitStatus(), Left: left, Exec: exec}
	if ws.Signaled() {
		e.Signal = ws.Signal()
		e.Code = 128 + int(e.Signal)
	}
	return e
}

// stands takes what came with the ready report: the views, the terminal, and
// what was opened anew.
func (s *Session) stands(r *report, fds []int) {
	p := s.plan
	bySlot := map[slot]int{}
	for i, v := range p.views {
		bySlot[v] = fds[i]
	}
	noted := func(n int) bool { return r.notes[n/64]>>(n%64)&1 != 0 }
	for i, text := range p.notes {
		if noted(i) {
			s.warnings = append(s.warnings, text)
		}
	}
	s.views = map[string]*os.File{}
	for i, m := range p.mounts {
		if slices.Contains(p.views, m) {
			target := p.spec.Mounts[i].Target
			s.views[target] = os.NewFile(uintptr(bySlot[m]), target)
		}
	}
	for i := range p.inherit {
		d := &p.inherit[i]
		if d.feed >= 0 {
			s.feeds = append(s.feeds, newFeed(d, bySlot[d.same], noted(d.note)))
		}
	}
	if p.terminal != nil {
		s.master = newRelay(p.terminal, bySlot[p.master], s.request)
	}
}

// request asks init for something.
func (s *Session) request(q request) error {
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&q)), unsafe.Sizeof(q))
	if _, err := s.control.Write(raw); err != nil {
		return fmt.Errorf("ask init: %w", err)
	}
	return nil
}

// View is an O_PATH descriptor of the overlay at target, valid until Close; nil
// for any other mount.
func (s *Session) View(target string) *os.File { return s.views[target] }

// Init is the process id of init on the host, without namespaces of the guard,
// which ends after it. When it is gone, so are all processes of the session, and
// its mounts.
func (s *Session) Init() int { return s.pid }

// PID is the running program's on the host.
func (s *Session) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd
}

// Warnings are what the user should know: descriptors and sockets that could
// not be passed.
func (s *Session) Warnings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.warnings...)
}

// Wait waits until the running program has ended and all that it wrote to the
// session's terminal is out.
func (s *Session) Wait(ctx context.Context) (Exit, error) {
	if err := s.until(ctx, func() bool { return s.exit != nil }); err != nil {
		return Exit{}, fmt.Errorf("wait for the command: %w", err)
	}
	if s.master != nil {
		s.master.drain()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.exit, nil
}

// Run starts another of the Spec's programs. None may be running.
func (s *Session) Run(program int) error {
	name := fmt.Sprintf("program %d", program)
	if program < 0 || program >= len(s.plan.spec.Programs) {
		return fmt.Errorf("run %s: %w", name, unix.EINVAL)
	}
	s.mu.Lock()
	if s.exit == nil {
		s.mu.Unlock()
		return fmt.Errorf("run %s: another one runs: %w", name, unix.EBUSY)
	}
	s.program, s.exit, s.started, s.exec, s.failure, s.empty = program, nil, false, 0, nil, false
	s.mu.Unlock()
	if s.master != nil {
		if err := s.master.enter(); err != nil {
			return fmt.Errorf("run %s: %w", name, err)
		}
	}
	err := s.request(request{kind: requestRun, arg: int32(program)})
	if err == nil {
		err = s.until(context.Background(), func() bool { return s.started })
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	return nil
}

// Signal passes a signal that the supervisor got on to the program, once: not
// if the program got it already because it was sent to the whole process
// group. TERM and HUP wake a stopped program. INT once it has ended is KILL for
// what it left.
func (s *Session) Signal(sig unix.Signal) error {
	s.mu.Lock()
	ending := s.ending || s.exit != nil
	s.mu.Unlock()
	if ending && sig == unix.SIGINT {
		return s.request(request{kind: requestEnd})
	}
	q := request{kind: requestSignal, arg: int32(sig)}
	if sig == unix.SIGTERM || sig == unix.SIGHUP {
		q.nanos = 1
	}
	return s.request(q)
}

// End ends every process of the session but init: TERM and CONT, then, after
// grace, KILL; without grace KILL at once. It returns when none is left, with
// those that were alive when it began. The session stays.
func (s *Session) End(ctx context.Context, grace time.Duration) ([]Process, error) {
	return s.empties(ctx, request{kind: requestEnd, nanos: int64(grace)})
}

// Linger waits until the processes of the session have ended by themselves.
func (s *Session) Linger(ctx context.Context) error {
	_, err := s.empties(ctx, request{kind: requestLinger})
	return err
}

func (s *Session) empties(ctx context.Context, q request) ([]Process, error) {
	s.mu.Lock()
	alone := s.exit != nil && !s.exit.Left // init, and who would start another?
	s.empty, s.killed, s.ending = false, nil, q.kind == requestEnd
	s.mu.Unlock()
	var err error
	if !alone {
		if err = s.request(q); err == nil {
			err = s.until(ctx, func() bool { return s.empty })
		}
	}
	if s.master != nil {
		s.master.drain()
		s.master.leave()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = false
	if err != nil {
		return s.killed, fmt.Errorf("end the session: %w", err)
	}
	return s.killed, nil
}

// Kill sends SIGKILL to init, and with it to every process of the session, and
// does not wait: with the signal pending none returns to user mode
// (pid_namespaces(7)). Without a namespace init and guard do it, which see the
// end of the socket. Close reaps them.
func (s *Session) Kill() error {
	if s.plan.spec.Confined {
		return s.hangUp()
	}
	if err := unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill init: %w", err)
	}
	return nil
}

// Close ends the session, its processes and its mounts, and gives the
// terminal back. It may be called at any time and twice. Init is killed, not
// asked: it may be stopped, and the kernel kills a PID namespace with it.
func (s *Session) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	if s.master != nil {
		s.master.close()
	}
	for _, f := range s.feeds {
		f.close()
	}
	for _, v := range s.views {
		v.Close() // O_PATH: nothing is written through it
	}
	err := s.reap()
	s.control.Close()
	s.plan.dropFeeds()
	if err != nil {
		return fmt.Errorf("close session: %w", err)
	}
	return nil
}

// hangUp ends the conversation, as the end of this process would. Who was
// stopped shall hear of it.
func (s *Session) hangUp() error {
	conn, err := s.control.SyscallConn()
	if err != nil {
		return fmt.Errorf("close the control socket: %w", err)
	}
	var shut error
	err = conn.Control(func(fd uintptr) { shut = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	if err = errors.Join(err, shut); err != nil && !errors.Is(err, unix.ENOTCONN) { // the other end is gone
		return fmt.Errorf("close the control socket: %w", err)
	}
	if err := unix.PidfdSendSignal(s.pidfd, unix.SIGCONT, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("wake the guard: %w", err)
	}
	return nil
}

// reap kills init and waits for its end by pidfd, which the kernel announces
// only after all other processes of the namespace are gone
// (pid_namespaces(7)); without one it is the guard's, which ends after them.
func (s *Session) reap() error {
	defer unix.Close(s.pidfd)
	if err := s.Kill(); err != nil {
		return err
	}
	deadline := time.Now().Add(closeDeadline)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("wait for init (process %d): it does not end: %w", s.pid, unix.ETIMEDOUT)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.pidfd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for init: %w", err)
		}
		if n == 1 {
			break
		}
	}
	for {
		err := unix.Waitid(unix.P_PIDFD, s.pidfd, nil, unix.WEXITED, nil)
		if !errors.Is(err, unix.EINTR) {
			if err != nil && !errors.Is(err, unix.ECHILD) { // ECHILD: the program ignores SIGCHLD
				return fmt.Errorf("reap init: %w", err)
			}
			s.child.gone()
			return nil
		}
	}
}
