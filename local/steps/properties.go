package steps

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// setter reads one property into a step.
type setter func(s *Step, raw json.RawMessage) error

// stepProperties lists what each kind of step may have.
var stepProperties = map[Kind]map[string]setter{
	Command: with(common, map[string]setter{
		"command":                 set(func(s *Step) *string { return &s.Command }, command),
		"commands":                set(func(s *Step) *string { return &s.Command }, command),
		"env":                     set(func(s *Step) *map[string]string { return &s.Env }, stringMap),
		"agents":                  set(func(s *Step) *[]string { return &s.Agents }, agentRules),
		"plugins":                 set(func(s *Step) *[]json.RawMessage { return &s.Plugins }, plugins),
		"priority":                set(func(s *Step) *int { return &s.Priority }, between(-1<<31, 1<<31)),
		"parallelism":             set(func(s *Step) *int { return &s.Parallelism }, between(1, schema.MaxJobsPerUpload)),
		"soft_fail":               set(func(s *Step) *SoftFail { return &s.SoftFail }, softFail),
		"retry":                   set(func(s *Step) *Retry { return &s.Retry }, retry),
		"skip":                    set(func(s *Step) **string { return &s.Skip }, skip),
		"checkout":                set(func(s *Step) *Checkout { return &s.Checkout }, checkout),
		"artifact_paths":          set(func(s *Step) *[]string { return &s.ArtifactPaths }, words),
		"timeout_in_minutes":      set(func(s *Step) *time.Duration { return &s.Timeout }, minutes),
		"concurrency":             set(func(s *Step) *int { return &s.limited().Limit }, between(1, 1<<20)),
		"concurrency_group":       set(func(s *Step) *string { return &s.limited().Group }, text),
		"concurrency_method":      set(func(s *Step) *bool { return &s.limited().Eager }, eager),
		"cancel_on_build_failing": set(func(s *Step) *bool { return &s.CancelOnBuildFailing }, truth),
		"matrix":                  set(func(s *Step) **matrix { return &s.matrix }, readMatrix),
		"secrets":                 set(func(s *Step) *[]Secret { return &s.Secrets }, secrets),
		"notify":                  notify,
		"signature":               ignore, // kept in JSON
	}),
	Block: with(common, manualProperties, map[string]setter{"block": title}),
	Input: with(common, manualProperties, map[string]setter{"input": title}),
	TriggerStep: with(common, map[string]setter{
		"trigger":     set(func(s *Step) *string { return &s.triggers().Pipeline }, text),
		"async":       set(func(s *Step) *bool { return &s.triggers().Async }, truth),
		"build":       triggered,
		"soft_fail":   set(func(s *Step) *SoftFail { return &s.SoftFail }, softFail),
		"skip":        set(func(s *Step) **string { return &s.Skip }, skip),
		"parallelism": set(func(s *Step) *int { return &s.Parallelism }, between(1, schema.MaxJobsPerUpload)),
	}),
	Wait: with(common, map[string]setter{
		"wait":                title,
		"waiter":              title,
		"continue_on_failure": set(func(s *Step) *bool { return &s.ContinueOnFailure }, truth),
	}),
	Group: with(common, map[string]setter{
		"group":  title,
		"skip":   set(func(s *Step) **string { return &s.Skip }, skip),
		"notify": notify,
		"steps":  ignore, // read by parseStep, which knows the path
	}),
}

// manualProperties is what block and input steps share.
var manualProperties = map[string]setter{
	"prompt":        set(func(s *Step) *string { return &s.Prompt }, text),
	"submit":        set(func(s *Step) *string { return &s.Submit }, text),
	"fields":        set(func(s *Step) *[]Field { return &s.Fields }, readFields),
	"blocked_state": set(func(s *Step) *string { return &s.BlockedState }, blockedState),
	"allowed_teams": ignore, // there are no teams: whoever may act may unblock
	"notify":        notify,
}

// notify keeps what would be sent, and where to. Nothing is sent.
func notify(s *Step, raw json.RawMessage) (err error) {
	s.Notify, err = notifications(raw)
	return err
}

// notifications reads a notify attribute: a list of names or of objects.
func notifications(raw json.RawMessage) ([]json.RawMessage, error) {
	if jsonType(raw) == "null" {
		return nil, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("got %s, want a list", jsonType(raw))
	}
	for i, item := range list {
		if kind := jsonType(item); kind != "a string" && kind != "an object" {
			return nil, fmt.Errorf("[%d]: got %s, want a name or an object", i, kind)
		}
	}
	return list, nil
}

// common is what every kind of step may have.
var common = map[string]setter{
	"type":                     ignore, // read by kind
	"key":                      set(func(s *Step) *string { return &s.Key }, text),
	"id":                       set(func(s *Step) *string { return &s.Key }, text),
	"label":                    set(func(s *Step) *string { return &s.Label }, text),
	"name":                     set(func(s *Step) *string { return &s.Label }, text),
	"if":                       set(func(s *Step) *string { return &s.If }, text),
	"branches":                 set(func(s *Step) *[]string { return &s.On }, branches),
	"depends_on":               set(func(s *Step) *[]Dependency { return &s.DependsOn }, dependencies),
	"allow_dependency_failure": set(func(s *Step) *bool { return &s.AllowDependencyFailure }, truth),
}

