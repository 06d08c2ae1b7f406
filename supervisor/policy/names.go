package policy

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// name is one path of a change, in the forms in which rules are matched
// against it: as it is, and folded, for those that ask or deny.
type name struct {
	path    string
	offsets []int // of the part relative to each root
	folded  string
	foldeds []int // offsets in folded
}

// named prepares a path for matching.
func (e *evaluation) named(path string) name {
	n := name{path: path, offsets: appendOffsets(nil, path, e.in.Roots), folded: fold(path)}
	if n.foldeds = n.offsets; n.folded != path {
		if e.roots == nil {
			for _, r := range e.in.Roots {
				e.roots = append(e.roots, fold(r))
			}
		}
		n.foldeds = appendOffsets(nil, n.folded, e.roots)
	}
	return n
}

// mayMatch says whether it is worth to look at the rule's globs.
func (r *Rule) mayMatch(n *name) bool {
	return strings.HasPrefix(n.path, r.head) || r.Action >= Ask && strings.HasPrefix(n.folded, r.foldedHead)
}

// matches says whether the rule's i-th glob matches. A rule that asks or denies
// must not be slipped past on a file system to which .GIT is .git, whichever
// this one is (H21).
func (r *Rule) matches(i int, n *name) bool {
	if r.globs[i].match(n.path, n.offsets) {
		return true
	}
	if r.Action < Ask {
		return false
	}
	g := r.globs[i].folded
	if g == nil {
		if n.folded == n.path {
			return false
		}
		g = &r.globs[i]
	}
	return g.match(n.folded, n.foldeds)
}

// fold returns what all spellings have in common that some file system takes
// for one name: NFC, case folding, no ignorable code points. Bytes that are no
// UTF-8 stay as they are.
func fold(s string) string {
	plain, ascii := true, true
	for i := range len(s) {
		c := s[i]
		plain = plain && c < utf8.RuneSelf && (c < 'A' || c > 'Z')
		ascii = ascii && c < utf8.RuneSelf
	}
	switch {
	case plain:
		return s
	case ascii:
		return strings.ToLower(s)
	}
	var b strings.Builder
	for rest := norm.NFC.String(s); rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteByte(rest[0])
		case unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		case toASCII[r] != "":
			b.WriteString(toASCII[r])
		default:
			b.WriteRune(foldRune(r))
		}
		rest = rest[size:]
	}
	return norm.NFC.String(b.String())
}

// toASCII are the code points whose full case folding, of several, has ASCII
// letters in it (CaseFolding.txt, status F); the others' folds to one are in
// package unicode.
var toASCII = map[rune]string{
	'ß': "ss", 'ẞ': "ss", 'ﬀ': "ff", 'ﬁ': "fi", 'ﬂ': "fl", 'ﬃ': "ffi", 'ﬄ': "ffl", 'ﬅ': "st", 'ﬆ': "st",
	'İ': "i\u0307", 'ŉ': "\u02bcn", 'ǰ': "j\u030c", 'ẖ': "h\u0331", 'ẗ': "t\u0308", 'ẘ': "w\u030a", 'ẙ': "y\u030a", 'ẚ': "a\u02be",
}

// foldRune returns the least code point that r folds to, or the ASCII small
// letter.
func foldRune(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	if 'A' <= least && least <= 'Z' {
		least += 'a' - 'A'
	}
	return least
}
