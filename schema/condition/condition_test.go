package condition

import (
	"errors"
	"strings"
	"testing"
)

func sample() Vars {
	return Vars{
		Values: map[string]any{
			"build.branch":                   "feature/x",
			"build.commit":                   "abc123",
			"build.message":                  "Fix it [skip tests]\nsecond line",
			"build.number":                   float64(12),
			"build.source":                   "api",
			"build.tag":                      nil,
			"build.creator.email":            "ada@example.com",
			"build.pull_request.id":          nil,
			"build.pull_request.draft":       nil,
			"build.pull_request.base_branch": nil,
			"build.pull_request.labels":      []string{"fast", "v1.2"},
			"build.author.teams":             nil,
			"pipeline.slug":                  "kernelbot",
			"pipeline.repository":            "https://example.com/r.git",
			"organization.slug":              "gpu-mode",
			"odd":                            struct{}{},
		},
		Env: map[string]string{"GPU": "CPU_BK", "EMPTY": "", "QUOTE": `it's`},
	}
}

func TestEval(t *testing.T) {
	for _, c := range []struct {
		expr string
		want bool
	}{
		{`true`, true},
		{`false`, false},
		{`!true`, false},
		{`!!true`, true},
		{`(((true)))`, true},
		{`build.branch == "feature/x"`, true},
		{`build.branch == 'feature/x'`, true},
		{`build.branch != "main"`, true},
		{`"feature/x" == build.branch`, true},
		{`build.branch =~ /^feature\//`, true},
		{`build.branch =~ /\/x$/`, true},
		{`build.branch !~ /^main$/`, true},
		{`build.message =~ /skip tests/`, true},
		{`build.message !~ /\[SKIP tests\]/i`, false},
		{`build.message =~ /FIX/`, false},
		{`build.message =~ /FIX/i`, true},
		{`build.tag == null`, true},
		{`build.tag != null`, false},
		{`null == null`, true},
		{`build.tag == "v1"`, false},
		{`build.tag =~ /^v/`, false},
		{`build.tag !~ /^v/`, true},
		{`!build.pull_request.draft`, true},
		{`build.number == 12`, true},
		{`build.number != 13`, true},
		{`build.number == 012`, true},
		{`build.pull_request.labels includes "fast"`, true},
		{`build.pull_request.labels includes 'slow'`, false},
		{`build.pull_request.labels includes /^v\d/`, true},
		{`build.pull_request.labels includes null`, false},
		{`build.author.teams includes "deploy"`, false},
		{`!(build.pull_request.labels includes "fast")`, false},
		{`build.env("GPU") == "CPU_BK"`, true},
		{`env("GPU") == "CPU_BK"`, true},
		{`build.env('GPU') =~ /_BK$/`, true},
		{`build.env("NONE") == null`, true},
		{`build.env("EMPTY") == null`, false},
		{`build.env("EMPTY") == ""`, true},
		{`env("NONE") == ""`, true},
		{`build.env("BUILDKITE_BRANCH") == build.branch`, true},
		{`build.env("BUILDKITE_TAG") =~ /^v/`, false},
		{`build.env("BUILDKITE_PULL_REQUEST") == "false"`, true},
		{`build.env("BUILDKITE_REBUILT_FROM_BUILD_ID") == null`, true},
		{`build.env("QUOTE") == 'it\'s'`, true},
		{`"a\"b" == 'a"b'`, true},
		{`'$x' == "\$x"`, true},
		{`true || false && false`, true}, // && first
		{`(true || false) && false`, false},
		{`false && false || true`, true},
		{`!false && true`, true},
		{`true == !false`, true},
		{`"a" == "a" == true`, true}, // from the left
		{"build.branch == 'feature/x' // the branch\n && // and\n build.source == 'api'", true},
		{"// only main\nbuild.branch == \"main\" ||\n\tbuild.branch =~ /x/\n", true},
		{`build.source=="api"&&build.number==12`, true},
		{`build.branch == "über"`, false},
	} {
		got, err := Eval(c.expr, sample())
		if err != nil || got != c.want {
			t.Errorf("Eval(%q) = %v, %v; want %v", c.expr, got, err, c.want)
		}
	}
}

