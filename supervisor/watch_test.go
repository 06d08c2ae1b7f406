package supervisor_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestStarved: a command that would fill a disk, or goes beyond max_bytes, is
// ended before it does; its branch is kept and the base as it was (H29).
func TestStarved(t *testing.T) {
	for _, c := range []struct{ name, size, policy, script, says string }{
		{"bytes", "size=64m", "", "dd if=/dev/zero of=f bs=1M count=63 2>/dev/null", "bytes on the file system of"},
		{"inodes", "size=64m,nr_inodes=1000", "", "i=0; while printf x > $i; do i=$((i+1)); done 2>/dev/null", "inodes on the file system of"},
		{"closed to us", "size=64m", "", "mkdir d; dd if=/dev/zero of=d/f bs=1M count=63 2>/dev/null; chmod 0 d", "bytes on the file system of"},
		{"max_bytes", "size=64m", "[limits]\nmax_bytes = '10MB'\n", "dd if=/dev/zero of=f bs=1M count=20 2>/dev/null", "max_bytes is 10000000 (" /*.try.toml:2*/},
	} {
		t.Run(c.name, func(t *testing.T) {
			asEach(t, func(t *testing.T, r *rig) {
				small := r.at("small")
				policy := "true"
				if c.policy != "" {
					policy = fmt.Sprintf("printf '%s' > .try.toml; \"$TRY\" policy allow", strings.ReplaceAll(strings.ReplaceAll(c.policy, "\n", "\\n"), "'", `"`))
				}
				r.outside("mkdir small")
				o := r.inPrivate(small+" mode=1777,"+c.size, `cd small; echo old > old; `+policy+`
					if "$TRY" -y -b mine -- sh -c 'echo new > old; `+c.script+`; exec sleep 1000'; then exit 3; else test $? = 125; fi
					test "$(cat old)" = old; test ! -e f; test ! -e d
					"$TRY" branches
					"$TRY" abort mine
					test "$("$TRY" branches --json)" = "[]"`).want(0)
				o.says("the command was ended: ", c.says)
				if !strings.Contains(o.stdout, "mine") || !strings.Contains(o.stdout, "kept") {
					t.Errorf("the branches are %s", o.stdout)
				}
			})
		})
	}
}

// TestNoInodeLeft: a commit for which there is no room at all is refused, and
// the branch kept. Behind fuse there is room for one of renames: at the end of a
// session its workshop gives back what it took.
func TestNoInodeLeft(t *testing.T) {
	asEach(t, func(t *testing.T, r *rig) {
		r.outside("mkdir small")
		o := r.inPrivate(r.at("small")+" mode=1777,size=64m,nr_inodes=1000", `cd small; echo old > old
			if "$TRY" -y -q -b mine -- sh -c 'echo new > old; i=0; while printf x > $i; do i=$((i+1)); done 2>/dev/null; :'; then
				test "$(cat old 1)" = "new
x"
				echo all
			else
				test $? = 125
				test "$(cat old)" = old
				"$TRY" branches
				"$TRY" abort mine
			fi`).want(0)
		if onFuse() && o.stdout == "all\n" {
			return
		}
		o.says("no space left")
		if !strings.Contains(o.stdout, "kept") {
			t.Errorf("the branches are %s", o.stdout)
		}
	})
}

// TestDiskFull: a full disk is a plain ENOSPC inside, and no change outside.
func TestDiskFull(t *testing.T) {
	asEach(t, func(t *testing.T, r *rig) {
		r.outside("mkdir small")
		o := r.inPrivate(r.at("small")+" mode=1777,size=16m", `cd small; echo old > old
			"$TRY" -y -- sh -c 'if dd if=/dev/zero of=f bs=1M; then exit 3; fi; test "$(cat old)" = old && rm f && echo new > new'
			cat old new`).want(0)
		o.says("No space left on device")
		if o.stdout != "old\nnew\n" {
			t.Errorf("the directory holds %q", o.stdout)
		}
	})
}

// TestStarvedByOthers: who fills the disk is not ended through us; it is said.
func TestStarvedByOthers(t *testing.T) {
	asEach(t, func(t *testing.T, r *rig) {
		r.outside("mkdir small; mkfifo in out err")
		r.inPrivate(r.at("small")+" mode=1777,size=64m", `cd small
			"$TRY" -y -- sh -c 'echo x > f; echo ready; exec cat' < ../in > ../out 2> ../err &
			exec 5> ../in 6< ../out 7< ../err
			read x <&6
			dd if=/dev/zero of=hog bs=1M count=63 2>/dev/null
			grep -m1 'not because of this command' <&7
			exec 5>&-
			wait $!
			test "$(cat f)" = x`).want(0)
	})
}
