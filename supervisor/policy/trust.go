package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Trust remembers which project files their user has allowed: a directory in
// the home store with one entry for each. The entry's name is a hash of the
// file's path and content. The path is in it because relative names in the
// file (checks = ["./check"], roots = ["../lib"]) mean something else
// elsewhere; direnv does the same. What an entry holds is for people: that it
// is there is what counts, so no write can be half done.
type Trust struct {
	dir string
}

// NewTrust returns the trust kept in dir, which is made when first needed. The
// caller has checked that nobody else may write there.
func NewTrust(dir string) *Trust { return &Trust{dir: dir} }

// Allowed is a project file that is trusted.
type Allowed struct {
	Path    string    `json:"path"`
	SHA256  string    `json:"sha256"` // of the content
	Allowed time.Time `json:"allowed"`
}

func (t *Trust) entry(file, text string) string {
	h := sha256.New()
	fmt.Fprintf(h, "try trust 1\n%d\n%s%s", len(file), file, text)
	return filepath.Join(t.dir, hex.EncodeToString(h.Sum(nil)))
}

// Trusted says whether the file, with this very content, was allowed.
func (t *Trust) Trusted(file, text string) (bool, error) {
	_, err := os.Lstat(t.entry(file, text))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, fmt.Errorf("ask whether %s is trusted: %w", file, err)
	}
	return true, nil
}

// Allow trusts the project file at its present content, which it returns. A
// file that cannot be obeyed is not trusted, but refused with file and line.
func (t *Trust) Allow(file, home string) (Allowed, string, error) {
	text, err := readFile(file)
	if err != nil {
		return Allowed{}, "", fmt.Errorf("read policy: %w", err)
	}
	l := &layer{source: Project, file: file, dir: filepath.Dir(file), text: text}
	if err := l.decode(home); err != nil {
		return Allowed{}, "", err
	}
	sum := sha256.Sum256([]byte(text))
	a := Allowed{Path: file, SHA256: hex.EncodeToString(sum[:]), Allowed: time.Now().UTC().Truncate(time.Second)}
	note, err := json.Marshal(a)
	if err != nil {
		return Allowed{}, "", err
	}
	if err := os.Mkdir(t.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return Allowed{}, "", fmt.Errorf("trust %s: %w", file, err)
	}
	f, err := os.OpenFile(t.entry(file, text), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return a, text, nil
	}
	if err != nil {
		return Allowed{}, "", fmt.Errorf("trust %s: %w", file, err)
	}
	_, err = f.Write(append(note, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return Allowed{}, "", fmt.Errorf("trust %s: %w", file, err)
	}
	return a, text, nil
}

// FindProject returns the path of the project file that a run in cwd would
// read, or "".
func FindProject(p Places) (string, error) {
	l, _, err := findProject(p, resolved(p.Home))
	if l == nil {
		return "", err
	}
	return l.file, err
}
