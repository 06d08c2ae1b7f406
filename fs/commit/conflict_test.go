package commit

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/changes"
	"try/fs/layer/layertest"
	"try/fs/sys"
	"try/fs/vfs"
)

// during does f once, before the first call of a commit that is of kind k.
func during(k vfs.Kind, f func()) vfs.FS {
	done := false
	return &vfs.Fault{FS: vfs.Disk(), Before: func(op vfs.Op) error {
		if !done && op.Kind == k && op.Part == "apply" {
			done = true
			f()
		}
		return nil
	}}
}

// wantConflict is a commit that must not take place, for a reason that holds
// word and names path.
func wantConflict(t *testing.T, err error, path, word string) *ConflictError {
	t.Helper()
	c, ok := errors.AsType[*ConflictError](err)
	if !ok {
		t.Fatalf("commit = %v, want a conflict at %s", err, path)
	}
	for _, k := range c.Conflicts {
		if k.Path == path && strings.Contains(k.Reason, word) {
			return c
		}
	}
	t.Fatalf("conflicts %v, want %q at %s", c.Conflicts, word, path)
	return nil
}

// TestSaveInTheMiddle: an editor saves by rename after the steps have begun.
// Its file stays, all else goes back.
func TestSaveInTheMiddle(t *testing.T) {
	layertest.Skip(t)
	for _, k := range []vfs.Kind{vfs.Exchange, vfs.Rename} {
		t.Run(k.String(), func(t *testing.T) {
			r := newRig(t, op{"write", "a", "old"}, op{"write", "m", "old"}, op{"write", "z", "old"})
			ops := []op{{"write", "a", "new"}, {"write", "m", "mine"}, {"write", "z", "new"}}
			if k == vfs.Rename {
				ops = []op{{"rm", "a"}, {"rm", "m"}, {"rm", "z"}}
			}
			r.session(ops...)
			calls := 0
			save := &vfs.Fault{FS: vfs.Disk(), Before: func(o vfs.Op) error {
				if o.Kind != k || o.Part != "apply" {
					return nil
				}
				if calls++; calls == 2 { // between the look at m and its step
					check(t, os.WriteFile(r.dir+"/saved", []byte("theirs"), 0o644))
					return os.Rename(r.dir+"/saved", r.base()+"/m")
				}
				return nil
			}}
			c := wantConflict(t, r.commit(save), "m", "")
			if !c.RolledBack {
				t.Error("nothing was rolled back")
			}
			for name, want := range map[string]string{"a": "old", "m": "theirs", "z": "old"} {
				if b, err := os.ReadFile(r.base() + "/" + name); err != nil || string(b) != want {
					t.Errorf("base %s holds %q, %v, want %q", name, b, err, want)
				}
			}
			if o, err := Recover(vfs.Disk(), r.store()); o != RolledBack || err != nil {
				t.Errorf("recover: %v, %v", o, err)
			}
		})
	}
}

// TestNewFileInADoomedDirectory: somebody adds to a directory while it is
// taken out, at any depth (H8).
func TestNewFileInADoomedDirectory(t *testing.T) {
	layertest.Skip(t)
	for name, ops := range map[string][]op{
		"deleted": {{"rmtree", "d"}}, "made anew": {{"rmtree", "d"}, {"mkdir", "d"}, {"write", "d/new", "n"}},
		"a file now": {{"rmtree", "d"}, {"write", "d", "file"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, op{"write", "a", "old"}, op{"mkdir", "d"}, op{"mkdir", "d/sub"}, op{"write", "d/sub/x", "x"})
			r.session(append([]op{{"write", "a", "new"}}, ops...)...)
			k := vfs.Exchange
			if name == "deleted" {
				k = vfs.Rename
			}
			before := look(t, r.base())
			c := wantConflict(t, r.commit(during(k, func() {
				check(t, os.WriteFile(r.base()+"/d/sub/theirs", []byte("theirs"), 0o644))
			})), "d", "below it")
			if !c.RolledBack || len(c.Left) > 0 {
				t.Errorf("conflict %+v", c)
			}
			after := look(t, r.base())
			if after["d/sub/theirs"].content != "theirs" {
				t.Error("their file is gone")
			}
			delete(after, "d/sub/theirs")
			before["d/sub"] = after["d/sub"] // its time is theirs
			same(t, "base", after, before)

			// Before the commit it is an ordinary conflict, named by its path.
			wantConflict(t, errorOf(r.drift()), "d/sub/theirs", "changed in the base")
		})
	}
}

