package branch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
	"try/fs/vfs"
)

// The directory was/ holds what the base held at the fork of some of the files
// that the branch changed: the common ancestors of a merge. A file's name there
// says its root and path.
const wasName = "was"

// MaxAncestor is the size of the largest file that an ancestor is kept of, and
// that is merged; maxAncestors is how much is kept in all, of what the store has
// free a quarter at most.
const (
	MaxAncestor  = 1 << 20
	maxAncestors = 64 << 20
)

func (b *Branch) wasOf(root int, rel string) string {
	sum := sha256.Sum256([]byte(b.Roots[root].Path + "\x00" + rel))
	return hex.EncodeToString(sum[:16])
}

// rewriteName is the file beside a layer that is about to replace one of it.
const rewriteName = "rewrite"

// ForgetAncestors removes what was kept before, and what a crash left of merges.
func (b *Branch) ForgetAncestors() error {
	errs := []error{ignoreAbsent(b.dir.Rename(wasName, b.store.trash, newID()))}
	for i := range b.Roots {
		holder, err := b.openHolder(i)
		if err != nil {
			continue // gone, with all that was in it
		}
		errs = append(errs, ignoreAbsent(holder.Unlink(rewriteName)), holder.Close())
	}
	return errors.Join(errs...)
}

func ignoreAbsent(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// MergeDir is a directory for the files of a merge. It goes with what is kept.
func (b *Branch) MergeDir() (string, error) {
	if err := b.dir.Mkdir(wasName, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return "", err
	}
	return os.MkdirTemp(b.dir.Name()+"/"+wasName, "merge-")
}

// KeepAncestor keeps what the open file src, the base's at rel below a root,
// holds, if it is small enough and still as st says. It is on disk when the
// branch is kept (Keep). left is how much may still be kept, −1 at first.
func (b *Branch) KeepAncestor(root int, rel string, src *os.File, st *sys.Stat, left *int64) error {
	if *left < 0 {
		free, err := b.dir.StatFS()
		if err != nil {
			return err
		}
		*left = min(maxAncestors, int64(free.Bavail)*free.Bsize/4)
		if err := b.dir.Mkdir(wasName, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	const each = 16 << 10 // what a small file costs beside its content
	if st.Size > MaxAncestor || st.Size+each > *left {
		return nil
	}
	*left -= st.Size + each
	was, err := b.dir.Sub(wasName)
	if err != nil {
		return err
	}
	defer was.Close()
	name := b.wasOf(root, rel)
	dst, err := was.OpenFile(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(sys.CopyFile(dst, src), dst.Close())
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		*left = 0 // a branch is kept without, too
		return was.Unlink(name)
	}
	now, failed := sys.StatFD(int(src.Fd()))
	if err = errors.Join(err, failed); err != nil || now.Identity() != st.Identity() || now.Ctime != st.Ctime {
		return errors.Join(err, was.Unlink(name))
	}
	return nil
}

// SetAncestor keeps content as what the base held; durable if the branch is
// kept already.
func (b *Branch) SetAncestor(root int, rel string, content []byte) error {
	if err := b.dir.Mkdir(wasName, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	was, err := b.dir.Sub(wasName)
	if err != nil {
		return err
	}
	defer was.Close()
	return replaceFile(was, b.wasOf(root, rel), content, b.Synced)
}

// Ancestor is what the base held at rel at the fork; false if that was not
// kept.
func (b *Branch) Ancestor(root int, rel string) ([]byte, bool, error) {
	was, err := b.dir.Sub(wasName)
	if err == nil {
		defer was.Close()
		var content []byte
		if content, err = readFile(was, b.wasOf(root, rel), MaxAncestor); err == nil {
			return content, true, nil
		}
	}
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return nil, false, err
}

// Rewrite gives the regular file of root i's layer at rel, which must be as st
// says, other content. Before and after a crash it holds the one or the other.
func (b *Branch) Rewrite(i int, rel string, st *sys.Stat, content []byte) error {
	err := b.rewrite(i, rel, st, content)
	if err != nil {
		return fmt.Errorf("rewrite %s in branch %s: %w", rel, b.Name, err)
	}
	return nil
}

func (b *Branch) rewrite(i int, rel string, st *sys.Stat, content []byte) error {
	holder, err := b.openHolder(i)
	if err != nil {
		return err
	}
	defer holder.Close()
	in, err := holder.Sub(path.Join(upperName(b.Roots[i].Number), path.Dir(rel)))
	if err != nil {
		return err
	}
	defer in.Close()
	name := path.Base(rel)
	now, err := in.Stat(name)
	if err != nil {
		return err
	}
	if !now.IsRegular() || now.Identity() != st.Identity() || now.Mtime != st.Mtime || now.Size != st.Size {
		return errors.New("it is another by now")
	}
	if now.Nlink > 1 {
		return errors.New("it has several names in the branch")
	}
	dir, err := in.Stat("")
	if err != nil {
		return err
	}
	const temporary = rewriteName
	if err := ignoreAbsent(holder.Unlink(temporary)); err != nil {
		return err
	}
	f, err := holder.OpenFile(temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	c := &composer{fs: vfs.Disk(), owners: sys.Root()}
	c.fs.Part("rewrite")
	if err == nil {
		err = c.dress(in, name, holder, temporary, now, nil)
	}
	if err == nil {
		var real sys.Time
		if real, err = Now(unix.CLOCK_REALTIME); err == nil {
			err = errors.Join(holder.SetTimes(temporary, sys.KeepTime, real), c.overwrite(holder, temporary, in, name, dir))
		}
	}
	if err != nil {
		return errors.Join(err, holder.Unlink(temporary))
	}
	return nil
}

// overwrite moves a file over name in a directory of a layer, whatever that
// directory's mode says, and leaves the directory's mode and times as they are.
func (c *composer) overwrite(from *sys.Dir, temporary string, in *sys.Dir, name string, dir sys.Stat) error {
	do := func() error {
		return errors.Join(c.fs.Replace(from, temporary, in, name), in.SetTimes("", dir.Atime, dir.Mtime))
	}
	if dir.Mode&0o300 == 0o300 {
		return errors.Join(do(), c.fs.SyncDir(in))
	}
	return errors.Join(layer.Opened(in, "", dir, do), c.fs.SyncDir(in))
}

// openFile opens the regular file of root i's layer at rel, which is that of st.
func (b *Branch) openFile(i int, rel string, st *sys.Stat) (*os.File, error) {
	holder, err := b.openHolder(i)
	if err != nil {
		return nil, err
	}
	defer holder.Close()
	in, err := holder.Sub(path.Join(upperName(b.Roots[i].Number), path.Dir(rel)))
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return openForReading(sys.Visit{Dir: in, Node: &sys.Node{Name: path.Base(rel)}, Stat: *st})
}

// Read reads the regular file of root i's layer at rel, if it is not larger
// than most.
func (b *Branch) Read(i int, rel string, st *sys.Stat, most int64) ([]byte, error) {
	f, err := b.openFile(i, rel, st)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(content)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", f.Name(), most)
	}
	return content, err
}

// SameContent says that files of two layers of one root hold the same.
func (b *Branch) SameContent(i int, rel string, st *sys.Stat, other *Branch, otherRel string, otherSt *sys.Stat) (bool, error) {
	if st.Size != otherSt.Size {
		return false, nil
	}
	x, err := b.openFile(i, rel, st)
	if err != nil {
		return false, err
	}
	defer x.Close()
	y, err := other.openFile(i, otherRel, otherSt)
	if err != nil {
		return false, err
	}
	defer y.Close()
	p, q := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(x, p)
		k, other := io.ReadFull(y, q)
		if n != k || !bytes.Equal(p[:n], q[:k]) {
			return false, nil
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return true, nil
		}
		if err := errors.Join(err, other); err != nil {
			return false, err
		}
	}
}
