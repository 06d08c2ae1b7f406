package vfs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"try/fs/sys"
)

// Kind is a call of [FS] or [File].
type Kind uint8

const (
	_ Kind = iota
	Rename
	Exchange
	Replace
	Remove
	Make
	Set
	Open
	SyncFile
	SyncDir
	SyncFS
	Write
	Copy
	Sync
)

var kinds = [...]string{
	Rename: "rename", Exchange: "exchange", Replace: "replace", Remove: "remove", Make: "make", Set: "set",
	Open: "open", SyncFile: "sync file", SyncDir: "sync directory", SyncFS: "sync file system", Write: "write", Copy: "copy", Sync: "sync",
}

func (k Kind) String() string { return kinds[k] }

// Op is a call that is about to be made.
type Op struct {
	Part   string
	Number int // in its part, from 1
	Kind   Kind
	Path   string
}

func (o Op) String() string { return fmt.Sprintf("%s:%d %s %s", o.Part, o.Number, o.Kind, o.Path) }

// Fault asks Before ahead of each call. An error is what the call returns,
// without having been made.
type Fault struct {
	FS
	Before func(Op) error

	part   string
	counts map[string]int
}

// KillAt ends the process by SIGKILL before the call that point, part:number,
// names. Everything that the kernel holds is let go of, as in a real crash of
// the program.
func KillAt(point string) func(Op) error {
	return func(op Op) error {
		if fmt.Sprintf("%s:%d", op.Part, op.Number) != point {
			return nil
		}
		if err := unix.Kill(os.Getpid(), unix.SIGKILL); err != nil {
			return err
		}
		select {} // until the signal has come
	}
}

func (f *Fault) ask(k Kind, d *sys.Dir, name string) error {
	if f.counts == nil {
		f.counts = map[string]int{}
	}
	f.counts[f.part]++
	path := ""
	if d != nil {
		path = d.Name()
	}
	if name != "" {
		path += "/" + name
	}
	err := f.Before(Op{f.part, f.counts[f.part], k, path})
	var errno unix.Errno
	if errors.As(err, &errno) {
		return &os.PathError{Op: k.String(), Path: path, Err: errno}
	}
	return err
}

// Part notes what the following calls belong to.
func (f *Fault) Part(name string) {
	f.part = name
	f.FS.Part(name)
}

// Rename asks, then renames; so do the others.
func (f *Fault) Rename(from *sys.Dir, name string, to *sys.Dir, toName string) error {
	if err := f.ask(Rename, to, toName); err != nil {
		return err
	}
	return f.FS.Rename(from, name, to, toName)
}

// Exchange asks, then exchanges.
func (f *Fault) Exchange(from *sys.Dir, name string, to *sys.Dir, toName string) error {
	if err := f.ask(Exchange, to, toName); err != nil {
		return err
	}
	return f.FS.Exchange(from, name, to, toName)
}

// Replace asks, then replaces.
func (f *Fault) Replace(from *sys.Dir, name string, to *sys.Dir, toName string) error {
	if err := f.ask(Replace, to, toName); err != nil {
		return err
	}
	return f.FS.Replace(from, name, to, toName)
}

// Remove asks, then removes.
func (f *Fault) Remove(d *sys.Dir, name string, dir bool) error {
	if err := f.ask(Remove, d, name); err != nil {
		return err
	}
	return f.FS.Remove(d, name, dir)
}

// Make asks, then makes.
func (f *Fault) Make(d *sys.Dir, name string, n New) error {
	if err := f.ask(Make, d, name); err != nil {
		return err
	}
	return f.FS.Make(d, name, n)
}

// Set asks, then sets.
func (f *Fault) Set(d *sys.Dir, name string, a Attr) error {
	if err := f.ask(Set, d, name); err != nil {
		return err
	}
	return f.FS.Set(d, name, a)
}

// Open asks, then opens; calls on the file are asked about too.
func (f *Fault) Open(d *sys.Dir, name string, flags int, perm uint32) (File, error) {
	if err := f.ask(Open, d, name); err != nil {
		return nil, err
	}
	file, err := f.FS.Open(d, name, flags, perm)
	if err != nil {
		return nil, err
	}
	return &faultFile{file, f, d.Name() + "/" + name}, nil
}

// SyncFile asks, then syncs.
func (f *Fault) SyncFile(d *sys.Dir, name string) error {
	if err := f.ask(SyncFile, d, name); err != nil {
		return err
	}
	return f.FS.SyncFile(d, name)
}

// SyncDir asks, then syncs.
func (f *Fault) SyncDir(d *sys.Dir) error {
	if err := f.ask(SyncDir, d, ""); err != nil {
		return err
	}
	return f.FS.SyncDir(d)
}

// Both does one after the other, so that the calls have an order.
func (f *Fault) Both(one, other func() error) error {
	if err := one(); err != nil {
		return err
	}
	return other()
}

// SyncFS asks, then syncs.
func (f *Fault) SyncFS(file *os.File) error {
	if err := f.ask(SyncFS, nil, file.Name()); err != nil {
		return err
	}
	return f.FS.SyncFS(file)
}

type faultFile struct {
	File
	f    *Fault
	path string
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.f.ask(Write, nil, f.path); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultFile) CopyFrom(src *os.File) error {
	if err := f.f.ask(Copy, nil, f.path); err != nil {
		return err
	}
	return f.File.CopyFrom(src)
}

func (f *faultFile) Sync() error {
	if err := f.f.ask(Sync, nil, f.path); err != nil {
		return err
	}
	return f.File.Sync()
}
