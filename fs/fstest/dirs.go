package fstest

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// dirs are the cases of directories.
var dirs = []Case{
	{"merge", []string{"d/base=base"}, func(p *Place) {
		p.write("d/new", "new")
		p.lists("d", "base", "new")
		p.must(os.Remove(p.at("d/base")))
		p.lists("d", "new")
	}},
	{"make and remove", []string{"f=f"}, func(p *Place) {
		p.must(os.Mkdir(p.at("d"), 0o750))
		p.fails(os.Mkdir(p.at("d"), 0o755), unix.EEXIST)
		p.fails(os.Mkdir(p.at("f"), 0o755), unix.EEXIST)
		p.fails(unix.Rmdir(p.at("f")), unix.ENOTDIR)
		p.fails(unix.Unlink(p.at("d")), unix.EISDIR)
		p.write("d/f", "")
		p.fails(unix.Rmdir(p.at("d")), unix.ENOTEMPTY)
		p.must(os.Remove(p.at("d/f")))
		p.must(unix.Rmdir(p.at("d")))
		p.gone("d")
	}},
	{"remove base directory", []string{"d/f=f", "d/e/"}, func(p *Place) {
		p.fails(unix.Rmdir(p.at("d")), unix.ENOTEMPTY)
		p.must(os.Remove(p.at("d/f")))
		p.must(os.Remove(p.at("d/e")))
		p.must(unix.Rmdir(p.at("d")))
		p.gone("d")
		p.lists(".")
	}},
	{"remove and make again", []string{"d/f=f", "d/e/g=g"}, func(p *Place) {
		p.must(os.RemoveAll(p.at("d")))
		p.must(os.Mkdir(p.at("d"), 0o755))
		p.lists("d")
		p.gone("d/f")
		p.write("d/f", "new")
		p.must(os.Mkdir(p.at("d/e"), 0o755))
		p.lists("d/e")
		p.lists("d", "e", "f")
	}},
	{"directory for a file", []string{"f=f", "d/x=x"}, func(p *Place) {
		p.must(os.Remove(p.at("f")))
		p.must(os.Mkdir(p.at("f"), 0o755))
		p.write("f/in", "in")
		p.must(os.RemoveAll(p.at("d")))
		p.write("d", "now a file")
		p.lists("f", "in")
		p.holds("d", "now a file")
	}},
	{"many entries", nil, func(p *Place) {
		var want []string
		for i := range 3000 {
			name := fmt.Sprintf("entry-%04d-with-a-name-of-some-length", i)
			want = append(want, name)
			fd, err := unix.Open(p.at(name), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o644)
			p.must(err)
			unix.Close(fd)
		}
		p.lists(".", want...)
		for i, name := range want {
			if i%2 == 0 {
				p.must(os.Remove(p.at(name)))
			}
		}
		entries, err := os.ReadDir(p.Dir)
		if err != nil || len(entries) != 1500 {
			p.Errorf("%d entries are left, %v", len(entries), err)
		}
	}},
	{"remove while listing", []string{"a=", "b=", "c=", "d=", "e=", "f=", "g=", "h="}, func(p *Place) {
		d := p.open(".", os.O_RDONLY)
		var seen []string
		for {
			some, err := d.Readdirnames(1)
			if err == io.EOF {
				break
			}
			p.must(err)
			seen = append(seen, some...)
			p.must(os.Remove(p.at(some[0])))
		}
		slices.Sort(seen)
		if fmt.Sprint(seen) != "[a b c d e f g h]" {
			p.Errorf("listing while removing shows %q", seen)
		}
		p.lists(".")
	}},
	{"rewind", []string{"a="}, func(p *Place) {
		d := p.open(".", os.O_RDONLY)
		first, err := d.Readdirnames(-1)
		p.must(err)
		p.write("b", "")
		_, err = d.Seek(0, io.SeekStart)
		p.must(err)
		again, err := d.Readdirnames(-1)
		if err != nil || len(first) != 1 || len(again) != 2 {
			p.Errorf("listed %q, after a rewind %q, %v", first, again, err)
		}
	}},
	{"types in listings", []string{"f=", "d/", "l->f"}, func(p *Place) {
		entries, err := os.ReadDir(p.Dir)
		p.must(err)
		for _, e := range entries {
			want := map[string]os.FileMode{"f": 0, "d": os.ModeDir, "l": os.ModeSymlink}[e.Name()]
			if e.Type() != want {
				p.Errorf("%s is listed as %v", e.Name(), e.Type())
			}
		}
	}},
	{"removed directory in use", []string{"d/"}, func(p *Place) {
		d := p.open("d", os.O_RDONLY)
		p.must(os.Remove(p.at("d")))
		_, err := unix.Openat(int(d.Fd()), "x", unix.O_CREAT|unix.O_WRONLY, 0o644)
		p.fails(err, unix.ENOENT)
	}},
	{"numbers in listings", []string{"f=f", "d/"}, func(p *Place) {
		p.write("new", "new")
		for _, name := range []string{"f", "d", "new"} {
			if st := p.stat(name); st.Ino == 0 {
				p.Errorf("%s has no number", name)
			}
		}
	}},
	{"at once", nil, func(p *Place) {
		var all sync.WaitGroup
		for g := range 4 {
			all.Go(func() {
				mine := p.at(fmt.Sprint("d", g))
				if err := os.Mkdir(mine, 0o755); err != nil {
					p.Error(err)
					return
				}
				for i := range 100 {
					name := fmt.Sprintf("%s/%d", mine, i)
					if err := os.WriteFile(name, []byte(name), 0o644); err != nil {
						p.Error(err)
					}
					if i%3 == 0 {
						if err := os.Rename(name, name+"r"); err != nil {
							p.Error(err)
						}
					}
					if i%3 == 1 {
						if err := os.Remove(name); err != nil {
							p.Error(err)
						}
					}
				}
			})
		}
		all.Wait()
		for g := range 4 {
			entries, err := os.ReadDir(p.at(fmt.Sprint("d", g)))
			if err != nil || len(entries) != 67 {
				p.Errorf("d%d has %d entries, %v", g, len(entries), err)
			}
		}
	}},
}
