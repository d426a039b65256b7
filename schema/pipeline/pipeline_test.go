package pipeline

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	agentparser "github.com/buildkite/go-pipeline"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
)

// oneStep wraps the lines of one step into a document. A command step gets the
// queue and the timeout that it has to have.
func oneStep(lines string) string {
	lines = strings.TrimSpace(lines)
	if strings.Contains(lines, "command:") && !strings.Contains(lines, "agents:") {
		lines += "\nagents:\n  queue: q"
	}
	if strings.Contains(lines, "command:") && !strings.Contains(lines, "timeout_in_minutes:") {
		lines += "\ntimeout_in_minutes: 5"
	}
	return "steps:\n  - " + strings.ReplaceAll(lines, "\n", "\n    ") + "\n"
}

func TestValidateAccepts(t *testing.T) {
	for name, doc := range map[string]string{
		"scalar wait": "steps:\n  - wait\n",
		"null wait":   oneStep("wait: ~\ncontinue_on_failure: true"),
		"wait, text":  oneStep("wait: for it"),
		"block":       oneStep("block: Release?\nprompt: sure?\nfields:\n  - text: Name\n    key: name"),
		"trigger":     oneStep("trigger: deploy\nasync: true\nbuild:\n  branch: main\n  env:\n    A: 1"),
		"commands":    oneStep("command:\n  - a\n  - b"),
		"retry":       oneStep("command: a\nretry:\n  automatic:\n    - exit_status: -1\n      signal_reason: none\n    - exit_status: \"*\"\n      limit: 1\n  manual:\n    permit_on_passed: true"),
		"retry, all":  oneStep("command: a\nretry:\n  automatic: true\n  manual: false"),
		"plugin":      oneStep("command: a\nplugins:\n  - docker#v5.13.0:\n      image: a:1\n      environment:\n        - A\n  - org/other#v1:\n      any: thing"),
		"soft fail":   oneStep("command: a\nsoft_fail:\n  - exit_status: 3"),
		"concurrency": oneStep("command: a\nconcurrency: 1\nconcurrency_group: g\nconcurrency_method: eager"),
		"top level":   "env:\n  A: b\nagents:\n  queue: q\n" + oneStep("command: a\nagents:\n  os: linux\n  queue: q"),
		"queue above": "agents:\n  queue: q\nsteps:\n  - command: a\n    timeout_in_minutes: 5\n",
		"no checkout": oneStep("command: a\ncheckout:\n  skip: true"),
		"long key":    oneStep("command: a\nkey: " + strings.Repeat("k", 100)),
		"for the job": oneStep("command: echo $$A \\$B $(date) $?"),
	} {
		if err := validate([]byte(doc)); err != nil {
			t.Errorf("%s: Parse = %v, want nil for\n%s", name, err, doc)
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	for _, tt := range []struct{ name, doc, want string }{
		{"nothing", "", "the document is empty, want steps [KB001]"},
		{"a comment", "# nothing\n", "the document is empty, want steps"},
		{"not YAML", "steps: [", "not YAML"},
		{"text", "steps", `got "steps", want a mapping with steps`},
		{"no steps", "env: {}\n", `line 1: missing key "steps"`},
		{"empty steps", "steps: []\n", "line 1: steps: got a list without members"},
		{"null steps", "steps:\n", "line 1: steps: null, want a value or no key"},
		{"unknown key at the top", "step: a\nsteps: [wait]\n", `line 1: step: unknown key "step", nearest is "steps"`},
		{"no type", oneStep("label: a"), "line 2: steps[0]: a step without a type"},
		{"list for a step", "steps:\n  - [a]\n", "steps[0]: got a list, want a mapping"},
		{"misspelt key", oneStep("command: a\nkey: k\ntimeout_in_minuts: 3"), `line 4: steps[0] (k): unknown key "timeout_in_minuts", nearest`},
		{"text for a number", oneStep("command: a\ntimeout_in_minutes: \"15\""), `line 3: steps[0].timeout_in_minutes: got "15", want a whole number [KB017]`},
		{"interpolated number", oneStep("command: a\ntimeout_in_minutes: ${T:-15}"), `got "${T:-15}", want a whole number`},
		{"half a minute", oneStep("command: a\ntimeout_in_minutes: 0.5"), "steps[0].timeout_in_minutes: got 0.5, want"},
		{"text for a boolean", oneStep("command: a\ncancel_on_build_failing: \"true\""), `got "true", want true or false`},
		{"key twice", oneStep("command: a\ncommand: b"), `steps[0]: key "command" twice in one mapping`},
		{"number for a key", oneStep("command: a\n1: b"), "steps[0]: key 1, want text"},
		{"empty command", oneStep("command: \"\""), "got no text, want a command"},
		{"key too long", oneStep("command: a\nkey: " + strings.Repeat("k", 101)), "got 101 characters, want at most 100"},
		{"key as a variable", oneStep("command: a\nkey: a-$X"), `key: got "a-$X", want letters`},
		{"same key in a group", "steps:\n  - wait: ~\n    key: k\n  - group: g\n    steps:\n      - wait: ~\n        key: k\n", `line 7: steps[1].steps[0] (k).key: got "k"`},
		{"mistake in a group", oneStep("group: g\nsteps:\n  - command: a\n    prioriti: 1"), `steps[0].steps[0]: unknown key "prioriti"`},
		{"queue as a variable", oneStep("command: a\nagents:\n  queue: $QUEUE"), `got "$QUEUE", want the name of a queue`},
		{"old agents list", oneStep("command: a\nagents:\n  - queue=a"), "agents: got a list, want a mapping"},
		{"plugin without a version", oneStep("command: a\nplugins:\n  - docker:\n      image: a"), "want a version: docker#v…"},
		{"two plugins in one item", oneStep("command: a\nplugins:\n  - a#1:\n      b: c\n    d#1:\n      e: f"), "want a mapping with one key, the plugin"},
		{"docker without an image", oneStep("command: a\nplugins:\n  - docker#v5.13.0:\n      tty: false"), `missing setting "image"`},
		{"docker, number for CPUs", oneStep("command: a\nplugins:\n  - docker#v5.13.0:\n      image: a:1\n      cpus: 8"), "cpus: got 8, want text"},
		{"docker, secret in environment", oneStep("command: a\nplugins:\n  - docker#v5.13.0:\n      image: a:1\n      environment:\n        - A_TOKEN=hunter2hunter2"), "the value of A_TOKEN is in the text"},
		{"retry status in quotes", oneStep("command: a\nretry:\n  automatic:\n    - exit_status: \"1\""), `got "1", want a number`},
		{"env as a mapping", oneStep("command: a\nenv:\n  A:\n    b: c"), "steps[0].env.A: got a mapping, want text"},
		{"variable of the agent", oneStep("command: a\nenv:\n  BUILDKITE_PLUGIN_DOCKER_PRIVILEGED: \"true\""), "which changes what the agent does"},
		{"unknown dependency", oneStep("command: a\ndepends_on: b"), `no step of this stream has the key "b"`},
		{"too many steps", "steps:\n" + strings.Repeat("  - wait\n", 501), "got 501 jobs, want at most 500"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := validate([]byte(tt.doc))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Parse = %v\nwant it to contain %s\nfor\n%s", err, tt.want, tt.doc)
			}
			var finding *schema.Finding
			if !errors.As(err, &finding) {
				t.Errorf("Parse = %T, want a *schema.Finding within", err)
			}
		})
	}
}

