package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/queuefile"
	"github.com/gpu-mode/kbgen/schema/text"
)

// vendorCommands are what a vendor does with queue files.
type vendorCommands struct {
	Init  vendorInit  `cmd:""`
	Check vendorCheck `cmd:""`
}

// vendorInit prints a queue file to start from.
type vendorInit struct {
	GPU    string `name:"gpu" required:"" placeholder:"NAME" help:"a GPU type (kbgen gpus lists them)"`
	Vendor string `default:"example" placeholder:"NAME" help:"who lends, in lower case"`
	Node   string `default:"node-1" placeholder:"NAME" help:"the machine's name"`
	Count  *int   `placeholder:"N" help:"GPUs of the machine; default those of one job"`
}

var namePattern = text.Pattern(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

func (c *vendorInit) Run(_ context.Context, env *cli.Env) error {
	g, err := pipelines.Fleet.Lookup(c.GPU)
	if off := new(pipelines.OffError); err != nil && !errors.As(err, &off) {
		return &cli.UsageError{Err: err}
	}
	per := max(1, g.GPUs)
	count := per
	if c.Count != nil {
		count = *c.Count
	}
	switch {
	case count < 1 || count > 128 || count%per != 0:
		return cli.Usagef("--count: got %d, want a multiple of %d up to 128: a job for %s gets %d", count, per, g.Name, per)
	case !namePattern().MatchString(c.Node):
		return cli.Usagef("--node: got %q, want letters, digits, - and _, at most 63", c.Node)
	}
	text := queuefile.Sample(pipelines.Table{g}.Requirements()[0], c.Vendor, c.Node, count)
	file, faults := queuefile.Decode("the file", []byte(text))
	faults = append(faults, queuefile.Check([]*queuefile.File{file}, pipelines.Fleet.Requirements())...)
	if i := slices.IndexFunc(faults, func(f *schema.Finding) bool { return f.Severity == schema.SeverityError }); i >= 0 {
		return &cli.UsageError{Err: faults[i]} // of what was asked for; the rest is tested
	}
	_, err = io.WriteString(env.Stdout, text)
	return err
}

// vendorCheck explains every fault of queue files.
type vendorCheck struct {
	Files []string `arg:"" name:"file"`
	JSON  bool     `help:"print an array of faults (kbgen schema findings) instead of lines"`
	Live  bool     `help:"then ask Buildkite for the queues and agents, with kblaunch queues --check FILE; needs BUILDKITE_API_TOKEN (read_clusters, read_agents)"`
}

func (c *vendorCheck) Run(ctx context.Context, env *cli.Env) error {
	if c.Live && slices.Contains(c.Files, "-") {
		return cli.Usagef("--live needs files, not -: kblaunch reads them again")
	}
	var files []*queuefile.File
	faults := []*schema.Finding{}
	for _, name := range c.Files {
		doc, err := cli.ReadStart(env.Stdin, name, queuefile.MaxSize+1)
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		f, found := queuefile.Decode(name, doc)
		faults = append(faults, found...)
		if f != nil {
			files = append(files, f)
		}
	}
	faults = inOrder(c.Files, append(faults, queuefile.Check(files, pipelines.Fleet.Requirements())...))
	if queuefile.Failed(faults) || !c.Live {
		if err := c.print(env.Stdout, files, faults); err != nil || !queuefile.Failed(faults) {
			return err
		}
		return &cli.ExitError{Status: exitCheck}
	}
	return c.live(ctx, env, files, faults)
}

// inOrder sorts faults by file, in the order given, and line: what was found
// while reading and what was found in comparing belong together.
func inOrder(names []string, faults []*schema.Finding) []*schema.Finding {
	slices.SortStableFunc(faults, func(a, b *schema.Finding) int {
		return cmp.Or(slices.Index(names, a.File)-slices.Index(names, b.File), a.Line-b.Line, a.Column-b.Column)
	})
	return faults
}

func (c *vendorCheck) print(w io.Writer, files []*queuefile.File, faults []*schema.Finding) error {
	if c.JSON {
		return cli.PrintJSON(w, faults)
	}
	for _, f := range faults {
		if _, err := fmt.Fprintln(w, f); err != nil {
			return err
		}
	}
	for _, f := range files {
		if !slices.ContainsFunc(faults, func(x *schema.Finding) bool { return x.File == f.Name() && x.Severity == schema.SeverityError }) {
			fmt.Fprintf(w, "%s: ok: %s\n", f.Name(), summary(f))
		}
	}
	return nil
}

// summary says what a file promises: "2 nodes; 8 agents on h100".
func summary(f *queuefile.File) string {
	var queues []string
	agents := map[string]int{}
	for _, a := range f.Agents() {
		if agents[a.Queue]++; agents[a.Queue] == 1 {
			queues = append(queues, a.Queue)
		}
	}
	text := format.Count(len(f.Nodes), "node")
	for _, q := range queues {
		text += fmt.Sprintf("; %s on %s", format.Count(agents[q], "agent"), q)
	}
	return text
}

// live lets kblaunch, which speaks Buildkite's REST API, compare the files
// with what is connected, and prints what it found behind what there was.
//
// Exit statuses differ: kblaunch's 1 (something is missing) is a check that
// failed here, and its 3 (no answer) a failure.
func (c *vendorCheck) live(ctx context.Context, env *cli.Env, files []*queuefile.File, faults []*schema.Finding) error {
	args := []string{"queues"}
	if c.JSON {
		args = append(args, "--json")
	}
	for _, name := range c.Files {
		args = append(args, "--check", name)
	}
	path, err := findBeside("kblaunch")
	if err != nil {
		return cli.WithHint(fmt.Errorf("--live: %w", err), "where kblaunch is, run: kblaunch %s", strings.Join(args, " "))
	}
	var found bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &found, env.Stderr, env.Environ()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	ended := cmd.Run()
	if c.JSON {
		var more []*schema.Finding
		if json.Unmarshal(found.Bytes(), &more) == nil { // else kblaunch got no answer, and has said so
			faults = append(faults, more...)
		}
		err = c.print(env.Stdout, files, faults)
	} else if err = c.print(env.Stdout, files, faults); err == nil {
		_, err = found.WriteTo(env.Stdout)
	}
	if err != nil {
		return err
	}
	exited := new(exec.ExitError)
	switch { // kblaunch has said why
	case !errors.As(ended, &exited) || !exited.Exited():
		return ended
	case exited.ExitCode() == 1:
		return &cli.ExitError{Status: exitCheck}
	case exited.ExitCode() == cli.ExitUsage:
		return &cli.ExitError{Status: cli.ExitUsage}
	}
	return &cli.ExitError{Status: cli.ExitFailed}
}

// findBeside finds another command of ours: beside this one, else on PATH.
func findBeside(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}
