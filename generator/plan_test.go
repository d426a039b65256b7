package generator

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/pipelines"
)

// Every value of every step has an origin, and its layer is one of the layers.
func TestEveryValueIsExplained(t *testing.T) {
	for _, p := range pipelines.Pipelines {
		for _, g := range pipelines.Fleet.On() {
			r := pipelines.Request{GPUs: pipelines.Table{g}, Secret: &pipelines.Run{ID: "s"}, User: "me", Run: pipelines.Run{Mode: "test"}}
			plan, err := Plan(p, r)
			if err != nil {
				continue // a pipeline that does not serve the row
			}
			for _, s := range plan {
				values, _, err := Explain(p, r, s.Key)
				if err != nil || len(values) < 8 {
					t.Errorf("Explain(%s) = %d values, %v", s.Key, len(values), err)
				}
				for _, v := range values {
					if v.Origin.Why == "" {
						t.Errorf("%s.%s = %q comes from nowhere", s.Key, v.Path, v.Text)
					}
				}
			}
		}
	}
}

func TestDiff(t *testing.T) {
	const older = "steps:\n- key: a\n  command: x\n  agents: {queue: q}\n  plugins: [{docker#v5.13.0: {image: i, memory: 64g}}]\n- key: b\n  command: y\n- wait\n"
	for _, tt := range []struct {
		name, newer string
		want        []string
	}{
		{"the same, written otherwise", `{"steps": [{"key": "b", "command": "y"}, {"key": "a", "command": "x", "plugins": [{"docker#v5.13.0": {"memory": "64g", "image": "i"}}], "agents": {"queue": "q"}}, "wait"]}`, nil},
		{"values", "steps:\n- key: a\n  command: x\n  priority: 3\n  agents: {queue: q2}\n  plugins: [{docker#v5.13.0: {image: i, memory: 128g}}]\n- key: c\n  command: y\n- wait\n",
			[]string{"+ a.priority: 3", `  a.agents.queue: "q" → "q2"`, `  a.plugins.docker#v5.13.0.memory: "64g" → "128g"`, "+ step c", "- step b"}},
		{"lines", "steps:\n- key: a\n  command: \"x\\ny\"\n  agents: {queue: q}\n  plugins: [{docker#v5.13.0: {image: i, memory: 64g}}]\n- key: b\n  command: y\n- wait\n", []string{"  a.command:\n    + y"}},
		{"text and number", "steps:\n- key: a\n  command: 1\n  agents: {queue: q}\n  plugins: [{docker#v5.13.0: {image: i, memory: 64g}}]\n- key: b\n  command: y\n- wait\n", []string{`  a.command: "x" → 1`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changes, err := Diff([]byte(older), []byte(tt.newer))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range changes {
				got = append(got, c.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Diff (-want +got):\n%s", diff)
			}
		})
	}
	for _, doc := range []string{"", "steps: [", "a: b", "a: &a [*a]\nsteps: *a"} {
		if _, err := Diff([]byte(older), []byte(doc)); err == nil && doc != "" {
			t.Errorf("Diff(%q) = nil, want an error", doc)
		}
	}
}

// Who writes a pipeline names its steps and keys; a change is lines of text all
// the same.
func TestDiffPrintsText(t *testing.T) {
	older := "steps:\n  - key: \"a\\x1b[31m\\nb\"\n    command: \"x\\n\\x1b[2J\"\n    n: !x \"\\e[1m\"\n"
	newer := "steps:\n  - key: \"a\\x1b[31m\\nb\"\n    command: \"y\\n\\x1b[2K\"\n    n: !x \"\\e[2m\"\n    \"k\\e]0;t\\a\": 1\n"
	changes, err := Diff([]byte(older), []byte(newer))
	if err != nil || len(changes) != 3 {
		t.Fatalf("got %v, %v, want three changes", changes, err)
	}
	for _, c := range changes {
		if got := c.String(); strings.ContainsAny(got, "\x1b\a") || strings.Contains(got, "a\n") {
			t.Errorf("got %q, want printable lines", got)
		}
	}
}
