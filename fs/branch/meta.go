package branch

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"try/fs/engine"
	"try/fs/sys"
)

// metaFormat is the version of the metadata. Numbers once used mean the same
// for ever; fields are only added.
const metaFormat = 1

// maxMeta bounds what is read: metadata that is larger is not ours.
const maxMeta = 1 << 30

// Meta is what a branch knows of itself, as it lies on disk. Version, ID and
// Name come first there: a name is looked up by the head of the file alone.
type Meta struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Name    string `json:"name"`
	State   State  `json:"state"`
	// Synced says that the layers are on disk with all that they held when the
	// branch was kept. Until then they are only as good as the page cache.
	Synced bool `json:"synced"`

	Created time.Time `json:"created"`
	Command []string  `json:"command"`
	Dir     string    `json:"dir"`    // the working directory
	Engine  string    `json:"engine"` // names, if its roots have several: overlay+fuse
	Scope   string    `json:"scope"`
	Policy  string    `json:"policy"` // in force at the fork
	Parent  string    `json:"parent"` // id of the parent branch; "" is the base

	Group string `json:"group"` // id
	Index int    `json:"index"` // from 1
	Epoch uint64 `json:"epoch"` // of the group at the fork

	Machine  string   `json:"machine"`  // machine-id(5)
	Boot     string   `json:"boot"`     // random(4), boot_id
	Real     sys.Time `json:"real"`     // CLOCK_REALTIME at the fork
	Boottime sys.Time `json:"boottime"` // CLOCK_BOOTTIME at the fork
	Commits  uint64   `json:"commits"`  // the last commit that the fork saw whole

	// Draft: it is being composed, or a part of another branch (Rest), and no
	// branch for anybody but who holds it. Without a journal it is trash as soon
	// as nobody does.
	Draft bool  `json:"draft,omitempty"`
	Rest  *Rest `json:"rest,omitempty"`
	// Own are the ids of the parts that were committed of this branch: what they
	// changed is no drift.
	Own []string `json:"own,omitempty"`

	Roots []Root `json:"roots"`
	// Extra is the supervisor's own; nothing here reads it.
	Extra json.RawMessage `json:"extra,omitempty"`
}

// Root is a directory whose subtree the branch captures, with its layer.
type Root struct {
	Path  string       `json:"path"`  // absolute, without symbolic links
	Names []string     `json:"names"` // the directories at or below Path that the user knows as roots
	ID    sys.Identity `json:"id"`    // of the directory at the fork
	// Below is the mount that the root lies on; known at the fork only.
	Below sys.Mount `json:"-"`
	// Foreign is what takes an engine with the ids of outside, "" if nothing was
	// seen; known at the fork only.
	Foreign string `json:"-"`
	// Engine shows the root; the branch notes its name.
	Engine engine.Engine `json:"-"`

	Store  string   `json:"store"`  // id of the further store that holds the layer; "" is the home store
	Number int      `json:"number"` // of the layer among the branch's in that store
	Copy   bool     `json:"copy"`   // the layer lies on another file system than the root
	Stamp  sys.Time `json:"stamp"`  // T, by the clock of the root's file system
	Strict bool     `json:"strict"` // that clock is coarse: drift is later than T, not at T
	Moved  bool     `json:"moved"`  // the layer was copied to the home store when the branch was kept
	// Prepared are the directories that were made in the layer at the fork,
	// as made, by their path below the root; "" is the layer's own.
	Prepared map[string]sys.Stat `json:"prepared"`
	// Seen are the identities recorded at the end of the session; the commit's.
	// There are as many as changes, so they lie behind the JSON, where they are
	// parsed only by who needs them, and in it stands how many bytes they are; of
	// an older try they lie in it.
	Seen     json.RawMessage `json:"seen,omitempty"`
	SeenSize int             `json:"seen_size,omitempty"` // on disk only
}

// undecodable marks a string that is not UTF-8, which JSON cannot hold: what
// follows is base64. Neither paths nor arguments begin with a zero byte.
const undecodable = "\x00b64:"

func encodeText(s string) string {
	if utf8.ValidString(s) && !strings.HasPrefix(s, undecodable) {
		return s
	}
	return undecodable + base64.StdEncoding.EncodeToString([]byte(s))
}

func decodeText(s string) (string, error) {
	code, ok := strings.CutPrefix(s, undecodable)
	if !ok {
		return s, nil
	}
	b, err := base64.StdEncoding.DecodeString(code)
	return string(b), err
}

// decodeTexts returns m with each string decoded that may hold any bytes; what
// m points to stays as it is.
func (m Meta) decodeTexts() (Meta, error) {
	var errs []error
	do := func(s string) string {
		t, err := decodeText(s)
		if err != nil {
			errs = append(errs, err)
		}
		return t
	}
	list := func(in []string) []string {
		out := make([]string, len(in))
		for i, s := range in {
			out[i] = do(s)
		}
		return out
	}
	m.Command, m.Dir, m.Policy = list(m.Command), do(m.Dir), do(m.Policy)
	m.Engine, m.Scope, m.Machine, m.Boot = do(m.Engine), do(m.Scope), do(m.Machine), do(m.Boot)
	roots := make([]Root, len(m.Roots))
	for i, r := range m.Roots {
		r.Path, r.Names = do(r.Path), list(r.Names)
		prepared := make(map[string]sys.Stat, len(r.Prepared))
		for path, st := range r.Prepared {
			prepared[do(path)] = st
		}
		r.Prepared = prepared
		roots[i] = r
	}
	m.Roots = roots
	return m, errors.Join(errs...)
}

