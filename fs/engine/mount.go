package engine

import (
	"fmt"
	"strings"

	"try/fs/sys"
)

// MountOf finds the mount that the directory at path lies on. It asks the
// kernel for the mount's id: by path alone a mount that another one covers
// could not be told from one that is reached.
func MountOf(path string, mounts []sys.Mount) (sys.Mount, error) {
	dir, err := sys.OpenDir(path)
	if err != nil {
		return sys.Mount{}, err
	}
	defer dir.Close()
	st, err := dir.Stat("")
	if err != nil {
		return sys.Mount{}, err
	}
	for _, m := range mounts {
		if uint64(m.ID) == st.MntID {
			return m, nil
		}
	}
	return sys.Mount{}, fmt.Errorf("find the mount of %s: mount %d is not listed", path, st.MntID)
}

// Below finds the first mount below root: one that was made on the mount that
// root lies on, at a path below root. Mounts that another one covers are not
// in the way.
func Below(root string, on sys.Mount, mounts []sys.Mount) (sys.Mount, bool) {
	for _, m := range mounts {
		if m.Parent == on.ID && m.ID != on.ID && IsBelow(m.Target, root) {
			return m, true
		}
	}
	return sys.Mount{}, false
}

// unreal are the file systems whose files are not files.
var unreal = map[string]bool{
	"proc": true, "sysfs": true, "cgroup": true, "cgroup2": true, "devpts": true,
	"mqueue": true, "debugfs": true, "tracefs": true, "securityfs": true, "configfs": true,
	"efivarfs": true, "bpf": true, "pstore": true, "hugetlbfs": true, "binfmt_misc": true,
}

// Unreal says whether m is of a file system that shows the kernel's own state:
// no engine captures that.
func Unreal(m sys.Mount) bool { return unreal[m.FSType] }

// IsBelow says whether path lies strictly below dir; both are absolute and
// clean.
func IsBelow(path, dir string) bool {
	if dir == "/" {
		return path != "/"
	}
	return len(path) > len(dir) && path[len(dir)] == '/' && strings.HasPrefix(path, dir)
}
