package fstest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// meta are the cases of modes, times, owners, attributes and numbers.
var meta = []Case{
	{"mode of base", []string{"f=f", "d/x=x"}, func(p *Place) {
		p.must(os.Chmod(p.at("f"), 0o600))
		p.must(os.Chmod(p.at("d"), 0o700))
		p.must(unix.Chmod(p.at("f"), 0o4711))
		if f, d := p.stat("f"), p.stat("d"); f.Mode != unix.S_IFREG|0o4711 || d.Mode != unix.S_IFDIR|0o700 {
			p.Errorf("modes %o, %o", f.Mode, d.Mode)
		}
		p.holds("f", "f")
		p.lists("d", "x")
	}},
	{"no mode at all", []string{"f=f", "d/x=x"}, func(p *Place) {
		p.must(os.Chmod(p.at("f"), 0))
		p.must(os.Chmod(p.at("d"), 0))
		if os.Geteuid() != 0 {
			_, err := os.ReadFile(p.at("f"))
			p.fails(err, unix.EACCES)
			_, err = os.ReadDir(p.at("d"))
			p.fails(err, unix.EACCES)
		}
		p.must(os.Chmod(p.at("f"), 0o644))
		p.must(os.Chmod(p.at("d"), 0o755))
		p.holds("f", "f")
		p.lists("d", "x")
	}},
	{"times of base", []string{"f=f", "d/"}, func(p *Place) {
		at, mt := time.Unix(1_000_000_000, 123456789), time.Unix(1_100_000_000, 987654321)
		for _, name := range []string{"f", "d"} {
			p.must(os.Chtimes(p.at(name), at, mt))
			st := p.stat(name)
			if time.Unix(st.Atim.Unix()) != at || time.Unix(st.Mtim.Unix()) != mt {
				p.Errorf("times of %s: %v %v", name, st.Atim, st.Mtim)
			}
		}
		p.holds("f", "f")
		before := p.stat("f")
		f := p.open("f", os.O_WRONLY)
		_, err := f.WriteString("F")
		p.must(errors.Join(err, f.Close()))
		if after := p.stat("f"); after.Mtim == before.Mtim {
			p.Error("a write has not moved the time")
		}
	}},
	{"times of a directory", []string{"d/"}, func(p *Place) {
		old := time.Unix(1_000_000_000, 0)
		p.must(os.Chtimes(p.at("d"), old, old))
		p.write("d/f", "")
		if st := p.stat("d"); st.Mtim.Sec == old.Unix() {
			p.Error("a new entry has not moved the time of its directory")
		}
		p.must(os.Chtimes(p.at("d"), old, old))
		p.must(os.Remove(p.at("d/f")))
		if st := p.stat("d"); st.Mtim.Sec == old.Unix() {
			p.Error("a removed entry has not moved the time of its directory")
		}
	}},
	{"owner", []string{"f=f"}, func(p *Place) {
		p.must(os.Chown(p.at("f"), os.Getuid(), os.Getgid()))
		if st := p.stat("f"); int(st.Uid) != os.Getuid() || int(st.Gid) != os.Getgid() {
			p.Errorf("owner %d:%d", st.Uid, st.Gid)
		}
		err := os.Chown(p.at("f"), 12345, 12345)
		if os.Geteuid() != 0 && err == nil {
			p.Error("an ordinary user has given a file away")
		}
	}},
	{"mask", nil, func(p *Place) {
		old := unix.Umask(0o027)
		defer unix.Umask(old)
		p.must(os.WriteFile(p.at("f"), nil, 0o666))
		p.must(os.Mkdir(p.at("d"), 0o777))
		if f, d := p.stat("f"), p.stat("d"); f.Mode&0o7777 != 0o640 || d.Mode&0o7777 != 0o750 {
			p.Errorf("modes %o, %o", f.Mode, d.Mode)
		}
	}},
	{"number stays", []string{"f=f", "d/"}, func(p *Place) {
		f, d := p.stat("f"), p.stat("d")
		r := p.open("f", os.O_RDONLY)
		p.write("f", "changed")
		p.write("d/x", "")
		if after := p.stat("f"); after.Ino != f.Ino || after.Dev != f.Dev {
			p.Errorf("copy-up has changed %d:%d to %d:%d", f.Dev, f.Ino, after.Dev, after.Ino)
		}
		if after := p.stat("d"); after.Ino != d.Ino {
			p.Errorf("copy-up has changed the directory's number")
		}
		var st unix.Stat_t
		p.must(unix.Fstat(int(r.Fd()), &st))
		if st.Ino != f.Ino || st.Size != 7 {
			p.Errorf("the open file is %d with %d bytes", st.Ino, st.Size)
		}
	}},
	{"attributes", []string{"f=f", "d/"}, func(p *Place) {
		for _, name := range []string{"f", "d"} {
			at := p.at(name)
			p.must(unix.Setxattr(at, "user.one", []byte("1"), 0))
			p.must(unix.Setxattr(at, "user.two", nil, 0))
			p.fails(unix.Setxattr(at, "user.one", nil, unix.XATTR_CREATE), unix.EEXIST)
			p.fails(unix.Setxattr(at, "user.none", nil, unix.XATTR_REPLACE), unix.ENODATA)
			if got := p.attr(name, "user.one"); got != "1" {
				p.Errorf("user.one of %s is %q", name, got)
			}
			if got := p.attrs(name); !slices.Equal(got, []string{"user.one", "user.two"}) {
				p.Errorf("%s has %q", name, got)
			}
			p.must(unix.Removexattr(at, "user.one"))
			p.fails(unix.Removexattr(at, "user.one"), unix.ENODATA)
			_, err := unix.Getxattr(at, "user.one", make([]byte, 8))
			p.fails(err, unix.ENODATA)
			_, err = unix.Getxattr(at, "user.two", nil)
			p.must(err)
		}
		p.holds("f", "f")
	}},
	{"long attribute", []string{"f=f"}, func(p *Place) {
		value := strings.Repeat("v", 3000)
		p.must(unix.Setxattr(p.at("f"), "user.long", []byte(value), 0))
		if got := p.attr("f", "user.long"); got != value {
			p.Errorf("a long attribute is %d bytes", len(got))
		}
		_, err := unix.Getxattr(p.at("f"), "user.long", make([]byte, 10))
		p.fails(err, unix.ERANGE)
	}},
	{"attributes of overlays", []string{"d/x=x", "f=f"}, func(p *Place) {
		// A container's own, in a branch: theirs, not ours.
		for _, name := range []string{"d", "f"} {
			p.must(unix.Setxattr(p.at(name), "user.overlay.opaque", []byte("y"), 0))
			if got := p.attr(name, "user.overlay.opaque"); got != "y" {
				p.Errorf("user.overlay.opaque of %s is %q", name, got)
			}
			if got := p.attrs(name); !slices.Equal(got, []string{"user.overlay.opaque"}) {
				p.Errorf("%s has %q", name, got)
			}
		}
		p.lists("d", "x")
		p.must(unix.Removexattr(p.at("d"), "user.overlay.opaque"))
		p.must(unix.Setxattr(p.at("f"), "user.overlay.whiteout", nil, 0))
		p.holds("f", "f")
	}},
	{"access control list", []string{"f=f", "d/"}, func(p *Place) {
		list := acl(0o6, 0o4, 0o4, 0o4)
		err := unix.Setxattr(p.at("f"), "system.posix_acl_access", list, 0)
		if errors.Is(err, unix.EOPNOTSUPP) {
			p.Skip("no access control lists on this file system")
		}
		p.must(err)
		if st := p.stat("f"); st.Mode&0o777 != 0o644 {
			p.Errorf("mode %o with a list", st.Mode&0o777)
		}
		p.must(unix.Setxattr(p.at("d"), "system.posix_acl_default", acl(0o7, 0o5, 0o5, 0o0), 0))
		old := unix.Umask(0o077) // a default list takes its place
		defer unix.Umask(old)
		p.must(os.WriteFile(p.at("d/new"), nil, 0o666))
		if st := p.stat("d/new"); st.Mode&0o777 != 0o640 {
			p.Errorf("mode %o below a default list", st.Mode&0o777)
		}
	}},
	{"statfs", []string{"f=f"}, func(p *Place) {
		var st unix.Statfs_t
		p.must(unix.Statfs(p.Dir, &st))
		if st.Blocks == 0 || st.Bavail == 0 || st.Namelen != 255 {
			p.Errorf("%+v", st)
		}
	}},
	{"access", []string{"f=f"}, func(p *Place) {
		p.must(unix.Access(p.at("f"), unix.R_OK|unix.W_OK))
		p.fails(unix.Access(p.at("f"), unix.X_OK), unix.EACCES)
	}},
	{"statx", []string{"f=f"}, func(p *Place) {
		var st unix.Statx_t
		p.must(unix.Statx(unix.AT_FDCWD, p.at("f"), 0, unix.STATX_BASIC_STATS, &st))
		if st.Mask&unix.STATX_BASIC_STATS != unix.STATX_BASIC_STATS || st.Size != 1 {
			p.Errorf("%+v", st)
		}
	}},
}

