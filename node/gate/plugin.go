package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/proxy"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// sources are the spellings of the one plugin: what the agent uploads, and what a
// step in Buildkite's settings says.
var sources = []string{
	schema.PluginSource + "#" + schema.PluginVersion,
	"docker#" + schema.PluginVersion,
}

// A Container is what a step says about its container, in the words of the docker
// plugin's settings.
type Container struct {
	Image       string   `json:"image"` // one of the slot's
	Init        *bool    `json:"init"`  // docker's own first process; nil is true
	ShmSize     string   `json:"shm-size"`
	Environment []string `json:"environment"` // names of the job's variables
	Ulimits     []string `json:"ulimits"`     // "core=0"
	Tmpfs       []string `json:"tmpfs"`       // "/tmp:exec,size=8g"
	DropCaps    []string `json:"drop-caps"`
	Security    []string `json:"security-opts"`
}

// container reads a job's plugins, which must be the pinned docker plugin as kbgen
// uses it.
func container(s *node.Slot, raw string) (*Container, error) {
	var all []json.RawMessage
	if strings.TrimSpace(raw) == "" {
		return nil, fmt.Errorf("plugins: got none, want %s: slot %s runs containers only", sources[0], s.Name)
	}
	if err := json.Unmarshal([]byte(raw), &all); err != nil {
		return nil, fmt.Errorf("plugins: want a list with %s only, got something else", sources[0])
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("plugins: got %d, want %s alone", len(all), sources[0])
	}
	one, err := object(all[0])
	if err != nil || len(one) != 1 {
		return nil, fmt.Errorf("plugins: want an object with the key %s only, got something else", sources[0])
	}
	for source, settings := range one {
		if !slices.Contains(sources, source) {
			return nil, fmt.Errorf("plugins: got %s, want %s", text.Quote(source), sources[0])
		}
		if err := configuration(s, settings); err != nil {
			return nil, err
		}
		c := &Container{}
		return c, json.Unmarshal(settings, c)
	}
	return nil, nil
}

// A setting checks the value of one key and says what it should be.
type setting struct {
	good func(s *node.Slot, value any) bool
	want string
}

// settings are the keys that kbgen writes for a slot's rows. Node isolation means
// that none of them is about devices, cores or memory.
//
// Source: generator/docker.go; a test compares them with what it writes.
var settings = map[string]setting{
	"image":                 {func(s *node.Slot, v any) bool { name, ok := v.(string); return ok && slices.Contains(s.Images, name) }, "one of the slot's images"},
	"skip-checkout":         {just(true), "true"},
	"mount-buildkite-agent": {just(false), "false"},
	"propagate-uid-gid":     {just(true), "true"},
	"init":                  {truth, "true or false"},
	"tty":                   {just(false), "false"},
	"network":               {just("none"), "none"},
	"shm-size":              {matching(`^[0-9]{1,6}[kmg]?$`), "a size such as 8g"},
	"environment":           {each(name), "names of variables"},
	"ulimits":               {each(matching(`^(memlock|core|nofile|stack)=-?[0-9]{1,18}(:-?[0-9]{1,18})?$`)), "limits such as core=0"},
	"drop-caps":             {each(just("ALL")), "ALL"},
	"security-opts":         {each(just("no-new-privileges")), "no-new-privileges"},
	"tmpfs":                 {each(matching(`^/(tmp|var/tmp|run)(:[a-z0-9=,]{1,100})?$`)), "such as /tmp:size=8g"},
}

// needed are the keys without which a step is none of kbgen's.
var needed = []string{"image", "skip-checkout", "network"}

// configuration checks what the plugin is told.
func configuration(s *node.Slot, raw json.RawMessage) error {
	config, err := object(raw)
	if err != nil {
		return fmt.Errorf("docker plugin: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(config)) {
		rule, known := settings[key]
		if !known {
			return fmt.Errorf("docker plugin: %s: the node decides that, want none but %s", text.Quote(key), strings.Join(slices.Sorted(maps.Keys(settings)), ", "))
		}
		var value any
		if err := json.Unmarshal(config[key], &value); err != nil || !rule.good(s, value) {
			want := rule.want
			if key == "image" {
				want = fmt.Sprintf("one of %q", s.Images)
			}
			return fmt.Errorf("docker plugin: %s: got %s, want %s", key, text.Line(string(config[key]), 80), want)
		}
	}
	for _, key := range needed {
		if _, there := config[key]; !there {
			return fmt.Errorf("docker plugin: %s: got none", key)
		}
	}
	return nil
}

// object decodes an object and refuses one that names a key twice: the agent might
// take the other.
func object(raw json.RawMessage) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("got no settings, want an object")
	}
	out := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, errors.New("got settings that cannot be read")
		}
		key, _ := t.(string)
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("%s: got it twice", text.Quote(key))
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, errors.New("got settings that cannot be read")
		}
		out[key] = value
	}
	if _, err := d.Token(); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New("got settings that cannot be read")
	}
	return out, nil
}

func just[T comparable](want T) func(*node.Slot, any) bool {
	return func(_ *node.Slot, v any) bool { got, ok := v.(T); return ok && got == want }
}

func truth(_ *node.Slot, v any) bool { _, ok := v.(bool); return ok }

func matching(expr string) func(*node.Slot, any) bool {
	pattern := regexp.MustCompile(expr)
	return func(_ *node.Slot, v any) bool { got, ok := v.(string); return ok && pattern.MatchString(got) }
}

// name is that of a variable that may go into the container, without a value.
func name(_ *node.Slot, v any) bool {
	got, ok := v.(string)
	return ok && proxy.Passes(got) && !strings.Contains(got, "=")
}

func each(good func(*node.Slot, any) bool) func(*node.Slot, any) bool {
	return func(s *node.Slot, v any) bool {
		list, ok := v.([]any)
		return ok && !slices.ContainsFunc(list, func(one any) bool { return !good(s, one) })
	}
}
