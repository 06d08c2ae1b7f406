package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"try/supervisor/policy"
)

// pathspec is a glob that names changes on a command line, as git reads them: a
// path names itself and all that is below it, a pattern without a slash is
// looked for at any depth below the working directory. Others are relative to
// it, or begin with ~/ or a slash; ** stands for any number of directories.
type pathspec struct {
	text     string
	literal  string   // absolute; "": patterns
	patterns []string // absolute
}

// newPathspecs reads globs. dir is the working directory and home HOME, both
// without symbolic links.
func newPathspecs(globs []string, dir, home string) ([]pathspec, error) {
	var list []pathspec
	for _, text := range globs {
		s := pathspec{text: text}
		rest, below, deep := text, dir, !strings.Contains(text, "/")
		switch {
		case text == "":
			return nil, errors.New("a glob is empty; . means all below the working directory")
		case text == "~" || strings.HasPrefix(text, "~/"):
			if home == "" {
				return nil, fmt.Errorf("glob %s: there is no home directory", text)
			}
			rest, below, deep = text[1:], home, false
		case text[0] == '/':
			below = "/"
		}
		if policy.QuoteMeta(rest) == rest {
			s.literal = filepath.Join(below, rest)
		} else {
			if deep {
				rest = "**/" + rest
			}
			pattern := filepath.Join(policy.QuoteMeta(below), rest)
			if !doublestar.ValidatePattern(pattern) {
				return nil, fmt.Errorf("glob %s: %w", text, doublestar.ErrBadPattern)
			}
			var err error
			if s.patterns, err = policy.Plain(pattern); err != nil {
				return nil, fmt.Errorf("glob %s: %w", text, err)
			}
		}
		list = append(list, s)
	}
	return list, nil
}

// match says whether the glob names the absolute path, or a directory above it.
func (s *pathspec) match(path string) bool {
	if s.literal != "" {
		return path == s.literal || s.literal == "/" || strings.HasPrefix(path, s.literal) && path[len(s.literal)] == '/'
	}
	for {
		if slices.ContainsFunc(s.patterns, func(p string) bool { return doublestar.MatchUnvalidated(p, path) }) {
			return true
		}
		up := strings.LastIndexByte(path, '/')
		if up <= 0 {
			return false
		}
		path = path[:up]
	}
}

// here is the working directory without symbolic links, for globs.
func here() (string, error) {
	dir, err := os.Getwd()
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	return dir, nil
}

// NoMatchError says that a glob names no change of a branch.
type NoMatchError struct {
	Glob, Branch string
}

func (e *NoMatchError) Error() string {
	return fmt.Sprintf("%s matches no change of branch %s", e.Glob, e.Branch)
}

// Hint says what there is.
func (e *NoMatchError) Hint() string {
	return fmt.Sprintf("try changes %s lists them; globs are relative to the working directory", e.Branch)
}
