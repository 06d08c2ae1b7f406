package commit

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/layer/layertest"
	"try/fs/sys"
	"try/fs/vfs"
)

// names lists the files of a tree that have several names in it: the names of
// each, joined by " = ".
func names(t testing.TB, dir string) []string {
	t.Helper()
	d, err := sys.OpenDir(dir)
	check(t, err)
	defer d.Close()
	all := map[sys.Identity][]string{}
	check(t, sys.Walk(d, func(v sys.Visit) (bool, error) {
		if v.Stat.IsRegular() {
			all[v.Stat.Identity()] = append(all[v.Stat.Identity()], v.Node.Path())
		}
		return !v.Stat.IsDir() || readable(v.Dir, v.Node.Name), nil
	}, nil))
	var list []string
	for _, group := range all {
		if len(group) == 1 {
			continue // the others are in the store
		}
		list = append(list, strings.Join(group, " = "))
	}
	slices.Sort(list)
	return list
}

func (r *rig) wantNames(want ...string) {
	r.t.Helper()
	if got := names(r.t, r.base()); !slices.Equal(got, want) {
		r.t.Errorf("files with several names: %q, want %q", got, want)
	}
}

// TestLinks: what is one file inside, and what was one file before it was
// written to, is one file after the commit.
func TestLinks(t *testing.T) {
	layertest.Skip(t)
	store := []op{{"mkdir", "s"}, {"write", "s/x", "x"}, {"write", "s/y", "y"}, {"write", "there", "t"}}
	pair := []op{
		{"write", "a", "old"}, {"mkdir", "d"}, {"link", "a", "d/b"}, {"mkdir", "e"}, {"mkdir", "e/f"}, {"link", "a", "e/f/c"},
		{"write", "other", "other"}, {"touch", "other", "1500000000000000000"},
	}
	for _, test := range []struct {
		name string
		base []op
		ops  []op
		want []string
		kept []string // paths whose inode must be the one from before
	}{
		{"made inside", nil, []op{{"write", "n", "n"}, {"link", "n", "m"}, {"mkdir", "d"}, {"link", "n", "d/n"}}, []string{"d/n = m = n"}, nil},
		{"to a base file", store, []op{{"link", "s/x", "n"}, {"link", "s/x", "s/z"}}, []string{"n = s/x = s/z"}, []string{"s/x"}},
		{"in a new directory", store, []op{
			{"mkdir", "nm"}, {"mkdir", "nm/p"}, {"link", "s/x", "nm/p/x"}, {"link", "s/y", "nm/y"}, {"write", "nm/own", "o"}, {"link", "nm/own", "nm/p/own"},
		}, []string{"nm/own = nm/p/own", "nm/p/x = s/x", "nm/y = s/y"}, []string{"s/x", "s/y"}},
		{"in a closed new directory", store, []op{
			{"mkdir", "nm"}, {"mkdir", "nm/p"}, {"link", "s/x", "nm/p/x"}, {"chmod", "nm/p", "555"}, {"link", "s/y", "nm/y"}, {"chmod", "nm", "555"},
		}, []string{"nm/p/x = s/x", "nm/y = s/y"}, []string{"s/x", "s/y"}},
		{"over a base file", store, []op{{"rm", "there"}, {"link", "s/x", "there"}}, []string{"s/x = there"}, []string{"s/x"}},
		{"to a base file with other metadata", store, []op{{"link", "s/x", "n"}, {"chmod", "s/x", "600"}, {"setxattr", "n", "user.a", "1"}}, []string{"n = s/x"}, []string{"s/x"}},
		{"to a base file that is written to", store, []op{{"link", "s/x", "n"}, {"append", "n", "more"}}, []string{"n = s/x"}, nil},
		{"to a base file that goes", store, []op{{"link", "s/x", "n"}, {"rm", "s/x"}}, nil, nil},
		{"written to", pair, []op{{"append", "d/b", " and new"}}, []string{"a = d/b = e/f/c"}, nil},
		{"cut and written", pair, []op{{"write", "a", "new"}}, []string{"a = d/b = e/f/c"}, nil},
		{"written to and linked", pair, []op{{"append", "d/b", " and new"}, {"link", "d/b", "n"}}, []string{"a = d/b = e/f/c = n"}, nil},
		{"linked and then another name written to", pair, []op{{"link", "a", "n"}, {"append", "d/b", " and new"}}, []string{"a = d/b = e/f/c = n"}, nil},
		{"written to and another name deleted", pair, []op{{"append", "d/b", "!"}, {"rm", "a"}}, []string{"d/b = e/f/c"}, nil},
		{"written to and another directory deleted", pair, []op{{"append", "d/b", "!"}, {"rmtree", "e"}}, []string{"a = d/b"}, nil},
		{"written to under two names", pair, []op{{"append", "d/b", "1"}, {"append", "a", "2"}}, nil, nil},
		{"replaced by a new file", pair, []op{{"write", "tmp", "new"}, {"rename", "tmp", "d/b"}}, []string{"a = e/f/c"}, []string{"a"}},
		{"replaced by another file of the base", pair, []op{{"rename", "other", "d/b"}}, []string{"a = e/f/c"}, []string{"a"}},
		{"replaced by another file and written to", pair, []op{{"rename", "other", "d/b"}, {"append", "d/b", "!"}}, []string{"a = e/f/c"}, []string{"a"}},
		{"metadata", pair, []op{{"chmod", "a", "600"}, {"setxattr", "a", "user.k", "v"}}, []string{"a = d/b = e/f/c"}, []string{"a"}},
	} {
		for _, copies := range []bool{false, true} {
			t.Run(map[bool]string{true: "copied/"}[copies]+test.name, func(t *testing.T) {
				r := newRig(t, test.base...)
				r.copy = copies
				r.session(test.ops...)
				if found := r.drift(); len(found) > 0 {
					t.Errorf("drift: %v", found)
				}
				before, groups, want := look(t, r.base()), names(t, r.base()), r.want()
				for _, g := range test.want { // one file has one content
					for _, n := range strings.Split(g, " = ") {
						want[n] = r.contentOf(g, test.ops, want)
					}
				}
				inodes := r.inodes(test.kept)
				// Refused at the last step, and nothing has happened.
				last := 0
				err := r.commit(&vfs.Fault{FS: vfs.Disk(), Before: func(o vfs.Op) error {
					if o.Part == "seal" {
						return nil
					}
					if o.Part == "apply" && (o.Kind == vfs.Rename || o.Kind == vfs.Exchange) {
						if last++; last == r.renames() {
							return unix.EACCES
						}
					}
					return nil
				}})
				if c, ok := errors.AsType[*ConflictError](err); err != nil && (!ok || len(c.Left) > 0) {
					t.Fatalf("refused: %v", err)
				}
				if err != nil {
					same(t, "base, rolled back", look(t, r.base()), before)
					if got := names(t, r.base()); !slices.Equal(got, groups) {
						t.Errorf("rolled back: %q, want %q", got, groups)
					}
					check(t, r.commit(vfs.Disk()))
				}
				same(t, "base", look(t, r.base()), want)
				r.wantNames(test.want...)
				if now := r.inodes(test.kept); !slices.Equal(now, inodes) {
					t.Errorf("%q: inodes %v, were %v", test.kept, now, inodes)
				}
				r.nothingStaged(test.kept, groups)
			})
		}
	}
}

