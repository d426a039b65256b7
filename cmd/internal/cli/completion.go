package main

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/pipelines"
)

// completionCmd prints a script that makes a shell complete kbgen's words.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish"`
}

func (c *completionCmd) Run(_ context.Context, env *cli.Env) error {
	words := vocabularyOf(reflect.TypeFor[commands]())
	var script string
	switch c.Shell {
	case "bash":
		script = words.bash()
	case "zsh":
		script = "#compdef kbgen\nautoload -U +X bashcompinit && bashcompinit\n" + words.bash()
	case "fish":
		script = words.fish()
	}
	_, err := env.Stdout.Write([]byte(script))
	return err
}

// A vocabulary is what may follow each command: its flags, and words such as
// the names of pipelines and GPU types.
type vocabulary map[string][]string

// vocabularyOf reads the grammar's own tags, so that no flag is forgotten.
func vocabularyOf(grammar reflect.Type) vocabulary {
	v := vocabulary{}
	for f := range structFields(grammar) {
		name := cmp(f.Tag.Get("name"), kebab(f.Name))
		words := flagsOf(f.Type)
		for sub := range structFields(f.Type) {
			if _, command := sub.Tag.Lookup("cmd"); command {
				words = append(words, cmp(sub.Tag.Get("name"), kebab(sub.Name)))
				words = append(words, flagsOf(sub.Type)...)
			}
		}
		if slices.Contains(words, "--max-jobs") || name == "plan" || name == "golden" {
			for _, p := range pipelines.Pipelines {
				words = append(words, p.Name)
			}
		}
		slices.Sort(words)
		v[name] = slices.Compact(words)
	}
	return v
}

// flagsOf lists a command's flags and the values of its enumerated arguments.
func flagsOf(t reflect.Type) []string {
	words := []string{"--help"}
	for f := range structFields(t) {
		_, arg := f.Tag.Lookup("arg")
		_, command := f.Tag.Lookup("cmd")
		switch {
		case command:
		case f.Anonymous:
			words = append(words, flagsOf(f.Type)...)
		case arg:
			if list := f.Tag.Get("enum"); list != "" {
				words = append(words, strings.Split(list, ",")...)
			}
		default:
			name := cmp(f.Tag.Get("name"), kebab(f.Name))
			if _, negatable := f.Tag.Lookup("negatable"); negatable {
				name = "no-" + name
			}
			words = append(words, "--"+name)
		}
	}
	return words
}

func structFields(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := 0; t.Kind() == reflect.Struct && i < t.NumField(); i++ {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

func cmp(a, b string) string {
	if a != "" {
		return a
	}
	return b
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

func gpuNames() string { return strings.Join(append(pipelines.Fleet.Names(), pipelines.All), " ") }

func (v vocabulary) bash() string {
	var b strings.Builder
	b.WriteString("_kbgen() {\n  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words\n")
	fmt.Fprintf(&b, "  case $prev in --gpu) COMPREPLY=($(compgen -W %q -- \"$cur\")); return ;; esac\n", gpuNames())
	commands := slices.Sorted(maps.Keys(v))
	b.WriteString("  case ${COMP_WORDS[1]} in\n")
	for _, name := range commands {
		fmt.Fprintf(&b, "  %s) words=%q ;;\n", name, strings.Join(v[name], " "))
	}
	b.WriteString("  esac\n")
	fmt.Fprintf(&b, "  [ \"$COMP_CWORD\" -gt 1 ] || words=%q\n", strings.Join(commands, " ")+" --help --version")
	b.WriteString("  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F _kbgen kbgen\n")
	return b.String()
}

func (v vocabulary) fish() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(v)) {
		fmt.Fprintf(&b, "complete -c kbgen -n __fish_use_subcommand -f -a %s\n", name)
		for _, word := range v[name] {
			form := "-f -a " + word
			switch {
			case word == "--gpu":
				form = fmt.Sprintf("-x -l gpu -a %q", gpuNames())
			case strings.HasPrefix(word, "--"):
				form = "-l " + word[2:]
			}
			fmt.Fprintf(&b, "complete -c kbgen -n '__fish_seen_subcommand_from %s' %s\n", name, form)
		}
	}
	return b.String()
}
