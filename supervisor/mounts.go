package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"try/fs/engine"
	"try/fs/fusefs"
	"try/fs/overlay"
	"try/fs/sys"
	"try/ns"
)

// enginesOf are the engines that --engine means, in the order of preference.
// Only fuse knows what was read. foreign, which may be nil, is the one for roots
// with files that an ordinary user's session cannot write otherwise, having one
// id and one group; whoever names fuse wants all that it can do.
func enginesOf(name string, serializable bool) (list []engine.Engine, foreign engine.Engine, err error) {
	if !sys.Root() {
		foreign = fusefs.Fuse{Host: true}
	}
	if serializable {
		if name == "overlay" {
			return nil, nil, withHint(errors.New("--serializable: the overlay engine does not know what a command reads"), "leave out --engine, or use --engine fuse")
		}
		if name == "auto" {
			return []engine.Engine{fusefs.Fuse{}}, foreign, nil
		}
	}
	switch {
	case name == "auto":
		return []engine.Engine{overlay.Overlay{}, fusefs.Fuse{}}, foreign, nil
	case name == "overlay":
		return []engine.Engine{overlay.Overlay{}}, nil, nil
	case name == "fuse" && foreign != nil:
		return []engine.Engine{foreign, fusefs.Fuse{}}, foreign, nil
	case name == "fuse":
		return []engine.Engine{fusefs.Fuse{}}, nil, nil
	}
	return nil, nil, withHint(fmt.Errorf("unknown engine %q", name), "one of auto, overlay, fuse")
}

// mountsOf specifies for init what stands at each root of a session, and below
// them what is only to be read: outer ones first. What this process has to serve
// is without the paths in hidden.
func (s *setup) mountsOf(of *session, hidden []string) ([]ns.Mount, error) {
	b := of.b
	var list []ns.Mount
	for i := range b.Roots {
		m, err := b.Mount(i)
		if err != nil {
			return nil, err
		}
		out := ns.Mount{Target: m.Target, NoExec: m.NoExec, NoSuid: m.NoSuid, NoDev: m.NoDev}
		switch m.Type {
		case "overlay":
			out.Lower, out.Upper, out.Work = m.Lower, m.Upper, m.Work
		case "fuse":
			if m.Host {
				if out.Source, err = of.mountHere(m, &b.Roots[i], hidden); err != nil {
					return nil, err
				}
			}
			if out.Source == "" {
				m.Host = false
				out.Options = fusefs.MountOptions()
				out.Serve = func(dev *os.File) error { return of.serve(m, dev, hidden) }
			}
		default:
			return nil, fmt.Errorf("mount %s: unknown type %q", m.Target, m.Type)
		}
		list = append(list, out)
	}
	for _, path := range s.coverage.ReadOnly {
		if s.confined {
			break // nothing can be put over what hides it
		}
		list = append(list, ns.Mount{Target: path})
	}
	slices.SortStableFunc(list, func(a, b ns.Mount) int { return cmp.Compare(len(a.Target), len(b.Target)) })
	return list, nil
}
