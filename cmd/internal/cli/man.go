package cli

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// man prints the program's help pages as one page for man(1), section 1.
func (p Program) man(w io.Writer) error {
	var b strings.Builder
	about, rest, _ := strings.Cut(p.Help[""], "\n")
	fmt.Fprintf(&b, ".TH %s 1 \"\" %q\n", strings.ToUpper(p.Name), p.Name+" "+Version())
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", p.Name, roff(strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(about, p.Name+" "), "- "), ".")))
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s", verbatim(rest))
	for _, command := range slices.Sorted(maps.Keys(p.Help)) {
		if command != "" {
			fmt.Fprintf(&b, ".SH %s\n%s", strings.ToUpper(p.Name+" "+command), verbatim(optionsLine.ReplaceAllString(p.Help[command], "  see OPTIONS\n")))
		}
	}
	b.WriteString(".SH OPTIONS\n")
	p.leaves("", reflect.TypeOf(p.Grammar).Elem(), func(command string, t reflect.Type, hidden bool) {
		list := options(t)
		if hidden || len(list) == 0 {
			return
		}
		fmt.Fprintf(&b, ".SS %s %s\n", p.Name, command)
		for _, o := range list {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(o.form), roff(o.text))
		}
	})
	_, err := io.WriteString(w, b.String())
	return err
}

// verbatim sets text as it stands.
func verbatim(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = roff(line)
	}
	return ".nf\n" + strings.Join(lines, "\n") + "\n.fi\n"
}

// roff escapes what the formatter would take for its own.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		return `\&` + line
	}
	return line
}
