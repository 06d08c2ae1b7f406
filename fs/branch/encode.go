package branch

import (
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"try/fs/sys"
)

// Metadata are written by hand: encoding/json needs 0.1 to 0.2 ms to learn the
// types when it is first used, which is a third of what a branch may cost, and
// a run writes them once. Reading is encoding/json's. TestEncodingIsJSON holds
// the two together.

// A jsonText appends one JSON document.
type jsonText []byte

// key begins a field; the comma in front is its business.
func (j *jsonText) key(name string) {
	if c := (*j)[len(*j)-1]; c != '{' {
		*j = append(*j, ',')
	}
	*j = append(append(append(*j, '"'), name...), '"', ':')
}

// next begins an element of a list.
func (j *jsonText) next() {
	if c := (*j)[len(*j)-1]; c != '[' {
		*j = append(*j, ',')
	}
}

// text appends a string that may hold any bytes.
func (j *jsonText) text(s string) {
	s = encodeText(s)
	const hex = "0123456789abcdef"
	b := append(*j, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c < 0x20 || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s[i:]) // valid: encodeText sees to it
			b = utf8.AppendRune(b, r)
			i += n - 1
		default:
			b = append(b, c)
		}
	}
	*j = append(b, '"')
}

func (j *jsonText) string(key, s string) {
	j.key(key)
	j.text(s)
}

func (j *jsonText) strings(key string, list []string) {
	j.key(key)
	*j = append(*j, '[')
	for _, s := range list {
		j.next()
		j.text(s)
	}
	*j = append(*j, ']')
}

func (j *jsonText) bool(key string, v bool) {
	j.key(key)
	*j = strconv.AppendBool(*j, v)
}

func (j *jsonText) int(key string, v int64) {
	j.key(key)
	*j = strconv.AppendInt(*j, v, 10)
}

func (j *jsonText) uint(key string, v uint64) {
	j.key(key)
	*j = strconv.AppendUint(*j, v, 10)
}

func (j *jsonText) raw(key string, v []byte) {
	if len(v) > 0 {
		j.key(key)
		*j = append(*j, v...)
	}
}

func (j *jsonText) open(key string, c byte) {
	j.key(key)
	*j = append(*j, c)
}

func (j *jsonText) close(c byte) { *j = append(*j, c) }

// encode is m as it lies on disk.
func (m Meta) encode() ([]byte, error) {
	state, err := m.State.MarshalText()
	if err != nil {
		return nil, err
	}
	j := make(jsonText, 0, 2048)
	j = append(j, '{')
	j.int("version", metaFormat)
	j.string("id", m.ID)
	j.string("name", m.Name)
	j.string("state", string(state))
	j.bool("synced", m.Synced)
	j.string("created", m.Created.Format(time.RFC3339Nano))
	j.strings("command", m.Command)
	j.string("dir", m.Dir)
	j.string("engine", m.Engine)
	j.string("scope", m.Scope)
	j.string("policy", m.Policy)
	j.string("parent", m.Parent)
	j.string("group", m.Group)
	j.int("index", int64(m.Index))
	j.uint("epoch", m.Epoch)
	j.string("machine", m.Machine)
	j.string("boot", m.Boot)
	j.int("real", int64(m.Real))
	j.int("boottime", int64(m.Boottime))
	j.uint("commits", m.Commits)
	j.open("roots", '[')
	for i := range m.Roots {
		j.next()
		j.root(&m.Roots[i])
	}
	j.close(']')
	if m.Draft {
		j.bool("draft", true)
	}
	if m.Rest != nil {
		rest, err := json.Marshal(m.Rest)
		if err != nil {
			return nil, err
		}
		j.raw("rest", rest)
	}
	if len(m.Own) > 0 {
		j.strings("own", m.Own)
	}
	j.raw("extra", m.Extra)
	j = append(j, '}', '\n')
	for i := range m.Roots {
		j = append(j, m.Roots[i].Seen...)
	}
	return j, nil
}

func (j *jsonText) root(r *Root) {
	*j = append(*j, '{')
	j.string("path", r.Path)
	j.strings("names", r.Names)
	j.open("id", '{')
	j.uint("Ino", r.ID.Ino)
	j.int("Btime", int64(r.ID.Btime))
	j.uint("Type", uint64(r.ID.Type))
	j.close('}')
	j.string("store", r.Store)
	j.int("number", int64(r.Number))
	j.bool("copy", r.Copy)
	j.int("stamp", int64(r.Stamp))
	j.bool("strict", r.Strict)
	j.bool("moved", r.Moved)
	j.open("prepared", '{')
	for path, s := range r.Prepared {
		if c := (*j)[len(*j)-1]; c != '{' {
			*j = append(*j, ',')
		}
		j.text(path)
		*j = append(*j, ':', '{')
		j.stat(s)
		*j = append(*j, '}')
	}
	j.close('}')
	if len(r.Seen) > 0 {
		j.int("seen_size", int64(len(r.Seen)))
	}
	*j = append(*j, '}')
}

func (j *jsonText) stat(s sys.Stat) {
	j.uint("Ino", s.Ino)
	j.uint("Mode", uint64(s.Mode))
	j.uint("Nlink", uint64(s.Nlink))
	j.uint("UID", uint64(s.UID))
	j.uint("GID", uint64(s.GID))
	j.int("Size", s.Size)
	j.int("Blocks", s.Blocks)
	j.int("Mtime", int64(s.Mtime))
	j.int("Ctime", int64(s.Ctime))
	j.int("Btime", int64(s.Btime))
	j.int("Atime", int64(s.Atime))
	j.uint("Rdev", s.Rdev)
	j.uint("Dev", s.Dev)
	j.uint("MntID", s.MntID)
	j.uint("Attributes", s.Attributes)
}
