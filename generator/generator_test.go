package generator

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema/pipeline"
)

func TestEvaluateRefuses(t *testing.T) {
	h100, mi300, cpu := row(t, "H100_BK"), row(t, "MI300_BK"), row(t, "CPU_BK")
	off, strange, broken := h100, h100, h100
	off.Off = "in repair"
	strange.Vendor = "intel"
	broken.Queue, broken.CPUs = "", 0
	for _, tt := range []struct {
		name string
		r    Request
		want []string
	}{
		{"nothing", Request{}, []string{"no GPU type given"}},
		{"a row that is off", Request{GPUs: pipelines.Table{off}}, []string{"H100_BK is switched off: in repair"}},
		{"a vendor nobody knows", Request{GPUs: pipelines.Table{strange}}, []string{`Vendor: got "intel"`}},
		{"every fault of a row", Request{GPUs: pipelines.Table{broken}}, []string{"Queue: got", "CPUs: got 0"}},
		{"one row twice", Request{GPUs: pipelines.Table{cpu, cpu}}, []string{"CPU_BK is asked for twice"}},
		{"too many chunks", Request{GPUs: pipelines.Table{h100}, PayloadChunks: 17}, []string{"payload chunks: got 17, want 0 to 16"}},
		{"fewer than none", Request{GPUs: pipelines.Table{h100}, PayloadChunks: -1}, []string{"payload chunks: got -1"}},
		{"image of today", Request{GPUs: pipelines.Table{h100}, Image: "ghcr.io/a/b:latest"}, []string{"is not pinned"}},
		{"one image, two vendors", Request{GPUs: pipelines.Table{cpu, h100, mi300}, Image: "ghcr.io/a/b:1"},
			[]string{"cannot serve GPU types of several vendors (H100_BK, MI300_BK)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := Evaluate(tt.r)
			if out != nil || err == nil {
				t.Fatalf("Evaluate = %q, %v, want nothing and an error", out, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Evaluate = %q, want it to contain %q", err, want)
				}
			}
		})
	}
}

func TestUnknownVendorHasNoDefault(t *testing.T) {
	if err := addDevices(&docker{}, pipelines.GPUType{Vendor: "intel"}); err == nil {
		t.Error(`addDevices(vendor "intel") = nil, want an error`)
	}
}

// What a node owns stays unwritten on a node, and is written elsewhere.
func TestIsolationDecidesWhoNamesDevices(t *testing.T) {
	nodeOwned := []string{"gpus:", "devices:", "cpus:", "memory:", "additional-groups:", "runtime:", "privileged:", "volumes:"}
	for _, g := range pipelines.Fleet {
		out, err := Evaluate(Request{GPUs: pipelines.Table{g}})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range nodeOwned {
			if bytes.Contains(out, []byte(" "+key)) {
				t.Errorf("Evaluate(%s) writes %s with node isolation:\n%s", g.Name, key, out)
			}
		}
	}
	for name, want := range map[string]string{"H100_BK": " gpus: all\n", "MI300_BK": " devices:\n"} {
		out, err := Evaluate(Request{GPUs: pipelines.Table{stepRow(row(t, name))}})
		if err != nil || !bytes.Contains(out, []byte(want)) || !bytes.Contains(out, []byte(` cpus: "8"`)) {
			t.Errorf("Evaluate(%s with step isolation) = %v, want it to contain %q:\n%s", name, err, want, out)
		}
	}
}

// A variable that a container step sets but does not pass on would not arrive.
func TestContainersGetWhatTheStepSets(t *testing.T) {
	for _, g := range pipelines.Fleet {
		step, err := evaluateStep(g, Request{})
		if err != nil {
			t.Fatal(err)
		}
		if len(step.Plugins) == 0 {
			continue
		}
		passed := step.Plugins[0].Config.(docker).Environment
		for name := range step.Env {
			if !slices.Contains(passed, name) {
				t.Errorf("%s: the step sets %s, the container gets %q only", g.Name, name, passed)
			}
		}
		deadline, err := time.ParseDuration(step.Env["KERNELBOT_DEADLINE"])
		if err != nil || deadline <= 0 || deadline >= g.Timeout {
			t.Errorf("%s: kbrun's deadline is %q (%v), want one below the timeout of %v", g.Name, step.Env["KERNELBOT_DEADLINE"], err, g.Timeout)
		}
	}
}

// matches tells whether a job that ended so would be retried. It follows
// Buildkite: the fields of a rule must all match, "*" and what is left out
// match anything, "none" matches a job without a signal reason.
func matches(rules []retryRule, status int, reason string) bool {
	for _, r := range rules {
		statusOK := r.ExitStatus == nil || *r.ExitStatus == status
		reasonOK := r.SignalReason == "" || r.SignalReason == reason || r.SignalReason == "none" && reason == ""
		if statusOK && reasonOK {
			return true
		}
	}
	return false
}

func TestOnlyInfrastructureIsRetried(t *testing.T) {
	for _, tt := range []struct {
		what   string
		status int
		reason string
		want   bool
	}{
		{"lost agent", -1, "", true},
		{"stopped agent", -1, "agent_stop", true},
		{"stopped agent, older kind", 255, "agent_stop", true},
		{"fault of the machine", 75, "", true},
		{"verdict", 0, "", false},
		{"payload that cannot work", 78, "", false},
		{"submission's crash", 255, "", false},
		{"out of memory", 137, "", false},
		{"failed check", 112, "", false},
		{"runner missing", 127, "", false},
		{"cancelled or timed out", -1, "cancel", false},
		{"environment too large, or docker refused", -1, "process_run_error", false},
		{"refused by the node", -1, "agent_refused", false},
		{"bad signature", -1, "signature_rejected", false},
	} {
		if got := matches(infraRetry().Automatic, tt.status, tt.reason); got != tt.want {
			t.Errorf("%s (exit status %d, signal reason %q): retried %v, want %v", tt.what, tt.status, tt.reason, got, tt.want)
		}
	}
	for _, r := range infraRetry().Automatic {
		if r.Limit < 1 || r.Limit > 2 {
			t.Errorf("rule %+v: limit %d, want 1 or 2", r, r.Limit)
		}
	}
}

