package steps

import (
	"cmp"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	clean "github.com/gpu-mode/kbgen/schema/text"
)

// Title is the step's label, or what it does.
func (s *Step) Title(env map[string]string) string {
	return cmp.Or(clean.Line(s.Label, 200), s.Does(env))
}

// Does is the first line of the step's command, or its plugins, or what it
// triggers; "" for a step that does nothing by itself. An upload may have filled
// in values of env, where payloads are: they are blanked.
func (s *Step) Does(env map[string]string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(withoutValues(s.Command, env)), "\n")
	triggered := ""
	if s.Trigger.Pipeline != "" {
		triggered = "trigger " + s.Trigger.Pipeline
	}
	waits := map[Kind]string{Block: "block", Input: "input", Wait: "wait"}[s.Kind]
	return cmp.Or(clean.Line(line, 80), clean.Line(pluginNames(s.Plugins), 80), clean.Line(triggered, 80), waits)
}

// pluginNames lists plugins by the last part of their source.
func pluginNames(plugins []json.RawMessage) string {
	var out []string
	for _, raw := range plugins {
		var one map[string]json.RawMessage
		if json.Unmarshal(raw, &one) != nil {
			continue
		}
		for source := range one {
			out = append(out, path.Base(source))
		}
	}
	return strings.Join(out, ", ")
}

// withoutValues blanks the values of env in a text, longer ones first. A value of
// one or two characters is no secret.
func withoutValues(s string, env map[string]string) string {
	values := slices.Collect(maps.Values(env))
	slices.SortFunc(values, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	for _, value := range values {
		if len(value) > 2 {
			s = strings.ReplaceAll(s, value, "…")
		}
	}
	return s
}
