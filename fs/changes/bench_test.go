package changes

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// BenchmarkMake plans what an installation leaves: directories of small new
// files, and as many files modified.
func BenchmarkMake(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := newWorld(b)
			for _, d := range []*sys.Dir{w.base, w.layer} {
				check(b, d.Mkdir("mod", 0o755))
			}
			check(b, w.layer.Mkdir("new", 0o755))
			fill := func(d *sys.Dir, dir, content string) {
				in, err := d.Sub(dir)
				check(b, err)
				defer in.Close()
				for i := range n / 2 {
					fd, err := in.OpenFD(fmt.Sprint("file-", i), unix.O_WRONLY|unix.O_CREAT, 0o644)
					check(b, err)
					_, err = unix.Write(fd, []byte(content))
					check(b, err)
					check(b, unix.Close(fd))
				}
			}
			fill(w.base, "mod", "old content")
			fill(w.layer, "mod", "new content")
			fill(w.layer, "new", "new content")
			b.ReportAllocs()
			for b.Loop() {
				p, err := Make(b.Context(), []Root{w.root})
				check(b, err)
				if p.Counts().Total() != n+1 {
					b.Fatal(p.Counts())
				}
			}
		})
	}
}
