// Package engine is the contract between a branch and what presents its base
// and its layers as one tree. It knows the questions that are asked of every
// engine and the values that travel between branch, engine and session; it
// mounts nothing itself, and an engine never writes to the base and knows
// nothing of commits.
//
// An engine answers before anything is made: Probe says whether a root can be
// served at all, Holds whether a directory can hold layers. Mount then turns a
// root and its layer into a mount specification, which init carries out.
package engine

import (
	"errors"
	"fmt"

	"try/fs/sys"
)

// ErrUnsupported is what every *Refusal is: the engine cannot serve here.
var ErrUnsupported = errors.New("not supported by this engine")

// Mount specifies one mount for init. Lower lists the directories below the
// layer, topmost first; the flags are those of the mount below the root, which
// an overlay would lose (mount(2) MS_NOEXEC and the like are per mount).
type Mount struct {
	Type                  string // "overlay", or "fuse": the supervisor serves it
	Target                string // where it shows: the root's path
	Lower                 []string
	Upper, Work           string
	NoExec, NoSuid, NoDev bool
	Host                  bool // of type fuse: it is mounted outside, and bound in
}

// Engine presents base and layers as one tree.
type Engine interface {
	// Name is what --engine and the result document call it.
	Name() string
	// Probe says why root cannot be served, as a *Refusal, or nil. It is
	// static: it looks at the mounts and the file system's type and mounts
	// nothing.
	Probe(root string, mounts []sys.Mount) error
	// Holds says why dir cannot hold layers, as a *Refusal, or nil.
	Holds(dir string) error
	// OutsideIDs says that an ordinary user's session sees files with the owners
	// and groups that they have outside, and is let by them.
	OutsideIDs() bool
	// Mount specifies the mount of root with its layer. below is the mount
	// that root lies on.
	Mount(root, layer, work string, below sys.Mount) Mount
}

// Refusal says why an engine cannot serve a root or use a directory.
type Refusal struct {
	Root string // the directory asked about
	Why  string // "/home/u/mnt is a mount below it"
	Help string // what the user can do; may be empty
	// Below is the first mount below Root that stood in the way, if that was it.
	Below string
	Err   error // the errno behind it, if there was one
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Root, r.Why) }

// Hint is what the user can do about it.
func (r *Refusal) Hint() string { return r.Help }

// Unwrap makes errors.Is find ErrUnsupported and the errno.
func (r *Refusal) Unwrap() []error {
	if r.Err == nil {
		return []error{ErrUnsupported}
	}
	return []error{ErrUnsupported, r.Err}
}