// acl is a minimal list with one named user, ourselves.
func acl(user, named, group, other uint16) []byte {
	const userObj, namedUser, groupObj, mask, otherObj = 1, 2, 4, 16, 32
	var b bytes.Buffer
	put := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) }
	put(uint32(2)) // version
	for _, e := range [][3]uint32{
		{userObj, uint32(user), ^uint32(0)}, {namedUser, uint32(named), uint32(os.Getuid())},
		{groupObj, uint32(group), ^uint32(0)}, {mask, uint32(group), ^uint32(0)}, {otherObj, uint32(other), ^uint32(0)},
	} {
		put(uint16(e[0]))
		put(uint16(e[1]))
		put(e[2])
	}
	return b.Bytes()
}

func (p *Place) attr(name, attr string) string {
	p.Helper()
	buf := make([]byte, 8192)
	n, err := unix.Getxattr(p.at(name), attr, buf)
	if err != nil {
		p.Errorf("%s of %s: %v", attr, name, err)
		return ""
	}
	return string(buf[:n])
}

// attrs are the user's attributes.
func (p *Place) attrs(name string) []string {
	p.Helper()
	buf := make([]byte, 8192)
	n, err := unix.Listxattr(p.at(name), buf)
	p.must(err)
	var list []string
	for attr := range strings.SplitSeq(string(buf[:n]), "\x00") {
		if strings.HasPrefix(attr, "user.") {
			list = append(list, attr)
		}
	}
	slices.Sort(list)
	return list
}
