// Package layer is the format of a layer: what a branch changed below one
// root, exactly as overlayfs keeps it in its upper directory when mounted with
// userxattr. Whichever engine wrote a layer, the other can mount it.
//
//	entry in the layer                          says of the same path
//	character device 0:0                        whiteout: deleted
//	empty regular file with
//	  user.overlay.whiteout (any value)         whiteout; read, never written
//	directory with user.overlay.opaque = y      stands alone: the base's is hidden
//	directory, user.overlay.opaque = x or none  merged with the base's, if any
//	anything else                               stands for itself; for a file that
//	                                            is whole: no metacopy, no redirect
//
// Names of extended attributes:
//
//	user.overlay.NAME          a mark: of the format, invisible in a session
//	user.overlay.overlay.NAME  what a session calls user.overlay.NAME
//
// overlayfs writes the marks opaque, whiteout, metacopy, redirect, origin,
// impure, nlink, upper, uuid, protattr. Of these opaque and whiteout mean
// something here; origin says that the entry was copied up from the base. A
// file that has several names there gets no origin, since its copy is parted
// from them (fs/overlayfs/copy_up.c, ovl_do_copy_up); that it has the access
// time of the base's, to the nanosecond, says the same of it. All
// whiteouts of a layer are names of one inode, as a rule: nothing may be
// changed through them.
//
// The base below a layer is read with the same eyes: a character device 0:0
// or an xattr whiteout in it is not there for a session, and its marks, which
// rootless container stores have, are invisible and lost at copy-up.
//
// See Documentation/filesystems/overlayfs.rst in the kernel, "whiteouts and
// opaque directories", "Nesting overlayfs mounts", "User xattr".
package layer