// One mistake is one line, and the lines come in the order of the document.
func TestFindingsAreSortedAndComplete(t *testing.T) {
	doc := []byte("agents:\n  queue: q\nsteps:\n  - command: a\n    prioriti: 1\n    parallelism: 0\n    timeout_in_minutes: 1\n  - command: b\n    soft_fale: true\n    key: \"?\"\n    timeout_in_minutes: 1\n  - nothing: here\n")
	const want = `line 5: steps[0]: unknown key "prioriti", nearest is "priority" [KB011]
line 6: steps[0].parallelism: got 0, want a whole number, at least 1 [KB012]
line 9: steps[1] (?): unknown key "soft_fale", nearest is "soft_fail" [KB011]
line 10: steps[1] (?).key: got "?", want letters, digits, _ - . : and comma [KB018]
line 12: steps[2]: a step without a type, want command, plugins, wait, block, input, trigger or group [KB010]`
	for range 50 { // gojsonschema reports in the order of a map
		if got := validate(doc).Error(); got != want {
			t.Fatalf("Validate =\n%s\nwant\n%s", got, want)
		}
	}
}

// jobCount is how many jobs the checks of limits count in one document.
func jobCount(doc []byte) int {
	c := &checker{keys: map[string]*step{}, severities: severities(Options{})}
	roots, _ := c.decode(doc)
	jobs := 0
	for _, root := range roots {
		d := &document{root: root}
		list := root
		if root.Kind == yaml.MappingNode {
			list = child(root, "steps")
		}
		c.collect(d, list, "", nil)
		jobs += d.jobs()
	}
	return jobs
}

func TestJobCount(t *testing.T) {
	for doc, want := range map[string]int{
		"":                            0,
		"steps: [{command: a}, wait]": 2,
		"[{command: a}]":              1,
		"steps: [{command: a, parallelism: 7}, {command: b, parallelism: \"$N\"}]":                                                              8,
		"steps: [{group: g, steps: [{command: a}, {command: b}]}]":                                                                              3,
		"steps: [{command: a, matrix: [x, y, z]}]":                                                                                              3,
		"steps: [{command: a, matrix: {setup: {x: [1, 2], y: [1, 2, 3]}}}]":                                                                     6,
		"steps: [{command: a, matrix: {setup: {x: [1, 2], y: [1, 2]}, adjustments: [{with: {x: 1, y: 1}, skip: true}, {with: {x: 3, y: 1}}]}}]": 4,
		"steps: [{command: a, parallelism: 4000000000}]":                                                                                        1_000_000,
	} {
		if got := jobCount([]byte(doc)); got != want {
			t.Errorf("jobCount(%s) = %d, want %d", doc, got, want)
		}
	}
}

