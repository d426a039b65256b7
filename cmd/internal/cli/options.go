package cli

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
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
	for f := range fields(t) {
		_, arg := f.Tag.Lookup("arg")
		_, hidden := f.Tag.Lookup("hidden")
		switch {
		case isCommand(f), arg, hidden, !f.IsExported() && !f.Anonymous:
		case f.Anonymous:
			list = append(list, options(f.Type)...)
		default:
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
