package fusefs

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// cases run on a mount, in the process that has mounted it.
var cases = map[string]func(t *testing.T, mnt string){}

// TestInside is run by the process that has the mount, one case at a time.
func TestInside(t *testing.T) {
	if os.Getenv(insideEnv) == "" {
		t.Skip("only on a mount, run by the other tests")
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(t, mountPoint()) })
	}
	for name, run := range posixtest.All {
		t.Run("posix"+name, func(t *testing.T) { run(t, mountPoint()) })
	}
}

// posixSkips are the parts of go-fuse's suite that do not hold here, and why.
var posixSkips = map[string]string{
	"FcntlFlockLocksFile": "wants one process to conflict with its own POSIX lock, which no local file system does (fcntl(2))",
}

// TestPosix is go-fuse's own suite.
func TestPosix(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(posixtest.All)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if why := posixSkips[name]; why != "" {
				t.Skip(why)
			}
			newLab(t).inside(t, "posix"+name)
		})
	}
}
