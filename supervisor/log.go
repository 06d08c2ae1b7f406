package supervisor

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

const logName = "log"

// log keeps what a variant writes: its stdout and stderr apart, in the order
// in which they came. On disk it is a run of records: the stream (one byte, 1
// or 2), the length (four bytes, big-endian), the bytes.
type log struct {
	path string
	mu   sync.Mutex
	f    *os.File
	err  error // the first error of a write: what follows is lost
}

func createLog(dir string) (*log, error) {
	path := filepath.Join(dir, logName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a log: %w", err)
	}
	return &log{path: path, f: f}, nil
}

// write appends a record. A full disk ends the log, not the variant.
func (l *log) write(stream int, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	head := [5]byte{byte(stream)}
	binary.BigEndian.PutUint32(head[1:], uint32(len(p)))
	_, l.err = l.f.Write(append(head[:], p...))
}

// replay writes the records to where they would have gone.
func (l *log) replay(stdout, stderr io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := readLog(io.NewSectionReader(l.f, 0, 1<<62), stdout, stderr); err != nil {
		return fmt.Errorf("read %s: %w", l.path, err)
	}
	return l.err
}

// readLog reads records; one that was cut off by a crash ends it.
func readLog(r io.Reader, stdout, stderr io.Writer) error {
	b := bufio.NewReader(r)
	for {
		var head [5]byte
		if _, err := io.ReadFull(b, head[:]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			return err
		}
		w := stdout
		switch head[0] {
		case 1:
		case 2:
			w = stderr
		default:
			return fmt.Errorf("%d is no stream", head[0])
		}
		if _, err := io.CopyN(w, b, int64(binary.BigEndian.Uint32(head[1:]))); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

func (l *log) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.f.Close() // what could not be written has been noted
}

// Log replays what a kept branch wrote when it ran as a variant.
func (h *Home) Log(name string, stdout, stderr io.Writer) error {
	b, err := h.store.Open(name)
	if err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(b.Path(), logName))
	if errors.Is(err, os.ErrNotExist) {
		return errors.Join(withHint(fmt.Errorf("branch %s has no log", name), "only variants of a race have one; other commands write to the terminal"), b.Close())
	}
	if err != nil {
		return errors.Join(err, b.Close())
	}
	return errors.Join(readLog(f, stdout, stderr), f.Close(), b.Close())
}
