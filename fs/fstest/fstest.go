// Package fstest is what both engines must do: one suite of cases on a
// directory, run by a process that is not the one that serves it.
//
// Prepare makes the base of the cases, in a directory that an engine then shows
// with a layer on top. Run runs the cases in the directory as shown; Model does
// random operations on it and on a plain directory and compares. What a case
// leaves does not depend on who shows it, so the layers of two engines can be
// compared too (Compare), but for those in Differs.
package fstest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A Case is one claim. It has a directory of its own, in which Base lies
// beforehand: "dir/", "file=content", "link->target", "name==other" for a hard
// link.
type Case struct {
	Name string
	Base []string
	Run  func(p *Place)
}

// Cases are all of them.
func Cases() []Case {
	var all []Case
	for _, list := range [][]Case{files, data, names, dirs, meta, special} {
		all = append(all, list...)
	}
	return all
}

// Differs are the cases whose layers differ between the engines, and why.
var Differs = map[string]string{
	"rename base directory":        "overlay refuses it with EXDEV, and the caller copies",
	"rename base directory atomic": "overlay refuses it with EXDEV",
	"hard link in base":            "overlay parts the pair",
	"write through either link":    "overlay parts the pair",
}

// Prepare makes the base of each case below dir.
func Prepare(dir string) error {
	for _, c := range Cases() {
		top := filepath.Join(dir, c.Name)
		if err := os.MkdirAll(top, 0o755); err != nil {
			return err
		}
		for _, what := range c.Base {
			if err := prepare(top, what); err != nil {
				return fmt.Errorf("prepare case %s: %w", c.Name, err)
			}
		}
	}
	return nil
}

func prepare(top, what string) error {
	at := func(name string) string { return filepath.Join(top, name) }
	if name, ok := strings.CutSuffix(what, "/"); ok {
		return os.MkdirAll(at(name), 0o755)
	}
	name, _, _ := strings.Cut(what, "=")
	if err := os.MkdirAll(filepath.Dir(at(name)), 0o755); err != nil {
		return err
	}
	if name, target, ok := strings.Cut(what, "->"); ok {
		return os.Symlink(target, at(name))
	}
	if name, other, ok := strings.Cut(what, "=="); ok {
		return os.Link(at(other), at(name))
	}
	_, content, _ := strings.Cut(what, "=")
	return os.WriteFile(at(name), []byte(content), 0o644)
}

// Run runs every case below dir, where Prepare's work is shown. skip says which
// cannot be, and why.
func Run(t *testing.T, dir string, skip map[string]string) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if why, ok := skip[c.Name]; ok {
				t.Skip(why)
			}
			c.Run(&Place{t, filepath.Join(dir, c.Name)})
		})
	}
}

// A Place is the directory of a case.
type Place struct {
	testing.TB
	Dir string
}

func (p *Place) at(name string) string { return filepath.Join(p.Dir, name) }

func (p *Place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// fails wants an operation to fail with errno.
func (p *Place) fails(err error, errno unix.Errno) {
	p.Helper()
	if !errors.Is(err, errno) {
		p.Errorf("got %v, want %v", err, errno)
	}
}

func (p *Place) write(name, content string) {
	p.Helper()
	p.must(os.WriteFile(p.at(name), []byte(content), 0o644))
}

// holds wants a file to hold content.
func (p *Place) holds(name, content string) {
	p.Helper()
	got, err := os.ReadFile(p.at(name))
	if err != nil || string(got) != content {
		p.Errorf("%s holds %q (%v), want %q", name, short(got), err, short([]byte(content)))
	}
}

func short(b []byte) string {
	if len(b) > 80 {
		return fmt.Sprintf("%s… (%d bytes)", b[:80], len(b))
	}
	return string(b)
}

// gone wants nothing to be at name.
func (p *Place) gone(name string) {
	p.Helper()
	if _, err := os.Lstat(p.at(name)); !errors.Is(err, os.ErrNotExist) {
		p.Errorf("%s: lstat says %v, want that it is not there", name, err)
	}
}

// lists wants a directory to hold exactly these names, in any order.
func (p *Place) lists(name string, want ...string) {
	p.Helper()
	entries, err := os.ReadDir(p.at(name))
	p.must(err)
	var got []string
	for _, e := range entries { // sorted
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		p.Errorf("%s lists %q, want %q", name, got, want)
	}
}

func (p *Place) stat(name string) unix.Stat_t {
	p.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(p.at(name), &st); err != nil {
		p.Fatalf("lstat %s: %v", name, err)
	}
	return st
}

func (p *Place) open(name string, flags int) *os.File {
	p.Helper()
	f, err := os.OpenFile(p.at(name), flags, 0o644)
	p.must(err)
	p.Cleanup(func() { f.Close() })
	return f
}

// reads wants the file to hold content from its start.
func (p *Place) reads(f *os.File, content string) {
	p.Helper()
	buf := make([]byte, len(content)+1)
	n, err := f.ReadAt(buf, 0)
	if !bytes.Equal(buf[:n], []byte(content)) {
		p.Errorf("%s reads %q (%v), want %q", filepath.Base(f.Name()), short(buf[:n]), err, short([]byte(content)))
	}
}