// contentOf is what the names of one file hold in the end: what the session saw
// under the one that it wrote to last.
func (r *rig) contentOf(group string, ops []op, want map[string]entry) entry {
	r.t.Helper()
	list := strings.Split(group, " = ")
	for _, o := range slices.Backward(ops) {
		if slices.Contains([]string{"append", "write", "chmod", "setxattr"}, o[0]) && slices.Contains(list, o[1]) {
			return want[o[1]]
		}
	}
	return want[list[0]]
}

// renames is how many renames the commit takes.
func (r *rig) renames() int {
	n := 0
	for _, c := range r.plan().Roots[0].Changes {
		if !c.Within && c.Fields == nil {
			n++
		}
	}
	return n
}

func (r *rig) inodes(paths []string) []uint64 {
	r.t.Helper()
	var list []uint64
	for _, p := range paths {
		var st unix.Stat_t
		check(r.t, unix.Lstat(r.base()+"/"+p, &st))
		list = append(list, st.Ino)
	}
	return list
}

// nothingStaged: of the files of the base that stayed no name is left in the
// slots, where nothing of theirs was displaced.
func (r *rig) nothingStaged(paths, displaced []string) {
	r.t.Helper()
	if len(displaced) > 0 {
		return
	}
	stay := r.inodes(paths)
	entries, err := os.ReadDir(r.store() + "/slots")
	check(r.t, err)
	for _, e := range entries {
		var st unix.Stat_t
		check(r.t, unix.Lstat(r.store()+"/slots/"+e.Name(), &st))
		if slices.Contains(stay, st.Ino) {
			r.t.Errorf("%s is a name of a file that stays", e.Name())
		}
	}
}
