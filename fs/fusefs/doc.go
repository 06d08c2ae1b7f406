// Package fusefs is the file system of the engine fuse: base and layers as one
// tree, served on a FUSE mount (github.com/hanwen/go-fuse/v2). What it writes
// is exactly what overlayfs writes when mounted with userxattr (package
// layer), so a layer of one engine mounts under the other.
//
// It guarantees:
//
//  1. The base is never written to. What a session changes is in the first
//     layer, and a server that is killed leaves a layer that can be used:
//     whatever takes more than one call is made aside, in Work, and moved in.
//  2. An inode keeps its number as long as the kernel knows it, across
//     copy-up and renames; a copied-up file that is where it was, and has no
//     other name, for good. One inode with several names stays one, as far as
//     its names were seen.
//  3. Descriptors are bounded, whatever the tree's size and however many
//     files are open: open files are nodes, and a node opens its content when
//     it is needed. Only what was removed while it was known is held, until
//     the kernel forgets it. Nodes go when the kernel forgets them; if they are
//     very many it is asked to, which takes Linux 6.18.
//  4. Every lower entry is reached by a name in an open directory, or as the
//     parent of one, through no link and no mount (package sys), and must be
//     the inode it was.
//  5. The server never touches its own mount.
//
// Who may do what is checked by the kernel (default_permissions), by the
// modes, owners and ACLs that we show, and by the file systems below, for the
// user that serves. New entries belong to that user, or for root to the caller.
//
// Copies in the layer are the user's. Where the mount is one of the first
// namespaces (MountHost, Options.OutsideIDs) they are shown with the owner and
// group of the base, so that the kernel decides as it would there; a copy gets
// the base's group itself if it is one of the user's.
//
// The files: server (what the supervisor uses), engine (what a branch asks), host (mounting outside),
// conn (requests and answers), files, data, attr, xattr, list (the
// operations), acl (what a session has no ids for), passthrough, tree, lookup,
// node, fds (what is where), watch (what changes outside), copyup, links, make,
// remove, rename, workshop (changes), prune (what is too much).
//
// # Without opening
//
// OPEN, CREATE, OPENDIR, FLUSH and FSYNC are answered with ENOSYS, and the
// kernel then makes files by MKNOD, and opens and closes them without asking.
// A file or directory that it has in its cache is opened, read and closed in no
// round trip at all. So a file is copied up when it is first written, not when
// it is opened for writing. (With passthrough files must be opened, and are made
// and opened at once.) fsync does nothing, as in an overlay mounted volatile:
// what must last is synced when a branch is kept or committed. Locks of files
// are the kernel's own.
//
// Data is written through. Writeback would leave size and times of files to the
// kernel, also where somebody changes the base, and costs one request more for
// each small file.
//
// # What may change outside
//
// The kernel may believe for ever what it is told: of the layer, because nobody
// else writes it; of the base, because its directories are watched, and what is
// no longer true is taken back. A file of the base that was changed is another
// inode from then on, so that the kernel's cache never holds a mixture. What is
// open stays what it was.
//
// # Directories of the base are renamed
//
// The format has no redirects. All below the directory is copied up where it
// is, which nobody can see, and then it is the layer's own and moves. An inode
// of the base that has several names is one in the layer, too, as far as its
// names are ever looked at in a session; the others keep the base's.
//
// # Locks
//
// In this order, and none is taken while a later one is held:
//
//	Server.gate     held by every change; Freeze takes it alone
//	node.copying    while the content of a file is copied up
//	tree            for reading by whoever uses a place (a node's names, a
//	                directory's parent); alone by what takes one away or moves it
//	node.mu         a directory's before that of what is in it
//	table.mu, fds.mu, workshop.mu, watch.mu, room.mu, conn.mu    never two of them
//	conn.telling    held while the kernel is told something unasked
//
// Data is read, written and copied without the tree. Nothing waits for another
// request, but for what frees room, with no lock and for a moment (room); else
// what is waited for is the file systems below, which never come back to this
// mount. Nothing is told to the kernel unasked with a lock held, or by
// what answers a request: it waits until nobody is busy in the directory.
//
// See fuse(4), Documentation/filesystems/fuse/ and overlayfs.rst in the kernel.
package fusefs
