package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// layer is one file, or the built-in rules.
type layer struct {
	source  Source
	file    string
	dir     string // that relative paths and, in a project's, globs are relative to
	text    string
	trusted bool

	rules    []*Rule
	settings []Setting
}

// Setting is one key of [settle], [limits] or [session].
type Setting struct {
	Key     string // "limits.max_bytes"
	Source  Source
	File    string
	Line    int
	Ignored bool // of an untrusted project file, and not stricter

	Text   string   // of a string
	List   []string // of a list; paths are absolute
	Number int64    // of a number, a size (bytes) or a duration (nanoseconds)
}

// At says where the setting stands: "file:line", or "built-in".
func (s *Setting) At() string { return at(s.Source, s.File, s.Line) }

// Value returns the setting's value in words.
func (s *Setting) Value() string {
	switch {
	case s.List != nil:
		quoted := make([]string, len(s.List))
		for i, e := range s.List {
			quoted[i] = fmt.Sprintf("%q", e)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case s.Text != "":
		return fmt.Sprintf("%q", s.Text)
	}
	for _, k := range keyTypes {
		if k.key == s.Key && k.value == duration {
			return fmt.Sprintf("%q", FormatDuration(time.Duration(s.Number)))
		}
	}
	return fmt.Sprint(s.Number)
}

// valueType is how the value of a key is written.
type valueType uint8

const (
	textValue valueType = iota
	textList
	pathList
	socketList // names as they are, paths as paths
	count
	positive
	size
	duration
)

// keyType is what may stand at a key.
type keyType struct {
	key   string
	value valueType
	oneOf []string
}

var fates = []string{"commit", "abort", "keep", "ask"}

// keyTypes is every key outside of [[rule]].
var keyTypes = []keyType{
	{"settle.on_success", textValue, fates},
	{"settle.on_failure", textValue, fates},
	{"settle.checks", textList, nil},
	{"limits.max_changes", count, nil},
	{"limits.max_bytes", size, nil},
	{"limits.max_deleted", count, nil},
	{"limits.processes", positive, nil},
	{"limits.timeout", duration, nil},
	{"undo.keep", duration, nil},
	{"undo.max_bytes", size, nil},
	{"undo.max_count", count, nil},
	{"session.scope", textValue, []string{"user", "dir"}},
	{"session.roots", pathList, nil},
	{"session.cover", pathList, nil},
	{"session.allow_write", pathList, nil},
	{"session.deny", pathList, nil},
	{"session.sockets", socketList, nil},
	{"session.net", textValue, []string{"host", "none"}},
	{"session.engine", textValue, []string{"auto", "overlay", "fuse"}},
	{"session.grace", duration, nil},
}

// decoder reads one document; it goes on after an error, so that all are told
// at once.
type decoder struct {
	layer *layer
	scope scope
	lines lines
	errs  []*Error
}

// decode reads the text of a layer. Errors are *Error, joined, by line.
func (l *layer) decode(home string) error {
	if len(l.text) > maxFile {
		return &Error{l.file, 1, fmt.Sprintf("policy of %d bytes; at most %d", len(l.text), maxFile)}
	}
	if !utf8.ValidString(l.text) { // the library looks only into strings
		good := strings.ToValidUTF8(l.text, "\x00")
		return &Error{l.file, 1 + strings.Count(good[:strings.IndexByte(good+"\x00", 0)], "\n"), "not UTF-8, or a NUL byte"}
	}
	found, err := locate(l.text) // first: it bounds the depth
	if err != nil {
		return l.placed(err)
	}
	var doc map[string]any
	if _, err := toml.Decode(l.text, &doc); err != nil {
		return l.placed(err)
	}
	d := &decoder{layer: l, lines: found, scope: scope{home: home}}
	if l.source == Project {
		d.scope.dir = l.dir
	}
	d.document(doc)
	slices.SortStableFunc(d.errs, func(a, b *Error) int { return a.Line - b.Line })
	errs := make([]error, len(d.errs))
	for i, e := range d.errs {
		errs[i] = e
	}
	return errors.Join(errs...)
}

// placed gives an error of the parser the form of ours.
func (l *layer) placed(err error) error {
	if e, ok := errors.AsType[toml.ParseError](err); ok {
		text := e.Message
		if e.LastKey != "" {
			text += fmt.Sprintf(" (last key %q)", e.LastKey)
		}
		return &Error{l.file, max(e.Position.Line, 1), text}
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return &Error{l.file, e.Line, e.Text}
	}
	return &Error{l.file, 1, err.Error()}
}

func (d *decoder) fail(place, format string, args ...any) {
	d.errs = append(d.errs, &Error{d.layer.file, d.lines.of(place), fmt.Sprintf(format, args...)})
}

func (d *decoder) document(doc map[string]any) {
	for _, name := range sortedKeys(doc) {
		switch name {
		case "settle", "limits", "undo", "session":
			t, ok := doc[name].(map[string]any)
			if !ok {
				d.fail(name, "%s is %s; it must be a table: [%s]", name, typeName(doc[name]), name)
				continue
			}
			d.table(name, t)
		case "rule":
			d.rules(doc[name])
		default:
			d.fail(name, "unknown key %q; known: settle, rule, limits, undo, session", name)
		}
	}
	slices.SortStableFunc(d.layer.settings, func(a, b Setting) int { return a.Line - b.Line })
}

func (d *decoder) table(name string, t map[string]any) {
	for _, key := range sortedKeys(t) {
		full, place := name+"."+key, child(name, key)
		i := slices.IndexFunc(keyTypes, func(k keyType) bool { return k.key == full })
		if i < 0 {
			d.fail(place, "unknown key %q in [%s]; known: %s", key, name, knownKeys(name))
			continue
		}
		if name == "undo" && d.layer.source == Project {
			d.fail(place, "[undo] holds for all directories: it belongs in ~/.config/try/policy.toml or /etc/try/policy.toml")
			continue
		}
		s := Setting{Key: full, Source: d.layer.source, File: d.layer.file, Line: d.lines.of(place)}
		if d.set(&s, keyTypes[i], place, t[key]) {
			d.layer.settings = append(d.layer.settings, s)
		}
	}
}

func knownKeys(table string) string {
	var known []string
	for _, k := range keyTypes {
		if rest, ok := strings.CutPrefix(k.key, table+"."); ok {
			known = append(known, rest)
		}
	}
	return strings.Join(known, ", ")
}

// set reads a value into s, or says why it cannot be.
func (d *decoder) set(s *Setting, k keyType, place string, v any) bool {
	before := len(d.errs)
	switch k.value {
	case textValue:
		s.Text, _ = v.(string)
		if !slices.Contains(k.oneOf, s.Text) {
			d.fail(place, "%s is %s; it must be one of %q", k.key, describe(v), k.oneOf)
		}
	case textList, pathList, socketList:
		s.List = d.strings(k.key, place, v)
		for i, e := range s.List {
			if k.value == pathList || k.value == socketList && strings.Contains(e, "/") {
				s.List[i] = d.path(k.key, element(place, i), e)
			} else if strings.TrimSpace(e) == "" {
				d.fail(element(place, i), "%s: empty string", k.key)
			}
		}
	case count, positive:
		n, ok := v.(int64)
		s.Number = n
		if !ok || n < 0 || k.value == positive && n == 0 {
			d.fail(place, "%s is %s; it must be a whole number that is not negative, and not 0 for processes", k.key, describe(v))
		}
	case size:
		switch v := v.(type) {
		case int64:
			s.Number = v
			if v < 0 {
				d.fail(place, "%s is negative", k.key)
			}
		case string:
			n, err := ParseSize(v)
			if err != nil {
				d.fail(place, "%s: %v", k.key, err)
			}
			s.Number = n
		default:
			d.fail(place, "%s is %s; it must be a number of bytes, or a string as \"5MB\"", k.key, typeName(v))
		}
	case duration:
		text, ok := v.(string)
		if !ok {
			d.fail(place, "%s is %s; it must be a string as \"90s\"", k.key, typeName(v))
			break
		}
		n, err := ParseDuration(text)
		switch {
		case err != nil:
			d.fail(place, "%s: %v", k.key, err)
		case n == 0 && k.key == "limits.timeout":
			d.fail(place, "%s: 0 would end every command; leave the key out for no limit", k.key)
		}
		s.Number = int64(n)
	default:
		panic(fmt.Sprintf("unknown type of value %d", k.value))
	}
	return len(d.errs) == before
}

// path makes a path of a setting absolute.
func (d *decoder) path(key, place, p string) string {
	switch {
	case strings.IndexByte(p, 0) >= 0 || p == "":
		d.fail(place, "%s: bad path %q", key, p)
	case p[0] == '/':
		return clean(p)
	case p == "~" || strings.HasPrefix(p, "~/"):
		if d.scope.home == "" {
			d.fail(place, "%s: ~ in a path, but there is no home directory", key)
			return p
		}
		return clean(d.scope.home + p[1:])
	case d.layer.dir != "":
		return clean(d.layer.dir + "/" + p)
	default:
		d.fail(place, "%s: relative path %q; in this file paths start with ~/ or /", key, p)
	}
	return p
}

// strings reads a list of strings; never nil, so that an empty list is a value.
func (d *decoder) strings(key, place string, v any) []string {
	list, ok := v.([]any)
	if !ok {
		d.fail(place, "%s is %s; it must be a list of strings", key, typeName(v))
		return []string{}
	}
	out := make([]string, 0, len(list))
	for i, e := range list {
		s, ok := e.(string)
		if !ok {
			d.fail(element(place, i), "%s holds %s; it must be a list of strings", key, typeName(e))
			return []string{}
		}
		out = append(out, s)
	}
	return out
}

func (d *decoder) rules(v any) {
	tables, ok := v.([]map[string]any)
	if list, isList := v.([]any); isList { // rule = [{…}, …]
		ok = true
		for _, e := range list {
			t, isTable := e.(map[string]any)
			ok = ok && isTable
			tables = append(tables, t)
		}
	}
	if !ok {
		d.fail("rule", "rule is %s; it must be an array of tables: [[rule]]", typeName(v))
		return
	}
	for i, t := range tables {
		d.rule(element("rule", i), t)
	}
}

func (d *decoder) rule(place string, t map[string]any) {
	r := &Rule{Source: d.layer.source, File: d.layer.file, Line: d.lines.of(place), kinds: allKinds}
	before := len(d.errs)
	for _, key := range sortedKeys(t) {
		at, v := child(place, key), t[key]
		switch key {
		case "paths":
			r.Paths = d.strings("paths", at, v)
			if len(r.Paths) == 0 && len(d.errs) == before {
				d.fail(at, "paths is empty")
			}
		case "change":
			r.Change = d.strings("change", at, v)
			r.kinds = 0
			for i, name := range r.Change {
				if !slices.Contains(kindNames, name) {
					d.fail(element(at, i), "change is %q; it must be one of %q", name, kindNames)
					continue
				}
				r.kinds |= kindOf(name)
			}
			if len(r.Change) == 0 && len(d.errs) == before {
				d.fail(at, "change is empty; leave it out to mean every change")
			}
		case "action":
			name, _ := v.(string)
			if r.Action, _ = parseAction(name); r.Action == 0 {
				d.fail(at, "action is %s; it must be one of %q", describe(v), actionNames[1:])
			}
		case "why":
			if r.Why, _ = v.(string); r.Why == "" {
				d.fail(at, "why is %s; it must be a string", describe(v))
			}
		default:
			d.fail(at, "unknown key %q in [[rule]]; known: paths, change, action, why", key)
		}
	}
	if t["paths"] == nil || t["action"] == nil {
		d.fail(place, "a [[rule]] needs paths and action")
	}
	for i, p := range r.Paths {
		globs, err := compileGlobs(p, d.scope)
		if err != nil {
			d.fail(element(child(place, "paths"), i), "%v", err)
			continue
		}
		r.globs = append(r.globs, globs...)
	}
	r.kinds = r.kinds.widen(r.Action)
	r.prepare()
	if len(d.errs) == before {
		d.layer.rules = append(d.layer.rules, r)
	}
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// describe shows a value of the wrong kind, short.
func describe(v any) string {
	switch v := v.(type) {
	case string:
		if len(v) > 40 {
			v = v[:40] + "…"
		}
		return fmt.Sprintf("%q", v)
	case int64, bool:
		return fmt.Sprint(v)
	case float64:
		if math.Trunc(v) == v {
			return fmt.Sprintf("%.1f", v)
		}
		return fmt.Sprint(v)
	}
	return typeName(v)
}

func typeName(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case int64:
		return "a whole number"
	case float64:
		return "a number"
	case bool:
		return "true or false"
	case []any, []map[string]any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return "a date or time"
}
