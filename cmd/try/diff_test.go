package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// TestDiffOfWhatNobodyReads: large files, and such of many lines, are compared
// by size and hash (H29).
func TestDiffOfWhatNobodyReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := sys.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, c := range map[string]struct {
		text  string
		shown bool
	}{
		"large":    {strings.Repeat("x", textAbove), true},
		"larger":   {strings.Repeat("x", textAbove+1), false},
		"long":     {strings.Repeat("x\n", linesInAll), true},
		"longer":   {strings.Repeat("x\n", linesInAll+1), false},
		"no text":  {"x\x00", false},
		"empty":    {"", true},
		"not UTF8": {"\xff\n", true},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		v, err := side(root, name, &sys.Stat{Mode: unix.S_IFREG | 0o644})
		if err != nil {
			t.Fatal(err)
		}
		if shown := v.summary == ""; shown != c.shown {
			t.Errorf("%s: shown %v, want %v (%.40q)", name, shown, c.shown, v.summary)
		}
	}
}
