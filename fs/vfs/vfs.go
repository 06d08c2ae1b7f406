// Package vfs is the seam under everything durable: each call by which a
// commit, its roll-back or its recovery alters a disk goes through an [FS].
// Looking is not part of it: readers go straight to package sys.
//
// It guarantees:
//
//  1. A call does what the call of the same name in package sys does, with
//     the same errors. Nothing is buffered, repeated or put in another order.
//  2. [File.Sync] and the Sync calls return every error that the kernel
//     reports. After one of them nothing is believed and nothing is retried
//     (fsync(2)): the caller stops, recovery decides from the disk.
//  3. Each call belongs to a part, named by [FS.Part], and has a number in it.
//     A [Fault] fails or ends the process at such a point; nothing else in
//     the product knows of tests. [Lossy] loses power.
//
// An FS is used by one goroutine at a time.
package vfs

import (
	"os"

	"try/fs/sys"
)

// FS is the calls of the durable path.
type FS interface {
	// Part names what follows, for the points of faults and crashes.
	Part(name string)

	// Rename moves an entry to where nothing is (EEXIST otherwise).
	Rename(from *sys.Dir, name string, to *sys.Dir, toName string) error
	// Exchange swaps two entries; never repeated on EINTR.
	Exchange(from *sys.Dir, name string, to *sys.Dir, toName string) error
	// Replace moves a file of the store's own over another.
	Replace(from *sys.Dir, name string, to *sys.Dir, toName string) error
	// Remove removes an entry that is a copy of something kept elsewhere.
	Remove(d *sys.Dir, name string, dir bool) error
	// Make makes an entry that was not there: a copy, and never in the base.
	Make(d *sys.Dir, name string, n New) error
	// Set alters an entry in place; name "" is d's own inode.
	Set(d *sys.Dir, name string, a Attr) error
	// Open opens a file for writing, without following; flags as in open(2).
	Open(d *sys.Dir, name string, flags int, perm uint32) (File, error)

	// Ordered says that the file system of d writes metadata in the order in
	// which it was altered, so that a sync of what was altered covers all that
	// was altered before it.
	Ordered(d *sys.Dir) bool
	// SyncFile writes a regular file to disk, content and metadata (fsync(2)).
	SyncFile(d *sys.Dir, name string) error
	// SyncDir writes the names of d to disk.
	SyncDir(d *sys.Dir) error
	// SyncFS writes the file system of f to disk and reports what has failed
	// since f was opened.
	SyncFS(f *os.File) error
	// Both does two things that wait for the disk, of which neither needs the
	// other. It returns when both have ended.
	Both(one, other func() error) error
}

// File is a file open for writing.
type File interface {
	WriteAt(p []byte, off int64) (int, error)
	// CopyFrom copies the content of src, holes and all, into the empty file.
	CopyFrom(src *os.File) error
	// Begin starts to write what was written so far, and waits for nothing: a
	// later Sync has less to wait for (sync_file_range(2)). It proves nothing.
	Begin()
	// Sync is fdatasync(2).
	Sync() error
	Close() error
}

// New is an entry to be made. Exactly one kind applies: a further name of a
// file, a symbolic link, or what Mode's type says.
type New struct {
	Mode   uint32 // type and permissions, through the umask
	Dev    uint64
	Target string   // of a symbolic link
	From   *sys.Dir // with Name: the file that gets a further name
	Name   string
}

// Attr is one alteration of an entry's metadata: the field that is not nil.
type Attr struct {
	Mode   *uint32
	Owner  *Owner
	Times  *Times
	Xattr  string
	Value  []byte // of Xattr
	Remove bool   // Xattr; ENODATA if there is none
}

// Owner is what chown(2) takes.
type Owner struct{ UID, GID int }

// Times is what utimensat(2) takes; sys.KeepTime leaves one.
type Times struct{ Access, Modify sys.Time }
