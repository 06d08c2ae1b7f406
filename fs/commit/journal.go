package commit

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/fs/vfs"
)

// The journal is one file, little-endian:
//
//	0     head: magic, version, id[16], length of the body, records in it,
//	      SHA-256 of the body; a CRC-32C ends the sector
//	512   turn: blank, or "rolling back"
//	1024  end:  blank, or "done" with the outcome
//	1536  body: record after record
//
//	record  length of the content u32, id[16], sequence u32, content, CRC-32C
//
// The first record names the branch and its roots, each further one is a step.
// The three front parts are one sector each, written by themselves and never
// altered once they are not blank; a sector is written wholly or not at all.
// Body, turn and end are durable before the head is written: so a blank head
// means that nothing has happened, and anything that does not verify under a
// head that does is damage. What follows the body is an older, longer
// journal's or blank, and never read.
const (
	sector  = 512
	bodyAt  = 3 * sector
	version = 1
	spareTo = 64 << 10 // what Preallocate writes

	headMagic = "try:head"
	turnMagic = "try:turn"
	doneMagic = "try:done"
)

// ErrDamaged says that a journal does not verify: nothing of it is carried
// out, and what it may have begun is left as it is.
var ErrDamaged = errors.New("the journal is damaged")

// Prepare makes what a commit would make when it first writes a journal. It may
// run beside anything.
func Prepare() {
	castagnoli()
	newJournalID() // the first random number is the one that takes time
}

// castagnoli is made when it is first needed: many runs write no journal.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

type journalID [16]byte

func (id journalID) String() string { return hex.EncodeToString(id[:8]) }

func newJournalID() journalID {
	var id journalID
	rand.Read(id[:]) // never fails (crypto/rand)
	return id
}

// state is how far a journal is. The zero state is a journal without a head.
type state uint8

const (
	_ state = iota
	applying
	rollingBack
	doneCommitted
	doneRolledBack
)

// journal is what the body says.
type journal struct {
	id     journalID
	state  state
	cause  string // of the roll-back, see causeOf
	branch string
	roots  []journalRoot
	steps  []step
}

type journalRoot struct {
	path  string
	id    sys.Identity
	layer string // below the branch's directory where it is there, else absolute
	slots string
	// boot is set for a memory file system, which is gone, and its steps with it,
	// when the machine has another (random(4), boot_id).
	boot string
}

// sectorOf makes a front sector: magic, version, then content, then its sum.
func sectorOf(magic string, content []byte) []byte {
	b := make([]byte, 0, sector)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = append(b, content...)
	b = append(b, make([]byte, sector-4-len(b))...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
}

// parseSector returns the content of a front sector; nil if it is blank.
func parseSector(b []byte, magic string) ([]byte, error) {
	if len(b) < sector {
		return nil, fmt.Errorf("%w: it is cut short", ErrDamaged)
	}
	b = b[:sector]
	if blank(b) {
		return nil, nil
	}
	sum := binary.LittleEndian.Uint32(b[sector-4:])
	if crc32.Checksum(b[:sector-4], castagnoli()) != sum {
		return nil, fmt.Errorf("%w: the sum of %q is wrong", ErrDamaged, magic)
	}
	if string(b[:8]) != magic {
		return nil, fmt.Errorf("%w: %q where %q belongs", ErrDamaged, b[:8], magic)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != version {
		return nil, fmt.Errorf("the journal has version %d, this program knows %d", v, version)
	}
	return b[12 : sector-4], nil
}

func blank(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

func headSector(id journalID, length int64, records uint32, sum [sha256.Size]byte) []byte {
	c := append([]byte{}, id[:]...)
	c = binary.LittleEndian.AppendUint64(c, uint64(length))
	c = binary.LittleEndian.AppendUint32(c, records)
	c = append(c, sum[:]...)
	return sectorOf(headMagic, c)
}

// turnSector is the one that turns the journal round; the sequence is one
// above that of the last step, so that no two parts share one. Behind it, with
// its length: why, as far as there is room.
func turnSector(id journalID, records uint32, cause string) []byte {
	c := append([]byte{}, id[:]...)
	c = binary.LittleEndian.AppendUint32(c, records)
	c = binary.LittleEndian.AppendUint16(c, uint16(len(cause)))
	return sectorOf(turnMagic, append(c, cause...))
}

// most is the length of the longest cause that fits.
const most = sector - 12 - 4 - 16 - 4 - 2

// causeOf writes down a conflict: the root's path, that below it, the reason.
func causeOf(c Conflict) string {
	text := c.Root + "\x00" + c.Path + "\x00" + c.Reason
	if len(text) > most {
		room := max(0, most-len(c.Reason)-5)
		at := c.Root + "/" + c.Path
		text = "\x00…" + at[len(at)-min(room, len(at)):] + "\x00" + c.Reason
	}
	return text[:min(most, len(text))]
}

// conflict reads it back.
func (j *journal) conflict() Conflict {
	part := strings.SplitN(j.cause, "\x00", 3)
	for len(part) < 3 {
		part = append(part, "")
	}
	return Conflict{part[0], part[1], part[2]}
}

func doneSector(id journalID, records uint32, s state) []byte {
	c := append([]byte{}, id[:]...)
	c = binary.LittleEndian.AppendUint32(c, records+1)
	return sectorOf(doneMagic, append(c, byte(s)))
}

// appendRecord frames content.
func appendRecord(b []byte, id journalID, seq uint32, content []byte) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(content)))
	b = append(b, id[:]...)
	b = binary.LittleEndian.AppendUint32(b, seq)
	b = append(b, content...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli()))
}

