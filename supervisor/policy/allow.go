package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// AllowList is the globs of --allow.
type AllowList struct {
	globs []glob
}

// NewAllowList checks the globs of --allow. They are written as in a rule;
// relative ones are relative to each root.
func NewAllowList(globs []string, home string) (*AllowList, error) {
	a := &AllowList{}
	var errs []error
	for _, text := range globs {
		g, err := compileGlob(text, scope{home: resolved(home)})
		if err != nil {
			errs = append(errs, fmt.Errorf("--allow: %w", err))
			continue
		}
		a.globs = append(a.globs, g)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return a, nil
}

// lifts says whether the list answers a verdict: any ask, and a built-in deny
// if the glob names the denied place itself. The rule's own glob answers all
// that it has matched, under whatever name: that is what AllowFlags says.
func (a *AllowList) lifts(v Verdict, path string, offsets []int) bool {
	if a == nil || v.Action < Ask || v.Action == Deny && v.Rule.Source != BuiltIn {
		return false
	}
	return slices.ContainsFunc(a.globs, func(g glob) bool {
		return g.text == v.Rule.spelled(v.Glob) || g.match(path, offsets) && (v.Action == Ask || g.names(v))
	})
}

// names says whether the literal part of the glob lies at or below the place
// that a deny rule is about.
func (g *glob) names(v Verdict) bool {
	if g.how == exact && (g.where != anywhere || strings.Contains(g.lit, "/")) {
		return true
	}
	return slices.ContainsFunc(v.Rule.globs, func(denied glob) bool {
		place := denied.place()
		return denied.text == v.Glob && place != "" && under(g.place(), place)
	})
}

// maxPaste is how many paths of one rule are named one by one.
const maxPaste = 4

// AllowFlags returns the flags to paste, `--allow GLOB …`, that answer what of
// the outcome was asked or denied and can be answered; "" if nothing is. Of
// each rule a few paths are named; where there are more, the rule's glob.
func (p *Policy) AllowFlags(in Input, o *Outcome) string {
	home := p.stacks[0].facts.Home
	type key struct {
		rule *Rule
		glob string
	}
	var order []key
	paths := map[key][]string{}
	for _, i := range slices.Concat(o.Denied, o.Asks) {
		v := o.Verdicts[i]
		if v.Action == Deny && v.Rule.Source != BuiltIn {
			continue
		}
		k := key{v.Rule, v.Glob}
		if paths[k] == nil {
			order = append(order, k)
		}
		paths[k] = append(paths[k], QuoteMeta(tilde(in.Changes[i].Path, home)))
	}
	var b strings.Builder
	for _, k := range order {
		globs := paths[k]
		if len(globs) > maxPaste {
			globs = []string{k.rule.spelled(k.glob)}
		}
		for _, g := range globs {
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString("--allow ")
			b.WriteString(quoteShell(g))
		}
	}
	return b.String()
}

// spelled returns one of the rule's globs as --allow reads it: that of a
// project file is relative to the file, not to a root.
func (r *Rule) spelled(glob string) string {
	for i := range r.globs {
		if r.globs[i].text == glob && r.globs[i].full != "" {
			return r.globs[i].full
		}
	}
	return glob
}

// tilde writes a path below the home directory with ~/.
func tilde(path, home string) string {
	if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(home, "/")+"/"); ok && home != "" && home != "/" {
		return "~/" + rest
	}
	return path
}

// quoteShell quotes a word for a shell. What is not printable is written as
// $'…' with escapes, which bash, zsh and ksh read.
func quoteShell(s string) string {
	plain, printable := s != "", utf8.ValidString(s)
	for _, r := range s {
		if !strings.ContainsRune("/._-+=:,@%^", r) && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)) {
			plain = false
		}
		// Zs but the blank, bidi and zero-width characters are not IsPrint.
		printable = printable && unicode.IsPrint(r)
	}
	switch {
	case plain:
		return s
	case printable:
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c >= 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
