package branch

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"try/fs/engine"
	"try/fs/sys"
)

// capture makes a root of w, by the first engine that does not refuse, and of
// each mount below it. A *engine.Refusal says why none does.
func (c *coverage) capture(w *want) error {
	foreign, in, err := c.foreign(w)
	if err != nil {
		return err
	}
	note := func(format, why string) {
		if foreign != "" && in.named() { // each run would say so of a HOME that it has nothing to do with
			c.note(format, foreign, why)
		}
	}
	engines := c.Engines
	if c.Foreign == nil {
		note("%s, %s", c.Refused)
	} else if foreign != "" && engines[0] != c.Foreign {
		engines = append([]engine.Engine{c.Foreign}, engines...)
	}
	var refused *engine.Refusal
	for _, e := range engines {
		err := e.Probe(w.path, c.Mounts)
		if refusal, ok := errors.AsType[*engine.Refusal](err); ok {
			if e == c.Foreign {
				note("%s, and %s", refusal.Why)
			}
			refused = also(refused, refusal)
			continue
		}
		if err != nil {
			return err
		}
		on, err := engine.MountOf(w.path, c.Mounts)
		if err != nil {
			return err
		}
		c.result.Roots = append(c.result.Roots, Root{
			Path: w.path, Names: []string{w.path}, ID: w.stat.Identity(), Below: on, Foreign: foreign, Engine: e,
		})
		return c.submounts(w.path, on)
	}
	return refused
}

// foreign says what of a root that w would make takes the engine Foreign, and in
// what it was seen: w, or what else is to be captured and lies in it. In
// directories for temporary files, which are root's everywhere, nothing is
// looked for.
func (c *coverage) foreign(w *want) (what string, in *want, err error) {
	if c.Foreign == nil && c.Refused == "" {
		return "", nil, nil
	}
	for _, other := range append([]*want{w}, c.wants...) {
		if other.temp || other.stat.MntID != w.stat.MntID || other != w && !engine.IsBelow(other.path, w.path) {
			continue
		}
		if what, err := findForeign(other.dir, other.stat); what != "" || err != nil {
			return what, other, err
		}
	}
	return "", nil, nil
}

// also adds why another engine has refused.
func also(first, then *engine.Refusal) *engine.Refusal {
	if first == nil {
		return then
	}
	both := *first
	both.Why = fmt.Sprintf("%s, and %s", first.Why, then.Why)
	if then.Help != "" {
		both.Help = then.Help
	}
	return &both
}

// submounts captures each mount below root in a layer of its own, or leaves it
// to be read. One that nothing can be told of is none that can be reached.
func (c *coverage) submounts(root string, on sys.Mount) error {
	var targets []string
	for _, m := range c.Mounts {
		if m.Parent == on.ID && m.ID != on.ID && engine.IsBelow(m.Target, root) {
			targets = append(targets, m.Target)
		}
	}
	slices.Sort(targets)
	for _, target := range slices.Compact(targets) {
		if err := c.submount(root, target); err != nil {
			return err
		}
	}
	return nil
}

func (c *coverage) submount(root, target string) error {
	for _, store := range c.Stores {
		if _, inside := relative(target, store); inside {
			return nil // covered
		}
	}
	dir, err := sys.OpenDir(target)
	switch {
	case errors.Is(err, unix.ENOTDIR):
		c.result.ReadOnly = append(c.result.ReadOnly, target) // a file
		return nil
	case err != nil:
		return nil //lint:allow error what we may not look at, nobody inside may
	}
	defer dir.Close()
	st, err := dir.Stat("")
	if err != nil {
		return err
	}
	if dir.Access("", unix.W_OK|unix.X_OK) == nil {
		err := c.capture(&want{path: target, why: "a mount below " + root, dir: dir, stat: st})
		refusal, refused := errors.AsType[*engine.Refusal](err)
		if !refused {
			return err
		}
		c.note("%s, a mount below %s, is read-only: %s", target, root, refusal.Why)
	}
	c.result.ReadOnly = append(c.result.ReadOnly, target)
	return nil
}
