package branch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/fs/vfs"
)

// A part of a branch is committed so: the changes are split over two new
// layers of each root, which share their files with the old one by hard links.
// One belongs to a branch of its own, the part, which is committed like any
// other. The other, the rest, waits in the branch's directory. Once the part's
// commit is done the branch takes the rest's layers for its own by one durable
// write of its metadata; whoever recovers does it too, since the part's
// metadata say which they are. Until then nothing of the branch has changed.
//
// A part is a draft for all of its life: without a journal it goes to the trash
// as soon as nobody holds it.

// Rest is what a branch becomes when its part is committed.
type Rest struct {
	Of      string            `json:"of"`      // id of the branch
	Numbers []int             `json:"numbers"` // of its layers, by root
	Seen    []json.RawMessage `json:"seen"`    // by root
}

// Cut is how one root is split.
type Cut struct {
	Part, Rest *Part
	Seen       json.RawMessage // of the rest, when the part is committed
}

// Split makes a part of b. A kept branch only; b's lock is held.
func (b *Branch) Split(ctx context.Context, fs vfs.FS, cuts []Cut) (*Branch, error) {
	fs.Part("split")
	if b.State != Kept || len(cuts) != len(b.Roots) {
		return nil, fmt.Errorf("split branch %s: it is %s", b.Name, b.State)
	}
	if err := b.dropStray(fs); err != nil {
		return nil, fmt.Errorf("split branch %s: %w", b.Name, err)
	}
	m := b.Meta
	m.Draft, m.Rest, m.Synced = true, &Rest{Of: b.ID}, false
	m.Roots = slices.Clone(b.Roots)
	for i := range m.Roots {
		m.Roots[i].Number = i
	}
	p, err := b.store.begin(m, func(taken map[string]string) (string, error) {
		return freeName(b.Name+"-part", taken), nil
	})
	if err != nil {
		return nil, fmt.Errorf("split branch %s: %w", b.Name, err)
	}
	for i := range b.Roots {
		if err := b.splitRoot(ctx, fs, p, i, cuts[i]); err != nil {
			return nil, errors.Join(fmt.Errorf("split branch %s: %w", b.Name, composing(b.Roots[i].Path, err)), p.Discard())
		}
		p.Rest.Seen = append(p.Rest.Seen, cuts[i].Seen)
	}
	// What the rest holds is on disk before the part's commit can be, and so is
	// what says where it lies.
	p.Synced = true
	err = b.syncLayers()
	if err == nil {
		err = errors.Join(b.dir.Sync(), p.Save(), b.store.branches.Sync())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("split branch %s: %w", b.Name, err), p.Discard())
	}
	return p, nil
}

