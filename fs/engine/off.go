package engine

import (
	"os"
	"strings"
)

// Off says whether a test has switched a feature off by TRY_TEST_NO, a list
// with commas: what an older kernel lacks (DESIGN §4) can so be tried on a
// newer one. Known here and in the packages above: overlay, fuse,
// passthrough, tmpfs-xattr, multigrain, userns.
func Off(feature string) bool {
	list, ok := os.LookupEnv("TRY_TEST_NO")
	if !ok {
		return false
	}
	for name := range strings.SplitSeq(list, ",") {
		if name == feature {
			return true
		}
	}
	return false
}
