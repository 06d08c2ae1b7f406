package policy

import (
	"slices"
	"strings"
	"testing"
)

// TestNames is H21: a change is matched under all its names.
func TestNames(t *testing.T) {
	t.Parallel()
	user := map[Source]string{User: rule("deny", "", "~/secrets/**", "~/Mail/Inbox", "**/{vault,safe}/keys/**") + rule("ask", "", "keys/*.pem") + rule("drop", "", "~/tmp/**") + rule("yield", "", "~/Notes")}
	dotfiles := tree{"/home/u/.bashrc": "-> dotfiles/bashrc", "/home/u/.ssh/config": "-> ../dotfiles/ssh/config", "/home/u/.config": "-> /home/u/dotfiles/config"}
	for _, c := range []struct {
		name    string
		base    tree
		changes []string // the last one is looked at
		want    Action
		as      string
	}{
		{"a dotfile", dotfiles, []string{"modified ~/dotfiles/bashrc"}, Ask, "/home/u/.bashrc"},
		{"a dotfile removed", dotfiles, []string{"deleted ~/dotfiles/bashrc"}, Ask, "/home/u/.bashrc"},
		{"a dotfile that is none", dotfiles, []string{"modified ~/dotfiles/README"}, Allow, ""},
		{"a link below a protected directory", dotfiles, []string{"modified ~/dotfiles/ssh/config"}, Ask, "/home/u/.ssh/config"},
		{"below a linked directory", dotfiles, []string{"added ~/dotfiles/config/autostart/x.desktop"}, Ask, "/home/u/.config/autostart/x.desktop"},
		{"and denied there", dotfiles, []string{"added ~/dotfiles/config/try/policy.toml"}, Deny, "/home/u/.config/try/policy.toml"},
		{"beside it", dotfiles, []string{"added ~/dotfiles/config/other/x"}, Allow, ""},
		{"the link is retargeted", dotfiles, []string{"modified ~/.config@/home/u/evil"}, Deny, ""},
		{"the link goes", dotfiles, []string{"deleted ~/.config@"}, Deny, ""},
		{"the link becomes a directory", dotfiles, []string{"replaced ~/.config/"}, Deny, ""},
		{"what it leads to is replaced", dotfiles, []string{"replaced ~/dotfiles/config@/home/u/evil"}, Deny, ""},
		{"what is above that is replaced", dotfiles, []string{"replaced ~/dotfiles@evil"}, Deny, ""},
		{"a link in a chain", tree{"/home/u/.bashrc": "-> one", "/home/u/one": "-> two"}, []string{"modified ~/one@three"}, Ask, ""},
		{"its end", tree{"/home/u/.bashrc": "-> one", "/home/u/one": "-> two"}, []string{"modified ~/two"}, Ask, "/home/u/.bashrc"},
		{"a chain without end", tree{"/home/u/.bashrc": "-> one", "/home/u/one": "-> .bashrc"}, []string{"modified ~/two"}, Allow, ""},
		{"a link out and in again", tree{"/home/u/.bashrc": "-> /home/u/p/../dotfiles/./bashrc"}, []string{"modified ~/dotfiles/bashrc"}, Ask, "/home/u/.bashrc"},
		{"a link of the branch", tree{}, []string{"added ~/.bashrc@p/rc", "added ~/p/rc"}, Ask, "/home/u/.bashrc"},
		{"a directory of the branch", tree{}, []string{"added ~/.config/autostart@/home/u/p/x", "modified ~/p/x/y"}, Ask, "/home/u/.config/autostart/y"},
		{"a link that the branch turns", tree{"/home/u/.bashrc": "-> one"}, []string{"modified ~/.bashrc@two", "modified ~/two"}, Ask, "/home/u/.bashrc"},
		{"but also what it led to", tree{"/home/u/.bashrc": "-> one"}, []string{"modified ~/.bashrc@two", "modified ~/one"}, Ask, "/home/u/.bashrc"},
		{"a relative rule's directory", tree{"/home/u/p/keys": "-> vault"}, []string{"added vault/a.pem"}, Ask, "/home/u/p/keys/a.pem"},
		{"that is replaced", tree{}, []string{"replaced keys@vault"}, Ask, ""},
		{"a rule for anywhere, replaced above", tree{}, []string{"replaced sub/.git@evil"}, Ask, ""},
		{"a rule with a choice, replaced above", tree{}, []string{"replaced sub/vault@evil"}, Deny, ""},
		{"in a new directory", tree{}, []string{"added sub/", "added sub/.git@evil"}, Allow, ""},
		{"the directory itself", tree{}, []string{"replaced .git/hooks@evil"}, Ask, ""},
		{"in capitals", tree{}, []string{"added .GIT/Hooks/pre-commit*"}, Ask, ""},
		{"the rule in capitals", tree{}, []string{"added ~/mail/inbox"}, Deny, ""},
		{"as it is written", tree{}, []string{"added ~/Mail/Inbox"}, Deny, ""},
		{"with ignorable code points", tree{}, []string{"added .g\u200cit/hooks/pre-commit*"}, Ask, ""},
		{"the Kelvin sign and a long s", tree{}, []string{"added ~/.ba\u017fhrc"}, Ask, ""},
		{"a ligature", tree{}, []string{"added ~/.con\ufb01g/autostart/x"}, Ask, ""},
		{"of several code points", tree{"/home/u/secrets": ""}, []string{"added ~/secret\u00df/x"}, Allow, ""},
		{"folded and linked", tree{"/home/u/.bashrc": "-> .dot/bashrc"}, []string{"modified ~/.dot/bashrc"}, Ask, "/home/u/.bashrc"},
		{"drop goes by the path alone", tree{"/home/u/tmp": "-> real"}, []string{"added ~/real/x"}, Allow, ""},
		{"and by its letters", tree{}, []string{"added ~/TMP/x"}, Allow, ""},
		{"yield, too", tree{}, []string{"added ~/notes"}, Allow, ""},
		{"yield as it is", tree{}, []string{"added ~/Notes"}, Yield, ""},
		{"a yield hides an ask of the same layer", tree{"/home/u/.ssh": "-> dotfiles/ssh"}, []string{"modified ~/dotfiles/ssh/known_hosts"}, Allow, ""},
		{"not of another spelling", tree{}, []string{"added ~/.SSH/known_hosts"}, Ask, ""},
		{"no UTF-8", tree{}, []string{"added ~/.BASHRC\xff"}, Allow, ""},
	} {
		p := testPolicy(t, user, false)
		var list []Change
		for _, line := range c.changes {
			list = append(list, linked(line))
		}
		o := p.Evaluate(Input{Roots: testRoots, Changes: list, Base: c.base})
		if v := o.Verdicts[len(list)-1]; v.Action != c.want || v.As != c.as {
			t.Errorf("%s: %v as %q (%s), want %v as %q", c.name, v.Action, v.As, v.Why(), c.want, c.as)
		}
	}
}

