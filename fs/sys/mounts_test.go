package sys

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestParseMounts(t *testing.T) {
	const text = `36 35 98:0 /mnt1 /mnt2 rw,noexec,noatime master:1 - ext3 /dev/root rw,errors=continue
37 36 0:5 / /a\040b\011c\012d\134e rw shared:3 propagate_from:2 - tmpfs \043none rw,size=4k
38 36 0:6 / /x rw - tmpfs  rw
`
	list, err := parseMounts([]byte(text))
	if err != nil || len(list) != 3 {
		t.Fatalf("parseMounts = %d mounts, %v", len(list), err)
	}
	m := list[0]
	if m.ID != 36 || m.Parent != 35 || m.Dev != "98:0" || m.Root != "/mnt1" || m.Target != "/mnt2" ||
		!m.Has("noexec") || m.Has("nodev") || m.FSType != "ext3" || m.Source != "/dev/root" ||
		!slices.Equal(m.Super, []string{"rw", "errors=continue"}) {
		t.Errorf("first = %+v", m)
	}
	if m := list[1]; m.Target != "/a b\tc\nd\\e" || m.Source != "#none" {
		t.Errorf("second = %+v", m)
	}
	if m := list[2]; m.Source != "" || m.FSType != "tmpfs" {
		t.Errorf("third = %+v", m)
	}
	for _, bad := range []string{"", "1 2 3", "x 35 98:0 / / rw - a b c", "36 x 98:0 / / rw - a b c", "36 35 98:0 / / - a b c", "36 35 98:0 / / rw - a"} {
		if _, err := parseMounts([]byte(bad + "\n")); err == nil {
			t.Errorf("parseMounts(%q) is no error", bad)
		}
	}
}

func TestMountsHasTheRoot(t *testing.T) {
	list, err := Mounts()
	check(t, err)
	if !slices.ContainsFunc(list, func(m Mount) bool { return m.Target == "/" }) {
		t.Errorf("no mount at / in %+v", list)
	}
	if data := got(os.ReadFile("/proc/self/mountinfo"))(t); strings.Count(string(data), "\n") != len(list) {
		t.Errorf("%d mounts of %d lines", len(list), strings.Count(string(data), "\n"))
	}
}

// escape is what the kernel does to a path in mountinfo.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(" \t\n\\", s[i]) >= 0 {
			fmt.Fprintf(&b, `\%03o`, s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

func FuzzParseMount(f *testing.F) {
	f.Add("/a b", "36 35 98:0 /mnt1 /mnt2 rw master:1 - ext3 /dev/root rw")
	f.Add(`/\040`, `1 1 1:1 \777 \04 rw - \ \0 -`)
	f.Add("\xff\n - ", "")
	f.Add("-", "0")
	f.Fuzz(func(t *testing.T, path, line string) {
		if m, err := parseMount("1 2 0:3 / " + escape(path) + " rw - tmpfs none rw"); err != nil || m.Target != path {
			t.Errorf("target %q came back as %q, %v", path, m.Target, err)
		}
		parseMount(line) // must not panic
	})
}
