package policy

import (
	"strings"
	"testing"
	"time"
)

func decodeText(t *testing.T, source Source, text string) (*layer, error) {
	t.Helper()
	l := &layer{source: source, file: "/p/x.toml", dir: "/p", text: text}
	return l, l.decode("/home/u")
}

func TestErrorsNameFileAndLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"top key", "\nbogus = 1\n", `/p/x.toml:2: unknown key "bogus"`},
		{"table", "[settle]\n[sesion]\n", `/p/x.toml:2: unknown key "sesion"`},
		{"key in table", "[limits]\n# c\nmax_change = 3\n", `/p/x.toml:3: unknown key "max_change" in [limits]; known: max_changes`},
		{"key in second rule", "[[rule]]\npaths=['a']\naction='deny'\n[[rule]]\npaths=['a']\naction='ask'\nwhen=1\n", `:7: unknown key "when" in [[rule]]`},
		{"glob in second rule", "[[rule]]\npaths=['a']\naction='deny'\n[[rule]]\naction='ask'\npaths=[\n  'a', # ok\n\n  'b[',\n]\n", `:9: bad glob "b["`},
		{"multi-line string before", "[settle]\nchecks=['''\na\n[limits]\n''']\nx=1\n", `:6: unknown key "x" in [settle]`},
		{"inline table", "limits = { max_changes = 1, y = 2 }\n", `:1: unknown key "y" in [limits]`},
		{"rules inline", "rule = [{paths=['a'], action='deny'},\n{paths=['a'], action='denny'}]\n", `:2: action is "denny"; it must be one of ["allow" "yield"`},
		{"dotted key", "a = 1\nlimits.zz = 3\n", `:2: unknown key "zz" in [limits]`},
		{"quoted key", "[limits]\n\n\"z\\u0061\" = 3\n", `:3: unknown key "za" in [limits]`},
		{"type", "[limits]\nmax_changes = 'many'\n", `:2: limits.max_changes is "many"`},
		{"negative", "[limits]\nmax_deleted = -1\n", `:2: limits.max_deleted is -1`},
		{"zero processes", "[limits]\nprocesses = 0\n", `:2: limits.processes is 0`},
		{"size", "[limits]\nmax_bytes = '5 MX'\n", `:2: limits.max_bytes: bad size "5 MX"`},
		{"duration number", "[limits]\ntimeout = 5\n", `:2: limits.timeout is a whole number`},
		{"duration", "[session]\ngrace = '5'\n", `:2: session.grace: bad duration`},
		{"enum", "[session]\n\nnet = 'off'\n", `:3: session.net is "off"; it must be one of ["host" "none"]`},
		{"list", "[session]\nroots = '/x'\n", `:2: session.roots is a string; it must be a list`},
		{"list element", "[session]\nroots = ['/x',\n 5]\n", `:3: session.roots holds a whole number`},
		{"table as value", "settle = 5\n", `:1: settle is a whole number`},
		{"rule as table", "[rule]\npaths=['a']\n", `rule is a table; it must be an array of tables`},
		{"no action", "\n[[rule]]\npaths=['a']\n", `:2: a [[rule]] needs paths and action`},
		{"kind", "[[rule]]\npaths=['a']\naction='deny'\nchange=['added',\n'moved']\n", `:5: change is "moved"`},
		{"a dot", "[[rule]]\npaths=['x', 'a/./b']\naction='deny'\n", `:2: bad glob "a/./b"`},
		{"an empty segment", "[[rule]]\npaths=['a//b']\naction='deny'\n", `:2: bad glob "a//b"`},
		{"a trailing slash", "[[rule]]\naction='deny'\npaths=[\n'a',\n'b/']\n", `:5: bad glob "b/"`},
		{"dots", "[[rule]]\npaths=['../a']\naction='deny'\n", `:2: bad glob "../a"`},
		{"syntax", "[limits]\nmax_changes = = 1\n", `/p/x.toml:2: `},
		{"duplicate", "[limits]\nmax_changes = 1\nmax_changes = 1\n", `/p/x.toml:3: `},
		{"bad utf-8", "a = \"\xff\"\n", `/p/x.toml:1: `},
		{"deep", "a = " + strings.Repeat("[", 5000), `nested too deeply`},
	} {
		_, err := decodeText(t, Project, c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: decode = %v, want %q in it", c.name, err, c.want)
		}
	}
}

