package commit

import (
	"os"
	"testing"

	"try/fs/layer/layertest"
	"try/fs/vfs"
)

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		childMain()
	}
	layertest.Main(m)
}

type op = layertest.Op

// mixedBase and mixed are a base and a session that together need every kind
// of step.
var mixedBase = []op{
	{"mkdir", "d"}, {"write", "d/a", "old a"}, {"write", "d/b", "old b"}, {"write", "d/c", "old c"},
	{"mkdir", "gone"}, {"write", "gone/x", "x"}, {"mkdir", "gone/sub"}, {"write", "gone/sub/y", "y"},
	{"mkdir", "anew"}, {"write", "anew/x", "x"}, {"write", "anew/keep", "same"}, {"mkdir", "anew/sub"},
	{"write", "meta", "m"}, {"setxattr", "meta", "user.a", "1"}, {"setxattr", "meta", "user.b", "1"},
	{"write", "attr", "m"}, {"write", "touched", "t"}, {"mkdir", "dirmeta"},
	{"write", "turned", "a file"}, {"mkdir", "file"}, {"write", "file/x", "x"},
	{"symlink", "a", "link"}, {"symlink", "b", "deadlink"}, {"fifo", "pipe"},
	{"write", "ro", "ro"}, {"chmod", "ro", "444"}, {"write", "moved", "from"},
	{"mkdir", "locked"}, {"write", "locked/f", "f"}, {"write", "locked/g", "g"}, {"chmod", "locked", "555"},
	{"write", "same", "equal"}, {"mkdir", "lockedgone"}, {"write", "lockedgone/z", "z"}, {"chmod", "lockedgone", "555"},
	{"write", "h1", "linked"}, {"mkdir", "lk"}, {"write", "lk/a", "one"}, {"link", "lk/a", "lk2"}, {"write", "strange\n\xff\x1b[2J", "s"},
}

var mixed = []op{
	{"append", "d/a", " and new"}, {"rm", "d/b"}, {"write", "d/n", "new"},
	{"rmtree", "gone"},
	{"rmtree", "anew"}, {"mkdir", "anew"}, {"write", "anew/n", "n"}, {"write", "anew/keep", "same"},
	{"chmod", "meta", "600"}, {"setxattr", "meta", "user.a", "2"}, {"rmxattr", "meta", "user.b"}, {"setxattr", "meta", "user.c", ""},
	{"setxattr", "attr", "user.overlay.mine", "escaped"},
	{"touch", "touched", "1500000000000000000"}, {"chmod", "dirmeta", "700"}, {"setxattr", "dirmeta", "user.d", "v"},
	{"rm", "turned"}, {"mkdir", "turned"}, {"write", "turned/x", "x"},
	{"rmtree", "file"}, {"write", "file", "now a file"},
	{"rm", "link"}, {"symlink", "c", "link"}, {"rm", "deadlink"}, {"write", "deadlink", "f"},
	{"rm", "pipe"}, {"fifo", "pipe2"},
	{"chmod", "ro", "644"}, {"append", "ro", " changed"}, {"chmod", "ro", "444"},
	{"rename", "moved", "elsewhere"}, {"link", "h1", "h2"}, {"append", "lk/a", " file"}, {"mkdir", "lkdir"}, {"link", "h1", "lkdir/h3"},
	{"chmod", "locked", "755"}, {"append", "locked/f", " more"}, {"rm", "locked/g"}, {"write", "locked/h", "h"}, {"chmod", "locked", "555"},
	{"open", "same"}, {"chmod", "lockedgone", "755"}, {"rmtree", "lockedgone"},
	{"mkdir", "mod"}, {"mkdir", "mod/sub"}, {"write", "mod/sub/f", "f"}, {"chmod", "mod/sub/f", "444"},
	{"rename", "d/c", "mod/sub/c"}, {"chmod", "mod/sub/c", "444"}, {"chmod", "mod/sub", "555"}, {"chmod", "mod", "555"},
	{"mkdir", "closed"}, {"mkdir", "closed/in"}, {"write", "closed/in/f", "f"}, {"chmod", "closed/in/f", "000"}, {"chmod", "closed/in", "000"}, {"chmod", "closed", "000"},
	{"write", "secret", "s"}, {"chmod", "secret", "000"},
	{"mkdir", "withsocket"}, {"socket", "withsocket/s"}, {"write", "withsocket/f", "f"},
	{"write", "strange\n\xff\x1b[2J", "changed"}, {"mkdir", "empty"},
}

// mixedNames are the files with several names that mixed makes of mixedBase.
var mixedNames = []string{"h1 = h2 = lkdir/h3", "lk/a = lk2"}

func TestCommit(t *testing.T) {
	layertest.Skip(t)
	r := newRig(t, mixedBase...)
	r.session(mixed...)
	want := r.want()
	if found := r.drift(); len(found) > 0 {
		t.Errorf("drift: %v", found)
	}
	check(t, r.commit(vfs.Disk()))
	same(t, "base", look(t, r.base()), want)
	r.wantNames(mixedNames...)
	if o, err := Recover(vfs.Disk(), r.store()); o != Committed || err != nil {
		t.Errorf("recover after the commit: %v, %v", o, err)
	}
	same(t, "base after a recovery that has nothing to do", look(t, r.base()), want)
}

func TestCommitByCopy(t *testing.T) {
	layertest.Skip(t)
	r := newRig(t, mixedBase...)
	r.copy = true
	r.session(mixed...)
	want := r.want()
	check(t, r.commit(vfs.Disk()))
	same(t, "base", look(t, r.base()), want)
	r.wantNames(mixedNames...)
}