// linked reads a change with a target behind the @.
func linked(line string) Change {
	path, target, _ := strings.Cut(line, "@")
	if target == "" {
		return change(line)
	}
	c := change(path + "@")
	c.Target = target
	return c
}

// TestNamesOfFoldedRules: decomposed and composed are one.
func TestNamesOfFoldedRules(t *testing.T) {
	t.Parallel()
	p := testPolicy(t, map[Source]string{User: rule("deny", "", "**/Büro/**", "**/straße", "**/[A-C]x")}, false)
	for path, want := range map[string]Action{
		"Büro/x": Deny, "Bu\u0308ro/x": Deny, "BÜRO/x": Deny, "Buro/x": Allow,
		"straße": Deny, "STRASSE": Deny, "strasse": Deny, "strase": Allow,
		"Ax": Deny, "aX": Deny, "dx": Allow,
	} {
		if v := p.Evaluate(Input{Roots: testRoots, Changes: []Change{change(path)}}).Verdicts[0]; v.Action != want {
			t.Errorf("%q: %v, want %v", path, v.Action, want)
		}
	}
}

// TestAllowLiftsUnderAnotherName: --allow names the path that is changed; the
// user's own rule the name that is protected.
func TestAllowLiftsUnderAnotherName(t *testing.T) {
	t.Parallel()
	in := Input{Roots: testRoots, Changes: changes("modified ~/dotfiles/bashrc"), Base: tree{"/home/u/.bashrc": "-> dotfiles/bashrc"}}
	p := testPolicy(t, nil, false)
	o := p.Evaluate(in)
	if flags, want := p.AllowFlags(in, o), "--allow '~/dotfiles/bashrc'"; flags != want {
		t.Errorf("AllowFlags = %s, want %s", flags, want)
	}
	if why := o.Verdicts[0].Why(); !strings.Contains(why, "seen as /home/u/.bashrc") {
		t.Errorf("Why() = %q", why)
	}
	var err error
	if in.Allow, err = NewAllowList([]string{"~/dotfiles/bashrc"}, "/home/u"); err != nil {
		t.Fatal(err)
	}
	if o := p.Evaluate(in); !slices.Equal(o.Lifted, []int{0}) {
		t.Errorf("with --allow: %v (%s)", o.Verdicts[0].Action, o.Verdicts[0].Why())
	}
	in.Allow = nil
	p = testPolicy(t, map[Source]string{User: rule("allow", "", "~/.bashrc")}, false)
	if v := p.Evaluate(in).Verdicts[0]; v.Action != Allow {
		t.Errorf("the user's rule: %v (%s)", v.Action, v.Why())
	}
}

