package branch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"try/fs/sys"
)

// TestMountPoints: they lie in the user's runtime directory, are found again
// when nobody holds the branch, and leave nothing.
func TestMountPoints(t *testing.T) {
	w := newWorld(t)
	runtime := filepath.Join(w.dir, "run")
	if err := os.Mkdir(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	b := w.create("mine")
	points, err := b.MountPoints(2, w.mounts, runtime)
	if err != nil {
		t.Fatal(err)
	}
	if len(points.Paths) != 2 || filepath.Dir(filepath.Dir(filepath.Dir(points.Paths[0]))) != runtime {
		t.Fatalf("mount points %q, want two in %s", points.Paths, runtime)
	}
	alike := filepath.Join(runtime, storePrefix+newID(), newID(), "m0")
	home := filepath.Join(w.store.branches.Name(), b.ID, "m0")
	for _, dir := range []string{alike, home} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var mounts []sys.Mount
	for _, path := range append([]string{alike, home, filepath.Dir(alike), points.Paths[0] + "/m0", filepath.Join(filepath.Dir(points.Paths[0]), "u0")}, points.Paths...) {
		mounts = append(mounts, sys.Mount{FSType: "fuse.ours", Target: path})
	}
	mounts = append(mounts, sys.Mount{FSType: "fuse.other", Target: points.Paths[0]})
	var asked []string
	abandoned := func() bool {
		t.Helper()
		asked = nil
		unmounted, err := w.store.Abandoned(mounts, "fuse.ours", func(path string) error {
			asked = append(asked, path)
			return nil
		})
		if err != nil {
			t.Errorf("Abandoned: %v", err)
		}
		return unmounted
	}
	if abandoned() || len(asked) > 0 {
		t.Errorf("of a branch that is held %q was taken away", asked)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if !abandoned() {
		t.Error("of a branch that nobody holds nothing was taken away")
	}
	want := append([]string{home}, points.Paths...)
	if slices.Sort(asked); !slices.Equal(asked, slices.Sorted(slices.Values(want))) {
		t.Errorf("taken away was %q, want %q", asked, want)
	}
	for _, path := range append(want, filepath.Dir(points.Paths[0])) {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if _, err := os.Lstat(alike); err != nil {
		t.Error(err)
	}
}

// TestMountPointsLeft: those on which nothing was mounted any more when the
// supervisor was killed do not stay as long as the branch.
func TestMountPointsLeft(t *testing.T) {
	w := newWorld(t)
	runtime := filepath.Join(w.dir, "run")
	if err := os.Mkdir(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	b := w.create("mine")
	points, err := b.MountPoints(1, w.mounts, runtime)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(points.Paths[0]); err != nil {
		t.Errorf("of a branch that is held: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds the store empty
		if err := w.store.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(runtime); err != nil || len(entries) > 0 {
		t.Errorf("the runtime directory holds %v, %v", entries, err)
	}
	if state := w.state(b.ID); state != Interrupted {
		t.Errorf("the branch is %v", state)
	}
}

// TestMountPointsWithoutRuntime: without a runtime directory they lie in shared
// memory.
func TestMountPointsWithoutRuntime(t *testing.T) {
	w := newWorld(t)
	b := w.create("mine")
	points, err := b.MountPoints(1, w.mounts, "")
	if err != nil {
		t.Fatal(err)
	}
	place := filepath.Dir(filepath.Dir(points.Paths[0]))
	if filepath.Dir(place) != sharedMemory && place != w.store.branches.Name() {
		t.Errorf("the mount point is %s", points.Paths[0])
	}
	other, err := w.create("other").MountPoints(1, w.mounts, "")
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range []*MountPoints{points, other} {
		if _, err := os.Lstat(place); err != nil {
			t.Errorf("with %d left: %v", 2-i, err)
		}
		if err := p.Remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(p.Paths[0]); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", p.Paths[0], err)
		}
	}
	if _, err := os.Lstat(place); place != w.store.branches.Name() && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", place, err)
	}
}
