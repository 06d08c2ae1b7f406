package examples_test

import "testing"

func TestUndo(t *testing.T) {
	u := copied(t, "undo")
	before := u.files()
	out := u.must("./story.sh")
	want := `after the commit:
recipe.txt
after the undo:
notes.old
recipe.txt
everything is as it was
refused:
left: ~/undo/recipe.txt: modified since the commit
and pepper
cannot simmer
and forward again
`
	if out != want {
		t.Errorf("it says:\n%s\nwant:\n%s", out, want)
	}
	after := u.files()
	if _, there := after["undo/notes.old"]; there {
		t.Error("notes.old is there after the redo")
	}
	u.must("try", "undo", "-q", "--partial")
	again := u.files()
	for _, name := range []string{"undo/notes.old", "undo/cook.sh", "undo/tidy.sh"} {
		if again[name] != before[name] {
			t.Errorf("%s is %q after the undo, was %q", name, again[name], before[name])
		}
	}
}
