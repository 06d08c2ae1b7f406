package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"try/fs/branch"
	"try/fs/commit"
	"try/fs/sys"
	"try/fs/vfs"
	"try/supervisor/policy"
)

// Home is the open home store.
type Home struct {
	store *branch.Store
	user  string // home directory, without symbolic links; "" if there is none
	// recovered is what opening the store had to finish.
	recovered []Recovery
	mounts    []sys.Mount // of this process's namespace
	notes     []string    // what a run should warn of
}

// OpenHome opens the home store ($TRY_STORE, else $XDG_STATE_HOME/try, else
// ~/.local/state/try), making it if it is missing, and finishes what a crash
// left of commits.
func OpenHome() (*Home, error) {
	h := &Home{}
	if home := homeDir(); home != "" {
		real, err := filepath.EvalSymlinks(home)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("resolve HOME: %w", err)
		}
		h.user = real
	}
	path, others := h.storePaths()
	if path == "" {
		return nil, withHint(errors.New("no place for the store: neither TRY_STORE nor HOME is set"), "set TRY_STORE to a directory of your own")
	}
	var err error
	if h.store, err = branch.OpenStore(path, others...); err != nil {
		return nil, err
	}
	if err := h.lookAtMounts(); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	if h.recovered, err = h.recover(); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// lookAtMounts reads the mounts, without those that a killed try has left. That
// one cannot be taken away is no reason to do nothing else.
func (h *Home) lookAtMounts() (err error) {
	if h.mounts, err = sys.Mounts(); err != nil {
		return err
	}
	gone, err := h.unmountDead()
	if err != nil {
		h.notes = append(h.notes, err.Error())
	}
	if gone {
		h.mounts, err = sys.Mounts()
		return err
	}
	return nil
}

// Adopt takes over a branch of another machine that shares the store, where
// nothing uses it any more, and finishes what was begun of it.
func (h *Home) Adopt(name string) error {
	if err := h.store.Adopt(name); err != nil {
		return err
	}
	list, err := h.recover()
	h.recovered = append(h.recovered, list...)
	return err
}

// Close closes the store.
func (h *Home) Close() error { return h.store.Close() }

// homeDir is HOME, or what the user database says.
func homeDir() string {
	if home := os.Getenv("HOME"); home != "" {
		return filepath.Clean(home)
	}
	if u, err := user.Current(); err == nil {
		return u.HomeDir
	}
	return ""
}

// configHome is where the user's configuration lies; "": below HOME.
func configHome() string { return os.Getenv("XDG_CONFIG_HOME") }

// storePaths says where the home store is, and where it would be looked for
// if the environment said nothing.
func (h *Home) storePaths() (path string, others []string) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		others = append(others, filepath.Join(dir, "try"))
	}
	if home := homeDir(); home != "" {
		others = append(others, filepath.Join(home, ".local/state/try"))
	}
	if dir := os.Getenv("TRY_STORE"); dir != "" {
		return dir, others
	}
	if len(others) == 0 {
		return "", nil
	}
	return others[0], others[1:]
}

// places says where policies are looked for from the working directory dir.
func (h *Home) places(dir string) (policy.Places, error) {
	protected, err := h.store.Places()
	if err != nil {
		return policy.Places{}, err
	}
	p := policy.Places{
		Home: h.user, Config: configHome(),
		Protected: protected, StartUp: policy.StartUpFiles(os.Getenv), Path: os.Getenv("PATH"),
		Trust: policy.NewTrust(filepath.Join(h.store.Path(), "trust")),
	}
	if p.Cwd, err = filepath.EvalSymlinks(dir); err != nil {
		return p, fmt.Errorf("resolve the working directory: %w", err)
	}
	if exe, err := os.Executable(); err == nil {
		p.Executable = exe
	}
	return p, nil
}

// Places says where policies are looked for from the working directory.
func (h *Home) Places() (policy.Places, error) {
	dir, err := os.Getwd()
	if err != nil {
		return policy.Places{}, fmt.Errorf("find the working directory: %w", err)
	}
	return h.places(dir)
}

// Store is the path of the home store.
func (h *Home) Store() string { return h.store.Path() }

// Branches lists all branches, the newest first.
func (h *Home) Branches() ([]branch.Info, error) {
	list, err := h.store.Branches()
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(b branch.Info) bool { return b.Draft })
	sortNewest(list)
	return list, nil
}

