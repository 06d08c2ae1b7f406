package branch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/engine"
	"try/fs/overlay"
	"try/fs/sys"
)

// What needs mounts runs in a process of its own: root enters a new mount
// namespace, mounts, and becomes the user who runs the checks.

// mountChecks are the checks, by name: each gets a world whose tmp is a memory
// file system.
var mountChecks = map[string]func(*world) error{
	"further":   checkFurther,
	"no-xattr":  checkNoXattr,
	"submount":  checkSubmount,
	"read-only": checkReadOnly,
	"gone":      checkGone,
	"no-trust":  checkNoTrust,
	"foreign":   checkForeign,
	"record":    checkRecord,
}

func TestWithMounts(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make the mounts; it runs this for the user as well")
	}
	for _, uid := range []int{0, 1001} {
		for name := range mountChecks {
			t.Run(fmt.Sprintf("%s/%d", name, uid), func(t *testing.T) {
				t.Parallel()
				w := &world{t: t, dir: t.TempDir()}
				for _, d := range []string{"home/proj", "tmp", "vartmp", "other"} {
					if err := os.MkdirAll(w.path(d), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				err := filepath.WalkDir(w.dir, func(path string, _ os.DirEntry, err error) error {
					return errors.Join(err, os.Chown(path, uid, uid))
				})
				if err != nil {
					t.Fatal(err)
				}
				for dir := w.dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
					if err := os.Chmod(dir, 0o755); err != nil { // testing makes them 0700 of root
						t.Fatal(err)
					}
				}
				ns, err := os.Readlink("/proc/self/ns/mnt")
				if err != nil {
					t.Fatal(err)
				}
				cmd := w.role("mounts", "mount", name, fmt.Sprint(uid), ns)
				cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
				if out, err := cmd.Output(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
	}
}

func init() { roles["mounts"] = mountsRole }

func mountsRole() error {
	args := strings.Fields(os.Getenv("TRY_TEST_ARGS"))
	stage, name, uid, outer := args[0], args[1], args[2], args[3]
	dir := os.Getenv("TRY_TEST_WORLD")
	if stage == "mount" {
		if err := mountWorld(dir, name, uid, outer); err != nil {
			return err
		}
		w := &world{dir: dir}
		cmd := w.role("mounts", "check", name, uid, outer)
		cmd.Stdout = os.Stdout
		var id uint32
		if _, err := fmt.Sscan(uid, &id); err != nil {
			return err
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id, NoSetGroups: id == 0}}
		if name == "no-xattr" {
			cmd.Env = append(cmd.Env, "TRY_TEST_NO=tmpfs-xattr")
		}
		return cmd.Run()
	}
	w := &world{dir: dir}
	var err error
	if w.store, err = OpenStore(w.path("store")); err != nil {
		return err
	}
	if w.mounts, err = sys.Mounts(); err != nil {
		return err
	}
	return mountChecks[name](w)
}

func mountWorld(dir, name, uid, outer string) error {
	if ns, err := os.Readlink("/proc/self/ns/mnt"); err != nil || ns == outer {
		return fmt.Errorf("not in a mount namespace of our own: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	mode := "mode=755,uid=" + uid + ",gid=" + uid
	if name == "no-trust" {
		mode = "mode=777"
	}
	if err := unix.Mount("tmpfs", dir+"/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "size=8m,"+mode); err != nil {
		return err
	}
	switch name {
	case "submount":
		if err := os.Mkdir(dir+"/home/mnt", 0o755); err != nil {
			return err
		}
		return unix.Mount("tmpfs", dir+"/home/mnt", "tmpfs", 0, "size=1m")
	case "read-only":
		if err := unix.Mount(dir+"/other", dir+"/other", "", unix.MS_BIND, ""); err != nil {
			return err
		}
		return unix.Mount("", dir+"/other", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	case "foreign":
		// The user's directory below one of root's in a directory for all.
		if err := errors.Join(os.Chmod(dir+"/vartmp", 0o777|os.ModeSticky), os.Chown(dir+"/vartmp", 0, 0), os.MkdirAll(dir+"/vartmp/a/b/c", 0o755)); err != nil {
			return err
		}
		var id int
		if _, err := fmt.Sscan(uid, &id); err != nil {
			return err
		}
		return errors.Join(os.Chown(dir+"/vartmp/a/b", id, id), os.Chown(dir+"/vartmp/a/b/c", id, id))
	}
	return nil
}

func (w *world) checkCoverage(dir string) (*Coverage, error) {
	return Roots(CoverageOptions{
		Scope: ScopeUser, Dir: w.path(dir), Home: w.path("home"), Engines: []engine.Engine{overlay.Overlay{}}, Mounts: w.mounts,
		Temp: []string{w.path("tmp"), w.path("vartmp")},
	})
}

func (w *world) checkCreate(dir string) (*Branch, int, error) {
	c, err := w.checkCoverage(dir)
	if err != nil {
		return nil, 0, err
	}
	b, err := w.store.Create(CreateOptions{Name: "otter", Roots: c.Roots, Mounts: w.mounts})
	if err != nil {
		return nil, 0, err
	}
	i := slices.IndexFunc(b.Roots, func(r Root) bool { return r.Path == w.path("tmp") })
	if i < 0 {
		return nil, 0, fmt.Errorf("tmp is not covered: %q", w.covered(c))
	}
	return b, i, nil
}

func expect(what string, got, want any) error {
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		return fmt.Errorf("%s = %s, want %s", what, g, w)
	}
	return nil
}

// checkFurther: the layer of a root on another file system lies there; kept,
// it is moved to the home store with all it holds; and nothing stays.
func checkFurther(w *world) error {
	b, i, err := w.checkCreate("home/proj")
	if err != nil {
		return err
	}
	r := b.Roots[i]
	m, err := b.Mount(i)
	if err != nil {
		return err
	}
	places, err := w.store.Places()
	if err != nil {
		return err
	}
	if err := errors.Join(
		expect("Copy", r.Copy, false),
		expect("the layer's place", filepath.Dir(filepath.Dir(filepath.Dir(m.Upper))), w.path("tmp")),
		expect("Places holds the further store", slices.Contains(places, filepath.Dir(filepath.Dir(m.Upper))), true),
		expect("noexec, nosuid, nodev", []bool{m.NoExec, m.NoSuid, m.NoDev}, []bool{true, true, false}),
		fillLayer(m.Upper, m.Work),
	); err != nil {
		return err
	}
	slots, err := b.Slots(i, w.mounts)
	if err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(m.Upper, "plain"), filepath.Join(slots, "1")); err != nil {
		return fmt.Errorf("rename into the slots: %w", err)
	}
	if err := os.Rename(filepath.Join(slots, "1"), filepath.Join(m.Upper, "plain")); err != nil {
		return err
	}
	before, err := describe(m.Upper)
	if err != nil {
		return err
	}
	if err := b.Keep(context.Background()); err != nil {
		return err
	}
	kept, err := b.Layer(i)
	if err != nil {
		return err
	}
	after, err := describe(kept)
	if err != nil {
		return err
	}
	if err := errors.Join(
		expect("the kept layer's place", strings.HasPrefix(kept, w.store.Path()+"/"), true),
		expect("the kept layer", strings.Join(after, "\n"), strings.Join(before, "\n")),
		expect("Copy, Moved", []bool{b.Roots[i].Copy, b.Roots[i].Moved}, []bool{true, true}),
	); err != nil {
		return err
	}
	for j := range b.Roots {
		layer, err := b.Layer(j)
		if err != nil {
			return err
		}
		work := filepath.Join(filepath.Dir(layer), workName(b.Roots[j].Number))
		if entries, err := os.ReadDir(work); err != nil || len(entries) > 0 {
			return fmt.Errorf("work directory after Keep: %v, %v", entries, err)
		}
	}
	if err := b.Close(); err != nil {
		return err
	}
	if b, err = w.store.Open("otter"); err != nil {
		return err
	}
	if err := expect("state", b.State, Kept); err != nil {
		return err
	}
	if slots, err = b.Slots(i, w.mounts); err != nil {
		return err
	}
	if err := expect("the slots' place", strings.HasPrefix(slots, w.path("tmp")+"/"), true); err != nil {
		return err
	}
	if err := errors.Join(b.Discard(), w.store.Tidy(context.Background())); err != nil {
		return err
	}
	left, err := os.ReadDir(w.path("tmp"))
	if err != nil {
		return err
	}
	return errors.Join(expect("left in tmp", left, []os.DirEntry{}), expectNone(w.store.stores))
}

func expectNone(d *sys.Dir) error {
	entries, err := d.Entries()
	return errors.Join(err, expect("left in "+d.Name(), entries, []sys.Dirent{}))
}

// fillLayer writes what overlayfs and hostile commands leave.
func fillLayer(upper, work string) error {
	deep := filepath.Join(upper, "d/e")
	marker := filepath.Join(work, "work/incompat/volatile")
	sparse := filepath.Join(upper, "sparse")
	return errors.Join(
		os.MkdirAll(deep, 0o755), os.MkdirAll(marker, 0o700),
		os.WriteFile(filepath.Join(upper, "plain"), []byte("x"), 0o640),
		os.WriteFile(filepath.Join(deep, "secret"), []byte("y"), 0),
		os.Link(filepath.Join(deep, "secret"), filepath.Join(upper, "twin")),
		os.WriteFile(sparse, nil, 0o600), os.Truncate(sparse, 1<<20),
		os.Symlink("../nowhere", filepath.Join(upper, "link")),
		unix.Mkfifo(filepath.Join(upper, "fifo"), 0o600),
		unix.Mknod(filepath.Join(upper, "gone"), unix.S_IFCHR, 0),
		unix.Setxattr(filepath.Join(upper, "d"), "user.overlay.opaque", []byte("y"), 0),
		unix.Setxattr(filepath.Join(upper, "plain"), "user.note", []byte{0, 1}, 0),
		os.Chtimes(filepath.Join(upper, "plain"), timeAt(5), timeAt(-5)),
		os.Chmod(deep, 0), os.Chmod(filepath.Dir(marker), 0), os.Chmod(filepath.Dir(filepath.Dir(marker)), 0),
		os.Chtimes(filepath.Join(upper, "d"), timeAt(7), timeAt(7)), os.Chtimes(upper, timeAt(9), timeAt(9)),
	)
}

// describe lists a layer with all that is to survive a copy.
func describe(layer string) ([]string, error) {
	dir, err := sys.OpenDir(layer)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	twins := map[uint64]string{}
	var list []string
	line := func(d *sys.Dir, name, path string, s sys.Stat) error {
		attrs, err := d.Xattrs(name)
		if err != nil && !errors.Is(err, unix.EACCES) {
			return err
		}
		twin := twins[s.Ino]
		if twins[s.Ino] == "" {
			twins[s.Ino] = path
		}
		sparse := s.IsRegular() && s.Blocks*512 < s.Size
		size := s.Size
		if s.IsDir() {
			size = 0
		}
		if s.Type() == unix.S_IFCHR { // a whiteout has no times that matter
			s.Mtime = 0
		}
		list = append(list, fmt.Sprintf("%q %o %d:%d %d sparse %v mtime %d %q twin of %q", path, s.Mode, s.UID, s.GID, size, sparse, s.Mtime, attrs, twin))
		return nil
	}
	top, err := dir.Stat("")
	if err != nil {
		return nil, err
	}
	if err := line(dir, "", "", top); err != nil {
		return nil, err
	}
	err = sys.Walk(dir, func(v sys.Visit) (bool, error) {
		return v.Stat.Mode&0o700 != 0, line(v.Dir, v.Node.Name, v.Node.Path(), v.Stat)
	}, nil)
	return list, err
}

// checkNoXattr: where the root's own file system cannot hold a layer, it lies
// in the home store and is committed by copy, with slots beside the root.
func checkNoXattr(w *world) error {
	b, i, err := w.checkCreate("home/proj")
	if err != nil {
		return err
	}
	layer, err := b.Layer(i)
	if err != nil {
		return err
	}
	slots, err := b.Slots(i, w.mounts)
	if err != nil {
		return err
	}
	notes, err := b.CopyNotes()
	if err != nil {
		return err
	}
	return errors.Join(
		expect("Copy", b.Roots[i].Copy, true),
		expect("the layer's place", filepath.Dir(layer), b.Path()),
		expect("the slots' place", strings.HasPrefix(slots, w.path("tmp")+"/"), true),
		expect("a note that names the place", len(notes) == 1 && strings.Contains(notes[0], b.Path()), true),
		b.Discard(), w.store.Tidy(context.Background()), expectNone(w.store.stores))
}

func checkSubmount(w *world) error {
	_, err := w.checkCoverage("home/proj")
	refusal, ok := errors.AsType[*engine.Refusal](err)
	if !ok || refusal.Below != w.path("home/mnt") {
		return fmt.Errorf("Roots over a mount = %w, want a refusal that names %s", err, w.path("home/mnt"))
	}
	// In the directory beside the mount there is none.
	c, err := Roots(CoverageOptions{Scope: ScopeDir, Dir: w.path("home/proj"), Engines: []engine.Engine{overlay.Overlay{}}, Mounts: w.mounts, Temp: []string{w.path("tmp")}})
	if err != nil {
		return err
	}
	return expect("Roots beside a mount", w.covered(c), []string{"home/proj [home/proj]", "tmp private"})
}

func checkReadOnly(w *world) error {
	c, err := w.checkCoverage("other")
	if err != nil {
		return err
	}
	return errors.Join(
		expect("Roots of a read-only directory", w.covered(c), []string{"home [home]", "tmp [tmp]", "vartmp [vartmp]"}),
		expect("notes", strings.Contains(strings.Join(c.Notes, "\n"), "read-only file system"), true))
}

// checkGone: a layer whose file system has gone is said to be, and the rest of
// the branch can be kept and dropped.
func checkGone(w *world) error {
	b, i, err := w.checkCreate("home/proj")
	if err != nil {
		return err
	}
	layer, err := b.Layer(i)
	if err != nil {
		return err
	}
	if err := errors.Join(b.Close(), os.RemoveAll(filepath.Dir(filepath.Dir(layer)))); err != nil {
		return err
	}
	s, err := OpenStore(w.path("store"))
	if err != nil {
		return err
	}
	if b, err = s.Open("otter"); err != nil {
		return err
	}
	if _, err := b.Layer(i); !isGone(err) {
		return fmt.Errorf("Layer of what is gone = %w, want *GoneError", err)
	}
	if err := b.Keep(context.Background()); !isGone(err) {
		return fmt.Errorf("Keep of what is gone = %w, want *GoneError", err)
	}
	return errors.Join(expect("state", b.State, Kept), b.Discard(), s.Tidy(context.Background()), expectNone(s.stores))
}

func isGone(err error) bool {
	_, ok := errors.AsType[*GoneError](err)
	return ok
}

// checkNoTrust: a directory that all can write to, and that is not sticky, is
// no place for a store: the layer lies in the home store.
func checkNoTrust(w *world) error {
	b, i, err := w.checkCreate("home/proj")
	if err != nil {
		return err
	}
	_, slotsErr := b.Slots(i, w.mounts)
	_, ok := errors.AsType[*Untrusted](slotsErr)
	return errors.Join(
		expect("Copy", b.Roots[i].Copy, true), expect("Store", b.Roots[i].Store, ""),
		expect("Slots is refused", ok, true), expectNone(w.store.stores), b.Discard())
}

// checkForeign: directories on the way to a nested root that a session with
// one mapped id could not copy up are in the layer beforehand (B6).
func checkForeign(w *world) error {
	c, err := w.checkCoverage("vartmp/a/b/c")
	if err != nil {
		return err
	}
	b, err := w.store.Create(CreateOptions{Roots: c.Roots, Mounts: w.mounts})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(b.Roots, func(r Root) bool { return r.Path == w.path("vartmp") })
	layer, err := b.Layer(i)
	if err != nil {
		return err
	}
	want := []string{"", "a"}
	if os.Geteuid() == 0 {
		want = []string{""} // all ids are mapped
	}
	var got []string
	for path, made := range b.Roots[i].Prepared {
		got = append(got, path)
		base, err := os.Lstat(filepath.Join(b.Roots[i].Path, path))
		if err != nil {
			return err
		}
		now, err := os.Lstat(filepath.Join(layer, path))
		if err != nil {
			return err
		}
		if now.Mode() != base.Mode() || !now.ModTime().Equal(base.ModTime()) || int64(made.Mtime) != base.ModTime().UnixNano() {
			return fmt.Errorf("%q is prepared as %v %v, want %v %v", path, now.Mode(), now.ModTime(), base.Mode(), base.ModTime())
		}
	}
	slices.Sort(got)
	return errors.Join(expect("prepared", got, want), b.Discard())
}
