package printable

import (
	"strings"
	"unicode"
)

// Mixed says that a name mixes letters of Latin with ones of Cyrillic or
// Greek, some of which look the same. Names of one script, whichever it is,
// are no one's business.
func Mixed(name string) bool {
	var latin, alike bool
	for _, r := range name {
		switch {
		case r < 0x80:
			latin = latin || r|0x20 >= 'a' && r|0x20 <= 'z'
		case !unicode.IsLetter(r):
		case unicode.Is(unicode.Latin, r):
			latin = true
		case unicode.In(r, unicode.Cyrillic, unicode.Greek):
			alike = true
		}
	}
	return latin && alike
}

// Fold returns what two names have in common that differ in case only.
func Fold(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, name)
}
