package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

const (
	maxGlob         = 4096
	maxAlternatives = 256 // doublestar tries each combination of {…}
)

// anchor says what a glob is matched against.
type anchor uint8

const (
	absolute anchor = iota // the absolute path
	rooted                 // the path relative to each root that holds it
	anywhere               // **/rest: the path relative to the outermost root
)

// form says how a glob is matched. All but general are compared byte by byte,
// which is what keeps 100,000 changes cheap, and exact for names that are no
// UTF-8.
type form uint8

const (
	exact   form = iota // lit is the path (absolute), its end (anywhere), or the relative path
	below               // lit is a directory: it and all below it
	base                // the last segment matches pattern; starts with lit, ends in tail
	general             // doublestar, if the path has lit: at its start (absolute, rooted), or anywhere in it
)

// glob is a compiled pattern.
type glob struct {
	text    string
	source  string // absolute, or what comes behind **/
	where   anchor
	how     form
	lit     string
	tail    string
	pattern string
	full    string // of a project's relative glob: the absolute one
	folded  *glob  // of a rule that asks or denies, where its folded form is another
}

// scope is what a glob's start can refer to.
type scope struct {
	home string // "" if there is none
	dir  string // of a project file: what relative globs are relative to; else ""
}

// compileGlob checks and prepares one glob.
func compileGlob(text string, s scope) (glob, error) {
	if err := checkGlob(text); err != nil {
		return glob{}, err
	}
	g := glob{text: text}
	pattern := canonical(text)
	switch {
	case pattern == "~" || strings.HasPrefix(pattern, "~/"):
		if s.home == "" {
			return glob{}, errors.New("~ in a glob, but there is no home directory")
		}
		pattern = join(QuoteMeta(s.home), strings.TrimPrefix(pattern[1:], "/"))
	case pattern[0] == '/':
	case s.dir != "":
		pattern = join(QuoteMeta(s.dir), pattern)
		g.full = pattern
	case strings.HasPrefix(pattern, "**/"):
		g.where = anywhere
		pattern = pattern[len("**/"):]
	default:
		g.where = rooted
	}
	g.prepare(pattern)
	return g, nil
}

// canonical is text with one ** where several follow each other, and without the
// slash that a class takes by its negation (not so in glob(7)).
func canonical(text string) string {
	segments := slices.CompactFunc(strings.Split(text, "/"), func(a, b string) bool { return a == "**" && b == "**" })
	text = strings.Join(segments, "/")
	if !strings.Contains(text, "[") {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		class := text[:unit(text)]
		text = text[len(class):]
		if takesSlash(class) && negated(class) {
			class = class[:2] + "/" + class[2:]
		}
		b.WriteString(class)
	}
	return b.String()
}

// takesSlash is for a unit of a glob.
func takesSlash(unit string) bool {
	return unit[0] == '[' && doublestar.MatchUnvalidated(unit, "/")
}

func negated(class string) bool { return class[1] == '!' || class[1] == '^' }

// join puts rest below dir; dir may be "/".
func join(dir, rest string) string {
	if rest == "" {
		return dir
	}
	return strings.TrimSuffix(dir, "/") + "/" + rest
}

// prepare chooses the cheapest form that says the same as the pattern.
func (g *glob) prepare(pattern string) {
	g.source = pattern
	if lit, ok := literal(pattern); ok {
		g.how, g.lit = exact, lit
		return
	}
	if dir, ok := strings.CutSuffix(pattern, "/**"); ok && dir != "" {
		if lit, ok := literal(dir); ok {
			g.how, g.lit = below, lit
			return
		}
	}
	g.how, g.pattern = general, pattern
	switch g.where {
	case anywhere:
		if !strings.Contains(pattern, "/") {
			g.how = base
			g.lit, g.tail = literalEnds(pattern)
			return
		}
		g.pattern = "**/" + pattern
		g.lit = longestLiteral(pattern)
	default:
		g.lit = literalStart(pattern)
	}
}

// match says whether the glob matches. offsets are the places in p at which
// the part relative to a root begins, that of the outermost root first.
func (g *glob) match(p string, offsets []int) bool {
	switch g.where {
	case absolute:
		switch g.how {
		case exact:
			return p == g.lit
		case below:
			return under(p, g.lit)
		default:
			return strings.HasPrefix(p, g.lit) && doublestar.MatchUnvalidated(g.pattern, p)
		}
	case anywhere:
		if len(offsets) == 0 {
			return false
		}
		return g.matchAnywhere(p, offsets[0])
	default:
		return slices.ContainsFunc(offsets, func(o int) bool { return o <= len(p) && g.matchRooted(p[o:]) })
	}
}

