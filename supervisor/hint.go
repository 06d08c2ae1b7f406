package supervisor

import (
	"errors"
	"fmt"
)

// hinted is an error together with what the user can do about it.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// Hint is what the user can do.
func (h *hinted) Hint() string { return h.hint }

// withHint says what the user can do about err. The innermost hint wins: what
// lies nearer to the cause knows better.
func withHint(err error, format string, args ...any) error {
	if err == nil || Hint(err) != "" {
		return err
	}
	return &hinted{err, fmt.Sprintf(format, args...)}
}

// Hint is what the user can do about err, empty if nothing is known. Every
// package may give one by a method of this name.
func Hint(err error) string {
	if h, ok := errors.AsType[interface {
		error
		Hint() string
	}](err); ok {
		return h.Hint()
	}
	return ""
}
