package ns

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenOwn: a file that its owner has closed to himself can be read, with its
// attributes, and stays as it is.
func TestOpenOwn(t *testing.T) {
	path := t.TempDir() + "/f"
	if err := os.WriteFile(path, []byte("closed"), 0o600); err != nil {
		t.Fatal(err)
	}
	attrs := map[string]string{"user.k": strings.Repeat("v", 3000), "user.empty": ""}
	for name, value := range attrs {
		if err := unix.Setxattr(path, name, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	held, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(held)
	fd, err := OpenOwn(held)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 10)
	if n, err := unix.Read(fd, buf); err != nil || string(buf[:n]) != "closed" {
		t.Errorf("read %q, %v", buf[:max(n, 0)], err)
	}
	for name, want := range attrs {
		if value, err := OwnXattr(held, name); err != nil || string(value) != want {
			t.Errorf("%s is %q, %v", name, value, err)
		}
	}
	if value, err := OwnXattr(held, "user.none"); !errors.Is(err, unix.ENODATA) {
		t.Errorf("what is not there is %q, %v", value, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0 {
		t.Errorf("its mode is %v now, %v", st.Mode(), err)
	}
}
