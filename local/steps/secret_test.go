package steps

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	agentparser "github.com/buildkite/go-pipeline"
)

func TestSecrets(t *testing.T) {
	for raw, want := range map[string]string{
		`["A", "b_2"]`:                        "[A=A b_2=b_2]",
		`{"VARIABLE": "KEY", "OTHER": "KEY"}`: "[VARIABLE=KEY OTHER=KEY]",
		`[{"key": "K", "environment_variable": "V"}, {"key": "L"}]`: "[V=K =L]",
		`[]`: "[]", `{}`: "[]",
	} {
		doc, err := Parse([]byte(`{"steps": [{"command": "x", "secrets": ` + raw + `}]}`))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		got := []string{}
		for _, s := range doc.Steps[0].secrets.Secrets {
			got = append(got, s.EnvironmentVariable+"="+s.Key)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: got %v, want %v", raw, got, want)
		}
	}
	for _, raw := range []string{`"A"`, `3`, `[3]`, `[{"key": 3}]`, `[{}]`, `{"V": 3}`, `[""]`, `["a-b"]`, `["1A"]`, `["BUILDKITE_TOKEN"]`, `["bk_token"]`, `["` + strings.Repeat("a", 256) + `"]`} {
		if _, err := Parse([]byte(`{"steps": [{"command": "x", "secrets": ` + raw + `}]}`)); err == nil {
			t.Errorf("%.40s: got no error", raw)
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
	for _, s := range doc.All() {
		if s.Kind != Command {
			continue
		}
		var step struct {
			Secrets agentparser.Secrets `json:"secrets"`
		}
		if err := json.Unmarshal(s.JSON, &step); err != nil {
			t.Fatal(err)
		}
		for _, x := range step.Secrets {
			got = append(got, s.Command+": "+x.EnvironmentVariable+" of "+x.Key)
		}
	}
	if want := []string{"x: A of A", "x: B of SHARED", "y: A of SHARED", "y: B of SHARED"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
