package branch

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/vfs"
)

// splitWorld is a kept branch with a bit of everything in its first layer, and
// how its first root is cut: d and link go.
func splitWorld(t *testing.T) (*world, *Branch, []Cut) {
	t.Helper()
	w := newWorld(t)
	b, err := w.store.Create(w.options("mine"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		// An ordinary user removes nothing from a closed directory.
		if out, err := exec.Command("chmod", "-R", "u+rwx", w.dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	layer, err := b.Layer(0)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/bin/sh", "-euc", `cd "$1"
		mkdir -p d/e s/t; echo 1 | tee d/f s/f > d/e/g; ln d/f d/h; ln -s x link; mkfifo s/t/fifo; mknod gone c 0 0
		ln s/f s/t/f; chmod 0500 s/t; setfattr -n user.k -v v d; chmod 0600 d/f`, "sh", layer).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := b.Keep(context.Background()); err != nil {
		t.Fatal(err)
	}
	var cuts []Cut
	for range b.Roots {
		cuts = append(cuts, Cut{Part: &Part{How: Way, Stays: true}, Rest: &Part{How: Whole}, Seen: json.RawMessage(`[]`)})
	}
	all := map[string]*Part{"d": {How: Whole}, "link": {How: Way}}
	cuts[0].Part.Below = all
	cuts[0].Rest = &Part{How: Way, Others: Way, Stays: true, Below: map[string]*Part{"d": {}, "link": {}}}
	return w, b, cuts
}

// listing lists what lies below a directory, with types, modes and link counts
// within it.
func listing(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("/bin/sh", "-euc", `cd "$1"; find . -mindepth 1 -printf '%P %y %m %l\n' | sort`, "sh", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

const (
	partTree = "d d 755 \nd/e d 755 \nd/e/g f 644 \nd/f f 600 \nd/h f 600 \nlink l 777 x\n"
	restTree = "gone c 0 \ns d 755 \ns/f f 644 \ns/t d 500 \ns/t/f f 644 \ns/t/fifo p 644 \n"
)

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := os.Lstat(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.Lstat(b)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(x, y)
}

// TestSplit: a part and the rest together are the branch, each with its links;
// files that both could have are not shared; the rest becomes the branch.
func TestSplit(t *testing.T) {
	unix.Umask(0o022)
	w, b, cuts := splitWorld(t)
	old, err := b.Layer(0)
	if err != nil {
		t.Fatal(err)
	}
	before := listing(t, old)
	p, err := b.Split(context.Background(), vfs.Disk(), cuts)
	if err != nil {
		t.Fatal(err)
	}
	part, err := p.Layer(0)
	if err != nil {
		t.Fatal(err)
	}
	if got := listing(t, part); got != partTree {
		t.Errorf("the part is\n%s", got)
	}
	if !sameFile(t, part+"/d/f", part+"/d/h") || !sameFile(t, part+"/d/e/g", old+"/d/e/g") {
		t.Error("the part copied, or parted links")
	}
	if now := listing(t, old); now != before {
		t.Errorf("the layer is now\n%s", now)
	}
	if _, err := w.store.Open(p.Name); !errors.Is(err, ErrLocked) {
		t.Errorf("a part can be opened: %v", err)
	}
	for range 2 {
		if err := b.TakeRest(vfs.Disk(), p); err != nil {
			t.Fatal(err)
		}
	}
	rest, err := b.Layer(0)
	if err != nil {
		t.Fatal(err)
	}
	if got := listing(t, rest); got != restTree {
		t.Errorf("the rest is\n%s", got)
	}
	if !sameFile(t, rest+"/s/f", rest+"/s/t/f") {
		t.Error("the rest parted links")
	}
	if _, err := os.Lstat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old layer is there: %v", err)
	}
	if err := errors.Join(p.Discard(), b.Close()); err != nil {
		t.Fatal(err)
	}
	if b, err = w.store.Open("mine"); err != nil || len(b.Own) != 1 || b.Own[0] != p.ID {
		t.Fatalf("opened again: %v, own %v", err, b.Own)
	}
	if again, err := b.Layer(0); err != nil || again != rest {
		t.Errorf("its layer is %s, %v", again, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSplitFaults: whichever call fails, the branch is as it was, no draft is
// left, and the next attempt succeeds.
func TestSplitFaults(t *testing.T) {
	unix.Umask(0o022)
	w, b, cuts := splitWorld(t)
	old, err := b.Layer(0)
	if err != nil {
		t.Fatal(err)
	}
	before, failed := listing(t, old), 0
	for n := 1; ; n++ {
		hit := false
		errno := []unix.Errno{unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EACCES}[n%4]
		fs := &vfs.Fault{FS: vfs.Disk(), Before: func(op vfs.Op) error {
			if op.Part == "split" && op.Number == n {
				hit = true
				return errno
			}
			return nil
		}}
		p, err := b.Split(context.Background(), fs, cuts)
		if !hit {
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Discard(); err != nil {
				t.Fatal(err)
			}
			break
		}
		failed++
		if !errors.Is(err, errno) {
			t.Fatalf("call %d: %v, want %v", n, err, errno)
		}
		if now := listing(t, old); now != before {
			t.Fatalf("call %d: the layer is now\n%s", n, now)
		}
		if list, err := w.store.Branches(); err != nil || len(list) != 1 {
			t.Fatalf("call %d: branches are %v, %v", n, list, err)
		}
	}
	t.Logf("%d calls failed in turn", failed)
	if failed < 20 {
		t.Error("too few")
	}
}

// TestStrayDraft: a draft that nobody holds is no branch, and trash.
func TestStrayDraft(t *testing.T) {
	w, b, cuts := splitWorld(t)
	p, err := b.Split(context.Background(), vfs.Disk(), cuts)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.Tidy(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "store/branches", p.ID)); err != nil {
		t.Errorf("a draft that is held was swept: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Open(p.Name); !errors.Is(err, ErrUnknown) {
		t.Errorf("a stray draft can be opened: %v", err)
	}
	if err := w.store.Tidy(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "store/branches", p.ID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a stray draft stays: %v", err)
	}
}
