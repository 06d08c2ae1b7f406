package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mayImport is the architecture: package → what of this module it may import.
// Nobody imports upwards: fs/* know nothing of sessions, ns nothing of
// branches. Who adds a package says here where it stands.
var mayImport = map[string][]string{
	"try/cmd/try": {
		"try/fs/branch", "try/fs/changes", "try/fs/commit", "try/fs/sys", // the types of results
		"try/ns", "try/shells", "try/supervisor", "try/supervisor/policy", "try/supervisor/printable",
	},
	"try/cmd/bench": {"try/fs/changes", "try/fs/sys"}, // the plan is measured by itself
	"try/supervisor": {
		"try/fs/branch", "try/fs/changes", "try/fs/commit", "try/fs/engine", "try/fs/fusefs", "try/fs/layer", "try/fs/overlay", "try/fs/sys", "try/fs/vfs",
		"try/ns", "try/shells", "try/supervisor/policy", "try/supervisor/printable", "try/supervisor/sockets",
	},
	"try/supervisor/policy":    {"try/supervisor/printable"},
	"try/supervisor/printable": {},
	"try/supervisor/sockets":   {},
	"try/shells":               {},
	"try/ns":                   {},
	"try/fs/branch":            {"try/fs/engine", "try/fs/layer", "try/fs/sys", "try/fs/vfs"},
	"try/fs/changes":           {"try/fs/layer", "try/fs/sys"},
	"try/fs/commit":            {"try/fs/changes", "try/fs/layer", "try/fs/sys", "try/fs/vfs"},
	"try/fs/engine":            {"try/fs/sys"},
	"try/fs/fstest":            {},
	"try/fs/fusefs":            {"try/fs/engine", "try/fs/layer", "try/fs/sys"},
	"try/fs/layer":             {"try/fs/sys"},
	"try/fs/layer/layertest":   {"try/fs/layer", "try/fs/sys"},
	"try/fs/overlay":           {"try/fs/engine", "try/fs/layer", "try/fs/sys"},
	"try/fs/sys":               {},
	"try/fs/vfs":               {"try/fs/sys"},
}

// onlyIn names the doors of each outside library; tests may open the others.
var onlyIn = map[string][]string{
	"github.com/alecthomas/kong":       {"try/cmd/try"},
	"github.com/aymanbagabas/go-udiff": {"try/cmd/try"},
	"github.com/BurntSushi/toml":       {"try/supervisor/policy"},
	"github.com/bmatcuk/doublestar/v4": {"try/supervisor/policy", "try/supervisor"},
	"github.com/creack/pty":            {"try/ns"},
	"golang.org/x/term":                {"try/ns"},
	"golang.org/x/text":                {"try/supervisor/policy"},
	"golang.org/x/sys":                 {"try/cmd/try", "try/cmd/bench", "try/ns", "try/supervisor", "try/supervisor/policy", "try/supervisor/sockets", "try/fs/"},
	"github.com/rogpeppe/go-internal":  {},
	"net/http":                         {},
	"github.com/hanwen/go-fuse/v2":     {"try/fs/fusefs"},
}

func TestImports(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "try/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(p.ImportPath, "try/examples") {
			continue
		}
		may, known := mayImport[p.ImportPath]
		if !known {
			t.Errorf("package %s: the import table does not know it", p.ImportPath)
			continue
		}
		for _, i := range p.Imports {
			if strings.HasPrefix(i, "try/") {
				if !slices.Contains(may, i) {
					t.Errorf("package %s may not import %s", p.ImportPath, i)
				}
				continue
			}
			if !strings.Contains(i, ".") && i != "net/http" {
				continue // the standard library
			}
			if doors, ok := doorsOf(i); !ok {
				t.Errorf("package %s imports %s: the table knows no door for it", p.ImportPath, i)
			} else if !slices.ContainsFunc(doors, func(d string) bool {
				return d == p.ImportPath || strings.HasSuffix(d, "/") && strings.HasPrefix(p.ImportPath, d)
			}) {
				t.Errorf("package %s may not import %s; that is for %v", p.ImportPath, i, doors)
			}
		}
	}
}

func doorsOf(path string) ([]string, bool) {
	for library, doors := range onlyIn {
		if path == library || strings.HasPrefix(path, library+"/") {
			return doors, true
		}
	}
	return nil, false
}

// houseRules are what no linter knows. An exception is a comment on the line:
//
//	//lint:allow sleep: why
var houseRules = []struct {
	name  string
	text  *regexp.Regexp
	files func(path string) bool
	why   string
}{
	{"sleep", regexp.MustCompile(`\btime\.Sleep\(`), func(string) bool { return true }, "wait for an event"},
	{"create", regexp.MustCompile(`\bos\.Create\(`), func(string) bool { return true }, "it truncates what it finds"},
	{"isnotexist", regexp.MustCompile(`\bos\.Is(NotExist|Exist|Permission)\(`), func(string) bool { return true }, "use errors.Is"},
	{"setid", regexp.MustCompile(`\b(unix|syscall)\.Set(re|res)?[ug]id\(`), notTest, "it changes all threads"},
	{"panic", regexp.MustCompile(`\bpanic\((?:[^"]|"[^u]|"u[^n])`), func(p string) bool {
		return notTest(p) && (strings.HasPrefix(p, "fs/commit/") || strings.HasPrefix(p, "fs/branch/"))
	}, "return, and let recovery decide (but for the end of a switch over all kinds)"},
	{"errtext", regexp.MustCompile(`strings\.(Contains|HasPrefix|HasSuffix)\([a-zA-Z.]*err\.Error\(\)`), notTest, "use errors.Is or errors.AsType"},
	{"errtext", regexp.MustCompile(`err\.Error\(\) [!=]=`), func(string) bool { return true }, "use errors.Is or errors.AsType"},
	{"exit", regexp.MustCompile(`\bos\.Exit\(`), func(p string) bool {
		return notTest(p) && p != "cmd/try/main.go" && p != "supervisor/sweep.go" && !strings.HasPrefix(p, "fs/layer/layertest/") && !strings.HasPrefix(p, "ns/") && !strings.HasPrefix(p, "cmd/bench/") && !strings.HasPrefix(p, "examples/")
	}, "main alone exits"},
	{"todo", regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`), func(string) bool { return true }, "do it, or say when it will be due"},
}

func notTest(path string) bool { return !strings.HasSuffix(path, "_test.go") }

// The most lines that a file may have.
const (
	maxLines     = 500
	maxTestLines = 600
)

func TestHouseRules(t *testing.T) {
	t.Parallel()
	top := filepath.Join("..", "..")
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || name == "cmd/try/imports_test.go" {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		lines := 0
		for s := bufio.NewScanner(f); s.Scan(); {
			lines++
			for _, rule := range houseRules {
				if rule.files(name) && rule.text.MatchString(s.Text()) && !strings.Contains(s.Text(), "//lint:allow "+rule.name) {
					t.Errorf("%s:%d: %s: %s", name, lines, strings.TrimSpace(s.Text()), rule.why)
				}
			}
		}
		if most := map[bool]int{true: maxLines, false: maxTestLines}[notTest(name)]; lines > most {
			t.Errorf("%s has %d lines, more than %d", name, lines, most)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
