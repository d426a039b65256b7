package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// An option is one flag as help and man pages show it.
type option struct {
	form string // "--out FILE"
	text string // what it does, its default and its variable
}

// options returns a command's flags, in the order of its struct, from their tags:
// help, placeholder, default and var. A flag without the tag help has no text.
func options(t reflect.Type) []option {
	var list []option
	for _, f := range parameters(t) {
		if isArgument(f) {
			continue
		}
		o := option{form: flagName(f), text: f.Tag.Get("help")}
		if f.Type.Kind() != reflect.Bool {
			o.form += " " + cmp.Or(f.Tag.Get("placeholder"), placeholders[f.Type.String()], "TEXT")
		}
		if value := f.Tag.Get("default"); value != "" && value != "-1" && value != "true" { // -1: the command finds out
			o.text += "; default " + value
		}
		if name := f.Tag.Get("var"); name != "" {
			o.text += "; variable " + name
		}
		list = append(list, o)
	}
	return list
}

// placeholders name values by their type, in flags without the tag placeholder.
var placeholders = map[string]string{"time.Duration": "DURATION", "int": "N", "int64": "N", "*int": "N", "float64": "N"}

// flagName returns "--out", or "--no-preload" for a flag that can be negated.
func flagName(f reflect.StructField) string {
	if _, negatable := f.Tag.Lookup("negatable"); negatable {
		return "--no-" + name(f)
	}
	return "--" + name(f)
}

// A Page is the help page of a command, in its usual sections. One that has others is
// Text alone.
type Page struct {
	Usage   string // a line for each way in which the command is called
	Text    string
	Titled  bool   // "options:" stands above the options, which are left out where Text has them
	More    string // behind the options
	Example string
}

// Pages are help pages as [Program] takes them.
func Pages(pages map[string]Page) map[string]string {
	texts := map[string]string{}
	for command, page := range pages {
		texts[command] = page.text()
	}
	return texts
}

func (p Page) text() string {
	if p.Usage == "" {
		return p.Text
	}
	sections := []string{"usage: " + strings.ReplaceAll(p.Usage, "\n", "\n       "), p.Text}
	switch {
	case strings.Contains(p.Text, "{options"):
	case p.Titled:
		sections = append(sections, "options:\n{options}")
	default:
		sections = append(sections, "{options}")
	}
	if p.More != "" {
		sections = append(sections, strings.TrimSuffix(p.More, "\n"))
	}
	if p.Example != "" {
		sections = append(sections, "example:\n  "+strings.ReplaceAll(p.Example, "\n", "\n  "))
	}
	return strings.Join(sections, "\n\n") + "\n"
}

// Page returns a command's help page with its options.
func (p Program) Page(command string) string { return p.expand(command, p.Help[command]) }

// optionsLine stands in a help page for the options of the page's command, or of
// one of that command's own: "{options}", "{options decode}".
var optionsLine = regexp.MustCompile(`(?m)^\{options ?([a-z- ]*)\}\n`)

// expand replaces the options lines of a command's page.
func (p Program) expand(command, page string) string {
	return optionsLine.ReplaceAllStringFunc(page, func(line string) string {
		var b strings.Builder
		for _, o := range options(p.grammarOf(command + " " + optionsLine.FindStringSubmatch(line)[1])) {
			b.WriteString(o.lines())
		}
		return b.String()
	})
}

// grammarOf returns the struct of a command, such as "vendor check".
func (p Program) grammarOf(words string) reflect.Type {
	at := reflect.TypeOf(p.Grammar).Elem()
	for word := range strings.FieldsSeq(words) {
		f, known := command(at, word)
		if !known {
			panic(fmt.Sprintf("%s: the help pages name a command %q", p.Name, words))
		}
		at = f.Type
	}
	return at
}

const (
	textColumn = 23 // of an option's text
	pageWidth  = 80
)

// lines lays the option out as on a help page.
func (o option) lines() string {
	var b strings.Builder
	line := fmt.Sprintf("  %-*s ", textColumn-3, o.form)
	empty := true // the line has no text yet
	for word := range strings.FieldsSeq(o.text) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > pageWidth || empty && len(line) > textColumn {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, empty = strings.Repeat(" ", textColumn), true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
	return b.String()
}

// Undocumented returns what the help pages leave out: commands that no page
// names, flags that are not on the page that their --help prints, and pages of
// no command. Each program's tests want it empty.
func (p Program) Undocumented() []string {
	var faults []string
	known := map[string]bool{"": true, "completion": true}
	p.leaves("", reflect.TypeOf(p.Grammar).Elem(), func(command string, t reflect.Type, hidden bool) {
		known[command] = true
		if hidden {
			return
		}
		words := strings.Fields(command)
		page, at := "", len(words)
		for ; at > 0 && page == ""; at-- {
			page = p.Help[strings.Join(words[:at], " ")]
		}
		if page == "" {
			faults = append(faults, fmt.Sprintf("%s has no help page", command))
			return
		}
		called := p.Name + " (" + strings.Join(words, "|") + "|[|])+"
		if !regexp.MustCompile(`(?i)`+called).MatchString(page) || !strings.Contains(page, words[len(words)-1]) {
			faults = append(faults, fmt.Sprintf("the help page of %s does not show how it is called", command))
		}
		page = p.expand(strings.Join(words[:at+1], " "), page)
		for _, o := range options(t) {
			flag, _, _ := strings.Cut(o.form, " ")
			if !strings.Contains(page, flag) {
				faults = append(faults, fmt.Sprintf("the help page of %s does not name %s", command, flag))
			}
			if o.text == "" || o.text[0] == ';' {
				faults = append(faults, fmt.Sprintf("%s: %s has no text, want the tag help", command, flag))
			}
		}
	})
	for page := range p.Help {
		if !known[page] {
			faults = append(faults, fmt.Sprintf("the help page %q belongs to no command", page))
		}
	}
	return faults
}

// leaves calls f for every command, groups of commands included.
func (p Program) leaves(at string, t reflect.Type, f func(command string, t reflect.Type, hidden bool)) {
	for field := range t.Fields() {
		if !isCommand(field) {
			continue
		}
		_, hidden := field.Tag.Lookup("hidden")
		command := strings.TrimPrefix(at+" "+name(field), " ")
		f(command, field.Type, hidden)
		p.leaves(command, field.Type, f)
	}
}

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
