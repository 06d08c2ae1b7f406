package fstest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// PrepareModel makes in dir what Model begins with.
func PrepareModel(dir string) error {
	for _, a := range modelNames[:3] {
		for _, b := range modelNames[:3] {
			for _, c := range modelNames[:2] {
				name := filepath.Join(dir, a, b, c)
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					return err
				}
				if err := os.WriteFile(name, []byte(strings.Repeat(a+b+c, 100)), 0o644); err != nil {
					return err
				}
			}
		}
	}
	return os.Symlink("a/b/a", filepath.Join(dir, "e"))
}

var modelNames = []string{"a", "b", "c", "d", "e"}

// Model does steps random operations in dir and the same in plain, an ordinary
// directory that holds the same, and wants the same results and, all the time,
// the same content.
func Model(t *testing.T, dir, plain string, seed uint64, steps int) {
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range steps {
		what, do := operation(r)
		got := do(dir)
		if errors.Is(got, unix.EXDEV) {
			continue // a directory of the base, under the kernel's overlay
		}
		want := do(plain)
		if !errors.Is(got, errnoOf(want)) {
			t.Fatalf("seed %d, step %d: %s: %v, natively %v", seed, i, what, got, want)
		}
		if i%20 != 19 && i != steps-1 {
			continue
		}
		shown, err := snapshot(dir)
		if err != nil {
			t.Fatal(err)
		}
		truth, err := snapshot(plain)
		if err != nil {
			t.Fatal(err)
		}
		if diff := difference(shown, truth); diff != "" {
			t.Fatalf("seed %d, step %d, after %s:\n%s", seed, i, what, diff)
		}
	}
}

// errnoOf is the errno of err; of none the nil that errors.Is takes for none.
func errnoOf(err error) error {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return e
	}
	return err
}

// operation draws one and says what it is.
func operation(r *rand.Rand) (string, func(root string) error) {
	path := func() string {
		parts := make([]string, 1+r.IntN(3))
		for i := range parts {
			parts[i] = modelNames[r.IntN(len(modelNames))]
		}
		return strings.Join(parts, "/")
	}
	p, q, n := path(), path(), r.IntN(5000)
	text := strings.Repeat(fmt.Sprint(n, " "), r.IntN(500))
	at := func(root string) string { return filepath.Join(root, p) }
	to := func(root string) string { return filepath.Join(root, q) }
	switch r.IntN(15) {
	case 0, 1:
		return "write " + p, func(root string) error { return os.WriteFile(at(root), []byte(text), 0o644) }
	case 2:
		return "append " + p, func(root string) error {
			return use(at(root), unix.O_WRONLY|unix.O_APPEND, func(fd int) error { return put(fd, text, -1) })
		}
	case 3:
		return "write into " + p, func(root string) error {
			return use(at(root), unix.O_RDWR, func(fd int) error { return put(fd, "xyz", int64(n)) })
		}
	case 4:
		return "truncate " + p, func(root string) error { return unix.Truncate(at(root), int64(n)) }
	case 5:
		return "mkdir " + p, func(root string) error { return unix.Mkdir(at(root), 0o755) }
	case 6:
		return "rmdir " + p, func(root string) error { return unix.Rmdir(at(root)) }
	case 7:
		return "unlink " + p, func(root string) error { return unix.Unlink(at(root)) }
	case 8, 9:
		return "rename " + p + " " + q, func(root string) error { return unix.Rename(at(root), to(root)) }
	case 10:
		return "link " + p + " " + q, func(root string) error { return unix.Link(at(root), to(root)) }
	case 11:
		return "symlink " + p, func(root string) error { return unix.Symlink(q, at(root)) }
	case 12:
		return "chmod " + p, func(root string) error {
			return unix.Fchmodat(unix.AT_FDCWD, at(root), uint32(0o700+n%0o100), 0)
		}
	case 13:
		return "exchange " + p + " " + q, func(root string) error {
			return unix.Renameat2(unix.AT_FDCWD, at(root), unix.AT_FDCWD, to(root), unix.RENAME_EXCHANGE)
		}
	default:
		return "setxattr " + p, func(root string) error { return unix.Setxattr(at(root), "user.n", []byte(fmt.Sprint(n)), 0) }
	}
}

