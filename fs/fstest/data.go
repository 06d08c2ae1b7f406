package fstest

import (
	"bytes"
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// data are the cases of mappings, holes and copies within a file system.
var data = []Case{
	{"shared mapping", []string{"f=0123456789"}, func(p *Place) {
		f := p.open("f", os.O_RDWR)
		m, err := unix.Mmap(int(f.Fd()), 0, 10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		p.must(err)
		copy(m[2:], "xx")
		p.must(unix.Msync(m, unix.MS_SYNC))
		p.reads(f, "01xx456789")
		_, err = f.WriteAt([]byte("yy"), 6)
		p.must(err)
		if string(m) != "01xx45yy89" {
			p.Errorf("the mapping shows %q", m)
		}
		copy(m, "zz")
		p.must(unix.Munmap(m))
		p.must(f.Close())
		p.holds("f", "zzxx45yy89")
	}},
	{"private mapping", []string{"f=0123456789"}, func(p *Place) {
		f := p.open("f", os.O_RDONLY)
		m, err := unix.Mmap(int(f.Fd()), 0, 10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		p.must(err)
		defer unix.Munmap(m)
		copy(m, "private")
		p.holds("f", "0123456789")
	}},
	{"mapping outlives the descriptor", nil, func(p *Place) {
		f := p.open("f", os.O_RDWR|os.O_CREATE)
		p.must(f.Truncate(8192))
		m, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		p.must(err)
		p.must(f.Close())
		copy(m[5000:], "late")
		p.must(unix.Munmap(m))
		g := p.open("f", os.O_RDONLY)
		buf := make([]byte, 4)
		_, err = g.ReadAt(buf, 5000)
		p.must(err)
		if string(buf) != "late" {
			p.Errorf("what was written through the mapping is %q", buf)
		}
	}},
	{"fsync", []string{"f=base"}, func(p *Place) {
		f := p.open("f", os.O_RDWR)
		_, err := f.WriteAt([]byte("B"), 0)
		p.must(errors.Join(err, f.Sync(), unix.Fdatasync(int(f.Fd()))))
		d := p.open(".", os.O_RDONLY)
		p.must(d.Sync())
		p.must(unix.Syncfs(int(d.Fd())))
		p.holds("f", "Base")
	}},
	{"allocate", []string{"f=base"}, func(p *Place) {
		f := p.open("f", os.O_RDWR)
		fd := int(f.Fd())
		err := unix.Fallocate(fd, 0, 0, 100<<10)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return
		}
		p.must(err)
		if st := p.stat("f"); st.Size != 100<<10 {
			p.Errorf("size %d after fallocate", st.Size)
		}
		p.must(unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 200<<10, 4096))
		_, err = f.WriteAt(bytes.Repeat([]byte{'x'}, 32<<10), 0)
		p.must(err)
		p.must(unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 4096, 8192))
		err = unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE, 16<<10, 4096)
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			p.Error(err)
		}
		buf := make([]byte, 8192)
		_, err = f.ReadAt(buf, 4096)
		p.must(err)
		if !bytes.Equal(buf, make([]byte, 8192)) {
			p.Error("the hole is not empty")
		}
		if st := p.stat("f"); st.Size != 100<<10 {
			p.Errorf("size %d after all", st.Size)
		}
	}},
	{"holes", nil, func(p *Place) {
		f := p.open("f", os.O_RDWR|os.O_CREATE)
		_, err := f.WriteAt([]byte("data"), 1<<20)
		p.must(errors.Join(err, f.Sync()))
		at, err := f.Seek(0, unix.SEEK_DATA)
		if err != nil || at != 1<<20 {
			p.Errorf("the data begins at %d, %v", at, err)
		}
		at, err = f.Seek(1<<20, unix.SEEK_HOLE)
		if err != nil || at < 1<<20+4 {
			p.Errorf("the hole behind it begins at %d, %v", at, err)
		}
		_, err = f.Seek(2<<20, unix.SEEK_DATA)
		p.fails(err, unix.ENXIO)
		if st := p.stat("f"); st.Blocks > 64 {
			p.Errorf("a sparse file takes %d blocks", st.Blocks)
		}
	}},
	{"copy range", []string{"f=0123456789"}, func(p *Place) {
		from, to := p.open("f", os.O_RDONLY), p.open("g", os.O_RDWR|os.O_CREATE)
		off := int64(2)
		n, err := unix.CopyFileRange(int(from.Fd()), &off, int(to.Fd()), nil, 5, 0)
		if err != nil || n != 5 {
			p.Fatalf("copy_file_range copied %d, %v", n, err)
		}
		p.holds("g", "23456")
		p.holds("f", "0123456789")
	}},
	{"unbuffered", nil, func(p *Place) {
		fd, err := unix.Open(p.at("f"), unix.O_RDWR|unix.O_CREAT|unix.O_DIRECT, 0o644)
		if errors.Is(err, unix.EINVAL) {
			return // tmpfs before 6.5
		}
		p.must(err)
		f := os.NewFile(uintptr(fd), "f")
		defer f.Close()
		raw := make([]byte, 8192+4096)
		skip := 4096 - int(uintptr(unsafe.Pointer(&raw[0]))%4096)
		block := raw[skip : skip+8192]
		for i := range block {
			block[i] = byte(i)
		}
		_, err = f.WriteAt(block, 0)
		p.must(err)
		clear(block)
		_, err = f.ReadAt(block, 0)
		p.must(err)
		if block[4097] != 1 || block[255] != 255 {
			p.Error("what was read is not what was written")
		}
		if st := p.stat("f"); st.Size != 8192 {
			p.Errorf("size %d", st.Size)
		}
	}},
	{"copy-up keeps holes", nil, func(p *Place) {
		// The base of this one is made here, by the layer: a second copy of a
		// sparse file with tail.
		f := p.open("f", os.O_RDWR|os.O_CREATE)
		p.must(f.Truncate(64 << 20))
		_, err := f.WriteAt([]byte("tail"), 64<<20-4)
		p.must(err)
		if st := p.stat("f"); st.Size != 64<<20 || st.Blocks > 256 {
			p.Errorf("size %d, %d blocks", st.Size, st.Blocks)
		}
	}},
	{"positions", []string{"f=0123456789"}, func(p *Place) {
		f := p.open("f", os.O_RDWR)
		buf := make([]byte, 3)
		_, err := f.Read(buf)
		p.must(err)
		_, err = f.Write([]byte("XX"))
		p.must(err)
		at, err := f.Seek(0, unix.SEEK_CUR)
		if err != nil || at != 5 {
			p.Errorf("at %d, %v", at, err)
		}
		end, err := f.Seek(0, unix.SEEK_END)
		if err != nil || end != 10 {
			p.Errorf("the end is at %d, %v", end, err)
		}
		p.holds("f", "012XX56789")
	}},
}
