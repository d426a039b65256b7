package pipeline

import (
	"errors"
	"strings"
	"testing"
)

// step wraps the lines of one step into a document.
func step(lines string) string {
	return "steps:\n  - " + strings.ReplaceAll(strings.TrimSpace(lines), "\n", "\n    ") + "\n"
}

func TestValidateAccepts(t *testing.T) {
	for name, doc := range map[string]string{
		"plain step":  step("key: a\nlabel: A\ncommand: make\nagents:\n  queue: q"),
		"JSON":        `{"steps": [{"key": "a", "command": "make", "timeout_in_minutes": 5}]}`,
		"scalar wait": "steps:\n  - command: a\n  - wait\n  - command: b\n",
		"null wait":   step("wait: ~\ncontinue_on_failure: true"),
		"wait, text":  step("wait: for it"),
		"block":       step("block: Release?\nprompt: sure?\nfields:\n  - text: Name\n    key: name"),
		"trigger":     step("trigger: deploy\nasync: true\nbuild:\n  branch: main\n  env:\n    A: 1"),
		"group":       step("group: G\nkey: g\nsteps:\n  - command: a\n    key: a\n  - wait\n  - command: b\n    key: b"),
		"commands":    step("command:\n  - a\n  - b"),
		"retry":       step("command: a\nretry:\n  automatic:\n    - exit_status: -1\n      signal_reason: none\n    - exit_status: \"*\"\n      limit: 1\n  manual:\n    permit_on_passed: true"),
		"retry, all":  step("command: a\nretry:\n  automatic: true\n  manual: false"),
		"dependency":  step("command: a\ndepends_on:\n  - b\n  - step: c\n    allow_failure: true"),
		"plugin":      step("command: a\nplugins:\n  - docker#v5.13.0:\n      image: a:1\n      environment:\n        - A\n  - org/other#v1:\n      any: thing"),
		"soft fail":   step("command: a\nsoft_fail:\n  - exit_status: 3"),
		"concurrency": step("command: a\nconcurrency: 1\nconcurrency_group: g\nconcurrency_method: eager"),
		"top level":   "env:\n  A: b\nagents:\n  queue: q\n" + step("command: a"),
		"no checkout": step("command: a\ncheckout:\n  skip: true"),
		"long key":    step("command: a\nkey: " + strings.Repeat("k", 100)),
	} {
		if err := Validate([]byte(doc)); err != nil {
			t.Errorf("%s: Validate = %v, want nil for\n%s", name, err, doc)
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	for _, tt := range []struct{ name, doc, want string }{
		{"nothing", "", "the document is empty, want steps"},
		{"a comment", "# nothing\n", "the document is empty, want steps"},
		{"not YAML", "steps: [", "not YAML"},
		{"text", "steps", "Invalid type. Expected: object, given: string"},
		{"no steps", "env: {}\n", `line 1: missing key "steps"`},
		{"empty steps", "steps: []\n", "line 1: steps: Array must have at least 1 items"},
		{"null steps", "steps:\n", "line 1: steps: null, want a value or no key"},
		{"two documents", "steps: [wait]\n---\nsteps: [wait]\n", "want one document"},
		{"unknown key at the top", "step: a\nsteps: [wait]\n", `line 1: unknown key "step"`},
		{"no type", step("label: a"), "line 2: steps[0]: a step without a type"},
		{"unknown word", "steps: [pause]\n", `line 1: steps[0]: got "pause", want a mapping, or wait, block or input`},
		{"list for a step", "steps:\n  - [a]\n", "steps[0]: a step without a type"},
		{"misspelt key", step("command: a\nkey: k\ntimeout_in_minuts: 3"), `line 4: steps[0] (k): unknown key "timeout_in_minuts"`},
		{"text for a number", step("command: a\ntimeout_in_minutes: \"15\""), "line 3: steps[0].timeout_in_minutes: got \"15\": Invalid type. Expected: integer, given: string"},
		{"interpolated number", step("command: a\ntimeout_in_minutes: ${T:-15}"), "Expected: integer, given: string"},
		{"half a minute", step("command: a\ntimeout_in_minutes: 0.5"), "steps[0].timeout_in_minutes: "},
		{"no time at all", step("command: a\ntimeout_in_minutes: 0"), "Must be greater than or equal to 1"},
		{"null", step("command: a\nenv: ~"), "line 3: steps[0].env: null, want a value or no key"},
		{"key twice", step("command: a\ncommand: b"), `steps[0]: key "command" twice in one mapping`},
		{"anchor", step("command: &x a\nlabel: *x"), "steps[0].command: anchor &x, want the text written out"},
		{"alias", step("command: &x a\nlabel: *x"), "steps[0].label: alias *x, want the text written out"},
		{"date", step("command: 2026-01-01"), "steps[0].command: a value of type !!timestamp"},
		{"number for a key", step("command: a\n1: b"), "steps[0]: key 1, want text"},
		{"empty command", step("command: \"\""), "String length must be greater than or equal to 1"},
		{"key with a space", step("command: a\nkey: a b"), `line 3: steps[0] (a b).key: got "a b": Does not match pattern`},
		{"key too long", step("command: a\nkey: " + strings.Repeat("k", 101)), "Does not match pattern"},
		{"key like a UUID", step("command: a\nkey: 0190c5a4-1f6e-4a5e-8b0c-0123456789ab"), "a form that is not allowed"},
		{"same key", "steps:\n  - command: a\n    key: k\n  - command: b\n    key: k\n", `line 5: steps[1] (k).key: got "k", which is the key of steps[0] (k) too`},
		{"same key in a group", "steps:\n  - command: a\n    key: k\n  - group: g\n    steps:\n      - command: b\n        key: k\n", `line 7: steps[1].steps[0] (k).key: got "k"`},
		{"group without steps", step("group: g"), `missing key "steps"`},
		{"mistake in a group", step("group: g\nsteps:\n  - command: a\n    prioriti: 1"), `steps[0].steps[0]: unknown key "prioriti"`},
		{"no queue", step("command: a\nagents:\n  queue: \"\""), "steps[0].agents.queue: "},
		{"queue as a variable", step("command: a\nagents:\n  queue: $QUEUE"), `got "$QUEUE": Does not match pattern`},
		{"old agents list", step("command: a\nagents:\n  - queue=a"), "Expected: object, given: array"},
		{"plugin without a version", step("command: a\nplugins:\n  - docker:\n      image: a"), "plugins[0]"},
		{"two plugins in one item", step("command: a\nplugins:\n  - a#1:\n      b: c\n    d#1:\n      e: f"), "Must have at most 1 properties"},
		{"plugin as text", step("command: a\nplugins:\n  - docker#v5.13.0"), "Expected: object, given: string"},
		{"docker without an image", step("command: a\nplugins:\n  - docker#v5.13.0:\n      tty: false"), `missing key "image"`},
		{"docker, privileged", step("command: a\nplugins:\n  - docker#v5.13.0:\n      image: a\n      privileged: true"), `unknown key "privileged"`},
		{"docker, agent mounted", step("command: a\nplugins:\n  - docker#v5.13.0:\n      image: a\n      mount-buildkite-agent: true"), "mount-buildkite-agent: "},
		{"docker, number for CPUs", step("command: a\nplugins:\n  - docker#v5.13.0:\n      image: a\n      cpus: 8"), "cpus: Invalid type. Expected: string, given: integer"},
		{"docker, value in environment", step("command: a\nplugins:\n  - docker#v5.13.0:\n      image: a\n      environment:\n        - A=b"), `environment[0]: got "A=b": Does not match pattern`},
		{"retry limit", step("command: a\nretry:\n  automatic:\n    - exit_status: 1\n      limit: 11"), "retry.automatic[0].limit: "},
		{"retry reason", step("command: a\nretry:\n  automatic:\n    - signal_reason: agentstop"), `got "agentstop"`},
		{"retry status", step("command: a\nretry:\n  automatic:\n    - exit_status: \"1\""), `got "1": Does not match pattern`},
		{"concurrency alone", step("command: a\nconcurrency: 1"), "concurrency_group"},
		{"long reason to skip", step("command: a\nskip: " + strings.Repeat("s", 71)), "String length must be less than or equal to 70"},
		{"env as a mapping", step("command: a\nenv:\n  A:\n    b: c"), "steps[0].env.A: "},
		{"too many steps", "steps:\n" + strings.Repeat("  - wait\n", 501), "Array must have at most 500 items"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Validate([]byte(tt.doc))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Validate = %v\nwant it to contain %s\nfor\n%s", err, tt.want, tt.doc)
			}
			var fault *Fault
			if !errors.As(err, &fault) {
				t.Errorf("Validate = %T, want a *Fault within", err)
			}
		})
	}
}