func TestAllErrorsAreTold(t *testing.T) {
	t.Parallel()
	_, err := decodeText(t, User, "[limits]\nx = 1\n[settle]\ny = 2\n")
	if got, want := err.Error(), "/p/x.toml:2: unknown key \"x\""; !strings.HasPrefix(got, want) || !strings.Contains(got, "\n/p/x.toml:4: unknown key \"y\"") {
		t.Errorf("decode = %q, want both errors by line", got)
	}
}

func TestRelativePathsNeedADirectory(t *testing.T) {
	t.Parallel()
	l := &layer{source: User, file: "/c/policy.toml", text: "[session]\nroots=['x']\n"}
	if err := l.decode("/home/u"); err == nil || !strings.Contains(err.Error(), "paths start with ~/ or /") {
		t.Errorf("decode = %v, want the relative path refused", err)
	}
	l, err := decodeText(t, Project, "[session]\nroots=['../x', '~/y', '/z/']\nsockets=['tmux','run/s']\n")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.settings[0].Value()+l.settings[1].Value(), `["/x", "/home/u/y", "/z"]["tmux", "/p/run/s"]`; got != want {
		t.Errorf("settings = %s, want %s", got, want)
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{"0B": 0, "5MB": 5e6, "1GiB": 1 << 30, "1.5 KiB": 1536, "7kB": 7000, "2TB": 2e12} {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "5", "MB", "-1MB", "5 M", "1e3MB", "1..2MB", "99999999999TB", "5mb"} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", s, got)
		}
	}
	for s, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "2h30m": 150 * time.Minute, "0": 0, "0d": 0,
	} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "d", "5", "-1s", "1d-1h", "1.5d", "1d1d", "99999999999d", "106751d999h"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", s, got)
		}
	}
}

// FuzzDecode: no text makes the decoder panic; each error has a line that
// exists; what was read once is read again from the stored form.
func FuzzDecode(f *testing.F) {
	f.Add("[settle]\non_success='ask'\nchecks=['make']\n[limits]\nmax_bytes='5MB'\ntimeout='1d'\n[session]\nroots=['x']\n")
	f.Add("[[rule]]\npaths=['**/a','~/b']\nchange=['added']\naction='deny'\nwhy='x'\n")
	f.Add("rule=[{paths=[\"\"\"a\\\nb\"\"\"],action='''ask'''}]\n")
	f.Add("a.b.c=[[1,2],[{x=1}]]\n[[x.y]]\n[x.y.z]\n")
	f.Add("[limits]\nmax_bytes=1979-05-27 07:32:00\n")
	f.Fuzz(func(t *testing.T, text string) {
		l := &layer{source: Project, file: "F", dir: "/p", text: text}
		err := l.decode("/home/u")
		if err != nil {
			last := strings.Count(text, "\n") + 1
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if rest, ok := strings.CutPrefix(line, "F:"); ok {
					n := 0
					for rest != "" && '0' <= rest[0] && rest[0] <= '9' {
						n, rest = n*10+int(rest[0]-'0'), rest[1:]
					}
					if n < 1 || n > last {
						t.Errorf("error %q: line %d of %d", line, n, last)
					}
				}
			}
			return
		}
		p := &Policy{stacks: []*stack{newStack(facts{Home: "/home/u"})}}
		p.stacks[0].layers = append(p.stacks[0].layers, l)
		p.stacks[0].restrict(l)
		data, err := p.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		q, err := Restore(data)
		if err != nil {
			t.Fatalf("Restore of what was read: %v", err)
		}
		if a, b := len(p.Rules()), len(q.Rules()); a != b {
			t.Errorf("restored policy has %d rules, want %d", b, a)
		}
	})
}
