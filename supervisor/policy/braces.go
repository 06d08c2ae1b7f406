package policy

import "strings"

// compileGlobs is compileGlob with a glob for each combination of {…}: they are
// matched quicker, it can be said what they are about, and doublestar does not
// see that a{*,b}{,c} matches a.
func compileGlobs(text string, s scope) ([]glob, error) {
	g, err := compileGlob(text, s)
	if err != nil || !strings.Contains(text, "{") {
		return []glob{g}, err
	}
	const stars = "\x00" // in no glob
	var list []glob
	for _, one := range expand(strings.ReplaceAll(text, "**", stars)) {
		meet := strings.Contains(one, "**") // *{*,a} means no **
		part, err := compileGlob(strings.ReplaceAll(one, stars, "**"), s)
		if err != nil || meet || part.where != g.where {
			return []glob{g}, nil // {,a}/b means no absolute path
		}
		part.text, part.full = g.text, g.full
		list = append(list, part)
	}
	return list, nil
}

// expand lists what a valid glob with braces stands for: at most
// maxAlternatives+1 of them.
func expand(text string) []string {
	open := 0
	for open < len(text) && text[open] != '{' {
		open += unit(text[open:])
	}
	if open >= len(text) {
		return []string{text}
	}
	var choices []string
	depth, from := 0, open+1
	for i := open; ; i += unit(text[i:]) {
		switch text[i] {
		case '{':
			depth++
		case '}':
			depth--
		}
		if depth == 0 || depth == 1 && text[i] == ',' {
			choices = append(choices, text[from:i])
			from = i + 1
		}
		if depth == 0 {
			break
		}
	}
	var all []string
	for _, choice := range choices {
		all = append(all, expand(text[:open]+choice+text[from:])...)
		if len(all) > maxAlternatives {
			return all[:maxAlternatives+1]
		}
	}
	return all
}

// unit is the length of what a valid glob begins with: a byte, one behind a
// backslash, or a class. A brace or a comma in these is one like any other.
func unit(glob string) int {
	switch glob[0] {
	case '\\':
		return min(2, len(glob))
	case '[':
		for i := 1; i < len(glob); i++ {
			switch glob[i] {
			case '\\':
				i++
			case ']':
				return i + 1
			}
		}
	}
	return 1
}
