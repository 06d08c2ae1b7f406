package policy

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// LayerVerdict is what one layer says about a path, taken by itself.
type LayerVerdict struct {
	Source Source
	File   string // "" for the built-in layer
	Rule   *Rule  // nil: none of its rules matches
	Glob   string
}

// Explanation says how a verdict came about.
type Explanation struct {
	Change  Change
	Verdict Verdict
	Layers  []LayerVerdict
}

// Explain says which rule decides about a change, for `try policy check PATH`.
// Whatever depends on the rest of a branch (is this repository new?) is
// answered as if nothing else had changed.
func (p *Policy) Explain(roots []string, base Base, c Change) Explanation {
	in := Input{Roots: roots, Changes: []Change{c}, Base: base}
	x := Explanation{Change: c, Verdict: p.Evaluate(in).Verdicts[0]}
	e := &evaluation{in: in, stacks: p.stacks}
	n := e.named(c.Path)
	for _, s := range p.stacks {
		for _, l := range s.layers {
			v := e.layerVerdict(l, &c, kindOf(c.Kind), &n)
			x.Layers = append(x.Layers, LayerVerdict{l.source, l.file, v.Rule, v.Glob})
		}
	}
	return x
}

// Rules returns every rule, in the order in which they are asked.
func (p *Policy) Rules() []*Rule {
	p.Prepare()
	var rules []*Rule
	for _, s := range p.stacks {
		for _, l := range s.layers {
			rules = append(rules, l.rules...)
		}
	}
	return rules
}

// AllSettings returns every setting of every layer, the ignored ones too.
func (p *Policy) AllSettings() []Setting {
	var all []Setting
	for _, s := range p.stacks {
		for _, l := range s.layers {
			all = append(all, l.settings...)
		}
	}
	return all
}

// Files returns the policy files that were read, with whether each is trusted.
func (p *Policy) Files() []File {
	var files []File
	for _, s := range p.stacks {
		for _, l := range s.layers {
			if l.source != BuiltIn {
				files = append(files, File{l.source, l.file, l.trusted})
			}
		}
	}
	return files
}

// File is a policy file that was read.
type File struct {
	Source  Source
	Path    string
	Trusted bool
}

// Show writes every setting and rule with where it comes from and why, for
// `try policy show`. All that a file's author wrote goes through printable.
func (p *Policy) Show(w io.Writer, printable func(string) string) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	ignored := func(yes bool) string {
		if yes {
			return "  (ignored: not trusted)"
		}
		return ""
	}
	for _, s := range p.AllSettings() {
		fmt.Fprintf(tw, "%s\t= %s\t%s%s\n", s.Key, printable(s.Value()), printable(s.At()), ignored(s.Ignored))
	}
	for _, r := range p.Rules() {
		change := "any change"
		if len(r.Change) > 0 && !slices.Equal(r.Change, kindNames[:len(kindNames)-1]) {
			change = strings.Join(r.Change, ", ")
		}
		for i, glob := range r.Paths {
			why, where := "", ""
			if i == 0 {
				where = printable(r.At()) + ignored(r.Ignored)
				if why = r.Why; r.only != always {
					why += " (" + r.only.String() + ")"
				}
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", r.Action, printable(glob), change, where, printable(why))
		}
	}
	return tw.Flush()
}
