// Package report prints lists of files.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"

	"tarsum/sum"
)

var lines = template.Must(template.New("lines").Parse(
	"{{range .}}{{.Sum}}  {{.Name}} ({{.Size}} bytes, {{.Modified.Format \"2006-01-02\"}})\n{{end}}"))

// Write prints files sorted by name.
func Write(w io.Writer, format string, files []sum.File) error {
	slices.SortFunc(files, func(a, b sum.File) int { return strings.Compare(a.Name, b.Name) })
	switch format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(files)
	case "text":
		return lines.Execute(w, files)
	}
	return fmt.Errorf("unknown format %q", format)
}
