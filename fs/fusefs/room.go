package fusefs

import (
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// room knows what is on its way to be freed. A removed file is let go of when
// the kernel forgets it, which it says as soon as nobody has the file open, but
// after rm(1) has ended: whoever wants the room at once may be faster. So what
// finds the file system full is tried again when something has been freed.
type room struct {
	mu    sync.Mutex
	held  int           // what takes room and has no name any more, open or not
	begun uint64        // how often something came to be held
	vain  uint64        // begun when somebody last waited in vain: what was held then is open
	freed uint64        // how often something was freed
	more  chan struct{} // closed when something is freed; nil: nobody waits

	dir    *sys.Dir // where room is taken
	asked  time.Time
	little bool // was free when we asked
}

// patience is the longest that one waits for the kernel to forget what nobody
// has open. What is open is waited for once.
const patience = 500 * time.Millisecond

func (r *room) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held++
	r.begun++
}

func (r *room) free() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held--
	r.freed++
	if r.more != nil {
		close(r.more)
		r.more = nil
	}
}

// mark is for wait, before what may need room is tried.
func (r *room) mark() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.freed
}

// wait returns true when something has been freed since mark, or false if
// nothing will be. The caller holds no lock.
func (r *room) wait(mark uint64) bool {
	r.mu.Lock()
	if r.freed != mark {
		r.mu.Unlock()
		return true
	}
	if r.held == 0 || r.vain == r.begun {
		r.mu.Unlock()
		return false
	}
	if r.more == nil {
		r.more = make(chan struct{})
	}
	more, begun := r.more, r.begun
	r.mu.Unlock()
	patient := time.NewTimer(patience)
	defer patient.Stop()
	select {
	case <-more:
		return true
	case <-patient.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vain = max(r.vain, begun)
	return r.freed != mark
}

// scarce says whether so little room is left that what is written should come
// to us, so that it can be tried again.
func (r *room) scarce() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.asked) < 100*time.Millisecond {
		return r.little
	}
	s, err := r.dir.StatFS()
	r.asked, r.little = time.Now(), err != nil || s.Bavail < (1<<30)/uint64(s.Bsize)
	return r.little
}

// full says whether an answer is that there is no room.
func full(out []byte) bool {
	if len(out) != headerSize {
		return false
	}
	switch unix.Errno(-int32(binary.NativeEndian.Uint32(out[4:]))) {
	case unix.ENOSPC, unix.EDQUOT:
		return true
	}
	return false
}