func (g *glob) matchAnywhere(p string, o int) bool {
	switch g.how {
	case exact:
		return endsIn(p, g.lit) && len(p)-len(g.lit) >= o
	case below:
		if endsIn(p, g.lit) && len(p)-len(g.lit) >= o {
			return true
		}
		for from := max(o-1, 0); ; { // the slash before the relative part counts
			i := strings.Index(p[from:], g.lit)
			if i < 0 {
				return false
			}
			i += from
			end := i + len(g.lit)
			if i >= o && (i == 0 || p[i-1] == '/') && end < len(p) && p[end] == '/' {
				return true
			}
			from = i + 1
		}
	case base:
		i := strings.LastIndexByte(p, '/') + 1
		if i < o {
			return false
		}
		name := p[i:]
		return strings.HasPrefix(name, g.lit) && strings.HasSuffix(name, g.tail) &&
			doublestar.MatchUnvalidated(g.pattern, name)
	default:
		return o <= len(p) && strings.Contains(p[o:], g.lit) && doublestar.MatchUnvalidated(g.pattern, p[o:])
	}
}

func (g *glob) matchRooted(rel string) bool {
	switch g.how {
	case exact:
		return rel == g.lit
	case below:
		return under(rel, g.lit)
	default:
		return strings.HasPrefix(rel, g.lit) && doublestar.MatchUnvalidated(g.pattern, rel)
	}
}

// place is the longest directory or path that every match of an absolute glob
// lies at or below; "" for other globs.
func (g *glob) place() string {
	if g.where != absolute {
		return ""
	}
	if g.how == exact || g.how == below {
		return g.lit
	}
	return strings.TrimSuffix(g.lit[:strings.LastIndexByte(g.lit, '/')+1], "/")
}

// places are those that every match of the glob lies at or below, one for each
// root if it is relative to them; none if it may be anywhere.
func (g *glob) places(roots []string) []string {
	switch g.where {
	case absolute:
		if place := g.place(); place != "" {
			return []string{place}
		}
	case rooted:
		lit := g.lit
		if g.how == general {
			lit = strings.TrimSuffix(lit[:strings.LastIndexByte(lit, '/')+1], "/")
		}
		if lit == "" {
			return nil // as good as anywhere
		}
		var list []string
		for _, r := range roots {
			list = append(list, join(r, lit))
		}
		return list
	}
	return nil
}

// depth is how far below place, one of its places, a match can lie; 0: it is
// the place. More than a few levels nobody looks for links.
func (g *glob) depth(place, home string) int {
	switch {
	case g.how == exact:
		return 0
	case under(home, place):
		return 1 // the home directory itself
	case g.how == below || strings.Contains(g.pattern, "**"):
		return 3
	}
	return max(strings.Count(g.pattern, "/")-strings.Count(place, "/"), 1)
}

