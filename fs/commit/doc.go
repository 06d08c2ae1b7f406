// Package commit moves a branch's changes into its parent so that, whatever
// happens in between, the parent ends with all of them or with none.
//
// A commit has six parts; each ends durable before the next begins:
//
//	compile  turn the plan into steps, ask everything that could refuse
//	stage    copy what lies on another file system, hear who still writes
//	journal  write the steps, sync them and the layers; then the head of the
//	         journal, whose sync is the commit point
//	apply    step by step: rename or exchange, through held directories
//	seal     sync the directories, mark the journal done
//	roll back, instead of the rest of apply: turn the journal, durably, then
//	         the done steps in reverse
//
// The parent's drift since the fork is judged before, by [Drift], and who writes
// to what would be displaced, by [Writers]; from the plan on every entry must be
// the one that the plan has seen.
//
// Invariants:
//
//  1. The journal says which way [Recover] goes: applying forward, rolling
//     back backward. It turns at most once, and durably before the first step
//     is reversed.
//  2. A step done twice equals a step done once, in either direction. Whether
//     it is done is judged by our side, the layer or the slots: nobody else
//     renames there.
//  3. A step acts only on what it recognises, on both sides, by inode, birth
//     time and type, never by device number; anything else is a third party's
//     and stays. What a step displaced is looked at once more: if it is not
//     what was there before, the commit turns.
//  4. A layer is altered only by steps, and its marks (user.overlay.*) come
//     back with a roll-back, so a branch whose commit was refused is as it was.
//  5. No path outside the roots is opened for writing, no symbolic link and no
//     mount is passed through, no FIFO, socket or device is opened.
//  6. Only a clean sync is believed. After a failed one nothing is repeated:
//     the commit stops, recovery decides from the disk.
//
// What a commit displaced, and its journal, are the undo record: the journal
// says for each path that it was absent (a move into the base), which place
// its entry now has (a move out of it, a swap), or which metadata it had. A
// [Record] undoes it by the inverse steps in a journal of its own, and redoes
// it by the inverse of those; then
//
//  7. A journal that is done is never written to. What the record holds is what
//     its journals say together, in the order of their numbers.
//  8. What lies in a record may have other names in the base and descriptors
//     that are open: it is moved, and nothing else. If it is no longer what was
//     displaced, it is not brought back.
//  9. Nothing in a record is ever removed as if it were a copy: neither a
//     roll-back nor a failure takes anything out of it but by its own steps.
//
// The caller holds the store's commit lock and the branch's, or the record's: two commits or
// recoveries of one branch at once are not excluded here.
//
// See rename(2) for RENAME_EXCHANGE, fsync(2) on directories, and openat2(2).
package commit
