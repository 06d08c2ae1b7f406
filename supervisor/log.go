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

// What a log keeps of an output without end: its head, and of the rest the
// last one or two of such pieces (H29).
const (
	logHead  = 32 << 20
	logPiece = 16 << 20
)

// log keeps what a variant writes: its stdout and stderr apart, in the order
// in which they came. On disk it is a run of records: the stream (one byte, 1
// or 2), the length (four bytes, big-endian), the bytes. Beyond logHead it goes
// on in log.1, and what was there moves to log.0 when that is full: then log.1
// begins with a record of stream 0 that says, in eight bytes, how many bytes
// of output between log and log.0 are lost.
type log struct {
	path  string
	mu    sync.Mutex
	files [3]*os.File // log, log.0, log.1; the last two may be nil
	size  int64       // of the one that is written to
	kept  int64       // bytes of output in log.0
	now   int64       // and in log.1
	lost  uint64
	err   error // the first error of a write: what follows is lost
}

func createLog(dir string) (*log, error) {
	l := &log{path: filepath.Join(dir, logName)}
	return l, l.create(0)
}

// pieces are the files of a log.
func pieces(path string) [3]string { return [3]string{path, path + ".0", path + ".1"} }

func (l *log) create(i int) (err error) {
	l.files[i], err = os.OpenFile(pieces(l.path)[i], os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("make a log: %w", err)
	}
	l.size = 0
	return nil
}

// write appends a record. A full disk ends the log, not the variant.
func (l *log) write(stream int, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = l.append(stream, p)
	}
}

func (l *log) append(stream int, p []byte) error {
	at, most := l.files[0], int64(logHead)
	if l.files[2] != nil {
		at, most = l.files[2], logPiece
	}
	record := append(binary.BigEndian.AppendUint32([]byte{byte(stream)}, uint32(len(p))), p...)
	if l.size+int64(len(record)) > most {
		if err := l.turn(); err != nil {
			return err
		}
		at = l.files[2]
	}
	n, err := at.Write(record)
	l.size += int64(n)
	l.now += int64(len(p))
	return err
}

// turn begins a new log.1.
func (l *log) turn() error {
	if l.files[2] == nil {
		l.now = 0
		return l.create(2)
	}
	if l.files[1] != nil {
		l.lost += uint64(l.kept)
		l.files[1].Close() // nobody will read it
	}
	names := pieces(l.path)
	if err := os.Rename(names[2], names[1]); err != nil {
		return fmt.Errorf("make room in a log: %w", err)
	}
	l.files[1], l.kept, l.now = l.files[2], l.now, 0
	if err := l.create(2); err != nil || l.lost == 0 {
		return err
	}
	record := binary.BigEndian.AppendUint32([]byte{0}, 8)
	n, err := l.files[2].Write(binary.BigEndian.AppendUint64(record, l.lost))
	l.size = int64(n)
	return err
}

// replay writes the records to where they would have gone.
func (l *log) replay(stdout, stderr io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := readPieces(l.files, stdout, stderr); err != nil {
		return fmt.Errorf("read %s: %w", l.path, err)
	}
	if l.err != nil {
		return fmt.Errorf("the log is not whole: %w", l.err)
	}
	return nil
}

// readPieces reads the files of a log, those that are there, from their start.
func readPieces(files [3]*os.File, stdout, stderr io.Writer) error {
	for i, f := range files {
		if f == nil {
			continue
		}
		if i == 1 && files[2] != nil {
			var head [13]byte
			if n, err := files[2].ReadAt(head[:], 0); n == len(head) && err == nil && head[0] == 0 {
				fmt.Fprintf(stderr, "try: %d bytes of output are left out here: a log keeps the first %d MiB and the last %d\n",
					binary.BigEndian.Uint64(head[5:]), logHead>>20, logPiece>>20)
			}
		}
		if err := readLog(io.NewSectionReader(f, 0, 1<<62), stdout, stderr); err != nil {
			return err
		}
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
		case 0: // has been told
			w = io.Discard
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
	for _, f := range l.files {
		if f != nil {
			f.Close() // what could not be written has been noted
		}
	}
}

// Log is what a variant of a race has written.
type Log struct {
	path  string
	files [3]*os.File
}

// openLog opens a log; os.ErrNotExist if there is none.
func openLog(dir string) (*Log, error) {
	l := &Log{path: filepath.Join(dir, logName)}
	for i, name := range pieces(l.path) {
		f, err := os.Open(name)
		if err != nil && (i == 0 || !errors.Is(err, os.ErrNotExist)) {
			return nil, errors.Join(err, l.Close())
		}
		if err == nil {
			l.files[i] = f
		}
	}
	return l, nil
}

// Replay writes it to where it would have gone.
func (l *Log) Replay(stdout, stderr io.Writer) error {
	if err := readPieces(l.files, stdout, stderr); err != nil {
		return fmt.Errorf("read %s: %w", l.path, err)
	}
	return nil
}

// Close closes it.
func (l *Log) Close() error {
	var errs []error
	for _, f := range l.files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
