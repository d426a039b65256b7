// Evaluator stands for kbrun in the fault campaign: it judges nothing, leaves the
// verdict that the submission's user is named for, and hands it over as kbrun
// does. It costs a tenth of a real evaluation, so thousands can be made.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "evaluator:", err)
		os.Exit(schema.ExitTempFail)
	}
}

func run() error {
	// "<outcome>" or, for one whose result is too long for meta-data,
	// "<outcome>-long".
	outcome, long := strings.CutSuffix(os.Getenv(schema.EnvUser), "-long")
	id := os.Getenv(schema.EnvRunID)
	text := "of run " + id
	if long {
		var noise strings.Builder
		for i := range 4000 {
			fmt.Fprintf(&noise, " %x", uint32(i)*2654435761)
		}
		text += noise.String()
	}
	r := &schema.Result{
		Success: true, RunID: id, System: schema.SystemInfo{DeviceCount: 1}, Outcome: schema.NewOutcome(outcome, text),
		Evidence: schema.Evidence{GPUType: os.Getenv(schema.EnvGPU), Queue: os.Getenv(schema.EnvQueue)},
	}
	raw, err := r.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile("result.json", raw, 0o600); err != nil {
		return err
	}
	// As kbrun: the artifact until it is there, the rest if it can be had.
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		err := agent("", "artifact", "upload", "result.json")
		if err == nil {
			break
		}
		if pause > 10*time.Second {
			return err
		}
		time.Sleep(pause)
	}
	if value, short := schema.InlineResult(raw, os.Getenv("BUILDKITE_JOB_ID")); short {
		if err := agent(value, "meta-data", "set", schema.MetaResult(id)); err != nil {
			fmt.Fprintln(os.Stderr, "evaluator: warning:", err)
		}
	}
	return nil
}

func agent(stdin string, args ...string) error {
	cmd := exec.Command("buildkite-agent", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}
