package supervisor_test

import (
	"archive/zip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// asEach runs a test as each user, in a rig of its own.
func asEach(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	for _, uid := range users() {
		t.Run(fmt.Sprint(uid), func(t *testing.T) {
			r := newRig(t)
			if uid != os.Getuid() {
				r.become(uid)
			}
			f(t, r)
		})
	}
}

// native runs scripts in a rig of its own, without a branch: what the project
// looks like then is what a commit must make of it.
func (r *rig) native(scripts ...string) snapshot {
	r.t.Helper()
	n := makeRig(r.t)
	if r.uid != os.Getuid() {
		n.become(r.uid)
	}
	for _, s := range scripts {
		n.outside(s)
	}
	return n.project()
}

// fixed gives everything in the project one time, so that a native run and one
// in a branch can be compared. Directories that are closed stay so.
const fixed = `
	closed() { find . -type d ! -perm -u+rwx -printf '%m %p\n' 2>/dev/null || :; }
	all= list=$(closed)
	while test -n "$list"; do
		all="$all
$list"; echo "$list" | while read m p; do chmod u+rwx "$p"; done
		list=$(closed)
	done
	find . -depth -exec touch -h -d '2020-02-02 02:02:02.123456789' {} +
	echo "$all" | sort -rk2 | while read m p; do test -z "$m" || chmod $m "$p"; done`

// TestClosed: what its owner may not write, read or enter is committed like
// anything else, at every depth, and so is the change of a mode itself (H7,
// B7, B8).
func TestClosed(t *testing.T) {
	base := `mkdir -p a/b/c old/sub/deep
		echo old | tee a/f a/b/f a/b/c/f old/f old/sub/f > old/sub/deep/f
		chmod 0444 a/f; chmod 0000 a/b/f; chmod 0400 a/b/c/f
		chmod 0555 a/b/c a/b a; chmod 0 old/f; chmod 0555 old/sub/deep old/sub old`
	for _, c := range []struct{ name, script string }{
		{"add below 0555", "chmod u+w a/b/c; echo new > a/b/c/new; chmod u-w a/b/c"},
		{"modify 0444", "chmod u+w a/f; echo new > a/f; chmod 0444 a/f"},
		{"modify 0000", "chmod u+rw a/b/f; echo new > a/b/f; chmod 0 a/b/f"},
		{"new 0000 file, 0555 directory", "mkdir n; echo x > n/f; mkdir n/m; echo y > n/m/g; chmod 0 n/f n/m/g; chmod 0555 n/m n"},
		{"new 0000 directory, not empty", "mkdir -p n/m/o; echo x > n/m/o/f; chmod 0 n/m/o n/m n"},
		{"new 0300 and 0100", "mkdir -p n/m; echo x > n/m/f; chmod 0300 n/m; chmod 0100 n"},
		{"delete 0555", "chmod -R u+w old; rm -r old"},
		{"replace 0555 by 0555", "chmod -R u+w old; rm -r old; mkdir -p old/sub; echo x > old/sub/x; chmod 0555 old/sub old"},
		{"0555 by a file", "chmod -R u+w old; rm -r old; echo x > old; chmod 0 old"},
		{"a file by 0555", "chmod u+w a/b a/b/c a; rm -f a/b/f; mkdir a/b/f; echo x > a/b/f/x; chmod 0555 a/b/f a/b/c a/b a"},
		{"modes only", "chmod 0 a/b/c; chmod 0111 a/b; chmod 0700 old; chmod 4755 a/f"},
		{"closed at last", "echo y > y; mkdir z; echo z > z/z; chmod 0 z; chmod 0500 ."},
		{"moved", "mkdir n; chmod -R u+rw old; cp -a old n/old; rm -r old; chmod -R a-w n"},
		{"linked", "mkdir n; echo x > n/x; ln n/x n/y; chmod 0 n/x; chmod 0555 n"},
		{"0555 moved to where one was", "chmod -R u+w old; rm -r old; mkdir n; echo x > n/x; chmod 0555 n; mv -T n old"},
		{"0555 made where one was", "chmod -R u+w old; rm -r old; mkdir -m 0555 old"},
		{"0 made where one was", "chmod -R u+w old; rm -r old; mkdir -m 0 old"},
		{"closed, then removed", "mkdir n; chmod 0 n; rmdir n; chmod -R u+rw old; rm -r old/*; chmod 0 old; rmdir old; echo x > old"},
		{"moved over 0555", "mkdir -p n/m; echo x > n/m/x; mkdir o; chmod 0555 o; mv -T n/m o"},
		{"closed, then moved", "mkdir n; echo x > n/f; chmod 0333 n; mv n m; chmod 0700 m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			asEach(t, func(t *testing.T, r *rig) {
				want := r.native(base, c.script, fixed)
				r.outside(base)
				before := r.project()
				r.sh("--abort", c.script).want(0)
				r.same(before)
				r.sh("-q", "--keep", "-b", "mine", c.script+fixed).want(0)
				if os.Getuid() == 0 { // anybody else must open, and so alter, what is closed
					r.same(before)
				}
				first := r.try("changes", "--json", "mine").want(0).stdout
				if again := r.try("changes", "--json", "mine").want(0).stdout; again != first {
					t.Errorf("a look altered the branch:\n%s\n%s", first, again)
				}
				r.try("commit", "mine").want(0)
				got := r.project()
				delete(got, ".") // its time is of outside: the base was made before the fork
				delete(want, ".")
				if diff := want.differs(got); diff != "" {
					t.Errorf("want, then have:%s", diff)
				}
				r.clean()
			})
		})
	}
}

