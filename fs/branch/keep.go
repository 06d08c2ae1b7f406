package branch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
	"try/fs/vfs"
)

// Keep makes the branch last: what its layers hold is on disk before its state
// says so. Layers in memory or in directories that the system empties are
// copied to the home store. The mark by which overlayfs refuses a layer that
// was never synced goes with the work directory's content, so that a session
// can run in the branch again. No session is in it any more.
//
// A layer that is gone takes its root's changes with it; *GoneError says so,
// joined with those of others, and everything else is kept.
func (b *Branch) Keep(ctx context.Context) error {
	if b.State != Kept && !b.State.mayBecome(Kept) {
		return fmt.Errorf("keep branch %s: it is %s", b.Name, b.State)
	}
	b.errand.end() // it is in the work directories
	var gone []error
	before := b.storesUsed()
	for i := range b.Roots {
		err := b.keepLayer(ctx, i)
		if g, ok := errors.AsType[*GoneError](err); ok {
			gone = append(gone, g)
			continue
		}
		if err != nil {
			return fmt.Errorf("keep branch %s: %s: %w", b.Name, b.Roots[i].Path, err)
		}
	}
	if err := b.syncLayers(); err != nil {
		return fmt.Errorf("keep branch %s: %w", b.Name, err)
	}
	b.Synced, b.State = true, Kept
	err := errors.Join(b.Save(), b.store.branches.Sync(), b.store.stores.Sync())
	if b.Group != "" {
		err = errors.Join(err, b.syncGroup())
	}
	if err != nil {
		return fmt.Errorf("keep branch %s: %w", b.Name, err)
	}
	after := b.storesUsed()
	for id := range before {
		if !after[id] { // what was moved home, until a crash here by the next sweep
			err = errors.Join(err, b.store.dropIn(id, b.ID))
		}
	}
	if err != nil {
		return fmt.Errorf("keep branch %s: %w", b.Name, err)
	}
	return errors.Join(gone...)
}

func (b *Branch) storesUsed() map[string]bool {
	used := map[string]bool{"": true}
	for _, r := range b.Roots {
		used[r.Store] = true
	}
	return used
}

// syncGroup makes sure that the group is there after a loss of power; without
// it the branch would count as never made.
func (b *Branch) syncGroup() error {
	return errors.Join(
		b.inGroup(func(*Group) (bool, error) { return true, nil }),
		b.store.groups.Sync())
}

// keepLayer empties root i's work directory and moves a layer that would not
// last.
func (b *Branch) keepLayer(ctx context.Context, i int) error {
	path, err := b.holder(i)
	if err != nil {
		return err
	}
	holder, err := sys.OpenDir(path)
	if err != nil {
		return err
	}
	defer holder.Close()
	r := &b.Roots[i]
	if err := emptyDir(ctx, holder, workName(r.Number)); err != nil {
		return err
	}
	if r.Store == "" {
		return nil
	}
	p, err := b.store.openFurther(r.Store)
	if err != nil || !p.volatile {
		return err
	}
	if err := b.moveHome(ctx, holder, i); !errors.Is(err, unix.EPERM) {
		return err
	}
	// In a container the home store may lie on an overlay, where no whiteout can
	// be made: the layer lasts as long as the memory does.
	return remove(ctx, b.dir, upperName(r.Number))
}

// emptyDir removes all that the directory name in d holds.
func emptyDir(ctx context.Context, d *sys.Dir, name string) error {
	work, err := d.Sub(name)
	if err != nil {
		return err
	}
	defer work.Close()
	return empty(ctx, work, func(string) bool { return true })
}

// moveHome copies root i's layer to the home store and uses that from now on.
// The old one stays where it is until the branch goes.
func (b *Branch) moveHome(ctx context.Context, from *sys.Dir, i int) error {
	r := &b.Roots[i]
	name := upperName(r.Number)
	if err := remove(ctx, b.dir, name); err != nil { // of an attempt before
		return err
	}
	src, err := from.Stat(name)
	if err != nil {
		return err
	}
	if err := copyTree(ctx, from, b.dir, name, src); err != nil {
		return fmt.Errorf("copy its layer from %s: %w", from.Name(), err)
	}
	if err := b.dir.Mkdir(workName(r.Number), 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	r.Store, r.Copy, r.Moved = "", true, true
	return nil
}

// copyTree copies the directory name of from to one of the same name in to,
// which is not there: types, content, holes, modes, owners, times, attributes,
// hard links. The layer is read whatever its modes say; they are put back.
func copyTree(ctx context.Context, from, to *sys.Dir, name string, top sys.Stat) (err error) {
	c := &copier{twins: map[uint64]bool{}, owners: sys.Root()}
	stage := name + ".twins"
	if err := errors.Join(remove(ctx, to, stage), to.Mkdir(stage, 0o700), to.Mkdir(name, 0o700)); err != nil {
		return err
	}
	if c.stage, err = to.Sub(stage); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, c.stage.Close(), remove(ctx, to, stage))
	}()
	src, err := openUp(from, name, top)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := to.Sub(name)
	if err != nil {
		return err
	}
	defer dst.Close()
	if c.at, err = sys.NewDescent(dst); err != nil {
		return err
	}
	defer c.at.Close()
	err = sys.Walk(src, func(v sys.Visit) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		return c.enter(v)
	}, c.leave)
	// Also when it was broken off: the modes of what is above the breaking
	// point are those of a directory that its owner can read, which loses
	// nothing but a mode, and only if the branch cannot be kept.
	return errors.Join(err, c.finish(from, to, name, top))
}