// One mistake is one line, and the lines come in the order of the document.
func TestFaultsAreSortedAndComplete(t *testing.T) {
	doc := []byte("steps:\n  - command: a\n    prioriti: 1\n    parallelism: 0\n  - command: b\n    soft_fale: true\n    key: \"?\"\n  - nothing: here\n")
	const want = `line 3: steps[0]: unknown key "prioriti"
line 4: steps[0].parallelism: Must be greater than or equal to 1
line 6: steps[1] (?): unknown key "soft_fale"
line 7: steps[1] (?).key: got "?": Does not match pattern '^[A-Za-z0-9_.:,-]{1,100}$'
line 8: steps[2]: a step without a type, want command, wait, block, input, trigger or group`
	for range 50 { // gojsonschema reports in the order of a map
		if got := Validate(doc).Error(); got != want {
			t.Fatalf("Validate =\n%s\nwant\n%s", got, want)
		}
	}
}

func FuzzValidate(f *testing.F) {
	f.Add([]byte(step("key: a\ncommand: b\nplugins:\n  - a#1:\n      b: [c, 1, 2.5, true]")))
	f.Add([]byte(`{"steps": ["wait", {"group": "g", "steps": [{"wait": null}]}]}`))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		first := Validate(doc)
		second := Validate(doc)
		if (first == nil) != (second == nil) || first != nil && first.Error() != second.Error() {
			t.Errorf("Validate(%q) = %v, then %v", doc, first, second)
		}
	})
}
