package fusefs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// maxIO is the most data of one request.
const maxIO = 1 << 20

// maxReaders are as many as can be of use.
const maxReaders = 64

// bufSize holds the largest request and the largest answer.
const bufSize = maxIO + 4096

// conn is the connection to the kernel. A reader reads a request, answers it,
// and reads the next. One is enough for a program that does one thing after
// another, and much faster than several that take turns, each of which must be
// woken on another processor. A guard adds more when they have much to do, or
// one of them something that takes long; what is too many leaves.
//
// We also tried go-fuse's own fuse.Server: it cannot be ended while the mount
// stands, and splices reads, which for files shorter than a read is slower.
type conn struct {
	fd     int
	ps     *fuse.ProtocolServer
	server *Server
	stale  atomic.Bool

	passthrough atomic.Bool // files are opened

	mu      sync.Mutex
	waiting int // readers that have no request
	readers int
	stopped bool
	ended   chan struct{} // closed when the last reader has gone
	free    []*[2][]byte  // the buffers of readers that have left

	telling sync.RWMutex // held for reading while the kernel is told something
	silent  bool         // guarded by telling: it is told nothing more

	cannotPrune atomic.Bool

	asleep atomic.Bool   // the guard is
	wake   chan struct{} // wakes it
	seq    atomic.Uint64 // counts requests

	count [64]atomic.Uint64 // by opcode
}

// newConn takes dev over, answers the mount's first request, and starts.
func newConn(dev *os.File, ps *fuse.ProtocolServer, f *files, s *Server, passthrough bool) (*conn, error) {
	c := &conn{ps: ps, server: s, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	// A descriptor of our own, of which the runtime and its poller know nothing.
	raw, err := dev.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) {
			c.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
		}), err)
	}
	if err = errors.Join(err, dev.Close()); err != nil {
		return nil, fmt.Errorf("take over the FUSE device: %w", err)
	}
	if err := errors.Join(unix.SetNonblock(c.fd, true), c.begin()); err != nil {
		unix.Close(c.fd)
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.conn = c
	c.passthrough.Store(passthrough)
	c.addReader()
	go c.guard()
	return c, nil
}

// begin answers INIT, which is there since the mount was made.
func (c *conn) begin() error {
	in, out := make([]byte, bufSize), make([]byte, bufSize)
	n, err := (&reader{c: c}).read(in)
	if err != nil {
		return fmt.Errorf("read the FUSE device's first request: %w", err)
	}
	if op := opcode(in[:n]); op != opInit {
		return fmt.Errorf("the FUSE device's first request is %s, not INIT", opName(op))
	}
	c.handle(in[:n], out)
	return nil
}

// reader reads requests. Who has got an answer has mostly another question, and
// to be woken on another processor takes longer than both, much longer on a
// virtual machine. So a reader looks for a request for a moment before it
// sleeps, and between two looks lets whatever else can run here do so.
type reader struct {
	c    *conn
	doze int // how often more it sleeps at once
}

const (
	awake = 100 * time.Microsecond // how long it looks
	doze  = 8                      // how often it does not look after others needed the processor
)

func (r *reader) read(buf []byte) (int, error) {
	var began, looked time.Time
	for sleep := r.doze > 0; ; {
		if sleep {
			request := []unix.PollFd{{Fd: int32(r.c.fd), Events: unix.POLLIN}}
			if _, err := unix.Poll(request, -1); err != nil && !errors.Is(err, unix.EINTR) {
				return 0, err
			}
			r.doze = max(0, r.doze-1)
		}
		n, err := unix.Read(r.c.fd, buf)
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EAGAIN):
			return 0, err
		}
		now := time.Now()
		if began.IsZero() {
			began = now
		} else if now.Sub(looked) > awake/2 {
			r.doze = doze
		}
		looked = now
		if sleep = r.doze > 0 || now.Sub(began) > awake; !sleep {
			unix.RawSyscallNoError(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
	}
}

// addReader is called with mu.
func (c *conn) addReader() {
	c.readers++
	c.waiting++ // from here on, so that not two are started for one
	b := &[2][]byte{}
	if last := len(c.free) - 1; last >= 0 {
		b, c.free = c.free[last], c.free[:last]
	} else {
		b[0], b[1] = make([]byte, bufSize), make([]byte, bufSize)
	}
	go c.loop(b)
}

