package branch

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// Weight is what decides how long a record is kept.
type Weight struct {
	Time  time.Time // of the commit, or of the last undoing or redoing
	Bytes int64
}

// Weigh weighs a record; the zero Weight is one that is gone.
func (s *Store) Weigh(n RecordName) (Weight, error) {
	dir, err := s.undo.Sub(n.String())
	if errors.Is(err, unix.ENOENT) {
		return Weight{}, nil
	}
	if err != nil {
		return Weight{}, err
	}
	r := &Record{Meta: Meta{ID: n.ID}, Number: n.Number, store: s, dir: dir}
	defer r.Close()
	var w Weight
	if w.Time, err = r.Time(); err == nil {
		w.Bytes, err = r.Size()
	}
	return w, err
}

// Time is when the record was last written to: by its commit, or by an undoing
// or a redoing since.
func (r *Record) Time() (time.Time, error) {
	entries, err := r.dir.Entries()
	if err != nil {
		return time.Time{}, err
	}
	last := sys.Time(0)
	for _, e := range entries {
		if e.Name != journalName && !strings.HasPrefix(e.Name, journalName+".") {
			continue
		}
		st, err := r.dir.Stat(e.Name)
		if err != nil {
			return time.Time{}, err
		}
		last = max(last, st.Mtime)
	}
	return time.Unix(0, int64(last)), nil
}

// keptName holds why gc must leave the record.
const keptName = "kept"

// SetKept notes why the record must not be collected; "": it may be.
func (r *Record) SetKept(why string) error {
	if why != "" {
		return replaceFile(r.dir, keptName, []byte(why), false)
	}
	if err := r.dir.Unlink(keptName); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// Kept is what SetKept has noted.
func (r *Record) Kept() (string, error) {
	text, err := readFile(r.dir, keptName, 1<<20)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	return string(text), err
}

// sizeName holds what Size has found, so that it is found once.
const sizeName = "size"

// Size is how much of the disk the record takes, in bytes of allocated blocks.
func (r *Record) Size() (int64, error) {
	text, err := readFile(r.dir, sizeName, 64)
	if err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			return n, nil
		}
	} else if !errors.Is(err, unix.ENOENT) {
		return 0, err
	}
	total, err := blocks(r.dir)
	if err != nil {
		return 0, fmt.Errorf("measure the undo record of %s: %w", r.Name, err)
	}
	stores, err := r.furtherStores()
	if err != nil {
		return 0, err
	}
	for _, id := range stores {
		p, err := r.store.openFurther(id)
		if err != nil {
			continue
		}
		sub, err := p.dir.Sub(r.ID)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return 0, err
		}
		n, err := blocks(sub)
		if err := errors.Join(err, sub.Close()); err != nil {
			return 0, err
		}
		total += n
	}
	if r.lock == nil {
		return total, nil
	}
	return total, replaceFile(r.dir, sizeName, []byte(strconv.FormatInt(total, 10)+"\n"), false)
}

// slimAll makes every record that is new as small as it can be, and measures it.
func (s *Store) slimAll(ctx context.Context) error {
	list, err := s.Records()
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range list {
		if _, err := s.undo.Stat(n.String() + "/" + sizeName); !errors.Is(err, unix.ENOENT) || ctx.Err() != nil {
			continue
		}
		r, err := s.OpenRecord(n)
		if err != nil {
			continue // in use, of another machine, or damaged: whoever lists records says so
		}
		errs = append(errs, r.slim(ctx), r.Close())
	}
	return errors.Join(errs...)
}

// slim removes what was the session's alone: work directories, and layers in
// which nothing is left.
func (r *Record) slim(ctx context.Context) error {
	entries, err := r.dir.Entries()
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch n := strings.TrimLeft(e.Name, "uw"); {
		case strings.HasPrefix(e.Name, metaName+"."), strings.HasPrefix(e.Name, sizeName+"."), strings.HasPrefix(e.Name, keptName+"."):
			err = r.dir.Unlink(e.Name) // of a writer that was killed
		case !isNumber(n) || len(n)+1 != len(e.Name):
		case e.Name[0] == 'w':
			err = remove(ctx, r.dir, e.Name)
		default:
			if err = r.dir.Rmdir(e.Name); errors.Is(err, unix.ENOTEMPTY) {
				err = nil
			}
		}
		if err != nil {
			return fmt.Errorf("tidy the undo record of %s: %w", r.Name, err)
		}
	}
	_, err = r.Size()
	return err
}

// Resized forgets what Size has found: something is about to be moved.
func (r *Record) Resized() error {
	if err := r.dir.Unlink(sizeName); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// blocks sums up what d and all below it take, each inode once. What cannot be
// read is not opened up for it: below d lies what was the user's.
func blocks(d *sys.Dir) (int64, error) {
	st, err := d.Stat("")
	if err != nil {
		return 0, err
	}
	total := st.Blocks
	twins := map[uint64]bool{}
	err = sys.Walk(d, func(v sys.Visit) (bool, error) {
		if v.Stat.Nlink > 1 && !v.Stat.IsDir() {
			if twins[v.Stat.Ino] {
				return false, nil
			}
			twins[v.Stat.Ino] = true
		}
		total += v.Stat.Blocks
		return v.Stat.IsDir() && v.Dir.Access(v.Node.Name, unix.R_OK|unix.X_OK) == nil, nil
	}, nil)
	return total * 512, err
}
