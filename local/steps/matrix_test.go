package steps

import (
	"fmt"
	"strings"
	"testing"
)

func TestMatrix(t *testing.T) {
	list := func(n int) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(`"%d"`, i))
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	for _, tt := range []struct{ step, want string }{
		{`"command":"make {{matrix}}","matrix":["a",2,true]`, "make a|make 2|make true"},
		{`"command":"{{matrix.os}}/{{ matrix.arch }}","matrix":{"setup":{"os":["linux","mac"],"arch":["arm","amd"]}}`, "linux/arm|mac/arm|linux/amd|mac/amd"},
		{`"command":"{{matrix}}","matrix":{"setup":["a","b"],"adjustments":[{"with":"b","skip":true},{"with":"c"}]}`, "a|b skipped|c"},
		{`"command":"{{matrix.a}}{{matrix.b}}","matrix":{"setup":{"a":["1","2"],"b":["x"]},"adjustments":[{"with":{"a":"2","b":"x"},"soft_fail":true},{"with":{"a":"1","b":"x"},"skip":"no"}]}`, "1x skipped no|2x soft"},
		{`"command":"{{matrix.a}}","matrix":{"setup":{"a":null},"adjustments":[{"with":{"a":"only"}}]}`, "only"},
		{`"command":"{{matrix.nope}}","matrix":["a"]`, "steps[0]: command: {{matrix.nope}} names no dimension of the matrix"},
		{`"command":"x","matrix":{"setup":{"a":["1"]},"adjustments":[{"with":{"b":"1"}}]}`, `steps[0]: matrix: adjustments[0]: with: "b" is no dimension, have ["a"]`},
		{`"command":"x","matrix":{"setup":{"a":["1"],"b":["1"]},"adjustments":[{"with":{"b":"1"}}]}`, `steps[0]: matrix: adjustments[0]: with: got 1 dimensions, want all of ["a" "b"]`},
		{`"command":"x","matrix":{"setup":{"a":["1"]},"adjustments":[{"skip":true}]}`, `steps[0].matrix.adjustments[0]: missing key "with" [KB013]`},
		{`"command":"x","matrix":{"adjustments":[]}`, `steps[0].matrix: missing key "setup" [KB013]`},
		{`"command":"x","matrix":[]`, `steps[0].matrix: got a list without members, want at least one [KB012]`},
		{`"command":"x","matrix":` + list(26), `steps[0]: matrix: got 26 values, want at most 25`},
		{`"command":"x","matrix":{"setup":{"a":` + list(25) + `,"b":` + list(25) + `,"c":` + list(25) + `}}`, `steps: got 15625 jobs, want at most 500 in one upload [KB301]`},
		{`"command":"x","matrix":{"setup":{"a":` + list(8) + `,"b":` + list(8) + `}}`, `steps[0]: matrix: got 64 jobs, want at most 50`},
		{`"command":"x","matrix":["` + strings.Repeat("x", 129) + `"]`, `steps[0]: matrix: [0]: got a value of 129 bytes, want at most 128`},
		{`"command":"x","parallelism":2,"matrix":["a"]`, `steps[0]: matrix: not beside parallelism`},
		{`"command":"x","matrix":[["a"]]`, `steps[0].matrix[0]: got a list, want a list of values, or a mapping with setup [KB012]`},
	} {
		doc, err := Parse([]byte(`{"steps":[{` + tt.step + `}]}`))
		got := fmt.Sprint(err)
		if err == nil {
			var out []string
			for _, v := range doc.Steps[0].Variants {
				s := v.Step.Command
				if v.Skip.On {
					s = strings.TrimSpace(s + " skipped " + v.Skip.Reason)
				}
				if v.Step.SoftFail.All {
					s += " soft"
				}
				out = append(out, s)
			}
			got = strings.Join(out, "|")
			if doc.Jobs() != len(out) {
				t.Errorf("%s counts as %d jobs, want %d", tt.step, doc.Jobs(), len(out))
			}
		}
		if got != tt.want {
			t.Errorf("{%s}\n got %s\nwant %s", tt.step, got, tt.want)
		}
	}
}

