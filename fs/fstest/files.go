package fstest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// files are the cases of opening, reading, writing and removing files.
var files = []Case{
	{"read base", []string{"f=base\n"}, func(p *Place) { p.holds("f", "base\n") }},
	{"create", nil, func(p *Place) {
		p.write("f", "new")
		p.holds("f", "new")
		p.lists(".", "f")
	}},
	{"create exclusively", []string{"f=base"}, func(p *Place) {
		_, err := os.OpenFile(p.at("f"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		p.fails(err, unix.EEXIST)
		p.must(os.Remove(p.at("f")))
		p.open("f", os.O_CREATE|os.O_EXCL|os.O_WRONLY)
		p.holds("f", "")
	}},
	{"overwrite base", []string{"f=base content"}, func(p *Place) {
		p.write("f", "short")
		p.holds("f", "short")
	}},
	{"write into base", []string{"f=0123456789"}, func(p *Place) {
		f := p.open("f", os.O_RDWR)
		_, err := f.WriteAt([]byte("xy"), 4)
		p.must(err)
		p.reads(f, "0123xy6789")
		p.must(f.Close())
		p.holds("f", "0123xy6789")
	}},
	{"append to base", []string{"f=base "}, func(p *Place) {
		a, b := p.open("f", os.O_WRONLY|os.O_APPEND), p.open("f", os.O_WRONLY|os.O_APPEND)
		for _, f := range []*os.File{a, b, a} {
			_, err := f.WriteString("x")
			p.must(err)
		}
		p.holds("f", "base xxx")
	}},
	{"append at once", []string{"f="}, func(p *Place) {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				f, err := os.OpenFile(p.at("f"), os.O_WRONLY|os.O_APPEND, 0)
				if err != nil {
					p.Error(err)
					return
				}
				defer f.Close()
				for range 100 {
					if _, err := f.WriteString("12345678\n"); err != nil {
						p.Error(err)
					}
				}
			})
		}
		all.Wait()
		p.holds("f", strings.Repeat("12345678\n", 400))
	}},
	{"truncate", []string{"f=0123456789", "g=0123456789"}, func(p *Place) {
		p.must(os.Truncate(p.at("f"), 4))
		p.holds("f", "0123")
		p.must(os.Truncate(p.at("f"), 6))
		p.holds("f", "0123\x00\x00")
		f := p.open("g", os.O_RDWR|os.O_TRUNC)
		p.reads(f, "")
		p.must(f.Truncate(3))
		p.holds("g", "\x00\x00\x00")
	}},
	{"read while written", []string{"f=base"}, func(p *Place) {
		r := p.open("f", os.O_RDONLY)
		p.reads(r, "base")
		p.write("f", "branch")
		p.reads(r, "branch") // one file, whoever opened it when
	}},
	{"remove base", []string{"f=base"}, func(p *Place) {
		p.must(os.Remove(p.at("f")))
		p.gone("f")
		p.lists(".")
		p.fails(os.Remove(p.at("f")), unix.ENOENT)
	}},
	{"remove and create again", []string{"f=base"}, func(p *Place) {
		for _, content := range []string{"one", "two", "three"} {
			p.must(os.Remove(p.at("f")))
			p.gone("f")
			p.write("f", content)
			p.holds("f", content)
		}
	}},
	{"removed while open", []string{"f=base", "g=base"}, func(p *Place) {
		r, w := p.open("f", os.O_RDONLY), p.open("g", os.O_RDWR)
		n := p.open("n", os.O_RDWR|os.O_CREATE)
		for _, name := range []string{"f", "g", "n"} {
			p.must(os.Remove(p.at(name)))
		}
		p.reads(r, "base")
		for _, f := range []*os.File{w, n} {
			_, err := f.WriteAt([]byte("after"), 0)
			p.must(err)
			p.reads(f, "after")
			p.must(f.Truncate(2))
			p.must(f.Chmod(0o600))
			p.must(f.Sync())
			st, err := f.Stat()
			p.must(err)
			if st.Size() != 2 || st.Mode().Perm() != 0o600 {
				p.Errorf("a removed file has size %d and mode %v", st.Size(), st.Mode())
			}
		}
		p.lists(".")
	}},
	{"replaced while open", []string{"f=old"}, func(p *Place) {
		r := p.open("f", os.O_RDONLY)
		p.write("new", "new")
		p.must(os.Rename(p.at("new"), p.at("f")))
		p.reads(r, "old")
		p.holds("f", "new")
	}},
	{"large file", nil, func(p *Place) {
		block := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MB
		f := p.open("f", os.O_RDWR|os.O_CREATE)
		for range 20 {
			_, err := f.Write(block)
			p.must(err)
		}
		p.must(f.Sync())
		got := make([]byte, len(block))
		_, err := f.ReadAt(got, 7<<20)
		p.must(err)
		if !bytes.Equal(got, block) {
			p.Error("the eighth megabyte is another")
		}
	}},
	{"execute", []string{"tool=#!/bin/sh\necho base\n"}, func(p *Place) {
		p.fails(exec.Command(p.at("tool")).Run(), unix.EACCES)
		p.must(os.Chmod(p.at("tool"), 0o755))
		out, err := exec.Command(p.at("tool")).Output()
		if err != nil || string(out) != "base\n" {
			p.Errorf("the tool says %q, %v", out, err)
		}
		binary, err := os.ReadFile("/bin/true")
		p.must(err)
		p.must(os.WriteFile(p.at("true"), binary, 0o755))
		p.must(exec.Command(p.at("true")).Run())
	}},
	{"text busy", nil, func(p *Place) {
		binary, err := os.ReadFile("/bin/cat")
		p.must(err)
		p.must(os.WriteFile(p.at("cat"), binary, 0o755))
		cmd := exec.Command(p.at("cat"))
		in, err := cmd.StdinPipe()
		p.must(err)
		p.must(cmd.Start())
		_, err = os.OpenFile(p.at("cat"), os.O_WRONLY, 0)
		p.must(errors.Join(in.Close(), cmd.Wait()))
		p.fails(err, unix.ETXTBSY)
	}},
	{"unnamed", nil, func(p *Place) {
		fd, err := unix.Open(p.Dir, unix.O_TMPFILE|unix.O_RDWR, 0o640)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return // what programs know how to do without
		}
		p.must(err)
		f := os.NewFile(uintptr(fd), "unnamed")
		defer f.Close()
		_, err = f.WriteString("was unnamed")
		p.must(err)
		p.must(unix.Linkat(fd, "", unix.AT_FDCWD, p.at("named"), unix.AT_EMPTY_PATH))
		p.holds("named", "was unnamed")
	}},
	{"read a directory as a file", []string{"d/"}, func(p *Place) {
		f := p.open("d", os.O_RDONLY)
		_, err := f.Read(make([]byte, 1))
		p.fails(err, unix.EISDIR)
		_, err = os.OpenFile(p.at("d"), os.O_WRONLY, 0)
		p.fails(err, unix.EISDIR)
	}},
	{"many open files", []string{"f=base"}, func(p *Place) {
		var open []*os.File
		defer func() {
			for _, f := range open {
				f.Close()
			}
		}()
		for range 500 {
			f, err := os.Open(p.at("f"))
			p.must(err)
			open = append(open, f)
		}
		p.write("f", "changed")
		for _, f := range open {
			if got, err := io.ReadAll(f); err != nil || string(got) != "changed" {
				p.Fatalf("one of many reads %q, %v", got, err)
			}
		}
	}},
}
