package engine

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

func TestBelow(t *testing.T) {
	t.Parallel()
	mounts := []sys.Mount{
		{ID: 1, Parent: 1, Target: "/"},
		{ID: 2, Parent: 1, Target: "/home/u/mnt"},
		{ID: 3, Parent: 1, Target: "/data/old"}, // covered by the next
		{ID: 4, Parent: 1, Target: "/data"},
		{ID: 5, Parent: 4, Target: "/data/new"},
	}
	rows := []struct {
		root string
		on   int
		want string
	}{
		{"/home/u", 0, "/home/u/mnt"},
		{"/home/u/mnt", 1, ""}, // the root itself is the mount
		{"/home/u/m", 0, ""},   // a name that begins alike
		{"/home", 0, "/home/u/mnt"},
		{"/data", 3, "/data/new"},
		{"/data/old", 3, ""},
		{"/", 0, "/home/u/mnt"},
	}
	for _, row := range rows {
		m, found := Below(row.root, mounts[row.on], mounts)
		if m.Target != row.want || found != (row.want != "") {
			t.Errorf("Below(%s) = %q, want %q", row.root, m.Target, row.want)
		}
	}
}

func TestMountOf(t *testing.T) {
	t.Parallel()
	mounts, err := sys.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	if m, err := MountOf("/proc/self/task", mounts); err == nil && m.FSType != "proc" {
		t.Errorf("MountOf(/proc/self/task) is a %s", m.FSType)
	} else if err != nil && !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("MountOf(/proc/self/task): %v", err)
	}
	if _, err := MountOf("/nowhere/at/all", mounts); !errors.Is(err, unix.ENOENT) {
		t.Errorf("MountOf of what is not there = %v, want ENOENT", err)
	}
	if _, err := MountOf("/", nil); err == nil {
		t.Error("MountOf without mounts = nil error")
	}
}

func TestRefusalIsUnsupported(t *testing.T) {
	t.Parallel()
	err := error(&Refusal{Root: "/a", Why: "it is", Err: unix.ENOTSUP})
	if !errors.Is(err, ErrUnsupported) || !errors.Is(err, unix.ENOTSUP) {
		t.Errorf("%v is neither ErrUnsupported nor its errno", err)
	}
	if !errors.Is(&Refusal{}, ErrUnsupported) {
		t.Error("a refusal without errno is not ErrUnsupported")
	}
}

func TestOff(t *testing.T) {
	for _, row := range []struct {
		value, feature string
		want           bool
	}{
		{"", "multigrain", false},
		{"multigrain", "multigrain", true},
		{"lowerdir+,tmpfs-xattr,multigrain", "tmpfs-xattr", true},
		{"lowerdir+,tmpfs-xattr", "tmpfs", false},
	} {
		t.Setenv("TRY_TEST_NO", row.value)
		if got := Off(row.feature); got != row.want {
			t.Errorf("TRY_TEST_NO=%s: Off(%s) = %v, want %v", row.value, row.feature, got, row.want)
		}
	}
}
