package supervisor_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// stranger is an ordinary user for the tests that run as root. It need not
// exist.
const stranger = 54321

// users are those that the tests can be.
func users() []int {
	if os.Getuid() == 0 {
		return []int{0, stranger}
	}
	return []int{os.Getuid()}
}

// inPrivate runs a script in a mount namespace with its own /tmp, /var/tmp and
// /dev/shm, and further memory file systems by "DIR OPTIONS" lines, as the
// rig's user. Who made the namespace owns them: root, where the tests run as
// root.
func (r *rig) inPrivate(mounts, script string) *outcome {
	r.t.Helper()
	uid := r.uid
	r.uid = os.Getuid()
	cmd := r.helper("private", "/bin/sh", "-euc", script)
	r.uid = uid
	cmd.Env = append(cmd.Env, mountVariable+"="+mounts, "TRY="+binary)
	if uid != os.Getuid() {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", asVariable, uid))
	}
	return r.finish(cmd)
}

// TestCommitToTmp: files in /tmp and /var/tmp, which are root's, are committed
// like any others; the times of directories that are not the caller's are
// neither listed nor refused nor set.
func TestCommitToTmp(t *testing.T) {
	for _, uid := range users() {
		for _, c := range []struct{ name, before, script, after string }{
			{"added", ":", "echo x > /tmp/f; mkdir /var/tmp/d; echo y > /var/tmp/d/f",
				`test "$(cat /tmp/f /var/tmp/d/f)" = "x
y"`},
			{"modified", "echo old > /tmp/f", "echo x > /tmp/f", `test "$(cat /tmp/f)" = x`},
			{"deleted", "mkdir /tmp/d; echo old > /tmp/d/f", "rm -r /tmp/d", "test ! -e /tmp/d"},
			{"replaced", "echo old > /tmp/f; echo old > /tmp/g", "rm /tmp/f; mkdir /tmp/f; echo x > /tmp/f/x; chmod 600 /tmp/g",
				`test "$(cat /tmp/f/x)" = x; test "$(stat -c %a /tmp/g)" = 600`},
			{"below one's own", "mkdir /tmp/d; echo old > /tmp/d/f; touch -d 2001-01-01 /tmp/d", "echo x > /tmp/d/g; touch -d 2002-02-02 /tmp/d",
				`test "$(stat -c %y /tmp/d | cut -c1-10)" = 2002-02-02`},
			{"and the project", "echo old > f", "echo x > f; echo x > /tmp/f", `test "$(cat f /tmp/f)" = "x
x"`},
		} {
			t.Run(fmt.Sprintf("%d/%s", uid, c.name), func(t *testing.T) {
				r := newRig(t)
				if uid != os.Getuid() {
					r.become(uid)
				}
				r.inPrivate("", c.before+`
					"$TRY" -y --scope user -- sh -euc '`+c.script+`'
					`+c.after+`
					test "$("$TRY" branches --json)" = "[]"`).want(0)
				r.clean()
			})
		}
		t.Run(fmt.Sprintf("%d/nothing left", uid), func(t *testing.T) {
			r := newRig(t)
			if uid != os.Getuid() {
				r.become(uid)
			}
			o := r.inPrivate("", `"$TRY" -y --scope user --json -- sh -euc 'echo x > /tmp/f; rm /tmp/f; echo x > /var/tmp/f; rm /var/tmp/f'`).want(0)
			want := "unchanged"
			if uid == 0 || os.Getuid() != 0 { // /tmp is one's own: its time has changed
				want = "committed"
			}
			if d := o.document(); d.Settled != want {
				t.Errorf("settled is %q, want %q: %s", d.Settled, want, o.stdout)
			}
			r.clean()
		})
	}
}

// TestConflictInTmp: a refusal in the middle takes everything back, also where
// directories are not the caller's.
func TestConflictInTmp(t *testing.T) {
	for _, uid := range users() {
		t.Run(fmt.Sprint(uid), func(t *testing.T) {
			r := newRig(t)
			if uid != os.Getuid() {
				r.become(uid)
			}
			o := r.inPrivate("", `
				for i in 1 2 3 4 5; do echo old > /tmp/f$i; done
				"$TRY" --keep -b mine --scope user -- sh -euc 'for i in 1 2 3 4 5 6; do echo mine > /tmp/f$i; done; echo mine > g' || exit 1
				echo theirs > /tmp/f4
				if "$TRY" commit mine; then exit 2; fi
				cat /tmp/f?; test ! -e g
				"$TRY" abort mine`).want(0)
			if strings.Count(o.stdout, "old") != 4 || strings.Count(o.stdout, "theirs") != 1 || strings.Contains(o.stdout, "mine") {
				t.Errorf("/tmp holds %q", o.stdout)
			}
			o.says("/tmp/f4")
			r.clean()
		})
	}
}

