package setup

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/node/resource"
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

// The plan for a machine with 8 GPUs fits a screen. It is made from the machine's facts,
// without systemd here.
func TestTheSummaryOfEightGPUsFitsAScreen(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	file := filepath.Join(t.TempDir(), "node.yml")
	err := os.WriteFile(file, []byte(`version: 1
vendor: nebius
contacts: [{name: Ops, email: ops@nebius.dev}]
nodes:
  - name: h100-01
    isolation: node
    machine: {cpus: 192, memory_gib: 1900, disk_gb: 2000, network_mbps: 10000}
    gpus:
      - {type: H100_BK, count: 8, queue: h100, agent: {cpus: 16, memory_gib: 64, disk_gb: 100}}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	target := &Target{File: file, Node: "h100-01", Facts: "../facts/testdata/nvidia-8.json", Root: "/"}
	p, err := target.Plan(t.Context(), nil, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := p.Write(&out, false); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); n > 40 || !strings.Contains(out.String(), "each SLOT of gpu0, gpu1, gpu2, gpu3, gpu4, gpu5, gpu6, gpu7:\n  make user kbagent-SLOT") {
		t.Errorf("the summary has %d lines, want at most 40 and one group for all slots:\n%s", n, out.String())
	}
}

// An agent that stops and starts is one restart, with its reason, and a slot to which
// something else happens has lines of its own.
func TestTheSummarySaysWhatRestartsAndWhy(t *testing.T) {
	var actions []resource.Action
	for _, verb := range []string{resource.Stop, resource.Change, resource.Start} {
		for _, slot := range []string{"gpu0", "gpu1"} {
			a := resource.Action{Kind: resource.KindUnit, Verb: verb, Name: "kbnode-agent@" + slot + ".service", Why: "/etc/kbnode/" + slot + "/agent.cfg changes", Drain: verb == resource.Stop}
			if verb == resource.Change {
				a = resource.Action{Kind: resource.KindFile, Verb: verb, Name: "/etc/kbnode/" + slot + "/agent.cfg"}
			}
			actions = append(actions, a)
		}
	}
	actions = append(actions, resource.Action{Kind: resource.KindUnit, Verb: resource.Stop, Name: "kbnode-agent@gpu2.service", Why: "wanted no longer", Drain: true})
	var got strings.Builder
	writeSummary(&got, actions)
	const want = `each SLOT of gpu0, gpu1:
  restart after its job kbnode-agent@SLOT.service (/etc/kbnode/SLOT/agent.cfg changes)
  change /etc/kbnode/SLOT/agent.cfg
gpu2:
  stop after its job kbnode-agent@gpu2.service (wanted no longer)
`
	if got.String() != want {
		t.Errorf("writeSummary:\ngot\n%swant\n%s", got.String(), want)
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
