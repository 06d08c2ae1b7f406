package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// workerWord as the first argument makes this program a worker:
//
//	bench worker steps                         take steps from stdin
//	bench worker mount FS NS OPTIONS TARGET DIR   mount FS, "overlay" or a program, then the same in DIR
//	bench worker put DIR COUNT SIZE            write files, then exit
const workerWord = "worker"

// step is one thing to do and to time.
type step struct {
	Do   string   // "run", "write", "read"
	Dir  string   // of run
	Argv []string // of run
	Path string   // of write and read
	Size int64    // of write
}

// answer is what a worker says about a step.
type answer struct {
	Took time.Duration
	Err  string
}

func work(args []string) int {
	err := errors.New("worker: bad arguments")
	switch {
	case len(args) == 1 && args[0] == "steps":
		err = steps(os.Stdin, os.Stdout)
	case len(args) == 6 && args[0] == "mount":
		if err = mount(args[1], args[2], args[3], args[4], args[5]); err == nil {
			err = steps(os.Stdin, os.Stdout)
		}
	case len(args) == 2 && args[0] == "hold":
		err = hold(args[1])
	case len(args) == 4 && args[0] == "put":
		count, err1 := strconv.Atoi(args[2])
		size, err2 := strconv.ParseInt(args[3], 10, 64)
		if err = errors.Join(err1, err2); err == nil {
			err = put(args[1], count, size)
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "worker: %v\n", err)
		return 1
	}
	return 0
}

// steps answers each step until stdin ends.
func steps(r io.Reader, w io.Writer) error {
	in, out := json.NewDecoder(r), json.NewEncoder(w)
	for {
		var s step
		if err := in.Decode(&s); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var a answer
		began := time.Now()
		err := s.take()
		a.Took = time.Since(began)
		if err != nil {
			a.Err = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

func (s *step) take() error {
	switch s.Do {
	case "run":
		cmd := exec.Command(s.Argv[0], s.Argv[1:]...)
		cmd.Dir = s.Dir
		// PWD as a shell would have it, for what asks the environment.
		cmd.Env = append(os.Environ(), "PWD="+s.Dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(s.Argv, " "), err, lastLine(out))
		}
		return nil
	case "write":
		return large(s.Path, s.Size)
	case "read":
		return through(s.Path)
	}
	return fmt.Errorf("unknown step %q", s.Do)
}

// mountNamespace identifies the mount namespace of this process.
func mountNamespace() (string, error) { return os.Readlink("/proc/self/ns/mnt") }

// mount mounts a bare kernel overlay, or has a program serve one, in a mount
// namespace that is not the one named outer.
func mount(fs, outer, options, target, dir string) error {
	here, err := mountNamespace()
	if err != nil {
		return err
	}
	if here == outer {
		return fmt.Errorf("mount overlay on %s: still in the caller's mount namespace %s", target, here)
	}
	if fs != "overlay" {
		if out, err := exec.Command(fs, "-o", options, target).CombinedOutput(); err != nil {
			return fmt.Errorf("%s on %s: %w: %s", fs, target, err, lastLine(out))
		}
		return os.Chdir(dir)
	}
	if err := unix.Mount("bench", target, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount overlay on %s: %w", target, err)
	}
	return os.Chdir(dir)
}
