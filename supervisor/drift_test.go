package supervisor_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSwappedParent: what lies below a directory that was moved into place has
// old times, and is somebody's work all the same (H5, B5).
func TestSwappedParent(t *testing.T) {
	for _, c := range []struct{ name, swap string }{
		{"parent", "mv a/src a/src.old; mv a/src.new a/src"},
		{"grandparent", "mv a a.old; mv a.new a"},
		{"parent, then a neighbour", "mv a/src a/src.old; mv a/src.new a/src; touch a/src/neighbour"},
		{"exchanged by a link", "mv a/src a/src.old; ln -s src.new a/src"},
	} {
		for _, how := range []string{"at once", "kept", "interrupted"} {
			t.Run(c.name+"/"+how, func(t *testing.T) {
				r := newRig(t)
				const script = "echo mine > a/src/x; rm a/src/y; echo mine > a/src/z\n"
				r.outside(`mkdir -p a/src a/src.new a.new/src
					echo old | tee a/src/x > a/src/y; echo theirs | tee a/src.new/x a.new/src/x > a.new/src/y; cp a/src.new/x a/src.new/y`)
				settle := func() *outcome { return r.try("commit", "mine") }
				switch how {
				case "at once":
					settle = r.open("-y", "-b", "mine", script+"WAIT").end
				case "kept":
					r.sh("--keep", "-b", "mine", script).want(0)
				case "interrupted":
					p, _ := r.underReaper(nil, binary, "-y", "-b", "mine", "--", "/bin/sh", "-euc", script+"echo ready >&3; exec sleep 1000")
					p.untilReady()
					r.must(unix.Kill(p.pid, unix.SIGKILL))
					p.wait().want(137)
				}
				r.outside(c.swap)
				before := r.project()
				settle().want(125).says("mine")
				r.same(before)
				r.wantFile("a/src/x", "theirs\n")
				if n := len(r.try("changes", "--json", "mine").want(0).document().Roots[0].Changes); n < 2 {
					t.Errorf("the kept branch has %d changes", n)
				}
			})
		}
	}
}

// TestParentExchangedByCommit: another try puts a whole directory, made before
// our fork, into place after it.
func TestParentExchangedByCommit(t *testing.T) {
	for _, c := range []struct{ name, theirs, mine string }{
		{"parent", "rm -r d; mkdir d; echo theirs > d/x; echo theirs > d/y", "echo mine > d/x"},
		{"parent, new entry", "rm -r d; mkdir d; echo theirs > d/x", "echo mine > d/new"},
		{"grandparent", "rm -r d; mkdir -p d/e; echo theirs > d/e/x", "echo mine > d/e/x"},
		{"added by both", "mkdir n; echo theirs > n/x", "mkdir n; echo mine > n/x"},
		{"deleted above", "rm -r d", "echo mine > d/e/x"},
		{"replaced by a file", "rm -r d; echo theirs > d", "echo mine > d/e/x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.outside("mkdir -p d/e; echo old | tee d/x d/y > d/e/x")
			theirs := r.open("-y", c.theirs+"\nWAIT")
			mine := r.open("-y", "-b", "mine", c.mine+"\nWAIT")
			theirs.end().want(0)
			after := r.project()
			mine.end().want(125).says("mine")
			r.same(after)
			r.try("commit", "mine").want(125)
			r.same(after)
		})
	}
}

// TestRootMadeAnew: a branch never commits into another directory of the same
// name (H19).
func TestRootMadeAnew(t *testing.T) {
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprintf("kept %v", kept), func(t *testing.T) {
			r := newRig(t)
			r.write("f", "old")
			settle := func() *outcome { return r.try("commit", "mine") }
			if kept {
				r.sh("--keep", "-b", "mine", "echo mine > new; rm f").want(0)
			} else {
				settle = r.open("-y", "-b", "mine", "echo mine > new; rm f\nWAIT").end
			}
			r.must(os.Rename(r.proj, r.proj+".old"))
			r.must(os.Mkdir(r.proj, 0o755))
			r.write("f", "old")
			before := r.project()
			settle().want(125).says("no longer the directory")
			r.same(before)
			if got := r.branches(); len(got) != 1 {
				t.Errorf("branches are %v, want mine", got)
			}
			// With the real one back it can be had.
			r.must(os.Rename(r.proj, r.proj+".other"))
			r.must(os.Rename(r.proj+".old", r.proj))
			r.try("commit", "mine").want(0)
			r.wantFile("new", "mine\n")
		})
	}
}

// TestWriterInDeleted: a neighbour adds a file, at a random moment of the
// commit, to a directory that the branch removes or replaces. Nothing that was
// written is lost (H8).
func TestWriterInDeleted(t *testing.T) {
	for _, script := range []string{"rm -r dd", "rm -r dd; mkdir dd; echo new > dd/new", "rm -r dd; echo file > dd"} {
		t.Run(script, func(t *testing.T) {
			r := newRig(t)
			commits := 0
			for round := range 25 {
				r.must(removeAll(r.at("dd")))
				for i := range 20 {
					r.write(fmt.Sprintf("dd/sub%d/f", i), "old")
				}
				s := r.open("-y", "-q", script+"\nWAIT")
				var written atomic.Bool
				var wg sync.WaitGroup
				name := filepath.Join(r.at("dd/sub7"), "theirs"+strconv.Itoa(round))
				wg.Go(func() {
					for range rand.IntN(30_000) {
						_ = unix.Access(name, 0) // time passes
					}
					written.Store(os.WriteFile(name, []byte("theirs"), 0o644) == nil)
				})
				o := s.end()
				wg.Wait()
				switch o.code {
				case 0:
					commits++
				case 125:
					if r.read("dd/sub0/f") != "old" {
						t.Fatalf("refused, and yet gone: %s", o.stderr)
					}
					for name := range r.branches() {
						r.try("abort", name).want(0)
					}
				default:
					o.want(0)
				}
				if _, err := os.Stat(name); written.Load() && err != nil {
					t.Fatalf("round %d, status %d: what the neighbour wrote is gone: %v\n%s", round, o.code, err, o.stderr)
				}
			}
			t.Logf("%d of 25 commits went through", commits)
			r.clean()
		})
	}
}

