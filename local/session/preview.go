package session

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gpu-mode/kbgen/local/steps"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A Preview shows what an upload of the pipeline would bring, checked as an upload
// is. Nothing runs.
type Preview struct {
	Agent   string            // path
	Environ []string          // of the agent
	Vars    map[string]string // of the build
	YAML    bool              // the pipeline as it would be uploaded, not a list of its steps
}

// Print writes it for the pipeline.
func (p Preview) Print(ctx context.Context, out io.Writer, pipeline []byte) error {
	dry := func(format string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, p.Agent, "pipeline", "upload", "--dry-run", "--format", format, "--log-level", "error", "--no-color")
		cmd.Env = append(slices.Clone(p.Environ), "BUILDKITE_AGENT_ACCESS_TOKEN=none", "BUILDKITE_JOB_ID=none")
		for name, value := range p.Vars {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		cmd.Stdin = bytes.NewReader(pipeline)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("buildkite-agent pipeline upload --dry-run: %w: %s", err, text.Line(stderr.String(), 2000))
		}
		return out, nil
	}
	data, err := dry("json")
	if err != nil {
		return err
	}
	doc, err := steps.Parse(data)
	if err != nil {
		return err
	}
	if p.YAML {
		text, err := dry("yaml")
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tKIND\tJOBS\tQUEUE\tAFTER\tWHAT")
	for _, s := range doc.All() {
		listStep(w, s, doc, p.Vars)
	}
	return w.Flush()
}

// listStep prints one line of a list of steps.
func listStep(w *tabwriter.Writer, s *steps.Step, doc *steps.Document, vars map[string]string) {
	queue, jobs := "-", "-"
	if s.Kind == steps.Command {
		queue, jobs = steps.QueueOf(steps.Rules(s.Agents, doc.Agents)), fmt.Sprint(max(1, s.Parallelism, len(s.Variants)))
	}
	after := "-"
	if len(s.DependsOn) > 0 {
		var keys []string
		for _, d := range s.DependsOn {
			keys = append(keys, d.Key)
		}
		after = strings.Join(keys, ",")
	}
	cell := func(s string) string { return strings.ReplaceAll(text.Line(s, 60), "\t", " ") }
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", cmp.Or(cell(s.Key), "-"), s.Kind, jobs, cell(queue), cell(after), cmp.Or(cell(s.Title(vars)), "-"))
}
