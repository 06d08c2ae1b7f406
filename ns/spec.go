package ns

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// A Spec says what a session is made of. It holds plain values only: every
// decision (which roots, which sockets, which stores) was made before.
// Paths are absolute and resolved, unless their field says otherwise.
type Spec struct {
	// Programs are what may run in the session: the command first, then one
	// for each check. Start starts the first, Session.Run the others.
	Programs []Program
	Env      []string
	Dir      string // working directory; may lead through symbolic links

	// Root asks for the root form: all ids mapped, mounts in an outer user
	// namespace, the programs in one further in. UID and GID are the ids the
	// session is mapped to; 0 of an ordinary user means its own.
	Root     bool
	UID, GID int

	// Confined asks for a session without namespaces (confine.go), which has
	// nothing but Mounts with a Source, to be found there and not at their Target;
	// AllowWrite; a terminal; and /dev/tty in Covers. Dir and Env say so already.
	Confined bool

	Mounts     []Mount  // of the roots, outermost first
	Private    []string // directories that get an empty tmpfs, dropped at the end
	AllowWrite []string // stay as writable as they are outside
	Covers     []string // hidden: an empty directory, or an unreadable file
	Sockets    []string // listening sockets that stay reachable
	Files      []File   // private copies over paths that exist
	Marker     string   // content of /dev/try, by which a session knows itself

	NetNone     bool // loopback only
	Processes   int  // at most so many at once, Confined: besides what the user has at the start; 0: no limit of ours
	KeepKeyring bool // the caller's session keyring stays

	// Terminal makes a terminal of the session's own for the programs and
	// relays it to the caller's.
	Terminal bool

	// ReExec starts init by executing this binary again instead of going on
	// in the forked process. Slower; the fallback where a fork is too dear.
	ReExec bool
}

// A Program is one thing to run. A nil entry of Stdio is the caller's own
// descriptor of that number.
type Program struct {
	Argv  []string
	Stdio [3]*os.File
}

// A Mount is what stands at one directory in the session: a kernel overlay, or
// with Serve or Source a FUSE mount, or with none of them what lies there
// outside, read-only.
type Mount struct {
	Target                string
	NoExec, NoSuid, NoDev bool

	Lower       []string // of an overlay, topmost first
	Upper, Work string

	// Serve gets the descriptor of /dev/fuse before anything can touch the
	// mount, and must see to it that requests are answered. It is called once,
	// before Start returns. Options are of the form “a,b=c”.
	Serve   func(dev *os.File) error
	Options string

	// Source is where a mount stands outside that is to show at Target, and
	// that is served already. It need not stay there once Start has returned,
	// unless the session is Confined: then until Close has.
	Source string
}

// A File lies over Path in the session: its content, read-only, owned by the
// session's user.
type File struct {
	Path    string
	Content []byte
	Mode    uint32
}

// Exit is how a program ended.
type Exit struct {
	Code   int         // as a shell says it: 128+n for a signal
	Signal unix.Signal // 0: it exited
	Left   bool        // other processes of the session were still there
	Exec   unix.Errno  // why it could not be run at all (Code 126 or 127)

	heard uint64 // bit n: signal n
}

// Heard says whether a signal had come from outside to the caller's whole
// process group, and so to the program, in the two seconds before it ended. The
// caller itself may hear of it only after the end.
func (e *Exit) Heard(sig unix.Signal) bool { return e.heard>>sig&1 != 0 }

// A Process is one that the end of the session took with it. The command's
// arguments are never looked at: they may hold secrets.
type Process struct {
	PID     int // on the host
	Command string
}

// Failure is a step's error on its way from init. It keeps the errno, so
// errors.Is(err, unix.EPERM) works on this side.
type Failure struct {
	Step  string     // "mount proc"
	What  string     // the path or object, if there is one
	Errno unix.Errno // 0: init died without a word
	Log   string     // what the kernel said beside the errno
}

// Error says which step failed, on what, and why.
func (f *Failure) Error() string {
	s := "init: " + f.Step
	if f.What != "" {
		s += " on " + f.What
	}
	if f.Errno != 0 {
		s += ": " + f.Errno.Error()
	}
	if f.Log != "" {
		s += fmt.Sprintf(" (kernel: %s)", f.Log)
	}
	if why := f.explain().meaning; why != "" {
		s += ": " + why
	}
	return s
}

// Forbidden says whether it is the system that forbids namespaces to this user,
// at once or, as AppArmor does, by giving them no capabilities.
func (f *Failure) Forbidden() bool {
	switch f.Step {
	case "make namespaces", "map ids", "make mounts private":
		return slices.Contains([]unix.Errno{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EUSERS, unix.EINVAL}, f.Errno)
	}
	return false
}

// Unwrap gives the errno.
func (f *Failure) Unwrap() error {
	if f.Errno == 0 {
		return nil
	}
	return f.Errno
}
