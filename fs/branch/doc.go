// Package branch is branches on disk: where their layers and metadata lie, who
// holds them, how far they are, and how they end. It knows the store; nobody
// else opens anything in it but fs/commit, which keeps its journal in the
// branch's directory and moves entries between a layer and the base.
//
// The home store, mode 0700:
//
//	format                 "try store 1"
//	lock                   taken to create, to name, to number, to sweep
//	commit.lock            held by whoever applies a commit or takes it back
//	trash.lock             held by the one who tidies
//	branches/ID/           a branch; ID is 128 random bits in hexadecimal
//	    lock               held as long as somebody runs or settles it; names init (Began)
//	    meta               JSON, version 1 (Meta)
//	    journal            fs/commit's
//	    u0 u1 …            layers, by number (Root.Number); others are strays
//	    w0 w1 …            their work directories; in a skeleton old, to be removed
//	    undo0 undo1 …      what a commit displaced (Slots)
//	    was/               what the base held of texts that changed (KeepAncestor)
//	undo/NUMBER.ID/        an undo record: the branch's directory after its commit
//	    journal.NUMBER     fs/commit's, of an undoing or a redoing
//	    size               bytes that it takes, once somebody has asked
//	    kept               why it is not collected, however old it is
//	spare/ID/              a skeleton for the next branch, or a draft
//	spare.journal          64 KiB of zeros for the next journal
//	trash/                 what is being deleted
//	commits/NUMBER.ID      paths that a commit changed; .open until it is sealed
//	groups/ID/             meta, lock
//	stores/ID              what is known of a further store
//
// A further store, a directory .try-ID with mode 0700 on another file system:
//
//	ID/                    u0 w0 undo0 … of the branch
//	    m0 m1 …            mount points, while its session starts (MountPoints)
//	t-ID/                  trash
//
// Invariants:
//
//  1. The home store is the one that was named; a further store is one only if
//     an entry in the home store names its path, inode and birth time. What
//     merely looks like a store is never read (H1). Every directory above a
//     store belongs to root or the user and is closed to others, or sticky,
//     looked at through held descriptors (H35).
//  2. Names of branches are looked up in metadata and are never part of a path
//     (H33).
//  3. Whether a branch is alive is told by its lock alone (H14). Who wants to
//     settle it takes the lock and then reads the state; of one whose supervisor
//     was killed he has it only when no process of its session is left.
//  4. What is in branches/ has whole metadata: a branch is drafted in spare/
//     and comes into being by one rename, and ends by one rename into trash/,
//     or into undo/ once its commit is done. A further store's directory of a
//     branch that is in none of spare/, branches/ and undo/ is trash. Members
//     of a group are branches only once the group's meta is there. A draft
//     that takes long to compose (a part of a branch, Split) lies in branches/
//     and says so in its metadata: it is a branch to nobody but its holder,
//     and trash when it has none and no journal.
//  5. Creating costs the same over any base: nothing below a root is looked
//     at but the way to nested roots.
//  6. Only a kept branch survives a loss of power: its layers were synced
//     before its state said so. One of another boot that was not is damaged.
//  7. In undo records and in the trash only directories are ever altered,
//     through descriptors that cannot be anything else; files may have other
//     names in the base (H15).
//  8. Nothing is mounted in a store but on mount points, by the holder of the
//     branch. One that nobody holds is unmounted before anything else is done.
//  9. A record is in undo/ or in the trash as a whole. What is undone or redone
//     was announced durably before, in commits/: that is where recovery looks.
//
// Lock order: commit.lock, lock, a group's lock, trash.lock; Tidy holds the
// last while it takes lock, and nobody waits for trash.lock. A branch's own
// lock, and a record's, which is the same file, is only tried by who holds
// another, and so may be held before any of them.
// All are open file description locks (fcntl_locking(2)): they go with the
// last descriptor, which init closes first of all.
package branch
