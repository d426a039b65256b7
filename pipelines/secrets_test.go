package pipelines

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

func TestParseSecret(t *testing.T) {
	for text, want := range map[string]Secret{
		"REGISTRY_TOKEN":           {"REGISTRY_TOKEN", BuildkiteStore},
		"buildkite:REGISTRY_TOKEN": {"REGISTRY_TOKEN", BuildkiteStore},
		"kbsec1:T2":                {"T2", SealedStore},
	} {
		if got, err := ParseSecret(text); got != want || err != nil {
			t.Errorf("ParseSecret(%q) = %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                             "capital letters",
		"token":                        "capital letters",
		"2FA":                          "capital letters",
		"A-B":                          "capital letters",
		"$(id)":                        "capital letters",
		"BUILDKITE_TOKEN":              "neither BUILDKITE nor BK",
		"BK_TOKEN":                     "neither BUILDKITE nor BK",
		"T" + strings.Repeat("x", 255): "capital letters",
		"T" + strings.Repeat("X", 255): "capital letters",
		"vault:TOKEN":                  "unknown store of secrets \"vault\"",
		":TOKEN":                       "unknown store of secrets \"\"",
		"kbsec1:":                      "capital letters",
	} {
		if got, err := ParseSecret(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseSecret(%.20q) = %+v, %v, want an error with %q", text, got, err, want)
		}
	}
}

// Whatever runs a submission can have no secret, nor what runs in a container; and
// no pipeline but image's takes one.
func TestSecretsNeverMeetSubmissions(t *testing.T) {
	secret := Secret{"REGISTRY_TOKEN", BuildkiteStore}
	may := map[string]bool{}
	for _, p := range Pipelines {
		for _, g := range Fleet.On() {
			if p.Serves != nil && !p.Serves(g) {
				continue
			}
			r := Request{GPUs: Table{g}}
			if p.Name == "evaluate" {
				r.Secret = &Run{ID: "second"}
			}
			steps, err := p.Steps(r)
			if err != nil {
				t.Fatalf("%s on %s: %v", p.Name, g.Name, err)
			}
			for _, s := range steps {
				if err := s.Validate(); err != nil {
					t.Errorf("%s: %v", s.Key, err)
				}
				judges := slices.ContainsFunc(s.Command, func(line string) bool { return strings.Contains(line, judge) }) ||
					slices.Contains(s.Env, Var{schema.EnvUntrusted, "true"})
				if judges && !s.Secure {
					t.Errorf("%s runs a submission and is not marked Secure", s.Key)
				}
				s.Secrets = []Secret{secret}
				if ok := s.Validate() == nil; ok && judges || ok && !s.Bare && g.Platform != Host {
					t.Errorf("%s of pipeline %s may have a secret", s.Key, p.Name)
				} else if ok {
					may[s.Kind] = true
				}
			}
			r.Registry = secret
			if steps, err := p.Steps(r); err == nil && p.Name != "image" {
				t.Errorf("pipeline %s takes a registry's secret: %+v", p.Name, steps)
			}
		}
	}
	for kind, want := range map[string]bool{"build-image": true, "bootstrap": true, "evaluate": false, "secret": false} {
		if may[kind] != want {
			t.Errorf("a step of kind %s may have secrets: got %v", kind, may[kind])
		}
	}
}