func use(path string, flags int, do func(fd int) error) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(do(fd), unix.Close(fd))
}

func put(fd int, text string, at int64) (err error) {
	if at < 0 {
		_, err = unix.Write(fd, []byte(text))
	} else {
		_, err = unix.Pwrite(fd, []byte(text), at)
	}
	return err
}

// snapshot describes each entry below dir.
func snapshot(dir string) (map[string]string, error) {
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil || rel == "." {
			return err
		}
		all[rel], err = describe(path, func(string) bool { return true })
		return err
	})
	return all, err
}

// describe says what can be compared of an entry: type, mode, owner, number of
// names, content and the user's attributes that count.
func describe(path string, counts func(attr string) bool) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", err
	}
	text := fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		content, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf(" %d names, %d bytes %x", st.Nlink, st.Size, sha256.Sum256(content))
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		return text + " to " + short([]byte(target)), nil
	case unix.S_IFCHR:
		return fmt.Sprintf("device %d", st.Rdev), nil
	}
	buf := make([]byte, 8192)
	n, err := unix.Llistxattr(path, buf)
	if err != nil {
		return "", err
	}
	attrs := strings.Split(string(buf[:n]), "\x00")
	slices.Sort(attrs)
	for _, attr := range attrs {
		if !strings.HasPrefix(attr, "user.") && !strings.HasPrefix(attr, "system.posix_acl") || !counts(attr) {
			continue
		}
		value := make([]byte, 8192)
		n, err := unix.Lgetxattr(path, attr, value)
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf(" %s=%q", attr, value[:n])
	}
	return text, nil
}

// difference lists what two snapshots do not have in common.
func difference(got, want map[string]string) string {
	var b strings.Builder
	names := slices.Sorted(maps.Keys(got))
	names = append(names, slices.Sorted(maps.Keys(want))...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if got[name] != want[name] {
			fmt.Fprintf(&b, "%q: %q, want %q\n", short([]byte(name)), short([]byte(got[name])), short([]byte(want[name])))
		}
	}
	return b.String()
}

// Compare compares two layers over base that the cases have left, but for those
// in Differs and in skip. What is as in the base is no change, whether it was
// copied up or not. Of the marks only what hides counts: the rest is the
// kernel's own book-keeping.
func Compare(base, got, want string, skip map[string]string) (string, error) {
	var both [2]map[string]string
	for i, layer := range []string{got, want} {
		both[i] = map[string]string{}
		for _, c := range Cases() {
			_, differs := Differs[c.Name]
			_, skipped := skip[c.Name]
			if differs || skipped {
				continue
			}
			if err := describeAll(both[i], base, layer, c.Name); err != nil {
				return "", err
			}
		}
	}
	return difference(both[0], both[1]), nil
}

func describeAll(all map[string]string, base, layer, name string) error {
	top := filepath.Join(layer, name)
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(layer, path)
		if err != nil {
			return err
		}
		st, below := os.Lstat(filepath.Join(base, rel))
		is, err := describe(path, func(attr string) bool {
			switch {
			case attr == "user.overlay.opaque":
				return below == nil && st.IsDir() // there is nothing to hide elsewhere
			case strings.HasPrefix(attr, "user.overlay.overlay."):
				return true
			}
			return !strings.HasPrefix(attr, "user.overlay.")
		})
		if err != nil {
			return err
		}
		if was, err := describe(filepath.Join(base, rel), func(string) bool { return true }); err != nil || was != is {
			all[rel] = is
		}
		return nil
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil // nothing was changed
	}
	return err
}