// above are globs of the directories that a match of a glob that may be
// anywhere lies below, as far as the glob names them: **/.git of **/.git/hooks/**.
func (g *glob) above() []glob {
	pattern := g.source
	if g.where != anywhere || strings.ContainsAny(pattern, `{}[]\`) {
		return nil
	}
	var list []glob
	segments := strings.Split(pattern, "/")
	for i := 1; i < len(segments) && segments[i-1] != "**"; i++ {
		if i == len(segments)-1 && segments[i] == "**" {
			break // the glob itself matches it
		}
		dir, err := compileGlob("**/"+strings.Join(segments[:i], "/"), scope{})
		if err == nil && segments[i-1] != "*" {
			list = append(list, dir)
		}
	}
	return list
}

// prepare finds out what every path that the rule matches begins with, and
// prepares the globs of one that asks or denies for folded names.
func (r *Rule) prepare() {
	for i := range r.globs {
		g := &r.globs[i]
		if g.where != absolute {
			r.head = ""
			break
		}
		if i == 0 {
			r.head = g.lit
		}
		n := 0
		for n < min(len(r.head), len(g.lit)) && r.head[n] == g.lit[n] {
			n++
		}
		if n < len(r.head) {
			// Behind these nothing composes (NFC), so that the folded head, too,
			// begins what the path is folded to.
			r.head = r.head[:strings.LastIndexAny(r.head[:n], "/.")+1]
		}
	}
	r.foldedHead = fold(r.head)
	if r.Action < Ask {
		return
	}
	for i := range r.globs {
		g := &r.globs[i]
		if low := fold(g.source); low != g.source && doublestar.ValidatePattern(low) {
			g.folded = &glob{text: g.text, where: g.where}
			g.folded.prepare(low)
		}
	}
}

// under says whether p is dir or lies below it.
func under(p, dir string) bool {
	if !strings.HasPrefix(p, dir) {
		return false
	}
	return len(p) == len(dir) || p[len(dir)] == '/' || strings.HasSuffix(dir, "/")
}

// endsIn says whether the last segments of p are lit.
func endsIn(p, lit string) bool {
	return strings.HasSuffix(p, lit) && (len(p) == len(lit) || p[len(p)-len(lit)-1] == '/')
}

// checkGlob refuses what doublestar cannot read, and what it reads but never
// matches as its author thinks: paths of changes are clean by construction.
func checkGlob(text string) error {
	switch {
	case text == "":
		return errors.New("empty glob")
	case len(text) > maxGlob:
		return fmt.Errorf("glob of %d bytes; at most %d", len(text), maxGlob)
	case strings.IndexByte(text, 0) >= 0:
		return errors.New("glob with a NUL byte")
	case !doublestar.ValidatePattern(text):
		return fmt.Errorf("bad glob %q: a bracket or brace is not closed, or it ends in a backslash", text)
	case strings.Contains(text, "//"):
		return fmt.Errorf("bad glob %q: empty path segment", text)
	case text != "/" && strings.HasSuffix(text, "/"):
		return fmt.Errorf("bad glob %q: ends in a slash; for a directory and all below it write %q", text, strings.TrimRight(text, "/")+"/**")
	case text[0] == '~' && text != "~" && text[1] != '/':
		return fmt.Errorf("bad glob %q: only ~/ is known, not ~user (a name that starts with ~ is written \\~)", text)
	case len(expand(text)) > maxAlternatives:
		return fmt.Errorf("bad glob %q: more than %d combinations of {…}", text, maxAlternatives)
	}
	// Commas and braces separate as well: {a,../b}.
	for _, seg := range strings.FieldsFunc(strings.ReplaceAll(text, `\`, ""), func(r rune) bool {
		return r == '/' || r == '{' || r == '}' || r == ','
	}) {
		if seg == "." || seg == ".." {
			return fmt.Errorf("bad glob %q: segment %q; paths have none", text, seg)
		}
	}
	for i, seg := range strings.Split(text, "/") {
		if strings.Contains(seg, "**") && seg != "**" && !strings.Contains(seg, `\*`) {
			return fmt.Errorf("bad glob %q: ** in segment %d must stand alone, as in a/**/b", text, i+1)
		}
	}
	for rest := text; rest != ""; rest = rest[unit(rest):] {
		if class := rest[:unit(rest)]; takesSlash(class) && !negated(class) {
			return fmt.Errorf("bad glob %q: %s holds a slash, which is in no name; a range around it is written in two, as in [+-.0-9]", text, class)
		}
	}
	return nil
}

const metaChars = `*?[]{}\`

// QuoteMeta is the glob that matches s alone; s itself if that is one.
func QuoteMeta(s string) string {
	if !strings.ContainsAny(s, metaChars) {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(metaChars, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// literal returns the one string that pattern matches, if it has no
// metacharacters but backslashes.
func literal(pattern string) (string, bool) {
	if !strings.ContainsAny(pattern, metaChars) {
		return pattern, true
	}
	lit := literalStart(pattern)
	return lit, unescaped(pattern) == lit
}

// literalStart returns what every match of pattern begins with.
func literalStart(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '*':
			// dir/** matches dir as well.
			if strings.HasPrefix(pattern[i:], "**") {
				return strings.TrimSuffix(b.String(), "/")
			}
			return b.String()
		case '?', '[', '{':
			return b.String()
		case '\\':
			i++
			if i < len(pattern) {
				b.WriteByte(pattern[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unescaped removes the backslashes.
func unescaped(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == '\\' && i+1 < len(pattern) {
			i++
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}

// literalEnds returns what every match of a one-segment pattern begins and
// ends with.
func literalEnds(pattern string) (start, end string) {
	start = literalStart(pattern)
	if i := strings.LastIndexAny(pattern, metaChars); i >= 0 && pattern[i] != '\\' {
		end = pattern[i+1:]
	}
	return start, end
}

// longestLiteral returns a part that every match of pattern contains.
func longestLiteral(pattern string) string {
	if strings.Contains(pattern, "{") {
		return "" // one choice of several, perhaps with slashes
	}
	if i := strings.IndexByte(pattern, '['); i >= 0 {
		pattern = pattern[:i]
	}
	// ** may stand for nothing, and then takes a slash with it.
	pattern = strings.TrimPrefix(strings.TrimSuffix(pattern, "/**"), "**/")
	best := ""
	for piece := range strings.SplitSeq(strings.ReplaceAll(pattern, "/**/", "*"), "*") {
		for lit := range strings.FieldsFuncSeq(piece, func(r rune) bool { return strings.ContainsRune(metaChars, r) }) {
			if len(lit) > len(best) {
				best = lit
			}
		}
	}
	return best
}
