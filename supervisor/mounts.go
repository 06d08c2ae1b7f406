package supervisor

import (
	"cmp"
	"fmt"
	"slices"

	"try/fs/branch"
	"try/fs/engine"
	"try/fs/overlay"
	"try/ns"
)

// enginesOf are the engines that --engine means, in the order of preference.
func enginesOf(name string) ([]engine.Engine, error) {
	switch name {
	case "auto", "overlay":
		return []engine.Engine{overlay.Overlay{}}, nil
	}
	return nil, withHint(fmt.Errorf("engine %s: not built in", name), "use --engine overlay, or leave it to auto")
}

// mountsOf specifies for init what stands at each root of b, and below them
// what is only to be read: outer ones first.
func (s *setup) mountsOf(b *branch.Branch) ([]ns.Mount, error) {
	var list []ns.Mount
	for i := range b.Roots {
		m, err := b.Mount(i)
		if err != nil {
			return nil, err
		}
		list = append(list, ns.Mount{
			Target: m.Target, Lower: m.Lower, Upper: m.Upper, Work: m.Work,
			NoExec: m.NoExec, NoSuid: m.NoSuid, NoDev: m.NoDev,
		})
	}
	for _, path := range s.coverage.ReadOnly {
		list = append(list, ns.Mount{Target: path})
	}
	slices.SortStableFunc(list, func(a, b ns.Mount) int { return cmp.Compare(len(a.Target), len(b.Target)) })
	return list, nil
}