// Values reach every attribute that may hold them.
func TestMatrixFills(t *testing.T) {
	doc, err := Parse([]byte(`{"steps":[{"command":"x","label":"l {{matrix}}","agents":{"queue":"q-{{matrix}}"},"env":{"E":"{{matrix}}"},
		"artifact_paths":"{{matrix}}.json","plugins":[{"docker#v1":{"image":"i:{{matrix}}","list":["{{matrix}}",{"n":1}]}}],"matrix":["a"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	step := doc.Steps[0]
	got := step.Variants[0].Step
	if got.Label != "l a" || got.Agents[0] != "queue=q-a" || got.Env["E"] != "a" || got.ArtifactPaths[0] != "a.json" ||
		string(got.Plugins[0]) != `{"docker#v1":{"image":"i:a","list":["a",{"n":1}]}}` {
		t.Errorf("filled in: %+v %s", got, got.Plugins)
	}
	if step.Label != "l {{matrix}}" || step.Env["E"] != "{{matrix}}" || !strings.Contains(string(step.Plugins[0]), "{{matrix}}") {
		t.Errorf("the step itself has changed: %+v", step)
	}
}

func TestAnswers(t *testing.T) {
	doc, err := Parse([]byte(`{"steps":[{"block":"b","fields":[
		{"text":"t","key":"free","required":false,"format":"[a-z]+"},{"text":"t","key":"must"},{"text":"t","key":"pre","default":"d"},
		{"select":"s","key":"one","options":[{"label":"A","value":"a"},{"value":"b"}]},
		{"select":"s","key":"many","multiple":true,"required":false,"options":[{"value":"a"},{"value":"b"}],"default":["a","b"]}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		answers []string
		want    string
	}{
		{nil, ""}, {[]string{"abc"}, "abc"}, {[]string{"abc1"}, `field free: the answer does not match "^(?:[a-z]+)$"`},
		{nil, "field must: an answer is required"}, {[]string{""}, "field must: an answer is required"}, {[]string{"a\r\nb"}, "a\nb"},
		{nil, "d"}, {[]string{"x"}, "x"}, {[]string{"x", "y"}, "field pre: got 2 answers, want one"},
		{[]string{"b"}, "b"}, {[]string{"c"}, `field one: got "c", want one of "a", "b"`}, {nil, "field one: an answer is required"},
		{nil, "a\nb"}, {[]string{"b", "a"}, "b\na"}, {[]string{"b", "x"}, `field many: got "x", want one of "a", "b"`},
	} {
		f := doc.Steps[0].Fields[i/3]
		got, err := f.Answer(tt.answers)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: Answer(%q) = %q, want %q", f.Key, tt.answers, got, tt.want)
		}
	}
}

func TestOnHost(t *testing.T) {
	doc, err := Parse([]byte(`{"steps":[{"command":"x","env":{"A":"step"},"plugins":[
		{"github.com/buildkite-plugins/docker-buildkite-plugin#v5.13.0":{"image":"img:1","environment":["A=plugin","B=2","C"]}},{"cache#v1":null}]},
		{"command":"y","plugins":[{"docker-compose#v4":{"run":"x"}},{"./docker":null}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	got, image := doc.Steps[0].OnHost()
	if image != "img:1" || len(got.Plugins) != 1 || got.Env["A"] != "step" || got.Env["B"] != "2" || len(got.Env) != 2 {
		t.Errorf("OnHost() = %+v %s, %q", got, got.Plugins, image)
	}
	if len(doc.Steps[0].Plugins) != 2 {
		t.Error("OnHost() changed the step")
	}
	if same, image := doc.Steps[1].OnHost(); image != "its image" && image != "" || image == "" && same != doc.Steps[1] {
		t.Errorf("OnHost() of another plugin = %+v, %q", same, image)
	}
}
