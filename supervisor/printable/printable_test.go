package printable

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestName(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"src/main.go", "src/main.go"},
		{"two words", "two words"},
		{"-rf", "-rf"},
		{"Ä/ñ/日本語/Привет/שלום/हिन्दी/ไทย/বাংলা", "Ä/ñ/日本語/Привет/שלום/हिन्दी/ไทย/বাংলা"},
		{"한글", "한글"},
		{"🦦.txt", "🦦.txt"},
		{"", `""`},
		{`a"b`, `"a\"b"`},
		{`a\b`, `"a\\b"`},
		{"a\nb\tc", `"a\nb\tc"`},
		{" lead", `"\040lead"`},
		{"trail ", `"trail\040"`},
		{"in  side", `"in \040side"`},
		{"a -> b", `"a -> b"`},
		{"x\x1b[31m", `"x\033[31m"`},
		{"x\x7f", `"x\177"`},
		{"bad\xff", `"bad\377"`},
		{"\u202egnp.sh", `"\342\200\256gnp.sh"`},
		{"x\u009b31my", `"x\302\23331my"`},
		{"zero\u200bwidth", `"zero\342\200\213width"`},
		{"nb\u00a0sp", `"nb\302\240sp"`},
		{"e\u0301", `"e\314\201"`},                         // decomposed é
		{"e\u0323\u0302", `"e\314\243\314\202"`},           // decomposed ệ: the second composes with the first as well
		{"\u1100\u1161", `"` + "\u1100" + `\341\205\241"`}, // decomposed 가
		{"\u212b", `"\342\204\253"`},                       // Å as the unit
		{"\u0301a", `"\314\201a"`},                         // a mark on nothing
		{"filler\u3164", `"filler\343\205\244"`},
		{"\ufffd", "\ufffd"},
		{"x\u0335\u0335\u0335\u0335\u0335", "\"x\u0335\u0335\u0335\u0335\\314\\265\""},
	} {
		if got := Name(tt.in); got != tt.want {
			t.Errorf("Name(%q) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestTextKeepsSpacesAndIsOneLine(t *testing.T) {
	t.Parallel()
	if got, want := Text(" a  \"b\"\n\x1b "), ` a  "b"\n\033 `; got != want {
		t.Errorf("Text = %q, want %q", got, want)
	}
	if got, want := Line("\tx\r"), "\tx\\r"; got != want {
		t.Errorf("Line = %q, want %q", got, want)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	if got, want := Words([]string{"sh", "-c", "a b", "", "x\n"}), `sh -c "a b" "" "x\n"`; got != want {
		t.Errorf("Words = %s, want %s", got, want)
	}
}

func TestMixed(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"paypal": false, "pаypal": true, "Привет": false, "Ω": false, "aΩ": true, "日本x": false, "é.txt": false,
	} {
		if got := Mixed(name); got != want {
			t.Errorf("Mixed(%q) = %t, want %t", name, got, want)
		}
	}
}

func TestFold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		same bool
	}{{"README", "readme", true}, {"Straße", "STRAßE", true}, {"\u212a", "k", true}, {"a", "b", false}} {
		if got := Fold(tt.a) == Fold(tt.b); got != tt.same {
			t.Errorf("Fold(%q) == Fold(%q): %t, want %t", tt.a, tt.b, got, tt.same)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"", "a\x1b[0m", "\u202e", "\xff\xfe", "a  b ", "e\u0301", "\u009b", "\ufffd", "x\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for kind, out := range map[string]string{"Name": Name(s), "Text": Text(s), "Line": strings.ReplaceAll(Line(s), "\t", "")} {
			if !utf8.ValidString(out) {
				t.Errorf("%s(%q) = %q is not UTF-8", kind, s, out)
			}
			for _, r := range out {
				if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 || unicode.Is(unicode.Bidi_Control, r) || !unicode.IsPrint(r) {
					t.Errorf("%s(%q) = %q holds %U", kind, s, out, r)
				}
			}
		}
		if got := unquote(t, Name(s)); got != s {
			t.Errorf("Name(%q) reads back as %q", s, got)
		}
	})
}

// unquote reads what git's quotes hold; that it can is what makes two names
// differ.
func unquote(t *testing.T, s string) string {
	if !strings.HasPrefix(s, `"`) {
		return s
	}
	var b []byte
	s = s[1 : len(s)-1]
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b = append(b, s[i])
			continue
		}
		i++
		if j := strings.IndexByte("abtnvfr", s[i]); j >= 0 {
			b = append(b, "\a\b\t\n\v\f\r"[j])
		} else if s[i] >= '0' && s[i] <= '3' {
			b = append(b, (s[i]-'0')<<6|(s[i+1]-'0')<<3|(s[i+2]-'0'))
			i += 2
		} else {
			b = append(b, s[i])
		}
	}
	return string(b)
}
