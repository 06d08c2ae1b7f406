package fusefs

import "strings"

// hidden are names that are not there for a session, in a directory and in
// those below it: the way to a denied path is itself no secret.
type hidden struct {
	gone bool
	sub  map[string]*hidden
}

// hide makes the tree of paths, which are absolute, as seen from base.
func hide(base string, paths []string) *hidden {
	var top *hidden
	for _, path := range paths {
		rel, below := strings.CutPrefix(path, strings.TrimSuffix(base, "/")+"/")
		if !below || rel == "" {
			continue
		}
		if top == nil {
			top = &hidden{}
		}
		at := top
		for name := range strings.SplitSeq(rel, "/") {
			if at.sub == nil {
				at.sub = make(map[string]*hidden)
			}
			if at.sub[name] == nil {
				at.sub[name] = &hidden{}
			}
			at = at.sub[name]
		}
		at.gone = true
	}
	return top
}

// has says that name, in the directory that h is for, is not there.
func (h *hidden) has(name string) bool {
	sub := h.below(name)
	return sub != nil && sub.gone
}

// below is what is hidden below name; nil for nothing.
func (h *hidden) below(name string) *hidden {
	if h == nil {
		return nil
	}
	return h.sub[name]
}
