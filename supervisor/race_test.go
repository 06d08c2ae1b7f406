package supervisor_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"try/ns"
	"try/supervisor"
)

// An exploration in this process (the example) may start this binary again.
func init() {
	ns.Init()
	supervisor.Sweep()
}

// raceDocument is what the tests read of the result document of a race.
type raceDocument struct {
	document
	Signal   *string
	TimedOut bool `json:"timed_out"`
	Group    string
	Winner   *int
	Why      string
	Variants []struct {
		Index    int
		Branch   string
		ExitCode *int `json:"exit_code"`
		Signal   *string
		TimedOut bool `json:"timed_out"`
		Settled  string
		Reason   string
		Changes  *struct{ Added int }
		Log      *string
		Error    *string
	}
}

func (o *outcome) race() *raceDocument {
	o.r.t.Helper()
	d := &raceDocument{}
	if err := json.Unmarshal([]byte(o.stdout), d); err != nil {
		o.r.t.Fatalf("%q: %v\nstdout: %s\nstderr: %s", o.argv, err, o.stdout, o.stderr)
	}
	return d
}

// settled is how each variant was, in order.
func (d *raceDocument) settled() string {
	var list []string
	for _, v := range d.Variants {
		list = append(list, v.Settled)
	}
	return strings.Join(list, " ")
}

// won is the winner, 0 for none.
func (d *raceDocument) won() int {
	if d.Winner == nil {
		return 0
	}
	return *d.Winner
}

// wantEmpty fails unless nothing is left of any branch.
func (r *rig) wantEmpty() {
	r.t.Helper()
	if left := r.branches(); len(left) > 0 {
		r.t.Errorf("branches left: %v", left)
	}
	for _, dir := range []string{"branches", "groups", "trash"} {
		entries, err := os.ReadDir(filepath.Join(r.store(), dir))
		r.must(err)
		if len(entries) > 0 {
			r.t.Errorf("%s of the store holds %d entries, first %s", dir, len(entries), entries[0].Name())
		}
	}
}

// rounds is how often a random test goes round.
func rounds(t *testing.T, otherwise int) int {
	text := os.Getenv("TRY_RACE_ROUNDS")
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("TRY_RACE_ROUNDS: %v", err)
	}
	return n
}

// The first success is committed; of the others nothing arrives.
func TestRaceFirstSuccess(t *testing.T) {
	r := newRig(t)
	r.write("f", "old\n")
	d := r.try("--race", "-n", "3", "--json", "sh", "-c", `
		echo "{i} $TRY_INDEX/$TRY_COUNT {{i}} x{i}y" >f
		echo {i} >only-{i}
		[ {i} = 2 ]`).want(0).race()
	if d.won() != 2 || d.settled() != "aborted committed aborted" || d.Settled != "committed" || d.Error != nil {
		t.Errorf("won by %d, settled %q, %s, error %v", d.won(), d.settled(), d.Settled, d.Error)
	}
	if d.Branch != d.Group+".2" || d.Variants[1].Changes == nil || d.Variants[1].Changes.Added != 1 {
		t.Errorf("branch %s of group %s: %+v", d.Branch, d.Group, d.Variants[1])
	}
	r.wantFile("f", "2 2/3 {i} x2y\n")
	r.wantFile("only-2", "2\n")
	if entries, _ := os.ReadDir(r.proj); len(entries) != 2 {
		t.Errorf("the project holds %v", entries)
	}
	r.wantEmpty()
}

// Each -c is a variant of its own, as it stands.
func TestRaceCommands(t *testing.T) {
	r := newRig(t)
	r.try("--race", "-q", "-c", "exit 1", "-c", `i=7; echo ${i} {i} $TRY_INDEX >f`).want(0)
	r.wantFile("f", "7 {i} 2\n")
	r.try("--race", "-q", "-n", "1", "sh", "-c", "echo one >g").want(0)
	r.wantFile("g", "one\n")
}

