package sys

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Mount is one line of /proc/self/mountinfo (proc_pid_mountinfo(5)). Paths
// are as they are, without the file's escapes.
type Mount struct {
	ID, Parent int
	Dev        string // major:minor
	Root       string // the directory of the file system that is mounted
	Target     string // where
	Options    []string
	FSType     string
	Source     string
	Super      []string // options of the file system itself
}

// Has says whether an option of the mount, such as noexec, is set.
func (m Mount) Has(option string) bool { return slices.Contains(m.Options, option) }

// Mounts lists the mounts of the caller's mount namespace, in the kernel's
// order: of two at one target the later covers the earlier.
func Mounts() ([]Mount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(data)
}

func parseMounts(data []byte) ([]Mount, error) {
	var list []Mount
	for line := range bytes.Lines(data) {
		m, err := parseMount(strings.TrimSuffix(string(line), "\n"))
		if err != nil {
			return nil, fmt.Errorf("read mountinfo: %w", err)
		}
		list = append(list, m)
	}
	return list, nil
}

// parseMount reads "ID parent dev root target options [tag…] - type source super".
func parseMount(line string) (Mount, error) {
	// Fields are separated by one space; source may be empty. The tags end at
	// the first "-" behind the six fields that are always there.
	fields := strings.Split(line, " ")
	end := -1
	if len(fields) > 6 {
		end = slices.Index(fields[6:], "-") + 6
	}
	if end < 6 || len(fields) < end+4 {
		return Mount{}, fmt.Errorf("line %q: missing fields", line)
	}
	first, last := fields[:end], fields[end+1:]
	id, err := strconv.Atoi(first[0])
	if err != nil {
		return Mount{}, fmt.Errorf("line %q: mount id: %w", line, err)
	}
	parent, err := strconv.Atoi(first[1])
	if err != nil {
		return Mount{}, fmt.Errorf("line %q: parent id: %w", line, err)
	}
	return Mount{
		ID: id, Parent: parent, Dev: first[2],
		Root: unescape(first[3]), Target: unescape(first[4]), Options: strings.Split(first[5], ","),
		FSType: unescape(last[0]), Source: unescape(last[1]), Super: strings.Split(unescape(last[2]), ","),
	}, nil
}

// unescape turns the kernel's \ooo (seq_path: space, tab, newline, backslash,
// and # in sources) back into bytes. A backslash before anything else stays.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && s[i+1] <= '3' && isOctal(s[i+1]) && isOctal(s[i+2]) && isOctal(s[i+3]) {
			b = append(b, (s[i+1]-'0')<<6|(s[i+2]-'0')<<3|(s[i+3]-'0'))
			i += 3
			continue
		}
		b = append(b, s[i])
	}
	return string(b)
}

func isOctal(c byte) bool { return c >= '0' && c <= '7' }
