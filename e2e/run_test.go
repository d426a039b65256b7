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
		{name: "a refused step", pipeline: "steps: [{block: ok}]", status: 1, stdout: "block is not supported by kblocal"},
		{name: "an unknown condition", pipeline: "steps: [{command: x, if: 'build.nothing == 1'}]", status: 1, stdout: "if: "},
		{name: "nothing on stdin", pipeline: "", status: 1, stderr: "the pipeline is empty"},
		{name: "too slow", pipeline: "steps: [{command: sleep 600, key: a}]", args: []string{"--timeout", "1s"}, status: 1, stderr: "build canceled: not done after 1s"},
		{name: "bad env", pipeline: "x", args: []string{"--env", "oops"}, status: 2, stderr: `--env "oops": want NAME=VALUE`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := runPipeline(t, tt.pipeline, append([]string{"-", "--here"}, tt.args...)...)
			s.want(t, tt.status)
			if !strings.Contains(s.stdout, tt.stdout) || !strings.Contains(s.stderr, tt.stderr) {
				t.Errorf("stdout %q\nstderr %q\nwant %q and %q", s.stdout, s.stderr, tt.stdout, tt.stderr)
			}
		})
	}
}
