package e2e

import (
	"context"
	"encoding/json"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
)

// runPipeline runs kblocal run, with the pipeline on stdin or in a file.
func runPipeline(t *testing.T, stdin string, args ...string) output {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return command(t, ctx, []string{"KBLOCAL_AGENT=" + agent}, stdin, filepath.Join(bin, "kblocal"), append([]string{"run"}, args...)...)
}

func TestRunEverything(t *testing.T) {
	t.Parallel()
	s := runPipeline(t, "", filepath.Join("testdata", "pipelines", "everything.yml"), "--json")
	s.want(t, 0)
	var build struct {
		State string
		Jobs  []struct {
			Type    string `json:"type"`
			StepKey string `json:"step_key"`
			State   string `json:"state"`
		} `json:"jobs"`
		MetaData map[string]string `json:"meta_data"`
	}
	if err := json.Unmarshal([]byte(s.stdout), &build); err != nil {
		t.Fatalf("%v in:\n%s", err, s.stdout)
	}
	var got []string
	for _, j := range build.Jobs {
		if j.Type == "script" {
			got = append(got, j.StepKey+"="+j.State)
		}
	}
	sort.Strings(got)
	want := "collect=passed early=passed flaky=failed flaky=passed kblocal-upload=passed " +
		"shard=passed shard=passed shard=passed skipped=broken soft=failed"
	if strings.Join(got, " ") != want {
		t.Errorf("jobs\n got %s\nwant %s", strings.Join(got, " "), want)
	}
	if build.State != "passed" || build.MetaData["note"] != "from early" {
		t.Errorf("state %q, note %q", build.State, build.MetaData["note"])
	}
	for _, line := range []string{`\[flaky\] attempt 1 says hello`, `\[shard 3/3\] shard 2 of 3`, `\[soft\] failed after .*, exit status 3, soft failed`} {
		if !regexp.MustCompile(line).MatchString(s.stderr) {
			t.Errorf("the log lacks %q:\n%s", line, s.stderr)
		}
	}
}

