package branch

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// CopyNotes says which layers lie on another file system than their root, so
// that a commit copies, and how much room is there.
func (b *Branch) CopyNotes() ([]string, error) {
	var notes []string
	for i, r := range b.Roots {
		if !r.Copy {
			continue
		}
		path, err := b.holder(i)
		if err != nil {
			return notes, err
		}
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			return notes, &os.PathError{Op: "statfs", Path: path, Err: err}
		}
		free := int64(st.Bavail) * st.Bsize
		notes = append(notes, fmt.Sprintf("what changes below %s is kept in %s, with %d MiB free, and copied at a commit", r.Path, path, free>>20))
	}
	return notes, nil
}
