package supervisor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The commit as what is attacked (DESIGN §6, last paragraph). Deep and huge
// trees are in deep_test.go, names in kept_test.go and kinds_test.go, stores in
// escape_store_test.go, descriptors passed out in drift_test.go, what was written
// while a check ran there as well; links that race with a step in fs/commit.

// TestAttacksOnTheCommit: whatever CMD leaves, nothing outside the branch's
// roots changes, and what the commit makes of it is what a run without a branch
// would.
func TestAttacksOnTheCommit(t *testing.T) {
	for _, c := range []struct{ name, script, after string }{
		{"a directory becomes a link that leads out",
			`rm -r d; ln -s "$OUT" d; echo evil > d/f || :; echo evil > d/new || :; rm -f d/keep || :; chmod 777 d/. || :; touch d/ || :`,
			`test "$(readlink d)" = "$OUT"`},
		{"links that lead out by more than one step",
			`ln -s .. up; ln -s up/../../out far; echo evil > far/new || :; mv d/f far/f || :; ln -s /proc/self/root/$OUT magic; echo evil > magic/f || :; rm -r d; ln -s far d`,
			`test "$(readlink d)" = far; test "$(readlink magic)" = "/proc/self/root/$OUT"`},
		{"a tree that is swapped until CMD is killed",
			`mkdir sw; echo in > sw/f; (while :; do mv -T sw real; ln -s "$OUT" sw; mv -T sw link; mv -T real sw; rm -f link; done) & (while :; do echo evil > sw/new; rm -f sw/new; done) & i=0; while test $i -lt 300; do i=$((i+1)); echo $i > n; done`,
			`:`},
		{"names of files outside", `ln "$OUT/f" mine && chmod 777 mine || :; ln "$OUT/f" d/mine || :; ln -P /etc/passwd p || :; test ! -e mine || echo evil >> mine`,
			`test ! -e mine || test "$(cat mine)" = "out"`},
		{"marks made by hand",
			`for a in opaque whiteout metacopy redirect origin impure nlink upper uuid protattr; do setfattr -n user.overlay.$a -v y d || :; setfattr -n user.overlay.$a -v y d/f || :; setfattr -n user.overlay.overlay.$a -v y d/f || :; done
			setfattr -n user.overlay.redirect -v "$OUT" d/sub || :; : > empty; setfattr -n user.overlay.whiteout -v y empty || :; mknod wh c 0 0 || :; mknod d/keep2 c 0 0 || :; echo new >> d/f`,
			`test "$(cat d/f)" = "in
new"; test -e d/keep; test -e d/sub/deep; test -e empty; test ! -e wh; ! getfattr -d -m overlay -R . 2>/dev/null | grep -E 'overlay\.(opaque|whiteout|metacopy|redirect|origin|impure|nlink|upper|uuid|protattr)'`},
		{"files that killed processes hold",
			`cat > hold.py <<'P'
import mmap, os, sys
f = open("held", "r+b"); f.truncate(8192); m = mmap.mmap(f.fileno(), 8192); d = os.open("d/f", os.O_RDWR)
pid = os.fork()
if pid: os.waitpid(-1, os.WNOHANG); sys.exit(0)
os.setsid(); n = 0
while True: m[0:8] = b"%08d" % (n % 10**8); os.pwrite(d, b"%08d" % (n % 10**8), 0); n += 1
P
			: > held; python3 hold.py`,
			`cp held was; cp d/f was2; cmp held was; cmp d/f was2; test $(stat -c %s held) = 8192; a=$(stat -c %y held d/f); cat held d/f > was3; test "$(stat -c %y held d/f)" = "$a"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			asEach(t, func(t *testing.T, r *rig) {
				out := filepath.Join(r.dir, "out")
				r.outside(`mkdir ../out d d/sub; echo out | tee ../out/f > ../out/keep; chmod 640 ../out/f; echo in | tee d/f d/keep > d/sub/deep`)
				before := r.look(out)
				o := r.sh("-y", "--grace", "0s", "OUT="+out+"; set +e\n"+c.script+"\n:")
				if o.code != 0 && o.code != 125 {
					t.Fatalf("ended with %d: %s", o.code, o.stderr)
				}
				if diff := before.differs(r.look(out)); diff != "" {
					t.Errorf("outside of the roots (before, after):%s", diff)
				}
				if o.code == 0 {
					r.outside("OUT=" + out + "\n" + c.after)
				} else if !strings.Contains(c.name, "swapped") {
					t.Errorf("refused: %s", o.stderr)
				}
				if _, err := os.Stat(r.at("d")); err != nil && o.code != 0 {
					t.Error(err)
				}
			})
		})
	}
}
