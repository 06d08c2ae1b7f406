package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"try/fs/branch"
	"try/supervisor/policy"
)

// sweepName is argv[0] of the detached child that empties the trash.
const sweepName = "try: empty trash"

// Sweep takes the process over if it is the child that empties the trash; it
// does not return then. It is called first thing in main.
func Sweep() {
	if len(os.Args) != 2 || os.Args[0] != sweepName {
		return
	}
	if err := sweep(os.Args[1]); err != nil {
		os.Exit(1) // nobody listens; the next run goes on
	}
	os.Exit(0)
}

func sweep(store string) error {
	// After whatever the user does next, and without any wish to hold memory.
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 19); err != nil {
		return fmt.Errorf("lower the priority: %w", err)
	}
	s, err := branch.OpenStore(store)
	if err != nil {
		return err
	}
	defer s.Close()
	return tidyStore(s, policy.Places{Home: homeDir(), Config: configHome()})
}

// tidyStore does what is done behind a run: it drops what nobody can need any
// more, undo records that the policy does not keep included, and empties the
// trash.
func tidyStore(s *branch.Store, p policy.Places) error {
	limits, err := undoLimits(p)
	if err == nil { // who cannot be understood wants nothing deleted
		_, err = collect(context.Background(), s, limits, false)
	}
	return errors.Join(err, clearStale(s), s.Tidy(context.Background()))
}

// tidy has the trash emptied behind the run: by a child that holds none of the
// caller's descriptors, or at once if TRY_SYNC is set.
func (h *Home) tidy() error {
	if os.Getenv("TRY_SYNC") != "" {
		return tidyStore(h.store, policy.Places{Home: h.user, Config: configHome()})
	}
	if untidy, err := h.store.Untidy(); err != nil || !untidy && !h.hasGroups() {
		return err
	}
	child, err := h.sweeper()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return fmt.Errorf("empty the trash: %w", err)
	}
	return child.Process.Release()
}

// tidyBehind is tidy after a run is over, whose result nothing can change.
func (h *Home) tidyBehind(ui UI) {
	if err := h.tidy(); err != nil {
		ui.Warn(err.Error())
	}
}

// sweeper is that child.
func (h *Home) sweeper() (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("empty the trash: %w", err)
	}
	return &exec.Cmd{
		Path: exe, Args: []string{sweepName, h.store.Path()}, Dir: "/", Env: []string{"HOME=" + homeDir(), "XDG_CONFIG_HOME=" + configHome()},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}, nil
}

// sweepOnce starts to empty the trash in the middle of a run: in a child,
// which has the lowest priority, so nobody should wait for it; in this process
// if TRY_SYNC is set, since then the run does.
func (h *Home) sweepOnce() (wait func() error, err error) {
	if os.Getenv("TRY_SYNC") != "" {
		return func() error { return h.store.Tidy(context.Background()) }, nil
	}
	child, err := h.sweeper()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, fmt.Errorf("empty the trash: %w", err)
	}
	return child.Wait, nil
}
