package steps

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
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
		"signature":               ignore, // kept in JSON
	}),
	Wait: with(common, map[string]setter{
		"wait":                title,
		"waiter":              title,
		"continue_on_failure": set(func(s *Step) *bool { return &s.ContinueOnFailure }, truth),
	}),
	Group: with(common, map[string]setter{
		"group": title,
		"skip":  set(func(s *Step) **string { return &s.Skip }, skip),
		"steps": ignore, // read by parseStep, which knows the path
	}),
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

func with(a, b map[string]setter) map[string]setter {
	out := maps.Clone(a)
	maps.Copy(out, b)
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
