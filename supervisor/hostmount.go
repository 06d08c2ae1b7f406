package supervisor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/branch"
	"try/fs/engine"
	"try/fs/fusefs"
	"try/fs/sys"
)

// A root whose engine wants it is mounted by this process's user in this
// process's mount namespace, served, inherited by init, which binds it over the
// root, and then unmounted here: the session's is the only one that is left.
// Who is killed between the two leaves a mount that nobody answers for; the next
// try takes it away (unmountDead).

// hostMounts are the mounts of a session in the namespace of this process.
type hostMounts struct {
	points  *branch.MountPoints
	mounted []string
	gone    chan error // what became of unmounting them
}

// mountPoints makes room for the roots that are to be mounted here.
func (s *session) mountPoints() error {
	count := 0
	for i := range s.b.Roots {
		if s.b.Roots[i].Engine.OutsideIDs() {
			count++
		}
	}
	if count == 0 {
		return nil
	}
	points, err := s.b.MountPoints(count, s.set.mounts, os.Getenv("XDG_RUNTIME_DIR"))
	if err != nil {
		return fmt.Errorf("make mount points: %w", err)
	}
	s.host = &hostMounts{points: points}
	return nil
}

// mountHere mounts m, which is of root, in this namespace and serves it. The path
// is "" if the helper refuses: then init mounts it, which is less if there is
// something foreign. In a confined session there is nobody else to mount it, and
// in another root it cannot be: no one but the user may look there, fusermount3
// neither.
func (s *session) mountHere(m engine.Mount, root *branch.Root, hidden []string) (path string, err error) {
	path = s.host.points.Paths[len(s.host.mounted)]
	dev, err := fusefs.MountHost(path, s.set.confined && m.NoExec)
	switch {
	case err == nil:
	case s.set.confined:
		return "", err
	default:
		if root.Foreign != "" {
			s.warn(fmt.Sprintf("%s, and cannot be written: %v", root.Foreign, err))
		}
		return "", ownGroup(m.Upper, root.Prepared)
	}
	s.host.mounted = append(s.host.mounted, path)
	if s.set.confined && slices.ContainsFunc(s.b.Roots, func(outer branch.Root) bool { return engine.IsBelow(m.Target, outer.Path) }) {
		s.warn(fmt.Sprintf("%s, a mount below a root, is empty there, and shows at %s", m.Target, path))
	}
	return path, s.serve(m, dev, hidden)
}

// ownGroup gives the directories that were made in a layer beforehand the
// group that a session maps: in one of another nothing could be made.
func ownGroup(layer string, made map[string]sys.Stat) error {
	d, err := sys.OpenDir(layer)
	if err != nil {
		return err
	}
	defer d.Close()
	for rel := range made {
		sub, err := d.Sub(rel)
		if err != nil {
			return err
		}
		if err := errors.Join(sub.Chown("", -1, os.Getegid()), sub.Close()); err != nil {
			return err
		}
	}
	return nil
}

// leaveHost unmounts here what init has taken over, behind the run; of a confined
// session, when it is over.
func (s *session) leaveHost() {
	h := s.host
	if h == nil {
		return
	}
	h.gone = make(chan error, 1)
	go func() {
		var err error
		if s.set.confined {
			err = h.points.Open()
		}
		h.gone <- errors.Join(err, h.unmount())
	}()
}

func (h *hostMounts) unmount() error {
	var errs []error
	for _, path := range h.mounted {
		errs = append(errs, fusefs.UnmountHost(path))
	}
	// What could be removed is no mount point: somebody else was faster.
	if err := h.points.Remove(); err != nil {
		return errors.Join(append(errs, err)...)
	}
	return nil
}

// hostLeft waits until nothing of the session is mounted here. Before that its
// end would not be the mounts', and what the kernel has not written yet of
// their files would be lost.
func (s *session) hostLeft() error {
	if s.host == nil {
		return nil
	}
	if s.host.gone == nil {
		s.leaveHost()
	}
	err := <-s.host.gone
	s.host = nil
	if err != nil {
		return fmt.Errorf("take the session's mounts away outside: %w", err)
	}
	return nil
}

// unmountDead takes away what sessions have left here whose supervisor was
// killed, and says whether there was anything.
func (h *Home) unmountDead() (bool, error) {
	return h.store.Abandoned(h.mounts, fusefs.HostType, func(path string) error {
		if err := answersNot(path); err != nil {
			return fmt.Errorf("unmount what a killed try has left at %s: %w", path, err)
		}
		return fusefs.UnmountHost(path)
	})
}

// answersNot proves that nobody answers for the FUSE mount at path.
func answersNot(path string) error {
	answer := make(chan error, 1)
	go func() {
		var st unix.Statfs_t
		answer <- unix.Statfs(path, &st)
	}()
	select {
	case err := <-answer:
		if errors.Is(err, unix.ENOTCONN) {
			return nil
		}
		if err == nil {
			err = unix.EBUSY
		}
		return err
	case <-time.After(time.Second):
		return unix.ETIMEDOUT
	}
}

// ProbeHostMount mounts as a session whose files have the ids of outside does,
// and says why that cannot be.
func (h *Home) ProbeHostMount() error {
	if _, err := fusefs.Helper(); errors.Is(err, exec.ErrNotFound) {
		return withHint(err, "sudo apt install fuse3")
	} else if err != nil {
		return err
	}
	b, err := h.store.Create(branch.CreateOptions{Mounts: h.mounts})
	if err != nil {
		return err
	}
	points, err := b.MountPoints(1, h.mounts, os.Getenv("XDG_RUNTIME_DIR"))
	if err != nil {
		return errors.Join(err, b.Discard())
	}
	host := &hostMounts{points: points}
	dev, err := fusefs.MountHost(points.Paths[0], false)
	if err == nil {
		host.mounted = points.Paths
		err = dev.Close()
	}
	return errors.Join(err, host.unmount(), b.Discard())
}
