package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestManPage holds try.1 to what the help texts say now. `make man` writes it.
func TestManPage(t *testing.T) {
	template, err := os.ReadFile("testdata/try.1.in")
	if err != nil {
		t.Fatal(err)
	}
	run, err := kong.New(&runCmd{}, parserOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := kong.New(&words{}, parserOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	var flags, commands strings.Builder
	known := map[string]bool{}
	for _, g := range flagHelp {
		flags.WriteString(".SS " + roff(strings.ToUpper(g.head[:1])+g.head[1:]) + "\n")
		for _, line := range g.flags {
			i := slices.IndexFunc(run.Model.Flags, func(f *kong.Flag) bool { return f.Name == line.name })
			if i < 0 {
				t.Fatalf("the help has --%s, the command line does not", line.name)
			}
			known[line.name] = true
			manFlag(&flags, run.Model.Flags[i], line.value, line.text)
		}
	}
	for _, f := range run.Model.Flags {
		if !known[f.Name] {
			t.Errorf("--%s is missing in the help", f.Name)
		}
	}
	var walk func(nodes []*kong.Node)
	walk = func(nodes []*kong.Node) {
		for _, n := range nodes {
			commands.WriteString(".SS " + roff("try "+wordPath(n)+arguments(n)) + "\n" + roff(n.Help) + "\n")
			if n.Detail != "" {
				manText(&commands, n.Detail)
			}
			for _, f := range n.Flags {
				if f.Name != "help" && f.Name != "color" {
					manFlag(&commands, f, f.PlaceHolder, f.Help)
				}
			}
			walk(n.Children)
		}
	}
	walk(all.Model.Children)
	page := strings.NewReplacer("@FLAGS@\n", flags.String(), "@WORDS@\n", commands.String()).Replace(string(template))
	if *update {
		if err := os.WriteFile("try.1", []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("try.1")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, []byte(page)) {
		t.Error("try.1 is not what the help says: make man")
	}
	for _, word := range reserved() {
		if word != "help" && !strings.Contains(page, ".SS try "+word) {
			t.Errorf("the word %s is missing", word)
		}
	}
	for _, key := range []string{"on_success", "on_failure", "checks", "max_changes", "max_bytes", "max_deleted", "processes", "timeout", "keep",
		"max_count", "scope", "roots", "cover", "allow_write", "deny", "sockets", "net", "engine", "grace", "TRY_STORE", "125", ".try.toml"} {
		if !strings.Contains(page, key) {
			t.Errorf("%s is missing", key)
		}
	}
}

// manFlag writes one flag.
func manFlag(b *strings.Builder, f *kong.Flag, value, text string) {
	name := "--" + f.Name
	if f.Short != 0 {
		name = "-" + string(f.Short) + ", " + name
	}
	if f.Tag.Negatable != "" {
		name += ", --no-" + f.Name
	}
	b.WriteString(".TP\n\\fB" + roff(name) + "\\fR")
	if !f.IsBool() {
		b.WriteString(" \\fI" + roff(value) + "\\fR")
	}
	b.WriteString("\n" + roff(strings.TrimSuffix(text, ".")) + ".\n")
}

// manText writes a help text: paragraphs, and what is indented as it stands.
func manText(b *strings.Builder, text string) {
	b.WriteString(".PP\n")
	indented := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if in := strings.HasPrefix(line, "  "); in != indented && line != "" {
			b.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[in])
			indented = in
		}
		if line == "" {
			b.WriteString(".PP\n")
			continue
		}
		b.WriteString(roff(line) + "\n")
	}
	if indented {
		b.WriteString(".fi\n")
	}
}

// roff writes a text so that troff shows it as it is (groff_man(7)).
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