// print is the whole file as it is for this journal.
func (j *journal) print() []byte {
	body, records := j.body(nil, nil)
	file := headSector(j.id, int64(len(body)), records, sha256.Sum256(body))
	turn, done := make([]byte, sector), make([]byte, sector)
	switch j.state {
	case rollingBack:
		turn = turnSector(j.id, records, j.cause)
	case doneCommitted:
		done = doneSector(j.id, records, j.state)
	case doneRolledBack:
		turn, done = turnSector(j.id, records, j.cause), doneSector(j.id, records, j.state)
	}
	return append(append(append(file, turn...), done...), body...)
}

// body appends all records to b. Whenever b has become long, flush may write
// it away and return what to go on with.
func (j *journal) body(b []byte, flush func([]byte) []byte) ([]byte, uint32) {
	e := encoder{}
	e.header(j)
	b = appendRecord(b, j.id, 0, e.b)
	for i := range j.steps {
		e.b = e.b[:0]
		e.step(&j.steps[i])
		b = appendRecord(b, j.id, uint32(i+1), e.b)
		if flush != nil && len(b) > 1<<20 {
			b = flush(b)
		}
	}
	return b, uint32(len(j.steps) + 1)
}

// parse reads a journal. nil without an error: its head is blank, so nothing
// of it has happened. Only what [journal.print] could have written passes.
func parse(b []byte) (*journal, error) {
	if len(b) < sector && blank(b) {
		return nil, nil // cut off in the making
	}
	head, err := parseSector(b, headMagic)
	if err != nil || head == nil {
		return nil, err
	}
	j := &journal{state: applying}
	copy(j.id[:], head)
	length := binary.LittleEndian.Uint64(head[16:])
	records := binary.LittleEndian.Uint32(head[24:])
	if !blank(head[28+sha256.Size:]) || records == 0 {
		return nil, fmt.Errorf("%w: its head holds more than it should", ErrDamaged)
	}
	if length > uint64(len(b)) || len(b) < bodyAt || uint64(len(b)-bodyAt) < length {
		return nil, fmt.Errorf("%w: %d bytes of %d are there", ErrDamaged, len(b), bodyAt+length)
	}
	body := b[bodyAt : bodyAt+length]
	if sha256.Sum256(body) != [sha256.Size]byte(head[28:]) {
		return nil, fmt.Errorf("%w: its sum is wrong", ErrDamaged)
	}
	if err := j.parseState(b, records); err != nil {
		return nil, err
	}
	for seq := range records {
		content, rest, err := parseRecord(body, j.id, seq)
		if err != nil {
			return nil, err
		}
		body = rest
		d := decoder{b: content}
		var st step
		if seq == 0 {
			d.header(j)
		} else {
			d.step(&st, len(j.roots))
		}
		if d.bad || len(d.b) > 0 {
			return nil, fmt.Errorf("%w: record %d makes no sense", ErrDamaged, seq)
		}
		// One meaning has one form: what would be written otherwise was not
		// written by us.
		e := encoder{}
		if seq == 0 {
			e.header(j)
		} else {
			e.step(&st)
			j.steps = append(j.steps, st)
		}
		if !bytes.Equal(e.b, content) {
			return nil, fmt.Errorf("%w: record %d is not written as such are", ErrDamaged, seq)
		}
	}
	if len(body) > 0 {
		return nil, fmt.Errorf("%w: %d bytes follow its last record", ErrDamaged, len(body))
	}
	return j, nil
}

