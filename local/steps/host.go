package steps

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"strings"
)

// dockerPlugin matches the source of the docker plugin, in every form of it.
var dockerPlugin = regexp.MustCompile(`(^|/)docker(-buildkite-plugin)?(\.git)?(#|$)`)

// OnHost returns the step without its docker plugin, and the image it names; the
// step itself and "" when it has none. What the plugin's environment sets is in
// the step's; the plugin's own command is not the step's, and stays out.
func (s *Step) OnHost() (*Step, string) {
	for i, raw := range s.Plugins {
		var one map[string]json.RawMessage
		if json.Unmarshal(raw, &one) != nil {
			continue
		}
		for source, config := range one {
			if !dockerPlugin.MatchString(source) {
				continue
			}
			var docker struct {
				Image       string   `json:"image"`
				Environment []string `json:"environment"`
			}
			_ = json.Unmarshal(config, &docker) // options of other types do not matter here
			out := *s
			out.Plugins = append(append([]json.RawMessage{}, s.Plugins[:i]...), s.Plugins[i+1:]...)
			out.Env = make(map[string]string, len(s.Env))
			for _, item := range docker.Environment {
				if name, value, set := strings.Cut(item, "="); set && name != "" {
					out.Env[name] = value
				}
			}
			maps.Copy(out.Env, s.Env)
			return &out, cmp.Or(docker.Image, "its image")
		}
	}
	return s, ""
}
