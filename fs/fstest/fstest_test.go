package fstest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/posixtest"
	"golang.org/x/sys/unix"

	"try/fs/fstest"
	"try/fs/fusefs"
	"try/ns"
)

// The cases run in a session, by this binary again: its tests are then these,
// told by the environment where. The process that serves is the one that
// started it.
const (
	shownVariable = "TRY_FSTEST_SHOWN" // the root, as the engine shows it
	plainVariable = "TRY_FSTEST_PLAIN" // an ordinary directory
	nameVariable  = "TRY_FSTEST_ENGINE"
)

func TestMain(m *testing.M) {
	ns.Init()
	os.Exit(m.Run())
}

// skips says what an engine cannot do, and why. DESIGN §4 and README name each.
var skips = map[string]map[string]string{
	"native": {"devices": "the machine's root makes devices, and anybody the number 0:0"},
	"overlay": {
		"numbers of links":          "copy-up changes the number of what has several names (FACTS B3)",
		"hard link in base":         "writing parts the names; what is only read keeps the number",
		"write through either link": "writing one name of a hard-linked pair parts the pair",
	},
	"fuse": {},
}

// posixSkips are go-fuse's own tests that do not fit either engine.
var posixSkips = map[string]string{
	"FdLeak":              "it looks at the descriptors of a server in its own process",
	"FcntlFlockLocksFile": "it wants record locks of one process to exclude one another, which they natively do not",
}

func TestNative(t *testing.T) {
	dir := t.TempDir()
	if err := fstest.Prepare(dir); err != nil {
		t.Fatal(err)
	}
	fstest.Run(t, dir, skips["native"])
}

// TestInside is what runs in the session.
func TestInside(t *testing.T) {
	dir, plain, name := os.Getenv(shownVariable), os.Getenv(plainVariable), os.Getenv(nameVariable)
	if dir == "" {
		t.Skip("it is run by TestEngines, in a session")
	}
	t.Run("cases", func(t *testing.T) { fstest.Run(t, filepath.Join(dir, "cases"), skips[name]) })
	t.Run("posix", func(t *testing.T) {
		for _, test := range slices.Sorted(maps.Keys(posixtest.All)) {
			t.Run(test, func(t *testing.T) {
				if why, ok := posixSkips[test]; ok {
					t.Skip(why)
				}
				in := filepath.Join(dir, "posix", test)
				if err := os.MkdirAll(in, 0o755); err != nil {
					t.Fatal(err)
				}
				posixtest.All[test](t, in)
			})
		}
	})
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("model/", seed), func(t *testing.T) {
			in := filepath.Join(plain, fmt.Sprint("model", seed))
			if err := fstest.PrepareModel(in); err != nil {
				t.Fatal(err)
			}
			fstest.Model(t, filepath.Join(dir, fmt.Sprint("model", seed)), in, seed, 400)
		})
	}
}

// world is a base, and a layer for each engine.
type world struct {
	t   *testing.T
	dir string
}

func (w *world) at(name ...string) string {
	return filepath.Join(append([]string{w.dir}, name...)...)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t, dir}
	if err := fstest.Prepare(w.at("base/cases")); err != nil {
		t.Fatal(err)
	}
	for seed := range 10 {
		if err := fstest.PrepareModel(w.at("base", fmt.Sprint("model", seed))); err != nil {
			t.Fatal(err)
		}
	}
	for _, sub := range []string{"plain", "overlay/upper", "overlay/work", "fuse/upper", "fuse/work"} {
		if err := os.MkdirAll(w.at(sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The work directory of an overlay is mode 000 inside.
	t.Cleanup(func() {
		for _, d := range []string{"work", "work/incompat", "work/incompat/volatile"} {
			os.Chmod(w.at("overlay/work", d), 0o700)
		}
	})
	return w
}

// TestEngines runs the suite on both engines and compares the layers.
func TestEngines(t *testing.T) {
	w := newWorld(t)
	ran := 0
	for _, name := range []string{"overlay", "fuse"} {
		t.Run(name, func(t *testing.T) {
			w.run(t, name)
			ran++
		})
	}
	if t.Failed() || ran < 2 {
		return
	}
	diff, err := fstest.Compare(w.at("base/cases"), w.at("fuse/upper/cases"), w.at("overlay/upper/cases"), skips["overlay"])
	if err != nil {
		t.Fatal(err)
	}
	if diff != "" {
		t.Errorf("the layers of fuse and overlay differ:\n%s", diff)
	}
}

func (w *world) run(t *testing.T, name string) {
	m := ns.Mount{Target: w.at("base")}
	var server *fusefs.Server
	switch name {
	case "overlay":
		m.Lower, m.Upper, m.Work = []string{w.at("base")}, w.at(name, "upper"), w.at(name, "work")
	case "fuse":
		needFuse(t)
		m.Options = fusefs.MountOptions()
		m.Serve = func(dev *os.File) (err error) {
			server, err = fusefs.Serve(dev, fusefs.Root{Base: w.at("base"), Layers: []string{w.at(name, "upper")}, Work: w.at(name, "work")},
				fusefs.Options{})
			return err
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(w.at(name + ".log")) //lint:allow create: in a directory of the test
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	spec := &ns.Spec{
		Programs: []ns.Program{{Argv: []string{exe, "-test.run=^TestInside$", "-test.v", "-test.count=1"}, Stdio: [3]*os.File{nil, out, out}}},
		Env: append(os.Environ(), shownVariable+"="+w.at("base"), plainVariable+"="+w.at("plain"), nameVariable+"="+name,
			"TMPDIR="+w.at("plain")),
		Dir: "/", Root: os.Geteuid() == 0, Mounts: []ns.Mount{m}, Private: []string{w.at("plain")}, Marker: "fstest\n",
	}
	s, err := ns.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	exit, err := s.Wait(ctx)
	err = errors.Join(err, s.Close())
	if server != nil {
		err = errors.Join(err, server.Close())
	}
	if err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	report(t, string(text), exit.Code)
}

// report passes on what the suite in the session says: what failed, what was
// skipped and why.
func report(t *testing.T, text string, code int) {
	t.Helper()
	passed := strings.Count(text, "--- PASS")
	t.Logf("%d passed, %d skipped", passed, strings.Count(text, "--- SKIP"))
	if code == 0 && passed > 50 {
		return
	}
	var failed []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "=== ") && !strings.Contains(line, "--- PASS") && !strings.Contains(line, "--- SKIP") {
			failed = append(failed, line)
		}
	}
	t.Errorf("the suite ended with status %d after %d that passed:\n%s", code, passed, strings.Join(failed, ""))
}

// needFuse skips where /dev/fuse cannot be opened. CI sets TRY_TEST_FUSE: there
// it must be.
func needFuse(t *testing.T) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
		return
	}
	if os.Getenv("TRY_TEST_FUSE") != "" {
		t.Fatalf("open /dev/fuse: %v", err)
	}
	t.Skipf("open /dev/fuse: %v", err)
}
