package sys

import (
	"bytes"
	"os"
	"sync"
)

// Root says whether the process is root where more than one user exists: it
// may give files away. Uid 0 of a user namespace with one mapped id (a rootless
// container, unshare -r) may not, and is an ordinary user by another name
// (user_namespaces(7)).
var Root = sync.OnceValue(func() bool {
	if os.Geteuid() != 0 {
		return false
	}
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return true // no /proc, or no user namespaces: the only root there is
	}
	extents := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	fields := bytes.Fields(extents[0])
	return len(extents) > 1 || len(fields) != 3 || string(fields[2]) != "1"
})
