package fusefs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// HostType is what mountinfo calls the type of a mount that MountHost made.
const HostType = "fuse.try"

// Helper finds the set-uid program that mounts for an ordinary user in the
// mount namespace that he is in, or says why there is none that can.
func Helper() (string, error) {
	const name = "fusermount3"
	if os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() {
		return "", fmt.Errorf("%s serves the real user, who is not the effective one", name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is not installed: %w", name, exec.ErrNotFound)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	// In a user namespace root has no id, and it is not set-uid either.
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", fmt.Errorf("stat %s: %w", path, err)
	}
	if st.Uid != 0 || st.Mode&unix.S_ISUID == 0 {
		return "", fmt.Errorf("%s is not set-uid root", path)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return "", fmt.Errorf("statfs %s: %w", path, err)
	}
	if fs.Flags&unix.ST_NOSUID != 0 {
		return "", fmt.Errorf("%s is on a file system mounted nosuid", path)
	}
	if on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && on != 0 {
		return "", fmt.Errorf("%s gets no privilege: no_new_privs is set", path)
	}
	return path, nil
}

// MountHost mounts on dir, an empty directory of the caller's, in the caller's
// own mount namespace, and returns what the mount is served by. Only the user
// can enter it, from any user namespace (fs/fuse/dir.c,
// fuse_permissible_uidgid). The kernel checks permissions by the ids of the
// first namespace. noExec: nothing on it can be executed.
func MountHost(dir string, noExec bool) (*os.File, error) {
	options := "default_permissions,fsname=try,subtype=try"
	if noExec {
		options += ",noexec"
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mount on %s: make a socket: %w", dir, err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "socket of fusermount3")
	defer unix.Close(pair[0])
	done := make(chan error, 1)
	go func() {
		err := runHelper([]*os.File{theirs}, "-o", options, "--", dir)
		theirs.Close() // the last of that end: whoever reads on the other is told
		done <- err
	}()
	dev, err := receiveDevice(pair[0])
	if failed := <-done; err != nil {
		if failed != nil {
			return nil, fmt.Errorf("mount on %s: %w", dir, failed) // it has told why
		}
		return nil, errors.Join(fmt.Errorf("mount on %s: %w", dir, err), UnmountHost(dir))
	}
	return dev, nil
}

// UnmountHost takes away what MountHost mounted on dir, whoever uses it. It
// does so with the user's own rights: nothing but a FUSE mount of his.
func UnmountHost(dir string) error {
	if err := runHelper(nil, "-u", "-z", "--", dir); err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}

// runHelper runs fusermount3, which finds the first of files as descriptor 3.
func runHelper(files []*os.File, args ...string) error {
	path, err := Helper()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd := &exec.Cmd{
		Path: path, Args: append([]string{filepath.Base(path)}, args...), Dir: "/",
		Env: []string{"_FUSE_COMMFD=3", "PATH=/usr/bin:/bin", "LC_ALL=C"}, Stderr: &said, ExtraFiles: files,
	}
	err = cmd.Run()
	if errors.Is(err, unix.ECHILD) { // SIGCHLD is ignored: nobody knows how it ended
		return nil
	}
	if err != nil && said.Len() > 0 {
		return errors.New(strings.ReplaceAll(strings.TrimSpace(said.String()), "\n", "; "))
	}
	return err
}

// receiveDevice waits for the descriptor that fusermount3 sends.
func receiveDevice(socket int) (*os.File, error) {
	var n, oobn int
	buf, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	err := interrupted(func() (err error) {
		n, oobn, _, _, err = unix.Recvmsg(socket, buf, oob, unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read from fusermount3: %w", err)
	}
	if n == 0 {
		return nil, errors.New("fusermount3 sent nothing")
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, fmt.Errorf("read from fusermount3: %w", err)
	}
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) == 1 {
			return os.NewFile(uintptr(fds[0]), "/dev/fuse"), nil
		}
	}
	return nil, errors.New("fusermount3 sent no descriptor")
}
