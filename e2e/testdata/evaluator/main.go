// Evaluator stands for kbrun in fault campaigns: it judges nothing, leaves the
// verdict that the submission asks for, and hands it over as kbrun does. It costs a
// tenth of a real evaluation, so thousands can be made.
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
	wanted, err := ask(outcome)
	if err != nil {
		return err
	}
	r := &schema.Result{
		Success: true, RunID: id, System: schema.SystemInfo{DeviceCount: 1}, Outcome: schema.NewOutcome(wanted.outcome, text),
		Evidence: schema.Evidence{GPUType: os.Getenv(schema.EnvGPU), Queue: os.Getenv(schema.EnvQueue)}, Runs: wanted.runs,
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

// answer is what the submission asks for.
type answer struct {
	outcome string
	runs    schema.Runs
}

// ask reads the submission. One of a service's begins with "# want PUBLIC SECRET
// NANOSECONDS": the outcomes of its public and its secret run, and what its
// benchmark takes. Otherwise the user says the outcome.
func ask(user string) (answer, error) {
	p, err := schema.DecodePayload(os.Getenv(schema.EnvPayload))
	if err != nil {
		return answer{}, err
	}
	var public, secret, ns string
	for _, f := range p.Sources {
		if _, err := fmt.Sscanf(f.Text, "# want %s %s %s\n", &public, &secret, &ns); err == nil {
			break
		}
	}
	if public == "" {
		return answer{outcome: user}, nil
	}
	a := answer{outcome: public}
	if p.Mode == schema.ModePrivate {
		a.outcome = secret
	}
	passed := a.outcome == schema.OutcomePassed
	for _, phase := range p.Phases() {
		now := time.Now()
		check := map[bool]string{true: "pass", false: "fail"}[passed]
		a.runs = append(a.runs, schema.Run{Name: phase, EvalResult: schema.EvalResult{Start: now, End: now, Run: &schema.RunResult{
			Success: true, Passed: passed, Command: "evaluator", Duration: 0.01,
			Result: schema.Report{{Key: "benchmark-count", Value: "1"}, {Key: "benchmark.0.mean", Value: ns}, {Key: "check", Value: check}},
		}}})
		if !passed {
			break
		}
	}
	return a, nil
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