// beat is how often the guard looks, and the longest that a request waits
// because of another one.
const beat = 4 * time.Millisecond

// guard adds a reader when none waits and none has begun anything new since it
// last looked, or when that has been so, with something new, several times
// running. It sleeps when there is nothing to do.
func (c *conn) guard() {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	var last uint64
	for busy, idle := 0, 0; ; {
		select {
		case <-c.ended:
			return
		case <-ticker.C:
		}
		c.mu.Lock()
		seq := c.seq.Load()
		switch {
		case c.waiting > 0:
			busy = 0
		case c.stopped || c.readers >= maxReaders:
		case seq == last:
			c.addReader()
		default:
			if busy++; busy >= 2 && c.readers < runtime.GOMAXPROCS(0) {
				c.addReader()
				busy = 0
			}
		}
		c.mu.Unlock()
		c.prune(false)
		if idle++; seq != last {
			idle = 0
		}
		last = seq
		if idle < 12 {
			continue
		}
		if c.server.tree.trim() {
			debug.FreeOSMemory() // the kernel has forgotten a large tree
		}
		c.asleep.Store(true)
		c.mu.Lock()
		waits := c.waiting > 0
		c.mu.Unlock()
		if !waits { // a request came just now, and nobody may be left to wake us
			continue
		}
		ticker.Stop()
		for quiet, woken := time.After(aWhile), false; !woken; {
			select {
			case <-c.ended:
				return
			case <-quiet:
				c.prune(true)
			case <-c.wake:
				woken = true
			}
		}
		ticker.Reset(beat)
		idle = 0
	}
}

func (c *conn) loop(b *[2][]byte) {
	in, out := b[0], b[1]
	r := reader{c: c}
	for {
		n, err := r.read(in)
		c.mu.Lock()
		c.waiting--
		// ENOENT: a request was withdrawn; ENODEV: the mount is gone.
		end := c.stopped || err != nil && !errors.Is(err, unix.ENOENT)
		c.mu.Unlock()
		c.seq.Add(1)
		if c.asleep.Load() && c.asleep.Swap(false) {
			select {
			case c.wake <- struct{}{}:
			default:
			}
		}
		if !end && err == nil {
			c.handle(in[:n], out)
		}
		c.mu.Lock()
		if end || c.stopped || c.waiting > 0 {
			c.readers--
			if len(c.free) < 2 {
				c.free = append(c.free, b)
			}
			if c.readers == 0 {
				c.end()
			}
			c.mu.Unlock()
			return
		}
		c.waiting++
		c.mu.Unlock()
	}
}

// end is called once, with mu, when nobody reads and nothing is under way.
func (c *conn) end() {
	c.stopped = true
	c.server.tree.watch.close()
	c.silence()
	unix.Close(c.fd)
	c.server.tree.close()
	close(c.ended)
}

func (c *conn) wait() { <-c.ended }

// stop has every reader leave and ends the connection, whatever is under way.
func (c *conn) stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	// Whoever reads from here on, reads nothing; what is still at work answers
	// into the void. A reader in read(2) is called back by a signal, after which
	// the kernel begins the call anew, on what the descriptor is by then. So the
	// last reference to the device goes, and with it the connection
	// (fuse_dev_release), also where somebody outside holds a file of it.
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("end the FUSE connection: %w", err)
	}
	if c.readers > 0 {
		err = unix.Dup3(null, c.fd, unix.O_CLOEXEC)
	}
	if err = errors.Join(err, unix.Close(null), interruptThreads()); err != nil {
		return fmt.Errorf("end the FUSE connection: %w", err)
	}
	return nil
}

// interruptThreads sends each thread of this process a signal that the runtime
// takes for its own and after which calls are restarted (os/signal).
func interruptThreads() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.Tgkill(os.Getpid(), tid, unix.SIGURG); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// headerSize is that of fuse_out_header: len, error, unique.
const headerSize = 16

// handle answers one request.
func (c *conn) handle(in, out []byte) {
	if len(in) < 40 { // fuse_in_header
		return
	}
	op := opcode(in)
	if int(op) < len(c.count) {
		c.count[op].Add(1)
	}
	n := 0
	if errno := c.refuse(op); errno != 0 {
		n = fail(in, out, errno)
	} else if changes[op] {
		n = c.change(in, out)
	} else {
		n = c.carryOut(in, out)
	}
	if n > 0 {
		c.write(out[:n])
	}
}

