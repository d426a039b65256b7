package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/runner/agent"
	"github.com/gpu-mode/kbgen/schema"
)

// uploadCmd renders a pipeline and hands it to the agent: the same bytes that
// render prints, for the agent to interpolate.
type uploadCmd struct {
	pipelineFlags
	bootstrapFlags
	DryRun     bool   `name:"dry-run" help:"print the pipeline instead; needs no job and no agent"`
	Agent      string `placeholder:"PATH" help:"the buildkite-agent to use; default the job's, else the one on PATH"`
	MaxJobs    *int   `name:"max-jobs" placeholder:"N" help:"jobs in one document, further ones follow; default 500"`
	Replace    bool   `help:"drop the build's steps that have not begun"`
	AllowEmpty bool   `name:"allow-empty" help:"with --gpu ALL: nothing to do is not an error"`
	Artifact   bool   `default:"true" negatable:"" help:"do not store pipeline.yml as an artifact of this job"`
	Metrics    string `placeholder:"FILE" help:"write what was done, as OpenMetrics"`

	JWKSFile string `name:"jwks-file" placeholder:"PATH" help:"sign the steps: handed to the agent"`
	JWKSKey  string `name:"jwks-key-id" placeholder:"ID" help:"the key to sign with: handed to the agent"`
	AWSKMS   string `name:"signing-aws-kms-key" placeholder:"ID" help:"an AWS KMS key to sign with: handed to the agent"`
	GCPKMS   string `name:"signing-gcp-kms-key" placeholder:"ID" help:"a GCP KMS key to sign with: handed to the agent"`
}

func (c *uploadCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.Pipeline == "" {
		c.Pipeline = "evaluate"
	}
	c.bootstrap, c.within = c.bootstrapFlags, ctx
	if err := asExpected(c.ExpectVersion, cli.Version()); err != nil {
		return err
	}
	if c.Pipeline == "evaluate" && schema.Idle(env.LookupEnv) {
		return c.idle(ctx, env)
	}
	var m metrics
	begun := time.Now()
	documents, err := c.documents(env)
	if err != nil || len(documents) == 0 {
		return err
	}
	m.rendering = time.Since(begun)
	step := ""
	if c.Relay {
		if step, err = c.relayed(env); err != nil {
			return err
		}
	}
	if c.DryRun {
		_, err := env.Stdout.Write(generator.Join(documents))
		return err
	}
	if name := agent.Missing(env.Getenv); name != "" {
		return cli.WithHint(fmt.Errorf("not inside a Buildkite job: %s is not set", name),
			"kbgen upload %s --dry-run prints what would be uploaded", c.Pipeline)
	}
	a, err := c.uploader(env)
	if err != nil {
		return err
	}
	if n := env.Getenv("BUILDKITE_RETRY_COUNT"); n != "" && n != "0" {
		if documents, err = a.missing(ctx, documents); err != nil {
			return err
		}
	}
	if len(documents) > 0 {
		if err := c.hand(ctx, a, documents, &m); err != nil {
			return err
		}
	}
	c.keepMetrics(env, &m)
	if c.Relay {
		return relay{a, step}.run(ctx)
	}
	return nil
}

// keepMetrics writes what the upload did, where it is asked for. The steps are
// there: what goes wrong is a warning.
func (c *uploadCmd) keepMetrics(env *cli.Env, m *metrics) {
	if c.Metrics == "" {
		return
	}
	err := m.count(c, env)
	if err == nil {
		err = m.write(c.Metrics)
	}
	if err != nil {
		fmt.Fprintf(env.Stderr, "kbgen: warning: writing the metrics: %v\n", err)
	}
}

// hand uploads documents, and then shows what people ask about later.
func (c *uploadCmd) hand(ctx context.Context, a uploader, documents [][]byte, m *metrics) error {
	begun := time.Now()
	if err := a.upload(ctx, c.agentFlags(), generator.Join(documents)); err != nil {
		return err
	}
	m.handover, m.documents = time.Since(begun), len(documents)
	for _, n := range c.notes {
		a.annotate(ctx, "warning", n)
	}
	if c.Artifact {
		a.keep(ctx, generator.Join(documents))
	}
	return nil
}

// uploader finds the agent of this job.
func (c *uploadCmd) uploader(env *cli.Env) (a uploader, err error) {
	path, err := findAgent(c.Agent, env)
	return uploader{agent.Agent{Path: path, Environ: env.Environ()}, env}, err
}

