package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The places where the same work is done.
const (
	native = "native"
	bare   = "bare overlay"
	branch = "try"
	fuse   = "try --engine fuse" // for root with passthrough
	plain  = "the same without passthrough"
	peer   = "fuse-overlayfs"
)

// place is a worker that stands somewhere: natively, in a bare overlay, in a
// session. Each has a directory of its own below HOME, made in the base.
type place struct {
	kind   string
	dir    string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	in     *json.Encoder
	out    *json.Decoder
	stderr bytes.Buffer
}

// stand starts the worker of one place.
func (l *lab) stand(kind string, round int) (*place, error) {
	p := &place{kind: kind, dir: l.placeDir(kind, round)}
	var argv []string
	switch kind {
	case native:
		argv = []string{l.worker, workerWord, "steps"}
	case branch:
		if l.try == "" {
			return nil, errors.New(l.noTry)
		}
		argv = []string{l.try, "--engine", "overlay", "--abort", "-q", "--", l.worker, workerWord, "steps"}
	case fuse, plain:
		if l.try == "" {
			return nil, errors.New(l.noTry)
		}
		without := ""
		if kind == plain {
			without = "passthrough"
		}
		argv = []string{"/usr/bin/env", "TRY_TEST_NO=" + without, l.try, "--engine", "fuse", "--abort", "-q", "--", l.worker, workerWord, "steps"}
	case bare, peer:
		program := "overlay"
		if kind == peer {
			var err error
			if program, err = l.look("fuse-overlayfs", "fuse-overlayfs"); err != nil {
				return nil, err
			}
		}
		unshare, err := l.look("unshare", "util-linux")
		if err != nil {
			return nil, err
		}
		outer, err := mountNamespace()
		if err != nil {
			return nil, err
		}
		upper := filepath.Join(l.scratch, "overlay", fmt.Sprintf("upper-%s-%d", kind, round))
		work := filepath.Join(l.scratch, "overlay", fmt.Sprintf("work-%s-%d", kind, round))
		if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
			return nil, err
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", escape(l.home), escape(upper), escape(work))
		if kind == bare {
			options = "userxattr,volatile," + options
		}
		argv = []string{
			unshare, "-Ucmp", "--keep-caps", "--kill-child",
			l.worker, workerWord, "mount", program, outer, options, l.home, p.dir,
		}
	}
	p.cmd = exec.CommandContext(l.ctx, argv[0], argv[1:]...)
	p.cmd.Dir, p.cmd.Env, p.cmd.Stderr = p.dir, l.env, &p.stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdin, p.in, p.out = stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	// The first step says whether it stands.
	if _, err := p.do(step{Do: "run", Dir: p.dir, Argv: []string{"/bin/sh", "-c", ":"}}); err != nil {
		return nil, errors.Join(err, p.leave())
	}
	return p, nil
}

// placeDir is the directory of one place, the same inside and in the base.
func (l *lab) placeDir(kind string, round int) string {
	return filepath.Join(l.home, "run", fmt.Sprintf("%d-%s-%d", l.sets, strings.NewReplacer(" ", "-", "--", "-").Replace(kind), round))
}

// escape puts a path into the options of mount(2) for overlay.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `:`, `\:`, `,`, `\,`).Replace(path)
}

// do has one step taken and says how long it took.
func (p *place) do(s step) (time.Duration, error) {
	var a answer
	if err := errors.Join(p.in.Encode(s), p.out.Decode(&a)); err != nil {
		return 0, fmt.Errorf("%s: %w", p.kind, errors.Join(err, p.leave()))
	}
	if a.Err != "" {
		return 0, fmt.Errorf("%s: %s", p.kind, a.Err)
	}
	return a.Took, nil
}

// leave ends the worker and with it the place.
func (p *place) leave() error {
	err := p.stdin.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	if p.cmd.ProcessState != nil {
		return nil
	}
	if werr := p.cmd.Wait(); werr != nil {
		return fmt.Errorf("%s: %w: %s", p.kind, werr, lastLine(p.stderr.Bytes()))
	}
	return err
}
