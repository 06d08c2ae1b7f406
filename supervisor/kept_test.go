package supervisor_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// meta is the file with the metadata of the only branch.
func (r *rig) meta() string {
	r.t.Helper()
	list, err := filepath.Glob(r.store() + "/branches/*/meta")
	if err != nil || len(list) != 1 {
		r.t.Fatalf("metadata are %q, %v", list, err)
	}
	return list[0]
}

// otherBoot makes the only branch one of another boot.
func (r *rig) otherBoot() {
	r.t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	r.must(err)
	text, err := os.ReadFile(r.meta())
	r.must(err)
	changed := bytes.Replace(text, bytes.TrimSpace(boot), []byte("11111111-2222-3333-4444-555555555555"), 1)
	if bytes.Equal(text, changed) {
		r.t.Fatal("the metadata do not name the boot")
	}
	r.must(os.WriteFile(r.meta(), changed, 0o600))
}

// TestDamaged: a branch that was never written to disk when the machine went
// down is shown, and committed only on request (B4).
func TestDamaged(t *testing.T) {
	asEach(t, func(t *testing.T, r *rig) {
		r.outside("echo old > f; echo old > g")
		p, _ := r.underReaper(nil, binary, "-y", "-b", "mine", "--", "/bin/sh", "-euc", "echo new > f; rm g; mkdir d; echo ready >&3; exec sleep 1000")
		p.untilReady()
		r.must(unix.Kill(p.pid, unix.SIGKILL))
		p.wait().want(137)
		r.otherBoot()
		before := r.project()
		if state := r.branches()["mine"]; state != "damaged" {
			t.Fatalf("the branch is %q", state)
		}
		if n := len(r.try("changes", "--json", "mine").want(0).document().Roots[0].Changes); n != 3 {
			t.Errorf("it has %d changes, want 3", n)
		}
		r.try("commit", "mine").want(125).says("--damaged")
		r.try("commit").want(125).says("--damaged")
		r.try("recover").want(0)
		r.same(before)
		r.try("commit", "--damaged", "mine").want(0)
		r.wantFile("f", "new\n")
		r.clean()
	})
}

// TestKeptIsNotDamaged: what was kept is on disk, whatever happened since.
func TestKeptIsNotDamaged(t *testing.T) {
	r := newRig(t)
	r.write("f", "old")
	r.sh("--keep", "-b", "mine", "echo new > f").want(0)
	r.otherBoot()
	if state := r.branches()["mine"]; state != "kept" {
		t.Fatalf("the branch is %q", state)
	}
	r.try("commit").want(0)
	r.wantFile("f", "new\n")
	r.clean()
}

// TestUnreadableMetadata: a branch whose metadata are broken is said, stops
// nobody, and is not thrown away.
func TestUnreadableMetadata(t *testing.T) {
	r := newRig(t)
	r.sh("--keep", "-b", "mine", "echo new > f").want(0)
	file := r.meta()
	good, err := os.ReadFile(file)
	r.must(err)
	for _, bad := range [][]byte{nil, good[:len(good)/2], []byte("{}"), bytes.Replace(good, []byte(`"version":1`), []byte(`"version":9`), 1)} {
		r.must(os.WriteFile(file, bad, 0o600))
		o := r.try("branches", "--json").want(0)
		if !strings.Contains(o.stdout, "damaged") || o.stderr == "" {
			t.Errorf("with metadata %.20q: %s %s", bad, o.stdout, o.stderr)
		}
		r.sh("-y", "echo x >> other").want(0)
		r.try("recover").want(0)
		r.try("commit", "mine").want(1)
	}
	r.must(os.WriteFile(file, good, 0o600))
	r.try("commit", "mine").want(0)
	r.wantFile("f", "new\n")
	r.clean()
}

// TestKeptTmp: layers in directories that the system empties are copied to the
// home store when a branch is kept (B24).
func TestKeptTmp(t *testing.T) {
	asEach(t, func(t *testing.T, r *rig) {
		o := r.inPrivate("", `
			umask 022; echo old > /tmp/old; mkdir /tmp/gone; echo x > /tmp/gone/x
			"$TRY" --keep -q -b mine --scope user -- sh -euc '
				echo new > /tmp/old; rm -r /tmp/gone; mkdir -p /tmp/d/e; echo x > /tmp/d/e/x; ln /tmp/d/e/x /tmp/d/y; chmod 0 /tmp/d/e/x; chmod 0500 /tmp/d/e
				touch -d 2001-01-01 /tmp/d; mkfifo /var/tmp/fifo; ln -s x /var/tmp/link; echo h > ~/file'
			find /tmp /var/tmp /dev/shm -mindepth 1 -path '*.try-*' -path '*/u[0-9]*' # no layer is there
			rm -rf /tmp/.try-* /var/tmp/.try-*
			"$TRY" changes mine; "$TRY" commit mine
			cat /tmp/old ~/file; stat -c '%n %a %h %F' /tmp/d/e/x /tmp/d/e /var/tmp/fifo /var/tmp/link; test ! -e /tmp/gone
			stat -c %y /tmp/d | cut -c1-10
			"$TRY" undo -q mine; cat /tmp/old /tmp/gone/x; ls /tmp/d ~/file`)
		want := `new
h
/tmp/d/e/x 0 2 regular file
/tmp/d/e 500 2 directory
/var/tmp/fifo 644 1 fifo
/var/tmp/link 777 1 symbolic link
2001-01-01
old
x
`
		if !strings.HasSuffix(o.stdout, want) {
			t.Errorf("it says\n%s\nwant at its end\n%s", o.stdout, want)
		}
		if strings.Contains(o.stdout, "/u0") {
			t.Errorf("a layer stayed in a temporary directory:\n%s", o.stdout)
		}
		r.clean()
	})
}

