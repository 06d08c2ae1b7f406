package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// serve is "serve [-root] ADDR… -- CMD…": servers that run each line that they
// read as a shell command, like tmux or a session bus; with -root only for
// uid 0, like systemd. "dgram:" before a path makes a datagram socket. CMD runs
// beside them.
func serve(args []string) error {
	addrs, argv := cut(args)
	root := len(addrs) > 0 && addrs[0] == "-root"
	if root {
		addrs = addrs[1:]
	}
	for _, a := range addrs {
		if !strings.HasPrefix(a, "@") {
			if err := os.MkdirAll(filepath.Dir(strings.TrimPrefix(a, "dgram:")), 0o700); err != nil {
				return err
			}
		}
		if path, ok := strings.CutPrefix(a, "dgram:"); ok {
			c, err := net.ListenPacket("unixgram", path)
			if err != nil {
				return err
			}
			go obeyPackets(c)
			continue
		}
		l, err := net.Listen("unix", a)
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go obey(c.(*net.UnixConn), root)
			}
		}()
	}
	return run(argv)
}

func obey(c *net.UnixConn, root bool) {
	defer c.Close()
	if root && peer(c) != 0 {
		fmt.Fprintln(c, "not for you")
		return
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return
	}
	out, err := exec.Command("sh", "-c", line).CombinedOutput()
	fmt.Fprintf(c, "RAN %v %s\n", err, out)
}

func obeyPackets(c net.PacketConn) {
	buf := make([]byte, 4096)
	for {
		n, _, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		exec.Command("sh", "-c", string(buf[:n])).Run()
	}
}

func peer(c *net.UnixConn) (uid int) {
	uid = -1
	conn, err := c.SyscallConn()
	if err != nil {
		return uid
	}
	conn.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = int(cred.Uid)
		}
	})
	return uid
}

// connect is "connect LINE ADDR…": it sends the line to each server and prints
// the first word of what came back.
func connect(args []string) error {
	for _, a := range args[1:] {
		answer, err := ask(a, args[0])
		if err != nil {
			if inner, ok := errors.AsType[*os.SyscallError](err); ok {
				err = inner.Err
			}
			answer = err.Error()
		}
		fmt.Printf("%s: %s\n", filepath.Base(a), answer)
	}
	return nil
}

func ask(addr, line string) (string, error) {
	if path, ok := strings.CutPrefix(addr, "dgram:"); ok {
		c, err := net.Dial("unixgram", path)
		if err != nil {
			return "", err
		}
		_, err = fmt.Fprintln(c, line)
		return "SENT", errors.Join(err, c.Close())
	}
	c, err := net.DialTimeout("unix", addr, 10*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, line); err != nil {
		return "", err
	}
	out, err := io.ReadAll(c)
	if err != nil {
		return "", err
	}
	word, _, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	return word, nil
}

// writePipe is "pipe PATH LINE": it writes to a FIFO if somebody reads it.
func writePipe(args []string) error {
	fd, err := unix.Open(args[0], unix.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(args[1]+"\n"))
	return err
}

// vsock makes a socket to the host of a virtual machine, by each of the ways
// to make one; it connects to nobody.
func vsock([]string) error {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.Close(fd)
	}
	say("socket", err)
	var params [120]byte
	r, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, addressOf(&params[0]), 0)
	if errno == 0 {
		unix.Close(int(r))
		say("io_uring", nil)
		return nil
	}
	say("io_uring", errno)
	return nil
}
