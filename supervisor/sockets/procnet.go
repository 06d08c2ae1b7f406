package sockets

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	acceptsConnections = 1 << 16 // __SO_ACCEPTCON, set by listen(2)

	typeStream   = 1
	typeDatagram = 2
	typeSeqpkt   = 5
	unconnected  = 1

	// %08X %08X %08X %04X %02X and a blank: all of fixed width but the inode.
	fieldsWidth = 3*9 + 5 + 3
)

// listening returns the paths of sockets that take connections or datagrams,
// as /proc/net/unix has them: a proposal, see the package comment.
func (c *chooser) listening() ([]string, error) {
	name := c.procNet
	if name == "" {
		name = "/proc/net/unix"
	}
	// Not os.Open, which would ask four times whether the runtime can poll it.
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	data := make([]byte, 0, 16<<10)
	for {
		data = slices.Grow(data, 16<<10)
		n, err := unix.Read(fd, data[len(data):cap(data)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		case n == 0:
			return parse(data), nil
		}
		data = data[:len(data)+n]
	}
}

// parse reads /proc/net/unix (unix_seq_show in net/unix/af_unix.c):
//
//	Num       RefCount Protocol Flags    Type St Inode Path
//	00000000: 00000002 00000000 00010000 0001 01 12345 /run/x
//
// It skips every line that is not of this form, or has no absolute path free
// of control bytes.
func parse(data []byte) []string {
	var paths []string
	for line := range bytes.Lines(data) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		slash := bytes.IndexByte(line, '/')
		if slash < 1 || line[slash-1] != ' ' {
			continue
		}
		// The first slash begins the path: the fields before it have none, and
		// an abstract name begins with @.
		_, fields, ok := bytes.Cut(line[:slash], []byte(": "))
		if !ok || len(fields) < fieldsWidth {
			continue
		}
		flags, okFlags := hex(fields[18:26])
		kind, okKind := hex(fields[27:31])
		state, okState := hex(fields[32:34])
		if !okFlags || !okKind || !okState || fields[17] != ' ' || fields[26] != ' ' || fields[31] != ' ' || fields[34] != ' ' {
			continue
		}
		takes := false
		switch kind {
		case typeStream, typeSeqpkt:
			takes = flags&acceptsConnections != 0
		case typeDatagram:
			takes = state == unconnected
		}
		if p := string(line[slash:]); takes && printable(p) {
			paths = append(paths, p)
		}
	}
	return paths
}

func hex(digits []byte) (n uint64, ok bool) {
	for _, d := range digits {
		switch {
		case '0' <= d && d <= '9':
			d -= '0'
		case 'a' <= d && d <= 'f':
			d -= 'a' - 10
		case 'A' <= d && d <= 'F':
			d -= 'A' - 10
		default:
			return 0, false
		}
		n = n<<4 | uint64(d)
	}
	return n, true
}
