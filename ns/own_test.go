package ns

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenOwn: a file that its owner has closed to himself can be read, and
// stays as it is.
func TestOpenOwn(t *testing.T) {
	path := t.TempDir() + "/f"
	if err := os.WriteFile(path, []byte("closed"), 0); err != nil {
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
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0 {
		t.Errorf("its mode is %v now, %v", st.Mode(), err)
	}
}
