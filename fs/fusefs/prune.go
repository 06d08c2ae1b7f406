package fusefs

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// limits are how many nodes the kernel may know before it is asked to forget
// some. A node takes half a kilobyte here, and twice as much in the kernel.
// What is known it need not ask us about: so that many may be, but not when it
// has asked nothing for a while.
type limits struct{ busy, quiet int }

var usual = limits{busy: 1 << 18, quiet: 1 << 16}

const aWhile = 10 * time.Second

// surplus chooses what the kernel should forget if it knows too much: down to
// half of the limit, by whole directories. Which ones is chance, so that of a
// tree that is gone through again and again some is still known each time.
// What is in a directory comes before it.
func (t *table) surplus(quiet bool) []uint64 {
	t.mu.Lock()
	most := t.limits.busy
	if quiet {
		most = t.limits.quiet
	}
	if len(t.byID) <= most || t.next-t.pruned < uint64(most/4) {
		t.mu.Unlock()
		return nil // or what the last time has left is in use
	}
	t.pruned = t.next
	want := len(t.byID) - most/2
	var dirs []*node
	for _, n := range t.byID {
		if n.isDir() {
			dirs = append(dirs, n)
		}
	}
	t.mu.Unlock()
	var ids []uint64
	for i, n := range dirs {
		if len(ids)+i >= want {
			dirs = dirs[:i]
			break
		}
		n.mu.Lock()
		for _, c := range n.dir.children {
			if !c.isDir() {
				ids = append(ids, c.id)
			}
		}
		n.mu.Unlock()
	}
	// A directory is mostly looked up after the one that it is in.
	slices.SortFunc(dirs, func(a, b *node) int { return cmp.Compare(b.id, a.id) })
	for _, n := range dirs {
		ids = append(ids, n.id)
	}
	return ids
}

// prune has the kernel forget what is too much, as it does itself when its
// memory is scarce: what is open or mapped, a working directory, a mount point,
// and a directory in which something is known stay (d_prune_aliases). Before
// Linux 6.18 it does not know the word, and keeps all that it has room for.
func (c *conn) prune(quiet bool) {
	if c.cannotPrune.Load() {
		return
	}
	ids := c.server.tree.surplus(quiet)
	if len(ids) == 0 {
		return
	}
	b := make([]byte, 16, 16+8*len(ids)) // fuse_notify_prune_out: count, padding, spare
	binary.NativeEndian.PutUint32(b, uint32(len(ids)))
	for _, id := range ids {
		b = binary.NativeEndian.AppendUint64(b, id)
	}
	go func() { // it may wait for requests to be answered
		if errors.Is(c.notify(fuse.NOTIFY_PRUNE, b), unix.EINVAL) {
			c.cannotPrune.Store(true)
		}
	}()
}
