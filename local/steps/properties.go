package steps

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// properties lists what a step may have, with the fields that take the values.
// Package pipeline says which kind of step has which; nil stands for what needs
// no field, and what is missing is refused.
func (s *Step) properties() map[string]any {
	// title is the label of `wait: "text"` and `group: "text"`; empty is no label.
	title := set(func(text scalar) { s.Label = cmp.Or(string(text), s.Label) })
	// command is one line or several.
	command := set(func(lines words) { s.Command = strings.Join(lines, "\n") })
	return map[string]any{
		"key": &s.Key, "id": &s.Key,
		"label": &s.Label, "name": &s.Label,
		"block": title, "input": title, "group": title, "wait": title, "waiter": title,
		"if":                       &s.If,
		"branches":                 set(func(list words) { s.On = strings.Fields(strings.Join(list, " ")) }), // "main release/*" or a list of such
		"depends_on":               (*dependencies)(&s.DependsOn),
		"allow_dependency_failure": (*flag)(&s.AllowDependencyFailure),
		"notify":                   &s.Notify,
		"continue_on_failure":      (*flag)(&s.ContinueOnFailure),

		"command": command, "commands": command,
		"env":                     (*environ)(&s.Env),
		"agents":                  (*agentRules)(&s.Agents),
		"plugins":                 (*plugins)(&s.Plugins),
		"priority":                (*number)(&s.Priority),
		"parallelism":             (*number)(&s.Parallelism),
		"soft_fail":               &s.SoftFail,
		"retry":                   &s.Retry,
		"skip":                    &s.Skip,
		"checkout":                &s.Checkout,
		"artifact_paths":          (*words)(&s.ArtifactPaths),
		"timeout_in_minutes":      set(func(minutes number) { s.Timeout = time.Duration(minutes) * time.Minute }),
		"concurrency":             (*number)(&s.Concurrency.Limit),
		"concurrency_group":       &s.Concurrency.Group,
		"concurrency_method":      set(func(method string) { s.Concurrency.Eager = method == "eager" }),
		"cancel_on_build_failing": (*flag)(&s.CancelOnBuildFailing),
		"matrix":                  &s.matrix,
		"secrets":                 &s.secrets,

		"prompt":        &s.Prompt,
		"submit":        &s.Submit,
		"fields":        (*formFields)(&s.Fields),
		"blocked_state": &s.BlockedState,

		"trigger": &s.Trigger.Pipeline,
		"async":   (*flag)(&s.Trigger.Async),
		"build":   &s.Trigger,

		"type":          nil, // read by kindOf
		"steps":         nil, // read by parseStep, which knows the path
		"signature":     nil, // kept in JSON
		"allowed_teams": nil, // there are no teams: whoever may act may unblock
	}
}

// A setter takes a value that becomes another.
type setter[T any] func(T)

func set[T any](fn setter[T]) *setter[T] { return &fn }

func (fn *setter[T]) UnmarshalJSON(raw []byte) error {
	var value T
	err := json.Unmarshal(raw, &value)
	(*fn)(value)
	return err
}

// agentRules are {"queue": "gpu"}, ["queue=gpu"] or "queue=gpu".
type agentRules []string

func (a *agentRules) UnmarshalJSON(raw []byte) error {
	if jsonType(raw) != "an object" {
		return json.Unmarshal(raw, (*words)(a))
	}
	var tags map[string]scalar
	if err := json.Unmarshal(raw, &tags); err != nil {
		return err
	}
	*a = agentRules{}
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		*a = append(*a, name+"="+string(tags[name]))
	}
	return nil
}

// plugins are a list of names and one-key objects, kept as objects.
type plugins []json.RawMessage

func (p *plugins) UnmarshalJSON(raw []byte) error {
	if jsonType(raw) != "a list" {
		return fmt.Errorf("got %s, want a list of one-key objects", jsonType(raw))
	}
	if err := json.Unmarshal(raw, (*[]json.RawMessage)(p)); err != nil {
		return err
	}
	for i, item := range *p {
		if jsonType(item) == "a string" {
			(*p)[i] = slices.Concat(json.RawMessage("{"), item, json.RawMessage(":null}"))
		}
		var one map[string]json.RawMessage
		if json.Unmarshal((*p)[i], &one) != nil || len(one) != 1 {
			return fmt.Errorf("[%d]: want an object with one key, the plugin", i)
		}
	}
	return nil
}

// Skip says whether a step is skipped, and why.
type Skip struct {
	On     bool
	Reason string
}

// UnmarshalJSON reads true, false or a reason.
func (s *Skip) UnmarshalJSON(raw []byte) error {
	var on flag
	if json.Unmarshal(raw, &on) == nil {
		s.On = bool(on)
		return nil
	}
	err := json.Unmarshal(raw, &s.Reason)
	s.On = s.Reason != ""
	return err
}

// Checkout holds the checkout settings that reach a job's environment.
type Checkout struct {
	Skip       *bool
	Submodules *bool
	LFS        *bool
}

// UnmarshalJSON refuses settings that do not reach it.
func (c *Checkout) UnmarshalJSON(raw []byte) error {
	var settings map[string]json.RawMessage
	if err := json.Unmarshal(raw, &settings); err != nil {
		return err
	}
	targets := map[string]**bool{"skip": &c.Skip, "submodules": &c.Submodules, "lfs": &c.LFS}
	for name, value := range settings {
		target, ok := targets[name]
		if !ok {
			return fmt.Errorf("%s is not supported by kblocal, only skip, submodules and lfs", name)
		}
		var on flag
		if err := json.Unmarshal(value, &on); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*target = (*bool)(&on)
	}
	return nil
}

// A Dependency names a step or group by key.
type Dependency struct {
	Key          string
	AllowFailure bool
}

// UnmarshalJSON reads a key or {step, allow_failure}.
func (d *Dependency) UnmarshalJSON(raw []byte) error {
	if jsonType(raw) != "an object" {
		return json.Unmarshal(raw, (*scalar)(&d.Key))
	}
	var in struct {
		Step         scalar
		AllowFailure flag `json:"allow_failure"`
	}
	err := json.Unmarshal(raw, &in)
	*d = Dependency{string(in.Step), bool(in.AllowFailure)}
	return err
}

// dependencies are every form of depends_on. The result is never nil.
type dependencies []Dependency

func (d *dependencies) UnmarshalJSON(raw []byte) error {
	*d = dependencies{}
	switch jsonType(raw) {
	case "null":
		return nil
	case "a list":
		return json.Unmarshal(raw, (*[]Dependency)(d))
	}
	var one Dependency
	err := json.Unmarshal(raw, &one)
	if one.Key != "" {
		*d = append(*d, one)
	}
	return err
}

// A Trigger is what a trigger step starts.
type Trigger struct {
	Pipeline string `json:"-"` // slug
	Async    bool   `json:"-"` // go on at once
	Message  string // the step's label when empty
	Commit   string // "HEAD" when empty
	Branch   string // the pipeline's default branch when empty
	Env      pairs
	MetaData pairs `json:"meta_data"`
}

// complete checks and makes what needs more than one property.
func (s *Step) complete() error {
	if err := CheckEnv(s.Trigger.Env); err != nil {
		return fmt.Errorf("build: env: %w", err)
	}
	if s.matrix == nil {
		return nil
	}
	if s.Parallelism > 0 {
		return errors.New("matrix: not beside parallelism")
	}
	return s.expand()
}
