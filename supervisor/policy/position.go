package policy

import (
	"errors"
	"strconv"
	"strings"
)

// maxDepth bounds what is nested in a policy file; both the TOML library and
// the locator below descend recursively.
const maxDepth = 32

var errDepth = errors.New("nested too deeply")

// A place in a TOML document: keys joined by keySep; an index into an array
// (of tables or values) follows its key after indexSep. Both bytes are
// forbidden in TOML.
const (
	keySep   = "\x01"
	indexSep = "\x02"
)

func child(place, key string) string {
	if place == "" {
		return key
	}
	return place + keySep + key
}

func element(place string, i int) string { return place + indexSep + strconv.Itoa(i) }

// lines maps places to the line on which they first appear.
type lines map[string]int

// of returns the line of a place, or of the nearest place around it.
func (l lines) of(place string) int {
	for place != "" {
		if n := l[place]; n > 0 {
			return n
		}
		place = place[:max(strings.LastIndexAny(place, keySep+indexSep), 0)]
	}
	return 1
}

// locate finds the line of each key and array element of a TOML document: the
// library tells neither for unknown keys nor for the elements of [[rule]]. In
// a document that is not valid TOML what it finds is of no use, but harmless.
func locate(text string) (lines, error) {
	l := &locator{s: text, line: 1, found: lines{}, tables: map[string]int{}}
	return l.found, l.document()
}

type locator struct {
	s      string
	i      int
	line   int
	found  lines
	tables map[string]int // array of tables → how many so far
}

func (l *locator) document() error {
	table := ""
	for {
		l.space(true)
		if l.i >= len(l.s) {
			return nil
		}
		if l.peek() == '[' {
			array := strings.HasPrefix(l.s[l.i:], "[[")
			l.i++
			if array {
				l.i++
			}
			line := l.line
			keys := l.keys()
			for l.peek() == ']' {
				l.i++
			}
			table = l.table(keys, array, line)
			continue
		}
		start := l.i
		if err := l.pair(table, 0); err != nil {
			return err
		}
		if l.i == start {
			l.next() // not TOML: go on behind it
		}
	}
}

// table notes a table header and returns the place of its keys.
func (l *locator) table(keys []string, array bool, line int) string {
	place := ""
	for i, k := range keys {
		place = child(place, k)
		if array && i == len(keys)-1 {
			l.note(place, line)
			l.tables[place]++
		}
		if n := l.tables[place]; n > 0 {
			place = element(place, n-1)
		}
		l.note(place, line)
	}
	return place
}

// pair reads key = value.
func (l *locator) pair(table string, depth int) error {
	line := l.line
	place := table
	for _, k := range l.keys() {
		place = child(place, k)
		l.note(place, line)
	}
	l.space(false)
	if l.peek() != '=' {
		return nil
	}
	l.i++
	return l.value(place, depth)
}

func (l *locator) value(place string, depth int) error {
	if depth > maxDepth {
		return &Error{Line: l.line, Text: errDepth.Error()}
	}
	l.space(false)
	switch c := l.peek(); c {
	case '"', '\'':
		l.str()
	case '[', '{':
		l.i++
		for n := 0; ; n++ {
			l.space(true)
			for l.peek() == ',' {
				l.i++
				l.space(true)
			}
			if l.i >= len(l.s) || l.peek() == ']' || l.peek() == '}' {
				l.i++
				return nil
			}
			start := l.i
			var err error
			if c == '[' {
				elem := element(place, n)
				l.note(elem, l.line)
				err = l.value(elem, depth+1)
			} else {
				err = l.pair(place, depth+1)
			}
			if err != nil {
				return err
			}
			if l.i == start {
				l.next()
			}
		}
	default:
		for l.i < len(l.s) && !strings.ContainsRune(",]}\n#", rune(l.s[l.i])) {
			l.i++
		}
	}
	return nil
}

// keys reads a dotted key.
func (l *locator) keys() []string {
	var keys []string
	for {
		l.space(false)
		start := l.i
		switch l.peek() {
		case '"', '\'':
			keys = append(keys, l.str())
		default:
			for l.i < len(l.s) && isBare(l.s[l.i]) {
				l.i++
			}
			if l.i > start {
				keys = append(keys, l.s[start:l.i])
			}
		}
		l.space(false)
		if l.i == start || l.peek() != '.' {
			return keys
		}
		l.i++
	}
}

func isBare(c byte) bool {
	return c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// str reads a string of any of the four kinds and returns what it stands for,
// as far as keys need that.
func (l *locator) str() string {
	quote := l.s[l.i : l.i+1]
	if three := strings.Repeat(quote, 3); strings.HasPrefix(l.s[l.i:], three) {
		quote = three
	}
	start := l.i
	l.i += len(quote)
	for l.i < len(l.s) {
		switch {
		case strings.HasPrefix(l.s[l.i:], quote):
			l.i += len(quote)
			if len(quote) == 3 { // """a""""" ends in two quotes of its own
				for n := 0; n < 2 && l.i < len(l.s) && l.s[l.i] == quote[0]; n++ {
					l.i++
				}
				return ""
			}
			raw := l.s[start:l.i]
			if quote == "'" {
				return raw[1 : len(raw)-1]
			}
			if s, err := strconv.Unquote(raw); err == nil {
				return s
			}
			return raw[1 : len(raw)-1]
		case len(quote) == 1 && l.s[l.i] == '\n':
			return ""
		case quote[0] == '"' && l.s[l.i] == '\\':
			l.next()
			l.next()
		default:
			l.next()
		}
	}
	return ""
}

// space skips blanks, and with newlines also those and comments.
func (l *locator) space(newlines bool) {
	for l.i < len(l.s) {
		switch c := l.s[l.i]; {
		case c == ' ' || c == '\t' || c == '\r':
			l.i++
		case newlines && c == '\n':
			l.next()
		case newlines && c == '#':
			for l.i < len(l.s) && l.s[l.i] != '\n' {
				l.i++
			}
		default:
			return
		}
	}
}

func (l *locator) peek() byte {
	if l.i < len(l.s) {
		return l.s[l.i]
	}
	return 0
}

// next goes one byte on and counts lines.
func (l *locator) next() {
	if l.i < len(l.s) {
		if l.s[l.i] == '\n' {
			l.line++
		}
		l.i++
	}
}

func (l *locator) note(place string, line int) {
	if l.found[place] == 0 {
		l.found[place] = line
	}
}
