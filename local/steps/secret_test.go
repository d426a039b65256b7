package steps

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestSecrets(t *testing.T) {
	for raw, want := range map[string][]Secret{
		`["A", "b_2"]`:                        {{"A", "A"}, {"b_2", "b_2"}},
		`{"VARIABLE": "KEY", "OTHER": "KEY"}`: {{"KEY", "OTHER"}, {"KEY", "VARIABLE"}},
		`[{"key": "K", "environment_variable": "V"}, {"key": "L"}]`: {{"K", "V"}, {"L", ""}},
		`[]`: nil, `{}`: nil,
	} {
		if got, err := secrets(json.RawMessage(raw)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", raw, got, err, want)
		}
	}
	for _, raw := range []string{`null`, `"A"`, `3`, `[3]`, `[{"key": 3}]`, `[{}]`, `{"V": 3}`, `[""]`, `["a-b"]`, `["1A"]`, `["BUILDKITE_TOKEN"]`, `["bk_token"]`, `["` + strings.Repeat("a", 256) + `"]`} {
		if got, err := secrets(json.RawMessage(raw)); err == nil {
			t.Errorf("%.40s: got %v, want an error", raw, got)
		}
	}
}

// A document's secrets are its command steps', as the agent reads them; a step's own
// beat them.
func TestSecretsOfDocument(t *testing.T) {
	doc, err := Parse([]byte(`{"secrets": {"A": "SHARED", "B": "SHARED"}, "steps": [
		{"command": "x", "secrets": ["A"]}, {"group": "g", "steps": [{"command": "y"}]}, {"wait": null}
	]}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	doc.Walk(func(s *Step) {
		var step struct {
			Secrets []Secret `json:"secrets"`
		}
		if err := json.Unmarshal(s.JSON, &step); err != nil && s.Kind == Command {
			t.Fatal(err)
		}
		if !slices.Equal(step.Secrets, s.Secrets) && s.Kind == Command {
			t.Errorf("the agent reads %v, want %v", step.Secrets, s.Secrets)
		}
		for _, x := range s.Secrets {
			got = append(got, s.Command+": "+x.Variable+" of "+x.Key)
		}
	})
	if want := []string{"x: A of A", "x: B of SHARED", "y: A of SHARED", "y: B of SHARED"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
