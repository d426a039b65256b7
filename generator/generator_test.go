package generator

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/pipelines"
)

func TestUnknownVendorHasNoDefault(t *testing.T) {
	intel := pipelines.GPUType{Vendor: "intel", Platform: pipelines.Docker}
	if err := addDevices(&node{kind: mapping}, intel); err == nil {
		t.Error(`addDevices(vendor "intel") = nil, want an error`)
	}
	if _, err := kubernetesPlugin(pipelines.CommandStep{On: intel}); err == nil {
		t.Error(`kubernetesPlugin(vendor "intel") = nil, want an error`)
	}
	if _, err := command(pipelines.CommandStep{On: pipelines.GPUType{Platform: "moon"}}); err == nil {
		t.Error(`command(platform "moon") = nil, want an error`)
	}
	tpu := row(t, "GOOGLE_TPU")
	tpu.Isolation, tpu.MachineGPUs = pipelines.Step, 1
	if out, err := evaluate(pipelines.Request{GPUs: pipelines.Table{tpu}}); err == nil {
		t.Errorf("a TPU with step isolation gives\n%s\nwant an error", out)
	}
}

// What a node owns stays unwritten on a node, and is written elsewhere.
func TestIsolationDecidesWhoNamesDevices(t *testing.T) {
	nodeOwned := []string{"gpus:", "devices:", "cpus:", "memory:", "additional-groups:", "runtime:", "privileged:", "volumes:"}
	for _, g := range pipelines.Fleet.Available() {
		out, err := evaluate(pipelines.Request{GPUs: pipelines.Table{g}})
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
		out, err := evaluate(pipelines.Request{GPUs: pipelines.Table{stepRow(row(t, name))}})
		if err != nil || !bytes.Contains(out, []byte(want)) || !bytes.Contains(out, []byte(` cpus: "8"`)) {
			t.Errorf("Evaluate(%s with step isolation) = %v, want it to contain %q:\n%s", name, err, want, out)
		}
	}
}

// A variable that a container step sets but does not pass on would not arrive.
func TestContainersGetWhatTheStepSets(t *testing.T) {
	for _, p := range pipelines.Pipelines {
		for _, g := range pipelines.Fleet.On() {
			r := pipelines.Request{GPUs: pipelines.Table{g}, Secret: &pipelines.Run{ID: "s"}}
			steps, nodes, err := build(p, r)
			if err != nil {
				continue // a pipeline that does not serve the row
			}
			for i, s := range steps {
				n := nodes[i].get("plugins")
				if n == nil || n.items[0].names[0] != dockerSource {
					continue
				}
				var passed []string
				for _, name := range n.items[0].items[0].get("environment").items {
					passed = append(passed, name.text)
				}
				for _, name := range nodes[i].get("env").names {
					if !slices.Contains(passed, name) {
						t.Errorf("%s: the step sets %s, the container gets %q only", s.Key, name, passed)
					}
				}
				if d := nodes[i].get("env").get("KERNELBOT_DEADLINE"); d != nil {
					deadline, err := time.ParseDuration(d.text)
					if err != nil || deadline <= 0 || deadline >= s.Timeout {
						t.Errorf("%s: kbrun's deadline is %q (%v), want one below the timeout of %v", s.Key, d.text, err, s.Timeout)
					}
				}
			}
		}
	}
}

// No step of any pipeline prints a value that only the build knows.
func TestSecretRunIsNamedNotPasted(t *testing.T) {
	p, _ := pipelines.Find("evaluate")
	r := pipelines.Request{GPUs: pipelines.Fleet.On(), Secret: &pipelines.Run{ID: "s", PayloadChunks: 2}}
	out, err := Render(p, r, YAML)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"evaluate-h100-secret", "command: exec kbrun evaluate --secret", "- KERNELBOT_SECRET_PAYLOAD_1"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("Render lacks %q", want)
		}
	}
	if n := bytes.Count(out, []byte("- KERNELBOT_SECRET_PAYLOAD_1\n")); n == 0 {
		t.Error("no container gets the secret payload")
	}
}

func TestParts(t *testing.T) {
	p, _ := pipelines.Find("evaluate")
	r := pipelines.Request{GPUs: many(7)}
	for jobs, want := range map[int]int{1: 7, 3: 3, 7: 1, 500: 1} {
		parts, err := RenderParts(p, r, YAML, jobs)
		if err != nil || len(parts) != want {
			t.Errorf("RenderParts(7 steps, %d) = %d documents, %v, want %d", jobs, len(parts), err, want)
		}
		if whole, _ := Render(p, r, YAML); bytes.Count(bytes.Join(parts, nil), []byte("- key:")) != bytes.Count(whole, []byte("- key:")) {
			t.Errorf("RenderParts(7 steps, %d) lost steps", jobs)
		}
	}
	image, _ := pipelines.Find("image")
	parts, err := RenderParts(image, pipelines.Request{GPUs: pipelines.Table{row(t, "H100_BK")}}, YAML, 1)
	if err != nil || len(parts) != 3 {
		t.Errorf("RenderParts(a step that depends on one in an earlier document) = %d documents, %v, want 3", len(parts), err)
	}
	for _, jobs := range []int{0, 501} {
		if _, err := RenderParts(p, r, YAML, jobs); err == nil {
			t.Errorf("RenderParts(%d jobs) = nil, want an error", jobs)
		}
	}
	if _, err := Render(p, pipelines.Request{GPUs: many(501)}, YAML); err == nil || !strings.Contains(err.Error(), "Buildkite takes 500") {
		t.Errorf("Render(501 steps) = %v, want the limit", err)
	}
}