// idle ends the job of a build that carries nothing to judge, and says so on its
// page.
func (c *uploadCmd) idle(ctx context.Context, env *cli.Env) error {
	n := pipelines.Note{About: "idle", Text: "a push or a pull request made this build, and it carries no payload: nothing is judged"}
	say(env, []pipelines.Note{n})
	if c.DryRun || agent.Missing(env.Getenv) != "" {
		return nil
	}
	a, err := c.uploader(env)
	if err != nil {
		return nil // the log has it
	}
	a.annotate(ctx, "info", n)
	return nil
}

// documents renders. No GPU type that could be asked for is an error, unless
// allowed.
func (c *uploadCmd) documents(env *cli.Env) ([][]byte, error) {
	if c.AllowEmpty && len(c.GPU) == 1 && strings.EqualFold(c.GPU[0], pipelines.All) {
		p, err := c.find()
		if err != nil {
			return nil, err
		}
		if r, err := c.request(p, env); err == nil && p.NeedsGPUs && len(r.GPUs) == 0 {
			fmt.Fprintf(env.Stderr, "kbgen: note: no GPU type is switched on for pipeline %s, nothing to upload\n", p.Name)
			return nil, nil
		}
	}
	return c.render(env, generator.YAML, c.MaxJobs)
}

// agentFlags are the flags handed on. A signing key itself is never among
// them: files and names of keys only.
func (c *uploadCmd) agentFlags() []string {
	flags := []string{"--reject-parse-warnings"}
	if c.Replace {
		flags = append(flags, "--replace")
	}
	for _, f := range []struct{ name, value string }{
		{"--jwks-file", c.JWKSFile}, {"--jwks-key-id", c.JWKSKey},
		{"--signing-aws-kms-key", c.AWSKMS}, {"--signing-gcp-kms-key", c.GCPKMS},
	} {
		if f.value != "" {
			flags = append(flags, f.name, f.value)
		}
	}
	return flags
}

// findAgent returns the agent to run: the one named, else the job's.
func findAgent(named string, env *cli.Env) (string, error) {
	if named != "" {
		return exec.LookPath(named)
	}
	path, err := agent.Find(env.Getenv)
	return path, cli.WithHint(err, "--agent PATH")
}

// grace is what a cancelled agent gets to end: half of what it gives a job.
const grace = 5 * time.Second

// An uploader hands documents to the agent of this job.
type uploader struct {
	agent.Agent
	env *cli.Env
}

// upload hands pipeline to the agent on its standard input and waits. The
// agent says by itself what goes wrong.
func (a uploader) upload(ctx context.Context, flags []string, pipeline []byte) error {
	cmd := a.Command(ctx, grace, append([]string{"pipeline", "upload"}, flags...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(pipeline), a.env.Stdout, a.env.Stderr
	err := cmd.Run()
	var exited *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("uploading the pipeline: %w", ctx.Err())
	case errors.As(err, &exited) && exited.Exited():
		return &cli.ExitError{Status: exitRefused, Err: fmt.Errorf("uploading the pipeline: the agent ended with %w", err)}
	default:
		return fmt.Errorf("uploading the pipeline with %s: %w", a.Path, err)
	}
}

// missing leaves out what an earlier attempt of this job has uploaded: a
// document whose first step the build already has. Asked only in a retried
// job. When Buildkite cannot say, the document stays: a second upload of a
// step's key is refused there.
func (a uploader) missing(ctx context.Context, documents [][]byte) ([][]byte, error) {
	var rest [][]byte
	for _, doc := range documents {
		key, err := firstKey(doc)
		if err != nil {
			return nil, err
		}
		if err := a.Command(ctx, grace, "step", "get", "id", "--step", key).Run(); err != nil {
			rest = append(rest, doc)
			continue
		}
		fmt.Fprintf(a.env.Stderr, "kbgen: note: an earlier attempt of this job has uploaded step %s, not uploading it again\n", key)
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

// keep uploads the text as an artifact of this job, so that people see later
// what was uploaded. Steps run already; what goes wrong here is a warning.
func (a uploader) keep(ctx context.Context, pipeline []byte) {
	dir, err := os.MkdirTemp("", "kbgen-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.WriteFile(filepath.Join(dir, "pipeline.yml"), pipeline, 0o600)
	}
	if err == nil {
		err = a.Call(ctx, keepLimit, dir, "", "artifact", "upload", "pipeline.yml")
	}
	if err != nil {
		fmt.Fprintf(a.env.Stderr, "kbgen: warning: keeping the pipeline as an artifact: %v\n", err)
	}
}