// TestLayerGone: a branch whose layer is not there any more says so, commits
// nothing, and can be dropped.
func TestLayerGone(t *testing.T) {
	r := newRig(t)
	r.write("f", "old")
	r.sh("--keep", "-b", "mine", "echo new > f").want(0)
	r.must(removeAll(filepath.Dir(r.meta()) + "/u0"))
	before := r.project()
	r.try("commit", "mine").want(125)
	r.try("changes", "mine").want(125)
	r.same(before)
	r.branches()
	r.try("abort", "mine").want(0)
	r.clean()
}

// TestAnyNames: names are any bytes, and arrive unharmed in base, documents and
// listings (B37).
func TestAnyNames(t *testing.T) {
	r := newRig(t)
	names := []string{
		"a\nb", "sp ace", "tab\t", "\x1b[31mred", "bad\xff\xfe", "ümlaut", "-rf", "quote\"'", "back\\slash", "\u202egnp.sh",
		"star*?[x]", "$(touch x)", strings.Repeat("n", 255), "...", "#hash", "\xc3\x28", "\u009b31m", "trailing ", "%s",
	}
	script := "umask 022; mkdir -- \"d\xff\n\"\n"
	for i, name := range names {
		script += fmt.Sprintf("printf %%s '%d' > ./'%s'; ln -s -- '%s' \"d\xff\n\"/'%s'\n", i, strings.ReplaceAll(name, "'", `'\''`),
			strings.ReplaceAll(name, "'", `'\''`), strings.ReplaceAll(name, "'", `'\''`))
	}
	o := r.sh("--keep", "--json", "-b", "mine", script).want(0)
	if obeyed(o.stderr) {
		t.Errorf("stderr holds what a terminal obeys: %q", o.stderr)
	}
	var doc struct {
		CommandB64 []string `json:"command_b64"`
		Roots      []struct {
			Changes []struct {
				Path      string
				PathB64   string  `json:"path_b64"`
				Target    *string `json:"target"`
				TargetB64 string  `json:"target_b64"`
			}
		}
	}
	r.must(json.Unmarshal([]byte(o.stdout), &doc))
	decode := func(text, code string) string {
		if code == "" {
			return text
		}
		b, err := base64.StdEncoding.DecodeString(code)
		r.must(err)
		return string(b)
	}
	found := map[string]string{}
	for _, c := range doc.Roots[0].Changes {
		target := ""
		if c.Target != nil {
			target = decode(*c.Target, c.TargetB64)
		}
		found[decode(c.Path, c.PathB64)] = target
	}
	for _, name := range names {
		if _, ok := found[name]; !ok {
			t.Errorf("%q is not in the document", name)
		}
		if target := found["d\xff\n/"+name]; target != name {
			t.Errorf("the link %q has the target %q", name, target)
		}
	}
	if n := len(doc.CommandB64); n != 3 || decode("", doc.CommandB64[2]) != script {
		t.Errorf("command_b64 is %q", doc.CommandB64)
	}
	for _, args := range [][]string{{"changes", "mine"}, {"branches"}, {"commit", "mine"}} {
		o := r.try(args...).want(0)
		if all := o.stdout + o.stderr; obeyed(all) {
			t.Errorf("%q prints what a terminal obeys: %q", args, all)
		}
	}
	for i, name := range names {
		r.wantFile(name, fmt.Sprint(i))
		if target, err := os.Readlink(r.at("d\xff\n/" + name)); err != nil || target != name {
			t.Errorf("%q: %q, %v", name, target, err)
		}
	}
	r.clean()
}

// obeyed says that a terminal would do more with a text than show it.
func obeyed(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\x7f\u202e\u009b")
}

// TestOtherMachine: a branch of another machine that shares the store is listed,
// and left alone until it is taken over (H20).
func TestOtherMachine(t *testing.T) {
	if id, err := os.ReadFile("/etc/machine-id"); err != nil || len(strings.TrimSpace(string(id))) == 0 {
		t.Skip("this machine has no id (machine-id(5)), so that no branch is another's")
	}
	r := newRig(t)
	r.write("f", "old")
	foreign := func() {
		r.sh("--keep", "-q", "-b", "theirs", "echo new > f").want(0)
		dirs, err := filepath.Glob(r.store() + "/branches/*")
		r.must(err)
		r.outside(`sed -i 's/"machine": *"[0-9a-f]*"/"machine":"0123456789abcdef0123456789abcdef"/' ` + dirs[0] + "/meta*; grep -q 0123456789abcdef0123456789abcdef " + dirs[0] + "/meta*")
	}
	foreign()
	if got := r.branches(); got["theirs"] == "" {
		t.Errorf("it is not listed: %v", got)
	}
	for _, word := range []string{"commit", "abort", "changes"} {
		r.try(word, "theirs").want(125).says("another machine", "--force")
	}
	r.try("recover").want(0)
	r.wantFile("f", "old")
	r.try("commit", "--force", "theirs").want(0)
	r.wantFile("f", "new\n")
	r.write("f", "old")
	foreign()
	r.try("abort", "--force", "theirs").want(0)
	r.wantFile("f", "old")
	r.clean()
}
