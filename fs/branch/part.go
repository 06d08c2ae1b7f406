package branch

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"try/fs/layer"
	"try/fs/sys"
	"try/fs/vfs"
)

// How says what a composed layer takes of an entry of another layer.
type How uint8

const (
	// Left: neither the entry nor anything below it.
	Left How = iota
	// Way: a directory only on the way to what Below and Others take; anything
	// else as a whole.
	Way
	// Whole: the entry with all below it.
	Whole
)

// Part says what a composed layer takes of an entry of another layer, and of
// what is below it. Roots are Way.
type Part struct {
	How    How
	Others How // Way: what becomes of the names that are not in Below: Left or Way
	Stays  bool
	// Stays: the directory is a change of its own, so it is made even if
	// nothing in it is taken.

	// Plain: the directory is not opaque any more; Opaque: it is now.
	Plain, Opaque bool
	// BaseTime: the directory is no change, and nothing directly in it is, so it
	// gets the base's time.
	BaseTime bool
	// Base: the other layer has no such directory. It is made like the base's,
	// and holds only what Hide and Below say, all of which are Base too.
	Base  bool
	Hide  []string // names in the directory that are deleted
	Below map[string]*Part
}

// whole is what is in effect below a directory that is taken as a whole.
var whole = &Part{How: Whole}

func (p *Part) of(name string) *Part {
	switch below, ok := p.Below[name]; {
	case ok:
		return below
	case p.How == Whole:
		return whole
	default:
		return &Part{How: p.Others, Others: p.Others}
	}
}

// composer writes a layer: the parts of another one, in step with a walk of it.
type composer struct {
	ctx    context.Context
	fs     vfs.FS
	base   *sys.Dir // the root in the base
	at     *sys.Descent
	parts  []*Part // of the directories that the walk is in; the root's first
	links  linking
	owners bool
	// into: the directory may be there, and hold what was composed before.
	into  bool
	were  []sys.Stat // the directories of at that were there before; zero: made
	stage *sys.Dir   // a name for the copy of each inode of twins
	twins map[uint64]bool
}

// linking says whether entries get a further name instead of being copied.
type linking uint8

const (
	copies  linking = iota
	links           // all
	singles         // those with one name: a file that the other part may have too is copied
)

// compose makes the directory toName in to of the parts of the layer name in
// from. base is the root of both in the base.
func (c *composer) compose(from *sys.Dir, name string, to *sys.Dir, toName string, part *Part) (err error) {
	top, err := from.Stat(name)
	if err != nil {
		return err
	}
	stage := toName + ".twins"
	if err := c.mkdir(to, stage); err != nil {
		return err
	}
	if err := c.mkdir(to, toName); err != nil && !(c.into && errors.Is(err, unix.EEXIST)) {
		return err
	}
	before, err := to.Stat(toName)
	if err != nil {
		return err
	}
	if before.Mode&0o700 != 0o700 {
		open := before.Perm() | 0o700
		if err := c.fs.Set(to, toName, vfs.Attr{Mode: &open}); err != nil {
			return err
		}
	}
	c.twins, c.parts = map[uint64]bool{}, []*Part{part}
	if c.stage, err = to.Sub(stage); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stage.Close(), remove(c.ctx, to, stage)) }()
	src, err := readable(from, name, top)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := to.Sub(toName)
	if err != nil {
		return err
	}
	defer dst.Close()
	if c.at, err = sys.NewDescent(dst); err != nil {
		return err
	}
	defer c.at.Close()
	if err := c.fill("", part); err != nil {
		return err
	}
	if err := sys.Walk(src, c.enter, c.leave); err != nil {
		return err
	}
	if !part.Stays {
		return c.restore(to, toName, before, top)
	}
	return errors.Join(c.dress(from, name, to, toName, top, part), c.baseTime(to, toName, "", part))
}