type copier struct {
	at *sys.Descent // where the copy stands, in step with the walk
	// stage has a name, its number, for the copy of each inode in twins, which
	// have several names: a directory that is finished may be closed to us.
	stage  *sys.Dir
	twins  map[uint64]bool
	owners bool
}

func (c *copier) enter(v sys.Visit) (bool, error) {
	name, to := v.Node.Name, c.at.Dir()
	switch v.Stat.Type() {
	case unix.S_IFDIR:
		sub, err := openUp(v.Dir, name, v.Stat) // for the walk
		if err != nil {
			return false, err
		}
		if err := errors.Join(sub.Close(), to.Mkdir(name, 0o700)); err != nil {
			return false, err
		}
		return true, c.at.Enter(name)
	case unix.S_IFSOCK:
		return false, nil // never committed (DESIGN §11)
	}
	if layer.IsWhiteout(v.Stat) {
		return false, layer.MakeWhiteout(to, name)
	}
	number := strconv.FormatUint(v.Stat.Ino, 10)
	if c.twins[v.Stat.Ino] {
		return false, c.stage.Link(number, to, name)
	}
	var err error
	switch v.Stat.Type() {
	case unix.S_IFREG:
		err = copyContent(v, to)
	case unix.S_IFLNK:
		var target string
		if target, err = v.Dir.Readlink(name); err == nil {
			err = to.Symlink(target, name)
		}
	default:
		err = to.Mknod(name, v.Stat.Mode, v.Stat.Rdev)
	}
	if err != nil {
		return false, err
	}
	if err := c.finish(v.Dir, to, name, v.Stat); err != nil || v.Stat.Nlink == 1 {
		return false, err
	}
	c.twins[v.Stat.Ino] = true
	return false, to.Link(name, c.stage, number)
}

func copyContent(v sys.Visit, to *sys.Dir) (err error) {
	name := v.Node.Name
	src, err := openForReading(v)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := to.OpenFile(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(sys.CopyFile(dst, src), dst.Close())
}

// openForReading opens a regular file of a layer whatever its mode says, and
// makes sure that it is the file that was looked at.
func openForReading(v sys.Visit) (f *os.File, err error) {
	open := func() error {
		f, err = v.Dir.OpenFile(v.Node.Name, unix.O_RDONLY, 0)
		return err
	}
	if err = open(); errors.Is(err, unix.EACCES) {
		err = layer.Opened(v.Dir, v.Node.Name, v.Stat, open)
	}
	if err != nil {
		return nil, err
	}
	st, err := sys.StatFD(int(f.Fd()))
	if err == nil && st.Identity() != v.Stat.Identity() {
		err = &os.PathError{Op: "open", Path: f.Name(), Err: unix.ESTALE}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// leave finishes a directory: its times last, when nothing in it changes any
// more, and gives the original its mode back.
func (c *copier) leave(v sys.Visit) error {
	if err := c.at.Leave(); err != nil {
		return err
	}
	return c.finish(v.Dir, c.at.Dir(), v.Node.Name, v.Stat)
}

// finish gives the copy of name its attributes, owner, mode and times, and the
// original its mode.
func (c *copier) finish(from, to *sys.Dir, name string, st sys.Stat) error {
	attrs, err := layer.Xattrs(from, name, st)
	if err != nil {
		return err
	}
	if err := vfs.Dress(vfs.Disk(), to, name, &st, ownerOf(st, c.owners), attrs); err != nil {
		return err
	}
	if st.IsDir() && st.Mode&0o700 != 0o700 {
		return from.Chmod(name, st.Perm())
	}
	return nil
}

// ownerOf is what a copy gets for its owner: that of st, or the user.
func ownerOf(st sys.Stat, given bool) *vfs.Owner {
	if !given {
		return nil
	}
	return &vfs.Owner{UID: int(st.UID), GID: int(st.GID)}
}

// syncLayers writes each file system that holds a layer to disk, by the
// descriptor of the fork where there is one, so that a write that has failed
// since is heard of.
func (b *Branch) syncLayers() error {
	done := map[string]bool{}
	for i, r := range b.Roots {
		if done[r.Store] {
			continue
		}
		done[r.Store] = true
		f := b.SyncFD(i)
		if f == nil {
			path, err := b.holder(i)
			if _, gone := errors.AsType[*GoneError](err); gone {
				continue
			}
			if err != nil {
				return err
			}
			if f, err = os.Open(path); err != nil {
				return err
			}
			defer f.Close()
		}
		if err := sys.SyncFS(f); err != nil {
			return err
		}
	}
	return nil
}