// UnknownBranchError says that there is no such branch.
type UnknownBranchError struct {
	Name string // empty: none of this directory
	Dir  string
}

func (e *UnknownBranchError) Error() string {
	if e.Name == "" {
		return "no kept branch of " + e.Dir
	}
	return fmt.Sprintf("no branch named %q", e.Name)
}

// Hint says where to look.
func (e *UnknownBranchError) Hint() string { return "try branches lists what there is" }

// Pick finds the branch that name means: that name, or for "" the only or
// newest settleable branch of the working directory.
func (h *Home) Pick(name string) (string, error) {
	list, err := h.Branches()
	if err != nil {
		return "", err
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	for _, b := range list {
		if name != "" && b.Name == name {
			return name, nil
		}
		if name == "" && b.Err == nil && b.Dir == dir && b.State != branch.Running && !b.Foreign {
			return b.Name, nil
		}
	}
	if members := membersOf(list, name); len(members) == 1 {
		return members[0].Name, nil // all that is left of a race
	}
	return "", &UnknownBranchError{name, dir}
}

// open takes a branch that no session holds. If the commit of a part of it was
// left by a crash since the store was opened, that comes first.
func (h *Home) open(name string) (*branch.Branch, error) {
	b, err := h.store.Open(name)
	if errors.Is(err, branch.ErrLocked) {
		return nil, withHint(fmt.Errorf("branch %s is in use by another try", name), "wait for it to end, or end it")
	}
	if errors.Is(err, branch.ErrForeign) {
		return nil, withHint(err, "if nothing uses it there any more: try commit --force %s, or try abort --force %s", name, name)
	}
	if err != nil {
		return nil, err
	}
	pending, err := h.store.Pending()
	for _, id := range pending {
		if id == b.ID {
			continue
		}
		r, ok, e := h.recoverOne(id, b)
		if ok {
			h.recovered = append(h.recovered, r)
		}
		err = errors.Join(err, e)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Abort drops a branch.
func (h *Home) Abort(name string, ui UI) (*Result, error) {
	b, err := h.open(name)
	if err != nil {
		return nil, err
	}
	r := resultOf(b)
	if b.State == branch.Running { // its supervisor died between two writes
		b.State = branch.Interrupted
	}
	r.Settled, r.Reason = Aborted, "asked"
	if err := errors.Join(b.SetState(branch.Aborted), b.Discard()); err != nil {
		r.Settled, r.Err = Kept, err
		return r, nil
	}
	ui.Event(Event{Kind: "settled", Result: r})
	h.tidyBehind(ui)
	return r, nil
}

// String says it in one line.
func (r Recovery) String() string {
	what := "the commit of branch " + cmp.Or(r.Branch, r.ID)
	if r.Undo {
		what = "an undo or redo of " + cmp.Or(r.Branch, r.ID)
	}
	what += ", which a crash had left,"
	switch {
	case r.Err != nil:
		return fmt.Sprintf("%s cannot be decided: %v", what, r.Err)
	case r.Outcome == commit.Committed:
		return what + " was finished"
	case len(r.Conflicts) > 0:
		return fmt.Sprintf("%s was taken back: %s", what, r.Conflicts[0])
	}
	return what + " was taken back"
}

// Recovery is what became of one interrupted commit.
type Recovery struct {
	Branch, ID string
	Undo       bool // it was the undoing, or the redoing, of the branch's commit
	Outcome    commit.Outcome
	Conflicts  []commit.Conflict // why it was rolled back
	Err        error             // it could not be decided; nothing more was touched
}

// Recovered is what became, when the store was opened, of commits that a crash
// had left.
func (h *Home) Recovered() []Recovery { return h.recovered }

// recover finishes or rolls back each commit, and each undoing, that a crash left. It returns
// what it did, and an error only if the store cannot be read.
func (h *Home) recover() ([]Recovery, error) {
	pending, err := h.store.Pending()
	if err != nil {
		return nil, err
	}
	var list []Recovery
	for _, id := range pending {
		r, ok, err := h.recoverOne(id, nil)
		if err != nil {
			return list, err
		}
		if ok {
			list = append(list, r)
		}
	}
	records, err := h.store.PendingRecords()
	if err != nil {
		return list, err
	}
	for _, n := range records {
		r, ok, err := h.recoverRecord(n)
		if err != nil {
			return list, err
		}
		if ok {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	_ = h.tidy() // what is left the next run does
	return list, nil
}

// recoverOne decides one commit. A branch that is held is being committed at
// this moment, and one that is gone has been decided. held is a branch whose
// lock the caller has, or nil.
func (h *Home) recoverOne(id string, held *branch.Branch) (r Recovery, ok bool, err error) {
	r.ID = id
	b, err := h.store.Open(id)
	if errors.Is(err, branch.ErrLocked) || errors.Is(err, branch.ErrUnknown) || errors.Is(err, branch.ErrForeign) {
		return r, false, nil
	}
	if err != nil {
		r.Err = err
		return r, true, nil
	}
	lock, err := h.store.LockCommits(context.Background(), "try recover", nil)
	if err != nil {
		return r, false, errors.Join(err, b.Close())
	}
	defer lock.Unlock()
	r.Branch = b.Name
	if r.Err = verifyJournal(b); r.Err != nil {
		r.Err = errors.Join(r.Err, b.Close())
		return r, true, nil
	}
	r.Outcome, r.Err = commit.Recover(vfs.Disk(), b.Path())
	var c *commit.ConflictError
	var restored []commit.Restored
	if r.Outcome == commit.RolledBack && errors.As(r.Err, &c) { // else nothing is decided yet
		r.Conflicts, r.Err, restored = c.Conflicts, nil, c.Restored
	}
	switch {
	case r.Err != nil:
		r.Err = errors.Join(r.Err, b.Close())
	case r.Outcome == commit.Committed:
		r.Err = errors.Join(b.RaiseEpoch(), b.Sealed())
		if r.Err == nil && b.Rest != nil {
			r.Err = h.takeRest(b, held)
		}
		if r.Err != nil {
			r.Err = errors.Join(r.Err, b.Close())
			break
		}
		r.Err = errors.Join(b.SetState(branch.Committed), b.ForgetAncestors(), b.Retire())
	case b.Rest != nil:
		b.State = branch.Kept
		r.Err = errors.Join(b.Withdrawn(), h.withWhole(b, held, func(whole *branch.Branch) error {
			return errors.Join(forgive(whole, restored), whole.Save())
		}))
		if r.Err == nil {
			r.Err = errors.Join(b.ForgetJournal(), b.Discard())
		} else {
			r.Err = errors.Join(r.Err, b.Close())
		}
	default:
		r.Err = errors.Join(b.Withdrawn(), b.ForgetJournal(), h.remember(b, restored), b.Keep(context.Background()), b.Close())
	}
	return r, true, nil
}

// remember records, for a branch whose commit was taken back, what the base
// looks like, if that was not done at the end of its session.
func (h *Home) remember(b *branch.Branch, restored []commit.Restored) error {
	if len(restored) == 0 {
		return nil
	}
	if len(b.Roots) > 0 && b.Roots[0].Seen != nil {
		return forgive(b, restored)
	}
	plan, opened, err := makePlan(context.Background(), b)
	defer func() {
		for _, d := range opened {
			d.Close() // O_PATH
		}
	}()
	if err != nil {
		return err
	}
	c := &committer{home: h, b: b, res: &Result{Plan: plan}}
	if c.roots, err = commitRoots(b, nil, nil); err != nil {
		return err
	}
	return c.observe(restored)
}

// verifyJournal says that the journal is of this very branch (H1).
func verifyJournal(b *branch.Branch) error {
	info, err := commit.Inspect(b.Path())
	if err != nil || info == nil {
		return err
	}
	if info.Branch != b.ID {
		return fmt.Errorf("recover %s: its journal is of branch %s", b.Name, info.Branch)
	}
	for _, root := range info.Roots {
		known := false
		for i := range b.Roots {
			known = known || b.Roots[i].Path == root
		}
		if !known {
			return fmt.Errorf("recover %s: its journal names %s, which is no root of the branch", b.Name, root)
		}
	}
	return nil
}

// resultOf says of a branch what its metadata know.
func resultOf(b *branch.Branch) *Result {
	r := &Result{
		Branch: b.Name, ID: b.ID, Command: b.Command, Dir: b.Dir, Engine: b.Engine,
		Started: b.Created, Names: map[string][]string{},
	}
	for i := range b.Roots {
		r.Names[b.Roots[i].Path] = b.Roots[i].Names
	}
	return r
}

// shortened is path with HOME as ~, for messages.
func (h *Home) shortened(path string) string {
	if rest, ok := strings.CutPrefix(path, h.user+"/"); ok && h.user != "" {
		return "~/" + rest
	}
	return path
}