func errorOf(found []Conflict) error { return &ConflictError{Conflicts: found} }

// TestRollBackLeavesNewerThings: what somebody made of our file before the
// roll-back stays, and what was there before is kept and named.
func TestRollBackLeavesNewerThings(t *testing.T) {
	layertest.Skip(t)
	r := newRig(t, op{"write", "a", "old"}, op{"write", "b", "old"}, op{"write", "z", "old"})
	r.session(op{"write", "a", "new"}, op{"rm", "b"}, op{"write", "z", "new"})
	calls := 0
	err := r.commit(&vfs.Fault{FS: vfs.Disk(), Before: func(o vfs.Op) error {
		if o.Part != "apply" || o.Kind != vfs.Exchange {
			return nil
		}
		if calls++; calls == 2 {
			check(t, os.WriteFile(r.base()+"/a", []byte("edited again"), 0o644))
			check(t, os.WriteFile(r.base()+"/b", []byte("made again"), 0o644))
			return unix.EIO
		}
		return nil
	}})
	c, ok := errors.AsType[*ConflictError](err)
	if !ok || len(c.Left) != 2 || !errors.Is(err, unix.EIO) {
		t.Fatalf("commit = %v", err)
	}
	for _, l := range c.Left {
		if b, err := os.ReadFile(l.Kept); err != nil || string(b) != "old" {
			t.Errorf("%s: kept %q, %v", l.Path, b, err)
		}
	}
	for name, want := range map[string]string{"a": "edited again", "b": "made again", "z": "old"} {
		if b, err := os.ReadFile(r.base() + "/" + name); err != nil || string(b) != want {
			t.Errorf("base %s holds %q, %v, want %q", name, b, err, want)
		}
	}
}

// TestDrift: each way in which a base can move, and those that are none.
func TestDrift(t *testing.T) {
	layertest.Skip(t)
	base := []op{{"mkdir", "d"}, {"mkdir", "d/e"}, {"write", "d/e/f", "old"}, {"write", "d/n", "neighbour"}, {"write", "g", "old"},
		{"mkdir", "other"}, {"mkdir", "other/e"}, {"write", "other/e/f", "another"}, {"write", "other/n", "x"}}
	session := []op{{"append", "d/e/f", "mine"}, {"write", "d/e/new", "new"}, {"append", "g", "mine"}}
	for name, c := range map[string]struct {
		theirs     []op
		path, word string // "": no conflict
	}{
		"nothing":             {nil, "", ""},
		"content":             {[]op{{"write", "g", "theirs"}}, "g", "changed in the base"},
		"old time":            {[]op{{"quietly", "g", "theirs"}}, "g", "metadata, link count or renamed"},
		"link":                {[]op{{"link", "g", "h"}}, "g", "metadata, link count or renamed"},
		"mode":                {[]op{{"chmod", "g", "600"}}, "g", "metadata"},
		"gone":                {[]op{{"rm", "g"}}, "g", "gone"},
		"made":                {[]op{{"write", "d/e/new", "theirs"}}, "d/e/new", "changed"},
		"neighbour changed":   {[]op{{"write", "d/n", "x"}, {"write", "d/more", "x"}}, "", ""},
		"neighbour in parent": {[]op{{"write", "d/e/more", "x"}}, "", ""},
		"parent swapped":      {[]op{{"rename", "d/e", "old"}, {"rename", "other/e", "d/e"}}, "d/e", "moved or replaced"},
		"grandparent swapped": {[]op{{"rename", "d", "old"}, {"rename", "other", "d"}}, "d", "moved or replaced"},
		"parent gone":         {[]op{{"rmtree", "d"}}, "d", "gone"},
		"parent a file":       {[]op{{"rmtree", "d"}, {"write", "d", "f"}}, "d", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, base...)
			r.session(session...)
			seen, err := Observe(r.plan(), nil)
			check(t, err)
			if found := r.drift(); len(found) > 0 {
				t.Fatalf("before anything: %v", found)
			}
			r.must(r.base(), c.theirs)
			by := r.drift()
			r.root.Seen = seen[r.base()]
			like, err := Drift(r.plan(), []Root{r.root}, nil, Clock{})
			check(t, err)
			if c.path == "" {
				if len(by)+len(like) > 0 {
					t.Errorf("by time %v, by what was seen %v; want none", by, like)
				}
				check(t, r.commit(vfs.Disk()))
				return
			}
			wantConflict(t, errorOf(by), c.path, c.word)
			if len(like) == 0 {
				t.Error("no conflict with what was seen")
			}
			before := look(t, r.base())
			if err := r.commit(vfs.Disk()); err == nil {
				t.Error("it was committed")
			}
			same(t, "base", look(t, r.base()), before)
		})
	}
}

