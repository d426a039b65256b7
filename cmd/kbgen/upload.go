package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/runner/agent"
	"github.com/gpu-mode/kbgen/runner/upload"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
)

// uploadCmd renders a pipeline and hands it to the agent: the same bytes that
// render prints, for the agent to interpolate.
type uploadCmd struct {
	pipelineFlags
	bootstrapFlags
	DryRun     bool   `name:"dry-run" help:"print the pipeline instead; needs no job and no agent"`
	Agent      string `placeholder:"PATH" help:"the buildkite-agent to use; default the job's, else the one on PATH"`
	MaxJobs    int    `name:"max-jobs" default:"500" placeholder:"N" help:"jobs in one document, further ones follow"`
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
	c.Pipeline = cmp.Or(c.Pipeline, "evaluate")
	c.bootstrap, c.within = c.bootstrapFlags, ctx
	if err := generator.Expect(c.ExpectVersion, cli.Version()); err != nil {
		return cli.WithHint(err, "install %[1]s on the bootstrap machines (go install github.com/gpu-mode/kbgen/cmd/kbgen@%[1]s), or paste into the pipeline's settings what \"kbgen render bootstrap\" of %[2]s prints", c.ExpectVersion, cli.Version())
	}
	if c.Pipeline == "evaluate" && schema.Idle(env.LookupEnv) {
		return c.idle(ctx, env)
	}
	var m upload.Metrics
	begun := time.Now()
	documents, err := c.documents(env)
	if err != nil || len(documents) == 0 {
		return err
	}
	m.Rendering = time.Since(begun)
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
		if documents, err = a.Missing(ctx, documents); err != nil {
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
		err := upload.Relay{Uploader: a, Step: step}.Run(ctx)
		if ended := (*upload.EndError)(nil); errors.As(err, &ended) {
			return &cli.ExitError{Status: ended.Status, Err: err}
		}
		return err
	}
	return nil
}

// keepMetrics writes what the upload did, where it is asked for. The steps are
// there: what goes wrong is a warning.
func (c *uploadCmd) keepMetrics(env *cli.Env, m *upload.Metrics) {
	if c.Metrics == "" {
		return
	}
	err := c.count(env, m)
	if err == nil {
		err = m.Write(c.Metrics)
	}
	if err != nil {
		fmt.Fprintf(env.Stderr, "kbgen: warning: writing the metrics: %v\n", err)
	}
}

// hand uploads documents, and then shows what people ask about later.
func (c *uploadCmd) hand(ctx context.Context, a upload.Uploader, documents [][]byte, m *upload.Metrics) error {
	begun := time.Now()
	err := a.Upload(ctx, c.agentFlags(), generator.Join(documents))
	if errors.Is(err, upload.ErrRefused) {
		return &cli.ExitError{Status: exitRefused, Err: err}
	}
	if err != nil {
		return err
	}
	m.Handover, m.Documents = time.Since(begun), len(documents)
	for _, n := range c.notes {
		a.Annotate(ctx, "warning", n.About, n.Text)
	}
	if c.Artifact {
		a.Keep(ctx, generator.Join(documents))
	}
	return nil
}

// uploader finds the agent of this job.
func (c *uploadCmd) uploader(env *cli.Env) (a upload.Uploader, err error) {
	path, err := findAgent(c.Agent, env)
	return upload.Uploader{Agent: agent.Agent{Path: path, Environ: env.Environ()}, Stdout: env.Stdout, Stderr: env.Stderr}, err
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
	a.Annotate(ctx, "info", n.About, n.Text)
	return nil
}

// documents renders. No GPU type that could be asked for is an error, unless
// allowed.
func (c *uploadCmd) documents(env *cli.Env) ([][]byte, error) {
	if c.AllowEmpty && len(c.GPU) == 1 && strings.EqualFold(c.GPU[0], pipelines.All) {
		if p, r, err := c.wanted(env); err == nil && p.NeedsGPUs && len(r.GPUs) == 0 {
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

// count adds the steps of the pipeline that is asked for.
func (c *uploadCmd) count(env *cli.Env, m *upload.Metrics) error {
	p, r, err := c.wanted(env)
	if err != nil {
		return err
	}
	plan, err := generator.Plan(p, r)
	for _, s := range plan {
		if s.Skip == "" {
			m.Selected++
		} else {
			m.Skipped++
		}
	}
	m.Pipeline = p.Name
	return err
}

// say prints what the build asked for and does not get.
func say(env *cli.Env, notes []pipelines.Note) {
	for _, n := range notes {
		fmt.Fprintf(env.Stderr, "kbgen: note: %s\n", n.Text)
	}
}

// relayed returns what --relay waits for, before anything is uploaded.
//
// Error: there is not one evaluation; or the job's own agent would have to take
// it, which may be the only one of its queue.
func (c *uploadCmd) relayed(env *cli.Env) (key string, err error) {
	p, r, err := c.wanted(env)
	if err != nil {
		return "", err
	}
	if p.Name != "evaluate" || len(r.GPUs) != 1 || !r.Selection.All() {
		return "", cli.Usagef("--relay: got pipeline %s with %s, want evaluate with one, all of it: there is one result to show", p.Name, format.Count(len(r.GPUs), "GPU type"))
	}
	steps, err := p.Steps(r)
	if err != nil {
		return "", err
	}
	here := env.Getenv("BUILDKITE_AGENT_META_DATA_QUEUE")
	if on := steps[0].On.Queue; here == on {
		host, _ := pipelines.ServiceQueues.Lookup("BOOTSTRAP") // a test holds it there
		return "", cli.WithHint(fmt.Errorf("--relay: this job holds an agent of queue %s, on which its evaluation would wait", on),
			"run this step on a queue of its own, such as %q, with an agent for each evaluation that may be waited for", host.Queue)
	}
	return steps[0].Key, nil
}

// renderCmd prints a pipeline.
type renderCmd struct {
	pipelineFlags
	bootstrapFlags
	Format  string `enum:"yaml,json" default:"yaml" placeholder:"FORMAT" help:"yaml or json; json is safer in a pipe, because a truncated document does not parse"`
	MaxJobs int    `name:"max-jobs" default:"500" placeholder:"N" help:"jobs in one document, further ones follow"` // as many as Buildkite takes
	Static  bool   `help:"bootstrap only: one step that judges, for launchers that look for the result in a build's first job"`
}

func (c *renderCmd) Run(_ context.Context, env *cli.Env) error {
	c.bootstrap, c.static = c.bootstrapFlags, c.Static
	documents, err := c.render(env, generator.Format(c.Format), c.MaxJobs)
	if err != nil {
		return err
	}
	if c.Format == "json" && len(documents) > 1 {
		return cli.Usagef("--format json: got %d documents, and JSON has no way to part them: raise --max-jobs, or take yaml", len(documents))
	}
	if _, err := env.Stdout.Write(generator.Join(documents)); err != nil {
		return fmt.Errorf("writing the pipeline: %w", err)
	}
	return nil
}

// render returns the documents of the pipeline that is asked for.
func (f *pipelineFlags) render(env *cli.Env, format generator.Format, jobs int) ([][]byte, error) {
	p, err := f.find()
	if err != nil {
		return nil, err
	}
	if jobs < 1 || jobs > schema.MaxJobsPerUpload {
		return nil, cli.Usagef("--max-jobs %d: want 1 to %d, which Buildkite takes in one document", jobs, schema.MaxJobsPerUpload)
	}
	r, err := f.request(p, env)
	if err != nil {
		return nil, err
	}
	say(env, r.Notes)
	documents, err := generator.RenderParts(p, r, format, jobs)
	return documents, withStatus(err)
}
