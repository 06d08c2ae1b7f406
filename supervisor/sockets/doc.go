// Package sockets decides which sockets of the base a session may reach.
//
// Mounting read-only stops no connect(2): a socket on the tree is a door to
// the process behind it, which lives outside of the branch. So each listening
// socket is of one of two kinds:
//
//   - It answers: ssh-agent, gpg-agent, Wayland, sound, databases, name
//     service. It passes. Where a layer or a private directory hides it (an
//     overlay does: connecting through one is refused), it is in Pass, to be
//     bound in; elsewhere it is simply left alone.
//   - It executes, or may: everything else, known by name or not. A tmux
//     server, a session bus, docker or an editor's control socket run commands
//     for whoever connects. It passes only if it was named (--socket), and the
//     summary says so; otherwise it is in Cover where the session could see it,
//     and the variables that lead there are in Unset.
//
// Where they are is known from the table of names (table.go), from the
// environment, and from /proc/net/unix. The latter is written by anybody who
// binds a socket, and knows nothing of other network namespaces: it proposes,
// and what is taken from it is judged by the file that is found there. What is
// to be bound must be an absolute path without control bytes and symlinks, a
// socket, and its owner the caller or root; ns opens it again by the same
// rules. (unix(7), proc_net_unix(5), openat2(2))
//
// FIFOs have readers as sockets have servers; those of the runtime directories
// are covered too.
//
// Not seen: what comes to be on the read-only tree after the session began;
// sockets bound by a relative path, or in another network namespace under a
// name that the table does not have. Abstract sockets are not files; Landlock's
// scope closes them.
//
// The package reads; it changes nothing, and needs no locks.
package sockets