// A success that does not pass its checks is none.
func TestRaceCheckFails(t *testing.T) {
	r := newRig(t)
	d := r.try("--race", "--json", "--check", "[ -e good ] && [ $TRY_INDEX = 2 ]",
		"-c", "echo bad >f", "-c", "sleep 0.2; echo good >f; echo x >good").want(0).race()
	if d.won() != 2 || d.settled() != "aborted committed" || !strings.Contains(d.Variants[0].Reason, "check") {
		t.Errorf("won by %d, settled %q: %+v", d.won(), d.settled(), d.Variants[0])
	}
	r.wantFile("f", "good\n")
	// If all fail it is what a failed check is elsewhere: 125.
	d = r.try("--race", "--json", "--check", "false", "-n", "2", "sh", "-c", "echo x >h").want(125).race()
	if d.won() != 0 || d.settled() != "aborted aborted" || d.Settled != "aborted" || d.Error == nil {
		t.Errorf("none passed, but: %+v", d)
	}
	r.wantFile("h", fmt.Sprintf("open %s: no such file or directory", r.at("h")))
	r.wantEmpty()
}

// The policy's objection makes a variant lose.
func TestRacePolicy(t *testing.T) {
	r := newRig(t)
	d := r.try("--race", "--json", "-c", "echo x >.try.toml", "-c", "sleep 0.2; echo x >f").want(0).race()
	if d.won() != 2 || !strings.Contains(d.Variants[0].Reason, "policy") {
		t.Errorf("won by %d: %+v", d.won(), d.Variants)
	}
	r.wantEmpty()
}

// Without a success nothing is committed, and the status is that of the last.
func TestRaceNone(t *testing.T) {
	r := newRig(t)
	script := `echo x >f; [ {i} = 1 ] && sleep 0.3; exit {i}`
	for _, tt := range []struct {
		flags []string
		code  int
		why   string
	}{
		{nil, 1, "no variant succeeded"},
		{[]string{"--on-none", "77"}, 77, "no variant succeeded"},
		{[]string{"--on-none", "0"}, 0, "no variant succeeded"},
		{[]string{"--jobs", "1"}, 3, "no variant succeeded"},
	} {
		args := append([]string{"--race", "-n", "3", "--json"}, tt.flags...)
		d := r.try(append(args, "sh", "-c", script)...).want(tt.code).race()
		if d.won() != 0 || d.settled() != "aborted aborted aborted" || d.Settled != "aborted" || d.Why != tt.why || *d.ExitCode != tt.code {
			t.Errorf("%v: %+v", tt.flags, d)
		}
	}
	d := r.try("--race", "-n", "2", "--json", "--deadline", "300ms", "sleep", "1000").want(124).race()
	if !d.TimedOut || d.Why != "the deadline passed" || d.settled() != "aborted aborted" {
		t.Errorf("--deadline: %+v", d)
	}
	d = r.try("--race", "--json", "--timeout", "200ms", "-c", "sleep 1000", "-c", "sleep 0.4; echo x >g").want(124).race()
	if !d.Variants[0].TimedOut || !d.Variants[1].TimedOut {
		t.Errorf("--timeout: %+v", d.Variants)
	}
	d = r.try("--race", "--json", "-n", "2", "/nonexistent").want(127).race()
	if d.won() != 0 || *d.Variants[0].ExitCode != 127 {
		t.Errorf("not found: %+v", d.Variants)
	}
	r.wantEmpty()
}

// What cannot be meant is refused before anything runs, with what to write.
func TestRaceUsage(t *testing.T) {
	r := newRig(t)
	for _, args := range [][]string{
		{"-n", "3", "touch", "x"}, {"-c", "touch x"}, {"--jobs", "2", "touch", "x"}, {"--race", "touch", "x"}, {"--race"},
		{"--race", "-n", "0", "touch", "x"}, {"--race", "--variants=-1", "touch", "x"}, {"--race", "-n", "2"},
		{"--race", "-n", "2", "-c", "touch x"}, {"--race", "-c", "true", "touch", "x"}, {"--race", "-n", "2", "--jobs", "0", "touch", "x"},
		{"--race", "-n", "2", "--on-failure", "commit", "touch", "x"}, {"--race", "-n", "2", "--pty", "touch", "x"},
		{"--race", "-n", "2", "--on-none", "256", "touch", "x"}, {"--race", "-n", "2", "--deadline", "0s", "touch", "x"},
	} {
		r.try(args...).want(125).says("try -n 3 --race CMD {i}")
	}
	if entries, _ := os.ReadDir(r.proj); len(entries) > 0 {
		t.Errorf("something ran: %v", entries)
	}
}