// baseTime gives a directory in which nothing changed the time of the base's, if
// there is one.
func (c *composer) baseTime(d *sys.Dir, name, path string, part *Part) error {
	if !part.BaseTime {
		return nil
	}
	base := c.base
	if path != "" {
		var err error
		if base, err = c.base.Sub(path); err != nil {
			return nil // made inside
		}
		defer base.Close()
	}
	st, err := base.Stat("")
	if err != nil {
		return err
	}
	return c.fs.Set(d, name, vfs.Attr{Times: &vfs.Times{Access: sys.KeepTime, Modify: st.Mtime}})
}

// enterDir makes a directory, or opens one that is there, and goes there.
func (c *composer) enterDir(name string) error {
	to, was := c.at.Dir(), sys.Stat{}
	err := c.mkdir(to, name)
	if c.into && errors.Is(err, unix.EEXIST) {
		if was, err = to.Stat(name); err == nil && was.Mode&0o700 != 0o700 {
			open := was.Perm() | 0o700
			err = c.fs.Set(to, name, vfs.Attr{Mode: &open})
		}
	}
	if err != nil {
		return err
	}
	c.were = append(c.were, was)
	return c.at.Enter(name)
}

// leaveDir goes back; was is zero if the directory was made.
func (c *composer) leaveDir() (was sys.Stat, err error) {
	last := len(c.were) - 1
	was, c.were = c.were[last], c.were[:last]
	return was, c.at.Leave()
}

// restore gives a directory that was there its mode back, and the later of the
// times that it has in the layers.
func (c *composer) restore(d *sys.Dir, name string, was, other sys.Stat) error {
	perm := was.Perm()
	if err := c.fs.Set(d, name, vfs.Attr{Mode: &perm}); err != nil {
		return err
	}
	return c.fs.Set(d, name, vfs.Attr{Times: &vfs.Times{Access: was.Atime, Modify: max(was.Mtime, other.Mtime)}})
}

func (c *composer) mkdir(d *sys.Dir, name string) error {
	return c.fs.Make(d, name, vfs.New{Mode: unix.S_IFDIR | 0o700})
}

func (c *composer) enter(v sys.Visit) (bool, error) {
	if err := c.ctx.Err(); err != nil {
		return false, err
	}
	name, to := v.Node.Name, c.at.Dir()
	part := c.parts[len(c.parts)-1].of(name)
	if part.How == Left || part.Base {
		return false, nil
	}
	if !v.Stat.IsDir() {
		return false, c.take(v, to)
	}
	sub, err := readable(v.Dir, name, v.Stat) // for the walk
	if err != nil {
		return false, err
	}
	if err := errors.Join(sub.Close(), c.enterDir(name)); err != nil {
		return false, err
	}
	c.parts = append(c.parts, part)
	return true, c.fill(v.Node.Path(), part)
}

// take takes what is no directory.
func (c *composer) take(v sys.Visit, to *sys.Dir) error {
	name, st := v.Node.Name, v.Stat
	switch {
	case st.Type() == unix.S_IFSOCK: // never committed (DESIGN §11)
		return nil
	case layer.IsWhiteout(st):
		return c.hide(to, name)
	case c.links == links || c.links == singles && st.Nlink == 1:
		return c.fs.Make(to, name, vfs.New{From: v.Dir, Name: name})
	}
	number := strconv.FormatUint(st.Ino, 10)
	if c.twins[st.Ino] {
		return c.fs.Make(to, name, vfs.New{From: c.stage, Name: number})
	}
	if err := c.copy(v, to); err != nil {
		return err
	}
	if err := c.dress(v.Dir, name, to, name, st, nil); err != nil || st.Nlink == 1 {
		return err
	}
	c.twins[st.Ino] = true
	return c.fs.Make(c.stage, number, vfs.New{From: to, Name: name})
}

