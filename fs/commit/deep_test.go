package commit

import (
	"context"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/fs/vfs"
)

// deepen makes a chain of directories below dir, too long for any path.
func deepen(t testing.TB, dir string, depth int) {
	t.Helper()
	d, err := sys.OpenDir(dir)
	check(t, err)
	defer d.Close()
	way, err := sys.NewDescent(d)
	check(t, err)
	defer way.Close()
	for range depth {
		check(t, way.Dir().Mkdir("some-directory", 0o755))
		check(t, way.Enter("some-directory"))
	}
}

// TestDeep adds and deletes trees far deeper than a path is long, with few
// descriptors.
func TestDeep(t *testing.T) {
	var old unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: old.Max}))
	defer func() { check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	const depth = 3000
	r := newRig(t)
	check(t, os.Mkdir(r.base()+"/gone", 0o755))
	deepen(t, r.base()+"/gone", depth)
	check(t, unix.Mknod(r.layer()+"/gone", unix.S_IFCHR, 0))
	check(t, os.Mkdir(r.layer()+"/new", 0o755))
	deepen(t, r.layer()+"/new", depth)
	check(t, r.commit(vfs.Disk()))
	d, err := sys.OpenDir(r.base())
	check(t, err)
	defer d.Close()
	n := 0
	check(t, sys.Walk(d, func(v sys.Visit) (bool, error) {
		n++
		return true, nil
	}, nil))
	if n != depth+1 {
		t.Errorf("%d entries in the base, want %d", n, depth+1)
	}
}

// TestMemory: a plan and its steps stay small.
func TestMemory(t *testing.T) {
	const n = 5000
	r := newRig(t)
	many(t, r, n)
	plan := r.plan()
	var c *compiler
	size := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			var err error
			c, err = r.job().compile(context.Background(), vfs.Disk(), plan)
			check(t, err)
			c.close()
		}
	}).AllocedBytesPerOp()
	t.Logf("%d steps, %d bytes allocated for each change", len(c.journal.steps), size/n)
	if size/n > 4<<10 {
		t.Errorf("%d bytes are allocated for each change", size/n)
	}
}
