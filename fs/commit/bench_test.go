package commit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/fs/vfs"
)

// BenchmarkOneFile commits one replaced file of 1 MB, and beside it does what
// nobody could do without: fsync of the file, rename, fsync of the directory.
func BenchmarkOneFile(b *testing.B) {
	content, other := make([]byte, 1<<20), bytes.Repeat([]byte{1}, 1<<20)
	for _, size := range []int{1 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("commit/%d", size), func(b *testing.B) {
			var spent time.Duration
			for range b.N {
				r := newRig(b)
				check(b, os.WriteFile(r.base()+"/f", content[:size], 0o644))
				check(b, os.WriteFile(r.layer()+"/f", nil, 0o644))
				check(b, unix.Lsetxattr(r.layer()+"/f", origin, nil, 0))
				d, err := sys.OpenDir(r.dir + "/store")
				check(b, err)
				check(b, Preallocate(vfs.Disk(), d, "spare"))
				f, err := os.Open(r.layer())
				check(b, err)
				unix.Sync()
				check(b, os.WriteFile(r.layer()+"/f", other[:size], 0o644))
				r.root.SyncFD = f
				job, plan := r.job(), r.plan()
				job.Spare = r.dir + "/store/spare"
				start := time.Now()
				check(b, job.Commit(context.Background(), vfs.Disk(), plan, nil))
				spent += time.Since(start)
				f.Close()
				d.Close()
			}
			b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "µs/commit")
		})
		b.Run(fmt.Sprintf("rename/%d", size), func(b *testing.B) {
			var spent time.Duration
			for range b.N {
				dir := b.TempDir()
				check(b, os.WriteFile(dir+"/f", content[:size], 0o644))
				unix.Sync()
				check(b, os.WriteFile(dir+"/new", content[:size], 0o644))
				start := time.Now()
				f, err := os.Open(dir + "/new")
				check(b, err)
				check(b, f.Sync())
				check(b, f.Close())
				check(b, os.Rename(dir+"/new", dir+"/f"))
				d, err := os.Open(dir)
				check(b, err)
				check(b, d.Sync())
				check(b, d.Close())
				spent += time.Since(start)
			}
			b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "µs/rename")
		})
	}
}

// BenchmarkMany commits 10,000 exchanged files, against renaming as many.
func BenchmarkMany(b *testing.B) {
	const n = 10_000
	b.Run("commit", func(b *testing.B) {
		var spent time.Duration
		for range b.N {
			r := newRig(b)
			for i := range n {
				check(b, os.WriteFile(fmt.Sprintf("%s/%d", r.base(), i), []byte("old"), 0o644))
				check(b, os.WriteFile(fmt.Sprintf("%s/%d", r.layer(), i), []byte("new!"), 0o644))
				check(b, unix.Lsetxattr(fmt.Sprintf("%s/%d", r.layer(), i), origin, nil, 0))
			}
			unix.Sync()
			job, plan := r.job(), r.plan()
			start := time.Now()
			check(b, job.Commit(context.Background(), vfs.Disk(), plan, nil))
			spent += time.Since(start)
		}
		b.ReportMetric(float64(spent.Milliseconds())/float64(b.N), "ms/commit")
	})
	b.Run("rename", func(b *testing.B) {
		var spent time.Duration
		for range b.N {
			dir := b.TempDir()
			check(b, os.Mkdir(dir+"/from", 0o755))
			check(b, os.Mkdir(dir+"/to", 0o755))
			for i := range n {
				check(b, os.WriteFile(fmt.Sprintf("%s/from/%d", dir, i), []byte("new!"), 0o644))
				check(b, os.WriteFile(fmt.Sprintf("%s/to/%d", dir, i), []byte("old"), 0o644))
			}
			unix.Sync()
			from, err := sys.OpenDir(dir + "/from")
			check(b, err)
			to, err := sys.OpenDir(dir + "/to")
			check(b, err)
			start := time.Now()
			for i := range n {
				name := fmt.Sprint(i)
				check(b, from.Replace(name, to, name))
			}
			check(b, to.Sync())
			spent += time.Since(start)
			from.Close()
			to.Close()
		}
		b.ReportMetric(float64(spent.Milliseconds())/float64(b.N), "ms/rename")
	})
}