func (c *composer) copy(v sys.Visit, to *sys.Dir) error {
	name := v.Node.Name
	switch v.Stat.Type() {
	case unix.S_IFREG:
	case unix.S_IFLNK:
		target, err := v.Dir.Readlink(name)
		if err != nil {
			return err
		}
		return c.fs.Make(to, name, vfs.New{Mode: unix.S_IFLNK, Target: target})
	default:
		return c.fs.Make(to, name, vfs.New{Mode: v.Stat.Mode, Dev: v.Stat.Rdev})
	}
	src, err := openForReading(v)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := c.fs.Open(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(dst.CopyFrom(src), dst.Close())
}

func (c *composer) hide(d *sys.Dir, name string) error {
	return c.fs.Make(d, name, vfs.New{Mode: unix.S_IFCHR})
}

// leave finishes a directory: its times last, when nothing in it changes any
// more. One that was only on the way to nothing is not needed.
func (c *composer) leave(v sys.Visit) error {
	part := c.parts[len(c.parts)-1]
	c.parts = c.parts[:len(c.parts)-1]
	was, err := c.leaveDir()
	if err != nil {
		return err
	}
	to, name := c.at.Dir(), v.Node.Name
	if was.Ino != 0 && !part.Stays {
		return errors.Join(c.restore(to, name, was, v.Stat), shutAgain(v.Dir, name, v.Stat))
	}
	if part.How == Way && !part.Stays {
		err := c.fs.Remove(to, name, true)
		if err == nil {
			return shutAgain(v.Dir, name, v.Stat)
		}
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return errors.Join(c.dress(v.Dir, name, to, name, v.Stat, part), c.baseTime(to, name, v.Node.Path(), part))
}

// readable opens a directory of the other layer. Its mode is altered only if it
// could not be listed otherwise: after a crash it stays so.
func readable(d *sys.Dir, name string, st sys.Stat) (*sys.Dir, error) {
	if st.Mode&0o500 == 0o500 {
		return d.Sub(name)
	}
	return openUp(d, name, st)
}

// shutAgain gives a directory of the other layer its mode back.
func shutAgain(d *sys.Dir, name string, st sys.Stat) error {
	if st.IsDir() && st.Mode&0o500 != 0o500 {
		return d.Chmod(name, st.Perm())
	}
	return nil
}

// dress gives the copy its attributes, owner, mode and times, and the original
// its mode.
func (c *composer) dress(from *sys.Dir, name string, to *sys.Dir, toName string, st sys.Stat, part *Part) error {
	attrs, err := layer.Xattrs(from, name, st)
	if err != nil {
		return err
	}
	if part != nil && part.Plain {
		delete(attrs, layer.OpaqueAttr)
	}
	if part != nil && part.Opaque {
		if attrs == nil {
			attrs = map[string][]byte{}
		}
		attrs[layer.OpaqueAttr] = []byte("y")
	}
	if err := vfs.Dress(c.fs, to, toName, &st, ownerOf(st, c.owners), attrs); err != nil {
		return err
	}
	return shutAgain(from, name, st)
}

// fill makes in the directory at path, which was entered, what the other layer
// has no entry for: whiteouts, and directories of the base.
func (c *composer) fill(path string, part *Part) error {
	for _, name := range part.Hide {
		if err := c.hide(c.at.Dir(), name); err != nil {
			return err
		}
	}
	for name, below := range part.Below {
		if below.Base {
			if err := c.like(path, name, below); err != nil {
				return err
			}
		}
	}
	return nil
}

// like makes the directory name as the base has it at path.
func (c *composer) like(path, name string, part *Part) error {
	if path != "" {
		path += "/"
	}
	path += name
	base, err := c.base.Sub(path)
	if err != nil {
		return err
	}
	defer base.Close()
	st, err := base.Stat("")
	if err != nil {
		return err
	}
	to := c.at.Dir()
	if _, err := layer.Prepare(to, name, base, layer.OwnersOf(c.owners, false)); err != nil && !(c.into && errors.Is(err, unix.EEXIST)) {
		return err
	}
	open := st.Perm() | 0o700
	if err := c.fs.Set(to, name, vfs.Attr{Mode: &open}); err != nil {
		return err
	}
	if err := c.at.Enter(name); err != nil {
		return err
	}
	if err := errors.Join(c.fill(path, part), c.at.Leave()); err != nil {
		return err
	}
	perm := st.Perm()
	if err := c.fs.Set(to, name, vfs.Attr{Mode: &perm}); err != nil {
		return err
	}
	return c.fs.Set(to, name, vfs.Attr{Times: &vfs.Times{Access: st.Atime, Modify: st.Mtime}})
}

func composing(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("compose the layer of %s: %w", path, err)
}
