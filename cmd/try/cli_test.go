package main

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"try/supervisor"
)

func TestCutEndsFlagsAtTheFirstWord(t *testing.T) {
	t.Parallel()
	known := flagsOf(reflect.TypeFor[runCmd]())
	for _, tt := range []struct {
		args, flags, rest string // separated by spaces; "_" is the empty argument
		word              bool
	}{
		{"", "", "", false},
		{"make -j4 --keep", "", "make -j4 --keep", false},
		{"-y make -y", "-y", "make -y", false},
		{"-- make", "", "make", false},
		{"-- -- x", "", "-- x", false},
		{"npm -- -v", "", "npm -- -v", false},
		{"-b name make", "-b name", "make", false},
		{"-bname make", "-bname", "make", false},
		{"-yb name make", "-yb name", "make", false},
		{"-qyb name make", "-qyb name", "make", false},
		{"--branch name make", "--branch name", "make", false},
		{"--branch=name make", "--branch=name", "make", false},
		{"--check -- make", "--check --", "make", false},
		{"--pty make", "--pty", "make", false},
		{"--no-pty make", "--no-pty", "make", false},
		{"--no-policy make", "--no-policy", "make", false},
		{"--policy file make", "--policy file", "make", false},
		{"--bogus make", "--bogus", "make", false},
		{"-Z make", "-Z", "make", false},
		{"_ x", "", "_ x", false},
		{"- x", "", "- x", false},
		{"commit name", "", "commit name", true},
		{"--color never commit name", "--color never", "commit name", true},
		{"-- commit name", "", "commit name", false},
		{"-y -- commit name", "-y", "commit name", false},
		{"-b commit make", "-b commit", "make", false},
		{"committed", "", "committed", false},
		{"-b", "-b", "", false},
	} {
		got := cut(fields(tt.args), known)
		if !slices.Equal(got.flags, fields(tt.flags)) || !slices.Equal(got.rest, fields(tt.rest)) || got.word != tt.word {
			t.Errorf("cut(%s) = %q, %q, word %t, want %s, %s, %t", tt.args, got.flags, got.rest, got.word, tt.flags, tt.rest, tt.word)
		}
	}
}

// fields cuts at spaces; "_" is an empty argument.
func fields(s string) []string {
	list := strings.Fields(s)
	for i := range list {
		if list[i] == "_" {
			list[i] = ""
		}
	}
	return list
}

func FuzzCutLosesNothing(f *testing.F) {
	f.Add("-y\x00--\x00commit\x00\xff")
	f.Add("--check\x00a b\x00x")
	known := flagsOf(reflect.TypeFor[runCmd]())
	f.Fuzz(func(t *testing.T, joined string) {
		args := strings.Split(joined, "\x00")
		got := cut(args, known)
		all := slices.Concat(got.flags, got.rest)
		if len(all) == len(args)-1 {
			all = slices.Concat(got.flags, []string{"--"}, got.rest)
		}
		if !slices.Equal(all, args) {
			t.Errorf("cut(%q) = %q, %q", args, got.flags, got.rest)
		}
	})
}

// parsed gives the options of a command line of `try CMD`.
func parsed(args ...string) (supervisor.Options, error) {
	flags := &runCmd{}
	known := flagsOf(reflect.TypeFor[runCmd]())
	c := cut(args, known)
	if err := parseFlags(flags, known, c.flags); err != nil {
		return supervisor.Options{}, err
	}
	flags.argv = c.rest
	return flags.options()
}

func TestValuesAreKeptByteByByte(t *testing.T) {
	t.Parallel()
	o, err := parsed("--root", "bad\xff", "--check=a,b ${x} \xfe", "--check", "c", "--deny", "", "ls", "\xff", "", "a b")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.Roots, []string{"bad\xff"}) || !slices.Equal(o.Checks, []string{"a,b ${x} \xfe", "c"}) ||
		!slices.Equal(o.Deny, []string{""}) || !slices.Equal(o.Argv, []string{"ls", "\xff", "", "a b"}) {
		t.Errorf("options = %+v", o)
	}
}

