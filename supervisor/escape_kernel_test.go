package supervisor_test

import (
	"os"
	"strings"
	"testing"
)

// TestKeyring: keys of the caller's user are neither read nor revoked inside,
// by way of any keyring (H28). Stopped by the keyring rules of refusals in
// ns/filter.go: a session keyring of our own alone (joinKeyring) does not help
// against the user's, which is known by its number.
func TestKeyring(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		if out := l.sh("attack keys add secret true"); strings.HasPrefix(out, "no keyrings") {
			t.Skipf("the kernel, or a filter around the tests, has %s", out)
		}
		l.want("attack keys add secret try --scope dir --abort -q attack keys steal", "no key\noutside: there\n")
		// Named, it stays, and is named.
		l.says("attack keys add secret try --scope dir --abort --socket keyring attack keys steal", "stolen: secret", "let through: the caller's keyring")
	})
}

// TestDevices: no device but those that every program may expect; none by a
// node that lies elsewhere (issue 2, point 4). Stopped by makeDev in ns/dev.go
// and MOUNT_ATTR_NODEV in makeReadOnly; in a root by the overlay, which belongs
// to a user namespace.
func TestDevices(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.want(`try --scope dir --abort -q sh -c 'find /dev/ -type b; find /dev -name "sd*" -o -name "vd*" -o -name "loop*" -o -name mem -o -name "tty[0-9]*" -o -name port -o -name kmsg; (mknod proj-dev c 1 5 || mknod $D/proj/x b 7 0) 2>/dev/null || echo refused'`, "refused\n")
		if os.Getuid() != 0 {
			return // only root can make the nodes
		}
		l.with = []string{"zero:" + l.path("out/zero"), "zero:" + l.path("proj/zero")}
		l.want(`head -c 2 $D/out/zero | wc -c; try --scope dir --abort -q sh -c 'for f in $D/out/zero zero; do (head -c 2 $f || :) 2>/dev/null | wc -c; done'; rm -f $D/out/zero zero`, "2\n0\n0\n")
	})
}

// TestNoNetwork: --net none leaves loopback only, sockets to the host of a
// virtual machine not even that. Stopped by CLONE_NEWNET in ns/start.go and by
// the rules for NetNone in ns/filter.go.
func TestNoNetwork(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.want(`try --scope dir --abort -q --net none sh -c 'sed 1,2d /proc/net/dev | cut -d: -f1 | tr -d " "; attack vsock'`, "lo\nsocket: address family not supported by protocol\nio_uring: function not implemented\n")
		l.says("try --scope dir --abort -q attack vsock", "socket: ")
	})
}