func TestEvalRefuses(t *testing.T) {
	for _, c := range []struct{ expr, want string }{
		{``, "column 1: got no expression"},
		{"// nothing", "got no expression"},
		{`build.branch`, "column 1: the expression is a string, want true or false"},
		{`null`, "the expression is null"},
		{`12`, "the expression is a number"},
		{`/x/`, "the expression is a regular expression"},
		{`build.tag`, "the expression is null"},
		{`build.brnch == "x"`, "column 1: there is no variable build.brnch, did you mean build.branch?"},
		{`branch == "x"`, "did you mean build.branch?"},
		{`zzzzzzzzzz == "x"`, "have build.author.teams, build.branch"},
		{`step.outcome == "passed"`, "step variables exist in conditions of notifications only"},
		{`build.env == "x"`, `build.env is a function, use build.env("NAME")`},
		{`odd == 1`, "odd: its value is a struct {}"},
		{`meta-data("x") == "y"`, "numbers are whole and have no sign"},
		{`foo("x") == "y"`, "there is no function foo, have build.env and env"},
		{`build.env(GPU) == "x"`, `column 11: got "GPU", want the name of a variable in quotes`},
		{`build.env("GPU" == "x"`, `got "==", want ")"`},
		{`build.env("") == "x"`, "got an empty name"},
		{`build.env("BUILDKITE_AGENT_ID") == "x"`, "conditions cannot read BUILDKITE_AGENT_ID"},
		{`build.number == "12"`, "column 14: ==: cannot compare a number with a string"},
		{`build.number =~ /1/`, "got a number on the left, want a string"},
		{`build.branch =~ "x"`, "got a string on the right, want a regular expression"},
		{`build.branch == /x/`, "a regular expression is matched by =~ or !~"},
		{`build.pull_request.labels == "x"`, "a list is searched by includes"},
		{`build.branch includes "x"`, "got a string on the left, want a list"},
		{`build.pull_request.labels includes 3`, "got a number on the right"},
		{`includes "x"`, "includes stands between"},
		{`!build.branch`, "got a string after !, want true or false"},
		{`true && build.branch`, "column 9: got a string beside &&"},
		{`build.tag || true`, "column 1: got null beside ||"},
		{`true && `, "got the end, want a value"},
		{`&& true`, `got "&&", want a value`},
		{`(true`, `got the end, want ")"`},
		{`true)`, `got ")", want an operator or the end`},
		{`true true`, `got "true", want an operator or the end`},
		{`"x`, "column 1: the string has no end"},
		{`'x" == 1`, "the string has no end"},
		{`"a\n" == "a"`, "a backslash in a string"},
		{`"$GPU" == "x"`, "kblocal does not implement $"},
		{`$GPU == "x"`, "kblocal does not implement $"},
		{`build.branch =~ /x`, "the regular expression has no end"},
		{`build.branch =~ /x/g`, `got the flags "g", Buildkite knows i only`},
		{`build.branch =~ /(?=x)/`, "column 17: kblocal cannot match this regular expression"},
		{`build.branch =~ /(?<n>x)/`, "Buildkite has no groups"},
		{`build.branch =~ /(a)\1/`, "kblocal cannot match"},
		{`build.branch =~ /(/`, "missing closing )"},
		{`build.pull_request.labels @> "x"`, "use includes"},
		{`["a"] includes "a"`, "lists in brackets"},
		{`true ? true : false`, "kblocal does not implement a ? b : c"},
		{`build.branch = "x"`, `"=" is not an operator, use ==`},
		{`true & true`, "use &&"},
		{`true | true`, "use ||"},
		{`build.number > 3`, "== and != only"},
		{`build.number == 3.5`, "numbers are whole"},
		{`build.number == 99999999999999999999`, "too large"},
		{"true &&\n  ß", "line 2, column 3: unexpected 'ß'"},
		{strings.Repeat("(", 101) + "true", "nested more than 100 deep"},
		{strings.Repeat("!", 101) + "true", "nested more than 100 deep"},
		{strings.Repeat(" ", maxExpr+1), "want at most 32768"},
		{`false && build.nope == 1`, "there is no variable build.nope"}, // checked all the same
	} {
		got, err := Eval(c.expr, sample())
		var e *Error
		if got || !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Eval(%.60q) = %v, %v; want the error %q", c.expr, got, err, c.want)
		}
	}
}

func FuzzEval(f *testing.F) {
	for _, seed := range []string{
		`build.branch == "main" && !build.pull_request.draft`, `build.env("A") =~ /x\//i`,
		`((true))||false`, "// c\n12 != 3", `"\`, `/\`, `!`, `a.b.c includes 'x'`, "\xff", `"` + "\xff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		got, err := Eval(expr, sample())
		if err == nil {
			return
		}
		var e *Error
		if got || !errors.As(err, &e) || e.Line < 1 || e.Column < 1 || e.Reason == "" {
			t.Errorf("Eval(%q) = %v, %#v", expr, got, err)
		}
	})
}

func TestCheck(t *testing.T) {
	const a, b = "build.branch", "build.tag"
	for expr, want := range map[string]string{
		"": "", "true": "", b: "", "!" + b: "", a + " == " + b: "", a + "==" + b + "&&" + a + "!=" + b: "",
		"(" + a + " || " + b + ") && !(" + a + ")": "", a + " =~ /x[/]y/i": "", a + " !~ /x\\/y/": "", a + ` == "it's"`: "",
		a + ` == 'say "x"'`: "", "build.pull_request.labels includes 'b'": "", "// only a comment": "", a + " // comment (": "",
		`env("X") == build.env('Y')`: "", a + ` == "$BRANCH"`: "", a + ` == $BRANCH`: "", a + " =~ /(?=x)/": "", `["a"] includes ` + a: "",
		a + " = " + b:                   `"=" is not an operator`,
		a + " & " + b:                   `"&" is not an operator`,
		a + " | " + b:                   `"|" is not an operator`,
		a + " ==":                       "got the end",
		"== " + a:                       `got "=="`,
		"(" + a:                         "got the end",
		a + ")":                         `got ")"`,
		a + " < 1":                      "numbers can be compared",
		a + " =~ /x":                    "the regular expression has no end",
		a + ` == "b`:                    "the string has no end",
		a + " && && " + b:               `got "&&"`,
		a + " !":                        `got "!"`,
		"()":                            `got ")"`,
		`"a"`:                           "the expression is a string",
		`build.brnch == "main"`:         "column 1: there is no variable build.brnch, did you mean build.branch?",
		a + " == 'x' && build.tga":      "column 24: there is no variable build.tga, did you mean build.tag or build.id?",
		`step.outcome == "hard_failed"`: "in conditions of notifications only",
		`buildenv("X") == "x"`:          "there is no function buildenv",
	} {
		fault := Check(expr, false)
		if (fault == nil) != (want == "") || fault != nil && !strings.Contains(fault.Error(), want) {
			t.Errorf("Check(%q) = %v, want %q", expr, fault, want)
		}
	}
	if fault := Check(`step.outcome == "hard_failed" && pipeline.started_failing`, true); fault != nil {
		t.Errorf("Check of a notification's condition = %v, want nil", fault)
	}
}
