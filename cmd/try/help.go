package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// flagHelp says what the flags of `try CMD` mean, in the order of the help.
var flagHelp = []struct {
	head  string
	flags []flagLine
}{
	{"settle", []flagLine{
		{"commit", "", "Commit, whatever CMD's exit status, and ask nothing"},
		{"abort", "", "Drop the branch"},
		{"keep", "", "Keep the branch for later"},
		{"exit-code", "", "Commit if CMD exits with 0, drop otherwise. The default without a terminal"},
		{"ask", "", "Ask. The default on a terminal"},
		{"on-success", "X", "Settle so if CMD exits with 0: commit, abort, keep or ask"},
		{"on-failure", "X", "Settle so if CMD exits with anything else"},
		{"check", "CMD", "Run CMD by sh -c in the branch; it must pass before a commit. Repeatable"},
		{"allow", "GLOB", "Commit paths that the policy would ask about. Repeatable"},
		{"branch", "NAME", "Name the branch"},
	}},
	{"what the branch covers", []flagLine{
		{"root", "DIR", "Capture DIR as well. Repeatable"},
		{"scope", "SCOPE", "What the branch captures: user (the working directory, HOME, /tmp, /var/tmp; the default) or dir (the working directory, or what --root names)"},
		{"cover", "PATH", "Capture PATH too. Repeatable"},
		{"allow-write", "PATH", "Let writes to PATH through to the real thing. Repeatable"},
		{"deny", "PATH", "Hide PATH. Repeatable"},
		{"socket", "NAME", "Let a socket through that runs commands for its clients, by name or path. Repeatable"},
	}},
	{"how CMD runs", []flagLine{
		{"net", "NET", "Network: host (the default) or none"},
		{"engine", "ENGINE", "File system engine: auto (the default), overlay or fuse"},
		{"serializable", "", "Commit only if nothing that CMD has read has changed meanwhile. Takes the fuse engine"},
		{"grace", "D", "Time between asking leftover processes to end and ending them (2s)"},
		{"wait", "", "Wait for the processes that CMD leaves instead of ending them"},
		{"timeout", "D", "End CMD after this time"},
		{"pty", "", "Give CMD a terminal of its own, or never. Default: if stdin and stdout are terminals"},
	}},
	{"race", raceHelp},
	{"what is shown", []flagLine{
		{"quiet", "", "Print no summary"},
		{"summary", "HOW", "Summary: auto (large new directories in one line; the default), full or none"},
		{"json", "", "Print one result document on stdout at the end; CMD's stdout goes to stderr"},
		{"status-fd", "N", "Write events as JSON lines to descriptor N"},
		{"policy", "FILE", "Use this policy instead of the installed ones"},
		{"no-policy", "", "Use no policy but the built-in one"},
		{"color", "WHEN", "Use colours: auto, always or never. NO_COLOR in the environment means never"},
		{"help", "", "Show this help"},
	}},
}

// flagLine is one flag: its name, what its value is called, what it does.
type flagLine struct{ name, value, text string }

// help prints the help of `try CMD` and the list of words.
func (p *program) help() error {
	parser, err := kong.New(&runCmd{}, parserOptions()...)
	if err != nil {
		return fmt.Errorf("set up the command line: %w", err)
	}
	all, err := kong.New(&words{}, parserOptions()...)
	if err != nil {
		return fmt.Errorf("set up the command line: %w", err)
	}
	var b strings.Builder
	b.WriteString(runHelp)
	b.WriteString("\nwords (\"try WORD --help\" says more):\n")
	for _, node := range all.Model.Children {
		row(&b, node.Name+arguments(node), node.Help)
	}
	for _, g := range flagHelp {
		b.WriteString("\n" + g.head + ":\n")
		for _, line := range g.flags {
			for _, f := range parser.Model.Flags {
				if f.Name == line.name {
					flagRow(&b, f, line.value, line.text)
				}
			}
		}
	}
	b.WriteString(runStatus)
	_, err = io.WriteString(p.stdout, b.String())
	return err
}

// helpOn prints the help of the word in args, or that of `try` if there is
// none.
func (p *program) helpOn(parser *kong.Kong, args []string) error {
	node := parser.Model.Node
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			continue
		}
		i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == a })
		if i < 0 {
			if node == parser.Model.Node {
				return &usageError{err: fmt.Errorf("no help on %q: it is none of our words", a), word: "help"}
			}
			break
		}
		node = node.Children[i]
	}
	if node == parser.Model.Node {
		return p.help()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "try %s: %s\n", wordPath(node), strings.TrimSuffix(node.Help, "."))
	fmt.Fprintf(&b, "\nusage:\n  try %s%s\n", wordPath(node), arguments(node))
	if node.Detail != "" {
		b.WriteString("\n" + node.Detail)
	}
	if len(node.Children) > 0 {
		b.WriteString("\nwords:\n")
		for _, child := range node.Children {
			row(&b, child.Name+arguments(child), child.Help)
		}
	}
	b.WriteString("\nflags:\n")
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			flagRow(&b, f, f.PlaceHolder, f.Help)
		}
	}
	b.WriteString("\nexit status: 0; 1 for a negative answer; 2 for wrong usage; 125 if it failed\n")
	_, err := io.WriteString(p.stdout, b.String())
	return err
}

// wordPath is a word with those before it.
func wordPath(node *kong.Node) string {
	if node.Parent == nil || node.Parent.Type == kong.ApplicationNode {
		return node.Name
	}
	return wordPath(node.Parent) + " " + node.Name
}

// arguments are those of a word, as usage shows them.
func arguments(node *kong.Node) string {
	var b strings.Builder
	for _, arg := range node.Positional {
		name := strings.ToUpper(arg.Name)
		if !arg.Required {
			name = "[" + name + "]"
		}
		b.WriteString(" " + name)
	}
	if len(node.Children) > 0 {
		b.WriteString(" WORD")
	}
	return b.String()
}

// flagRow prints one flag.
func flagRow(b *strings.Builder, f *kong.Flag, value, text string) {
	name := "    --" + f.Name
	if f.Short != 0 {
		name = fmt.Sprintf("-%c, --%s", f.Short, f.Name)
	}
	if f.Tag.Negatable != "" {
		name += ", --no-" + f.Name
	}
	if !f.IsBool() {
		name += " " + value
	}
	row(b, name, text)
}

// row prints a name and what it means, in lines of at most 80 columns.
func row(b *strings.Builder, name, text string) {
	const column, width = 28, 80
	fmt.Fprintf(b, "  %-*s", column-2, name)
	at := 2 + max(column-2, len(name))
	if len(name) > column-3 {
		b.WriteString("\n" + strings.Repeat(" ", column))
		at = column
	}
	for i, word := range strings.Fields(strings.TrimSuffix(text, ".")) {
		if i > 0 && at+1+len(word) > width {
			b.WriteString("\n" + strings.Repeat(" ", column))
			at = column
		} else if i > 0 {
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	b.WriteByte('\n')
}