// TestGitKeys: of a git configuration what runs something counts (H22).
func TestGitKeys(t *testing.T) {
	t.Parallel()
	const old = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://x/y\n[filter \"lfs\"]\n\tclean = git-lfs clean\n"
	for _, c := range []struct{ before, after, want string }{
		{old, old, ""},
		{old, old + "[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n[user]\n\tname = A # b\n", ""},
		{old, old + "[core]\n\tfsmonitor = ./x\n", "core.fsmonitor"},
		{old, old + "[CORE] HooksPath=x", "core.hookspath"},
		{old, old + "[core]\n\tssh\\\nCommand = x\n", "cannot be read as a git configuration"},
		{old, old + "[core \"x\"]\n\tpager = x\n", "core.x.pager"}, // which git does not read; nobody writes it
		{old, strings.Replace(old, "clean", "smudge", 1), "filter.lfs.clean"},
		{old, strings.Replace(old, "git-lfs", "git-evil", 1), "filter.lfs.clean"},
		{old, "[core]\n\tbare = false\n", "filter.lfs.clean"},
		{old, old + "[alias]\n\tst = status\n", ""},
		{old, old + "[alias]\n\tst = \"!touch x\"\n", "alias.st"},
		{old, old + "[include]\n\tpath = ../x\n", "include.path"},
		{old, old + "[includeIf \"gitdir:~/p/\"]\n\tpath = x\n", "includeif.gitdir:~/p/.path"},
		{old, old + "[credential \"https://x\"]\n\thelper = store\n", "credential.https://x.helper"},
		{old, old + "[url \"ext::sh -c x\"]\n\tinsteadOf = https://\n", "url.ext::sh -c x.insteadof"},
		{old, old + "[remote \"b\"]\n\turl = ext::sh -c x\n", "remote.b.url"},
		{old, old + "[submodule \"a\"]\n\tupdate = !x\n", "submodule.a.update"},
		{old, old + "[submodule \"a\"]\n\tupdate = rebase\n\tactive = true\n", ""},
		{old, old + "[pager]\n\tlog = false\n", ""},
		{old, old + "[pager]\n\tlog = x\n", "pager.log"},
		{old, old + "[diff \"a\\\"b\"]\n\ttextconv = x\n", `diff.a"b.textconv`},
		{old, old + "[merge.Mine]\n\tdriver = x\n", "merge.mine.driver"},
		{old, old + "; [core] pager = x\n# [core] pager = x\n[user] name = \"[core]\\n pager = x\"\n", ""},
		{old, old + "[core] # comment\n pager\n", "core.pager"},
		{old, old + "\r\n[core]\r\n\teditor = x\r\n", "core.editor"},
		{old, "\ufeff" + old, ""},
		{old, old + "[user]\n\tname = a \\\n[core] pager = x\n", ""},
		{old, old + "[core", "cannot be read as a git configuration"},
		{old, old + "[core]\n\tname = \"x\n", "cannot be read as a git configuration"},
		{"", "[alias]\n\tx = !y\n", "alias.x"},
		{"[alias]\n\tx = !y\n", "", "alias.x"},
	} {
		if got := gitRunsOther([]byte(c.before), []byte(c.after)); got != c.want {
			t.Errorf("gitRunsOther(…, %q) = %q, want %q", c.after, got, c.want)
		}
	}
}

