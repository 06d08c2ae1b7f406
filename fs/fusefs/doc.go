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
//     copy-up and renames; a copied-up file that is where it was, for good.
//     One inode with several names stays one, as far as its names were seen.
//  3. Descriptors are bounded, whatever the tree's size and however many
//     files are open: open files are nodes, and a node opens its content when
//     it is needed. Only what was removed while it was known is held, until
//     the kernel forgets it. Nodes go when the kernel forgets them.
//  4. Every lower entry is reached by a name in an open directory, through no
//     link and no mount (package sys), and must be the inode it was.
//  5. The server never touches its own mount.
//
// Who may do what is checked by the kernel (default_permissions), by the
// modes, owners and ACLs that we show, and by the file systems below, for the
// user that serves. New entries belong to that user, or for root to the caller.
//
// The files: server (what the supervisor uses), conn (requests and answers),
// files, data, attr, xattr, list (the operations), tree, lookup, node, fds
// (what is where), copyup, links, make, remove, rename (changes).
//
// # Without opening
//
// OPEN, OPENDIR, FLUSH, FSYNC and RELEASE are answered with ENOSYS, and the
// kernel then opens and closes files without asking; so is CREATE, and it makes
// files by MKNOD, of which nothing needs to be released. So a file is copied up
// when it is first written, not when it is opened for writing. fsync does
// nothing, as in an overlay mounted volatile: what must last is synced when a
// branch is kept or committed. Locks of files are the kernel's own.
//
// Data is written through. Writeback would let the kernel decide about size
// and times, also where somebody changes the base, and costs one request more
// for each small file.
//
// # Directories of the base are renamed
//
// The format has no redirects. All below the directory is copied up where it
// is, which nobody can see, and then it is the layer's own and moves.
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
//	table.mu, fds.mu, workshop.mu    never two of them
//
// Data is read, written and copied without the tree. Nothing waits for another
// request: what is waited for is the file systems below, which never come back
// to this mount (fs/fuse has no way to interrupt them either).
//
// See fuse(4), Documentation/filesystems/fuse/ and overlayfs.rst in the kernel.
package fusefs
