package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/commit"
	"try/fs/sys"
	"try/ns"
	"try/supervisor"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with a file below testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// node makes the chain of a path.
func node(path string) *sys.Node {
	var n *sys.Node
	for name := range strings.SplitSeq(path, "/") {
		n = &sys.Node{Parent: n, Name: name}
	}
	return n
}

// changed makes one change; the mode's type says what it is.
func changed(kind changes.Kind, path string, mode uint32, size int64) changes.Change {
	c := changes.Change{Node: node(path), Kind: kind}
	stat := &sys.Stat{Mode: mode, Size: size}
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		c.Type = changes.File
	case unix.S_IFDIR:
		c.Type = changes.Dir
	case unix.S_IFLNK:
		c.Type = changes.Symlink
	case unix.S_IFIFO:
		c.Type = changes.FIFO
	case unix.S_IFCHR:
		c.Type = changes.Device
	}
	if kind != changes.Added {
		c.Base = &sys.Stat{Mode: mode, Size: size}
	}
	if kind != changes.Deleted {
		c.Layer = stat
	}
	return c
}

const (
	file = unix.S_IFREG | 0o644
	dir  = unix.S_IFDIR | 0o755
)

// sample is a result with one of everything.
func sample() *supervisor.Result {
	link := changed(changes.Added, "proj/out", unix.S_IFLNK|0o777, 4)
	link.Target = "/etc"
	mode := changed(changes.Metadata, "proj/run.sh", unix.S_IFREG|0o755, 12)
	mode.Base.Mode = file
	mode.Fields = &changes.Fields{Mode: true, Xattrs: []changes.Xattr{{Name: "user.note", New: []byte("x")}}}
	return &supervisor.Result{
		Branch: "calm-otter", ID: "00ff", Command: []string{"make", "", "a b"}, Dir: "/home/u/proj", Engine: "overlay",
		ExitCode: 143, Signal: "SIGTERM", TimedOut: true,
		Started: time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC), Duration: 1500 * time.Millisecond,
		Settled: supervisor.Kept, Reason: "--keep",
		Names: map[string][]string{"/home/u": {"/home/u", "/home/u/proj"}},
		Plan: &changes.Plan{Roots: []changes.RootPlan{{
			Root: changes.Root{Path: "/home/u"},
			Changes: []changes.Change{
				changed(changes.Modified, ".bashrc", file, 300),
				changed(changes.Added, "proj/bad\xffname", file, 5),
				changed(changes.Deleted, "proj/gone", file, 7),
				link, mode,
				changed(changes.Added, "proj/sub", dir, 4096),
				changed(changes.Added, "proj/sub/two\nlines\x1b[31m", file, 1000),
				changed(changes.Touched, "proj/touched", file, 1),
			},
		}, {
			Root:    changes.Root{Path: "/tmp"},
			Changes: []changes.Change{changed(changes.Added, "fifo", unix.S_IFIFO|0o600, 0), changed(changes.Replaced, "x", dir, 0)},
		}}},
		Conflicts: []commit.Conflict{{Root: "/home/u", Path: "proj/gone", Reason: "changed in the base"}},
		Killed:    []ns.Process{{PID: 42, Command: "evil\x1b]0;c\a"}},
		Passed:    []string{"writes to /srv"},
		Dropped:   []string{"proj/.cache (drop)"},
		Warnings:  []string{"\u202ewarn"},
		Err:       errors.New("commit calm-otter: proj/bad\xff: changed"),
	}
}

func TestResultDocument(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := writeResult(&b, sample()); err != nil {
		t.Fatal(err)
	}
	golden(t, "result.json", indent(t, b.Bytes()))
}

// Without a branch, optional fields are null and lists are lists.
func TestEmptyResultDocument(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := writeResult(&b, &supervisor.Result{Settled: supervisor.Unchanged}); err != nil {
		t.Fatal(err)
	}
	golden(t, "result_empty.json", indent(t, b.Bytes()))
}

func TestChangesDocument(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := writeChanges(&b, sample()); err != nil {
		t.Fatal(err)
	}
	golden(t, "changes.json", indent(t, b.Bytes()))
}

// indent also proves that the document is one line of JSON that a terminal
// can bear.
func indent(t *testing.T, doc []byte) []byte {
	t.Helper()
	if bytes.Count(doc, []byte("\n")) != 1 {
		t.Errorf("not one line: %s", doc)
	}
	for _, r := range strings.TrimSuffix(string(doc), "\n") {
		if !unicode.IsPrint(r) {
			t.Errorf("%U in %s", r, doc)
		}
	}
	var b bytes.Buffer
	if err := json.Indent(&b, doc, "", "  "); err != nil {
		t.Fatalf("%v in %s", err, doc)
	}
	return b.Bytes()
}

func TestEvents(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	log := &eventLog{w}
	for _, kind := range []string{"branch", "started", "exited", "settled"} {
		log.write(supervisor.Event{Kind: kind, Result: sample(), PID: 7})
	}
	w.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	golden(t, "events.jsonl", b.Bytes())
}

func FuzzJSONText(f *testing.F) {
	f.Add("plain")
	f.Add("\x00\x1b\"\\\n\t\u2028\u202e\U000e0001 \xff")
	f.Fuzz(func(t *testing.T, s string) {
		var b bytes.Buffer
		j := newJSON(&b)
		j.nested("{", "}", func() { j.text("s", s); j.texts("list", []string{"x", s}) })
		if err := j.flush(); err != nil {
			t.Fatal(err)
		}
		var got struct {
			S       string   `json:"s"`
			B64     *string  `json:"s_b64"`
			List    []string `json:"list"`
			ListB64 []string `json:"list_b64"`
		}
		if err := json.Unmarshal(b.Bytes(), &got); err != nil {
			t.Fatalf("%v in %s", err, b.Bytes())
		}
		if utf8.ValidString(s) {
			if got.S != s || got.B64 != nil || got.List[1] != s || got.ListB64 != nil {
				t.Errorf("%q came back as %+v", s, got)
			}
			return
		}
		back, err := base64.StdEncoding.DecodeString(*got.B64)
		if err != nil || string(back) != s || len(got.ListB64) != 2 {
			t.Errorf("%q came back as %q", s, back)
		}
	})
}