// A loser that ignores TERM and forks away is gone before try returns.
func TestRaceStubbornLoser(t *testing.T) {
	r := newRig(t)
	mark := fmt.Sprintf("%d.%d", 100000+os.Getpid(), 417)
	stubborn := `trap "" TERM HUP INT; for x in 1 2 3 4 5; do (trap "" TERM HUP INT; setsid sh -c "trap '' TERM; sleep ` + mark + ` & wait"; wait) & done
		while [ $(pgrep -c -f "sleep ` + mark + `") -lt 5 ]; do sleep 0.01; done; echo up >"` + r.at("gate") + `"; while :; do sleep ` + mark + `; done`
	r.must(os.Mkdir(r.at("open"), 0o755))
	r.must(unix.Mkfifo(r.at("open/gate"), 0o666))
	stubborn = strings.ReplaceAll(stubborn, r.at("gate"), r.at("open/gate"))
	d := r.try("--race", "--json", "--allow-write", r.at("open"), "-c", stubborn, "-c", `read x <open/gate; echo 2 >f`).want(0).race()
	if d.won() != 2 || d.Variants[0].Settled != "aborted" || *d.Variants[0].Signal != "SIGKILL" {
		t.Errorf("won by %d: %+v", d.won(), d.Variants)
	}
	if out, err := exec.Command("pgrep", "-f", "sleep "+mark).Output(); err == nil {
		t.Errorf("still there: %s", out)
	}
	r.wantEmpty()
}

// conflicting is a race whose first success meets a file that was changed
// outside since the fork, and whose second does not.
func conflicting(r *rig, flags ...string) *outcome {
	r.t.Helper()
	r.write("f", "old\n")
	r.must(os.MkdirAll(r.at("open"), 0o755))
	r.must(os.RemoveAll(r.at("open/gate")))
	r.must(unix.Mkfifo(r.at("open/gate"), 0o666))
	args := append([]string{"--race", "--json", "-b", "fix", "--allow-write", r.at("open")}, flags...)
	p := r.begin(r.program(append(args,
		"-c", "echo branch >f; echo >open/gate; read x <open/gate",
		"-c", "sleep 0.5; echo other >g; read x <open/late || :")...))
	gate, err := os.Open(r.at("open/gate"))
	r.must(err)
	_, err = gate.Read(make([]byte, 1))
	r.must(err)
	r.must(gate.Close())
	r.write("f", "outside\n")
	r.must(os.WriteFile(r.at("open/gate"), []byte("\n"), 0))
	return p.wait()
}

// A conflict commits nothing: all is said, the winner is kept.
func TestRaceConflict(t *testing.T) {
	r := newRig(t)
	o := conflicting(r).want(125)
	d := o.race()
	if d.won() != 1 || d.Settled != "kept" || d.settled() != "kept aborted" || !d.conflicts()[r.at("f")] || d.Error == nil {
		t.Errorf("%+v", d)
	}
	if d.Variants[0].Log == nil {
		t.Error("the log of a branch that was kept is null")
	}
	o.says("conflict: " + r.at("f"))
	r.wantFile("f", "outside\n")
	if left := r.branches(); len(left) != 1 || left["fix.1"] != "kept" {
		t.Errorf("branches: %v", left)
	}
	r.try("commit", "fix").want(125).says("conflict") // all that is left of the race
	r.try("abort", "-q", "fix.1").want(0)
	r.wantEmpty()
}

// With --fallback the next success is committed, and the first is stale.
func TestRaceFallback(t *testing.T) {
	r := newRig(t)
	o := conflicting(r, "--fallback").want(0)
	d := o.race()
	if d.won() != 2 || d.Settled != "committed" || d.settled() != "kept committed" || !strings.Contains(d.Why, "variant 1") {
		t.Errorf("%+v", d)
	}
	r.wantFile("f", "outside\n")
	r.wantFile("g", "other\n")
	r.try("commit", "fix.1").want(125).says("fix.1 is stale: fix.2 was chosen")
	r.try("abort", "-q", "fix.1").want(0)
	r.wantEmpty()
	// Without another success the conflict is what is returned.
	d = conflicting(r, "--fallback", "--check", "[ $TRY_INDEX = 1 ]").want(125).race()
	if d.won() != 0 || d.Settled != "kept" || len(d.Conflicts) == 0 || d.Branch != "fix.1" {
		t.Errorf("%+v", d)
	}
	if left := r.branches(); len(left) != 1 || left["fix.1"] != "kept" {
		t.Errorf("branches: %v", left)
	}
}

