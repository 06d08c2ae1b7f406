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
	record := binary.BigEndian.AppendUint32([]byte{byte(stream)}, uint32(len(p)))
	_, l.err = l.f.Write(append(record, p...))
}

// replay writes the records to where they would have gone.
func (l *log) replay(stdout, stderr io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := readLog(io.NewSectionReader(l.f, 0, 1<<62), stdout, stderr); err != nil {
		return fmt.Errorf("read %s: %w", l.path, err)
	}
	if l.err != nil {
		return fmt.Errorf("the log is not whole: %w", l.err)
	}
	return nil
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

// Log is what a variant of a race has written.
type Log struct{ f *os.File }

// Replay writes it to where it would have gone.
func (l *Log) Replay(stdout, stderr io.Writer) error {
	if err := readLog(l.f, stdout, stderr); err != nil {
		return fmt.Errorf("read %s: %w", l.f.Name(), err)
	}
	return nil
}

// Close closes it.
func (l *Log) Close() error { return l.f.Close() }
