package fstest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// names are the cases of renames, links and names themselves.
var names = []Case{
	{"rename base file", []string{"f=base", "d/"}, func(p *Place) {
		before := p.stat("f")
		p.must(unix.Rename(p.at("f"), p.at("d/g")))
		p.gone("f")
		p.holds("d/g", "base")
		if after := p.stat("d/g"); after.Mtim != before.Mtim || after.Mode != before.Mode {
			p.Errorf("mode and time were %o %v, are %o %v", before.Mode, before.Mtim, after.Mode, after.Mtim)
		}
	}},
	{"rename over base", []string{"f=source", "g=target"}, func(p *Place) {
		p.must(unix.Rename(p.at("f"), p.at("g")))
		p.gone("f")
		p.holds("g", "source")
		p.lists(".", "g")
	}},
	{"rename there and back", []string{"f=base"}, func(p *Place) {
		for range 3 {
			p.must(unix.Rename(p.at("f"), p.at("g")))
			p.must(unix.Rename(p.at("g"), p.at("f")))
		}
		p.holds("f", "base")
		p.lists(".", "f")
	}},
	{"rename without replacing", []string{"f=f", "g=g"}, func(p *Place) {
		p.fails(p.rename2("f", "g", unix.RENAME_NOREPLACE), unix.EEXIST)
		p.must(p.rename2("f", "h", unix.RENAME_NOREPLACE))
		p.must(os.Remove(p.at("g")))
		p.must(p.rename2("h", "g", unix.RENAME_NOREPLACE))
		p.holds("g", "f")
		p.lists(".", "g")
	}},
	{"exchange", []string{"f=f", "g=g", "s->f"}, func(p *Place) {
		p.must(p.rename2("f", "g", unix.RENAME_EXCHANGE))
		p.holds("f", "g")
		p.holds("g", "f")
		p.must(p.rename2("s", "g", unix.RENAME_EXCHANGE))
		p.holds("s", "f")
		p.fails(p.rename2("f", "nothing", unix.RENAME_EXCHANGE), unix.ENOENT)
		p.must(os.Mkdir(p.at("d"), 0o755))
		p.must(p.rename2("d", "f", unix.RENAME_EXCHANGE))
		p.holds("d", "g")
		p.lists("f")
	}},
	{"rename new directory", []string{"old/a=base"}, func(p *Place) {
		p.must(os.Mkdir(p.at("d"), 0o755))
		p.write("d/f", "new")
		p.must(unix.Rename(p.at("d"), p.at("e")))
		p.gone("d")
		p.holds("e/f", "new")
		p.fails(unix.Rename(p.at("e"), p.at("old")), unix.ENOTEMPTY)
		p.must(os.Remove(p.at("old/a")))
		p.must(unix.Rename(p.at("e"), p.at("old"))) // over one that is empty by now
		p.lists("old", "f")
		p.lists(".", "old")
	}},
	{"rename base directory", []string{"d/a=a", "d/sub/b=b", "d/l->a", "to/"}, func(p *Place) {
		p.write("d/new", "new")
		p.must(os.Remove(p.at("d/a")))
		err := unix.Rename(p.at("d"), p.at("to/e"))
		if errors.Is(err, unix.EXDEV) {
			p.Skip("this engine says EXDEV, and programs copy")
		}
		p.must(err)
		p.gone("d")
		p.lists("to/e", "l", "new", "sub")
		p.holds("to/e/sub/b", "b")
		p.write("to/e/sub/c", "c")
		p.must(unix.Rename(p.at("to/e/sub"), p.at("sub")))
		p.lists("sub", "b", "c")
		p.must(os.Mkdir(p.at("d"), 0o755))
		p.lists("d") // nothing of the old one shows through
	}},
	{"rename base directory atomic", []string{"d/0/f=f", "d/1/f=f", "d/2/f=f", "d/3/f=f"}, func(p *Place) {
		if err := unix.Rename(p.at("d"), p.at("e")); errors.Is(err, unix.EXDEV) {
			p.Skip("this engine says EXDEV, and programs copy")
		} else {
			p.must(err)
		}
		stop := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			for from, to := "e", "d"; ; from, to = to, from {
				select {
				case <-stop:
					return
				default:
				}
				if err := unix.Rename(p.at(from), p.at(to)); err != nil {
					p.Error(err)
					return
				}
			}
		})
		for range 200 {
			for _, name := range []string{"d", "e"} {
				entries, err := os.ReadDir(p.at(name))
				if err == nil && len(entries) != 4 {
					p.Errorf("%s shows %d of 4 entries while it is renamed", name, len(entries))
				}
			}
		}
		close(stop)
		all.Wait()
	}},
	{"rename into itself", []string{"d/e/"}, func(p *Place) {
		p.fails(unix.Rename(p.at("d"), p.at("d/e/f")), unix.EINVAL)
		p.fails(unix.Rename(p.at("d/e"), p.at("d")), unix.ENOTEMPTY)
	}},
	{"rename kinds", []string{"f=f", "d/"}, func(p *Place) {
		p.fails(unix.Rename(p.at("f"), p.at("d")), unix.EISDIR)
		p.must(os.Mkdir(p.at("n"), 0o755))
		p.fails(unix.Rename(p.at("n"), p.at("f")), unix.ENOTDIR)
	}},
	{"link base file", []string{"f=base"}, func(p *Place) {
		p.must(os.Link(p.at("f"), p.at("g")))
		if f, g := p.stat("f"), p.stat("g"); f.Nlink != 2 || g.Nlink != 2 {
			p.Errorf("%d and %d links", f.Nlink, g.Nlink)
		}
		p.write("g", "through g")
		p.holds("f", "through g")
		p.must(os.Remove(p.at("f")))
		p.holds("g", "through g")
		if st := p.stat("g"); st.Nlink != 1 {
			p.Errorf("%d links after one is removed", st.Nlink)
		}
		p.fails(os.Link(p.at("g"), p.at("g")), unix.EEXIST)
	}},
	{"numbers of links", []string{"f=base"}, func(p *Place) {
		before := p.stat("f")
		p.must(os.Link(p.at("f"), p.at("g")))
		if f, g := p.stat("f"), p.stat("g"); f.Ino != before.Ino || g.Ino != before.Ino {
			p.Errorf("inode %d has become %d and %d", before.Ino, f.Ino, g.Ino)
		}
	}},
	{"hard link in base", []string{"f=base", "g==f", "d/h==f"}, func(p *Place) {
		if f, g := p.stat("f"), p.stat("g"); f.Ino != g.Ino || f.Nlink != 3 {
			p.Errorf("inodes %d and %d, %d links", f.Ino, g.Ino, f.Nlink)
		}
		p.must(os.Remove(p.at("d/h")))
		p.holds("f", "base")
		p.holds("g", "base")
	}},
	{"write through either link", []string{"f=base", "g==f"}, func(p *Place) {
		p.write("g", "through g")
		p.holds("f", "through g")
		p.write("f", "through f")
		p.holds("g", "through f")
		if f, g := p.stat("f"), p.stat("g"); f.Ino != g.Ino {
			p.Errorf("copy-up has parted the links: inodes %d and %d", f.Ino, g.Ino)
		}
	}},
	{"symbolic links", []string{"f=base", "l->f", "broken->nothing"}, func(p *Place) {
		p.holds("l", "base")
		p.write("l", "through the link")
		p.holds("f", "through the link")
		long := strings.Repeat("x/", 2000) + "y"
		p.must(os.Symlink(long, p.at("long")))
		for name, want := range map[string]string{"l": "f", "broken": "nothing", "long": long} {
			if got, err := os.Readlink(p.at(name)); err != nil || got != want {
				p.Errorf("%s leads to %q, %v", name, short([]byte(got)), err)
			}
		}
		p.must(os.Remove(p.at("l")))
		p.must(os.Symlink("broken", p.at("l")))
		_, err := os.Stat(p.at("l"))
		p.fails(err, unix.ENOENT)
		p.must(os.Symlink("loop", p.at("loop")))
		_, err = os.Stat(p.at("loop"))
		p.fails(err, unix.ELOOP)
	}},
	{"strange names", []string{"base\xff\x01=base"}, func(p *Place) {
		p.holds("base\xff\x01", "base")
		for _, name := range []string{"\xff", "new\nline", " ", "-rf", "ä", ".wh.x", ".wh..wh..opq", "#1f", strings.Repeat("n", 255)} {
			p.write(name, name)
			p.holds(name, name)
			p.must(unix.Rename(p.at(name), p.at("t")))
			p.must(unix.Rename(p.at("t"), p.at(name)))
		}
		_, err := os.Lstat(p.at(strings.Repeat("n", 256)))
		p.fails(err, unix.ENAMETOOLONG)
	}},
	{"deep", []string{"f=base"}, func(p *Place) {
		dir := p.open(".", os.O_RDONLY)
		at := int(dir.Fd())
		for i := range 300 {
			p.must(unix.Mkdirat(at, fmt.Sprint("d", i), 0o755))
			next, err := unix.Openat(at, fmt.Sprint("d", i), unix.O_RDONLY|unix.O_DIRECTORY, 0)
			p.must(err)
			if i > 0 {
				unix.Close(at)
			}
			at = next
		}
		fd, err := unix.Openat(at, "bottom", unix.O_WRONLY|unix.O_CREAT, 0o644)
		p.must(err)
		unix.Close(fd)
		unix.Close(at)
		p.must(os.RemoveAll(p.at("d0")))
		p.lists(".", "f")
	}},
	{"negative names", []string{"d/"}, func(p *Place) {
		for range 3 {
			_, err := os.Lstat(p.at("d/x"))
			p.fails(err, unix.ENOENT)
			p.write("d/x", "here")
			p.holds("d/x", "here")
			p.must(unix.Rename(p.at("d/x"), p.at("y")))
			p.gone("d/x")
			p.must(os.Remove(p.at("y")))
		}
	}},
	{"through a file", []string{"f=base"}, func(p *Place) {
		_, err := os.Lstat(p.at("f/x"))
		p.fails(err, unix.ENOTDIR)
		p.fails(os.Mkdir(filepath.Join(p.at("f"), "x"), 0o755), unix.ENOTDIR)
	}},
}

func (p *Place) rename2(from, to string, flags uint) error {
	return unix.Renameat2(unix.AT_FDCWD, p.at(from), unix.AT_FDCWD, p.at(to), flags)
}
