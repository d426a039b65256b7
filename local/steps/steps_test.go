package steps

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	doc, err := Parse([]byte(`{"env":{"A":"1"},"agents":{"queue":"gpu"},"steps":[
		{"command":"make\ntest","key":"k","label":"L","agents":["queue=b200","gpu=*"],"env":{"B":"2"},
		 "plugins":[{"github.com/x/docker-buildkite-plugin#v5.13.0":{"image":"i"}},"./local"],
		 "artifact_paths":["result.json"],"parallelism":2,"priority":-3,"timeout_in_minutes":15,
		 "soft_fail":[{"exit_status":3}],"branches":"main release/*","if":"build.branch == 'x'",
		 "depends_on":["a",{"step":"b","allow_failure":true}],
		 "concurrency":2,"concurrency_group":"g","concurrency_method":"eager","skip":false,
		 "checkout":{"skip":true},
		 "retry":{"automatic":[{"exit_status":-1,"signal_reason":"none","limit":1},{"exit_status":"*"}],"manual":false}},
		"wait",
		{"wait":null,"continue_on_failure":true},
		{"group":"G","key":"grp","steps":[{"command":["a","b"],"depends_on":null}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	c := doc.Steps[0]
	yes := true
	for _, tt := range []struct{ name, diff string }{
		{"env", cmp.Diff(doc.Env, map[string]string{"A": "1"})},
		{"agents", cmp.Diff(doc.Agents, []string{"queue=gpu"})},
		{"command", cmp.Diff(c.Command, "make\ntest")},
		{"own agents", cmp.Diff(c.Agents, []string{"queue=b200", "gpu=*"})},
		{"paths", cmp.Diff(c.ArtifactPaths, []string{"result.json"})},
		{"numbers", cmp.Diff([]int{c.Parallelism, c.Priority}, []int{2, -3})},
		{"timeout", cmp.Diff(c.Timeout, 15*time.Minute)},
		{"branches", cmp.Diff(c.On, []string{"main", "release/*"})},
		{"depends_on", cmp.Diff(c.DependsOn, []Dependency{{Key: "a"}, {Key: "b", AllowFailure: true}})},
		{"concurrency", cmp.Diff(c.Concurrency, Concurrency{Group: "g", Limit: 2, Eager: true})},
		{"checkout", cmp.Diff(c.Checkout, Checkout{Skip: &yes})},
		{"retry", cmp.Diff(c.Retry, Retry{ManualDenied: true, Automatic: []RetryRule{
			{Statuses: []int{-1}, SignalReasons: []string{"none"}, Limit: 1},
			{AnyStatus: true, Limit: 2},
		}})},
		{"plugins", cmp.Diff(string(c.Plugins[1]), `{"./local":null}`)},
		{"wait", cmp.Diff(doc.Steps[1].Kind, Wait)},
		{"wait goes on", cmp.Diff(doc.Steps[2].ContinueOnFailure, true)},
		{"group", cmp.Diff([]string{doc.Steps[3].Label, doc.Steps[3].Key}, []string{"G", "grp"})},
		{"lines", cmp.Diff(doc.Steps[3].Steps[0].Command, "a\nb")},
		{"start at once", cmp.Diff(doc.Steps[3].Steps[0].DependsOn, []Dependency{})},
		{"jobs", cmp.Diff(doc.Jobs(), 6)},
	} {
		if tt.diff != "" {
			t.Errorf("%s (-got +want):\n%s", tt.name, tt.diff)
		}
	}
	if c.Skip.On {
		t.Errorf("skip: false gave %q", c.Skip.Reason)
	}
}

// Every refusal says where and why.
func TestParseRefuses(t *testing.T) {
	long := strings.Repeat("x", 101)
	for _, tt := range []struct{ step, want string }{
		{`{"comand":"x"}`, `steps[0]: a step without a type, want command, plugins, wait, block, input, trigger or group; nearest to "comand" is "command" [KB010]`},
		{`"stop"`, `steps[0]: got "stop", want a mapping, or wait, block or input [KB010]`},
		{`{"trigger":""}`, `steps[0].trigger: got "", want the slug of a pipeline [KB012]`},
		{`{"trigger":"p","build":{"env":{"A=B":"x"}}}`, `steps[0].build.env: got the name "A=B", want the name of a variable: letters, digits and _ [KB012]`},
		{`{"trigger":"p","build":{"steps":[]}}`, `steps[0].build: unknown key "steps" [KB011]`},
		{`{"block":"b","blocked_state":"red"}`, `steps[0].blocked_state: got "red", want passed, failed or running [KB012]`},
		{`{"block":"b","fields":[{"text":"t"}]}`, `steps[0].fields[0]: missing key "key" [KB013]`},
		{`{"block":"b","fields":[{"key":"k"}]}`, `steps[0] ("b"): fields: [0]: want either text or select`},
		{`{"block":"b","fields":[{"select":"s","key":"k"}]}`, `steps[0] ("b"): fields: [0]: options: a select needs at least one`},
		{`{"block":"b","fields":[{"text":"t","key":"k","format":"("}]}`, `steps[0] ("b"): fields: [0]: format: got "(", which is no regular expression kblocal can use`},
		{`{"block":"b","fields":[{"text":"t","key":"k"},{"text":"t","key":"k"}]}`, `steps[0] ("b"): fields: [1]: key "k" is used by two fields`},
		{`{"command":"x","notify":"slack"}`, `steps[0].notify: got "slack", want a list of services, each as a mapping [KB012]`},
		{`{"command":"x","env":{"A=B":"1"}}`, `steps[0].env: got the name "A=B", want the name of a variable: letters, digits and _ [KB012]`},
		{`{"command":"x","env":{"A":"1\u0000"}}`, `steps[0]: env: A: got a NUL in the value, which no environment can hold`},
		{`{"command":"x","env":{"":"1"}}`, `steps[0].env: got the name "", want the name of a variable: letters, digits and _ [KB012]`},
		{`{"command":"x","timeout":5}`, `steps[0]: timeout of a command step is not supported by kblocal`},
		{`{"command":"x","artifact_path":"y"}`, `steps[0]: unknown key "artifact_path", nearest is "artifact_paths" [KB011]`},
		{`{"command":"x","key":"k","timeout_in_minutes":"15m"}`, `steps[0] (k).timeout_in_minutes: got "15m", want a whole number of minutes, at least 1 [KB012]`},
		{`{"command":"x","timeout_in_minutes":0}`, `steps[0].timeout_in_minutes: got 0, want a whole number of minutes, at least 1 [KB012]`},
		{`{"command":"x","env":{"N":1}}`, `steps[0]: env: N: got a number, want a string`},
		{`{"command":"x","key":"a b"}`, `steps[0] (a b).key: got "a b", want letters, digits, _ - . : and comma [KB018]`},
		{`{"command":"x","key":"` + long + `"}`, `steps[0] (` + long[:40] + `…).key: got 101 characters, want at most 100 [KB304]`},
		{`{"command":"x","key":"0190c0de-0000-4000-8000-000000000001"}`, `steps[0] (0190c0de-0000-4000-8000-000000000001).key: got "0190c0de-0000-4000-8000-000000000001", want a key unlike a UUID [KB018]`},
		{`{"command":"x","concurrency":1}`, `steps[0]: got concurrency, want concurrency_group beside it [KB019]`},
		{`{"command":"x","concurrency_group":"g"}`, `steps[0]: got concurrency_group, want concurrency beside it [KB019]`},
		{`{"command":"x","skip":"` + long + `"}`, `steps[0].skip: got 101 characters, want at most 70 [KB305]`},
		{`{"command":"x","retry":{"automatic":[{"exit_status":-1},{"limit":11}]}}`, `steps[0].retry.automatic[1].limit: got 11, want 0 to 10 [KB307]`},
		{`{"command":"x","retry":{"automatic":{"exit_code":1}}}`, `steps[0].retry.automatic: unknown key "exit_code" [KB011]`},
		{`{"command":"x","plugins":{"docker":null}}`, `steps[0]: plugins: got an object, want a list of one-key objects`},
		{`{"command":"x","agents":["queue"]}`, `steps[0].agents[0]: got "queue", want text, a number or a boolean [KB012]`},
		{`{"command":"x","depends_on":[{"key":"a"}]}`, `steps[0].depends_on[0]: missing key "step" [KB013]; steps[0].depends_on[0]: unknown key "key" [KB011]`},
		{`{"command":"x","checkout":{"depth":1}}`, `steps[0]: checkout: depth is not supported by kblocal, only skip, submodules and lfs`},
		{`{"group":"g","steps":[]}`, `steps[0].steps: got a list without members, want at least one [KB012]`},
		{`{"group":"g","steps":[{"group":"h","steps":[]}]}`, `steps[0].steps[0]: got a group in a group, want one level [KB012]; steps[0].steps[0].steps: got a list without members, want at least one [KB012]`},
		{`{"group":"g","steps":[{"command":"x","oops":1}]}`, `steps[0].steps[0]: unknown key "oops" [KB011]`},
		{`7`, `steps[0]: got 7, want a mapping, or wait, block or input [KB010]`},
	} {
		_, err := Parse([]byte(`{"steps":[` + tt.step + `]}`))
		if err == nil || err.Error() != tt.want {
			t.Errorf("Parse(%s)\n got %v\nwant %s", tt.step, err, tt.want)
		}
	}
	for _, tt := range []struct{ doc, want string }{
		{`[]`, `steps: got a list without members, want at least one [KB012]`},
		{`{"steps":[]}`, `steps: got a list without members, want at least one [KB012]`},
		{`{"stepz":[]}`, `missing key "steps" [KB013]; stepz: unknown key "stepz", nearest is "steps" [KB011]`},
		{`{"steps":[{"command":"x","key":"k"},{"command":"y","key":"k"}]}`, `steps[1] (k).key: got "k", which is the key of steps[0] (k) (line 1) too, want a unique key [KB101]`},
		{`{"steps":[{"command":"x","parallelism":499},"wait","wait"]}`, `steps: got 501 jobs, want at most 500 in one upload [KB301]`},
	} {
		if _, err := Parse([]byte(tt.doc)); err == nil || err.Error() != tt.want {
			t.Errorf("Parse(%s)\n got %v\nwant %s", tt.doc, err, tt.want)
		}
	}
}

// Text that YAML writes differently reaches the same rules.
func TestParseText(t *testing.T) {
	for _, text := range []string{"a\x7fb", "a\u0085b\u009fc\uffff", `\ud83d\ude00\/`, `\ud800`} {
		if _, err := Parse([]byte("{\"steps\":\n\t[\n\t{\"command\"\n\t:\n\t\"" + text + "\"}]}")); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := Parse([]byte(`{"steps":[{"command":"` + text + `","oops":1}]}`)); err == nil || !strings.Contains(err.Error(), "[KB011]") {
			t.Errorf("%q beside an unknown key: got %v, want KB011", text, err)
		}
	}
}

func TestRetryRuleMatches(t *testing.T) {
	for _, tt := range []struct {
		rule           string
		status         int
		signal, reason string
		want           bool
	}{
		{`true`, 1, "", "", true},
		{`true`, -1, "", "", false},
		{`true`, 0, "", "", false},
		{`{"exit_status":"*"}`, 255, "", "", true},
		{`{"exit_status":[1,2]}`, 2, "", "", true},
		{`{"exit_status":-1,"signal_reason":"none"}`, -1, "", "", true},
		{`{"exit_status":-1,"signal_reason":"none"}`, -1, "", "process_run_error", false},
		{`{"signal_reason":"agent_stop"}`, -1, "SIGTERM", "agent_stop", true},
		{`{"signal_reason":"agent_stop"}`, -1, "SIGTERM", "cancel", false},
		{`{"signal_reason":"*"}`, -1, "", "cancel", true},
		{`{"signal_reason":"*"}`, 1, "", "", false},
		{`{"signal":"kill"}`, 137, "SIGKILL", "", true},
		{`{"signal":"none"}`, 1, "", "", true},
		{`{"signal":"none"}`, 1, "SIGTERM", "", false},
		{`{"limit":1}`, 4, "", "", true},
		{`{"limit":1}`, -1, "", "", false},
	} {
		doc, err := Parse(fmt.Appendf(nil, `{"steps":[{"command":"x","retry":{"automatic":%s}}]}`, tt.rule))
		if err != nil {
			t.Fatal(err)
		}
		got := doc.Steps[0].Retry.Automatic[0].Matches(tt.status, tt.signal, tt.reason)
		if got != tt.want {
			t.Errorf("%s matches (%d, %q, %q) = %t, want %t", tt.rule, tt.status, tt.signal, tt.reason, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"steps":["wait",{"command":"x","retry":{"automatic":true}}]}`))
	f.Add([]byte(`{"env":{},"agents":["a=b"],"steps":[{"group":null,"steps":[{"plugins":["a#v1"]}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := Parse(data)
		if (doc == nil) == (err == nil) {
			t.Errorf("Parse(%q) = %v, %v: want a document or an error", data, doc, err)
		}
	})
}
