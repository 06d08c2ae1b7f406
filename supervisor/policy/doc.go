// Package policy decides which changes of a branch may reach the base. It
// reads the TOML files, keeps who is trusted, and gives each change a verdict;
// it knows neither branches nor sessions and touches no file but its own.
//
// # Layers
//
// A policy is a stack of layers:
//
//	built-in   this package (builtin.go); every rule says why
//	system     /etc/try/policy.toml
//	user       $XDG_CONFIG_HOME/try/policy.toml, or the file of --policy
//	project    the nearest .try.toml at or above the cwd
//
// The search for .try.toml goes upwards as direnv's does, and ends at the top
// of the git working tree (a project's rules are the project's), at the home
// directory (looked at as well) and at /. A file that belongs to neither the
// caller nor root is left out with a warning, as git leaves out repositories
// of others. --policy FILE stands in for the user's and the project's file;
// with --no-policy no file is read and only the built-in layer is left.
//
// # Verdicts
//
// Each layer is evaluated by itself, and in it the first rule that matches
// decides. Over the layers the strictest verdict wins:
//
//	deny > ask > drop > yield > allow
//
// with one exception: where the user's layer allows, yields or drops, a
// built-in ask is lifted. --allow GLOB answers an ask of any layer, and lifts
// a built-in deny if its literal part lies at or below the denied place
// (`--allow '**'` is no answer to "may this replace try's own policy?").
//
// # Globs
//
// Those of doublestar: * and ? stay within a path segment, ** stands for any
// number of whole segments, dir/** is dir and all below it. "~/…" and "/…" are
// absolute. Any other glob is relative to each root of the branch; in a
// .try.toml to the directory that holds the file.
//
// # Names
//
// A change is matched under all its names (H21): as it is changed; as each
// place that a rule protects by its words leads to it through symbolic links,
// in the base (Survey) and in what the branch makes of it; and, by rules that
// ask or deny, folded: NFC, case, no ignorable code points. Other rules go by
// the path that is changed, to the letter. Who replaces or retargets what lies
// above a protected place, or on the way to it, meets the rule as well. Further
// names of a file are changes of their own.
//
// # What is asked about
//
// takeover.go is the list of what turns a mistake into a takeover (H22), a row
// for each program; condition.go says when a row does not hold.
//
// # Trust
//
// A project file comes with the project. Unless its content was allowed
// (Trust), only what makes things stricter is obeyed: the actions deny and
// ask, limits lower than those in force, net = "none", session.deny, and
// on_success / on_failure of ask, keep or abort where they are stricter than
// the user's. What is not obeyed is said in a Warning.
//
// # Invariants
//
//   - Nothing is half read: one unknown key, bad glob or wrong type refuses the
//     file, with file and line.
//   - A Policy never changes after Load, Restore or Join, nor a Survey; both may
//     be used by several goroutines.
//   - The policy at the start travels with the branch (Snapshot); at settling
//     it is joined with the then-current one of the user (Join), and of both
//     verdicts the stricter counts.
package policy
