package supervisor_test

import (
	"os"
	"strings"
	"testing"
)

// forge makes at $F a store as good as any, with a commit in it that was cut
// off after its commit point and would, if recovered, put "forged" into
// $D/out/f.
const forge = `forge() {
	cd $D/out; echo base > f
	TRY_STORE=$F TRY_TEST_CRASH=apply:1 try --scope dir -y -q sh -c 'echo forged > f' 2>/dev/null && echo no crash
	chmod -R u+rwx $F/branches/*/w? 2>/dev/null # overlayfs made its work directory mode 000
	cd $D/proj
}
`

// TestForgedStores: a directory that looks like a store is none, wherever it
// lies: only the home store and what that one knows is ever read (H1). Stopped
// by openFurther in fs/branch/place.go, which wants an entry, and by nothing
// there that looks for names.
func TestForgedStores(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		// Each is a real one: named, it does what it was made for.
		places := "$D/proj/.try-ID $D/home/.try-$(id -u) $D/out/.try-ID $D/.try $D/home/.local/state/try $D/home/mine/stores/ID $D/home/mine/.try-ID /tmp/.try-ID"
		l.want(forge+`export TRY_STORE=$D/home/mine; try --scope dir -y -q true
			for F in `+strings.ReplaceAll(places, "ID", "0123456789abcdef0123456789abcdef")+`; do
				forge
				for cmd in "recover" "branches" "changes" "--abort -q true" "-y -q true" "--scope dir -y -q true"; do
					try $cmd >/dev/null 2>&1
				done
				cat $D/out/f; try branches; TRY_STORE=$F try recover | grep -c committed; cat $D/out/f`+clearFurther("$F")+`rm -rf $F
			done`, strings.Repeat("base\ntry: no branches\n1\nforged\n", 8))
	})
}

// TestJournalOfAnotherBranch: a journal that came into a branch's directory
// is not carried out: it must be of that branch, and its roots the branch's
// (H1). Stopped by verifyJournal in supervisor/home.go.
func TestJournalOfAnotherBranch(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.says(forge+`F=$D/out/forged; forge
			try --scope dir --keep -q -b mine touch x
			S=$D/home/.local/state/try/branches
			cp $F/branches/*/journal $(echo $S/*)/journal
			try recover 2>&1; try branches; cat $D/out/f`, "recover mine: its journal is of branch", "mine", "base\n")
	})
}

// TestCommittedStores: what a session commits never becomes a store: the
// default place is refused, even where TRY_STORE leads elsewhere and by way
// of links, other places are directories like any (H1, H12). The policy denies
// it; where --allow lifts that, as here, it is stopped by protect in fs/commit/job.go and Places in fs/branch/store.go.
func TestCommittedStores(t *testing.T) {
	for _, c := range []struct{ name, before, inside, want string }{
		{"the place itself", "", "mkdir -p $HOME/.local/state; cp -a $F $HOME/.local/state/try", "refused\n"},
		{"its directory", "", "mkdir -p x/state; cp -a $F x/state/try; mv x $HOME/.local", "refused\n"},
		{"a link to a forged one", "", "cp -a $F $D/proj/evil; mkdir -p $HOME/.local/state; ln -s $D/proj/evil $HOME/.local/state/try", "refused\n"},
		{"a link above it", "", "mkdir -p evil/state; cp -a $F evil/state/try; ln -s $D/proj/evil $HOME/.local", "refused\n"},
		{"behind a link", "mkdir -p $HOME/dot/local; ln -s dot/local $HOME/.local", "mkdir $HOME/dot/local/state; cp -a $F $HOME/dot/local/state/try", "refused\n"},
		{"behind a link to nothing", "ln -s dot $HOME/.local", "mkdir -p $HOME/dot/state; cp -a $F $HOME/dot/state/try", "refused\n"},
		{"a link on the way turned", "mkdir $HOME/dot; ln -s dot $HOME/link; ln -s link $HOME/.local", "mkdir -p $HOME/evil/state; cp -a $F $HOME/evil/state/try; ln -sfn evil $HOME/link", "refused\n"},
		{"XDG_STATE_HOME", "export XDG_STATE_HOME=$HOME/state", "mkdir -p $HOME/state; cp -a $F $HOME/state/try", "refused\n"},
		{"the way to the one in use turned", "unset TRY_STORE; mkdir -p $HOME/dot/state; ln -s dot $HOME/.local; mine=$HOME/.local/state/try", "mkdir -p $HOME/evil/state; cp -a $F $HOME/evil/state/try; ln -sfn evil $HOME/.local", "refused\n"},
		{"a directory like any", "", "cp -a $F $HOME/.try-0123456789abcdef0123456789abcdef; cp -a $F /tmp/.try-0123456789abcdef0123456789abcdef", "committed\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				l.write("run/inside", c.inside)
				// Thrice: with what the first two said the policy is lifted, by each name.
				got := l.sh(forge + `F=$D/out/forged; forge; export F
					mine=$D/home/mine
					` + c.before + `
					for i in 1 2 3; do
						eval "TRY_STORE=$mine try -y -q $flags sh $D/run/inside" 2>$D/out/err && echo committed || { test $? = 125 && echo refused; cat $D/out/err >&3; }
						flags="$flags $(sed -n 's/.*to allow it: try commit //p' $D/out/err)"
					done 3>$D/out/said
					try recover >/dev/null 2>&1; try branches >/dev/null 2>&1; try --scope dir -y -q true; cat $D/out/f`)
				if want := strings.Repeat(c.want, 3) + "base\n"; got != want {
					t.Errorf("wrote %q, want %q", got, want)
				}
				text, err := os.ReadFile(l.path("out/said"))
				if err != nil {
					t.Fatal(err)
				}
				if c.want == "refused\n" && !strings.Contains(string(text), "where branches are stored") {
					t.Errorf("it was never the commit that refused:\n%s", text)
				}
			})
		})
	}
}