// TestFullFileSystem: a layer on another file system than its root is committed
// by copy; where that does not fit nothing changes, and it says how much is
// missing.
func TestFullFileSystem(t *testing.T) {
	for _, uid := range users() {
		t.Run(fmt.Sprint(uid), func(t *testing.T) {
			r := newRig(t)
			if uid != os.Getuid() {
				r.become(uid)
			}
			small := r.at("small")
			r.must(os.Mkdir(small, 0o755))
			o := r.inPrivate(fmt.Sprintf("%s mode=1777,size=1m", small), `
				export TRY_TEST_NO=tmpfs-xattr,fuse # then a memory file system cannot hold a layer
				cd small; echo old > f; mkdir d; echo old > d/x
				"$TRY" -y -- sh -euc 'echo new > f; rm -r d; mkdir e; ln -s to e/link; mkfifo e/fifo; echo x > e/x; ln e/x e/y; chmod 4711 e/x; touch -d 2001-01-01 e'
				cat f e/y; stat -c '%n %a %h %F %y' e e/x
				test ! -e d
				dd if=/dev/zero of=hog bs=1k count=800 2>/dev/null
				if "$TRY" -y -b mine -- sh -euc 'echo newer > f; dd if=/dev/zero of=big bs=1k count=900 2>/dev/null'; then exit 3; else test $? = 125; fi
				cat f; ls
				rm hog
				"$TRY" commit mine
				cat f; stat -c %s big
				`).want(0)
			o.says("missing", "big")
			for _, want := range []string{"new\nx\ne 755 2 directory 2001-01-01", "e/x 4711 2 regular file", "new\ne\nf\nhog\n", "newer\n921600\n"} {
				if !strings.Contains(o.stdout, want) {
					t.Errorf("no %q in\n%s", want, o.stdout)
				}
			}
			r.clean()
		})
	}
}

// TestMemoryOutOfSight: a commit in a memory file system that recovery does not
// see, in another mount namespace, is not given up for lost (H18).
func TestMemoryOutOfSight(t *testing.T) {
	asEach(t, func(t *testing.T, r *rig) {
		r.inPrivate("", `
			echo old | tee /tmp/a /tmp/b > c
			"$TRY" --keep -q -b mine --scope user -- sh -euc 'echo new | tee /tmp/a /tmp/b > c'
			if TRY_TEST_CRASH=apply:2 "$TRY" commit mine; then exit 3; fi
			cp -a /tmp/a /tmp/b .
			if test "$(cat a b c | sort -u | wc -l)" != 2; then echo >&2 not in the middle; exit 4; fi
			unshare -Um --map-current-user --keep-caps sh -euc 'mount -t tmpfs none /tmp; "$TRY" recover > out 2>&1 || echo refused >> out'
			grep -q 'cannot be opened\|no longer the directory' out; grep -q refused out
			"$TRY" recover
			test "$(cat /tmp/a /tmp/b c)" = "new
new
new"
			test "$("$TRY" branches --json)" = "[]"`).want(0)
	})
}

// TestStoreFull: a home store without room refuses a commit, or a session, and
// loses nothing.
func TestStoreFull(t *testing.T) {
	asEach(t, func(t *testing.T, r *rig) {
		store := r.dir + "/store"
		r.must(os.Mkdir(store, 0o755))
		o := r.inPrivate(store+" mode=1777,size=768k", `
			export TRY_STORE=$PWD/../store/try
			mkdir d; for i in $(seq 300); do echo old > d/$i; done
			"$TRY" --keep -q -b mine -- sh -euc 'for i in $(seq 300); do echo new > d/$i; done; echo new > new'
			dd if=/dev/zero of=../store/hog bs=1k count=768 2>/dev/null || :
			if "$TRY" commit -q mine; then exit 3; else test $? = 125; fi
			test "$(cat d/*  | sort -u)" = old; test ! -e new
			if "$TRY" -y -q -- sh -c 'echo x > x'; then exit 4; else test $? = 125; fi
			test ! -e x
			rm ../store/hog
			"$TRY" branches
			"$TRY" commit -q mine
			test "$(cat d/* new | sort -u)" = new
			"$TRY" -y -q -- sh -c 'echo x > x'
			test "$("$TRY" branches --json)" = "[]"
			"$TRY" undo -q mine
			test "$(cat d/* | sort -u)" = old; test ! -e new
			mkdir -p ~/.config/try; printf '[undo]\nmax_count = 0\n' > ~/.config/try/policy.toml
			"$TRY" gc; "$TRY" undo --list # the store on the project's file system goes with the records`).want(0)
		o.says("no space left")
	})
}
