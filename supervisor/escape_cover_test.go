package supervisor_test

import (
	"os"
	"strings"
	"testing"
)

// undo is what a hostile command tries against mounts, as it is and as root of
// a user namespace: $1 is a place that is read-only, $2 one that is covered.
// Should it succeed somewhere else, it has touched files of its own name only.
const undo = `undo() {
	mount -o remount,rw,bind $1; mount -o remount,rw $1; umount $2; umount -l $2; umount -l $D/proj; umount -R /dev; umount -l /proc
	mkdir -p m; mount --bind $1 m && mount -o remount,rw,bind m && echo x > m/mark; umount m; mount --move $2 m; umount m; mount --rbind $1 m && echo x > m/mark
	mount -t overlay o -o lowerdir=$1,upperdir=$D/proj,workdir=m m
	chroot /proc/1/root sh -c "echo x > $1/mark"; nsenter -t 1 -m sh -c "echo x > $1/mark"
	(echo x > $1/mark; echo x >> $1/base; mkdir $1/mark; ln -s x $1/mark; ln $1/base $1/mark; mknod $1/mark p; chmod 777 $1/base; chown $(id -u) $1/base; touch -d @1 $1/base $1; setfattr -n user.mark -v x $1/base; truncate -s 1 $1/base; mv $1/base $1/mark; rm -f $1/base)
}
`

// TestTheRestIsReadOnly: what is in no root is as it was, down to its times
// (issue 2, point 4). Stopped by makeReadOnly in ns/steps.go; that nobody
// undoes it, by programs having no capability over the mount namespace.
func TestTheRestIsReadOnly(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.write("out/base", "base")
		l.write("out/d/base", "base")
		l.with = []string{"tmpfs:/opt", "tmpfs:/srv"} // mounts of their own
		l.sh("try --scope dir -y -q true")            // makes the store
		l.unchanged(func() {
			l.want(`look() { stat -c '%n %a %u %Y' /opt /srv /opt/base /srv/base; cat /opt/base /srv/base; ls -A /opt /srv; }
				echo base > /opt/base; echo base > /srv/base; look > $D/run/before
				echo '`+undo+`for at in $D/out $D/out/d /opt /srv; do undo $at $HOME/.local/state/try; done' > undo
				try --scope dir -y -q sh -c 'sh undo; unshare -Urm sh undo; unshare -UrmpfC --mount-proc sh undo; true' >/dev/null 2>&1
				look | diff $D/run/before -; rm -rf m undo`, "")
		}, "out")
		l.none("mark")
		l.want("try --scope dir -y -q sh -c 'echo x > $D/out/mark' 2>&1 | sed 's/.*: //'", "Read-only file system\n")
	})
}

// TestDeny: what is denied is not there, at any of its names (DESIGN §5, H35).
// Stopped by deny in supervisor/prepare.go with Aliases in fs/branch/store.go,
// and cover in ns/dev.go.
func TestDeny(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.write("home/secret/key", "SECRET")
		l.write("home/secret/deep/key", "SECRET")
		l.write("home/token", "SECRET")
		l.write("out/secret/key", "SECRET")
		l.write("proj/secret/key", "SECRET")
		l.write("again/x", "")
		l.write("deep/x", "")
		l.write("same/x", "")
		for _, dir := range []string{"home", "again"} {
			if err := os.Symlink(l.path("home/secret"), l.path("out/"+dir)); err != nil {
				t.Fatal(err)
			}
		}
		l.with = []string{"bind:" + l.path("home") + ":" + l.path("again"), "bind:" + l.path("home/secret/deep") + ":" + l.path("deep"), "bind:" + l.path("home/secret") + ":" + l.path("same")}
		const look = `'for f in $HOME/secret/key $HOME/secret/deep/key $HOME/token $D/out/secret/key $D/proj/secret/key secret/key $D/again/secret/key $D/again/secret/deep/key $D/deep/key $D/same/key $D/same/deep/key $D/out/home/key $D/again/token; do
			cat $f; cat < $f; cp $f c; ln $f l && cat l; done
			mv $HOME/secret $HOME/s2; mv $D/proj/secret s3; cat $HOME/s2/key s3/key; ls -R $HOME/secret $D/out/secret secret; rm -rf $HOME/secret; mkdir $HOME/secret; cat $HOME/secret/key
			unshare -Urm sh -c "umount -l $HOME/secret; umount -l $D/proj/secret; umount -l $HOME/token; cat $HOME/secret/key secret/key $HOME/token"; grep -r SECRET $HOME $D/proj $D/out $D/again $D/deep $D/same; true'`
		for _, scope := range []string{"dir", "user"} {
			deny := "try --scope " + scope + " --abort -q --deny $HOME/secret --deny secret --deny $D/out/secret/ --deny $HOME/token sh -c " + look + " 2>/dev/null"
			if out := l.sh(deny); strings.Contains(out, "SECRET") {
				t.Errorf("scope %s: what is denied is read:\n%s", scope, out)
			}
			byLink := strings.Replace(deny, "--deny $HOME/secret ", "--deny $D/out/home ", 1)
			if out := l.sh(byLink); strings.Contains(out, "SECRET") {
				t.Errorf("scope %s, denied by a link to it: it is read:\n%s", scope, out)
			}
		}
		l.says("cat $HOME/secret/key secret/key $HOME/token; try --scope dir --abort -q cat $HOME/secret/key", "SECRETSECRETSECRETSECRET")
	})
}

// TestPrivateDirectories: with the scope "dir" the temporary directories are
// empty, the session's own, and gone with it (DESIGN §5).
func TestPrivateDirectories(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.want(`for d in /tmp /var/tmp /dev/shm; do echo base > $d/f; done
			try --scope dir -y -q sh -c 'for d in /tmp /var/tmp /dev/shm; do ls -A $d; echo x > $d/f; mkdir $d/mark; stat -c "%n %a" $d; done; mv /tmp/f g'
			for d in /tmp /var/tmp /dev/shm; do cat $d/*; done; cat g`,
			"/tmp 1777\n/var/tmp 1777\n/dev/shm 1777\nbase\nbase\nbase\nx\n")
		l.none("mark")
	})
}

// TestSharedMemoryIsPrivate: /dev/shm is dropped with the default scope too.
func TestSharedMemoryIsPrivate(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.want(`echo base > /dev/shm/f; try -y -q sh -c 'ls -A /dev/shm; echo x > /dev/shm/f'; cat /dev/shm/f`, "base\n")
	})
}
