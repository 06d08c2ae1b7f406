package policy

import (
	"fmt"
	"strings"
)

// compileGlobs is compileGlob with a glob for each combination of {…}: they are
// matched quicker, and it can be said what they are about.
func compileGlobs(text string, s scope) ([]glob, error) {
	g, err := compileGlob(text, s)
	if err != nil || !strings.Contains(text, "{") {
		return []glob{g}, err
	}
	parts, err := Plain(text)
	if err != nil {
		return nil, err
	}
	var list []glob
	for _, one := range parts {
		part, err := compileGlob(one, s)
		if err != nil || part.where != g.where {
			return []glob{g}, nil // {,a}/b means no absolute path
		}
		part.text, part.full = g.text, g.full
		list = append(list, part)
	}
	return list, nil
}

// Plain lists patterns that doublestar matches as the author of a valid glob
// means it, which doublestar does not always: a/**/** is not found to match a, nor
// is a*{,b}, and a[!b]c matches a/c. They have no braces, but where a star at a
// brace could make a **.
func Plain(glob string) ([]string, error) {
	const stars = "\x00" // in no glob
	list := expand(strings.ReplaceAll(glob, "**", stars))
	if len(list) > maxAlternatives {
		return nil, fmt.Errorf("more than %d combinations of {…}", maxAlternatives)
	}
	for i, one := range list {
		if strings.Contains(one, "**") {
			return []string{canonical(glob)}, nil
		}
		list[i] = canonical(strings.ReplaceAll(one, stars, "**"))
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
