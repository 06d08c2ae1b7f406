package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionCmd is `try version`.
type versionCmd struct{}

// Run prints what was built from what.
func (*versionCmd) Run(p *program) error {
	version, revision := "unknown", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = " " + s.Value
			}
		}
	}
	_, err := fmt.Fprintf(p.stdout, "try %s%s %s %s/%s\n", version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
