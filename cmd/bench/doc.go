// Command bench prints one table: what a session, a commit and an abort cost,
// with medians and ratios from one run and the peers measured beside us.
//
// How it measures:
//
//   - Whatever is compared is interleaved, sample by sample, so that noise of
//     the machine hits all alike. Medians, never means; a ratio is the median
//     of the ratios of neighbouring samples.
//   - A start is the time from fork to the return of wait, as a shell sees it,
//     with output to /dev/null. What a command leaves running behind its status
//     is waited for between two samples (we are its subreaper) and shown in a
//     row of its own.
//   - Work inside is timed by a worker (this program again) that runs in the
//     place to be measured and takes one step at a time, so that neither
//     start nor settling is part of it. The places, native, a bare kernel
//     overlay and a session, stand side by side until the end: a tree that is
//     written again where one was just deleted takes ext4 ten times as long,
//     natively too, as it skips inodes that it freed in the last minutes.
//   - A commit or abort is the time between the events "exited" and "settled"
//     of --status-fd, less the same time of a session that changed nothing or
//     had one file to drop: what is left is what settling these changes costs.
//     All are shown. "try commit NAME" of a kept branch would not do, as
//     keeping it has already synced its data.
//
// Nothing is estimated: what cannot be had is a row that says why. All files
// lie in one directory below TMPDIR, or below HOME if TMPDIR is one that a
// session captures. It holds HOME's stand-in and is removed at the end.
package main