// recorder is an environment that writes down which variables are asked for.
type recorder struct{ names []string }

func (r *recorder) Get(name string) (string, bool) { r.names = append(r.names, name); return "", false }
func (r *recorder) Set(string, string)             {}

// expansions finds what the agent replaces, no more and no less. Variables in
// a default are only asked for when the default is used, as it is here.
func TestExpansionsAreTheAgents(t *testing.T) {
	for _, text := range []string{
		"", "$", "$$", "a$", "$A", "${A}", "$A$B", "x${A:-1}y", "${A:-${B:-$C}}", "${A-$B}", "${A:1:2}", "$$A", `\$A`, `\\$A`, `\\\$A`, "$$$A", "$$$$A",
		"$(echo $A)", "`echo $A`", "$5 $_X $? $@", "$Ä_1b", "$${A%%.*}", "$${A $B", "$A_B-C", "{$A}", "${A:-}$B", "${A:-\\}$B}", "${A:-$$B}", "\ufffd$A",
	} {
		p := &agentparser.Pipeline{Steps: agentparser.Steps{&agentparser.CommandStep{Command: text}}}
		var env recorder
		if err := p.Interpolate(&env, false); err != nil {
			t.Errorf("interpolating %q: %v", text, err)
			continue
		}
		var got []string
		for _, e := range expansions(text) {
			got = append(got, e.name)
			if !strings.HasPrefix(text[e.offset:], "$") {
				t.Errorf("expansions(%q): offset %d of %s", text, e.offset, e.name)
			}
		}
		if !reflect.DeepEqual(got, env.names) {
			t.Errorf("expansions(%q) = %q, the agent asks for %q", text, got, env.names)
		}
	}
}

// What the rules call broken is what the agent refuses.
func TestBrokenExpansionsAreTheAgents(t *testing.T) {
	for _, text := range []string{"${_X}", "${5}", "${#X}", "${X%%.*}", "${X:=d}", "${X", "${X:a}", "${X:1:b}", "${}", "a ${A:-b} ${1} c", "${A:-${_B}}", "${A:-x", "\n\n  ${A/b/c}"} {
		p := &agentparser.Pipeline{Steps: agentparser.Steps{&agentparser.CommandStep{Command: text}}}
		if err := p.Interpolate(&recorder{}, false); err == nil {
			t.Errorf("the agent takes %q", text)
		}
		found := Check([]byte(fmt.Sprintf("steps:\n- command: %q\n", text)), Options{Ignore: []string{"KB201", "KB202"}})
		if len(found) != 1 || found[0].Rule != "KB401" {
			t.Errorf("Check of %q = %v, want one finding of KB401", text, found)
		}
		if strings.Contains(text, "\n") && !strings.Contains(found[0].Text, "${A/b/c}") {
			t.Errorf("Check of %q = %v, want the expansion alone", text, found)
		}
	}
}

func TestNoInterpolation(t *testing.T) {
	doc := []byte("steps:\n- command: x=1; echo ${x%%.*} $x\n")
	if found := Check(doc, Options{NoInterpolation: true, Ignore: []string{"KB201", "KB202"}}); len(found) > 0 {
		t.Errorf("Check without interpolation = %v, want nothing", found)
	}
	if found := Check(doc, Options{}); len(found) < 3 {
		t.Errorf("Check = %v, want something about the variables", found)
	}
}

func TestAliasesThatMultiplyEnd(t *testing.T) {
	var doc strings.Builder
	doc.WriteString("a: &a [x, x, x, x, x, x, x, x, x, x]\n")
	for c := 'b'; c <= 'j'; c++ {
		fmt.Fprintf(&doc, "%c: &%c [%s*%c]\n", c, c, strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9), c-1)
	}
	doc.WriteString("steps: [wait]\n")
	found := Check([]byte(doc.String()), Options{})
	if len(found) != 1 || found[0].Rule != "KB004" {
		t.Errorf("Check = %.300v, want one finding of KB004", found)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte(oneStep("key: a\ncommand: b\nplugins:\n  - a#1:\n      b: [c, 1, 2.5, true]")))
	f.Add([]byte(`{"steps": ["wait", {"group": "g", "steps": [{"wait": null}]}]}`))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("steps:\n- <<: *b\n"))
	for _, dir := range []string{"right", "wrong"} {
		for _, path := range corpusPaths(f, dir) {
			if text, _ := corpusFile(f, path); len(text) < 10_000 {
				f.Add(text)
			}
		}
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		breaks := 0 // YAML knows more of them than a newline
		for _, b := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
			breaks += strings.Count(string(doc), b)
		}
		for _, opts := range []Options{{}, {Strict: true}} {
			first, second := Check(doc, opts), Check(doc, opts)
			if !reflect.DeepEqual(first, second) {
				t.Errorf("Check(%q) = %v, then %v", doc, first, second)
			}
			for _, found := range first {
				if found.Line < 0 || found.Line > breaks+2 || strings.Contains(found.Text, "\n") {
					t.Errorf("Check(%q): finding %+v lies outside, or has several lines", doc, found)
				}
			}
		}
	})
}
