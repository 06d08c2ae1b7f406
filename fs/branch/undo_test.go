package branch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/sys"
	"try/fs/vfs"
)

// retired makes a branch and a record of it.
func (w *world) retired(name string, displaced func(slots string) error) {
	w.t.Helper()
	b := w.create(name)
	if err := retire(b, len(b.Roots)-1, w.mounts, displaced); err != nil {
		w.t.Fatal(err)
	}
}

// retire makes a record of b as if its commit were done. displaced is what that
// would have left in the slots of root i.
func retire(b *Branch, i int, mounts []sys.Mount, displaced func(slots string) error) error {
	slots, err := b.Slots(i, mounts)
	if err != nil {
		return err
	}
	err = errors.Join(
		displaced(slots),
		os.WriteFile(b.Path()+"/"+journalName, []byte("a journal"), 0o600),
		b.Announce([]string{"M-/f"}), b.SetState(Committing), b.Sealed(), b.SetState(Committed))
	if err != nil {
		return err
	}
	return b.Retire()
}

func nothing(string) error { return nil }

// TestRecords: committed branches become records in the order of their commits,
// their names are free, and Tidy leaves of them what undoing needs.
func TestRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"one", "two", "one"} {
		w.retired(name, func(slots string) error { return os.WriteFile(slots+"/1", []byte(name), 0o600) })
	}
	if err := w.store.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if infos, err := w.store.Branches(); err != nil || len(infos) > 0 {
		t.Errorf("branches: %v, %v", infos, err)
	}
	list, err := w.store.Records()
	if err != nil || len(list) != 3 {
		t.Fatalf("records: %v, %v", list, err)
	}
	var got []string
	for _, n := range list {
		r, err := w.store.OpenRecord(n)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Name)
		if _, err := w.store.OpenRecord(n); !errors.Is(err, ErrLocked) {
			t.Errorf("a record that is open is opened again: %v", err)
		}
		entries, err := os.ReadDir(r.Path())
		if err != nil {
			t.Fatal(err)
		}
		var in []string
		for _, e := range entries {
			in = append(in, e.Name())
		}
		slots := "undo" + string(rune('0'+len(r.Roots)-1))
		if want := []string{journalName, lockName, metaName, sizeName, slots}; !slices.Equal(in, want) {
			t.Errorf("record %s holds %q, want %q", n, in, want)
		}
		if size, err := r.Size(); err != nil || size < 4096 || size > 1<<20 {
			t.Errorf("size %d, %v", size, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if want := []string{"one", "two", "one"}; !slices.Equal(got, want) || list[0].Number <= list[1].Number || list[1].Number <= list[2].Number {
		t.Errorf("records %q with numbers %v, want the newest first", got, list)
	}
}

// TestDropFails: a record that gc cannot rename stays as it is; one that it has
// renamed is gone.
func TestDropFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.retired("one", nothing)
	open := func() *Record {
		t.Helper()
		list, err := w.store.Records()
		if err != nil || len(list) != 1 {
			t.Fatalf("records: %v, %v", list, err)
		}
		r, err := w.store.OpenRecord(list[0])
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, errno := range []unix.Errno{unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EACCES} {
		err := open().Drop(&vfs.Fault{FS: vfs.Disk(), Before: func(vfs.Op) error { return errno }})
		if !errors.Is(err, errno) || !strings.Contains(err.Error(), "drop the undo record of one") {
			t.Errorf("drop: %v, want %v", err, errno)
		}
	}
	if err := open().Drop(vfs.Disk()); err != nil {
		t.Fatal(err)
	}
	if list, err := w.store.Records(); err != nil || len(list) > 0 {
		t.Errorf("records after a drop: %v, %v", list, err)
	}
	if err := w.store.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := append(names(t, w.store.undo), names(t, w.store.trash)...); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestAnnouncedIsPending: what a record announces is pending until it is closed,
// and numbered behind all before it.
func TestAnnouncedIsPending(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.retired("one", nothing)
	list, err := w.store.Records()
	if err != nil {
		t.Fatal(err)
	}
	pending := func(want int) {
		t.Helper()
		if got, err := w.store.PendingRecords(); err != nil || len(got) != want {
			t.Errorf("pending: %v, %v, want %d", got, err, want)
		}
	}
	pending(0)
	last := list[0].Number
	for i, end := range []func(*Record) error{(*Record).Sealed, (*Record).Withdrawn} {
		r, err := w.store.OpenRecord(list[0])
		if err != nil {
			t.Fatal(err)
		}
		n, err := r.Announce([]string{"M-/f"}, last+uint64(i))
		if err != nil || n <= last {
			t.Fatalf("announced as %d, %v, the last was %d", n, err, last)
		}
		last = n
		pending(1)
		if got, err := r.Announced(); err != nil || got != n {
			t.Errorf("announced: %d, %v, want %d", got, err, n)
		}
		// A sweep in between leaves it open: the record is alive.
		if err := errors.Join(r.Close(), w.store.Tidy(t.Context())); err != nil {
			t.Fatal(err)
		}
		pending(1)
		if r, err = w.store.OpenRecord(list[0]); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(end(r), r.Close()); err != nil {
			t.Fatal(err)
		}
		pending(0)
	}
}

// checkRecord: what a further store holds of a record is the record's, until
// that is dropped.
func checkRecord(w *world) error {
	b, i, err := w.checkCreate("home/proj")
	if err != nil {
		return err
	}
	var displaced string
	err = retire(b, i, w.mounts, func(slots string) error {
		displaced = slots + "/1"
		return os.WriteFile(displaced, []byte("displaced"), 0o600)
	})
	if err != nil {
		return err
	}
	if err := expect("the slots' place", strings.HasPrefix(displaced, w.path("tmp")+"/"), true); err != nil {
		return err
	}
	for range 2 {
		if err := w.store.Tidy(context.Background()); err != nil {
			return err
		}
	}
	if _, err := os.Stat(displaced); err != nil {
		return err
	}
	list, err := w.store.Records()
	if err != nil {
		return err
	}
	r, err := w.store.OpenRecord(list[0])
	if err != nil {
		return err
	}
	if err := errors.Join(r.Drop(vfs.Disk()), w.store.Tidy(context.Background())); err != nil {
		return err
	}
	_, err = os.Stat(filepath.Dir(displaced))
	return errors.Join(expect("the slots are gone", errors.Is(err, os.ErrNotExist), true), expectNone(w.store.stores))
}