// Losers that were kept can be looked at, and nothing else.
func TestRaceKeepLosers(t *testing.T) {
	r := newRig(t)
	d := r.try("--race", "--json", "--keep-losers", "-b", "fix", "-n", "3", "sh", "-c",
		`echo out-{i}; echo err-{i} >&2; echo {i} >f; echo x >g-{i}; [ {i} = 2 ] || exit 1; sleep 0.4`).want(0).race()
	if d.won() != 2 || d.settled() != "kept committed kept" {
		t.Fatalf("%+v", d)
	}
	if left := r.branches(); len(left) != 2 || left["fix.1"] != "kept" || left["fix.3"] != "kept" {
		t.Errorf("branches: %v", left)
	}
	if o := r.try("changes", "fix.1").want(0); !strings.Contains(o.stdout, "A g-1") {
		t.Errorf("changes fix.1: %s", o.stdout)
	}
	if o := r.try("log", "fix.3").want(0); o.stdout != "out-3\n" || o.stderr != "err-3\n" {
		t.Errorf("log fix.3: %q, %q", o.stdout, o.stderr)
	}
	if o := r.try("log", "fix").want(0); o.stdout != "[1] out-1\n[3] out-3\n" || o.stderr != "[1] err-1\n[3] err-3\n" {
		t.Errorf("log fix: %q, %q", o.stdout, o.stderr)
	}
	r.try("commit", "fix.3").want(125).says("fix.3 is stale: fix.2 was chosen", "try changes fix.3")
	r.wantFile("f", "2\n")
	r.try("log", "nope").want(1)
	r.try("abort", "fix").want(0)
	r.wantEmpty()
}

// Members of a race that nobody won wait for somebody to choose: one of them.
func TestRaceChosenByHand(t *testing.T) {
	r := newRig(t)
	r.try("--race", "-q", "--keep-losers", "-b", "fix", "-n", "3", "sh", "-c", `echo {i} >f{i}; exit 1`).want(1)
	p, q := r.begin(r.program("commit", "-q", "fix.1")), r.begin(r.program("commit", "-q", "fix.3"))
	a, b := p.wait(), q.wait()
	if min(a.code, b.code) != 0 || max(a.code, b.code) != 125 || !strings.Contains(a.stderr+b.stderr, "stale") {
		t.Errorf("two commits at once ended with %d and %d: %s%s", a.code, b.code, a.stderr, b.stderr)
	}
	r.try("commit", "fix.2").want(125).says("stale")
	entries, _ := filepath.Glob(r.at("f*"))
	if len(entries) != 1 {
		t.Errorf("the project holds %v", entries)
	}
}

// A signal ends all of them; nothing is committed and nothing stays.
func TestRaceSignals(t *testing.T) {
	r := newRig(t)
	r.must(os.Mkdir(r.at("open"), 0o755))
	r.must(unix.Mkfifo(r.at("open/gate"), 0o666))
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		p := r.begin(r.program("--race", "--json", "--allow-write", r.at("open"), "--jobs", "2", "-n", "4", "sh", "-c",
			`trap "echo x >f; exit 0" TERM INT HUP; echo x >g; echo up >open/gate; while :; do sleep 0.05; done`))
		gate, err := os.Open(r.at("open/gate"))
		r.must(err)
		_, err = gate.Read(make([]byte, 1))
		r.must(err)
		r.must(gate.Close())
		r.must(p.cmd.Process.Signal(sig))
		d := p.wait().want(128 + int(sig)).race()
		if d.won() != 0 || d.settled() != "aborted aborted aborted aborted" || d.Signal == nil || *d.Signal != unix.SignalName(sig) {
			t.Errorf("%v: %+v", sig, d)
		}
		if d.Variants[3].ExitCode != nil {
			t.Errorf("%v: variant 4 never ran and has exit code %d", sig, *d.Variants[3].ExitCode)
		}
	}
	r.wantEmpty()
}

