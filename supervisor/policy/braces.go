package policy

import "strings"

// compileGlobs is compileGlob with a glob for each combination of {…}: they are
// matched quicker, and it can be said what they are about.
func compileGlobs(text string, s scope) ([]glob, error) {
	g, err := compileGlob(text, s)
	if err != nil || !strings.Contains(text, "{") || strings.ContainsAny(text, `[\`) {
		return []glob{g}, err
	}
	var list []glob
	for _, one := range expand(text) {
		part, err := compileGlob(one, s)
		if err != nil || part.where != g.where {
			return []glob{g}, nil // {,a}/b means no absolute path
		}
		part.text, part.full = g.text, g.full
		list = append(list, part)
	}
	return list, nil
}

// expand lists what a valid glob with braces, but without brackets and
// backslashes, stands for.
func expand(text string) []string {
	open := strings.IndexByte(text, '{')
	if open < 0 {
		return []string{text}
	}
	var list []string
	depth, from := 0, open+1
	for i := open; ; i++ {
		switch text[i] {
		case '{':
			depth++
			continue
		case '}':
			depth--
		case ',':
			if depth > 1 {
				continue
			}
		default:
			continue
		}
		if depth == 0 || text[i] == ',' {
			list = append(list, text[from:i])
			from = i + 1
		}
		if depth == 0 {
			break
		}
	}
	rest := text[from:]
	var all []string
	for _, choice := range list {
		all = append(all, expand(text[:open]+choice+rest)...)
	}
	return all
}

// alternatives counts the combinations that the braces of a valid glob stand
// for, or says maxAlternatives+1 if there are more.
func alternatives(text string) int {
	n, _ := sequence(text, 0, false)
	return n
}

// sequence counts those of the part that begins at i and ends, inside of
// braces, at a comma or a closing brace: factors multiply, choices add up.
func sequence(text string, i int, inside bool) (n, end int) {
	n = 1
	for ; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case ',', '}':
			if inside {
				return n, i
			}
		case '{':
			sum := 0
			for i < len(text) && text[i] != '}' {
				var choice int
				choice, i = sequence(text, i+1, true)
				sum = min(sum+choice, maxAlternatives+1)
			}
			n = min(n*sum, maxAlternatives+1)
		}
	}
	return n, i
}
