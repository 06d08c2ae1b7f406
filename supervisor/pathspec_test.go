package supervisor

import "testing"

func TestPathspec(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		glob, path string
		want       bool
	}{
		{".", "/h/p/a/b", true},
		{"a", "/h/p/a/b", true},
		{"a", "/h/p/ab", false},
		{"a", "/h/p/x/a", false}, // a path, not a pattern
		{"*.log", "/h/p/x/a.log", true},
		{"*.log", "/h/a.log", false},
		{"x/*.log", "/h/p/x/a.log", true},
		{"x/*.log", "/h/p/y/x/a.log", false},
		{"../q/*", "/h/q/a/b", true},
		{"~/q*", "/h/q/a", true},
		{"/h/{p,q}/a", "/h/q/a", true},
		{"log*{,.gz}", "/h/p/x/log", true},
		{"log*{,.gz}", "/h/p/x/log.1.gz", true},
		{"x/**/**", "/h/p/x", true},
		{"a[!b]c", "/h/p/a/c", false},
		{"a[!b]c", "/h/p/x/adc", true},
		{"x/{a,[{]}*", "/h/p/x/{1", true},
		{`\*`, "/h/p/*", true},
		{`\*`, "/h/p/a", false},
	} {
		list, err := newPathspecs([]string{c.glob}, "/h/p", "/h")
		if err != nil {
			t.Errorf("%s: %v", c.glob, err)
			continue
		}
		if got := list[0].match(c.path); got != c.want {
			t.Errorf("%s matches %s: %v (%q)", c.glob, c.path, got, list[0].patterns)
		}
	}
	for _, glob := range []string{"", "a[", "{a", `a\`, "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"} {
		if _, err := newPathspecs([]string{glob}, "/h/p", "/h"); err == nil {
			t.Errorf("%q is taken", glob)
		}
	}
}
