// Package ns is what a session does to itself: namespaces, mounts, init,
// terminal. It gets a [Spec] of plain values and knows no branch.
//
// # Processes
//
//	supervisor (the caller of Start)
//	   │  clone: user, mount, PID, IPC, with NetNone also network namespaces
//	   ▼
//	init (PID 1): the steps; then waits, reaps, kills
//	   │  clone; in a root session a second user and mount namespace
//	   ▼
//	program: terminal, limits, Landlock, filter, capabilities; execve
//
// Start forks without an exec, which saves some 2 ms of 4.5, and without a copy
// of the memory (fork.go). A Go program that has forked so may hardly do
// anything (child.go has the rules), so the parent compiles the whole set-up to
// a flat table of system calls, strings and all (program.go), and a small loop
// in the child runs it (child.go).
// steps.go is the list of steps, with the reason for each one's place. With
// Spec.ReExec the child executes this binary again and runs the rest of the
// same table there, which it gets in a memfd; Init takes over in main.
//
// Without namespaces (Spec.Confined, confine.go) the supervisor forks a guard,
// which forks init: what the kernel does for a PID namespace, end it and tell its
// end, is the guard's. Mounts are outside, and Landlock keeps all of the session
// from writing anywhere else.
//
// We also tried the runtime's own hooks for a fork (go:linkname). They are
// not needed: what they do is block the signals, and detect a growing stack,
// which the linker proves here for nosplit functions. A build without
// optimisation (-gcflags=-N) needs more stack than that proof allows and does
// not link.
//
// # Protocol
//
// Packets of fixed size on a SOCK_SEQPACKET pair. Its end at the supervisor
// is the session's life: when it closes, init gives the terminal back, kills
// all, and exits. No pdeathsig: that follows a thread.
//
//	init     → serve      the descriptor of a FUSE mount; one for each
//	         ← served     one for each, before anything walks through it
//	init     → ready      views, terminal and reopened descriptors come along
//	program  → started    the kernel adds the sender's pid, as we see it
//	         ← signal, terminal, resume
//	init     → exited     wait status; whether others are left
//	         ← end        TERM and CONT, a grace, KILL
//	init     → process …  each that is about to be killed, by its comm
//	init     → empty      none is left but init
//	         ← run        another program
//	any      → failed     index of the operation, errno
//	program  → exec       errno of the execve
//
// A FUSE mount with a Source was made and is served outside before the fork;
// init only binds it, and the caller unmounts it there after Start.
//
// A program tells init nothing: the socket closes with its exec.
//
// # Invariants
//
//  1. kill(-1) is called by PID 1 of a PID namespace, or by whoever has proved
//     to be in a domain of Landlock that keeps its signals in the session
//     (guard.go): it may not signal any more a process of its own that it could
//     signal before it entered. The check stands before each call.
//  2. The first thing a forked child does is to close every descriptor that
//     is not the programs' or its own: locks of the supervisor stay the
//     supervisor's.
//  3. A program has no descriptor of ours, no capability (in a root session:
//     none outside the inner namespace), and cannot touch init, which keeps
//     its capabilities and is not dumpable. It may lower init's resource
//     limits (prlimit(2) looks at the uid only): init then ends the session
//     or fails to start a check, and nothing else.
//  4. Every descriptor that was opened outside lies on the host's mounts.
//     What is passed is pipes, sockets, terminals, devices, and files that the
//     caller opened for writing; the rest is opened anew inside.
//  5. The caller's terminal is given back its settings on every way out, but
//     only while it still has those that the supervisor made.
//  6. In a session of uid 0 the parts of /proc that belong to the machine are
//     covered or read-only in both forms: for uid 0 ownership is enough.
//
// Without namespaces 1 to 5 hold as well, but for the part of 3 on limits, which
// a filter closes, and for 4: what is opened anew is so at the session's mounts,
// and what else a program opens lies outside. Nothing there can be written,
// connected to or signalled; what Landlock does not ask about can be changed:
// modes, groups and times, but not extended attributes (outside.go). Who kills guard and init at once, from
// outside, leaves the programs to themselves: confined as they are, and behind a
// mount that the supervisor then takes away.
//
// Root sessions leave no_new_privs off: their programs have every capability
// of their namespace anyway, and su, file capabilities and package scripts
// work as outside.
//
// # Order of locks
//
// relay.mu, then relay.out; Session.mu is taken with neither held.
//
// See user_namespaces(7), pid_namespaces(7), mount_namespaces(7),
// fsopen(2), mount_setattr(2), close_range(2), pidfd_open(2), pty(7), and
// Documentation/filesystems/overlayfs.rst.
package ns