func parseRecord(b []byte, id journalID, seq uint32) (content, rest []byte, err error) {
	const frame = 4 + 16 + 4
	damaged := func(why string) ([]byte, []byte, error) {
		return nil, nil, fmt.Errorf("%w: record %d: %s", ErrDamaged, seq, why)
	}
	if len(b) < frame+4 {
		return damaged("it is cut short")
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	if uint64(len(b)) < frame+4+n {
		return damaged("it is cut short")
	}
	end := frame + int(n)
	if crc32.Checksum(b[:end], castagnoli()) != binary.LittleEndian.Uint32(b[end:]) {
		return damaged("its sum is wrong")
	}
	if journalID(b[4:20]) != id {
		return damaged("it is another journal's")
	}
	if binary.LittleEndian.Uint32(b[20:]) != seq {
		return damaged("it is out of order")
	}
	return b[frame:end], b[end+4:], nil
}

// parseState reads turn and end.
func (j *journal) parseState(b []byte, records uint32) error {
	turn, err := parseSector(b[sector:], turnMagic)
	if err != nil {
		return err
	}
	done, err := parseSector(b[2*sector:], doneMagic)
	if err != nil {
		return err
	}
	wrong := fmt.Errorf("%w: its state makes no sense", ErrDamaged)
	check := func(c []byte, seq uint32, used int) error {
		if journalID(c[:16]) != j.id || binary.LittleEndian.Uint32(c[16:]) != seq || !blank(c[used:]) {
			return wrong
		}
		return nil
	}
	if turn != nil {
		n := min(most, int(binary.LittleEndian.Uint16(turn[20:])))
		if err := check(turn, records, 22+n); err != nil {
			return err
		}
		if int(binary.LittleEndian.Uint16(turn[20:])) > most {
			return wrong
		}
		j.cause = string(turn[22 : 22+n])
		j.state = rollingBack
	}
	if done != nil {
		if err := check(done, records+1, 21); err != nil {
			return err
		}
		j.state = state(done[20])
		if j.state != doneCommitted && j.state != doneRolledBack || (j.state == doneRolledBack) != (turn != nil) {
			return wrong
		}
	}
	return nil
}

// Preallocate makes the file name in d, to be a journal some day: blank, on
// the disk, so that what overwrites it needs one fdatasync and allocates
// nothing (a hole or an unwritten extent would).
func Preallocate(fs vfs.FS, d *sys.Dir, name string) error {
	f, err := fs.Open(d, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("preallocate a journal: %w", err)
	}
	_, err = f.WriteAt(make([]byte, spareTo), 0)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("preallocate a journal: %w", err)
	}
	return nil
}

// readJournal reads and parses dir's journal of that name; nil if there is none, or none
// that anything was done by.
func readJournal(d *sys.Dir, name string) (*journal, error) {
	f, err := d.OpenFile(name, unix.O_RDONLY, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	j, err := parse(b)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: f.Name(), Err: err}
	}
	return j, nil
}
