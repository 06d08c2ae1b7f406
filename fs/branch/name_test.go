package branch

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"try/fs/sys"
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
var memberForm = regexp.MustCompile(`\.[0-9]+$`)

func TestCheckName(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name string
		ok   bool
	}{
		{"calm-otter", true},
		{"a", true},
		{"0", true},
		{"v1.2-rc_3", true},
		{"fix.2b", true},
		{strings.Repeat("x", maxName-1), true},
		{strings.Repeat("x", maxName), true},
		{strings.Repeat("x", maxName+1), false},
		{"", false},
		{".", false},
		{"..", false},
		{".hidden", false},
		{"-rf", false},
		{"_x", false},
		{"a/b", false},
		{"../../x", false},
		{"a\nb", false},
		{"a\x00b", false},
		{"a b", false},
		{"a\x1b[31m", false},
		{"ä", false},
		{"a\xff", false},
		{"a\u202eb", false},
		{"try.2", false},
		{"try.02", false},
		{"1.1", false},
		{"try.", true},
		{"*", false},
	}
	for _, row := range rows {
		if err := CheckName(row.name); (err == nil) != row.ok {
			t.Errorf("CheckName(%q) = %v, want ok %v", row.name, err, row.ok)
		}
	}
}

func FuzzCheckName(f *testing.F) {
	for _, seed := range []string{"calm-otter", "../x", "a.1", "-b", strings.Repeat("x", 65), "a\n", "a\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		want := nameForm.MatchString(name) && !strings.ContainsRune(name, '\n') && !memberForm.MatchString(name)
		if got := CheckName(name) == nil; got != want {
			t.Errorf("CheckName(%q) ok = %v, want %v", name, got, want)
		}
	})
}

func TestDefaultNamesAreNames(t *testing.T) {
	t.Parallel()
	for _, a := range adjectives {
		for _, b := range animals {
			if err := CheckName(a + "-" + b); err != nil {
				t.Fatal(err)
			}
		}
	}
	n := len(adjectives) * len(animals)
	if n < 5000 {
		t.Errorf("%d default names, want thousands", n)
	}
	if name := twoWords(func(string) bool { return true }); CheckName(name) != nil {
		t.Errorf("the name when all are taken: %q", name)
	}
}

// TestNamesNeverBecomePaths opens what names no branch but would lead out of
// the store as a path.
func TestNamesNeverBecomePaths(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("otter")
	for _, name := range []string{"../../home", "..", ".", "", "/", "otter/..", "otter\x00", strings.Repeat("0", 32), strings.Repeat("f", 31) + "/"} {
		if b, err := w.store.Open(name); err == nil {
			b.Close()
			t.Errorf("Open(%q) opened %s", name, b.Name)
		}
	}
}

// fill sets every field below v to a value of its own, so that one that the
// encoder forgets is missed.
func fill(v reflect.Value, n *int64) {
	*n++
	if !v.CanSet() {
		return // time.Time's own
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.String:
		v.SetString("\xff \"\\\n\u2028ä" + strings.Repeat("x", int(*n%7)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(-*n)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	}
}

// TestEncodingIsJSON: what is written by hand is read by encoding/json, field
// for field, as it was.
func TestEncodingIsJSON(t *testing.T) {
	t.Parallel()
	var n int64
	var m Meta
	var r Root
	var s sys.Stat
	for _, v := range []any{&m, &r, &s} {
		fill(reflect.ValueOf(v).Elem(), &n)
	}
	r.Below, r.Foreign = sys.Mount{}, ""
	r.Path, r.Number, r.Store = "/"+r.Path, 7, newID()
	r.Names = []string{"/\xff", ""}
	r.Prepared = map[string]sys.Stat{"": s, "a\xff\"": {Ino: 5}}
	r.Seen, r.SeenSize = json.RawMessage(`{"a":[1]}`), 0
	m.Version, m.ID, m.Name, m.State = metaFormat, newID(), "otter", Kept
	m.Group, m.Parent = newID(), newID()
	m.Created = time.Unix(1_700_000_000, 123456789).UTC()
	m.Command = []string{"sh", "\x00b64:", "\x7f\x01"}
	m.Roots = []Root{r, {Path: "/b", Names: []string{}, Prepared: map[string]sys.Stat{}}, {Path: "/c", Names: []string{}, Prepared: map[string]sys.Stat{}, Seen: json.RawMessage(`["\n"]`)}}
	m.Draft, m.Own = true, []string{newID()}
	m.Rest = &Rest{Of: newID(), Numbers: []int{3, 4}, Seen: []json.RawMessage{json.RawMessage(`[1]`), json.RawMessage(`{}`)}}
	m.Extra = json.RawMessage(`[null]`)
	text, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeMeta(text)
	if err != nil {
		t.Fatalf("decode: %v\n%s", err, text)
	}
	if !reflect.DeepEqual(got, m) {
		t.Errorf("decode(encode(m)) = %+v\nwant %+v", got, m)
	}
	if _, err := decodeMeta(text[:len(text)-1]); err == nil {
		t.Error("what was seen is cut short, and nobody says so")
	}
}

func FuzzMeta(f *testing.F) {
	m := Meta{ID: newID(), Name: "otter", State: Kept, Command: []string{"\xff", "\x00b64:"}, Dir: "/home/\xfe", Roots: []Root{{Path: "/a\xff", Names: []string{"/a\xff"}}}}
	text, err := m.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"id":"../x","name":"a","state":"kept"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := decodeMeta(text)
		if err != nil {
			return
		}
		if !isID(m.ID) || checkForm(m.Name) != nil {
			t.Fatalf("decodeMeta accepted id %q, name %q", m.ID, m.Name)
		}
		again, err := m.encode()
		if err != nil {
			t.Fatalf("encode of what was decoded: %v", err)
		}
		if head, _, _ := bytes.Cut(again, []byte("\n")); !json.Valid(head) {
			t.Fatalf("encode wrote no JSON: %s", head)
		}
		back, err := decodeMeta(again)
		if err != nil {
			t.Fatalf("decode of what was encoded: %v", err)
		}
		third, err := back.encode()
		if err != nil || string(third) != string(again) {
			t.Fatalf("encode(decode(x)) = %s, want x = %s", third, again)
		}
	})
}

// TestFormatV1 reads metadata as the first version wrote them, and loses
// nothing of them when they are written again. The file is never changed.
func TestFormatV1(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/format/v1/meta")
	if err != nil {
		t.Fatal(err)
	}
	m, err := decodeMeta(text)
	if err != nil {
		t.Fatal(err)
	}
	if m.Command[2] != "\xff" || m.Roots[0].Names[1] != "/home/u/proj" || m.Roots[0].Prepared[""].Mode != 0o40755 || m.Index != 2 {
		t.Errorf("read as %+v", m)
	}
	again, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := decodeMeta(again); err != nil || !reflect.DeepEqual(back, m) || len(back.Roots[0].Seen) == 0 {
		t.Errorf("written again as\n%s\nof\n%s: %v", again, text, err)
	}
	if _, err := decodeMeta([]byte(strings.Replace(string(text), `"version":1`, `"version":2`, 1))); err == nil || !strings.Contains(err.Error(), "newer try") {
		t.Errorf("a newer version = %v, want an error that says so", err)
	}
}
