package commit

import (
	"strings"

	"try/fs/sys"
)

// way goes from one directory below top to another. The directories of a plan
// lie near one another in its order, so that a deep one is not resolved from
// the top each time. It serves for looking only: a step resolves afresh.
type way struct {
	top  *sys.Dir
	at   *sys.Descent // nil: not begun
	path string       // where at is
}

// to returns the directory at path, open until the next call.
func (w *way) to(path string) (*sys.Dir, error) {
	if w.at == nil {
		at, err := sys.NewDescent(w.top)
		if err != nil {
			return nil, err
		}
		w.at, w.path = at, ""
	}
	for w.path != "" && !within(path, w.path) {
		if err := w.at.Leave(); err != nil { // moved meanwhile
			w.close()
			return w.to(path)
		}
		w.path, _ = split(w.path)
	}
	for len(w.path) < len(path) {
		rest := strings.TrimPrefix(path[len(w.path):], "/")
		name, more, _ := strings.Cut(rest, "/")
		if err := w.at.Enter(name); err != nil {
			return nil, err
		}
		w.path = strings.TrimSuffix(path[:len(path)-len(more)], "/")
	}
	return w.at.Dir(), nil
}

func (w *way) close() {
	if w.at != nil {
		w.at.Close()
		w.at = nil
	}
}