func with(all ...map[string]setter) map[string]setter {
	out := map[string]setter{}
	for _, one := range all {
		maps.Copy(out, one)
	}
	return out
}

// set makes the setter of a field from the reader of its value.
func set[T any](field func(*Step) *T, read func(json.RawMessage) (T, error)) setter {
	return func(s *Step, raw json.RawMessage) (err error) {
		*field(s), err = read(raw)
		return err
	}
}

func ignore(*Step, json.RawMessage) error { return nil }

// title reads the label of `wait: "text"` and `group: "text"`; null and empty
// are no label.
func title(s *Step, raw json.RawMessage) error {
	if string(bytes.TrimSpace(raw)) == "null" {
		return nil
	}
	label, err := text(raw)
	if label != "" {
		s.Label = label
	}
	return err
}

func (s *Step) limited() *Concurrency {
	if s.Concurrency == nil {
		s.Concurrency = &Concurrency{}
	}
	return s.Concurrency
}

func between(low, high int) func(json.RawMessage) (int, error) {
	return func(raw json.RawMessage) (int, error) { return wholeNumber(raw, low, high) }
}

func minutes(raw json.RawMessage) (time.Duration, error) {
	n, err := wholeNumber(raw, 1, 1<<20)
	return time.Duration(n) * time.Minute, err
}

func eager(raw json.RawMessage) (bool, error) {
	method, err := text(raw)
	if err == nil && method != "ordered" && method != "eager" {
		err = fmt.Errorf("got %q, want \"ordered\" or \"eager\"", method)
	}
	return method == "eager", err
}

func command(raw json.RawMessage) (string, error) {
	lines, err := words(raw)
	return strings.Join(lines, "\n"), err
}

// branches reads "main release/*" or a list of such.
func branches(raw json.RawMessage) ([]string, error) {
	list, err := words(raw)
	var out []string
	for _, item := range list {
		out = append(out, strings.Fields(item)...)
	}
	return out, err
}

// agentRules reads {"queue": "gpu"}, ["queue=gpu"] or "queue=gpu".
func agentRules(raw json.RawMessage) ([]string, error) {
	if jsonType(raw) == "null" {
		return nil, nil
	}
	if jsonType(raw) == "a list" || jsonType(raw) == "a string" {
		list, err := words(raw)
		for _, rule := range list {
			if !strings.Contains(rule, "=") {
				return nil, fmt.Errorf("got rule %q, want key=value", rule)
			}
		}
		return list, err
	}
	fields, err := object(raw)
	if err != nil {
		return nil, err
	}
	rules := []string{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := fields[name]
		switch jsonType(value) {
		case "a string":
			v, err := text(value)
			if err != nil {
				return nil, err
			}
			rules = append(rules, name+"="+v)
		case "a number", "a boolean":
			rules = append(rules, name+"="+string(bytes.TrimSpace(value)))
		default:
			return nil, fmt.Errorf("%s: got %s, want a string", name, jsonType(value))
		}
	}
	return rules, nil
}

// plugins reads a list of names and one-key objects, and passes on objects.
func plugins(raw json.RawMessage) ([]json.RawMessage, error) {
	if jsonType(raw) == "null" {
		return nil, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("got %s, want a list of one-key objects", jsonType(raw))
	}
	out := make([]json.RawMessage, 0, len(list))
	for i, item := range list {
		if name, err := text(item); err == nil {
			item, _ = json.Marshal(map[string]any{name: nil})
		}
		if fields, err := object(item); err != nil || len(fields) != 1 {
			return nil, fmt.Errorf("[%d]: want an object with one key, the plugin", i)
		}
		out = append(out, item)
	}
	return out, nil
}

func skip(raw json.RawMessage) (*string, error) {
	if on, err := truth(raw); err == nil {
		if !on {
			return nil, nil
		}
		return new(string), nil
	}
	reason, err := text(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("got %s, want true, false or a reason", jsonType(raw))
	case reason == "":
		return nil, nil
	case len(reason) > 70:
		return nil, fmt.Errorf("got a reason of %d characters, want at most 70", len(reason))
	}
	return &reason, nil
}

func checkout(raw json.RawMessage) (Checkout, error) {
	fields, err := object(raw)
	if err != nil {
		return Checkout{}, err
	}
	var out Checkout
	for name, value := range fields {
		on, err := truth(value)
		switch name {
		case "skip":
			out.Skip = &on
		case "submodules":
			out.Submodules = &on
		case "lfs":
			out.LFS = &on
		default:
			return Checkout{}, fmt.Errorf("%s is not supported by kblocal, only skip, submodules and lfs", name)
		}
		if err != nil {
			return Checkout{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}