// TestDaemonDuringCheck: what was checked is what is committed, whatever a
// process that ignores TERM would like to write (H11).
func TestDaemonDuringCheck(t *testing.T) {
	r := newRig(t)
	daemon := `setsid sh -c 'trap "" TERM HUP; while :; do echo x >> f; done' > /dev/null 2>&1 &
		until test -s f; do :; done`
	o := r.sh("-y", "--json", "--grace", "50ms",
		"--check", daemon+"; cksum f > sum1", "--check", "cksum f > sum2; cksum f > sum3", daemon).want(0)
	if n := len(o.document().Killed); n == 0 {
		t.Errorf("no process is said to have been killed: %s", o.stdout)
	}
	if r.read("sum2") != r.read("sum3") {
		t.Errorf("f changed during a check: %s, %s", r.read("sum2"), r.read("sum3"))
	}
	r.outside("cksum f | cmp - sum2")
}

// TestDescriptorOutside: a file of the layer that somebody outside can write
// to is not committed (H11b). Behind the fuse engine nobody can: its server is
// gone by then.
func TestDescriptorOutside(t *testing.T) {
	r := newRig(t)
	r.write("old", "old")
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	r.must(err)
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	cmd := r.shell("-y", "--json", "-b", "mine", "echo mine > new; echo more >> old; "+helperVariable+"=send '"+itself+"' new old")
	cmd.ExtraFiles = []*os.File{theirs}
	p := r.begin(cmd)
	r.must(theirs.Close())
	files := receive(t, ours, 2)
	if onFuse() && os.Getuid() != 0 { // root's writes pass through to the layer
		p.wait().want(0)
		for _, f := range files {
			if _, err := f.WriteString("outside"); !errors.Is(err, unix.ENOTCONN) {
				t.Errorf("write from outside: %v, want ENOTCONN", err)
			}
			f.Close()
		}
		r.wantFile("new", "mine\n")
		r.clean()
		return
	}
	before := r.project()
	doc := p.wait().want(125).document()
	r.same(before)
	for _, name := range []string{"new", "old"} {
		if !doc.conflicts()[r.at(name)] {
			t.Errorf("%s is no conflict: %+v", name, doc.Conflicts)
		}
	}
	r.try("commit", "mine").want(125).says("open for writing")
	// Written, and then closed: what is there now is shown, and committed.
	for _, f := range files {
		_, err := f.WriteString("outside")
		r.must(errors.Join(err, f.Close()))
	}
	r.same(before)
	r.try("commit", "mine").want(0)
	r.wantFile("new", "outside")
	r.clean()
}

// receive takes descriptors that helper "send" sends.
func receive(t *testing.T, from *os.File, n int) []*os.File {
	t.Helper()
	c, err := net.FileConn(from)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var files []*os.File
	for range n {
		oob := make([]byte, unix.CmsgSpace(4))
		_, k, _, _, err := c.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), oob)
		if err != nil {
			t.Fatal(err)
		}
		msgs, err := unix.ParseSocketControlMessage(oob[:k])
		if err != nil || len(msgs) != 1 {
			t.Fatalf("%d messages: %v", len(msgs), err)
		}
		fds, err := unix.ParseUnixRights(&msgs[0])
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, os.NewFile(uintptr(fds[0]), "received"))
	}
	return files
}

// send opens files for writing and sends them through descriptor 3.
func send(names []string) error {
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(f.Fd())), nil, 0); err != nil {
			return err
		}
	}
	return nil
}

// TestKeptDrift: from the end of the session on any difference counts, times
// that were set back included.
func TestKeptDrift(t *testing.T) {
	for _, c := range []struct {
		name, meanwhile string
		code            int
	}{
		{"nothing", ":", 0},
		{"a neighbour", "echo theirs > d/neighbour; echo theirs > other", 0},
		{"same size, same mtime", "touch -r f ref; echo OLD > f; touch -r ref f; rm ref", 125},
		{"older mtime", "echo theirs > f; touch -d 2001-01-01 f", 125},
		{"replaced by an older one", "mv older f", 125},
		{"gone", "rm f", 125},
		{"made there", "echo theirs > new", 125},
		{"made there, an older one", "mv older new", 125},
		{"mode", "chmod 600 f", 125},
		{"a link more", "ln f g", 125},
		{"changed in a deleted directory", "echo theirs > gone/x", 125},
		{"added to a deleted directory", "mv older gone/older", 125},
		{"deleted directory gone too", "rm -r gone", 0},
		{"directory made there too", "mkdir nd; echo theirs > nd/theirs", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.outside("mkdir d gone; echo old | tee f d/f gone/x > older; touch -d 2000-01-01 older")
			r.sh("--keep", "-b", "mine", "echo new > f; echo new > d/f; echo new > new; rm -r gone; mkdir nd; echo mine > nd/mine").want(0)
			r.outside(c.meanwhile)
			before := r.project()
			o := r.try("commit", "mine").want(c.code)
			if c.code != 0 {
				r.same(before)
				o.says("mine")
				return
			}
			r.wantFile("f", "new\n")
			r.clean()
		})
	}
}
