package supervisor_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// foreign finds in an ACL an entry for an id that an ordinary user's session
// does not have: it is kept, but not set anew, there setxattr(2) says EINVAL.
const foreign = "grep -qE 'user:(3|65534|4294967295):'"

// script writes n random operations on a small set of names, as a shell script
// that never fails. Each sets the times of what it touched from a counter, so
// that two runs of it do the same.
func script(rng *rand.Rand, n int, root bool, acl int) string {
	var b strings.Builder
	b.WriteString("set +e; umask 022; exec 2>/dev/null\n")
	at := func() string {
		parts := make([]string, 1+rng.IntN(3))
		for i := range parts {
			parts[i] = string(rune('a' + rng.IntN(4)))
		}
		return strings.Join(parts, "/")
	}
	stamp := 0
	for range n {
		p, q := at(), at()
		stamp++
		switch op := rng.IntN(26); op {
		case 0, 1, 2, 3:
			fmt.Fprintf(&b, "mkdir -p %s", p)
		case 4, 5, 6, 7:
			fmt.Fprintf(&b, "test -p %s || printf %%%ds %d > %s", p, 1+rng.IntN(9000), stamp, p)
		case 8:
			fmt.Fprintf(&b, "test -p %s || printf %d >> %s", p, stamp, p)
		case 9, 10:
			fmt.Fprintf(&b, "rm -rf %s", p)
		case 11:
			fmt.Fprintf(&b, "rm -rf %s; mkdir %s; printf %d > %s/a", p, p, stamp, p)
		case 12, 13:
			fmt.Fprintf(&b, "mv -T %s %s", p, q)
		case 14:
			if strings.HasPrefix(q+"/", p+"/") {
				continue // what cp makes of that depends on the order of a directory
			}
			fmt.Fprintf(&b, "getfacl -Rcn %s | %s || { rm -rf %s; cp -a %s %s; }", p, foreign, q, p, q)
		case 15:
			fmt.Fprintf(&b, "rm -rf %s; ln -s %s %s", p, q, p)
		case 16:
			fmt.Fprintf(&b, "rm -rf %s; mkfifo %s", p, p)
		case 17:
			fmt.Fprintf(&b, "chmod %s %s", []string{"700", "755", "1777", "u+x"}[rng.IntN(4)], p)
		case 18: // a base directory that its owner cannot search is refused
			fmt.Fprintf(&b, "test -d %s || chmod %s %s", p, []string{"400", "640", "000", "444"}[rng.IntN(4)], p)
		case 19:
			fmt.Fprintf(&b, "setfattr -n user.k%d -v v%d %s", rng.IntN(3), stamp, p)
		case 20:
			fmt.Fprintf(&b, "setfattr -x user.k%d %s", rng.IntN(3), p)
		case 21:
			fmt.Fprintf(&b, "getfacl -cn %s | %s || setfacl -m u:%d:r %s", p, foreign, acl, p)
		case 22:
			if root {
				fmt.Fprintf(&b, "chown -h %d:%d %s", rng.IntN(3)*1000, rng.IntN(3)*1000, p)
			} else {
				fmt.Fprintf(&b, "truncate -s %d %s", rng.IntN(100_000), p)
			}
		case 23:
			fmt.Fprintf(&b, "touch -h %s", p)
		case 24:
			switch {
			case root:
				fmt.Fprintf(&b, "setcap cap_net_raw+ep %s", p)
			case onFuse(): // it stays empty, or rm -r would do a half
				fmt.Fprintf(&b, "rm -rf %s; mkdir -m 555 %s", p, p)
			default: // nor one that mv(1) would have to copy
				fmt.Fprintf(&b, "test -d %s || chmod u-w %s", p, p)
			}
		case 25: // a hole
			fmt.Fprintf(&b, "test -p %s || printf %d | dd of=%s bs=1 conv=notrunc status=none seek=%d", p, stamp, p, rng.IntN(300_000))
		}
		b.WriteString(" </dev/null\n")
	}
	b.WriteString(":\n")
	return b.String()
}

// TestSameAsNative: random operations in a branch that is committed make the
// tree that they make natively: content, modes, owners, times, attributes,
// links.
func TestSameAsNative(t *testing.T) {
	rounds := 6
	if n, err := strconv.Atoi(os.Getenv("TRY_CRASHES")); err == nil {
		rounds = n
	}
	seed := uint64(time.Now().UnixNano())
	asEach(t, func(t *testing.T, r *rig) {
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		n := makeRig(t)
		if r.uid != os.Getuid() {
			n.become(r.uid)
		}
		others := 3 // which an ordinary user's session does not have
		if r.uid != 0 && onFuse() {
			others = r.uid // it would not show, and commands that look for it would do other things than natively
		}
		script0 := script(rng, 80, r.uid == 0, others) + fixed
		r.outside(script0)
		n.outside(script0)
		for round := range rounds {
			s := script(rng, 40, r.uid == 0, r.uid)
			if round%2 == 0 {
				s += fixed
			}
			n.outside(s)
			// Kept first every now and then.
			if round%3 == 2 {
				r.sh("--keep", "-q", "-b", "mine", s).want(0)
				if r.branches()["mine"] != "" {
					r.try("commit", "-q", "mine").want(0)
				}
			} else {
				r.sh("-y", "-q", s).want(0)
			}
			want, got := n.project(), r.project()
			if round%2 != 0 { // the time of day: only that something has a new one can be compared
				want.timeless()
				got.timeless()
			}
			if diff := want.differs(got); diff != "" {
				t.Fatalf("round %d (native, then branch):%s\nscript:\n%s", round, diff, s)
			}
			r.clean()
		}
	})
}

// timeless leaves out times.
func (s snapshot) timeless() {
	for path, line := range s {
		fields := strings.SplitN(line, " ", 4)
		s[path] = strings.Join(append(fields[:2:2], fields[3:]...), " ")
	}
}
