package fusefs

import (
	"fmt"
	"io"
	"log"
	"os"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"try/fs/sys"
)

// Root is one tree to serve. Layers are topmost first; the first is written
// to, the others, parents' layers, are only read.
type Root struct {
	Base   string   // the base directory, as this process reaches it
	Layers []string // directories
	Work   string   // a private directory on the first layer's file system
}

// Options are what may differ between servers.
type Options struct {
	// Hidden are absolute paths below Base that are not there for a session.
	Hidden []string

	// Reads is told, from several goroutines, what was read of the base: a file
	// or link when it is looked up, a directory when it is listed, a name that
	// is not there with the zero Stat. Paths are relative to the root.
	Reads func(rel string, st sys.Stat)

	// Passthrough has the kernel read and write what is in the layer itself,
	// which takes CAP_SYS_ADMIN in the first user namespace, and without which
	// nothing changes. Files must be opened then, which costs a round trip; and
	// neither Freeze nor Stale reaches those that are open.
	Passthrough bool

	// Merged is told, from several goroutines, which directory of the base it
	// was that one of the layer was made for.
	Merged func(rel string, st sys.Stat)

	// OutsideIDs shows owner and group of a copy in the layer as they are in the
	// base, though the copy is the user's. The mount is one that they mean the
	// same to as outside (MountHost).
	OutsideIDs bool

	// OpenOwn, which may be nil, opens for reading what the O_PATH descriptor fd
	// holds: a file of the base that its owner has closed to himself, and that
	// a session changes.
	OpenOwn func(fd int) (int, error)

	// OwnXattr, which is there if OpenOwn is, reads an attribute of such a file.
	OwnXattr func(fd int, attr string) ([]byte, error)
}

// MountOptions are what a mount that Serve is to serve needs besides fd,
// rootmode, user_id and group_id: the kernel checks permissions, for everybody.
func MountOptions() string { return "default_permissions,allow_other" }

// Server serves one root.
type Server struct {
	tree *tree
	conn *conn

	gate   sync.RWMutex // held for reading by every change that is under way
	frozen bool         // guarded by gate
}

// Serve serves root on dev, a /dev/fuse descriptor that belongs to a mount,
// until the mount is gone or Close. It mounts nothing, and dev is its own from
// here on, also if it fails. It returns when the mount can be used.
func Serve(dev *os.File, root Root, o Options) (*Server, error) {
	t, err := openTree(root, o)
	if err != nil {
		dev.Close()
		return nil, fmt.Errorf("serve %s: %w", root.Base, err)
	}
	s := &Server{tree: t}
	f := &files{RawFileSystem: fuse.NewDefaultRawFileSystem(), t: t}
	without := uint64(fuse.CAP_PASSTHROUGH) // which counts as a file system on top of another
	if o.Passthrough {
		without = 0
	}
	ps := fuse.NewProtocolServer(f, &fuse.MountOptions{
		MaxWrite:      maxIO,
		MaxBackground: 64,
		Logger:        log.New(io.Discard, "", 0), // it names each request that it does not know
		// The kernel asks for and keeps ACLs, links' targets, and data until it
		// is told otherwise.
		EnableAcl:                true,
		EnableSymlinkCaching:     true,
		ExplicitDataCacheControl: true,
		// The umask of a caller is for us to apply, set-user-id for us to clear,
		// and directories need not be opened.
		ExtraCapabilities:    fuse.CAP_DONT_MASK | fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_NO_OPENDIR_SUPPORT,
		DisabledCapabilities: without,
		DisableReadDirPlus:   o.Reads != nil,
	})
	if s.conn, err = newConn(dev, ps, f, s, o.Passthrough); err != nil {
		t.close()
		return nil, fmt.Errorf("serve %s: %w", root.Base, err)
	}
	t.watch.start(s.conn)
	return s, nil
}

// Freeze lets every change fail with EROFS from the moment it returns.
func (s *Server) Freeze() { s.setFrozen(true) }

// Thaw ends Freeze.
func (s *Server) Thaw() { s.setFrozen(false) }

func (s *Server) setFrozen(frozen bool) {
	s.gate.Lock()
	defer s.gate.Unlock()
	s.frozen = frozen
}

// Stale lets every call fail with ESTALE, and an access to mapped memory with
// SIGBUS, from the moment it returns. There is no way back.
func (s *Server) Stale() {
	s.conn.stale.Store(true)
	s.gate.Lock()   // until the changes under way are done
	s.gate.Unlock() //lint:ignore SA2001 see above
	s.conn.dropCaches(s.tree)
}

// Close ends the connection: calls that are under way and all later ones fail
// with ENOTCONN.
func (s *Server) Close() error {
	s.tree.watch.close()
	s.conn.silence()
	if err := s.conn.stop(); err != nil {
		return err
	}
	s.conn.wait()
	return nil
}

// Wait returns when the mount is gone, or after Close.
func (s *Server) Wait() { s.conn.wait() }

// Calls counts the round trips so far, by the kernel's name of the request.
func (s *Server) Calls() map[string]uint64 { return s.conn.calls() }