func TestClockSetBack(t *testing.T) {
	layertest.Skip(t)
	r := newRig(t, op{"write", "g", "old"})
	r.session(op{"append", "g", "mine"})
	for _, back := range []sys.Time{1e9, 86400e9} {
		clock := Clock{Fork: Moment{100e9, 50e9, "x"}, Now: Moment{110e9 - back, 60e9, "x"}}
		found, err := Drift(r.plan(), []Root{r.root}, nil, clock)
		check(t, err)
		wantConflict(t, errorOf(found), "g", "clock")
	}
	found, err := Drift(r.plan(), []Root{r.root}, nil, Clock{Fork: Moment{100e9, 50e9, "x"}, Now: Moment{110e9, 60e9, "x"}})
	if err != nil || len(found) > 0 {
		t.Errorf("a clock that goes: %v, %v", found, err)
	}
}

// TestOtherCommits: a commit of another branch since the fork, whose files are
// older than the fork.
func TestOtherCommits(t *testing.T) {
	layertest.Skip(t)
	r := newRig(t, op{"mkdir", "d"}, op{"write", "d/f", "old"}, op{"mkdir", "x"}, op{"write", "x/y", "y"})
	r.session(op{"append", "d/f", "mine"}, op{"rmtree", "x"}, op{"mkdir", "new"}, op{"write", "new/f", "f"})
	for _, c := range []struct {
		theirs Altered
		path   string
	}{
		{Altered{"d/f", changes.Modified, false}, "d/f"},
		{Altered{"d", changes.Modified, true}, "d/f"},
		{Altered{"d", changes.Metadata, true}, ""},
		{Altered{"d", changes.Added, true}, "d/f"},
		{Altered{"new", changes.Added, true}, "new"},
		{Altered{"x/y/z", changes.Added, false}, "x"},
		{Altered{"new/g", changes.Added, false}, ""},
		{Altered{"elsewhere", changes.Deleted, false}, ""},
	} {
		c.theirs.Path = r.base() + "/" + c.theirs.Path
		found, err := Drift(r.plan(), []Root{r.root}, []List{{Number: 1, Branch: "other", Paths: []Altered{c.theirs}}}, Clock{})
		check(t, err)
		if c.path == "" {
			if len(found) > 0 {
				t.Errorf("%v: %v", c.theirs, found)
			}
			continue
		}
		wantConflict(t, errorOf(found), c.path, "branch other")
	}
}

