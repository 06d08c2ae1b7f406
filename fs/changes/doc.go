// Package changes compares a branch's layers with the base: it makes the plan,
// the list of paths that a commit would alter, with all that a commit needs to
// know about each. It reads only, but for one thing: an entry of a layer that
// its own owner may not read is opened by its mode while it is read, and
// closed again (never an entry of the base).
//
// What counts:
//
//   - Content decides, never times: a file whose content, mode, owner and
//     attributes came back equal is [Touched] if its mtime differs, else no
//     change at all; one with other content and the same size and mtime is
//     [Modified].
//   - Only what is in a layer is looked at, and what a deletion or replacement
//     takes out of the base; the work is linear in that. Memory is bounded by
//     1 KB a change, descriptors by a constant, at any depth.
//   - A directory is listed for its times only if nothing directly in it
//     changed; [RootPlan.Dirs] has the times of the others.
//   - Sockets are never changes: one made in a session is as if it were not
//     there, one deleted is let be. Nor is what a session cannot see in the
//     base: character devices 0:0 and other whiteouts there.
//   - Neither FIFOs, sockets nor devices are ever opened.
//   - Each change holds the Stat of the layer's entry as it is when the plan
//     is done with it: what is committed later must still look so.
//
// Order. Changes come as a walk of the tree meets them: a directory before
// what is below it, the names of a directory in order of their bytes. Changes
// with Within follow the change that carries them and need no step. All others
// are independent of one another, except that Metadata and Touched of a
// directory may lock or unlock the steps below it.
package changes
