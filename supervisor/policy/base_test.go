package policy

import (
	"errors"
	"path/filepath"
	"strings"
)

// tree is a base of a few names: path → "-> target" of a link, "*" of a
// program, or the contents. The branch's contents stand behind a line "=>".
type tree map[string]string

func (t tree) Readlink(path string) string {
	target, _ := strings.CutPrefix(t[path], "-> ")
	if target == t[path] {
		return ""
	}
	return target
}

func (t tree) Links(dir string, depth int) []string {
	var list []string
	for path := range t {
		rel, err := filepath.Rel(dir, path)
		if err == nil && !strings.HasPrefix(rel, "..") && rel != "." && t.Readlink(path) != "" && strings.Count(rel, "/") < depth {
			list = append(list, rel)
		}
	}
	return list
}

func (t tree) Lookup(path string) (there, runs bool) {
	_, there = t[path]
	return there, t[path] == "*"
}

func (t tree) Contents(path string) (before, after []byte, err error) {
	text, ok := t[path]
	if !ok {
		return nil, nil, errors.New("not there")
	}
	was, is, _ := strings.Cut(text, "=>")
	return []byte(was), []byte(is), nil
}
