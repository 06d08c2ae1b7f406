package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/sys"
	"try/supervisor"
	"try/supervisor/printable"
)

// From these on a file is compared by size and hash: nobody reads more, and to
// find what differs takes the square of it (H29).
const (
	textAbove  = 1 << 20
	linesInAll = 20_000
)

// page shows the changes in full through $PAGER, on the terminal. All that
// reaches it is printable, so the pager needs no raw mode and must not offer
// more than reading: LESSSECURE(1) forbids its commands that start others.
func page(r *supervisor.Result) (err error) {
	out, err := os.OpenFile("/dev/tty", os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return fmt.Errorf("open the terminal: %w", err)
	}
	defer out.Close()
	pager := os.Getenv("PAGER")
	if pager == "" {
		if _, err := exec.LookPath("less"); err == nil {
			pager = "less"
		}
	}
	if pager == "" || pager == "cat" {
		return writeDiff(out, r)
	}
	cmd := exec.Command("sh", "-c", pager)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), "LESS=FX", "LESSSECURE=1", "LESSOPEN=", "LV=-c")
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start pager %s: %w", printable.Text(pager), err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start pager %s: %w", printable.Text(pager), err)
	}
	err = errors.Join(writeDiff(in, r), in.Close())
	if errors.Is(err, unix.EPIPE) || errors.Is(err, os.ErrClosed) {
		err = nil // the reader had seen enough
	}
	return errors.Join(err, cmd.Wait())
}

// writeDiff writes all changes in unified form. A file that cannot be read is
// said so; it does not hide the others.
func writeDiff(w io.Writer, r *supervisor.Result) error {
	b := bufio.NewWriter(w)
	for _, g := range groups(r) {
		for i := range g.entries {
			e := &g.entries[i]
			fmt.Fprintln(b, e.line(shortHome(joinRoot(g.path, e.path))))
			if e.Kind == changes.Metadata || e.Kind == changes.Touched {
				continue
			}
			if err := e.diff(b); err != nil {
				fmt.Fprintf(b, "  cannot be shown: %s\n", printable.Text(err.Error()))
			}
		}
	}
	return b.Flush()
}

// diff writes one change's content.
func (e *entry) diff(w io.Writer) error {
	if !isFile(e.Base) && !isFile(e.Layer) {
		return nil // directories, links and the like: the line above says all
	}
	if e.Link != nil {
		fmt.Fprintf(w, "  is a further name of %s\n", printable.Name(e.Link.Node.Path()))
		return nil
	}
	before, err := side(e.root.Root.Base, e.Path(), e.Base)
	if err != nil {
		return err
	}
	after, err := side(e.root.Root.Layer, e.Path(), e.Layer)
	if err != nil {
		return err
	}
	if before.summary != "" || after.summary != "" {
		fmt.Fprintf(w, "  was %s\n  is %s\n", before.describe(), after.describe())
		return nil
	}
	from, to := "a/"+e.path, "b/"+e.path
	if !before.there {
		from = "/dev/null"
	}
	if !after.there {
		to = "/dev/null"
	}
	unified := udiff.Unified(printable.Name(from), printable.Name(to), string(before.text), string(after.text))
	for line := range strings.Lines(unified) {
		text, whole := strings.CutSuffix(line, "\n")
		fmt.Fprint(w, printable.Line(text))
		if whole {
			fmt.Fprintln(w)
		}
	}
	return nil
}

func isFile(stat *sys.Stat) bool { return stat != nil && stat.IsRegular() }

// version is one side of a change.
type version struct {
	there   bool
	text    []byte // of a text file that is not too large
	summary string // of anything else that has content
}

func (v version) describe() string {
	switch {
	case !v.there:
		return "not there"
	case v.summary == "":
		return plural(bytes.Count(v.text, []byte("\n")), "line") + " of text"
	}
	return v.summary
}

// side reads one side of a change. Only regular files are opened.
func side(root *sys.Dir, name string, stat *sys.Stat) (v version, err error) {
	if stat == nil {
		return version{}, nil
	}
	switch stat.Type() {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return version{there: true, summary: "a directory"}, nil
	case unix.S_IFLNK:
		return version{there: true, summary: "a link"}, nil
	default:
		return version{there: true, summary: "a device or FIFO"}, nil
	}
	dir := root
	if parent := path.Dir(name); parent != "." {
		if dir, err = root.Sub(parent); err != nil {
			return version{}, err
		}
		defer func() { err = errors.Join(err, dir.Close()) }()
	}
	f, err := dir.OpenFile(path.Base(name), os.O_RDONLY, 0)
	if err != nil {
		return version{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	head, err := io.ReadAll(io.LimitReader(f, textAbove+1))
	if err != nil {
		return version{}, err
	}
	if len(head) <= textAbove && bytes.IndexByte(head, 0) < 0 && bytes.Count(head, []byte("\n")) <= linesInAll {
		return version{there: true, text: head}, nil
	}
	hash := sha256.New()
	hash.Write(head)
	rest, err := io.Copy(hash, f)
	if err != nil {
		return version{}, err
	}
	size := int64(len(head)) + rest
	return version{there: true, summary: fmt.Sprintf("%s bytes, sha256 %x", thousands(int(size)), hash.Sum(nil))}, nil
}
