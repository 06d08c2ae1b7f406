package changes

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"testing"

	"try/fs/layer/layertest"
)

type ops = []layertest.Op

// TestChangesOfASession does one thing each in a real overlay.
func TestChangesOfASession(t *testing.T) {
	layertest.Skip(t)
	base := ops{
		{"mkdir", "d"}, {"write", "d/a", "aaa"}, {"write", "d/b", "bbb"}, {"mkdir", "d/e"}, {"write", "d/e/f", "fff"},
		{"write", "f", "content"}, {"symlink", "f", "link"}, {"fifo", "fifo"}, {"mkdir", "empty"},
		{"write", "x", "x"}, {"setxattr", "x", "user.a", "1"}, {"setxattr", "x", "user.overlay.origin", "base"}, {"socket", "socket"},
	}
	soon := fmt.Sprint(int64(past) + 1_000_000_000)
	then := fmt.Sprint(int64(past))
	for name, tt := range map[string]struct {
		ops  ops
		want []string
		dirs []string
	}{
		"nothing":               {},
		"added":                 {ops{{"write", "new", "1"}}, []string{`A file "new"`}, []string{""}},
		"added empty dir":       {ops{{"mkdir", "new"}}, []string{`A dir "new"`}, []string{""}},
		"added tree":            {ops{{"mkdir", "n"}, {"mkdir", "n/m"}, {"write", "n/m/f", ""}, {"symlink", "..", "n/s"}, {"fifo", "n/p"}}, []string{`A dir "n"`, `A dir "n/m" within`, `A file "n/m/f" within`, `A fifo "n/p" within`, `A symlink "n/s" within -> ".."`}, []string{""}},
		"modified":              {ops{{"append", "d/e/f", "2"}}, []string{`M file "d/e/f"`}, []string{"d/e"}},
		"same size and mtime":   {ops{{"quietly", "f", "CONTENT"}}, []string{`M file "f"`}, []string{""}},
		"opened only":           {ops{{"open", "f"}, {"open", "d/e/f"}}, nil, nil},
		"written the same":      {ops{{"quietly", "f", "content"}}, nil, nil},
		"touched":               {ops{{"touch", "f", soon}}, []string{`t file "f"`}, nil},
		"touched by content":    {ops{{"write", "f", "content"}}, []string{`t file "f"`}, nil},
		"touched dir":           {ops{{"touch", "d", soon}}, []string{`t dir "d"`}, nil},
		"touched by a guest":    {ops{{"write", "d/tmp", ""}, {"rm", "d/tmp"}}, []string{`t dir "d"`}, nil},
		"touched link":          {ops{{"touch", "link", soon}}, []string{`t symlink "link" -> "f"`}, nil},
		"touched fifo":          {ops{{"touch", "fifo", soon}}, []string{`t fifo "fifo"`}, nil},
		"touched root":          {ops{{"write", "tmp", ""}, {"rm", "tmp"}}, []string{`t dir ""`}, nil},
		"mode":                  {ops{{"chmod", "f", "4600"}}, []string{`m file "f" mode`}, nil},
		"mode of a dir":         {ops{{"chmod", "d", "700"}}, []string{`m dir "d" mode`}, nil},
		"mode of the root":      {ops{{"chmod", ".", "711"}}, []string{`m dir "" mode`}, nil},
		"mode and time":         {ops{{"chmod", "f", "600"}, {"touch", "f", soon}}, []string{`m file "f" mode mtime`}, nil},
		"mode and child":        {ops{{"chmod", "d", "700"}, {"write", "d/n", ""}}, []string{`m dir "d" mode`, `A file "d/n"`}, []string{"d"}},
		"attribute":             {ops{{"setxattr", "f", "user.b", "2"}}, []string{`m file "f" user.b:""→"2"`}, nil},
		"attribute changed":     {ops{{"setxattr", "x", "user.a", "2"}}, []string{`m file "x" user.a:"1"→"2"`}, nil},
		"attribute removed":     {ops{{"rmxattr", "x", "user.a"}}, []string{`m file "x" user.a:"1"→""`}, nil},
		"attribute of a dir":    {ops{{"setxattr", "d", "user.b", "2"}}, []string{`m dir "d" user.b:""→"2"`}, nil},
		"attribute like ours":   {ops{{"setxattr", "f", "user.overlay.b", "2"}}, []string{`m file "f" user.overlay.b:""→"2"`}, nil},
		"base's own mark":       {ops{{"open", "x"}}, nil, nil},
		"acl":                   {ops{{"setxattr", "f", "system.posix_acl_access", aclRead0}}, []string{fmt.Sprintf(`m file "f" mode system.posix_acl_access:""→%q`, aclOutside())}, nil},
		"deleted":               {ops{{"rm", "f"}}, []string{`D file "f"`}, []string{""}},
		"deleted link and fifo": {ops{{"rm", "link"}, {"rm", "fifo"}}, []string{`D fifo "fifo"`, `D symlink "link" -> "f"`}, []string{""}},
		"deleted dir":           {ops{{"rmtree", "d"}}, []string{`D dir "d"`, `D file "d/a" within`, `D file "d/b" within`, `D dir "d/e" within`, `D file "d/e/f" within`}, []string{""}},
		"deleted empty dir":     {ops{{"rm", "empty"}}, []string{`D dir "empty"`}, []string{""}},
		"link to elsewhere":     {ops{{"rm", "link"}, {"symlink", "d", "link"}}, []string{`M symlink "link" -> "d"`}, []string{""}},
		"link made again":       {ops{{"rm", "link"}, {"symlink", "f", "link"}, {"touch", "link", then}, {"touch", ".", then}}, nil, nil},
		"file by link":          {ops{{"rm", "f"}, {"symlink", "x", "f"}}, []string{`T symlink "f" -> "x"`}, []string{""}},
		"file by fifo":          {ops{{"rm", "f"}, {"fifo", "f"}}, []string{`T fifo "f"`}, []string{""}},
		"file by dir":           {ops{{"rm", "f"}, {"mkdir", "f"}, {"write", "f/g", ""}}, []string{`T dir "f"`, `A file "f/g" within`}, []string{""}},
		"dir by file":           {ops{{"rmtree", "d"}, {"write", "d", ""}}, []string{`T file "d"`, `D file "d/a" within`, `D file "d/b" within`, `D dir "d/e" within`, `D file "d/e/f" within`}, []string{""}},
		"renamed":               {ops{{"rename", "f", "d/f"}}, []string{`A file "d/f"`, `D file "f"`}, []string{"d", ""}},
		"replaced by rename":    {ops{{"write", "n", "other"}, {"rename", "n", "f"}}, []string{`M file "f"`}, []string{""}},
		"hard link":             {ops{{"link", "f", "g"}}, []string{`A file "g"`}, []string{""}},
		"opaque":                {ops{{"rmtree", "d"}, {"mkdir", "d"}, {"write", "d/a", "aaa"}, {"touch", "d/a", then}, {"write", "d/n", ""}}, []string{`M dir "d" opaque`, `D file "d/b" within`, `D dir "d/e" within`, `D file "d/e/f" within`, `A file "d/n" within`}, []string{""}},
		"opaque and nested":     {ops{{"rmtree", "d"}, {"mkdir", "d"}, {"mkdir", "d/e"}, {"write", "d/e/g", ""}}, []string{`M dir "d" opaque`, `D file "d/a" within`, `D file "d/b" within`, `D file "d/e/f" within`, `A file "d/e/g" within`}, []string{""}},
		"opaque and touched":    {ops{{"rmtree", "d"}, {"mkdir", "d"}, {"write", "d/a", "aaa"}, {"write", "d/b", "bbc"}, {"mkdir", "d/e"}, {"write", "d/e/f", "fff"}, {"chmod", "d/e/f", "600"}}, []string{`M dir "d" opaque`, `t file "d/a" within`, `M file "d/b" within`, `m file "d/e/f" within mode mtime`}, []string{""}},
		"opaque and empty":      {ops{{"rm", "empty"}, {"mkdir", "empty"}, {"touch", "empty", then}, {"touch", ".", then}}, nil, nil},
		"opaque and came back":  {ops{{"rm", "empty"}, {"mkdir", "empty"}, {"chmod", "empty", "700"}, {"touch", "empty", then}}, []string{`m dir "empty" mode`}, []string{""}},
		"odd names":             {ops{{"write", "a b\n\xff", ""}, {"mkdir", "\t\\"}, {"write", "-\x1b[31m", ""}}, []string{`A dir "\t\\"`, `A file "-\x1b[31m"`, `A file "a b\n\xff"`}, []string{""}},
		"socket":                {ops{{"socket", "new"}, {"touch", ".", then}}, nil, nil},
		"socket in a new dir":   {ops{{"mkdir", "n"}, {"socket", "n/s"}}, []string{`A dir "n"`}, []string{""}},
		"socket deleted":        {ops{{"rm", "socket"}, {"touch", ".", then}}, nil, nil},
		"socket by socket":      {ops{{"rm", "socket"}, {"socket", "socket"}, {"touch", ".", then}}, nil, nil},
		"socket by file":        {ops{{"rm", "socket"}, {"write", "socket", ""}}, []string{`T file "socket"`}, []string{""}},
		"file by socket":        {ops{{"rm", "f"}, {"socket", "f"}}, []string{`D file "f"`}, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, base...)
			w.session(tt.ops...)
			p := w.plan()
			w.want(p, tt.want...)
			if got := dirPaths(p); !slices.Equal(got, tt.dirs) {
				t.Errorf("directories = %q, want %q", got, tt.dirs)
			}
			if len(p.Warnings) > 0 {
				t.Errorf("warnings: %q", p.Warnings)
			}
			// Natively, nobody maps the ids of an ACL, and no copy has sockets.
			if name != "acl" && name != "socket by file" {
				w.applied(p, tt.ops, nil)
			}
		})
	}
}