// TestStoreGivesNothing: what a store has got from the directory in which it
// was made, a default ACL and a group, does not end on the user's files; nor if
// it was put on the whole store later.
func TestStoreGivesNothing(t *testing.T) {
	const base = "mkdir d; echo b | tee b c d/f >/dev/null"
	const script = "touch new; mkdir nd; touch nd/n d/new; echo x >> b; rm c; echo c > c; rm d/f; mkdir d/f; touch d/f/x; chmod 755 d;" + fixed
	asEach(t, func(t *testing.T, r *rig) {
		want := r.native(base, script)
		delete(want, ".")
		give := func(dir string) {
			r.must(unix.Setxattr(dir, "system.posix_acl_default", []byte(aclForNobody), 0))
			if r.uid == 0 {
				r.must(os.Chown(dir, 0, 7))
				r.must(os.Chmod(dir, 0o700|os.ModeSetgid))
			}
		}
		state := filepath.Dir(r.store())
		r.outside("mkdir -p " + state)
		give(state)
		for _, later := range []bool{false, true} {
			if later {
				r.must(filepath.WalkDir(r.store(), func(path string, d fs.DirEntry, err error) error {
					if err == nil && d.IsDir() {
						give(path)
					}
					return err
				}))
			}
			r.outside("rm -rf ./*; " + base)
			r.sh("-q", "--commit", script).want(0)
			got := r.project()
			delete(got, ".")
			if diff := want.differs(got); diff != "" {
				t.Errorf("later: %t; want, then have:%s", later, diff)
			}
		}
		r.clean()
	})
}

// aclForNobody lets user 65534 read and write: version 2; user, user 65534,
// group, mask, other.
const aclForNobody = "\x02\x00\x00\x00" +
	"\x01\x00\x07\x00\xff\xff\xff\xff" + "\x02\x00\x07\x00\xfe\xff\x00\x00" + "\x04\x00\x05\x00\xff\xff\xff\xff" +
	"\x10\x00\x07\x00\xff\xff\xff\xff" + "\x20\x00\x05\x00\xff\xff\xff\xff"

// TestGoModDownload: each directory of the module cache is 0555; go puts a
// further module beside those that are there.
func TestGoModDownload(t *testing.T) {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	asEach(t, func(t *testing.T, r *rig) {
		proxy := filepath.Join(r.dir, "proxy")
		for _, version := range []string{"v1.0.0", "v1.1.0", "v1.2.0"} {
			publish(t, proxy, "example.com/deep/module", version)
		}
		r.env = append(r.env, "GOPROXY=file://"+proxy, "GONOSUMDB=*", "GONOSUMCHECK=1", "GOSUMDB=off", "GOFLAGS=-mod=mod",
			"GOTOOLCHAIN=local", "GOMODCACHE="+r.at("cache"), "GOCACHE="+filepath.Join(r.dir, "gocache"), "GOPATH="+r.at("gopath"), "GOTELEMETRY=off")
		download := func(version string) string {
			return goCommand + " mod download example.com/deep/module@" + version
		}
		r.outside(download("v1.0.0"))
		for _, version := range []string{"v1.1.0", "v1.2.0"} {
			r.sh("-y", download(version)).want(0)
			dir := r.at("cache/example.com/deep/module@" + version)
			for _, d := range []string{dir, dir + "/a", dir + "/a/b"} {
				st, err := os.Stat(d)
				if err != nil || st.Mode().Perm() != 0o555 {
					t.Fatalf("%s: %v, %v", d, st, err)
				}
			}
			if got := r.read("cache/example.com/deep/module@" + version + "/a/b/b.go"); !strings.Contains(got, version) {
				t.Errorf("the module is %q", got)
			}
		}
		r.sh("-y", goCommand+" clean -modcache").want(0)
		if _, err := os.Lstat(r.at("cache")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the cache is there still: %v", err)
		}
		r.clean()
	})
}

// publish makes a module in a proxy's directory.
func publish(t *testing.T, proxy, module, version string) {
	t.Helper()
	dir := filepath.Join(proxy, module, "@v")
	err := os.MkdirAll(dir, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	mod := "module " + module + "\n\ngo 1.21\n"
	for ext, text := range map[string]string{".mod": mod, ".info": fmt.Sprintf(`{"Version":%q}`, version)} {
		if err := os.WriteFile(filepath.Join(dir, version+ext), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, version+".zip"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for name, text := range map[string]string{"go.mod": mod, "a/a.go": "package a\n", "a/b/b.go": "package b\n\nconst Version = \"" + version + "\"\n"} {
		w, err := z.Create(module + "@" + version + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestImmutable: what the file system will not let go of is refused before
// anything is done.
func TestImmutable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a file immutable")
	}
	asEach(t, func(t *testing.T, r *rig) {
		attribute := func(flags string, names ...string) {
			for _, name := range names {
				if out, err := exec.Command("chattr", flags, r.at(name)).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
		}
		r.outside("mkdir d e; echo old | tee a z d/f > e/f")
		s := r.open("-y", "-b", "mine", "echo new > a; echo new > d/new; rm -r e; chmod 600 z; touch b\nWAIT")
		attribute("+i", "d", "e/f", "z")
		defer attribute("-i", "d", "e/f", "z")
		before := r.project()
		s.end().want(125)
		r.same(before)
		o := r.try("commit", "--json", "mine").want(125)
		most := 3
		if onFuse() {
			most = 2 // that d is the same directory is known there without its times
		}
		if got := o.document().conflicts(); len(got) < most {
			t.Errorf("conflicts are %v", got)
		}
		r.same(before)
	})
}
