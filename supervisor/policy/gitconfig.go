package policy

import (
	"bytes"
	"errors"
	"slices"
	"strings"
)

// gitRuns are the keys of a git configuration that make git run a program, read
// another configuration or another repository, or talk to another server
// (git-config(1)); section and key without the part between them, which says
// for whom: filter.lfs.clean is filter.clean. The rest, a name, a remote, a
// branch's upstream, is what every day's work sets.
var gitRuns = map[string]bool{
	"core.fsmonitor": true, "core.hookspath": true, "core.sshcommand": true, "core.pager": true, "core.editor": true,
	"core.askpass": true, "core.gitproxy": true, "core.alternaterefscommand": true, "core.worktree": true,
	"sequence.editor": true, "interactive.difffilter": true, "init.templatedir": true,
	"filter.clean": true, "filter.smudge": true, "filter.process": true,
	"diff.external": true, "diff.command": true, "diff.textconv": true, "merge.driver": true,
	"difftool.cmd": true, "difftool.path": true, "mergetool.cmd": true, "mergetool.path": true,
	"browser.cmd": true, "browser.path": true, "man.cmd": true, "man.path": true, "guitool.cmd": true,
	"gpg.program": true, "gpg.defaultkeycommand": true, "credential.helper": true, "hook.command": true,
	"include.path": true, "includeif.path": true, "url.insteadof": true, "url.pushinsteadof": true,
	"remote.uploadpack": true, "remote.receivepack": true, "remote.vcs": true, "protocol.allow": true, "tar.command": true,
	"trailer.command": true, "trailer.cmd": true, "imap.tunnel": true, "lfs.path": true, "lfs.clean": true, "lfs.smudge": true,
	"sendemail.smtpserver": true, "sendemail.sendmailcmd": true, "sendemail.tocmd": true, "sendemail.cccmd": true, "sendemail.headercmd": true,
}

// runs says whether git would run or obey more than data because of the entry.
func (e *gitEntry) runs() bool {
	value := strings.ToLower(e.value)
	switch e.section {
	case "alias":
		return strings.HasPrefix(e.value, "!")
	case "pager": // a program by the name of the command, or whether one is used
		return !slices.Contains([]string{"", "true", "false", "yes", "no", "on", "off", "0", "1"}, value)
	}
	switch e.section + "." + e.key {
	case "submodule.update":
		return strings.HasPrefix(e.value, "!")
	case "remote.url", "remote.pushurl":
		return strings.Contains(value, "::") // a helper of that name: ext::sh -c …
	}
	return gitRuns[e.section+"."+e.key]
}

// gitRunsOther names a key that git runs or obeys and that is not the same in
// both configurations; "" if there is none. What cannot be read is not the
// same.
func gitRunsOther(before, after []byte) string {
	was, err1 := parseGit(before)
	is, err2 := parseGit(after)
	if err := errors.Join(err1, err2); err != nil {
		return "cannot be read as a git configuration"
	}
	keep := func(e gitEntry) bool { return !e.runs() }
	was, is = slices.DeleteFunc(was, keep), slices.DeleteFunc(is, keep)
	for i := range max(len(was), len(is)) {
		switch {
		case i >= len(was):
			return is[i].name()
		case i >= len(is) || was[i] != is[i]:
			return was[i].name()
		}
	}
	return ""
}

// gitEntry is one key of a git configuration, with section and key in small
// letters.
type gitEntry struct{ section, sub, key, value string }

func (e *gitEntry) name() string {
	if e.sub != "" {
		return e.section + "." + e.sub + "." + e.key
	}
	return e.section + "." + e.key
}

var errGitConfig = errors.New("not a git configuration that is understood")

// gitParser reads a git configuration as git's config.c does.
type gitParser struct {
	rest []byte
	err  error
}

func parseGit(text []byte) (list []gitEntry, err error) {
	p := gitParser{rest: bytes.ReplaceAll(bytes.TrimPrefix(text, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))}
	var at gitEntry
	for p.err == nil && len(p.rest) > 0 {
		switch c := p.rest[0]; {
		case isSpace(c):
			p.rest = p.rest[1:]
		case c == '#' || c == ';':
			p.line()
		case c == '[':
			p.rest = p.rest[1:]
			at.section, at.sub = p.header()
		case isLetter(c):
			if at.section == "" {
				return nil, errGitConfig
			}
			at.key = strings.ToLower(string(p.word(func(c byte) bool { return isLetter(c) || isDigit(c) || c == '-' })))
			at.value = p.assigned()
			list = append(list, at)
		default:
			return nil, errGitConfig
		}
	}
	return list, p.err
}

// line reads up to the end of the line.
func (p *gitParser) line() {
	if i := bytes.IndexByte(p.rest, '\n'); i >= 0 {
		p.rest = p.rest[i:]
		return
	}
	p.rest = nil
}

func (p *gitParser) word(in func(byte) bool) []byte {
	i := 0
	for i < len(p.rest) && in(p.rest[i]) {
		i++
	}
	word := p.rest[:i]
	p.rest = p.rest[i:]
	return word
}

// next takes one byte; a line's end where there is none.
func (p *gitParser) next() byte {
	if len(p.rest) == 0 {
		return '\n'
	}
	c := p.rest[0]
	p.rest = p.rest[1:]
	return c
}

// header reads a section's name behind "[": name], name "sub"], name.sub].
func (p *gitParser) header() (section, sub string) {
	name := strings.ToLower(string(p.word(func(c byte) bool { return isLetter(c) || isDigit(c) || c == '-' || c == '.' })))
	section, sub, _ = strings.Cut(name, ".")
	blank := p.word(func(c byte) bool { return c == ' ' || c == '\t' })
	c := p.next()
	if len(blank) > 0 && c == '"' {
		var b strings.Builder
		b.WriteString(sub)
		for c = p.next(); c != '"' && c != '\n'; c = p.next() {
			if c == '\\' {
				c = p.next()
			}
			b.WriteByte(c)
		}
		if c != '"' {
			p.err = errGitConfig
		}
		sub, c = b.String(), p.next()
	}
	if c != ']' || section == "" {
		p.err = errGitConfig
	}
	return section, sub
}

// assigned reads what follows a key: nothing, or "=" and a value.
func (p *gitParser) assigned() string {
	p.word(func(c byte) bool { return c == ' ' || c == '\t' })
	switch p.next() {
	case '\n':
		return ""
	case '=':
	default:
		p.err = errGitConfig
		return ""
	}
	var b strings.Builder
	quoted, spaces := false, ""
	for {
		c := p.next()
		switch {
		case c == '\n':
			if quoted {
				p.err = errGitConfig
			}
			return b.String()
		case isSpace(c) && !quoted:
			if b.Len() > 0 {
				spaces += string(rune(c))
			}
			continue
		case (c == '#' || c == ';') && !quoted:
			p.line()
			continue
		}
		b.WriteString(spaces)
		spaces = ""
		switch c {
		case '\\':
			escaped := p.next()
			i := strings.IndexByte("\nntb\\\"", escaped)
			if i < 0 {
				p.err = errGitConfig
				return ""
			}
			if i > 0 {
				b.WriteByte("\n\n\t\b\\\""[i])
			}
		case '"':
			quoted = !quoted
		default:
			b.WriteByte(c)
		}
	}
}

func isSpace(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f'
}
func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
