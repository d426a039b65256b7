package setup

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/pipelines"
	"gopkg.in/yaml.v3"
)

// What a host row's slot may run is what kbgen's steps for the row run, each as
// the agent gets it: the upload turns $$ into $.
func TestRowCommands(t *testing.T) {
	rows, err := Rows()
	if err != nil {
		t.Fatal(err)
	}
	hosts := 0
	for _, g := range pipelines.Fleet {
		row := rows[g.Name]
		if g.Platform != pipelines.Host {
			if len(row.Commands) > 0 {
				t.Errorf("%s has commands of its own", g.Name)
			}
			continue
		}
		hosts++
		for _, name := range stepsOfRows {
			p, err := pipelines.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			if p.Serves != nil && !p.Serves(g) {
				continue
			}
			doc, err := generator.Render(p, pipelines.Request{GPUs: []pipelines.GPUType{g}}, generator.YAML)
			if err != nil {
				t.Fatal(err)
			}
			doc = bytes.ReplaceAll(doc, []byte("$$"), []byte("$"))
			var rendered struct{ Steps []struct{ Command string } }
			if err := yaml.Unmarshal(doc, &rendered); err != nil || len(rendered.Steps) == 0 {
				t.Fatalf("%s: %d steps, %v", name, len(rendered.Steps), err)
			}
			for _, s := range rendered.Steps {
				if !slices.Contains(row.Commands, s.Command) {
					t.Errorf("%s: pipeline %s runs what its slot refuses:\n%s", g.Name, name, s.Command)
				}
			}
		}
		if !slices.Contains(row.Commands, "exec kbrun evaluate --secret") {
			t.Errorf("%s: the secret run is refused", g.Name)
		}
	}
	if hosts == 0 {
		t.Error("no row runs on the host")
	}
}

// A service that neither takes nor refuses the token is named in a note.
func TestUncheckedTokensAreNoted(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusOK: "", http.StatusUnauthorized: "", http.StatusNotFound: "note: the token is not checked: URL/token answers with status 404",
	} {
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		defer service.Close()
		got := ""
		err := CheckToken(t.Context(), service.URL, []byte("bkct_secret"), func(format string, args ...any) { got += fmt.Sprintf(format, args...) })
		if want = strings.Replace(want, "URL", service.URL, 1); got != want || (err != nil) != (status == http.StatusUnauthorized) {
			t.Errorf("CheckToken with status %d: note %q, error %v, want note %q", status, got, err, want)
		}
	}
}

// A text that cannot be an agent's token is told before anybody is asked.
func TestNotToken(t *testing.T) {
	for raw, want := range map[string]string{
		"bkct_" + strings.Repeat("aB3", 10):   "",
		strings.Repeat("0123456789abcdef", 3): "",
		"":                                    "nothing",
		"two words":                           "something with spaces",
		"line\nline":                          "something with spaces",
		"bkua_" + strings.Repeat("0f", 20):    "a Buildkite API token",
		"bkua_short":                          "a Buildkite API token",
		"ghp_" + strings.Repeat("a1", 18):     "a GitHub token",
		strings.Repeat("x", maxToken+1):       "more than 1024 bytes",
		"-1":                                  "2 characters",
	} {
		if got := notToken([]byte(raw)); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("notToken(%.20q) = %q, want %q", raw, got, want)
		}
	}
}
