// Package comparison shows what differs between pipelines: for people, and as a
// comment of a pull request.
package comparison

import (
	"fmt"
	"io"
	"strings"

	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/schema/text"
)

// namedFiles is how many files a heading names before it counts the rest.
const namedFiles = 3

// Print prints what differs for people: changes below the files that
// have them.
func Print(w io.Writer, c generator.Comparison) {
	heading := ""
	for _, change := range c.Changes {
		if h := where(change.Files()); h != heading {
			heading = h
			fmt.Fprintln(w, h)
		}
		fmt.Fprintln(w, change.In())
	}
	for _, name := range c.Added {
		fmt.Fprintf(w, "+ %s\n", name)
	}
	for _, name := range c.Removed {
		fmt.Fprintf(w, "- %s\n", name)
	}
}

// where names a few files, and counts them when they are more.
func where(files []string) string {
	if len(files) <= namedFiles {
		return text.Line(strings.Join(files, ", "), 300)
	}
	return fmt.Sprintf("%d files: %s and %d more", len(files), text.Line(strings.Join(files[:namedFiles], ", "), 300), len(files)-namedFiles)
}

// Markdown prints what differs as a comment of a pull request.
func Markdown(w io.Writer, c generator.Comparison) {
	fmt.Fprintf(w, "**%s**\n", c.Summary())
	if len(c.Changes) > 0 {
		fmt.Fprint(w, "\n| where | what | before | after |\n|---|---|---|---|\n")
	}
	for _, change := range c.Changes {
		in := change.In()
		what := in.Where()
		if in.Path == "" {
			what = "step " + what
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", cell(where(change.Files())), code(what), code(in.Old), code(in.New))
	}
	for _, list := range []struct {
		what  string
		files []string
	}{{"added", c.Added}, {"removed", c.Removed}} {
		if len(list.files) == 0 {
			continue
		}
		fmt.Fprintf(w, "\nFiles %s:\n\n", list.what)
		for _, name := range list.files {
			fmt.Fprintf(w, "- %s\n", code(name))
		}
	}
}

// cell is text in a table of Markdown.
func cell(s string) string {
	return strings.NewReplacer(`\`, `\\`, "|", `\|`, "_", `\_`, "*", `\*`, "<", "&lt;", "`", "\\`", "\n", " ").Replace(s)
}

// code is text as a code span in a table, whatever stands in it: fenced by more
// backticks than it has in a row.
func code(s string) string {
	if s == "" {
		return ""
	}
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	s = strings.ReplaceAll(strings.ReplaceAll(s, "|", `\|`), "\n", " ")
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return fence + s + fence
}
