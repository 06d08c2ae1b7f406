// Package supervisor runs a command in a branch, from start to settled. It is
// the Go interface to `try`: cmd/try is one of its callers.
//
// # Processes
//
// There is no daemon. The supervisor is the process that calls [Run]; it owns
// the branch (its lock) and the session. Below it runs init (package ns), PID
// 1 of the session, and below that CMD and what CMD starts. When the caller
// dies, init ends the session, and a FUSE mount answers with ENOTCONN; what stays is an interrupted branch that can be
// settled later. Behind a run a detached child ([Sweep]) empties the trash.
//
// # Life of a session
//
//  1. policy and options → what the run may do (plan.go: [prepare])
//  2. roots (fs/branch), an engine for each (fs/engine), sockets
//  3. the branch: layers, stamp, lock
//  4. init sets up the namespaces and starts CMD
//  5. CMD ends; what it left is ended; only init is left
//  6. checks, each followed by the same; only init is left
//  7. changes are planned while the session's view still stands; behind FUSE
//     the mounts go first, since with them the kernel writes what it still holds
//  8. policy, drift, then the fate: said, or asked
//  9. init exits and is reaped, the mounts go with it
//  10. commit, abort or keep
//
// Nothing of the session runs from step 7 on, so what was shown and checked
// is what is committed.
//
// # Behind FUSE
//
// The supervisor serves such mounts itself (fs/fusefs), from before anything in
// the session can walk through them (package ns) until no process is left, and
// never touches them: a process that waits for itself hangs. It reaches the
// base by the mounts of the host.
//
// An ordinary user's session maps one id and one group. A root with files of
// others therefore has its mount made in the supervisor's own namespaces, by
// fusermount3, where all ids mean what they mean outside (hostmount.go). It is
// on a mount point in a store; init inherits it and binds it over the root;
// then it is unmounted outside and its mount point removed, with which go the
// copies of all others that were made meanwhile, so that the session's end is
// the mount's. We also tried to leave it mounted outside: it keeps the kernel's
// overlay from sessions that start meanwhile, and stays when we are killed.
//
// # Without namespaces
//
// Where user namespaces are forbidden, an ordinary user who names the fuse engine
// gets a session without any (confined.go; package ns, Confined). Its mounts stand
// outside as long as it lasts, and CMD is sent there: by its cwd, by HOME, and by
// each variable that is the path of something in a root. Landlock keeps it from
// writing and from signals anywhere else, a filter from sockets, and a guard ends
// what it leaves. It is not what “auto” falls back to, since it keeps less: by its
// own path CMD can read what lies there, and change the modes, groups and times
// of the user's files, which Landlock does not ask about. (Nor does it about
// extended attributes, which a filter closes, inside too.) What cannot
// be held is refused: --net none, --deny, --socket, a limit of processes. The
// processes of the user are counted together, so there is one of ours all the
// same, for all that he has and the session may add (package ns).
//
// Nothing is tried out unless the fuse engine was named.
//
// # Lock order
//
// store, group, branch, trash (package branch). The supervisor holds the
// branch's lock for the whole run and takes the store's commit lock inside it
// only for steps that cannot wait for anybody: a commit.
package supervisor