// Two races in one directory at once: each commits, or says why not.
func TestRaceTwoAtOnce(t *testing.T) {
	r := newRig(t)
	r.write("same", "old\n")
	for range rounds(t, 5) {
		a := r.begin(r.program("--race", "--json", "-n", "3", "sh", "-c", `echo a{i} >same; echo {i} >a`))
		b := r.begin(r.program("--race", "--json", "-n", "3", "sh", "-c", `echo b{i} >same; echo {i} >b`))
		x, y := a.wait(), b.wait()
		dx, dy := x.race(), y.race()
		committed := 0
		for _, d := range []*raceDocument{dx, dy} {
			switch d.Settled {
			case "committed":
				committed++
			case "kept":
				if !d.conflicts()[r.at("same")] {
					t.Errorf("kept without the conflict: %+v", d)
				}
				r.try("abort", "-q", d.Branch).want(0)
			default:
				t.Errorf("settled %s: %+v", d.Settled, d)
			}
		}
		if committed == 0 {
			t.Errorf("neither committed: %s %s", x.stderr, y.stderr)
		}
	}
	r.wantEmpty()
}

// Variants that end in the same moment: exactly one is committed, each time.
func TestRaceSimultaneous(t *testing.T) {
	r := newRig(t)
	r.must(os.Mkdir(r.at("open"), 0o755))
	gate := r.at("open/gate")
	r.must(unix.Mkfifo(gate, 0o666))
	won := map[int]int{}
	for range rounds(t, 30) {
		cmd := r.program("--race", "--json", "--status-fd", "3", "--allow-write", r.at("open"), "-n", "4", "sh", "-c",
			`exec 4<open/gate; read x <&4; echo {i} >winner; echo {i} >>all`)
		events, w, err := os.Pipe()
		r.must(err)
		cmd.ExtraFiles = []*os.File{w}
		p := r.begin(cmd)
		r.must(w.Close())
		// They all wait in open(2) for a writer.
		f, err := os.OpenFile(gate, os.O_WRONLY, 0)
		r.must(err)
		started := 0
		for in := json.NewDecoder(events); started < 4; {
			var e struct{ Event string }
			r.must(in.Decode(&e))
			if e.Event == "started" {
				started++
			}
		}
		r.must(f.Close()) // and read its end now
		d := p.wait().want(0).race()
		r.must(events.Close())
		committed := strings.Count(d.settled(), "committed")
		if committed != 1 || d.won() == 0 {
			t.Fatalf("%d committed: %s", committed, d.settled())
		}
		won[d.won()]++
		r.wantFile("winner", fmt.Sprintln(d.won()))
		r.wantFile("all", fmt.Sprintln(d.won()))
		r.must(os.Remove(r.at("all")))
	}
	t.Logf("won: %v", won)
	r.wantEmpty()
}

// Many variants, few at once: no more than those run, and nothing is left.
func TestRaceJobs(t *testing.T) {
	r := newRig(t)
	n := max(60, rounds(t, 60))
	p, events, _ := r.outlived("--race", "--json", "--status-fd", "3", "--jobs", "8", "-n", strconv.Itoa(n), "sh", "-c", `echo {i} >f{i}; exit 1`)
	defer events.Close()
	running, most, seen := 0, 0, 0
	for in := json.NewDecoder(events); ; {
		var e struct {
			Event string
			Index int
		}
		if in.Decode(&e) != nil {
			break
		}
		switch {
		case e.Event == "started":
			running++
			most = max(most, running)
		case e.Event == "settled" && e.Index > 0:
			running--
			seen++
		}
	}
	d := p.wait().want(1).race() // and no process is left
	if most > 8 || most < 2 || seen != n || len(d.Variants) != n {
		t.Errorf("%d ran at once, %d were settled of %d", most, seen, n)
	}
	if entries, _ := os.ReadDir(r.proj); len(entries) > 0 {
		t.Errorf("the project holds %v", entries)
	}
	r.wantEmpty()
}