// change answers a request that changes something, once more if room for it
// was being made.
func (c *conn) change(in, out []byte) int {
	room := &c.server.tree.room
	for {
		mark := room.mark()
		n := c.changeNow(in, out)
		if !full(out[:n]) || !room.wait(mark) {
			return n
		}
	}
}

func (c *conn) changeNow(in, out []byte) int {
	c.server.gate.RLock()
	defer c.server.gate.RUnlock()
	switch {
	case c.stale.Load(): // since we looked
		return fail(in, out, unix.ESTALE)
	case c.server.frozen:
		return fail(in, out, unix.EROFS)
	}
	return c.carryOut(in, out)
}

func (c *conn) carryOut(in, out []byte) int {
	n, st := c.ps.HandleRequest([][]byte{in}, [][]byte{out})
	if st != fuse.OK {
		return fail(in, out, unix.EIO)
	}
	return n
}

// refuse says which requests are not even looked at. Interrupts are of no use:
// nothing here waits for anybody but the disk.
func (c *conn) refuse(op uint32) unix.Errno {
	switch op {
	case opForget, opBatchForget, opInit, opNotifyReply, opRelease, opDestroy:
		return 0
	case opOpen, opCreate:
		if c.passthrough.Load() {
			break
		}
		fallthrough
	case opInterrupt, opFlush, opFsync, opFsyncDir, opOpenDir:
		if c.stale.Load() && op != opInterrupt {
			return unix.ESTALE
		}
		return unix.ENOSYS // and the kernel does not ask again
	}
	if c.stale.Load() {
		return unix.ESTALE
	}
	return 0
}

// fail makes an answer that is nothing but an error.
func fail(in, out []byte, errno unix.Errno) int {
	binary.NativeEndian.PutUint32(out, uint32(headerSize))
	binary.NativeEndian.PutUint32(out[4:], uint32(-int32(errno)))
	copy(out[8:16], in[8:16])
	return headerSize
}

// write sends an answer. ENOENT: nobody waits for it any more; all else means
// that the mount is gone, which the readers hear too.
func (c *conn) write(b []byte) error {
	return interrupted(func() error {
		_, err := unix.Write(c.fd, b)
		return err
	})
}

// notify tells the kernel something unasked. Never from a request's handler
// with a lock held: the kernel may wait for locks of its own, which the caller
// of another request of ours holds.
func (c *conn) notify(code int32, body []byte) error {
	c.telling.RLock()
	defer c.telling.RUnlock()
	if c.silent {
		return unix.ENOTCONN
	}
	b := make([]byte, headerSize, headerSize+len(body))
	binary.NativeEndian.PutUint32(b, uint32(headerSize+len(body)))
	binary.NativeEndian.PutUint32(b[4:], uint32(-code)) // go-fuse has it negative, the kernel wants it positive
	return c.write(append(b, body...))
}

// silence returns when the kernel is told nothing more: soon the descriptor is
// another file. What is being told may wait for requests to be answered.
func (c *conn) silence() {
	c.telling.Lock()
	defer c.telling.Unlock()
	c.silent = true
}

// dropInode drops what the kernel has cached of an inode: how it looks, and
// its data, mapped or not.
func (c *conn) dropInode(id uint64) error {
	var b [24]byte // fuse_notify_inval_inode_out: ino, off, len
	binary.NativeEndian.PutUint64(b[:], id)
	return c.notify(fuse.NOTIFY_INVAL_INODE, b[:])
}

// dropName drops what the kernel knows of a name, also that it is not there.
func (c *conn) dropName(parent uint64, name string) error {
	b := make([]byte, 16, 16+len(name)+1) // fuse_notify_inval_entry_out: parent, namelen, flags
	binary.NativeEndian.PutUint64(b, parent)
	binary.NativeEndian.PutUint32(b[8:], uint32(len(name)))
	return c.notify(fuse.NOTIFY_INVAL_ENTRY, append(append(b, name...), 0))
}

// dropCaches drops all that the kernel has cached.
func (c *conn) dropCaches(t *tree) {
	for _, n := range t.all() {
		c.dropInode(n.id)
		if !n.isDir() {
			continue
		}
		n.mu.Lock()
		names := make([]string, 0, len(n.dir.children))
		for name := range n.dir.children {
			names = append(names, name)
		}
		n.mu.Unlock()
		for _, name := range names {
			c.dropName(n.id, name)
		}
	}
}