// TestRefusedBeforehand: what cannot be done is found before anything is.
func TestRefusedBeforehand(t *testing.T) {
	layertest.Skip(t)
	base := []op{{"mkdir", "d"}, {"write", "d/f", "f"}, {"write", "g", "g"}}
	try := func(t *testing.T, r *rig, path, word string) {
		t.Helper()
		before, view := look(t, r.base()), r.want()
		c := wantConflict(t, r.commit(vfs.Disk()), path, word)
		if c.RolledBack {
			t.Error("it was begun")
		}
		same(t, "base", look(t, r.base()), before)
		same(t, "branch", r.want(), view)
	}
	t.Run("the store", func(t *testing.T) {
		r := newRig(t, base...)
		r.session(op{"rmtree", "d"}, op{"write", "g", "new"})
		for _, p := range []string{"/base/d/f/store", "/base/d"} {
			job := r.job()
			job.Protected = []string{r.dir + p}
			wantConflict(t, job.Commit(t.Context(), vfs.Disk(), r.plan(), nil), "d", "branches are stored")
		}
		job := r.job()
		job.Protected = []string{r.dir + "/base"}
		wantConflict(t, job.Commit(t.Context(), vfs.Disk(), r.plan(), nil), "g", "branches are stored")
	})
	t.Run("another root", func(t *testing.T) {
		r := newRig(t, base...)
		r.session(op{"write", "g", "new"})
		plan := r.plan()
		check(t, os.Rename(r.base(), r.dir+"/elsewhere"))
		check(t, os.Mkdir(r.base(), 0o755))
		err := r.job().Commit(t.Context(), vfs.Disk(), plan, nil)
		wantConflict(t, err, "", "no longer the directory")
	})
	t.Run("open for writing", func(t *testing.T) {
		r := newRig(t, base...)
		r.session(op{"write", "g", "new"}, op{"mkdir", "n"}, op{"write", "n/f", "f"})
		for _, path := range []string{"g", "n/f"} {
			f, err := os.OpenFile(r.layer()+"/"+path, os.O_WRONLY, 0)
			check(t, err)
			try(t, r, path, "open for writing")
			check(t, f.Close())
		}
		check(t, r.commit(vfs.Disk()))
	})
	t.Run("changed since it was shown", func(t *testing.T) {
		for _, change := range []string{"g", "n/f", "n/more"} {
			r := newRig(t, base...)
			r.session(op{"write", "g", "new"}, op{"mkdir", "n"}, op{"write", "n/f", "f"})
			plan := r.plan()
			check(t, os.WriteFile(r.layer()+"/"+change, []byte("evil"), 0o644))
			path := change
			if change == "n/more" {
				path = "n" // its directory's time shows it first
			}
			wantConflict(t, r.job().Commit(t.Context(), vfs.Disk(), plan, nil), path, "since the changes were listed")
		}
	})
	t.Run("no write permission", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("needs root to give a directory away")
		}
		r := newRig(t, base...)
		r.session(op{"write", "d/f", "new"})
		check(t, unix.Setxattr(r.base()+"/d", "user.a", []byte("1"), 0))
		// Immutable is what stops root as well.
		f, err := os.Open(r.base() + "/d")
		check(t, err)
		defer f.Close()
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0x10); err != nil {
			t.Skipf("chattr +i: %v", err)
		}
		defer func() { check(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0)) }()
		try(t, r, "d", "immutable")
	})
}

// TestDirectoriesBecomeLinks: at each call of a commit, a directory of the base
// that it acts in becomes a link that leads out, and later a directory again.
// Nothing there changes, and nothing is lost.
func TestDirectoriesBecomeLinks(t *testing.T) {
	layertest.Skip(t)
	base := []op{{"mkdir", "d"}, {"mkdir", "d/e"}, {"write", "d/e/f", "f"}, {"write", "d/e/g", "g"}, {"write", "d/h", "h"}, {"write", "z", "z"}}
	for n := 1; ; n++ {
		r := newRig(t, base...)
		r.session(op{"append", "d/e/f", "!"}, op{"rm", "d/e/g"}, op{"write", "d/e/new", "n"}, op{"chmod", "d/h", "600"}, op{"mkdir", "d/e/dir"}, op{"write", "d/e/dir/in", "i"}, op{"append", "z", "!"})
		check(t, os.CopyFS(r.dir+"/out", os.DirFS(r.base()+"/d")))
		out, before, want := look(t, r.dir+"/out"), look(t, r.base()), r.want()
		delete(before, "") // its time moves with the directory
		delete(want, "")
		count, swapped := 0, false
		err := r.commit(&vfs.Fault{FS: vfs.Disk(), Before: func(o vfs.Op) error {
			if count++; count == n {
				swapped = true
				check(t, os.Rename(r.base()+"/d", r.dir+"/aside"))
				check(t, os.Symlink(r.dir+"/out", r.base()+"/d"))
			}
			return nil
		}})
		same(t, fmt.Sprintf("outside, swapped at call %d", n), look(t, r.dir+"/out"), out)
		if !swapped {
			check(t, err)
			return
		}
		check(t, os.Remove(r.base()+"/d"))
		check(t, os.Rename(r.dir+"/aside", r.base()+"/d"))
		o, recovered := Recover(vfs.Disk(), r.store())
		if err == nil && o != Committed {
			t.Errorf("call %d: the commit is done, and is %v, %v", n, o, recovered)
		}
		got := look(t, r.base())
		delete(got, "")
		switch c, _ := errors.AsType[*ConflictError](errors.Join(err, recovered)); {
		case o == Committed:
			same(t, fmt.Sprintf("base, committed, swapped at call %d", n), got, want)
		case c == nil || len(c.Left) == 0:
			same(t, fmt.Sprintf("base, %v, swapped at call %d", o, n), got, before)
		default: // it could not be reached to put everything back; nothing of it is gone
			for _, l := range c.Left {
				if _, err := os.Lstat(l.Kept); l.Kept != "" && err != nil {
					t.Errorf("call %d: left %+v: %v", n, l, err)
				}
			}
		}
	}
}
