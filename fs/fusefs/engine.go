package fusefs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"try/fs/engine"
	"try/fs/layer"
	"try/fs/sys"
)

// Fuse is the engine that this package is. init makes the mount, the
// supervisor serves it.
type Fuse struct {
	// Host has the mount made in the first namespaces, by fusermount3, and only
	// bound in by init. Then the ids of all files are what they are outside:
	// those that a session does not map too can be written by whom they let.
	Host bool
}

var _ engine.Engine = Fuse{}

// Name is "fuse".
func (Fuse) Name() string { return "fuse" }

// Probe refuses what has no files, and everything where /dev/fuse cannot be
// opened.
func (f Fuse) Probe(root string, mounts []sys.Mount) error {
	if engine.Off("fuse") {
		return &engine.Refusal{Root: root, Why: "the fuse engine is switched off by TRY_TEST_NO"}
	}
	on, err := engine.MountOf(root, mounts)
	if err != nil {
		return err
	}
	if engine.Unreal(on) || on.FSType == "autofs" {
		return &engine.Refusal{Root: root, Why: fmt.Sprintf("it lies on %s, which holds no files", on.FSType)}
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &engine.Refusal{
			Root: root, Err: err,
			Why:  fmt.Sprintf("the fuse engine cannot open /dev/fuse: %v", err),
			Help: "sudo modprobe fuse; sudo chmod 666 /dev/fuse",
		}
	}
	unix.Close(fd) // nothing was written
	if !f.Host {
		return nil
	}
	if _, err := Helper(); err != nil {
		return &engine.Refusal{Root: root, Why: "cannot be written: " + err.Error()}
	}
	return nil
}

// Holds refuses file systems that cannot keep what a layer is made of, by
// trying: whiteouts and user attributes. Another run may be asking at the same
// time, or have been killed while it did: the names are always the same, so that
// neither is in the way, and nothing piles up.
func (Fuse) Holds(dir string) error {
	d, err := sys.OpenDir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	const name, attr = "probe", "user.try.probe"
	if err := layer.MakeWhiteout(d, name); err != nil && !errors.Is(err, unix.EEXIST) {
		return &engine.Refusal{Root: dir, Why: "its file system cannot hold whiteouts", Err: err}
	}
	if err := d.Unlink(name); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := d.SetXattr("", attr, []byte{'y'}); err != nil {
		return &engine.Refusal{Root: dir, Why: "its file system keeps no user attributes", Err: err}
	}
	if err := d.RemoveXattr("", attr); err != nil && !errors.Is(err, unix.ENODATA) {
		return err
	}
	return nil
}

// OutsideIDs is what Host is for.
func (f Fuse) OutsideIDs() bool { return f.Host }

// Mount puts the layer on top of the root itself. The flags of the mount below
// are handed on (B30).
func (f Fuse) Mount(root, layer, work string, below sys.Mount) engine.Mount {
	return engine.Mount{
		Type: "fuse", Host: f.Host, Target: root, Lower: []string{root}, Upper: layer, Work: work,
		NoExec: below.Has("noexec"), NoSuid: below.Has("nosuid"), NoDev: below.Has("nodev"),
	}
}