func TestJSONMeansTheSame(t *testing.T) {
	p, _ := pipelines.Find("evaluate")
	r := pipelines.Request{GPUs: pipelines.Fleet.On(), Run: pipelines.Run{PayloadChunks: 2}, Secret: &pipelines.Run{ID: "s"}}
	asYAML, err := Render(p, r, YAML)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := Render(p, r, JSON)
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
func wild(text string) []node {
	env, config, step := node{kind: mapping}, node{kind: mapping}, node{kind: mapping}
	env.set("TEXT", str(text))
	config.set("x"+text, str(text))
	step.set("key", str("wild"))
	step.set("label", str(text+"."))
	step.set("command", str("echo "+text))
	step.set("agents", agents("q", ""))
	step.set("env", env)
	step.set("timeout_in_minutes", num(1))
	step.set("retry", retry(pipelines.RetryMachine, pipelines.Host))
	step.set("plugins", plugin("other#v1", config))
	return []node{step}
}

func TestDollarSignsSurviveInterpolation(t *testing.T) {
	for _, text := range []string{"$HOME", "${X}", "${X:-y}", "${X?no}", "$$", "$$X", "$(date)", "`$X`", "$5", "$", "a$",
		`\\$X`, "${X%%.*}", "${unclosed", "$_X", "$$$X", "é$X", "$X\n$Y\n", "'$X'", `"$X"`, "# $X", "no: $X", "\t$X"} {
		for _, asJSON := range []bool{false, true} {
			out, err := render(nil, wild(text), nil, map[bool]Format{false: YAML, true: JSON}[asJSON])
			if err != nil {
				t.Errorf("render(%q, JSON %v) = %v, want it to come through interpolation unchanged", text, asJSON, err)
			}
			if err := interpolatesAsAgent(out, wild(text)); err != nil {
				t.Errorf("render(%q, JSON %v): %v", text, asJSON, err)
			}
			if bytes.Count(out, []byte("$"))%2 != 0 {
				t.Errorf("render(%q, JSON %v): a dollar sign stands alone:\n%s", text, asJSON, out)
			}
		}
	}
	for _, text := range []string{`\$X`, `\\\$X`, `a\$`} {
		if out, err := render(nil, wild(text), nil, YAML); err == nil || out != nil || !strings.Contains(err.Error(), "behind a backslash") {
			t.Errorf("render(%q) = %q, %v, want a refusal", text, out, err)
		}
	}
}

// Text that a step cannot hold is refused; whatever is not, comes through.
func FuzzDollarSigns(f *testing.F) {
	f.Add("$X ${Y:-z} $$ \\\\$")
	f.Add("plain \\ text")
	f.Fuzz(func(t *testing.T, text string) {
		out, err := render(nil, wild(text), nil, YAML)
		switch {
		case err == nil && !valid(out):
			t.Errorf("render(%q) gave what schema/pipeline refuses", text)
		case err != nil && strings.Contains(err.Error(), "changes the pipeline"):
			t.Errorf("render(%q) = %v", text, err)
		case err != nil && out != nil:
			t.Errorf("render(%q) = %q with an error", text, out)
		case err == nil:
			if err := interpolatesAsAgent(out, wild(text)); err != nil {
				t.Errorf("render(%q): %v", text, err)
			}
		}
	})
}

// The checks see what an unescaped document would become, and one that says
// something else.
func TestCheckIsAbleToFail(t *testing.T) {
	doc := func(command string) []byte {
		return []byte("steps:\n  - key: a\n    label: a\n    timeout_in_minutes: 5\n    agents:\n      queue: q\n    command: " + command + "\n")
	}
	steps := func(command string) []node {
		n := node{kind: mapping}
		n.set("key", str("a"))
		n.set("label", str("a"))
		n.set("timeout_in_minutes", num(5))
		agents := node{kind: mapping}
		agents.set("queue", str("q"))
		n.set("agents", agents)
		n.set("command", str(command))
		return []node{n}
	}
	for _, tt := range []struct{ name, out, steps, want string }{
		{"variable in an empty environment", "echo $HOME", "echo $HOME", "$HOME is replaced when the pipeline is uploaded"},
		{"default value", "echo ${X:-y}", "echo y", "${X:-y} is replaced when the pipeline is uploaded"},
		{"other text", "echo a", "echo b", "steps[0].command does not read as wanted"},
		{"number for text", "1", "1", "got 1, want text"},
		{"a step more", "a\n  - key: b\n    label: b\n    command: b\n    timeout_in_minutes: 5\n    agents: {queue: q}", "a", "pipeline.steps does not read as wanted"},
		{"a key more", "a\n    branches: b", "a", "does not read as wanted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := check(nil, doc(tt.out), steps(tt.steps))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("check(%q, %q) = %v, want %q", tt.out, tt.steps, err, tt.want)
			}
		})
	}
	for _, tt := range []struct{ name, out, steps, want string }{
		{"variable in an empty environment", "echo $HOME", "echo $HOME", "it replaces $HOME"},
		{"default value", "echo ${X:-y}", "echo y", "it replaces $X"},
		{"broken expansion", "echo ${5}", "echo ${5}", "interpolating: "},
	} {
		t.Run("interpolation: "+tt.name, func(t *testing.T) {
			p, err := parseAsAgent(doc(tt.out))
			if err != nil {
				t.Fatal(err)
			}
			err = interpolates(p, steps(tt.steps))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("interpolates(%q, %q) = %v, want %q", tt.out, tt.steps, err, tt.want)
			}
		})
	}
	for _, tt := range []struct{ name, out, want string }{
		{"a step without a type", "steps:\n  - label: no type\n", "KB010"},
		{"no steps", "steps: []\n", "at least one"},
		{"what the agent's parser warns of", "steps:\n  - {key: a, label: 2026-01-01, command: a, timeout_in_minutes: 5, agents: {queue: q}}\n", "KB007"},
		{"what the agent's parser refuses", "secrets: [{key: ''}]\nsteps:\n  - {key: a, label: a, command: a, timeout_in_minutes: 5, agents: {queue: q}}\n", "KB801"},
	} {
		if err := check(nil, []byte(tt.out), nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("check(%s) = %v, want %q", tt.name, err, tt.want)
		}
	}
	if check := new(CheckError); !errors.As(error(&CheckError{errors.New("x")}), &check) {
		t.Error("a CheckError is none")
	}
}

