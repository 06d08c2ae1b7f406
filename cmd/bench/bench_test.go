package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	odd := []time.Duration{9, 1, 5}
	even := []time.Duration{8, 2, 4, 6}
	for _, c := range []struct {
		d    []time.Duration
		p    int
		want time.Duration
	}{{odd, 50, 5}, {odd, 90, 5}, {odd, 0, 1}, {odd, 100, 9}, {even, 50, 5}, {even, 10, 2}, {nil, 50, 0}} {
		if got := percentile(c.d, c.p); got != c.want {
			t.Errorf("percentile %d of %v is %d, want %d", c.p, c.d, got, c.want)
		}
	}
	if odd[0] != 9 {
		t.Errorf("samples were sorted in place: %v", odd)
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		a, goal, stretch float64
		want             string
	}{
		{1.2, 2, 1.3, "met, stretch too"},
		{2, 2, 1.3, "met"},
		{2.01, 2, 1.3, "MISSED"},
		{1.01, 1.05, 0, "met"},
		{9, 0, 0, ""},
	} {
		if got := compare(c.a, 1, "peer", c.goal, c.stretch).verdict; got != c.want {
			t.Errorf("%.2f against %.2f (%.2f): %q, want %q", c.a, c.goal, c.stretch, got, c.want)
		}
	}
}

func TestAgainstComparesNeighbours(t *testing.T) {
	a := []time.Duration{2, 2, 20, 20}
	b := []time.Duration{1, 1, 10, 10}
	if got := against(a, b, "peer", 0, 0).text; got != "2.00 × peer" {
		t.Errorf("ratio is %q", got)
	}
	if got := against(a, nil, "peer", 1, 0); got != (ratio{}) {
		t.Errorf("a ratio without a peer: %v", got)
	}
}

func TestTableFailsWithoutAFigure(t *testing.T) {
	var tab table
	tab.head("group")
	tab.times("row", []time.Duration{2 * time.Millisecond}, ratio{}, compare(3, 2, "peer", 1, 0))
	tab.absent("optional", "no such tool")
	if tab.failed {
		t.Error("a row that need not be had failed the run")
	}
	tab.missing("needed", "it ended with 125")
	if !tab.failed {
		t.Error("a row without its figure did not fail the run")
	}
	var out bytes.Buffer
	if err := tab.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2.00 ms", "1.50 × peer", "MISSED", "not had: no such tool", "not had: it ended with 125"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("table lacks %q:\n%s", want, out.String())
		}
	}
}

func TestRemoveNeedsMarker(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "scratch", "work", "work")
	if err := os.MkdirAll(filepath.Join(inner, "incompat"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(inner, 0); err != nil { // as overlayfs leaves it
		t.Fatal(err)
	}
	scratch := filepath.Join(dir, "scratch")
	if err := remove(scratch); err == nil {
		t.Fatal("removed a directory without the marker")
	}
	if err := os.WriteFile(filepath.Join(scratch, marker), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := remove(scratch); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(scratch); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", scratch, err)
	}
}

func TestWorkerRefusesItsCallersNamespace(t *testing.T) {
	here, err := mountNamespace()
	if err != nil {
		t.Fatal(err)
	}
	err = mount("overlay", here, "", t.TempDir(), "/")
	if err == nil || !strings.Contains(err.Error(), "still in the caller's mount namespace") {
		t.Errorf("error is %v", err)
	}
}
