package supervisor_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFuseKilledInAStream: a server that is killed at any moment of a stream of
// changes leaves a layer that the kernel's overlay can mount, and a branch that
// settles, with each file whole.
func TestFuseKilledInAStream(t *testing.T) {
	withFuse(t, func(t *testing.T, r *rig) {
		for round := range rounds(t, 4) {
			r.outside(`rm -rf tree; mkdir -p tree; for d in 0 1 2 3 4 5 6 7; do mkdir -p tree/d$d/sub; for f in 0 1 2 3; do
				printf 'old old\n' > tree/d$d/f$f; printf 'old old\n' > tree/d$d/sub/f$f; done; done`)
			p, _ := r.underReaper(nil, binary, "--engine", "fuse", "--keep", "-b", "mine", "--", "/bin/sh", "-uc", `
				stream() {
					while :; do
						for d in 0 1 2 3 4 5 6 7; do
							printf 'new new\n' > tree/tmp$1; mv tree/tmp$1 tree/d$d/f$1
							mv tree/d$d/sub/f$1 tree/d$d/moved$1; ln tree/d$d/moved$1 tree/d$d/link$1; rm tree/d$d/moved$1; mv tree/d$d/link$1 tree/d$d/sub/f$1
							mkdir -p tree/d$d/made$1/in; mv tree/d$d/made$1 tree/made$1; rm -r tree/made$1
						done
					done
				}
				for i in 0 1 2 3; do stream $i 2>/dev/null & done
				while :; do for d in 0 1 2 3 4 5 6 7; do mv tree/d$d tree/e$d; rm tree/e$d/sub/f3; mv tree/e$d tree/d$d; done; done 2>/dev/null &
				echo ready >&3; wait`)
			p.untilReady()
			<-time.After(time.Duration(rand.IntN(300_000)) * time.Microsecond)
			r.must(unix.Kill(p.pid, unix.SIGKILL))
			p.wait().want(137)
			if got := r.branches()["mine"]; got != "interrupted" {
				t.Fatalf("round %d: branch mine is %q", round, got)
			}
			r.mountLayer()
			if round%2 == 0 {
				r.try("abort", "-q", "mine").want(0)
				r.outside("test $(find tree -type f | xargs cat | sort -u | wc -l) = 1; test $(find tree -type f | wc -l) = 64")
				continue
			}
			r.try("commit", "-q", "mine").want(0)
			r.outside("cat $(find tree -type f ! -name 'tmp?') | sort -u | while read l; do case $l in 'old old'|'new new') ;; *) echo \"$l\"; exit 1;; esac; done; rm -r tree")
		}
		r.try("-q", "true").want(0)
		r.outside("rm -rf tree")
		r.clean()
	})
}

// mountLayer has the kernel's overlay mount the one layer that there is, and
// reads all of it. Only root's overlay may have whiteouts of another mount.
func (r *rig) mountLayer() {
	r.t.Helper()
	layers, err := filepath.Glob(r.store() + "/branches/*/u0")
	if err != nil || len(layers) != 1 {
		r.t.Fatalf("layers are %v, %v", layers, err)
	}
	r.must(os.MkdirAll(r.dir+"/view", 0o755))
	own, err := os.Readlink("/proc/self/ns/mnt")
	r.must(err)
	r.outside(fmt.Sprintf(`unshare -Urm sh -euc 'test "$(readlink /proc/self/ns/mnt)" != "%s"
		mount -t overlay -o userxattr,lowerdir=%s:%s none %s/view; find %s/view -type f | xargs cat >/dev/null'; rmdir %s/view`,
		own, layers[0], r.proj, r.dir, r.dir, r.dir))
}

// stopped opens files and stops itself.
func stopped(args []string) error {
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(count) + 100, Max: uint64(count) + 100}); err != nil {
		return err
	}
	for i := range count {
		fd, err := unix.Open(filepath.Join(args[0], strconv.Itoa(i)), unix.O_RDWR|unix.O_CREAT, 0o644)
		if err != nil {
			return err
		}
		if _, err := unix.Write(fd, []byte("x")); err != nil {
			return err
		}
	}
	if err := unix.Kill(os.Getpid(), unix.SIGSTOP); err != nil {
		return err
	}
	return unix.Pause() // the signal may reach another thread first
}

// TestFuseStoppedClient: who is stopped with thousands of files open does not
// keep others from working with the same ones, and its own end ends it all.
func TestFuseStoppedClient(t *testing.T) {
	withFuse(t, func(t *testing.T, r *rig) {
		const count = 3000
		r.outside("mkdir many")
		o := r.sh("--engine", "fuse", "-y", "-q", fmt.Sprintf(`%s=stopped "%s" many %d & pid=$!
			until grep -q '^State:.T' /proc/$pid/status; do test -d /proc/$pid; done
			test $(ls many | wc -l) = %d
			cat many/* | wc -c
			for i in $(seq 0 499); do echo more >> many/$i; mv many/$i many/m$i; done
			rm many/1*; mkdir many/d; mv many/d many/e
			kill -9 $pid; wait $pid || echo $?
			ls many | wc -l; cat many/m7`, helperVariable, itself, count, count)).want(0)
		if want := "3000\n137\n2001\nxmore\n"; o.stdout != want {
			t.Errorf("it says %q, want %q", o.stdout, want)
		}
		if n := len(strings.Fields(r.read("many/m7"))); n != 1 {
			t.Errorf("many/m7 has %d words", n)
		}
		r.clean()
	})
}
