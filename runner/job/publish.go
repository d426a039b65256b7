package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/runner/agent"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/verdict"
)

const (
	uploadLimit = 60 * time.Second
	tellLimit   = 15 * time.Second
	// canceledLimit replaces both when the job is being ended: the agent kills
	// it about ten seconds after the signal.
	canceledLimit = 4 * time.Second
)

// uploads reports whether this is a job whose result kbrun itself hands over.
func uploads(env Env, out string) bool {
	return agent.Missing(env.Getenv) == "" && !slices.Contains(strings.Split(env.Getenv("BUILDKITE_ARTIFACT_PATHS"), ";"), filepath.Base(out))
}

// publish hands the result to Buildkite when this is a job that can do so
// itself: the artifact first, since annotation and meta-data only point to it.
// It is called when no process of the submission is left, because these calls
// have the job's token.
//
// The upload is tried until the job's time is over: what it would repeat, the
// evaluation, costs more.
//
// Error: the artifact could not be uploaded. Anything else is a warning.
func publish(ctx context.Context, env Env, clock clock, out string, result *schema.Result, v *verdict.Verdict) error {
	if agent.Missing(env.Getenv) != "" {
		return nil
	}
	path, err := agent.Find(env.Getenv)
	if err != nil {
		return fmt.Errorf("%w: the result cannot be uploaded", err)
	}
	a := agent.Agent{Path: path, Environ: schema.WithoutPayload(env.Environ())}
	if uploads(env, out) {
		again := retry{limit: uploadLimit, last: canceledLimit, end: clock.lastUpload(), first: time.Second, most: 30 * time.Second, say: func(err error) { warn(env, err) }}
		err := again.do(ctx, func(ctx context.Context, limit time.Duration) error {
			return a.Call(ctx, limit, filepath.Dir(out), "", "artifact", "upload", filepath.Base(out))
		})
		if err != nil {
			return err
		}
	}
	tell := tellLimit
	if ctx.Err() != nil {
		tell = canceledLimit
	}
	ctx = context.WithoutCancel(ctx)
	if result.RunID == "" {
		return nil
	}
	tell = clock.left(tell)
	var group sync.WaitGroup
	var annotated, set, told error
	group.Go(func() {
		annotated = a.Call(ctx, tell, "", v.Markdown(), "annotate", "--style", v.Style(), "--context", "kbrun-"+result.RunID)
	})
	group.Go(func() {
		set = a.Call(ctx, tell, "", "", "meta-data", "set", schema.MetaOutcome(result.RunID), result.Outcome.Name)
	})
	if value, short := inlineResult(out, env.Getenv("BUILDKITE_JOB_ID")); short {
		group.Go(func() { // by stdin: arguments are visible to every user of the machine
			told = a.Call(ctx, tell, "", value, "meta-data", "set", schema.MetaResult(result.RunID))
		})
	}
	group.Wait()
	if err := errors.Join(annotated, set, told); err != nil {
		warn(env, err)
	}
	return nil
}

// inlineResult is the result as it lies in out, for the build's meta-data, where
// its reader finds it without asking for the artifact; false when it is too long.
func inlineResult(out, job string) (string, bool) {
	f, err := os.Open(out)
	if err != nil {
		return "", false
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, schema.MaxInlineResultRaw+1))
	if err != nil {
		return "", false
	}
	return schema.InlineResult(raw, job)
}

// warn says what did not work and changes nothing.
func warn(env Env, err error) {
	fmt.Fprintf(env.Stderr, "kbrun: warning: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
}
