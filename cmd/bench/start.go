package main

import (
	"path/filepath"
)

// The goals of DESIGN §10.
const (
	goalStartDir, stretchStartDir   = 2.0, 1.3
	goalStartUser, stretchStartUser = 2.5, 1.7
	goalFlat                        = 1.10
)

// start compares whole processes, from fork to wait.
func start(l *lab) error {
	n := 200
	if l.short {
		n = 25
	}
	l.table.head("Start: the whole process, fork to wait, of `true` in …")
	nop, err := l.look("true", "coreutils")
	if err != nil {
		return err
	}
	project := filepath.Join(l.home, "project")
	var contenders []contender
	add := func(name string, argv ...string) {
		contenders = append(contenders, contender{name: name, argv: argv, dir: project})
	}
	lack := func(name, why string) {
		contenders = append(contenders, contender{name: name, why: why})
	}
	const (
		unshareName = "unshare -Urmpf --mount-proc"
		bwrapName   = "bubblewrap: user pid ipc mount, own /proc /dev"
		dirName     = "try --abort --scope dir"
		userName    = "try --abort"
	)
	add("nothing", nop)
	if unshare, err := l.look("unshare", "util-linux"); err != nil {
		lack(unshareName, err.Error())
	} else {
		add(unshareName, unshare, "-Urmpf", "--mount-proc", nop)
	}
	if bwrap, err := l.look("bwrap", "bubblewrap"); err != nil {
		lack(bwrapName, err.Error())
	} else {
		add(bwrapName, bwrap, "--dev-bind", "/", "/", "--unshare-user", "--unshare-pid", "--unshare-ipc",
			"--proc", "/proc", "--dev", "/dev", nop)
	}
	if l.try == "" {
		lack(dirName, l.noTry)
		lack(userName, l.noTry)
	} else {
		add(dirName, l.try, "--abort", "--scope", "dir", "--", nop)
		add(userName, l.try, "--abort", "--", nop)
	}
	runners, err := l.race(n, contenders)
	if err != nil {
		return err
	}
	by := map[string]*starts{}
	for _, r := range runners {
		by[r.name] = r
	}
	for _, r := range runners {
		if len(r.took) == 0 {
			l.table.missing(r.name, r.why)
			continue
		}
		var ratios []ratio
		if base := by["nothing"]; base != nil && base != r {
			ratios = append(ratios, against(r.took, base.took, "nothing", 0, 0))
		}
		if peer := by[bwrapName]; peer != nil {
			switch r.name {
			case dirName:
				ratios = append(ratios, against(r.took, peer.took, "bubblewrap", goalStartDir, stretchStartDir))
			case userName:
				ratios = append(ratios, against(r.took, peer.took, "bubblewrap", goalStartUser, stretchStartUser))
			}
		}
		l.table.times(r.name, r.took, ratios...)
		if r.name == dirName || r.name == userName {
			l.table.times("  behind its status: what it still removes", r.behind)
		}
	}
	return nil
}

// creation starts sessions over bases of growing size: branches cost nothing
// that depends on the base.
func creation(l *lab) error {
	l.table.head("Creation: `try --abort --scope dir -- true` over a base of …")
	if l.try == "" {
		l.table.missing("any base", l.noTry)
		return nil
	}
	nop, err := l.look("true", "coreutils")
	if err != nil {
		return err
	}
	bases := []struct {
		name  string
		files int
	}{{"100 files", 100}, {"1,000 files", 1_000}, {"10,000 files", 10_000}, {"100,000 files", 100_000}}
	n := 100
	if l.short {
		bases, n = bases[:3], 20
	}
	var contenders []contender
	for _, b := range bases {
		dir, err := l.mkdir(filepath.Join("base", b.name))
		if err != nil {
			return err
		}
		if err := l.fill(dir, b.files); err != nil {
			return err
		}
		contenders = append(contenders, contender{
			name: b.name, argv: []string{l.try, "--abort", "--scope", "dir", "--", nop}, dir: dir,
		})
	}
	runners, err := l.race(n, contenders)
	if err != nil {
		return err
	}
	first := runners[0]
	for _, r := range runners {
		switch {
		case len(r.took) == 0:
			l.table.missing(r.name, r.why)
		case r == first:
			l.table.times(r.name, r.took)
		default:
			l.table.times(r.name, r.took, against(r.took, first.took, first.name, goalFlat, 0))
		}
	}
	return nil
}