// FuzzGitConfig: nothing panics, and what equals itself differs in no key.
func FuzzGitConfig(f *testing.F) {
	f.Add([]byte("[core]\n\tpager = \"a\\\"b\" # c\n[x \"y\"] z\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := parseGit(text)
		if got := gitRunsOther(text, text); (got == "") != (err == nil) {
			t.Errorf("gitRunsOther(x, x) = %q, reading it: %v", got, err)
		}
	})
}

// TestTakeoverConditions: what is free of the wide list, and what is not (H22).
func TestTakeoverConditions(t *testing.T) {
	t.Parallel()
	base := tree{
		"/usr/bin/ls": "*", "/usr/local/bin/tool": "*", "/home/u/bin/mine": "*", "/usr/share/applications/x.desktop": "",
		"/home/u/p/.git/config": "[core]\n=>[core]\nfsmonitor=x\n", "/home/u/.gitconfig": "[user]\nname=a\n=>[user]\nname=b\n",
		"/home/u/sub/.git/config": "[core]\n=>[core]\n[remote \"o\"]\nurl=x\n",
	}
	s := newStack(facts{Home: "/home/u", Config: "/home/u/.config", Path: []string{"/home/u/bin", "/usr/local/bin", "/usr/bin", "/home/u/late"}})
	p := &Policy{stacks: []*stack{s}}
	for _, c := range []struct {
		changes string
		want    Action
		detail  string
	}{
		{"added:~/bin/ls*", Ask, "stands before /usr/bin/ls"},
		{"added:~/bin/ls@", Ask, "stands before /usr/bin/ls"},
		{"metadata:~/bin/ls*", Ask, "stands before /usr/bin/ls"},
		{"added:~/bin/ls", Allow, ""},
		{"added:~/bin/new*", Allow, ""},
		{"modified:~/bin/mine*", Allow, ""},
		{"added:~/late/ls*", Allow, ""},
		{"deleted:~/bin/ls*", Allow, ""},
		{"added:~/bin@", Ask, ""},
		{"modified:.git/config", Ask, "core.fsmonitor"},
		{"modified:~/sub/.git/config", Allow, ""},
		{"modified:~/gone/.git/config", Ask, "it cannot be read"},
		{"modified:.git/config@", Ask, "git would read what it stands for"},
		{"deleted:.git/config deleted:.git/", Allow, ""},
		{"deleted:.git/hooks/pre-push* deleted:.git/", Allow, ""},
		{"modified:~/.gitconfig", Allow, ""},
		{"added:~/.local/share/applications/y.desktop", Allow, ""},
		{"added:~/.local/share/applications/x.desktop", Ask, ""},
		{"modified:~/.local/share/applications/y.desktop", Ask, ""},
		{"added:~/.local/lib/python3.13/site-packages/x.pth", Ask, ""},
		{"added:~/.local/lib/python3.13/site-packages/x.pth added:~/.local/lib/python3.13/site-packages/x-1.dist-info/", Allow, ""},
		{"added:~/.cargo/env", Allow, ""},
		{"modified:~/.cargo/env", Ask, ""},
		{"added:~/.envrc", Ask, ""},
		{"touched:~/.vimrc", Allow, ""},
		{"deleted:~/.vimrc", Ask, ""},
	} {
		var list []Change
		for line := range strings.FieldsSeq(c.changes) {
			list = append(list, change(strings.Replace(line, ":", " ", 1)))
		}
		v := p.Evaluate(Input{Roots: testRoots, Changes: list, Base: base}).Verdicts[0]
		if v.Action != c.want || v.Detail != c.detail {
			t.Errorf("%s: %v, %q (%s), want %v, %q", c.changes, v.Action, v.Detail, v.Why(), c.want, c.detail)
		}
	}
}
