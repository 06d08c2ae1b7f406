package policy

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

func TestGlobMatches(t *testing.T) {
	t.Parallel()
	roots := []string{"/home/u/p", "/home/u", "/tmp"}
	for _, c := range []struct {
		glob, path string
		want       bool
	}{
		{"~/.bashrc", "/home/u/.bashrc", true},
		{"~/.bashrc", "/home/u/p/.bashrc", false},
		{"~/.bashrc", "/home/u/.bashrc2", false},
		{"~/.ssh/**", "/home/u/.ssh", true},
		{"~/.ssh/**", "/home/u/.ssh/a/b", true},
		{"~/.ssh/**", "/home/u/.sshx/a", false},
		{"~/.ssh/*", "/home/u/.ssh/a/b", false},
		{"~/.zcompdump*", "/home/u/.zcompdump-host-5.9", true},
		{"~", "/home/u", true},
		{"/tmp/a?c", "/tmp/abc", true},
		{"/tmp/a?c", "/tmp/a/c", false},
		{"/tmp/**", "/tmp/x/y", true},
		{"/**", "/tmp/x/y", true},
		{"build/**", "/home/u/p/build/x", true},
		{"build/**", "/home/u/build/x", true}, // relative to either root
		{"build/**", "/home/u/q/build/x", false},
		{"build", "/tmp/build", true},
		{"*.o", "/tmp/a.o", true},
		{"*.o", "/home/u/q/a.o", false},
		{"**/*.o", "/home/u/q/a.o", true},
		{"**/*.o", "/tmp/a.o", true},
		{"**/x", "/home/u/x", true},
		{"**/x", "/home/u/a/b/x", true},
		{"**/x", "/home/u/a/b/xx", false},
		{"**/u", "/home/u/p", false}, // above the root is not matched
		{"**/u/p", "/home/u/p/x", false},
		{"**/home/**", "/home/u/p/x", false},
		{"**/.git/hooks/**", "/home/u/p/.git/hooks/pre-commit", true},
		{"**/.git/hooks/**", "/home/u/p/.git/hooks", true},
		{"**/.git/hooks/**", "/home/u/p/x.git/hooks/a", false},
		{"**/*.git/hooks/**", "/home/u/p/x.git/hooks/a", true},
		{"**/*.git/hooks/**", "/home/u/.git/hooks/a", true},
		{"**/node_modules/.cache/**", "/home/u/p/node_modules/.cache/a/b", true},
		{"**/node_modules/.cache/**", "/home/u/p/xnode_modules/.cache/a/b", false},
		{"**/node_modules/.cache/**", "/home/u/p/node_modules/.cachex/node_modules/.cache/b", true},
		{"**/.*.sw[a-p]", "/home/u/p/.a.c.swp", true},
		{"**/.*.sw[a-p]", "/home/u/p/a.swp", false},
		{"**/.~lock.*#", "/home/u/.~lock.x.odt#", true},
		{`**/a\*b`, "/home/u/a*b", true},
		{`**/a\*b`, "/home/u/axb", false},
		{`\~x`, "/home/u/~x", true},
		{"{a,b}/c", "/home/u/b/c", true},
		{"**/{a,b}/**", "/home/u/z/b/c", true},
		{"**", "/home/u/z/b/c", true},
		{"**/**", "/home/u/z", true},
		{"**/**/**/z", "/home/u/z", true},
		{"**/z/**/**", "/home/u/z", true},
		{"~/z/**/**", "/home/u/z", true},
		{"a[!x]b", "/home/u/a/b", false},
		{"a[!x]b", "/home/u/ayb", true},
		{"**/a[^x]b", "/home/u/p/a/b", false},
		{`a[!\]]b`, "/home/u/a/b", false},
		{`a\[!x]b`, "/home/u/a[!x]b", true},
		{`a[!a-z]{b,c[!d]}`, "/home/u/a/b", false},
		{`a[!a-z]{b,c[!d]}`, "/home/u/aXce", true},
		{"a[!/]b", "/home/u/axb", true},
		{`**/\**/**`, "/home/u/*a/z", true},
		{`**/\**/**`, "/home/u/a/z", false},
		{"/home/u/\xff", "/home/u/\xff", true},
		{"/home/u/\xff", "/home/u/\xfe", false},
		{"**/a", "/var/a", false}, // in no root
	} {
		g, err := compileGlob(c.glob, scope{home: "/home/u"})
		if err != nil {
			t.Errorf("compileGlob(%q) = %v", c.glob, err)
			continue
		}
		if got := g.match(c.path, appendOffsets(nil, c.path, roots)); got != c.want {
			t.Errorf("%q matches %q = %v, want %v (%+v)", c.glob, c.path, got, c.want, g)
		}
	}
}