// TestStoreIsHidden: no store is seen or changed inside, by whatever way
// (H12, B32): the one in use, the default place, another on the file system
// of a temporary directory. Stopped by the covers of spec in
// supervisor/prepare.go.
func TestStoreIsHidden(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		// The default place is a store as well, and has a secret.
		script := `try --scope dir -y -q true; S=$HOME/.local/state/try; echo secret > $S/secret
			H=$(attack handle $S/secret)
			see="find $S $D/mine /tmp -name secret -o -path '*/branches/*'; cat $S/secret $S/trash/../secret 2>/dev/null; (echo x > $S/new; mkdir $S/d; rmdir $S; mv $S $S.x; mv $HOME/.local/state $HOME/s2; rm -rf $HOME/.local; chmod 777 $S) 2>/dev/null; attack open $H / $HOME $HOME/.local/state $S $D | grep -v 'not permitted'; unshare -Urm attack open $H / $HOME $HOME/.local/state $S $D | grep -v -e 'not permitted' -e stale; ls -A $S $D/mine; stat -c %a $S; true"
			try --abort -q sh -c "$see"
			TRY_STORE=$D/mine try --abort -q sh -c "$see"
			cat $S/secret; try branches`
		out := l.sh(strings.ReplaceAll(script, "$D/mine", "$D/home/mine"))
		if strings.Count(out, "secret") != 1 || strings.Contains(out, "DONE") || !strings.HasSuffix(out, "secret\ntry: no branches\n") {
			t.Errorf("a store is seen or was changed:\n%s", out)
		}
		l.none("new", "s2")
	})
}

// TestOpenedStore: what is let through must not hold a store, or what is
// written there is the next run's store (H12). Stopped by
// keepStoresClosed in supervisor/prepare.go.
func TestOpenedStore(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		for _, path := range []string{"$HOME", "$HOME/.local", "$HOME/.local/state/try", "$HOME/.local/state/try/branches", "/"} {
			l.says("try --scope dir -y -q true; try --scope dir -y -q --allow-write "+path+" touch $HOME/mark; echo $?; TRY_STORE=$HOME/mine try --scope dir -y -q --allow-write "+path+" touch $HOME/mark; echo $?",
				"store", "125\n", "store", "125\n")
		}
		l.none("mark")
	})
}

// TestSecondStoreBornMeanwhile: a store that another try makes while a session
// runs is not covered in it; what the session does there is not committed
// (H12). Nobody tells this try that it is one, so what stops it is drift: the
// other's store was not there at the fork (fs/commit/drift.go).
func TestSecondStoreBornMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.want(`mkfifo $D/run/go $D/run/on
			{ read x < $D/run/go; TRY_STORE=$HOME/second try --scope dir --keep -q -b second touch x; echo go > $D/run/on; } &
			try -y -q --allow-write $D/run sh -c 'echo go > $D/run/go; read x < $D/run/on; cd $HOME/second/branches/* && for f in meta forged u0/forged; do echo forged > $f; done' 2>$D/run/err
			echo $?; wait; grep -rl forged $HOME/second; TRY_STORE=$HOME/second try branches | grep -c ^second`, "125\n1\n")
	})
}

// TestNestedTry: a try inside a session does nothing, whatever the
// environment says (H32, B36). Stopped by the look at Marker in prepare.
func TestNestedTry(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.unchanged(func() {
			l.want(`try --scope dir -y -q sh -c 'env -i PATH=$PATH HOME=$HOME try --scope dir -y touch mark; echo $?; TRY_STORE=/dev/shm/s try -y touch mark; echo $?; (rm -f /dev/try; mv /dev/try /dev/x; echo > /dev/try) 2>/dev/null; try -y touch mark; echo $?' 2>/dev/null`, "125\n125\n125\n")
		}, "proj", "out")
		l.none("mark")
		// Where CMD hides the marker from an inner one, nothing but its own
		// branch is touched.
		l.want(`try --scope dir -y -q sh -c 'unshare -Urm sh -c "mount -t tmpfs x /dev && TRY_STORE=/tmp/s try --scope dir -y -q touch mark" ; true' >/dev/null 2>&1; ls -A $D/out; try branches`, "try: no branches\n")
	})
}

// TestNames: a branch's name is looked up, and never a path (H33). Stopped by
// isName in fs/branch/name.go.
func TestNames(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		l.sh("try --scope dir --keep -q -b good touch x; mkdir $D/home/.local/state/try/branches/victim; echo base > $D/out/f")
		l.unchanged(func() {
			l.says("try abort victim 2>&1; echo -$?", "no branch named", "-1\n")
			for _, name := range []string{"../../x", "..", ".", "", "/", "-rf", "a/b", "../branches/victim", "a\nb", "a b", "é", "x\x1b[2J", strings.Repeat("a", 65), "_a", ".hidden", "../../../../../out"} {
				q := "'" + name + "'"
				status := "-1\n"
				if name == "" {
					status = "-2\n" // not: the newest one
				}
				commit := status
				if strings.HasPrefix(name, "-") {
					commit = "-2\n" // a flag; what stands behind -- are globs
				}
				l.says("try --scope dir --keep -q -b "+q+" touch y; echo -$?; try abort -- "+q+" 2>&1; echo -$?; try commit "+q+" 2>&1; echo -$?", "-125\n", status, commit)
			}
		}, "out", "proj", "home/.local/state/try/branches")
		l.says("try branches", "good ")
	})
}