func TestRunOutcomes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, pipeline string
		args           []string
		status         int
		stdout, stderr string
	}{
		{name: "a failing step", pipeline: "steps: [{command: 'echo no; exit 7', key: a}]", status: 1, stdout: "[a] failed after"},
		{name: "env and interpolation", pipeline: "steps: [{command: 'echo $WHO and $$WHO', key: a}]", args: []string{"--env", "WHO=me"}, stdout: "[a] me and me"},
		{name: "a refused step", pipeline: "steps: [{command: x, soft_file: true}]", status: 1, stdout: "[kblocal-upload] upload refused, nothing of it runs:\n[kblocal-upload]   steps[0]: unknown key \"soft_file\", nearest is \"soft_fail\" [KB011]\n"},
		{name: "a block nobody answers", pipeline: "steps: [{block: ok}]", status: 1, stdout: "[ok] waits for somebody", stderr: `--unblock "ok" goes on`},
		{name: "a block with fields", pipeline: "steps: [{block: ok, key: gate, prompt: sure, fields: [{text: T, key: who}]}, {command: 'buildkite-agent meta-data get who', key: a}]", args: []string{"--unblock", "gate", "--field", "who=m,e"}, stdout: "[a] m,e"},
		{name: "an answer that is missing", pipeline: "steps: [{block: ok, fields: [{text: T, key: who}]}]", args: []string{"--unblock", "*"}, status: 1, stderr: "field who: an answer is required"},
		{name: "an input", pipeline: "steps: [{input: ok, fields: [{select: S, key: s, options: [{value: x}]}]}, {command: echo at once, key: a}]", args: []string{"--unblock", "*", "--field", "s=x"}, stdout: "[a] passed"},
		{name: "a matrix", pipeline: "steps: [{command: 'echo got {{matrix.os}}-$$OS', env: {OS: '{{matrix.os}}'}, matrix: {setup: {os: [linux, mac]}, adjustments: [{with: {os: mac}, skip: true}]}}]", stdout: "got linux-linux"},
		{name: "one step", pipeline: "steps: [{command: exit 1, key: a}, wait, {command: echo chosen, key: b}]", args: []string{"--step", "b"}, stdout: "[b] chosen"},
		{name: "a step that is not there", pipeline: "steps: [{command: exit 1, key: a}]", args: []string{"--step", "b"}, status: 1, stdout: `no step has the key or label ["b"], have the keys ["a"]`},
		{name: "a step without a name", pipeline: "steps: [{command: echo it is me}]", stdout: "[echo it is me] it is me"},
		{name: "another pipeline", pipeline: "steps: [{trigger: elsewhere}]", status: 1, stdout: `triggers the pipeline "elsewhere", which is not there`},
		{name: "a step on the host", pipeline: "steps: [{command: 'echo on $$WHERE', key: a, plugins: [{docker#v5.13.0: {image: 'some:image', environment: [WHERE=host]}}]}]", args: []string{"--host", "docker"}, stdout: "runs ON THIS MACHINE, not in some:image"},
		{name: "no such host", pipeline: "x", args: []string{"--host", "podman"}, status: 2, stderr: "want docker"},
		{name: "an impossible name", pipeline: "x", args: []string{"--env", "=x"}, status: 2, stderr: "want NAME=VALUE"},
		{name: "an unknown condition", pipeline: "steps: [{command: x, if: 'build.nothing == 1'}]", status: 1, stdout: "if: "},
		{name: "nothing on stdin", pipeline: "", status: 1, stderr: "the pipeline is empty"},
		{name: "too slow", pipeline: "steps: [{command: sleep 600, key: a}]", args: []string{"--timeout", "1s"}, status: 1, stderr: "build canceled: not done after 1s"},
		{name: "bad env", pipeline: "x", args: []string{"--env", "oops"}, status: 2, stderr: `--env "oops": want NAME=VALUE`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := runPipeline(t, tt.pipeline, append([]string{"-", "--here"}, tt.args...)...)
			s.want(t, tt.status)
			if strings.Contains(s.stdout, "rev-parse") {
				t.Errorf("what does not matter is shown:\n%s", s.stdout)
			}
			if !strings.Contains(s.stdout, tt.stdout) || !strings.Contains(s.stderr, tt.stderr) {
				t.Errorf("stdout %q\nstderr %q\nwant %q and %q", s.stdout, s.stderr, tt.stdout, tt.stderr)
			}
		})
	}
}

// Outside of a repository nobody hears that there is none.
func TestRunOutsideOfARepository(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s := command(t, ctx, []string{"KBLOCAL_AGENT=" + agent}, "steps: [{command: echo here}]", "sh", "-c",
		`cd "$1" && exec "$2" run -`, "sh", t.TempDir(), filepath.Join(bin, "kblocal"))
	s.want(t, 0, "[echo here] here")
	if strings.Contains(s.stdout, "rev-parse") || !strings.Contains(s.stderr, "no git repository here") {
		t.Errorf("stdout %s\nstderr %s\nwant a note, and no rev-parse", s.stdout, s.stderr)
	}
}

// List and dry run show the steps and start nothing.
func TestRunPreviews(t *testing.T) {
	t.Parallel()
	const pipeline = "steps: [{command: 'echo $WHO', key: a, agents: {queue: q}}, {wait: ~}, {command: x, depends_on: a, matrix: [1, 2]}, {block: stop, key: b}]"
	s := runPipeline(t, pipeline, "-", "--list", "--env", "WHO=me")
	s.want(t, 0)
	for _, line := range []string{`(?m)^KEY +KIND +JOBS +QUEUE +AFTER +WHAT$`, `(?m)^a +command +1 +q +- +echo me$`, `(?m)^- +command +2 +default +a +x$`, `(?m)^b +block +- +- +- +stop$`} {
		if !regexp.MustCompile(line).MatchString(s.stdout) {
			t.Errorf("the list lacks %q:\n%s", line, s.stdout)
		}
	}
	s = runPipeline(t, pipeline, "-", "--dry-run", "--env", "WHO=me")
	s.want(t, 0, "command: echo me", "block: stop")
	if s = runPipeline(t, "steps: [{comand: x}]", "-", "--dry-run"); s.status != 1 || s.stdout != "" {
		t.Errorf("a bad pipeline: status %d, stdout %q, stderr %s; want 1 and nothing", s.status, s.stdout, s.stderr)
	}
}