func TestFates(t *testing.T) {
	t.Parallel()
	const c, a, k, q = supervisor.Commit, supervisor.Abort, supervisor.Keep, supervisor.Ask
	for _, tt := range []struct {
		args             string
		success, failure supervisor.Fate
		wrong            string // both flags of the contradiction
	}{
		{"x", 0, 0, ""},
		{"-y x", c, c, ""},
		{"--commit --commit x", c, c, ""},
		{"--abort x", a, a, ""},
		{"--keep x", k, k, ""},
		{"--exit-code x", c, a, ""},
		{"--ask x", q, q, ""},
		{"--on-success keep x", k, 0, ""},
		{"--on-failure ask x", 0, q, ""},
		{"--exit-code --on-failure abort x", c, a, ""},
		{"--commit --on-failure commit x", c, c, ""},
		{"--on-success commit --on-failure keep x", c, k, ""},
		{"-y --abort x", 0, 0, "-y/--commit and --abort"},
		{"--keep --ask x", 0, 0, "--keep and --ask"},
		{"--exit-code -y x", 0, 0, "-y/--commit and --exit-code"},
		{"--exit-code --on-failure keep x", 0, 0, "--exit-code and --on-failure"},
		{"--abort --on-success commit x", 0, 0, "--abort and --on-success"},
	} {
		o, err := parsed(fields(tt.args)...)
		if tt.wrong != "" {
			u, ok := errors.AsType[*usageError](err)
			if !ok || !strings.Contains(u.Error(), tt.wrong) || u.ExitCode() != statusFailed {
				t.Errorf("options(%s): error %v, want a usage error about %s", tt.args, err, tt.wrong)
			}
			continue
		}
		if err != nil || o.OnSuccess != tt.success || o.OnFailure != tt.failure {
			t.Errorf("options(%s) = %v, %v, %v, want %v, %v", tt.args, o.OnSuccess, o.OnFailure, err, tt.success, tt.failure)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for args, status := range map[string]int{
		"--bogus make":              125,
		"--timeout 0 make":          125,
		"--timeout 5 make":          125,
		"--grace -1s make":          125,
		"--scope house make":        125,
		"--net lo make":             125,
		"--on-success maybe make":   125,
		"--policy f --no-policy ls": 125,
		"-q --summary full ls":      125,
		"-b ../x ls":                125,
		"-b -rf ls":                 125,
		"-b a/b ls":                 125,
		"-b":                        125,
		"--status-fd x ls":          125,
		"changes a b":               2,
		"commit --bogus":            2,
		"policy":                    2,
		"policy frobnicate":         2,
		"help nonsense":             2,
	} {
		l, err := parse(fields(args))
		if err == nil {
			p := &program{}
			err = l.do(p)
		}
		u, ok := errors.AsType[*usageError](err)
		if !ok || statusOf(err) != status || u.Hint() == "" {
			t.Errorf("try %s: error %v (exit status %d), want a usage error with a hint (%d)", args, err, statusOf(err), status)
		}
	}
}

// Each flag of `try CMD` is explained, and nothing else is.
func TestHelpKnowsEveryFlag(t *testing.T) {
	t.Parallel()
	var have, explained []string
	for _, f := range flagsOf(reflect.TypeFor[runCmd]()) {
		have = append(have, f.name)
	}
	for _, g := range flagHelp {
		for _, line := range g.flags {
			explained = append(explained, line.name)
		}
	}
	slices.Sort(have)
	slices.Sort(explained)
	if !slices.Equal(have, explained) {
		t.Errorf("flags %v\nexplained %v", have, explained)
	}
}

// The words that parse and the words that are cut off are the same.
func TestReservedWords(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&words{}, parserOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"help"}
	for _, node := range parser.Model.Children {
		names = append(names, node.Name)
	}
	slices.Sort(names)
	if want := slices.Sorted(slices.Values(reserved())); !slices.Equal(names, want) {
		t.Errorf("words %v, reserved %v", names, want)
	}
}

// TestFlagsAreKongs: what is known of the flags without kong is what kong knows.
func TestFlagsAreKongs(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&runCmd{}, parserOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, f := range flagsOf(reflect.TypeFor[runCmd]()) {
		got = append(got, fmt.Sprintf("%s %s %t", f.name, f.short, f.isBool))
	}
	for _, f := range parser.Model.Node.Flags {
		short := ""
		if f.Short != 0 {
			short = string(f.Short)
		}
		want = append(want, fmt.Sprintf("%s %s %t", f.Name, short, f.IsBool()))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("flagsOf knows\n%q, kong\n%q", got, want)
	}
}
