package main

import (
	"bufio"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// repoFiles is the size of the repository and of the archive made from it;
// every tenth file differs between its two branches.
const repoFiles = 10_000

// materials are what the places work on, made natively beforehand.
type materials struct {
	*lab
	work   []workload
	absent []row
	tools  map[string]string
}

func (l *lab) materials() (*materials, error) {
	m := &materials{lab: l, tools: map[string]string{}}
	for _, t := range [][2]string{{"tar", "tar"}, {"rm", "coreutils"}, {"git", "git"}} {
		path, err := l.look(t[0], t[1])
		if err != nil {
			return nil, err
		}
		m.tools[t[0]] = path
	}
	for _, prepare := range []func() error{m.archive, m.npm, m.program, m.streams} {
		if err := prepare(); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// run is a step that runs one of the tools.
func (m *materials) run(dir, tool string, args ...string) step {
	return step{Do: "run", Dir: dir, Argv: append([]string{m.tools[tool]}, args...)}
}

func (m *materials) add(w ...workload) { m.work = append(m.work, w...) }

func (m *materials) leave(name, why string) {
	m.absent = append(m.absent, row{name: name, missing: why})
}

// archive makes a repository with two branches and a tar of its files.
func (m *materials) archive() error {
	repo, err := m.mkdir("src/repo")
	if err != nil {
		return err
	}
	tar := filepath.Join(m.home, "src", "repo.tar")
	if err := m.prepare(repo, m.tools["git"], "init", "-q", "-b", "main"); err != nil {
		return err
	}
	if err := m.fastImport(repo); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{m.tools["git"], "checkout", "-q", "main"},
		{m.tools["git"], "status"},
		{m.tools["tar"], "--exclude=.git", "-cf", tar, "."},
	} {
		if err := m.prepare(repo, argv...); err != nil {
			return err
		}
	}
	m.add(
		workload{
			name: "untar 10,000 files", peer: goalTwice, repeat: 1, writes: true,
			step: func(p *place) step { return m.run(filepath.Join(p.dir, "untar"), "tar", "-xf", tar) },
		},
		workload{
			name: "git checkout, all 10,000 files", peer: goalTwice, repeat: 1, writes: true,
			step: func(p *place) step { return m.run(filepath.Join(p.dir, "clone"), "git", "checkout", "-q", "main") },
		},
		workload{
			name: "git status, 10,000 files", repeat: 5, warm: true,
			step: func(p *place) step { return m.run(m.whole(p), "git", "status") },
		},
		workload{
			name: "git checkout of a branch, 1,000 of 10,000 files differ", peer: goalTwice, repeat: 1, writes: true,
			step: func(p *place) step { return m.run(m.whole(p), "git", "checkout", "-q", "other") },
		},
		workload{
			name: "rm -rf of the 10,000 files", peer: goalTwice, repeat: 1, writes: true, late: true,
			step: func(p *place) step { return m.run(p.dir, "rm", "-rf", "untar") },
		},
	)
	return nil
}

// whole is the repository with its files: a session may change the one in the
// base, natively each round has a clone.
func (m *materials) whole(p *place) string {
	if p.kind == native {
		return filepath.Join(p.dir, "whole")
	}
	return filepath.Join(m.home, "src", "repo")
}

// fastImport writes both branches at once into a pack: loose objects would be
// 11,000 more files, and deleting them would slow down what follows.
func (m *materials) fastImport(repo string) error {
	cmd := exec.CommandContext(m.ctx, m.tools["git"], "fast-import", "--quiet")
	cmd.Dir, cmd.Env = repo, m.env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	w := bufio.NewWriter(pipe)
	r := rand.New(rand.NewPCG(1, 2))
	commit := func(branch, from string, every int) {
		fmt.Fprintf(w, "commit refs/heads/%s\ncommitter bench <bench@example.org> 1700000000 +0000\ndata 1\nx\n%s", branch, from)
		for i := 0; i < repoFiles; i += every {
			content := text(r, 200+r.IntN(3_800))
			fmt.Fprintf(w, "M 100644 inline d%04d/f%02d.txt\ndata %d\n%s\n", i/perDir, i%perDir, len(content), content)
		}
	}
	commit("main", "", 1)
	commit("other", "from refs/heads/main\n", 10)
	err = errors.Join(w.Flush(), pipe.Close())
	if werr := cmd.Wait(); werr != nil {
		return fmt.Errorf("git fast-import: %w: %s", werr, lastLine([]byte(stderr.String())))
	}
	return err
}

// npm fills the cache by a real installation from the registry.
func (m *materials) npm() error {
	const name = "npm install, express and its 60-odd dependencies, cache warm"
	npm, err := exec.LookPath("npm")
	if err != nil {
		m.leave(name, "no npm here")
		return nil
	}
	dir, err := m.mkdir("src/npm")
	if err != nil {
		return err
	}
	// HOME is not the caller's, so neither is ~/.npmrc: keep its registry.
	config := exec.CommandContext(m.ctx, npm, "config", "get", "registry")
	if out, err := config.Output(); err == nil {
		m.env = append(m.env, "npm_config_registry="+strings.TrimSpace(string(out)))
	}
	m.env = append(m.env, "npm_config_audit=false", "npm_config_fund=false", "npm_config_update_notifier=false")
	manifest := `{"name":"bench","version":"1.0.0","private":true,"dependencies":{"express":"4.21.2"}}`
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(manifest), 0o644); err != nil {
		return err
	}
	if out, err := m.output(dir, npm, "install"); err != nil {
		m.leave(name, fmt.Sprintf("the registry did not fill the cache: %v: %s", err, out))
		return nil
	}
	m.tools["npm"] = npm
	m.add(workload{
		name: name, peer: goalTwice, repeat: 1,
		step: func(p *place) step { return m.run(filepath.Join(p.dir, "npm"), "npm", "install", "--offline") },
	})
	return nil
}

// The program that `go build` builds: three packages and a good part of the
// standard library below them.
//
//go:embed testdata/tarsum
var tarsum embed.FS

// program fills the build cache by building it once.
func (m *materials) program() error {
	const name = "go build of a small program, cache warm, its packages changed"
	tool, err := exec.LookPath("go")
	if err != nil {
		m.leave(name, "no go here")
		return nil
	}
	m.tools["go"] = tool
	dir := filepath.Join(m.home, "src", "tarsum")
	if err := m.copyProgram(dir, "warm"); err != nil {
		return err
	}
	if err := m.prepare(dir, tool, "build", "-o", "tarsum", "."); err != nil {
		return err
	}
	m.add(workload{
		name: name, repeat: 1,
		step: func(p *place) step { return m.run(filepath.Join(p.dir, "tarsum"), "go", "build", "-o", "tarsum", ".") },
	})
	return nil
}

// copyProgram writes the program's source, with a constant of its own so that
// its packages have to be compiled in each place.
func (m *materials) copyProgram(dir, build string) error {
	const top = "testdata/tarsum"
	err := fs.WalkDir(tarsum, top, func(name string, d fs.DirEntry, err error) error {
		target := filepath.Join(dir, strings.TrimPrefix(name, top))
		if err != nil || d.IsDir() {
			return errors.Join(err, os.MkdirAll(target, 0o755))
		}
		source, err := tarsum.ReadFile(name)
		if err != nil {
			return err
		}
		if path.Ext(name) == ".go" {
			source = fmt.Appendf(source, "\nconst _ = %q\n", build)
		}
		return os.WriteFile(target, source, 0o644)
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module tarsum\n\ngo 1.26.0\n"), 0o644)
}

// streams are large files, read and written in blocks of 64 KB. 1 GB is written
// over what is in the cache already: on a virtual machine, a gigabyte of memory
// that the host has yet to find takes ten times as long as writing it.
func (m *materials) streams() error {
	dir, err := m.mkdir("src/streams")
	if err != nil {
		return err
	}
	read := func(name string, size int64, repeat, rounds int) error {
		base := filepath.Join(dir, name)
		m.add(workload{
			name: "read " + name + ", cached", repeat: repeat, rounds: rounds, warm: true, native: goalReads,
			step: func(*place) step { return step{Do: "read", Path: base} },
		})
		return large(base, size)
	}
	write := func(w workload, size int64) {
		w.passed = goalPassWrites
		path := func(p *place) string { return filepath.Join(p.dir, "written") }
		w.writes = true
		w.step = func(p *place) step { return step{Do: "write", Path: path(p), Size: size} }
		remove := func(p *place) step { return m.run(p.dir, "rm", path(p)) }
		if w.warm {
			w.finish = remove
		} else {
			w.after = remove
		}
		m.add(w)
	}
	const mega, giga = 50 << 20, 1 << 30
	if err := read("50 MB", mega, 5, 0); err != nil {
		return err
	}
	own := func(p *place) string { return filepath.Join(p.dir, "own") }
	m.add(workload{
		name: "read 50 MB of its own, cached", repeat: 5, warm: true, native: goalReads, passed: goalPassReads,
		before: func(p *place) step { return step{Do: "write", Path: own(p), Size: mega} },
		step:   func(p *place) step { return step{Do: "read", Path: own(p)} },
		finish: func(p *place) step { return m.run(p.dir, "rm", own(p)) },
	})
	write(workload{name: "write 50 MB, a new file, no sync", repeat: 5}, mega)
	if m.short {
		m.leave("read and write of 1 GB", "left out by -short")
		return nil
	}
	if err := read("1 GB", giga, 2, 3); err != nil {
		return err
	}
	write(workload{name: "write 1 GB over itself, cached, no sync", repeat: 2, rounds: 3, warm: true}, giga)
	return nil
}

// place makes in the base what one place needs.
func (m *materials) place(kind string, round int) error {
	dir := m.placeDir(kind, round)
	if err := os.MkdirAll(filepath.Join(dir, "untar"), 0o755); err != nil {
		return err
	}
	clones := [][]string{{"clone", "--no-checkout"}}
	if kind == native {
		clones = append(clones, []string{"whole", "--branch=main"})
	}
	for _, c := range clones {
		repo, clone := filepath.Join(m.home, "src", "repo"), filepath.Join(dir, c[0])
		err := m.prepare(dir, m.tools["git"], "clone", "-q", "--shared", c[1], repo, clone)
		if err == nil { // so that `git checkout other` needs no guess
			err = m.prepare(clone, m.tools["git"], "branch", "-q", "other", "origin/other")
		}
		if err != nil {
			return err
		}
	}
	if m.tools["npm"] != "" {
		npm := filepath.Join(dir, "npm")
		if err := os.Mkdir(npm, 0o755); err != nil {
			return err
		}
		for _, name := range []string{"package.json", "package-lock.json"} {
			if err := copyFile(filepath.Join(npm, name), filepath.Join(m.home, "src", "npm", name), 0o644); err != nil {
				return err
			}
		}
	}
	if m.tools["go"] != "" {
		return m.copyProgram(filepath.Join(dir, "tarsum"), dir)
	}
	return nil
}
