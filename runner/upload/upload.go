// Package upload hands pipelines to the agent of the job that it runs in, and
// what belongs to that: notes on the build's page, metrics, and a relay that
// waits for the one evaluation of a build.
package upload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/gpu-mode/kbgen/runner/agent"
	"gopkg.in/yaml.v3"
)

// Grace is what a cancelled agent gets to end: half of what it gives a job.
const Grace = 5 * time.Second

// An Uploader hands documents to the agent of this job.
type Uploader struct {
	agent.Agent
	Stdout, Stderr io.Writer
}

// ErrRefused is an agent that did not upload, and has said why.
var ErrRefused = errors.New("uploading the pipeline: the agent ended")

// Upload hands pipeline to the agent on its standard input and waits. The
// agent says by itself what goes wrong.
//
// Error: [ErrRefused] among them.
func (a Uploader) Upload(ctx context.Context, flags []string, pipeline []byte) error {
	cmd := a.Command(ctx, Grace, append([]string{"pipeline", "upload"}, flags...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(pipeline), a.Stdout, a.Stderr
	err := cmd.Run()
	exited, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("uploading the pipeline: %w", ctx.Err())
	case ok && exited.Exited():
		return fmt.Errorf("%w with %w", ErrRefused, err)
	default:
		return fmt.Errorf("uploading the pipeline with %s: %w", a.Path, err)
	}
}

// Missing leaves out what an earlier attempt of this job has uploaded: a
// document whose first step the build already has. Asked only in a retried
// job. When Buildkite cannot say, the document stays: a second upload of a
// step's key is refused there.
func (a Uploader) Missing(ctx context.Context, documents [][]byte) ([][]byte, error) {
	var rest [][]byte
	for _, doc := range documents {
		key, err := firstKey(doc)
		if err != nil {
			return nil, err
		}
		if err := a.Command(ctx, Grace, "step", "get", "id", "--step", key).Run(); err != nil {
			rest = append(rest, doc)
			continue
		}
		fmt.Fprintf(a.Stderr, "kbgen: note: an earlier attempt of this job has uploaded step %s, not uploading it again\n", key)
	}
	return rest, ctx.Err()
}

func firstKey(doc []byte) (string, error) {
	var head struct {
		Steps []struct {
			Key string `yaml:"key"`
		} `yaml:"steps"`
	}
	if err := yaml.Unmarshal(doc, &head); err != nil || len(head.Steps) == 0 {
		return "", fmt.Errorf("reading back the pipeline: %w", err)
	}
	return head.Steps[0].Key, nil
}

// keepLimit bounds what the build does not wait for: its steps are there.
const keepLimit = 30 * time.Second

// Keep uploads the text as an artifact of this job, so that people see later
// what was uploaded. Steps run already; what goes wrong here is a warning.
func (a Uploader) Keep(ctx context.Context, pipeline []byte) {
	dir, err := os.MkdirTemp("", "kbgen-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.WriteFile(filepath.Join(dir, "pipeline.yml"), pipeline, 0o600)
	}
	if err == nil {
		err = a.Call(ctx, keepLimit, dir, "", "artifact", "upload", "pipeline.yml")
	}
	if err != nil {
		fmt.Fprintf(a.Stderr, "kbgen: warning: keeping the pipeline as an artifact: %v\n", err)
	}
}
