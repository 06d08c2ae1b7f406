package supervisor_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// outlived runs the program under a helper that ends when the last process is
// gone. events is its --status-fd 3, pid that of the program.
func (r *rig) outlived(args ...string) (p *running, events *os.File, pid int) {
	r.t.Helper()
	cmd := r.helper("reap", append([]string{binary}, args...)...)
	events, w, err := os.Pipe()
	r.must(err)
	told, tell, err := os.Pipe()
	r.must(err)
	cmd.ExtraFiles = []*os.File{w, tell}
	p = r.begin(cmd)
	r.must(w.Close())
	r.must(tell.Close())
	_, err = fmt.Fscan(told, &pid)
	r.must(err)
	r.must(told.Close())
	return p, events, pid
}

// A race whose supervisor is killed at any moment leaves the base as it was or
// with all of one variant, no process, and nothing that could still add another.
func TestRaceKilled(t *testing.T) {
	r := newRig(t)
	const files, variants = 12, 4
	tree := func() string {
		t.Helper()
		var all []string
		for i := range files {
			all = append(all, strings.TrimSpace(r.read(fmt.Sprintf("d/f%d", i))))
		}
		for _, a := range all {
			if a != all[0] {
				t.Fatalf("half committed: %v", all)
			}
		}
		return all[0]
	}
	committed, left := 0, 0
	for round := range rounds(t, 25) {
		for i := range files {
			r.write(fmt.Sprintf("d/f%d", i), "old\n")
		}
		p, events, pid := r.outlived("--race", "-q", "--status-fd", "3", "-b", "race", "-n", strconv.Itoa(variants), "sh", "-c",
			fmt.Sprintf(`for i in $(seq 0 %d); do echo {i} >d/f$i; done; echo {i} >d/new{i}`, files-1))
		// Killed a random while after a random event; of the later ones, which
		// the commit follows, more often.
		in := json.NewDecoder(events)
		for range 1 + rand.IntN(4*variants) {
			var e struct {
				Event string
				Index int
			}
			if in.Decode(&e) != nil {
				break
			}
		}
		<-time.After(time.Duration(rand.IntN(12_000)) * time.Microsecond)
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, events)
		r.must(events.Close())
		p.wait() // none of its processes is left
		states := r.branches()
		now := tree()
		if now != "old" {
			committed++
			// Whatever is left is stale, and not offered as anything else.
			for name := range states {
				if o := r.try("commit", "-q", name); o.code == 0 {
					t.Errorf("%s was committed too: %s", name, o.stderr)
				}
			}
			r.try("-q", "--abort", "true").want(0) // the next run clears it away
		} else if len(states) > 0 {
			left++
			o := r.try("--race", "-n", "1", "true").want(0)
			if slices.Contains(slices.Collect(maps.Values(states)), "interrupted") {
				o.says("race race was interrupted")
			}
			// If one was decided for, that run has cleared the others away.
			states = r.branches()
			if round%2 == 0 && len(states) > 1 {
				r.try("abort", "-q", "race").want(0)
			} else {
				r.chooseOne(states)
			}
		}
		r.wantEmpty()
		if t.Failed() {
			t.Fatalf("in round %d: tree %q, branches %v", round, now, states)
		}
		r.must(os.RemoveAll(r.at("d")))
	}
	t.Logf("%d committed, %d left to be decided", committed, left)
}

// chooseOne commits one of the branches that a killed race has left, as far as
// its command had come, and shows that there is no second. One that had not begun
// is no choice; one that was killed when no file, but the time of a directory,
// was another is.
func (r *rig) chooseOne(states map[string]string) {
	r.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if o := r.try("commit", name).want(0); !strings.Contains(o.stderr, "no changes") {
			break
		}
	}
	for name := range r.branches() {
		// Stale, or cleared away by the run before.
		if o := r.try("commit", name); o.code == 0 && !strings.Contains(o.stderr, "no changes") {
			r.t.Errorf("%s was committed too: %s", name, o.stderr)
		}
	}
	r.try("-q", "--abort", "true").want(0)
}

// A variant that fills the disk loses; what it held is free again while the
// race goes on, and another one wins.
func TestRaceFullDisk(t *testing.T) {
	r := newRig(t)
	r.must(os.Mkdir(filepath.Join(r.dir, "open"), 0o755))
	r.must(unix.Mkfifo(filepath.Join(r.dir, "open/gate"), 0o666))
	// The supervisor ends the first as well, perhaps before the second has looked.
	const full = `n=0; while [ $n -lt 200 ] && dd if=/dev/zero of=probe bs=64k count=1 2>/dev/null; do rm -f probe; n=$((n+1)); sleep 0.02; done; rm -f probe; `
	gate := " " + filepath.Join(r.dir, "open/gate") + "; " // the first stays until the second has met the full disk
	cmd := r.helper("private", "/bin/sh", "-c", `cd "$1"; shift; "$@" >../document; s=$?; ls >../listing; exit $s`, "sh", r.proj,
		binary, "--race", "--json", "--allow-write", filepath.Join(r.dir, "open"),
		"-c", `echo noise; dd if=/dev/zero of=big bs=64k; echo $? >&2; read x <`+gate+`exit 1`,
		"-c", full+`echo full 1<>`+gate+`until dd if=/dev/zero of=small bs=1M count=4; do sleep 0.05; done`)
	cmd.Env = append(cmd.Env, mountVariable+"="+r.proj+" size=16m,mode=1777")
	o := r.finish(cmd).want(0)
	text, err := os.ReadFile(filepath.Join(r.dir, "document"))
	r.must(err)
	o.stdout = string(text)
	d := o.race()
	if d.won() != 2 || d.settled() != "aborted committed" {
		t.Errorf("%+v\n%s", d, o.stderr)
	}
	listing, err := os.ReadFile(filepath.Join(r.dir, "listing"))
	if err != nil || string(listing) != "small\n" {
		t.Errorf("the project holds %q, %v", listing, err)
	}
}
