package commit

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/layer/layertest"
	"try/fs/vfs"
)

// writing opens a file of the base for writing until the test ends.
func (r *rig) writing(path string) *os.File {
	r.t.Helper()
	f, err := os.OpenFile(r.base()+"/"+path, os.O_RDWR, 0)
	check(r.t, err)
	r.t.Cleanup(func() { f.Close() })
	return f
}

var writersBase = []op{
	{"write", "f", "f"}, {"write", "m", "m"}, {"mkdir", "d"}, {"mkdir", "d/e"}, {"write", "d/e/g", "g"}, {"write", "d/same", "s"},
	{"mkdir", "o"}, {"write", "o/back", "b"}, {"write", "meta", "m"}, {"write", "read", "r"}, {"write", "free", "f"},
}

// TestWriters: a file that somebody has open for writing, or mapped, is not
// displaced (H9).
func TestWriters(t *testing.T) {
	layertest.Skip(t)
	r := newRig(t, writersBase...)
	r.session(op{"append", "f", "!"}, op{"append", "m", "!"}, op{"rmtree", "d"}, op{"rmtree", "o"}, op{"mkdir", "o"}, op{"write", "o/back", "b"}, op{"write", "o/new", "n"},
		op{"chmod", "meta", "600"}, op{"append", "read", "!"}, op{"append", "free", "!"})
	check(t, os.Chtimes(r.layer()+"/o/back", unixTime(past), unixTime(past)))
	for _, f := range []string{"f", "d/e/g", "o/back", "meta"} {
		r.writing(f)
	}
	mapped := r.writing("m")
	page, err := unix.Mmap(int(mapped.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check(t, err)
	defer func() { check(t, unix.Munmap(page)) }()
	check(t, mapped.Close())
	reader, err := os.Open(r.base() + "/read")
	check(t, err)
	defer reader.Close()
	found, err := Writers(r.plan())
	check(t, err)
	comm, err := os.ReadFile("/proc/self/comm")
	check(t, err)
	want := fmt.Sprintf("open for writing by %s (pid %d)", strings.TrimSpace(string(comm)), os.Getpid())
	got := map[string]string{}
	for _, c := range found {
		got[c.Path] = c.Reason
	}
	for _, path := range []string{"f", "m", "d/e/g", "o/back"} {
		if got[path] != want {
			t.Errorf("%s: %q, want %q", path, got[path], want)
		}
		delete(got, path)
	}
	if len(got) > 0 {
		t.Errorf("these too: %v", got)
	}
}

// TestOpenedBeforeAStep: a file that is opened for writing when all was asked
// already is found once it is displaced, and is put back.
func TestOpenedBeforeAStep(t *testing.T) {
	layertest.Skip(t)
	for _, path := range []string{"f", "d/e/g"} {
		r := newRig(t, writersBase...)
		r.session(op{"append", "free", "!"}, op{"append", "f", "!"}, op{"rmtree", "d"})
		before := look(t, r.base())
		var f *os.File
		err := r.commit(&vfs.Fault{FS: vfs.Disk(), Before: func(o vfs.Op) error {
			if o.Part == "apply" && f == nil {
				f = r.writing(path)
			}
			return nil
		}})
		c, ok := errors.AsType[*ConflictError](err)
		if !ok || !c.RolledBack || !strings.Contains(err.Error(), "open for writing") {
			t.Fatalf("%s: %v", path, err)
		}
		same(t, "base, rolled back", look(t, r.base()), before)
		_, err = f.WriteString("written")
		check(t, err)
		check(t, f.Close())
		if got, err := quietly(r.base() + "/" + path); err != nil || !strings.HasPrefix(got, "written") {
			t.Errorf("%s holds %q, %v: what was written is lost", path, got, err)
		}
	}
}

// BenchmarkWriters is the asking alone, for 10,000 changes.
func BenchmarkWriters(b *testing.B) {
	r := newRig(b)
	many(b, r, 10_000)
	plan := r.plan()
	for b.Loop() {
		found, err := Writers(plan)
		check(b, err)
		if len(found) > 0 {
			b.Fatal(found)
		}
	}
}