// splitRoot composes both layers of root i: the rest first, while the files of
// the old layer have only their own names.
func (b *Branch) splitRoot(ctx context.Context, fs vfs.FS, p *Branch, i int, cut Cut) error {
	r := &b.Roots[i]
	from, err := b.openHolder(i)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := p.openHolder(i)
	if err != nil {
		return err
	}
	defer to.Close()
	base, err := sys.OpenDir(r.Path)
	if err != nil {
		return err
	}
	defer base.Close()
	number := len(b.Roots)
	for taken := true; taken; number++ {
		_, err := from.Stat(upperName(number))
		if taken = err == nil; err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	number--
	c := &composer{ctx: ctx, fs: fs, base: base, owners: sys.Root(), links: singles}
	if err := c.compose(from, upperName(r.Number), from, upperName(number), cut.Rest); err != nil {
		return err
	}
	c.links = links
	if err := c.compose(from, upperName(r.Number), to, upperName(i), cut.Part); err != nil {
		return err
	}
	for d, name := range map[*sys.Dir]string{from: workName(number), to: workName(i)} {
		if err := d.Mkdir(name, 0o700); err != nil {
			return err
		}
	}
	p.Rest.Numbers = append(p.Rest.Numbers, number)
	return nil
}

// TakeRest makes b what is left of it now that part is committed. It may be
// done twice. b leaves its group, which part has won.
func (b *Branch) TakeRest(fs vfs.FS, part *Branch) error {
	fs.Part("rest")
	rest := part.Rest
	if rest == nil || rest.Of != b.ID || len(rest.Numbers) != len(b.Roots) || len(rest.Seen) != len(b.Roots) {
		return fmt.Errorf("take the rest of %s: %s is no part of it", b.Name, part.Name)
	}
	if !slices.Contains(b.Own, part.ID) {
		for i := range b.Roots {
			b.Roots[i].Number, b.Roots[i].Seen = rest.Numbers[i], rest.Seen[i]
		}
		b.Own, b.Group, b.Index, b.Epoch = append(b.Own, part.ID), "", 0, 0
		if err := b.saveBy(fs); err != nil {
			return fmt.Errorf("take the rest of %s: %w", b.Name, err)
		}
	}
	return b.dropStray(fs)
}

// saveBy is Save, durable, and with points at which tests crash it.
func (b *Branch) saveBy(fs vfs.FS) error {
	text, err := b.Meta.encode()
	if err != nil {
		return err
	}
	name := metaName + "." + newID()
	f, err := fs.Open(b.dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = fs.Replace(b.dir, name, b.dir, metaName)
	}
	if err != nil {
		return errors.Join(err, b.dir.Unlink(name))
	}
	return fs.SyncDir(b.dir)
}

// dropStray moves to the trash what lies beside b's layers: those of before the
// last part, or of a part that was never committed.
func (b *Branch) dropStray(fs vfs.FS) error {
	mine := map[string]map[string]bool{}
	for _, r := range b.Roots {
		if mine[r.Store] == nil {
			mine[r.Store] = map[string]bool{}
		}
		mine[r.Store][upperName(r.Number)], mine[r.Store][workName(r.Number)] = true, true
	}
	for store, names := range mine {
		holder, trash, prefix := b.dir, b.store.trash, ""
		if store != "" {
			p, err := b.store.openFurther(store)
			if err != nil {
				return err
			}
			if holder, err = p.dir.Sub(b.ID); err != nil {
				return err
			}
			defer holder.Close()
			trash, prefix = p.dir, gonePrefix
		}
		entries, err := holder.Entries()
		if err != nil {
			return err
		}
		for _, e := range entries {
			if isLayerName(e.Name) && !names[e.Name] {
				if err := fs.Rename(holder, e.Name, trash, prefix+newID()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// isLayerName says that a name is a layer's, or a work directory's.
func isLayerName(name string) bool {
	stem, _ := strings.CutSuffix(name, ".twins")
	if len(stem) < 2 || stem[0] != 'u' && stem[0] != 'w' {
		return false
	}
	_, err := strconv.ParseUint(stem[1:], 10, 32)
	return err == nil
}

// openHolder opens the directory in which the layer of root i lies.
func (b *Branch) openHolder(i int) (*sys.Dir, error) {
	path, err := b.holder(i)
	if err != nil {
		return nil, err
	}
	return sys.OpenDir(path)
}

// begin makes a draft among the branches, without layers, and holds its lock.
func (s *Store) begin(m Meta, name func(taken map[string]string) (string, error)) (b *Branch, err error) {
	err = holding(s.dir, lockName, func() error {
		if err := s.sweepBranches(); err != nil { // drafts that a crash left have names, too
			return err
		}
		taken, err := s.names()
		if err != nil {
			return err
		}
		if m.Name, err = name(taken); err != nil {
			return err
		}
		m.ID = newID()
		dir, l, err := s.makeDraft(m.ID)
		if err != nil {
			return err
		}
		b = &Branch{Meta: m, store: s, dir: dir, lock: l, sync: map[string]*os.File{}}
		for id := range b.storesUsed() {
			if id == "" {
				continue
			}
			p, err := s.openFurther(id)
			if err == nil {
				err = p.dir.Mkdir(m.ID, 0o700)
			}
			if err != nil {
				return errors.Join(err, b.drop(s.spare))
			}
		}
		return s.publish(b)
	})
	return b, err
}

// Source is a branch of which another one is composed, and what it gives, by
// root.
type Source struct {
	Branch *Branch
	Parts  []*Part
}

// Combine makes a kept branch of parts of others, all of the same roots. Those
// stay as they are: files are copied, so that none is ever shared. m is what
// the new branch knows of itself, its layers apart; finish is called when they
// are composed, and may alter it before it becomes a branch.
func (s *Store) Combine(ctx context.Context, fs vfs.FS, m Meta, sources []Source, finish func(*Branch) error) (*Branch, error) {
	fs.Part("combine")
	if err := CheckName(m.Name); err != nil {
		return nil, err
	}
	wanted := m.Name
	m.Draft, m.Synced, m.State = true, false, Kept
	m.Roots = slices.Clone(m.Roots)
	for i := range m.Roots {
		m.Roots[i].Number = i
	}
	b, err := s.begin(m, func(taken map[string]string) (string, error) {
		if taken[wanted] != "" {
			return "", fmt.Errorf("%s: %w", wanted, ErrExists)
		}
		return wanted, nil
	})
	if err != nil {
		return nil, err
	}
	for i := range b.Roots {
		for k := range sources {
			if err := b.add(ctx, fs, i, &sources[k]); err != nil {
				return nil, errors.Join(composing(b.Roots[i].Path, err), b.Discard())
			}
		}
	}
	err = finish(b)
	if err == nil {
		b.Draft = false
		err = b.Keep(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.Discard())
	}
	return b, nil
}

// add composes what a source gives to root i.
func (b *Branch) add(ctx context.Context, fs vfs.FS, i int, src *Source) error {
	from, err := src.Branch.openHolder(i)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := b.openHolder(i)
	if err != nil {
		return err
	}
	defer to.Close()
	base, err := sys.OpenDir(b.Roots[i].Path)
	if err != nil {
		return err
	}
	defer base.Close()
	c := &composer{ctx: ctx, fs: fs, base: base, owners: sys.Root(), into: true}
	if err := c.compose(from, upperName(src.Branch.Roots[i].Number), to, upperName(i), src.Parts[i]); err != nil {
		return err
	}
	return ignoreExist(to.Mkdir(workName(i), 0o700))
}

// freeName is wanted, shortened to what a name may be, and numbered if it is
// taken.
func freeName(wanted string, taken map[string]string) string {
	const room = maxName - 4
	stem := wanted[:min(len(wanted), room)]
	name := stem
	for i := 2; taken[name] != ""; i++ {
		name = stem + strconv.Itoa(i)
	}
	return name
}