// aclRead0 lets uid 0 read: version 2; user:rw, user 0:r, group:r, mask:rw,
// other:r. Uid 0 of the session is the test's own outside.
const aclRead0 = "\x02\x00\x00\x00" +
	"\x01\x00\x06\x00\xff\xff\xff\xff" + "\x02\x00\x04\x00\x00\x00\x00\x00" + "\x04\x00\x04\x00\xff\xff\xff\xff" +
	"\x10\x00\x06\x00\xff\xff\xff\xff" + "\x20\x00\x04\x00\xff\xff\xff\xff"

func aclOutside() string {
	return aclRead0[:16] + string(binary.LittleEndian.AppendUint32(nil, uint32(os.Getuid()))) + aclRead0[20:]
}

func TestOwnersCountForRootOnly(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	layertest.Skip(t)
	w := newWorld(t, ops{{"write", "f", ""}, {"mkdir", "d"}, {"symlink", "x", "l"}}...)
	w.session(ops{{"chown", "f", "7", "8"}, {"chown", "d", "7", "0"}, {"chown", "l", "0", "8"}}...)
	w.want(w.plan(), `m dir "d" owner`, `m file "f" owner`, `m symlink "l" owner -> "x"`)
	w.root.Owners = false
	w.want(w.plan())
}
