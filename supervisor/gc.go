package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"try/fs/branch"
	"try/fs/commit"
	"try/fs/vfs"
	"try/supervisor/policy"
)

// Collected is one undo record that gc looked at because the policy does not
// keep it any longer.
type Collected struct {
	Branch, ID string
	Number     uint64
	Committed  time.Time
	Bytes      int64
	Reason     string // "older than 7d"
	Kept       string // why it stays all the same
}

// GC drops the undo records that the user's policy does not keep, oldest first,
// or with dry only says which. A record stays as long as somebody writes to what
// a commit displaced, since that is kept nowhere else (H9).
func (h *Home) GC(ctx context.Context, dry bool) ([]Collected, error) {
	limits, err := undoLimits(policy.Places{Home: h.user, Config: configHome()})
	if err != nil {
		return nil, err
	}
	list, err := collect(ctx, h.store, limits, dry)
	if err == nil && !dry {
		err = h.tidy()
	}
	return list, err
}

// undoLimits are those of the user's policy: a project does not decide how long
// the commits of all directories can be undone.
func undoLimits(p policy.Places) (policy.Undo, error) {
	pol, _, err := policy.Load(p)
	if err != nil {
		return policy.Undo{}, err
	}
	return pol.Settings().Undo, nil
}

// collect goes through the records, the oldest first.
func collect(ctx context.Context, s *branch.Store, limits policy.Undo, dry bool) ([]Collected, error) {
	names, err := s.Records()
	if err != nil {
		return nil, err
	}
	slices.Reverse(names)
	weights := make([]branch.Weight, len(names))
	count, total := int64(0), int64(0)
	for i, n := range names {
		if weights[i], err = s.Weigh(n); err != nil {
			return nil, err
		}
		count++
		total += weights[i].Bytes
	}
	var list []Collected
	var errs []error
	for i, n := range names {
		if ctx.Err() != nil {
			break
		}
		w := weights[i]
		reason := ""
		switch {
		case time.Since(w.Time) > limits.Keep:
			reason = "older than " + policy.FormatDuration(limits.Keep)
		case count > limits.MaxCount:
			reason = fmt.Sprintf("more than %d commits", limits.MaxCount)
		case total > limits.MaxBytes:
			reason = fmt.Sprintf("more than %d bytes", limits.MaxBytes)
		default:
			continue
		}
		c := Collected{ID: n.ID, Number: n.Number, Committed: w.Time, Bytes: w.Bytes, Reason: reason}
		if err := collectOne(ctx, s, n, &c, dry); err != nil {
			errs = append(errs, err)
			continue
		}
		if c.Branch == "" {
			continue // in use, or of another machine
		}
		list = append(list, c)
		count-- // one that must stay is not at the cost of others
		total -= w.Bytes
	}
	return list, errors.Join(errs...)
}

// collectOne drops one record under its lock and the commit lock.
func collectOne(ctx context.Context, s *branch.Store, n branch.RecordName, c *Collected, dry bool) error {
	b, err := s.OpenRecord(n)
	if errors.Is(err, branch.ErrLocked) || errors.Is(err, branch.ErrUnknown) || errors.Is(err, branch.ErrForeign) {
		return nil
	}
	if err != nil {
		return err
	}
	c.Branch = b.Name
	if c.Kept, err = needed(b); err != nil || c.Kept != "" || dry {
		return errors.Join(err, b.Close())
	}
	lock, err := s.LockCommits(ctx, "try gc", nil)
	if err != nil {
		return errors.Join(err, b.Close())
	}
	return errors.Join(b.Drop(vfs.Disk()), lock.Unlock())
}

// needed says why a record must stay, and notes it in the record.
func needed(b *branch.Record) (why string, err error) {
	rec, err := commit.OpenRecord(b.Path())
	if errors.Is(err, commit.ErrDamaged) || errors.Is(err, commit.ErrUnfinished) {
		return err.Error(), nil
	}
	if err != nil {
		return "", err
	}
	if err := verifyRecord(b, rec.Branch, rec.Roots()); err != nil {
		return err.Error(), nil
	}
	changed, err := rec.Changed()
	if err != nil {
		return "", err
	}
	if len(changed) > 0 {
		why = changed[0].String()
	}
	return why, b.SetKept(why)
}
