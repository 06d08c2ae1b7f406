package fusefs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"try/fs/engine"
	"try/fs/layer"
	"try/fs/sys"
)

// TestOutsideIDs: a copy in the layer, which is the user's, is shown with the
// base's owner, also when the kernel had forgotten it, and that is not to be
// changed.
func TestOutsideIDs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files to others")
	}
	const other = 4321
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"base", "base/d", "layer", "work"} {
		check(t, os.Mkdir(at(d), 0o755))
	}
	write(t, at("base/f"), "theirs")
	write(t, at("base/d/own"), "mine")
	for _, name := range []string{"base/f", "base/d"} {
		check(t, os.Chown(at(name), other, other))
	}
	tr, err := openTree(Root{Base: at("base"), Layers: []string{at("layer")}, Work: at("work")}, Options{OutsideIDs: true})
	check(t, err)
	defer tr.close()
	tr.owners = layer.Groups // as an ordinary user's, who could not make what is tested
	look := func(p *node, name string) (*node, fuse.Owner) {
		t.Helper()
		tr.RLock()
		defer tr.RUnlock()
		n, s, err := tr.lookup(p, name)
		check(t, err)
		var out fuse.Attr
		tr.attr(n, s, &out)
		return n, out.Owner
	}
	want := func(what string, got fuse.Owner, id uint32) {
		t.Helper()
		if got != (fuse.Owner{Uid: id, Gid: id}) {
			t.Errorf("%s: the owner is %v, want %d", what, got, id)
		}
	}
	d, owner := look(tr.root, "d")
	want("a directory of the base", owner, other)
	own, owner := look(d, "own")
	want("one's own file", owner, 0)
	f, owner := look(tr.root, "f")
	want("a file of the base", owner, other)
	for _, n := range []*node{f, own} {
		check(t, tr.copyUp(n, true))
	}
	for name, is := range map[string]uint32{"layer/f": 0, "layer/d": 0, "layer/d/own": 0} {
		var st unix.Stat_t
		check(t, unix.Lstat(at(name), &st))
		if st.Uid != is {
			t.Errorf("%s is %d's, want %d", name, st.Uid, is)
		}
	}
	for _, when := range []string{"copied up", "forgotten"} {
		again, owner := look(tr.root, "f")
		want("a file "+when, owner, other)
		d2, owner := look(tr.root, "d")
		want("a directory "+when, owner, other)
		_, owner = look(d2, "own")
		want("one's own file "+when, owner, 0)
		in := &fuse.SetAttrInCommon{Valid: fuse.FATTR_GID}
		if err := tr.setAttr(again, in); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: chgrp to another group = %v, want EPERM", when, err)
		}
		in = &fuse.SetAttrInCommon{Valid: fuse.FATTR_UID | fuse.FATTR_GID, Owner: fuse.Owner{Uid: other, Gid: other}}
		check(t, tr.setAttr(again, in))
		for _, n := range []*node{again, d2} {
			tr.forget(n.id, n.lookups)
		}
	}
}

// TestHelperSaysWhy: what cannot mount for the user is not tried.
func TestHelperSaysWhy(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for _, row := range []struct {
		mode os.FileMode
		want string
	}{{0, "not installed"}, {0o755, "not set-uid root"}} {
		if row.mode != 0 {
			check(t, os.WriteFile(filepath.Join(dir, "fusermount3"), nil, row.mode))
		}
		if path, err := Helper(); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("Helper() = %q, %v, want an error with %q", path, err, row.want)
		}
	}
	mounts, err := sys.Mounts()
	check(t, err)
	if err := (Fuse{Host: true}).Probe(dir, mounts); !errors.Is(err, engine.ErrUnsupported) {
		t.Errorf("Probe without a helper = %v, want a refusal", err)
	}
	if _, err := MountHost(dir, false); err == nil {
		t.Error("MountHost without a helper = nil")
	}
}
