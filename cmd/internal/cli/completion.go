package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// shells are those that [Program.Run] writes completions for.
var shells = []string{"bash", "zsh", "fish"}

// completion prints the script that makes a shell complete the program's words.
func (p Program) completion(w io.Writer, args []string) error {
	if len(args) != 1 || !slices.Contains(shells, args[0]) {
		return WithHint(Usagef("completion: got %q, want one of %s", strings.Join(args, " "), strings.Join(shells, ", ")),
			"%s completion bash", p.Name)
	}
	words := p.vocabulary()
	script := words.bash(p)
	switch args[0] {
	case "zsh":
		script = "#compdef " + p.Name + "\nautoload -U +X bashcompinit && bashcompinit\n" + script
	case "fish":
		script = words.fish(p)
	}
	_, err := io.WriteString(w, script)
	return err
}

// A vocabulary is what may follow each command, by its words ("vendor check"):
// its flags, its own commands, and words such as the names of pipelines and GPU
// types. Below "" stands what may come first.
type vocabulary map[string][]string

// vocabulary reads the grammar's own tags, so that no flag is forgotten.
func (p Program) vocabulary() vocabulary {
	v := vocabulary{}
	p.leaves("", reflect.TypeOf(p.Grammar).Elem(), func(command string, t reflect.Type, hidden bool) {
		if hidden {
			return
		}
		end := max(strings.LastIndexByte(command, ' '), 0)
		v[command[:end]] = append(v[command[:end]], strings.TrimSpace(command[end:]))
		v[command] = append(p.wordsOf(t), debugFlag)
	})
	for at, words := range v {
		slices.Sort(words)
		v[at] = slices.Compact(words)
	}
	v["help"], v["completion"], v["man"] = slices.Clone(v[""]), shells, nil
	v[""] = append(v[""], "completion", "help", "man", "--help", "--version")
	return v
}

// wordsOf lists a command's flags, and what its arguments may be.
func (p Program) wordsOf(t reflect.Type) []string {
	words := []string{"--help"}
	for _, f := range parameters(t) {
		if !isArgument(f) {
			words = append(words, flagName(f))
			continue
		}
		if list := f.Tag.Get("enum"); list != "" {
			words = append(words, strings.Split(list, ",")...)
		}
		if values := p.Values[name(f)]; values != nil {
			words = append(words, values()...)
		}
	}
	return words
}

// flagValues returns what may stand behind which flags, by the flag.
func (p Program) flagValues() map[string]string {
	values := map[string]string{}
	p.leaves("", reflect.TypeOf(p.Grammar).Elem(), func(_ string, t reflect.Type, _ bool) {
		for _, f := range parameters(t) {
			flag, list := "--"+name(f), strings.Trim(f.Tag.Get("enum"), ",")
			switch {
			case isArgument(f):
			case p.Values[flag] != nil:
				values[flag] = strings.Join(p.Values[flag](), " ")
			case list != "":
				values[flag] = strings.ReplaceAll(list, ",", " ")
			}
		}
	})
	return values
}

// parameters are a command's flags and arguments, those of embedded structs among
// them, without the hidden ones.
func parameters(t reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool {
		_, hidden := f.Tag.Lookup("hidden")
		return hidden || f.Anonymous || !f.IsExported() || isCommand(f)
	})
}

func isArgument(f reflect.StructField) bool {
	_, is := f.Tag.Lookup("arg")
	return is
}

func isCommand(f reflect.StructField) bool {
	_, is := f.Tag.Lookup("cmd")
	return is
}

// name is what a command, a flag or an argument is called.
func name(f reflect.StructField) string {
	if name := f.Tag.Get("name"); name != "" {
		return name
	}
	return kebab(f.Name)
}

// kebab turns MaxJobs into max-jobs, as kong does for fields without a name.
func kebab(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		upper := c >= 'A' && c <= 'Z'
		if upper && i > 0 && (s[i-1] >= 'a' && s[i-1] <= 'z' || i+1 < len(s) && s[i+1] >= 'a' && s[i+1] <= 'z') {
			b.WriteByte('-')
		}
		if upper {
			c += 'a' - 'A'
		}
		b.WriteByte(c)
	}
	return b.String()
}

func (v vocabulary) bash(p Program) string {
	var b strings.Builder
	fmt.Fprintf(&b, "_%s() {\n  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words\n", function(p.Name))
	values := p.flagValues()
	if len(values) > 0 {
		b.WriteString("  case $prev in\n")
		for _, flag := range slices.Sorted(maps.Keys(values)) {
			fmt.Fprintf(&b, "  %s) COMPREPLY=($(compgen -W %q -- \"$cur\")); return ;;\n", flag, values[flag])
		}
		b.WriteString("  esac\n")
	}
	// The longest command comes first: "vendor check" before "vendor".
	b.WriteString("  case \"${COMP_WORDS[*]:1:$((COMP_CWORD-1))} \" in\n")
	commands := slices.SortedFunc(maps.Keys(v), func(x, y string) int {
		return cmp.Or(strings.Count(y, " ")-strings.Count(x, " "), strings.Compare(y, x))
	})
	for _, name := range commands {
		pattern := fmt.Sprintf("%q*", name+" ")
		if name == "" {
			pattern = "*"
		}
		fmt.Fprintf(&b, "  %s) words=%q ;;\n", pattern, strings.Join(v[name], " "))
	}
	b.WriteString("  esac\n")
	fmt.Fprintf(&b, "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F _%s %s\n", function(p.Name), p.Name)
	return b.String()
}

// function is a program's name as a shell function may be called.
func function(program string) string { return strings.ReplaceAll(program, "-", "_") }

func (v vocabulary) fish(p Program) string {
	var b strings.Builder
	values := p.flagValues()
	for _, name := range slices.Sorted(maps.Keys(v)) {
		for _, word := range v[name] {
			form := "-f -a " + word
			switch {
			case values[word] != "":
				form = fmt.Sprintf("-x -l %s -a %q", word[2:], values[word])
			case strings.HasPrefix(word, "--"):
				form = "-l " + word[2:]
			}
			fmt.Fprintf(&b, "complete -c %s -n '%s' %s\n", p.Name, v.fishCondition(name), form)
		}
	}
	return b.String()
}

// fishCondition is when the words behind a command are offered: its own words
// stand there, and none of its commands yet.
func (v vocabulary) fishCondition(name string) string {
	if name == "" {
		return "__fish_use_subcommand"
	}
	var when []string
	for word := range strings.FieldsSeq(name) {
		when = append(when, "__fish_seen_subcommand_from "+word)
	}
	for _, word := range v[name] {
		if _, is := v[name+" "+word]; is {
			when = append(when, "not __fish_seen_subcommand_from "+word)
		}
	}
	return strings.Join(when, "; and ")
}
