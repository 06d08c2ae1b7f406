package ns

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// attributes are those of the mount below, which a new one would not have.
func (m *Mount) attributes() (attr int) {
	for _, a := range []struct {
		on  bool
		bit int
	}{{m.NoExec, unix.MOUNT_ATTR_NOEXEC}, {m.NoSuid, unix.MOUNT_ATTR_NOSUID}, {m.NoDev, unix.MOUNT_ATTR_NODEV}} {
		if a.on {
			attr |= a.bit
		}
	}
	return attr
}

// createFuse makes the FUSE mounts, detached, and hands the descriptor of each
// to the supervisor. /dev/fuse is opened here because the kernel wants it
// opened in the user namespace that mounts (FACTS F3). init keeps none: with
// the supervisor's end each connection ends, and whoever waits for an answer
// gets ENOTCONN.
func (p *plan) createFuse() {
	for i := range p.spec.Mounts {
		m := &p.spec.Mounts[i]
		if m.Serve == nil {
			continue
		}
		p.on(m.Target)
		dev := p.newFuse(i)
		p.call(opHand, dev, i)
		p.closeSlot(dev)
	}
}

// cloneFuse takes the FUSE mounts that were made outside. They came with the
// mount namespace, and are in it under the covers until they are taken away
// outside.
func (p *plan) cloneFuse() {
	for i := range p.spec.Mounts {
		m := &p.spec.Mounts[i]
		if m.Source == "" {
			continue
		}
		p.on(m.Source)
		p.mounts[i] = p.cloneMount(m.Source, 0)
		if attr := m.attributes(); attr != 0 {
			p.restrict(p.mounts[i], attr)
		}
	}
}

// newFuse makes the FUSE mount i and returns the descriptor to serve it by.
func (p *plan) newFuse(i int) slot {
	m := &p.spec.Mounts[i]
	p.call(unix.SYS_OPENAT, unix.AT_FDCWD, "/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC)
	fd := p.into()
	p.call(unix.SYS_DUP3, fd, p.fixed, unix.O_CLOEXEC) // its number is an option, and options are text
	dev := p.into()
	p.closeSlot(fd)
	options := []string{
		"source", "try", "fd", itoa(p.fixed), "rootmode", fmt.Sprintf("%o", unix.S_IFDIR),
		"user_id", itoa(p.spec.UID), "group_id", itoa(p.spec.GID),
	}
	for o := range strings.SplitSeq(m.Options, ",") {
		if key, value, _ := strings.Cut(o, "="); key != "" {
			options = append(options, key, value)
		}
	}
	p.mounts[i] = p.newMount("fuse", m.attributes(), options...)
	return dev
}

// awaitServer waits until each FUSE mount is served. The supervisor says so
// with one request for each; its end says that it is gone.
func (p *plan) awaitServer() {
	for i := range p.spec.Mounts {
		if m := &p.spec.Mounts[i]; m.Serve != nil {
			p.on(m.Target)
			p.call(unix.SYS_READ, p.control, p.scratch, 512)
			p.call(opSome, p.into())
		}
	}
}

// createOverlays makes the overlays, detached. The layers are opened in this
// mount namespace and named /proc/self/fd/N: so no path needs escaping
// against “:”, “,” and “\”, none is too long for fsconfig(2), which takes 256
// bytes (14 layers in one string), and one way serves all kernels (FSCONFIG_SET_FD for these is 6.13).
// Reading moves no access time: that of a copy tells whose copy it is
// (changes, inPlace), and a layer is written by what writes alone.
func (p *plan) createOverlays() {
	for i := range p.spec.Mounts {
		o := &p.spec.Mounts[i]
		if o.Upper == "" {
			continue
		}
		p.on(o.Target)
		next := p.fixed
		open := func(path string) string {
			p.call(unix.SYS_OPENAT, unix.AT_FDCWD, path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
			fd := p.into()
			p.call(unix.SYS_DUP3, fd, next, unix.O_CLOEXEC)
			p.closeSlot(fd)
			next++
			return fmt.Sprintf("/proc/self/fd/%d", next-1)
		}
		lower := make([]string, len(o.Lower))
		for i, l := range o.Lower {
			lower[i] = open(l)
		}
		// One lowerdir+ for each is of Linux 6.7, and only needed where the
		// short names are too many.
		options := []string{"lowerdir", strings.Join(lower, ":")}
		if len(options[1]) >= 256 {
			options = nil
			for _, l := range lower {
				options = append(options, "lowerdir+", l)
			}
		}
		options = append(options, "upperdir", open(o.Upper), "workdir", open(o.Work), "userxattr", "", "volatile", "")
		p.mounts[i] = p.newMount("overlay", o.attributes()|unix.MOUNT_ATTR_NOATIME, options...)
		p.call(unix.SYS_CLOSE_RANGE, p.fixed, next-1, 0)
	}
}

// cloneReadOnly takes what is to be seen of the host's mounts where a root
// would hide it.
func (p *plan) cloneReadOnly() {
	for i := range p.spec.Mounts {
		m := &p.spec.Mounts[i]
		if m.Serve != nil || m.Source != "" || m.Upper != "" {
			continue
		}
		p.on(m.Target)
		p.mounts[i] = p.cloneMount(m.Target, unix.AT_RECURSIVE)
		p.call(unix.SYS_MOUNT_SETATTR, p.mounts[i], "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE,
			p.words(unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV, 0, 0, 0), 32)
	}
}

// moveMounts puts the mounts in their places. Those of overlays go out with
// the ready report; nobody outside has anything of a FUSE mount, for the
// supervisor must never touch what it serves itself (FACTS F4).
func (p *plan) moveMounts() {
	for i := range p.spec.Mounts {
		m := &p.spec.Mounts[i]
		p.on(m.Target)
		p.place(m.Target, true)
		p.move(p.mounts[i], m.Target, 0)
		if m.Upper != "" && m.Serve == nil {
			p.views = append(p.views, p.mounts[i])
		} else {
			p.closeSlot(p.mounts[i])
		}
	}
}

// serve gives the descriptor that came with a report to the server of its
// mount, and lets init go on.
func (s *Session) serve(r *report, fds []int) error {
	mounts := s.plan.spec.Mounts
	if len(fds) != 1 || r.at < 0 || r.at >= int64(len(mounts)) || mounts[r.at].Serve == nil {
		closeAll(fds)
		return fmt.Errorf("report %d of init is not plausible: %w", r.kind, unix.EPROTO)
	}
	m := &mounts[r.at]
	dev := os.NewFile(uintptr(fds[0]), "/dev/fuse")
	if err := m.Serve(dev); err != nil {
		dev.Close()
		return fmt.Errorf("serve %s: %w", m.Target, err)
	}
	return s.request(request{})
}
