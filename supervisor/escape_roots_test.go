package supervisor_test

import (
	"strconv"
	"testing"
)

// writes is a command that writes to the cwd, HOME and the temporary
// directories.
const writes = `sh -c 'for d in . $HOME /tmp /var/tmp; do (echo x > $d/new; echo y >> $d/old) 2>/dev/null || echo "cannot write $d"; done'`

// TestRootsThatNest: cwd = HOME, cwd in /tmp, HOME in /tmp, cwd = / and more
// (issue 2, point 4): what is inside is committed where it belongs, or not at
// all, and the base stays as it is until then. Stopped by the overlays of
// fs/branch/roots.go and by the rest being read-only.
func TestRootsThatNest(t *testing.T) {
	for _, c := range []struct{ name, before, dir, committed string }{
		{"cwd is HOME", "", "$HOME", "$HOME /tmp /var/tmp"},
		{"cwd below HOME", "mkdir -p $HOME/a/b", "$HOME/a/b", "$HOME/a/b $HOME /tmp /var/tmp"},
		{"cwd in /tmp", "mkdir -p /tmp/a/b", "/tmp/a/b", "/tmp/a/b $HOME /tmp /var/tmp"},
		{"cwd is /tmp", "", "/tmp", "$HOME /tmp /var/tmp"},
		{"HOME in /tmp", "export HOME=/tmp/h; mkdir $HOME", "$D/proj", "$D/proj $HOME /tmp /var/tmp"},
		{"HOME is /tmp", "export HOME=/tmp", "$D/proj", "$D/proj /tmp /var/tmp"},
		{"HOME below the cwd", "export HOME=$D/proj/h; mkdir $HOME", "$D/proj", "$D/proj $HOME /tmp /var/tmp"},
		{"HOME is a link", "ln -s home $D/link; export HOME=$D/link", "$D/proj", "$D/proj $D/home /tmp /var/tmp"},
		{"cwd through a link", "ln -s proj $D/link", "$D/link", "$D/proj $HOME /tmp /var/tmp"},
		{"cwd through a link into HOME", "mkdir $HOME/a; ln -s ../home/a $D/proj/link", "$D/proj/link", "$HOME/a $HOME /tmp /var/tmp"},
		{"cwd in /dev/shm", "mkdir /dev/shm/a", "/dev/shm/a", "/dev/shm/a $HOME /tmp /var/tmp"},
		{"cwd in /var/tmp, read-only beside it", "mkdir /var/tmp/a", "/var/tmp/a", "/var/tmp/a $HOME /tmp /var/tmp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				l.want(c.before+`
					for d in `+c.dir+" "+c.committed+`; do echo base > $d/old; done; cd `+c.dir+`
					try --abort -q `+writes+`
					for d in `+c.committed+`; do test -e $d/new && echo $d is not the branch; grep -v base $d/old; done
					ls -A /tmp /var/tmp | grep '^[.]try'
					try -y -q `+writes+`
					for d in `+c.committed+`; do test -e $d/new && grep -q y $d/old || echo $d is not committed; done
					try undo -q
					for d in `+c.committed+`; do test -e $d/new && echo $d is not undone; grep -v base $d/old; done
					try branches`+clearFurther("$HOME/.local/state/try"), "try: no branches\n")
			})
		})
	}
}

// clearFurther removes the stores that the home store in dir has elsewhere, with
// undo records: outside of the test's own directories, if dir is.
func clearFurther(dir string) string {
	return `; grep -ho '"/[^"]*/[.]try-[0-9a-f]*"' ` + dir + `/stores/* 2>/dev/null | tr -d '"' | while read -r s; do chmod -R u+rwx "$s" 2>/dev/null || :; rm -rf -- "$s"; done; `
}

// TestRootWithAMountBelow: it cannot be an overlay; the run fails closed, with
// the mount's name, or what is less is private and said (DESIGN §5, FACTS B4).
// Stopped by Probe in fs/overlay.
func TestRootWithAMountBelow(t *testing.T) {
	if onFuse() {
		t.Skip("it is about what overlay refuses; TestMountsBelowARoot is fuse's")
	}
	each(t, func(t *testing.T, l *lab) {
		l.write("home/mnt/x", "")
		l.write("proj/mnt/x", "")
		for _, c := range []struct{ with, flags, says string }{
			{"home/mnt", "", "/home/mnt is a mount below it"},
			{"proj/mnt", "--scope dir", "/proj/mnt is a mount below it"},
		} {
			l.with = []string{"tmpfs:" + l.path(c.with)}
			l.says("try --engine overlay "+c.flags+" -y -q touch mark 2>&1; echo -$?; ls", c.says, "-125\n")
			l.none("mark")
		}
		// The cwd, a mount itself, can be captured; the other's mount does not matter.
		l.with = []string{"tmpfs:" + l.path("home/mnt"), "tmpfs:" + l.path("proj")}
		l.says("try --scope dir -y -q touch x; echo $?", "is no longer what lies at", "125\n")
		l.want("cd $D/proj; try --scope dir -y -q touch x; echo $?; ls; cd $HOME/mnt; try --scope dir -y -q touch x; echo $?; ls", "0\nx\n0\nx\n")
		// /tmp with a mount in it is private, and that is said.
		l.with = []string{"dir:/tmp/mnt", "tmpfs:/tmp/mnt"}
		l.says("echo base > /tmp/f; try --engine overlay -y sh -c 'ls /tmp; echo x > /tmp/f; echo x > g' 2>&1; cat /tmp/f g", "/tmp is private to this run", "base\nx\n")
	})
}

// TestRenameBetweenHomeAndTheCwd: in one file system, rename and link work
// where one root holds the other, and fail cleanly (EXDEV) where not (B25).
func TestRenameBetweenHomeAndTheCwd(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.want(`mkdir $HOME/sub; cd $HOME/sub; echo a > a; echo b > ../b
			try -y -q sh -c 'mv a ../a; ln ../b b; mv ../a c; ln c ../d'
			cat c b ../b ../d; test $(stat -c %i c) = $(stat -c %i ../d) && echo same; ls`, "a\nb\nb\na\nsame\nb\nc\n")
		l.want(`echo a > a; try -y -q sh -c 'ln a $HOME/l 2>/dev/null || echo no link; mv a $HOME/moved && cat $HOME/moved'; ls; cat $HOME/moved`, "no link\na\na\n")
	})
}

// TestOneIdUserNamespace: uid 0 of a user namespace with one id is an ordinary
// user by another name (unshare -Ur, a rootless container): the same holds
// (Root in fs/sys/root.go), programs without capabilities. To daemons it is still whoever it is outside.
func TestOneIdUserNamespace(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.write("out/f", "base")
		l.unchanged(func() {
			l.want(`mkdir $D/run/s; attack serve -root $D/run/s/daemon -- attack serve $D/out/exec -- unshare -Ur sh -c 'id -u
				try --scope dir -y -q sh -c "id -u; grep CapEff.*[1-9a-f] /proc/self/status; echo x > f; (echo x >> \$D/out/f || touch \$D/out/mark) 2>/dev/null; attack connect `+"touch\\ $D/mark"+` \$D/run/s/daemon \$D/out/exec | grep RAN; attack pid1 | grep DONE; cat /proc/sys/kernel/osrelease > /dev/null; true"
				stat -c %u f'; stat -c %u f; rm $D/run/s/daemon $D/out/exec`, "0\n0\n0\n"+strconv.Itoa(l.uid)+"\n")
		}, "out/f")
		l.none("mark")
	})
}