func TestGlobOfProjectIsRelativeToItsFile(t *testing.T) {
	t.Parallel()
	s := scope{home: "/home/u", dir: "/home/u/[p]"}
	for glob, want := range map[string]string{
		"build/**": "/home/u/[p]/build/x", "**/*.pem": "/home/u/[p]/a/b.pem", "a": "/home/u/[p]/a", "~/.x": "/home/u/.x",
	} {
		g, err := compileGlob(glob, s)
		if err != nil {
			t.Fatal(err)
		}
		offsets := appendOffsets(nil, want, []string{"/home/u"})
		if !g.match(want, offsets) {
			t.Errorf("%q does not match %q", glob, want)
		}
		if other := strings.Replace(want, "[p]", "q", 1); other != want && g.match(other, offsets) {
			t.Errorf("%q matches %q outside of the project", glob, other)
		}
	}
}

func TestBadGlobsAreRefused(t *testing.T) {
	t.Parallel()
	for glob, want := range map[string]string{
		"":                         "empty",
		"a/../b":                   `segment ".."`,
		"./a":                      `segment "."`,
		"{a,../b}":                 `segment ".."`,
		`\.\./a`:                   `segment ".."`,
		"a//b":                     "empty path segment",
		"a/":                       `"a/**"`,
		"a[":                       "not closed",
		"{a":                       "not closed",
		`a\`:                       "backslash",
		"a**b":                     "stand alone",
		"**.txt":                   "stand alone",
		"a[/]b":                    "holds a slash",
		"{a,[ -~]}b":               "in two",
		"~root/x":                  "~user",
		"a\x00b":                   "NUL",
		strings.Repeat("{a,b}", 9): "combinations",
		strings.Repeat("x", 5000):  "5000 bytes",
		"{{a,b}{c,d}{e,f}{g,h}{i,j}{k,l}{m,n}{o,p}{q,r}}": "combinations",
	} {
		if _, err := compileGlob(glob, scope{home: "/h"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("compileGlob(%.40q) = %v, want an error with %q", glob, err, want)
		}
	}
	if _, err := compileGlob(strings.Repeat("{a,b}", 8), scope{}); err != nil {
		t.Errorf("256 combinations are refused: %v", err)
	}
}

// FuzzGlob holds the quick forms to what doublestar says of the same pattern.
func FuzzGlob(f *testing.F) {
	for _, g := range []string{"**/*.git/hooks/**", "**/a/b/**", "a/*/c", "**/x", "{a,b}/**", `**/a\*`, "**/[a-c]x", "/r/**", "~/a*"} {
		f.Add(g, "a/b/c")
		f.Add(g, "x.git/hooks/y")
	}
	f.Fuzz(func(t *testing.T, text, rel string) {
		if rel == "" || rel[0] == '/' || strings.HasSuffix(rel, "/") || strings.Contains(rel, "//") {
			t.Skip()
		}
		g, err := compileGlob(text, scope{home: "/r"})
		if err != nil {
			t.Skip()
		}
		// doublestar matches a with a/**, and not with a/**/**.
		text = canonical(text)
		path := "/r/" + rel
		want := false
		switch {
		case text == "~" || strings.HasPrefix(text, "~/"):
			want = doublestar.MatchUnvalidated("/r"+text[1:], path)
		case text[0] == '/':
			want = doublestar.MatchUnvalidated(text, path)
		default:
			want = doublestar.MatchUnvalidated(text, rel)
		}
		if !utf8.ValidString(text) || !utf8.ValidString(rel) || strings.ContainsRune(text+rel, utf8.RuneError) {
			t.Skip() // doublestar takes every invalid byte for this one; we do not
		}
		if got := g.match(path, appendOffsets(nil, path, []string{"/r"})); got != want {
			t.Errorf("%q matches %q = %v, doublestar says %v (%+v)", text, rel, got, want, g)
		}
	})
}

func TestExpand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"a":                {"a"},
		"{a,b}{c,d}":       {"ac", "ad", "bc", "bd"},
		"x{,a{b,c}}y":      {"xy", "xaby", "xacy"},
		"{a}{}":            {"a"},
		`\{a,b\}`:          {`\{a,b\}`},
		`{\,,\}}`:          {`\,`, `\}`},
		"[{]{a,[,}]}[a,}]": {"[{]a[a,}]", "[{][,}][a,}]"},
		`[\]{]{a,b}`:       {`[\]{]a`, `[\]{]b`},
	} {
		if !doublestar.ValidatePattern(text) {
			t.Errorf("%q is no glob", text)
		}
		if got := expand(text); !slices.Equal(got, want) {
			t.Errorf("expand(%q) = %q, want %q", text, got, want)
		}
	}
}

// An empty choice behind a star that stands for nothing: the glob of a rule that
// denies must not miss it.
func TestEmptyChoiceBehindStar(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a*{,b}", "[a]*{,b}", `\a{*,b}{,c}`, "{a,[b]}*{}"} {
		globs, err := compileGlobs(text, scope{home: "/r"})
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if !slices.ContainsFunc(globs, func(g glob) bool { return g.match("/r/a", []int{3}) }) {
			t.Errorf("%q does not match a: %+v", text, globs)
		}
	}
}

// starAtBrace finds a star that doublestar does not see to stand for nothing.
var starAtBrace = regexp.MustCompile(`\*[{},]`)

// FuzzExpand: a glob with braces means what its parts mean together.
func FuzzExpand(f *testing.F) {
	for _, g := range []string{"a/{b,c}/**", "{a,b{c,d}}/x", "~/.{a,b}rc", "**/{x,y/z}", "{,a}/b", "a{,/}", "{~/a,b}", "/{a,b}{c,d}"} {
		f.Add(g, "a/b/c")
		f.Add(g, "abd/x")
	}
	f.Fuzz(func(t *testing.T, text, rel string) {
		if rel == "" || rel[0] == '/' || strings.HasSuffix(rel, "/") || strings.Contains(rel, "//") {
			t.Skip()
		}
		whole, err := compileGlob(text, scope{home: "/r"})
		parts, err2 := compileGlobs(text, scope{home: "/r"})
		if (err == nil) != (err2 == nil) {
			t.Fatalf("compileGlob(%q) = %v, compileGlobs: %v", text, err, err2)
		}
		if err != nil || !utf8.ValidString(text) || !utf8.ValidString(rel) || strings.ContainsRune(text+rel, utf8.RuneError) {
			t.Skip()
		}
		path := "/r/" + rel
		offsets := appendOffsets(nil, path, []string{"/r"})
		got := slices.ContainsFunc(parts, func(g glob) bool { return g.match(path, offsets) })
		if want := whole.match(path, offsets); got != want && (want || !starAtBrace.MatchString(text)) {
			t.Errorf("the parts of %q match %q: %v, the whole: %v", text, path, got, want)
		}
	})
}
