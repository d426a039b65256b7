package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

// A pasted pipeline takes every build. One that asks for another GPU type, or for
// another queue, is judged by no machine of it, whoever launched it.
func TestStaticPipelineIsForItsTypeOnly(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]map[string]string{
		"another type":  {schema.EnvGPU: "L40S_BK"},
		"another queue": {schema.EnvQueue: "test"},        // all that Kernelbot's own launcher says
		"an old queue":  {schema.EnvOldQueue: "test-old"}, // and its older one
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"run", filepath.Join(root, "testdata", "golden", "bootstrap", "CPU_BK.static.yml"), "--json",
				"--env", schema.EnvRunID + "=elsewhere", "--env", schema.EnvPayload + "=" + encoded(t, "test")}
			for variable, value := range env {
				args = append(args, "--env", variable+"="+value)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s := command(t, ctx, []string{"KBLOCAL_AGENT=" + agent, "PATH=" + bin + ":" + os.Getenv("PATH")}, "", filepath.Join(bin, "kblocal"), args...)
			var build struct {
				Jobs []struct {
					StepKey    string `json:"step_key"`
					ExitStatus *int   `json:"exit_status"`
				}
				MetaData map[string]string `json:"meta_data"`
			}
			if err := json.Unmarshal([]byte(s.stdout), &build); err != nil {
				t.Fatalf("%v in:\n%s\n%s", err, s.stdout, s.stderr)
			}
			if got := build.MetaData["outcome:elsewhere"]; got != schema.OutcomeWrongMachine || strings.Contains(s.stdout, "=passed") {
				t.Errorf("outcome %q, want %s; %s", got, schema.OutcomeWrongMachine, s.stdout)
			}
			judged := 0
			for _, j := range build.Jobs {
				if j.StepKey != "evaluate-cpu" { // the one that uploads the file
					continue
				}
				judged++
				if j.ExitStatus == nil || *j.ExitStatus != schema.ExitTempFail {
					t.Errorf("exit status of a job in %s, want %d: another machine may be right", s.stdout, schema.ExitTempFail)
				}
			}
			if judged == 0 {
				t.Errorf("nobody was asked to judge: %s", s.stdout)
			}
		})
	}
}
