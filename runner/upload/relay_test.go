package upload

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/runner/agent"
	"github.com/gpu-mode/kbgen/schema"
)

// relayWith runs a relay with an agent that is a shell script. Its states are
// those that it says, one a call, the last for ever; "-" is a call that fails.
func relayWith(t *testing.T, ctx context.Context, states, outcome, result string) (said, uploaded string, err error) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("states", strings.ReplaceAll(states, " ", "\n")+"\n", 0o600)
	if result != "" {
		write("result.json", result, 0o600)
	}
	write("download.fails", "", 0o600) // the first of each
	write("upload.fails", "", 0o600)
	write("buildkite-agent", `#!/bin/sh
case "$1 $2 $3" in
"step get state")
	state=$(head -n 1 "$DIR/states")
	if [ "$(wc -l < "$DIR/states")" -gt 1 ]; then sed -i 1d "$DIR/states"; fi
	if [ "$state" = - ]; then echo "no answer" >&2; exit 1; fi
	echo "$state" ;;
"step get outcome") echo "$OUTCOME" ;;
"artifact download result.json" | "artifact upload result.json")
	if [ -e "$DIR/$2.fails" ]; then rm "$DIR/$2.fails"; echo "a bad day" >&2; exit 1; fi
	if [ "$2" = download ]; then cp "$DIR/result.json" "$4"; else cp result.json "$DIR/uploaded"; fi ;;
*) exit 9 ;;
esac
`, 0o755)
	var stderr bytes.Buffer
	environ := []string{"PATH=" + os.Getenv("PATH"), "DIR=" + dir, "OUTCOME=" + outcome}
	r := Relay{Uploader{agent.Agent{Path: filepath.Join(dir, "buildkite-agent"), Environ: environ}, io.Discard, &stderr}, "evaluate-h100"}
	err = r.Run(ctx)
	data, readErr := os.ReadFile(filepath.Join(dir, "uploaded"))
	if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
		t.Fatal(readErr)
	}
	return stderr.String(), string(data), err
}

func encodedResult(t *testing.T, outcome string) string {
	t.Helper()
	r := &schema.Result{RunID: "r", Success: outcome == schema.OutcomePassed, System: schema.SystemInfo{DeviceCount: 1}, Outcome: schema.NewOutcome(outcome, "")}
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRelay(t *testing.T) {
	t.Parallel()
	passed, machine, bad := encodedResult(t, schema.OutcomePassed), encodedResult(t, schema.OutcomeMachine), encodedResult(t, schema.OutcomeBadPayload)
	for _, tt := range []struct {
		name, states, outcome, result string
		status                        int // 0: no error
		says                          string
	}{
		{"passed", "waiting_for_dependencies - ready running finished", "passed", passed, 0, ""},
		{"the machine's fault", "running finished", "hard_failed", machine, schema.ExitTempFail, "step evaluate-h100: machine"},
		{"a bad payload", "finished", "hard_failed", bad, schema.ExitConfig, "step evaluate-h100: bad-payload"},
		{"no result", "finished", "hard_failed", "", 1, `left no result, its outcome is "hard_failed"`},
		{"no result of a passed step", "finished", "passed", "", 1, "has passed and left no result"},
		{"canceled", "canceled", "errored", "", 1, `its outcome is "errored"`},
		{"nonsense", "finished", "passed", "{", 1, "the result of step evaluate-h100"},
		{"somebody else's", "finished", "passed", `{"success": true, "error": "", "runs": {}}`, 1, "kbrun did not write it"},
		{"a verdict whose job failed", "finished", "hard_failed", passed, 1, `has a verdict, and its outcome is "hard_failed"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			said, uploaded, err := relayWith(t, t.Context(), tt.states, tt.outcome, tt.result)
			status := 0
			if err != nil {
				status = 1
			}
			if ended := new(EndError); errors.As(err, &ended) {
				status = ended.Status
			}
			if status != tt.status || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("run = %v (exit status %d), want %d and %q\n%s", err, status, tt.status, tt.says, said)
			}
			whole := tt.result == passed || tt.result == machine || tt.result == bad
			if (uploaded == tt.result && tt.result != "") != whole {
				t.Errorf("uploaded %q, want the result as it was: %v", uploaded, whole)
			}
			if strings.Contains(tt.states, " - ") && !strings.Contains(said, "asking for the state") {
				t.Errorf("a failed call was not said:\n%s", said)
			}
			if whole && strings.Count(said, "a bad day; trying again") != 2 {
				t.Errorf("the first download and upload fail, said is\n%s", said)
			}
		})
	}
}

// A relay ends with its job, and not before the step has an end.
func TestRelayEndsWithItsJob(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, uploaded, err := relayWith(t, ctx, "running", "neutral", encodedResult(t, schema.OutcomePassed)); !errors.Is(err, context.Canceled) || uploaded != "" {
		t.Errorf("run = %v with %q uploaded, want it canceled", err, uploaded)
	}
}
