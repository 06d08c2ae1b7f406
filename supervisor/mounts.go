package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"try/fs/branch"
	"try/fs/engine"
	"try/fs/fusefs"
	"try/fs/overlay"
	"try/ns"
)

// enginesOf are the engines that --engine means, in the order of preference.
// Only fuse knows what was read.
func enginesOf(name string, serializable bool) ([]engine.Engine, error) {
	if serializable {
		if name == "overlay" {
			return nil, withHint(errors.New("--serializable: the overlay engine does not know what a command reads"), "leave out --engine, or use --engine fuse")
		}
		name = "fuse"
	}
	switch name {
	case "auto":
		return []engine.Engine{overlay.Overlay{}, fusefs.Fuse{}}, nil
	case "overlay":
		return []engine.Engine{overlay.Overlay{}}, nil
	case "fuse":
		return []engine.Engine{fusefs.Fuse{}}, nil
	}
	return nil, withHint(fmt.Errorf("unknown engine %q", name), "one of auto, overlay, fuse")
}

// mountsOf specifies for init what stands at each root of b, and below them
// what is only to be read: outer ones first. What this process has to serve,
// without the paths in hidden, is given to serve.
func (s *setup) mountsOf(b *branch.Branch, hidden []string, serve server) ([]ns.Mount, error) {
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
			out.Options = fusefs.MountOptions()
			out.Serve = func(dev *os.File) error { return serve(m, dev, hidden) }
		default:
			return nil, fmt.Errorf("mount %s: unknown type %q", m.Target, m.Type)
		}
		list = append(list, out)
	}
	for _, path := range s.coverage.ReadOnly {
		list = append(list, ns.Mount{Target: path})
	}
	slices.SortStableFunc(list, func(a, b ns.Mount) int { return cmp.Compare(len(a.Target), len(b.Target)) })
	return list, nil
}
