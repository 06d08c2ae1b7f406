// Package printable makes strings that we did not write fit for a terminal:
// paths, link targets, process names, command lines, errors that quote them.
// It knows which characters a reader can see and tell apart; nobody else does.
//
// Invariants, held by a fuzz test:
//
//  1. What comes out is valid UTF-8 and holds no control character (below
//     0x20, 0x7f, U+0080–U+009F), no bidirectional control and nothing
//     invisible, whatever went in.
//  2. Two different strings never come out of [Name] as the same one.
//
// What stays as it is goes by the Unicode category of each character, so a
// name in any language reads as it was written: letters, marks after what they
// belong to, numbers, punctuation, symbols, single spaces inside. The rest is
// escaped byte by byte as in git's quotes (git-config(1), core.quotePath),
// and so is what is not in normal form C, since two spellings of one character
// look alike.
package printable

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Name returns a path or a name as it is when every character of it can be
// read, and else in double quotes with C escapes, as git does.
func Name(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	w := writer{b: &b, quoted: true}
	w.write(s)
	b.WriteByte('"')
	return b.String()
}

// Text returns running text, such as an error that quotes a path, in one line:
// escaped like [Name], but without quotes, and with spaces as they are.
func Text(s string) string {
	if clean(s) {
		return s
	}
	var b strings.Builder
	w := writer{b: &b, spaces: true}
	w.write(s)
	return b.String()
}

// Line is [Text] for a line of a file's content, whose tabs stay.
func Line(s string) string {
	if clean(s) {
		return s
	}
	var b strings.Builder
	w := writer{b: &b, spaces: true, tabs: true}
	w.write(s)
	return b.String()
}

// Words returns a command line; what a space or an escape would make
// ambiguous stands in quotes.
func Words(argv []string) string {
	var b strings.Builder
	for i, word := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		if shown := Name(word); shown != word || word != "" && !strings.Contains(word, " ") {
			b.WriteString(shown)
		} else {
			b.WriteByte('"')
			b.WriteString(word)
			b.WriteByte('"')
		}
	}
	return b.String()
}

// plain says whether a name needs no quotes.
func plain(s string) bool {
	if s == "" {
		return false // an empty name would vanish in a line
	}
	// " -> " is how a link and its target are shown.
	if strings.ContainsAny(s, `"\`) || strings.Contains(s, " -> ") {
		return false
	}
	w := writer{quoted: true}
	return w.passes(s)
}

// clean says whether a text is printed as it is.
func clean(s string) bool {
	w := writer{spaces: true}
	return w.passes(s)
}

// writer goes over a string once, remembering what the next character is
// judged by.
type writer struct {
	b      *strings.Builder
	quoted bool // inside quotes: quotes and backslashes are escaped
	spaces bool // spaces stay wherever they stand
	tabs   bool

	before rune // the character before, if it stays and can carry a mark; else 0
	base   rune // the last character that was no mark
	marks  int  // how many marks it carries
	space  bool // the character before was a space
}

// maxMarks is how many marks one character may carry. No script needs more;
// stacks of them run over the lines above.
const maxMarks = 4

func (w *writer) passes(s string) bool {
	for i, r := range s {
		size := 1
		if r != utf8.RuneError {
			size = utf8.RuneLen(r)
		} else if _, n := utf8.DecodeRuneInString(s[i:]); n > 1 {
			size = n
		}
		if !w.stays(r, size, i == 0 || i+size == len(s)) {
			return false
		}
	}
	return true
}

func (w *writer) write(s string) {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if w.stays(r, size, i == 0 || i+size == len(s)) {
			if w.quoted && (r == '"' || r == '\\') {
				w.b.WriteByte('\\')
			}
			w.b.WriteRune(r)
		} else {
			for _, c := range []byte(s[i : i+size]) {
				escape(w.b, c)
			}
		}
		i += size
	}
}

// stays decides about one character, which may be the first or last (edge).
func (w *writer) stays(r rune, size int, edge bool) bool {
	space := w.space
	w.space = r == ' '
	switch {
	case r == ' ':
		w.before, w.base, w.marks = 0, 0, 0
		return w.spaces || !edge && !space
	case r == '\t' && w.tabs:
		w.before, w.base, w.marks = 0, 0, 0
		return true
	case r < utf8.RuneSelf:
		w.before, w.base, w.marks = r, r, 0
		return r >= 0x20 && r != 0x7f
	}
	if r == utf8.RuneError && size == 1 || !visible(r) || unicode.Is(notComposed, r) || w.composes(r) {
		w.before, w.base, w.marks = 0, 0, 0
		return false
	}
	if unicode.IsMark(r) {
		if w.before == 0 || w.marks == maxMarks {
			w.before = 0
			return false
		}
		w.before = r
		w.marks++
		return true
	}
	w.before, w.base, w.marks = r, r, 0
	return true
}

// visible says whether r leaves something on the screen, and only where it
// stands: a letter, mark, number, punctuation or symbol that is drawn.
func visible(r rune) bool {
	switch r {
	case 0x2800, 0x1d159: // symbols that are blank: the empty braille cell, the null notehead
		return false
	}
	return unicode.IsPrint(r) &&
		!unicode.In(r, unicode.Bidi_Control, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// composes says whether r would be one character with what stands before it,
// so that what we read is not in normal form C.
func (w *writer) composes(r rune) bool {
	const leads, vowels, trails, syllables = 0x1100, 0x1161, 0x11a7, 0xac00
	switch {
	case r >= vowels && r < vowels+21:
		return w.before >= leads && w.before < leads+19
	case r > trails && r < trails+28:
		return w.before >= syllables && w.before < syllables+11172 && (w.before-syllables)%28 == 0
	}
	with := starters(r)
	if with == "" {
		return false
	}
	return w.base != 0 && strings.ContainsRune(with, w.base) || w.before != 0 && strings.ContainsRune(with, w.before)
}

// escape writes one byte as git does (quote.c).
func escape(b *strings.Builder, c byte) {
	b.WriteByte('\\')
	const short = "\a\b\t\n\v\f\r"
	if i := strings.IndexByte(short, c); i >= 0 {
		b.WriteByte("abtnvfr"[i])
		return
	}
	b.WriteByte('0' + c>>6)
	b.WriteByte('0' + c>>3&7)
	b.WriteByte('0' + c&7)
}