// check takes a shortcut for documents without a dollar sign. This is why it may.
func TestInterpolationLeavesOtherTextAlone(t *testing.T) {
	for _, text := range []string{`\`, `\\`, `\x\\y\\\z`, "`x`", "{{matrix}}", "a\\\nb", "%", "é\u2028", "#{x}"} {
		doc, err := write(documentOf(wild(text)), nil, YAML)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parseAsAgent(doc)
		if err != nil {
			t.Fatalf("%q: %v in\n%s", text, err, doc)
		}
		before, _ := json.Marshal(p)
		if err := p.Interpolate(agentEnv{variables{hostile: true}}, false); err != nil {
			t.Fatal(err)
		}
		if after, _ := json.Marshal(p); !bytes.Equal(before, after) {
			t.Errorf("interpolation turns %s into %s", before, after)
		}
	}
}

// A secret of either store reaches the image step's command; a step that runs a
// submission cannot be written down with one.
func TestSecretsOfSteps(t *testing.T) {
	p, _ := pipelines.Find("image")
	for store, want := range map[pipelines.SecretStore][2]string{
		pipelines.BuildkiteStore: {"    secrets:\n      - REGISTRY_TOKEN\n", "secret get"},
		pipelines.SealedStore:    {"    command: |-\n      REGISTRY_TOKEN=$$(kbgen secret get REGISTRY_TOKEN)\n", "secrets:"},
	} {
		out, err := Render(p, pipelines.Request{Registry: pipelines.Secret{Name: "REGISTRY_TOKEN", Store: store}}, YAML)
		if err != nil {
			t.Fatal(err)
		}
		login := `printf %s "$$REGISTRY_TOKEN" | docker login ghcr.io --username gpu-mode --password-stdin` + "\n      docker push"
		if bytes.Count(out, []byte(want[0])) != 2 || bytes.Count(out, []byte(login)) != 2 || bytes.Contains(out, []byte(want[1])) {
			t.Errorf("store %s:\n%s", store, out)
		}
	}
	if out, err := Render(p, pipelines.Request{}, YAML); err != nil || bytes.Contains(out, []byte("TOKEN")) || bytes.Contains(out, []byte("login")) {
		t.Errorf("without a secret: %v\n%s", err, out)
	}
	evaluate, _ := pipelines.Find("evaluate")
	steps, err := evaluate.Steps(pipelines.Request{GPUs: pipelines.Table{row(t, "H100_BK")}})
	if err != nil {
		t.Fatal(err)
	}
	steps[0].Secrets = []pipelines.Secret{{Name: "REGISTRY_TOKEN", Store: pipelines.BuildkiteStore}}
	if _, err := command(steps[0]); err == nil || !strings.Contains(err.Error(), "runs a submission") {
		t.Errorf("a submission's step with a secret: %v", err)
	}
}

// get returns the value of a mapping's name, nil when it has none.
func (n *node) get(name string) *node {
	if i := slices.Index(n.names, name); i >= 0 {
		return &n.items[i]
	}
	return nil
}
