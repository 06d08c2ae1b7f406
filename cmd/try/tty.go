package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// tty is the controlling terminal while a question is put on it.
type tty struct {
	f     *os.File
	saved *unix.Termios // as it was; restored by close
	slow  bool          // it has answered too late: it gets more time
}

// openTTY opens the controlling terminal. It is opened anew, so that the
// caller's descriptors keep their flags.
func openTTY() (*tty, error) {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the terminal: %w", err)
	}
	t := &tty{f: f}
	err = t.control(func(fd int) error {
		t.saved, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the settings of the terminal: %w", err), f.Close())
	}
	return t, nil
}

// close gives the terminal back as it was; one that hung up needs nothing.
func (t *tty) close() error {
	err := t.set(unix.TCSETS, t.saved)
	if errors.Is(err, unix.EIO) {
		err = nil
	}
	return errors.Join(err, t.f.Close())
}

// control runs do on the descriptor, which stays in the poller: f.Fd() would
// make reads block for ever.
func (t *tty) control(do func(fd int) error) error {
	conn, err := t.f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil {
		return err
	}
	return failed
}

func (t *tty) set(how uint, settings *unix.Termios) error {
	return t.control(func(fd int) error { return unix.IoctlSetTermios(fd, how, settings) })
}

// sane undoes what CMD may have left on the screen: hidden or coloured like
// the background, on the alternate screen, with a mouse that types (H10). An
// unfinished control string is ended first. The cursor is saved before the
// alternate screen is left, since leaving restores it even if the terminal was
// not there.
const sane = "\x18\x1b\\" + // CAN, ST: end of any sequence or string
	"\x1b[?2026l" + // synchronized output off
	"\x1b7\x1b[?1049l\x1b[?47l" + // alternate screen
	"\x1b[!p" + // DECSTR
	"\x1b[0m\x0f\x1b(B" + // attributes, character sets
	"\x1b[?25h\x1b[?7h\x1b[?6l\x1b[r\x1b8" + // cursor, wrapping, origin, margins
	"\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?2004l" + // mouse, focus, paste
	"\x1b[?1l\x1b>\x1b[>4m\x1b[=0u" + // keys
	"\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\" // palette

// reset makes the terminal readable again. A dumb one understands none of it.
func (t *tty) reset() {
	if os.Getenv("TERM") != "dumb" {
		t.print(sane)
	}
}

// print writes to the terminal; one that takes nothing will not answer either,
// and that is noticed.
func (t *tty) print(s string) { _, _ = io.WriteString(t.f, s) }

// How long the terminal may take to answer our own request, and once an answer
// came too late, as over a slow connection.
const (
	answerTime     = 200 * time.Millisecond
	slowAnswerTime = 2 * time.Second
)

// drain throws away type-ahead and what the terminal still answers to CMD's
// queries. A terminal answers in order: once it has answered ours, it has
// answered the others.
func (t *tty) drain() error {
	quiet := *t.saved
	quiet.Lflag &^= unix.ICANON | unix.ECHO
	quiet.Lflag |= unix.ISIG
	quiet.Cc[unix.VMIN], quiet.Cc[unix.VTIME] = 1, 0
	if err := t.set(unix.TCSETS, &quiet); err != nil {
		return err
	}
	if os.Getenv("TERM") == "dumb" {
		return nil // it would print the request; the mode change throws the rest away
	}
	t.print("\x1b[5n")
	patience := answerTime
	if t.slow {
		patience = slowAnswerTime
	}
	if err := t.f.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	defer t.f.SetReadDeadline(time.Time{})
	var got []byte
	buf := make([]byte, 4096)
	for !bytes.Contains(got, []byte("\x1b[0n")) && !bytes.Contains(got, []byte("\x1b[3n")) {
		n, err := t.f.Read(buf)
		// Only the end can hold the beginning of the answer.
		got = append(got[max(0, len(got)-3):], buf[:n]...)
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
			return err
		}
	}
	return nil
}

// canonical switches to whole lines with echo, and throws away what has not
// been read (TCSETSF).
func (t *tty) canonical() error {
	lines := *t.saved
	lines.Iflag |= unix.ICRNL
	lines.Iflag &^= unix.IGNCR | unix.INLCR
	lines.Oflag |= unix.OPOST | unix.ONLCR
	lines.Lflag |= unix.ICANON | unix.ECHO | unix.ECHOE | unix.ISIG | unix.IEXTEN
	lines.Cc[unix.VEOF], lines.Cc[unix.VINTR] = 'D'-'@', 'C'-'@'
	return t.set(unix.TCSETSF, &lines)
}

// readLine reads one line without its newline; io.EOF is the end of input. A
// line that did not end in a newline is none.
func (t *tty) readLine() (string, error) {
	buf := make([]byte, 4096) // what a line can be at most (termios(3))
	n, err := t.f.Read(buf)
	if err != nil {
		return "", err
	}
	line, whole := bytes.CutSuffix(buf[:n], []byte("\n"))
	if !whole {
		return "\x00", nil
	}
	return string(line), nil
}
