package cli

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

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
	for field := range fields(t) {
		if !isCommand(field) {
			continue
		}
		_, hidden := field.Tag.Lookup("hidden")
		command := strings.TrimPrefix(at+" "+name(field), " ")
		f(command, field.Type, hidden)
		p.leaves(command, field.Type, f)
	}
}