// decodeMeta reads metadata and refuses what cannot be a branch of ours: a line
// of JSON, and behind it what was seen of each root.
func decodeMeta(text []byte) (Meta, error) {
	text, seen, _ := bytes.Cut(text, []byte("\n"))
	m, err := decodeHead(text)
	if err != nil {
		return Meta{}, err
	}
	for i := range m.Roots {
		r := &m.Roots[i]
		if r.SeenSize < 0 || r.SeenSize > len(seen) {
			return Meta{}, fmt.Errorf("what was seen of %s is cut short", r.Path)
		}
		if r.SeenSize > 0 {
			r.Seen, seen = seen[:r.SeenSize:r.SeenSize], seen[r.SeenSize:]
		}
		r.SeenSize = 0
	}
	return m, nil
}

// decodeHead reads the line of JSON, and what follows it not at all.
func decodeHead(text []byte) (Meta, error) {
	text, _, _ = bytes.Cut(text, []byte("\n"))
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return Meta{}, err
	}
	if head.Version > metaFormat {
		return Meta{}, fmt.Errorf("written by a newer try: format %d, this one reads 1–%d", head.Version, metaFormat)
	}
	var m Meta
	if err := json.Unmarshal(text, &m); err != nil {
		return Meta{}, err
	}
	m, err := m.decodeTexts()
	if err != nil {
		return Meta{}, err
	}
	if head.Version < 1 || !isID(m.ID) || m.State == 0 {
		return Meta{}, errors.New("no version, id or state")
	}
	if err := checkForm(m.Name); err != nil {
		return Meta{}, err
	}
	for _, id := range []string{m.Group, m.Parent} {
		if id != "" && !isID(id) {
			return Meta{}, fmt.Errorf("%q is no id", id)
		}
	}
	others := slices.Clone(m.Own)
	if m.Rest != nil {
		others = append(others, m.Rest.Of)
		if slices.ContainsFunc(m.Rest.Numbers, func(n int) bool { return n < 0 }) {
			return Meta{}, errors.New("the rest has no layers")
		}
	}
	for _, id := range others {
		if !isID(id) {
			return Meta{}, fmt.Errorf("%q is no id", id)
		}
	}
	for _, r := range m.Roots {
		if !strings.HasPrefix(r.Path, "/") || r.Number < 0 || r.Store != "" && !isID(r.Store) {
			return Meta{}, fmt.Errorf("root %q: its path, layer or store is none", r.Path)
		}
	}
	return m, nil
}

// readMeta reads the metadata of the branch in d without what was seen of its
// roots: not to be written again.
func readMeta(d *sys.Dir) (Meta, error) { return readMetaUntil(d, '\n', decodeHead) }

// readWhole reads the metadata of the branch in d.
func readWhole(d *sys.Dir) (Meta, error) { return readMetaUntil(d, -1, decodeMeta) }

func readMetaUntil(d *sys.Dir, end int, decode func([]byte) (Meta, error)) (Meta, error) {
	text, err := readUntil(d, metaName, end, maxMeta)
	if err != nil {
		return Meta{}, err
	}
	m, err := decode(text)
	if err != nil {
		return Meta{}, fmt.Errorf("read %s/%s: %w", d.Name(), metaName, err)
	}
	return m, nil
}

// readName reads the name of the branch in d from the head of its metadata.
func readName(d *sys.Dir) (string, error) {
	fd, err := d.OpenFD(metaName, unix.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	buf := make([]byte, 256)
	n, err := unix.Pread(fd, buf, 0)
	if err == nil {
		// {"version":1,"id":"…","name":"calm-otter", — neither value has a quote.
		if _, rest, ok := bytes.Cut(buf[:n], []byte(`","name":"`)); ok && bytes.HasPrefix(buf, []byte(`{"version":1,"id":"`)) {
			if name, _, ok := bytes.Cut(rest, []byte(`","state":`)); ok {
				return string(name), nil
			}
		}
	}
	m, err := readMeta(d)
	return m.Name, err
}

// BootID identifies this boot of this kernel (random(4)).
func BootID() (string, error) {
	return readLine("/proc/sys/kernel/random/boot_id")
}

// machineID identifies this installation (machine-id(5)); containers often
// have none, which is "".
func machineID() (string, error) {
	id, err := readLine("/etc/machine-id")
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	return id, err
}

// readLine reads a one-line file that the system keeps.
func readLine(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	buf := make([]byte, 128)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return "", &os.PathError{Op: "read", Path: path, Err: err}
	}
	return strings.TrimSpace(string(buf[:n])), nil
}

// Now reads a clock, in nanoseconds (clock_gettime(2)).
func Now(clock int32) (sys.Time, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0, &os.SyscallError{Syscall: "clock_gettime", Err: err}
	}
	return sys.Time(ts.Nano()), nil
}
