package fusefs

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// A slot is the place of one descriptor that can be had again at any time: a
// directory on one level, or the content of a file. Its fields are guarded by
// fds.mu.
type slot struct{ h *held }

// held is an open descriptor. It is closed when it has left its slot and
// nobody uses it.
type held struct {
	fd         int
	dir        *sys.Dir // for directories, which have no fd
	write      bool     // open for writing too
	users      int
	in         *slot // nil: closed by the last user
	prev, next *held // in the list of those that may go, oldest first
}

// fds bounds the descriptors of a server, whatever a tree's size and however
// many files its clients hold open: what is longest unused is closed, and
// opened anew when it is wanted.
type fds struct {
	mu   sync.Mutex
	most int
	n    int
	list held // ring
}

func newFDs(most int) *fds {
	c := &fds{most: most}
	c.list.prev, c.list.next = &c.list, &c.list
	return c
}

// use returns what s holds, for writing if that is asked for, or nil. Each use
// ends with done.
func (c *fds) use(s *slot, write bool) *held {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := s.h
	if h == nil || write && !h.write {
		return nil
	}
	c.take(h)
	return h
}

func (c *fds) take(h *held) {
	h.users++
	if h.prev != nil {
		h.prev.next, h.next.prev = h.next, h.prev
		h.prev, h.next = nil, nil
	}
}

// put puts h, just opened, into s in the place of what was there, and returns
// it in use. If somebody was faster, that one is returned and h is closed.
func (c *fds) put(s *slot, h *held) *held {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := s.h; old != nil {
		if old.write == h.write {
			c.take(old)
			h.close()
			return old
		}
		c.drop(old)
	}
	s.h, h.in = h, s
	h.users++
	c.n++
	for c.n > c.most && c.list.next != &c.list {
		c.drop(c.list.next)
	}
	return h
}

// drop takes h out of its slot.
func (c *fds) drop(h *held) {
	h.in.h, h.in = nil, nil
	c.n--
	if h.prev != nil {
		h.prev.next, h.next.prev = h.next, h.prev
		h.prev, h.next = nil, nil
	}
	if h.users == 0 {
		h.close()
	}
}

// empty closes what s holds.
func (c *fds) empty(s *slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.h != nil {
		c.drop(s.h)
	}
}

func (c *fds) done(h *held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.users--
	if h.users > 0 {
		return
	}
	if h.in == nil {
		h.close()
		return
	}
	h.prev, h.next = c.list.prev, &c.list
	h.prev.next, h.next.prev = h, h
}

// closeAll empties every slot that is not in use.
func (c *fds) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.list.next != &c.list {
		c.drop(c.list.next)
	}
}

func (h *held) close() {
	if h.dir != nil {
		h.dir.Close()
	} else {
		unix.Close(h.fd)
	}
}

// budget is how many descriptors a server keeps at most: a process may serve
// several roots and needs some itself.
func budget() (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, errors.Join(errors.New("ask for the limit of descriptors"), err)
	}
	return int(min(max(limit.Cur/16, 32), 2048)), nil
}