func TestJSONMeansTheSame(t *testing.T) {
	r := Request{GPUs: pipelines.Fleet.Available(), PayloadChunks: 2}
	asYAML, err := Evaluate(r)
	if err != nil {
		t.Fatal(err)
	}
	r.JSON = true
	asJSON, err := Evaluate(r)
	if err != nil {
		t.Fatal(err)
	}
	var fromYAML, fromJSON any
	if err := yaml.Unmarshal(asYAML, &fromYAML); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(fromYAML)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &fromYAML); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(asJSON, &fromJSON); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fromYAML, fromJSON); diff != "" {
		t.Errorf("JSON and YAML differ (-YAML +JSON):\n%s", diff)
	}
}

// wild is a step as later pipelines may have it: full of dollar signs.
func wild(text string) document {
	return document{Steps: []commandStep{{
		Key: "wild", Label: text + ".", Command: "echo " + text, Agents: agents{Queue: "q"},
		Env: map[string]string{"TEXT": text}, TimeoutInMinutes: 1, Retry: infraRetry(),
		Plugins: []plugin{{Source: "other#v1", Config: map[string]string{"x" + text: text}}},
	}}}
}

func TestDollarSignsSurviveInterpolation(t *testing.T) {
	for _, text := range []string{"$HOME", "${X}", "${X:-y}", "${X?no}", "$$", "$$X", "$(date)", "`$X`", "$5", "$", "a$",
		`\\$X`, "${X%%.*}", "${unclosed", "$_X", "$$$X", "é$X", "$X\n$Y\n", "'$X'", `"$X"`, "# $X", "no: $X", "\t$X"} {
		for _, asJSON := range []bool{false, true} {
			out, err := render(wild(text), asJSON)
			if err != nil {
				t.Errorf("render(%q, JSON %v) = %v, want it to come through interpolation unchanged", text, asJSON, err)
			}
			if bytes.Count(out, []byte("$"))%2 != 0 {
				t.Errorf("render(%q, JSON %v): a dollar sign stands alone:\n%s", text, asJSON, out)
			}
		}
	}
	for _, text := range []string{`\$X`, `\\\$X`, `a\$`} {
		if out, err := render(wild(text), false); err == nil || out != nil || !strings.Contains(err.Error(), "behind a backslash") {
			t.Errorf("render(%q) = %q, %v, want a refusal", text, out, err)
		}
	}
}

// Text that a step cannot hold is refused; whatever is not, comes through.
func FuzzDollarSigns(f *testing.F) {
	f.Add("$X ${Y:-z} $$ \\\\$")
	f.Add("plain \\ text")
	f.Fuzz(func(t *testing.T, text string) {
		out, err := render(wild(text), false)
		switch {
		case err == nil && pipeline.Validate(out) != nil:
			t.Errorf("render(%q) gave what Validate refuses", text)
		case err != nil && strings.Contains(err.Error(), "changes the pipeline"):
			t.Errorf("render(%q) = %v", text, err)
		case err != nil && out != nil:
			t.Errorf("render(%q) = %q with an error", text, out)
		}
	})
}

// The checks see what an unescaped document would become.
func TestCheckIsAbleToFail(t *testing.T) {
	doc := func(command string) []byte {
		return []byte("steps:\n  - key: a\n    label: a\n    command: " + command + "\n")
	}
	for _, tt := range []struct{ name, out, meant, want string }{
		{"variable in an empty environment", "echo $HOME", "echo $HOME", "an empty environment changes"},
		{"default value", "echo ${X:-y}", "echo y", "a hostile environment changes"},
		{"broken expansion", "echo ${5}", "echo ${5}", "interpolating with an empty environment"},
		{"other text", "echo a", "echo b", "changes the pipeline"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := check(doc(tt.out), doc(tt.meant))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("check(%q, %q) = %v, want %q", tt.out, tt.meant, err, tt.want)
			}
		})
	}
	if _, err := parse([]byte("steps:\n  - label: no type\n")); err == nil || !strings.Contains(err.Error(), "the agent's parser warns") {
		t.Errorf("parse(step without a type) = %v, want the parser's warning as an error", err)
	}
	if _, err := parse([]byte("steps: []\n")); err == nil {
		t.Error("parse(no steps) = nil, want an error")
	}
}

// check takes a shortcut for documents without a dollar sign. This is why it may.
func TestInterpolationLeavesOtherTextAlone(t *testing.T) {
	for _, text := range []string{`\`, `\\`, `\x\\y\\\z`, "`x`", "{{matrix}}", "a\\\nb", "%", "é\u2028", "#{x}"} {
		doc, err := writeYAML(wild(text))
		if err != nil {
			t.Fatal(err)
		}
		p, err := parse(doc)
		if err != nil {
			t.Fatal(err)
		}
		before, _ := json.Marshal(p)
		if err := p.Interpolate(variables{hostile: true}, false); err != nil {
			t.Fatal(err)
		}
		if after, _ := json.Marshal(p); !bytes.Equal(before, after) {
			t.Errorf("interpolation turns %s into %s", before, after)
		}
	}
}
