package branch

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
)

// maxLinks is how many symbolic links a store's path may go through, as
// path_resolution(7) has it.
const maxLinks = 40

// trustedDir opens the directory at path for a store: every directory from
// the root down to it, looked at through the descriptor that is then used to
// go on, belongs to root or to the user and can be written by nobody else,
// unless it is sticky (H35). Symbolic links are followed by hand, and must
// belong to root or the user as well. With create, what is missing is made
// with mode 0700. The result's Name is the path without links.
func trustedDir(path string, create bool) (*sys.Dir, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, &Untrusted{Path: path, Why: "its path is not absolute"}
	}
	uid := uint32(os.Geteuid())
	todo := split(path)
	done := ""
	links := 0
	dir, err := sys.OpenDir("/")
	if err != nil {
		return nil, err
	}
	defer func() { dir.Close() }()
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if name == ".." {
			done = done[:max(0, strings.LastIndexByte(done, '/'))]
			up, err := reopen(done)
			if err != nil {
				return nil, err
			}
			dir.Close()
			dir = up
			continue
		}
		here := done + "/" + name
		st, err := dir.Stat(name)
		if create && errors.Is(err, unix.ENOENT) {
			if err := dir.Mkdir(name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
				return nil, err
			}
			st, err = dir.Stat(name)
		}
		if err != nil {
			return nil, err
		}
		if st.Type() == unix.S_IFLNK {
			if !isTrusted(st.UID, uid) {
				return nil, &Untrusted{Path: here, Why: "the symbolic link belongs to another user"}
			}
			if links++; links > maxLinks {
				return nil, &os.PathError{Op: "open", Path: path, Err: unix.ELOOP}
			}
			target, err := dir.Readlink(name)
			if err != nil {
				return nil, err
			}
			todo = append(split(target), todo...)
			if strings.HasPrefix(target, "/") {
				top, err := sys.OpenDir("/")
				if err != nil {
					return nil, err
				}
				dir.Close()
				dir, done = top, ""
			}
			continue
		}
		next, err := stepInto(dir, name, here)
		if err != nil {
			return nil, err
		}
		dir.Close()
		dir, done = next, here
		if err := checkAncestor(dir, here, uid); err != nil {
			return nil, err
		}
	}
	if done == "" {
		return nil, &Untrusted{Path: "/", Why: "the root directory cannot be a store"}
	}
	return dir.Sub("")
}

// stepInto opens name in dir. sys crosses no mount below a directory, so a
// mount point is opened by its path: only root can have put it there.
func stepInto(dir *sys.Dir, name, path string) (*sys.Dir, error) {
	next, err := dir.Sub(name)
	if errors.Is(err, unix.EXDEV) {
		return reopen(path)
	}
	return next, err
}

// reopen opens a path whose parts have been looked at: none is a symbolic
// link, or the user or root has put it there since.
func reopen(path string) (*sys.Dir, error) {
	if path == "" {
		path = "/"
	}
	return sys.OpenDir(path)
}

func split(path string) []string {
	var parts []string
	for p := range strings.SplitSeq(path, "/") {
		if p != "" && p != "." {
			parts = append(parts, p)
		}
	}
	return parts
}

// checkAncestor says why a directory on the way to a store cannot be trusted.
func checkAncestor(d *sys.Dir, path string, uid uint32) error {
	st, err := d.Stat("")
	if err != nil {
		return err
	}
	if !isTrusted(st.UID, uid) {
		return &Untrusted{
			Path: path, Why: fmt.Sprintf("the directory belongs to user %d, who could replace the store", st.UID),
			Help: "set TRY_STORE to a directory that nobody else can reach",
		}
	}
	if st.Mode&unix.S_ISVTX != 0 || st.Mode&0o022 == 0 {
		return nil
	}
	if st.Mode&0o002 == 0 && isPrivateGroup(st) {
		// With umask 002 a user's directories are writable by the group that is
		// the user's alone; but an ACL shows its mask in the same bits.
		if _, err := d.Xattr("", sys.AccessACL); errors.Is(err, unix.ENODATA) {
			return nil
		}
	}
	return &Untrusted{
		Path: path, Why: "others can write to the directory, and so could replace the store",
		Help: "chmod go-w " + path + ", or set TRY_STORE",
	}
}

// isTrusted says whether the owner of a directory is the user or root.
func isTrusted(owner, uid uint32) bool {
	return owner == 0 || owner == uid || owner == overflowID && isUnmapped("/proc/self/uid_map", overflowID)
}

// overflowID is what an id looks like that has none in our user namespace
// (user_namespaces(7)). In a sandbox such as bubblewrap's that is root's, and
// nothing tells it from other users' outside.
const overflowID = 65534

// isUnmapped says whether the map of a user namespace leaves id out, so that
// nobody in it can have that id.
func isUnmapped(file string, id uint64) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			return false
		}
		inside, errInside := strconv.ParseUint(f[0], 10, 64)
		count, errCount := strconv.ParseUint(f[2], 10, 64)
		if errInside != nil || errCount != nil || id >= inside && id-inside < count {
			return false
		}
	}
	return true
}

// isPrivateGroup says whether the group of a directory has no member but its
// owner by the usual conventions: root's own group, or the group with the
// user's own number.
func isPrivateGroup(st sys.Stat) bool {
	return st.GID == 0 && st.UID == 0 || st.GID == st.UID
}

// checkOwn says why d, which trustedDir has opened, is no store of ours: it
// must belong to the user and be closed to everybody else.
func checkOwn(d *sys.Dir) (sys.Stat, error) {
	st, err := d.Stat("")
	if err != nil {
		return st, err
	}
	switch uid := uint32(os.Geteuid()); {
	case st.UID != uid:
		return st, &Untrusted{Path: d.Name(), Why: fmt.Sprintf("belongs to user %d", st.UID), Help: "set TRY_STORE to a directory of your own"}
	case st.Mode&0o077 != 0:
		return st, &Untrusted{Path: d.Name(), Why: fmt.Sprintf("its mode is %04o, not 0700", st.Perm()), Help: "chmod 700 " + d.Name() + " if nobody else has written to it"}
	}
	return st, nil
}

// givesMore says whether what is made in the store d gets more than the user's
// id, which he would find on his own files in the end: the directory in which d
// was made had a default ACL or set-group-id, and so has d.
func givesMore(d *sys.Dir, st sys.Stat) (bool, error) {
	if st.Mode&unix.S_ISGID != 0 {
		return true, nil
	}
	_, err := d.Xattr("", sys.DefaultACL)
	if errors.Is(err, unix.ENODATA) {
		return false, nil
	}
	return err == nil, err
}

// bare takes that from a directory.
func bare(d *sys.Dir) error {
	return errors.Join(layer.DropACLs(d, nil), d.Chown("", -1, os.Getegid()), d.Chmod("", 0o700))
}
