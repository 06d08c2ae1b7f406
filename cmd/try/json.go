package main

import (
	"bufio"
	"encoding/base64"
	"io"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonWriter writes one JSON value piece by piece, so that a document of
// 100,000 changes is never in memory as a whole. Fields come in the order of
// the calls. The first write error stays and is returned by flush.
type jsonWriter struct {
	w     *bufio.Writer
	comma bool // an element stands before this one
}

func newJSON(w io.Writer) *jsonWriter { return &jsonWriter{w: bufio.NewWriter(w)} }

// flush ends the line and the document.
func (j *jsonWriter) flush() error {
	j.raw("\n")
	return j.w.Flush()
}

func (j *jsonWriter) raw(s string) { _, _ = j.w.WriteString(s) } // bufio keeps the error

func (j *jsonWriter) next() {
	if j.comma {
		j.raw(",")
	}
	j.comma = true
}

func (j *jsonWriter) nested(open, end string, fill func()) {
	j.raw(open)
	j.comma = false
	fill()
	j.raw(end)
	j.comma = true
}

// element is an object in a list.
func (j *jsonWriter) element(fill func()) {
	j.next()
	j.nested("{", "}", fill)
}

func (j *jsonWriter) key(name string) {
	j.next()
	j.raw(`"` + name + `":`)
}

func (j *jsonWriter) object(name string, fill func()) {
	j.key(name)
	j.nested("{", "}", fill)
}

func (j *jsonWriter) list(name string, fill func()) {
	j.key(name)
	j.nested("[", "]", fill)
}

func (j *jsonWriter) null(name string) {
	j.key(name)
	j.raw("null")
}

func (j *jsonWriter) bool(name string, b bool) {
	j.key(name)
	j.raw(strconv.FormatBool(b))
}

func (j *jsonWriter) number(name string, n int64) {
	j.key(name)
	j.raw(strconv.FormatInt(n, 10))
}

// text writes a string, and beside it its bytes as name_b64 when it is no
// UTF-8.
func (j *jsonWriter) text(name, s string) {
	j.key(name)
	j.quote(s)
	if !utf8.ValidString(s) {
		j.key(name + "_b64")
		j.quote(base64.StdEncoding.EncodeToString([]byte(s)))
	}
}

// optional is text, or null if there is none.
func (j *jsonWriter) optional(name, s string) {
	if s == "" {
		j.null(name)
		return
	}
	j.text(name, s)
}

// texts writes a list of strings, and all of them again as name_b64 when one
// is no UTF-8.
func (j *jsonWriter) texts(name string, list []string) {
	valid := true
	j.list(name, func() {
		for _, s := range list {
			valid = valid && utf8.ValidString(s)
			j.next()
			j.quote(s)
		}
	})
	if valid {
		return
	}
	j.list(name+"_b64", func() {
		for _, s := range list {
			j.next()
			j.quote(base64.StdEncoding.EncodeToString([]byte(s)))
		}
	})
}

// quote writes a string. What a terminal might obey is escaped although JSON
// does not ask for it (H24): stdout may be one.
func (j *jsonWriter) quote(s string) {
	const hex = "0123456789abcdef"
	b := append(make([]byte, 0, len(s)+2), '"')
	unit := func(u uint16) {
		b = append(b, '\\', 'u', hex[u>>12], hex[u>>8&15], hex[u>>4&15], hex[u&15])
	}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\t':
			b = append(b, '\\', 't')
		case unicode.IsPrint(r):
			b = utf8.AppendRune(b, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			unit(uint16(high))
			unit(uint16(low))
		default:
			unit(uint16(r))
		}
	}
	_, _ = j.w.Write(append(b, '"'))
}
