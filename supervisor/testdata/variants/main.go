// Command variants is two variants of a race: "hold" makes something of each
// kind that processes can share, "reach" looks whether it can have it.
//
//	variants hold|reach DIR MARK PORT
//
// They meet in DIR, which is the real thing for both: hold says that it is
// ready by the FIFO "ready", reach waits for "go", writes "result", and lets
// hold end by "done".
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

type meeting struct {
	dir, mark, port string
	key             int
	undo            []func()
}

func main() {
	m := &meeting{dir: os.Args[2], mark: os.Args[3], port: os.Args[4]}
	h := fnv.New32()
	h.Write([]byte(m.mark))
	m.key = int(h.Sum32() & 0x7fffffff)
	var err error
	if os.Args[1] == "hold" {
		err = m.hold()
	} else {
		err = m.reach()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Args[1], err)
		os.Exit(3)
	}
}

// meet opens a FIFO, which waits for the other side, and closes it again.
func (m *meeting) meet(name string, flag int) error {
	f, err := os.OpenFile(filepath.Join(m.dir, name), flag, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// files are the places in which a variant can leave one.
func (m *meeting) files() map[string]string {
	return map[string]string{
		"/dev/shm": filepath.Join("/dev/shm", m.mark), "/tmp": filepath.Join("/tmp", m.mark), "cwd": m.mark,
		"HOME": filepath.Join(os.Getenv("HOME"), m.mark),
	}
}

func (m *meeting) hold() (err error) {
	defer func() {
		for _, f := range m.undo {
			f()
		}
	}()
	// Or Yama could do what the session is to do.
	_ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0)
	for name, path := range m.files() {
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m.undo = append(m.undo, func() { os.Remove(path) })
	}
	for _, make := range []func() error{m.sysv, m.queue, m.keyrings, m.abstract, m.listen} {
		if err := make(); err != nil {
			return err
		}
	}
	if err := m.meet("ready", os.O_WRONLY); err != nil {
		return err
	}
	return m.meet("done", os.O_RDONLY)
}

func (m *meeting) sysv() error {
	shm, err := unix.SysvShmGet(m.key, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		return fmt.Errorf("shmget: %w", err)
	}
	m.undo = append(m.undo, func() { unix.SysvShmCtl(shm, unix.IPC_RMID, nil) })
	q, _, errno := unix.Syscall(unix.SYS_MSGGET, uintptr(m.key), unix.IPC_CREAT|0o666, 0)
	if errno != 0 {
		return fmt.Errorf("msgget: %w", errno)
	}
	m.undo = append(m.undo, func() { unix.Syscall(unix.SYS_MSGCTL, q, unix.IPC_RMID, 0) })
	sem, _, errno := unix.Syscall(unix.SYS_SEMGET, uintptr(m.key), 1, unix.IPC_CREAT|0o666)
	if errno != 0 {
		return fmt.Errorf("semget: %w", errno)
	}
	m.undo = append(m.undo, func() { unix.Syscall6(unix.SYS_SEMCTL, sem, 0, unix.IPC_RMID, 0, 0, 0) })
	return nil
}

func (m *meeting) mqOpen(flags int) (int, error) {
	name, err := unix.BytePtrFromString(m.mark)
	if err != nil {
		return -1, err
	}
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), uintptr(flags), 0o666, 0, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func (m *meeting) queue() error {
	if _, err := m.mqOpen(unix.O_CREAT | unix.O_RDWR); err != nil {
		return fmt.Errorf("mq_open: %w", err)
	}
	m.undo = append(m.undo, func() {
		name, _ := unix.BytePtrFromString(m.mark)
		unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)), 0, 0)
	})
	return nil
}

func (m *meeting) keyrings() error {
	runtime.LockOSThread()
	id, err := unix.AddKey("user", m.mark, []byte("x"), unix.KEY_SPEC_USER_KEYRING)
	if errors.Is(err, unix.ENOSYS) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("add_key: %w", err)
	}
	m.undo = append(m.undo, func() { unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_USER_KEYRING, 0, 0) })
	return nil
}

func (m *meeting) abstract() error {
	l, err := net.Listen("unix", "@"+m.mark)
	if err != nil {
		return err
	}
	m.undo = append(m.undo, func() { l.Close() })
	return nil
}

func (m *meeting) listen() error {
	l, err := net.Listen("tcp", "127.0.0.1:"+m.port)
	if err != nil {
		return err
	}
	m.undo = append(m.undo, func() { l.Close() })
	return nil
}

func (m *meeting) reach() error {
	if err := m.meet("go", os.O_RDONLY); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(m.dir, "pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	result := map[string]string{}
	note := func(name string, err error) {
		result[name] = "reached"
		if err != nil {
			result[name] = err.Error()
		}
	}
	note("signal", unix.Kill(pid, 0))
	runtime.LockOSThread()
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0)
	note("ptrace", asError(errno))
	note("/proc", m.inProc())
	for name, path := range m.files() {
		_, err := os.Stat(path)
		note(name, err)
	}
	_, err = unix.SysvShmGet(m.key, 0, 0)
	note("shmget", err)
	_, _, errno = unix.Syscall(unix.SYS_MSGGET, uintptr(m.key), 0, 0)
	note("msgget", asError(errno))
	_, _, errno = unix.Syscall(unix.SYS_SEMGET, uintptr(m.key), 0, 0)
	note("semget", asError(errno))
	_, err = m.mqOpen(unix.O_RDONLY)
	note("mq_open", err)
	if _, err := unix.KeyctlSearch(unix.KEY_SPEC_USER_KEYRING, "user", m.mark, 0); !errors.Is(err, unix.ENOSYS) {
		note("keyring", err)
	}
	c, err := net.Dial("unix", "@"+m.mark)
	if err == nil {
		c.Close()
	}
	note("abstract socket", err)
	l, err := net.Listen("tcp", "127.0.0.1:"+m.port)
	switch {
	case err == nil:
		l.Close()
		result["port"] = "free"
	case errors.Is(err, unix.EADDRINUSE):
		result["port"] = "reached"
	default:
		result["port"] = err.Error()
	}
	out, err := json.Marshal(result)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(m.dir, "result"), out, 0o666), m.meet("done", os.O_WRONLY))
}

func asError(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// inProc looks for the one that holds by its arguments.
func (m *meeting) inProc() error {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && strings.Contains(string(line), "\x00hold\x00"+m.dir) {
			return nil
		}
	}
	return errors.New("not in /proc")
}
