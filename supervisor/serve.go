package supervisor

import (
	"encoding/json"
	"errors"
	"os"
	"sync"

	"try/fs/engine"
	"try/fs/fusefs"
	"try/fs/sys"
	"try/ns"
)

// serve answers on dev for the root at m, in which the paths in hidden are not,
// until the session is over. This process must never touch what it serves: it
// sees the base by its own mounts.
func (s *session) serve(m engine.Mount, dev *os.File, hidden []string) error {
	merged := &merges{root: m.Target, ino: map[string]uint64{}}
	s.merged = append(s.merged, merged)
	o := fusefs.Options{Passthrough: sys.Root() && !engine.Off("passthrough"), Hidden: hidden, Merged: merged.note, OpenOwn: ns.OpenOwn, OwnXattr: ns.OwnXattr, OutsideIDs: m.Host}
	if s.set.confined {
		o.OpenOwn, o.OwnXattr = nil, nil // they take a user namespace
	}
	if s.set.opts.Serializable {
		r := &reads{root: m.Target, seen: map[string]sys.Stat{}}
		s.reads, o.Reads = append(s.reads, r), r.note
	}
	server, err := fusefs.Serve(dev, fusefs.Root{Base: m.Target, Layers: []string{m.Upper}, Work: m.Work}, o)
	if err != nil {
		return err
	}
	s.servers = append(s.servers, server)
	return nil
}

// merges are the numbers of the directories of one root that a server has
// merged, by path below it.
type merges struct {
	mu   sync.Mutex
	root string
	ino  map[string]uint64
}

// note is called by the server's goroutines.
func (m *merges) note(path string, st sys.Stat) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ino[path] = st.Ino
}

// unserve ends the servers. No process of the session is left, or what those
// that are wait for is answered with an error.
func (s *session) unserve() error {
	var err error
	for _, server := range s.servers {
		err = errors.Join(err, server.Close(), count(server))
	}
	s.servers = nil
	return err
}

// count appends what a server was asked to the file that TRY_TEST_CALLS names,
// for make bench.
func count(server *fusefs.Server) error {
	path := os.Getenv("TRY_TEST_CALLS")
	if path == "" {
		return nil
	}
	text, err := json.Marshal(server.Calls())
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Close())
}
