package policy

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// errIndex is the one error of the index parser: whoever cannot read an index
// treats it as changed, whatever is wrong with it.
var errIndex = errors.New("not a git index that is understood")

// MaxContents is the largest file that a rule looks into: an index of some
// 500,000 files.
const MaxContents = 64 << 20

// SameIndex says whether two git indexes differ at most in what git refreshes
// by itself: stat data, the format's version, and caches kept in extensions.
// What it does not understand differs. The format is in git's
// Documentation/gitformat-index.txt.
func SameIndex(a, b []byte) bool {
	ia, err := openIndex(a)
	if err != nil {
		return false
	}
	ib, err := openIndex(b)
	if err != nil || ia.count != ib.count || ia.hash != ib.hash {
		return false
	}
	for range ia.count {
		if ia.next() != nil || ib.next() != nil || !ia.sameEntry(ib) {
			return false
		}
	}
	ea, err := ia.extensions()
	if err != nil {
		return false
	}
	eb, err := ib.extensions()
	return err == nil && bytes.Equal(ea, eb)
}

// index reads the entries of an index one by one.
type index struct {
	data    []byte // without the trailing checksum
	at      int
	version uint32
	count   uint32
	hash    int // bytes of an object name: 20 or 32

	// The entry at hand.
	mode     uint32
	object   []byte
	flags    uint16 // assume-valid and stage
	extended uint16 // skip-worktree and intent-to-add
	path     []byte
}

const (
	indexHeader = 12
	statBytes   = 24 // ctime, mtime, dev, ino before the mode
	ownerBytes  = 12 // uid, gid, size behind it

	flagExtended = 0x4000
	flagNameLen  = 0x0fff
)

// openIndex checks the header, and by the checksum which hash is used.
func openIndex(data []byte) (*index, error) {
	if len(data) > MaxContents || len(data) < indexHeader+sha1.Size || string(data[:4]) != "DIRC" {
		return nil, errIndex
	}
	x := &index{version: binary.BigEndian.Uint32(data[4:]), count: binary.BigEndian.Uint32(data[8:]), at: indexHeader}
	if x.version < 2 || x.version > 4 {
		return nil, errIndex
	}
	body := data[:len(data)-sha1.Size]
	if sum := sha1.Sum(body); bytes.Equal(sum[:], data[len(body):]) {
		x.hash = sha1.Size
	} else if body = data[:max(len(data)-sha256.Size, 0)]; len(body) >= indexHeader {
		if sum := sha256.Sum256(body); bytes.Equal(sum[:], data[len(body):]) {
			x.hash = sha256.Size
		}
	}
	if x.hash == 0 { // damaged, or index.skipHash, where nothing tells the hash
		return nil, errIndex
	}
	x.data = body
	return x, nil
}

// take returns the next n bytes.
func (x *index) take(n int) ([]byte, error) {
	if n < 0 || len(x.data)-x.at < n {
		return nil, errIndex
	}
	b := x.data[x.at : x.at+n]
	x.at += n
	return b, nil
}

// next reads one entry.
func (x *index) next() error {
	start := x.at
	fixed, err := x.take(statBytes + 4 + ownerBytes + x.hash + 2)
	if err != nil {
		return err
	}
	x.mode = binary.BigEndian.Uint32(fixed[statBytes:])
	x.object = fixed[statBytes+4+ownerBytes:][:x.hash]
	flags := binary.BigEndian.Uint16(fixed[len(fixed)-2:])
	x.extended = 0
	if flags&flagExtended != 0 {
		ext, err := x.take(2)
		if err != nil || x.version < 3 {
			return errIndex
		}
		x.extended = binary.BigEndian.Uint16(ext)
	}
	x.flags = flags &^ (flagExtended | flagNameLen)
	if x.version == 4 {
		return x.compressedPath()
	}
	end := bytes.IndexByte(x.data[x.at:], 0)
	if end <= 0 {
		return errIndex
	}
	x.path, _ = x.take(end)
	// 1 to 8 NULs, so that the entry is a multiple of 8 bytes long.
	_, err = x.take(8 - (x.at-start)%8)
	return err
}

// compressedPath reads a path of version 4: how much of the previous one to
// drop, then what to append.
func (x *index) compressedPath() error {
	drop := 0
	for first := true; ; first = false {
		c, err := x.take(1)
		if err != nil || drop > len(x.path) {
			return errIndex
		}
		if !first {
			drop++ // git's offset varint has no two forms for one number
		}
		drop = drop<<7 | int(c[0]&0x7f)
		if c[0]&0x80 == 0 {
			break
		}
	}
	end := bytes.IndexByte(x.data[x.at:], 0)
	if end < 0 || drop > len(x.path) {
		return errIndex
	}
	rest, err := x.take(end + 1)
	if err != nil {
		return err
	}
	x.path = append(x.path[:len(x.path)-drop], rest[:end]...) // never part of data in this version
	if len(x.path) == 0 {
		return errIndex
	}
	return nil
}

// sameEntry compares all but stat data.
func (x *index) sameEntry(y *index) bool {
	return x.mode == y.mode && x.flags == y.flags && x.extended == y.extended &&
		bytes.Equal(x.object, y.object) && bytes.Equal(x.path, y.path)
}

// extensions returns those that say something of their own. Trees, untracked
// files, file system monitor and offsets are caches; any other unknown one
// that a reader may skip is compared, one that it may not skip is refused.
func (x *index) extensions() ([]byte, error) {
	var kept []byte
	for x.at < len(x.data) {
		start := x.at
		head, err := x.take(8)
		if err != nil {
			return nil, err
		}
		size := binary.BigEndian.Uint32(head[4:])
		if int64(size) > int64(len(x.data)) {
			return nil, errIndex
		}
		if _, err := x.take(int(size)); err != nil {
			return nil, err
		}
		switch name := string(head[:4]); {
		case name == "TREE" || name == "UNTR" || name == "FSMN" || name == "EOIE" || name == "IEOT":
		case name[0] >= 'A' && name[0] <= 'Z':
			kept = append(kept, x.data[start:x.at]...)
		default: // "link", "sdir": the entries here are not all there is
			return nil, errIndex
		}
	}
	return kept, nil
}
