package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/launcher/progress"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict"
	"github.com/gpu-mode/kbgen/verdict/comparison"
)

// watchCmd waits for runs that were made before.
type watchCmd struct {
	Runs []string `arg:"" name:"run"`
	outputFlags
	clientFlags
	Timeout      time.Duration `default:"30m" placeholder:"D" help:"the longest run on the machine"`
	QueueTimeout time.Duration `default:"30m" placeholder:"D" help:"the longest wait for a machine"`
}

func (c *watchCmd) Run(ctx context.Context, env *cli.Env) error {
	client, err := c.client(env)
	if err != nil {
		return err
	}
	out := newOutput(env, &c.outputFlags)
	var runs []*launcher.Run
	for _, name := range c.Runs {
		run, err := open(ctx, client, name)
		if err != nil {
			return out.failed(ctx, name, err)
		}
		run.QueueTimeout, run.RunTimeout = c.QueueTimeout, c.Timeout
		runs = append(runs, run)
	}
	return out.follow(ctx, client, runs)
}

// follow waits for runs, shows where they are, and prints how they ended.
func (o *output) follow(ctx context.Context, client *launcher.Client, runs []*launcher.Run) error {
	show := progress.New(ctx, o.env.Stderr, client, o.event, len(runs))
	conclusions := collect(ctx, client, runs, show.Event)
	show.Stop()
	return o.end(ctx, conclusions)
}

// collect waits for all runs; their builds go on when ctx ends.
func collect(ctx context.Context, client *launcher.Client, runs []*launcher.Run, show func(launcher.Event)) []*conclusion {
	conclusions := make([]*conclusion, len(runs))
	var over sync.WaitGroup
	for i, run := range runs {
		run.Progress = show
		over.Go(func() {
			e := &conclusion{gpu: run.GPU, queue: run.Queue, mode: run.Mode, ranking: run.Ranking, runID: run.ID, build: run.Build, url: run.BuildURL}
			e.report, e.err = client.Collect(ctx, run)
			e.found(e.report)
			conclusions[i] = e
		})
	}
	over.Wait()
	return conclusions
}

// resultCmd prints the result of a run that is over.
type resultCmd struct {
	Run_ string `arg:"" name:"run"`
	JSON bool   `name:"json" help:"print result.json as it came"`
	clientFlags
}

func (c *resultCmd) Run(ctx context.Context, env *cli.Env) error {
	client, run, b, err := c.look(ctx, env, c.Run_)
	if err != nil {
		return err
	}
	if !b.Over() {
		return cli.WithHint(&cli.ExitError{Status: exitTrouble, Err: fmt.Errorf("build %d is %s, it has no result yet", run.Build, b.State)}, "kblaunch watch %s", c.Run_)
	}
	e := collect(ctx, client, []*launcher.Run{run}, nil)[0]
	if c.JSON && e.report != nil {
		_, err := io.WriteString(env.Stdout, strings.TrimSuffix(string(e.report.Raw), "\n")+"\n")
		return err
	}
	return newOutput(env, &outputFlags{}).end(ctx, []*conclusion{e})
}

// listCmd lists builds that launchers made.
type listCmd struct {
	State []string      `placeholder:"STATE" help:"scheduled, running, passed, failed, canceled or finished; may be repeated"`
	GPU   string        `name:"gpu" placeholder:"NAME" help:"only this GPU type"`
	Since time.Duration `default:"24h" placeholder:"D" help:"only builds at most this old; 0 for any age"`
	Mine  bool          `help:"only builds made by this user on this machine"`
	Limit int           `default:"30" placeholder:"N" help:"look at so many of the newest builds, at most 1000"`
	JSON  bool          `name:"json" help:"print an array (kbgen schema builds)"`
	clientFlags
}

const maxListed = 1000

// states are the words of list --state.
func states() []string {
	return []string{"scheduled", "running", "passed", "failed", "canceled", "finished"}
}

func (c *listCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.Limit < 1 || c.Limit > maxListed {
		return cli.Usagef("--limit %d: want 1 to %d", c.Limit, maxListed)
	}
	if c.Since < 0 {
		return cli.Usagef("--since %s: want no less than 0, which is any age", c.Since)
	}
	for _, state := range c.State {
		if !slices.Contains(states(), state) {
			return cli.Usagef("--state: got %s, want one of %s", text.Quote(state), strings.Join(states(), ", "))
		}
	}
	if c.GPU != "" {
		row, err := pipelines.Fleet.Lookup(c.GPU)
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		c.GPU = row.Name
	}
	client, err := c.client(env)
	if err != nil {
		return err
	}
	q := launcher.Query{States: c.State, MetaData: map[string]string{}, Limit: c.Limit}
	if c.GPU != "" {
		maps.Copy(q.MetaData, launcher.OfGPU(c.GPU))
	}
	if c.Mine {
		maps.Copy(q.MetaData, client.Mine())
	}
	found, err := client.Builds(ctx, q)
	if err != nil {
		return trouble(ctx, err)
	}
	var list []launcher.Overview
	for i := range found {
		b := &found[i]
		if b.RunID() == "" || b.CreatedAt != nil && c.Since > 0 && time.Since(b.CreatedAt.Time) > c.Since {
			continue // made by somebody else than a launcher, or long ago
		}
		list = append(list, b.Overview())
	}
	return cli.PrintList(env.Stdout, c.JSON, list, "BUILD\tSTATE\tOUTCOME\tGPU TYPE\tMODE\tCREATED\tRUN", func(l launcher.Overview) string {
		return fmt.Sprintf("%d\t%s\t%s\t%s\t%s\t%s\t%s", l.Build, l.State, cmp.Or(l.Outcome, "-"), cmp.Or(l.GPUType, "-"), cmp.Or(l.Mode, "-"), l.Created, l.RunID)
	})
}

// logCmd prints the logs of a run's jobs.
type logCmd struct {
	Run_ string `arg:"" name:"run"`
	All  bool   `help:"print the log of every job, each below its name"`
	clientFlags
}

func (c *logCmd) Run(ctx context.Context, env *cli.Env) error {
	client, run, b, err := c.look(ctx, env, c.Run_)
	if err != nil {
		return err
	}
	evaluation := b.Evaluation(run.Queue)
	printed := 0
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if j.Type != "script" || j.StartedAt == nil || !c.All && evaluation != nil && evaluation.StartedAt != nil && j.ID != evaluation.ID {
			continue
		}
		log, err := client.Log(ctx, run.Build, j.ID)
		if err != nil {
			return cli.WithHint(trouble(ctx, err), "logs need the scope read_build_logs")
		}
		if c.All || evaluation == nil || j.ID != evaluation.ID {
			log = fmt.Sprintf("== %s (%s) ==\n", text.Line(cmp.Or(j.StepKey, j.Name, j.ID), 100), text.Line(j.State, 40)) + log
		}
		if _, err := fmt.Fprintln(env.Stdout, strings.TrimRight(log, "\n")); err != nil {
			return err
		}
		printed++
	}
	if printed == 0 {
		return &cli.ExitError{Status: exitTrouble, Err: fmt.Errorf("build %d is %s, none of its jobs has begun", run.Build, b.State)}
	}
	return nil
}

// cancelCmd ends runs.
type cancelCmd struct {
	Runs []string `arg:"" name:"run"`
	clientFlags
}

func (c *cancelCmd) Run(ctx context.Context, env *cli.Env) error {
	client, err := c.client(env)
	if err != nil {
		return err
	}
	for _, name := range c.Runs {
		run, err := open(ctx, client, name)
		if err != nil {
			return err
		}
		state := "cancelled"
		b, err := client.Build(ctx, run.Build)
		if err == nil && b.Over() {
			state = "over already: " + text.Line(b.State, 40)
		} else if err == nil {
			err = client.Cancel(ctx, run.Build)
		}
		if err != nil {
			return trouble(ctx, err)
		}
		if _, err := fmt.Fprintf(env.Stdout, "build %d is %s\n", run.Build, state); err != nil {
			return err
		}
	}
	return nil
}

// retryCmd starts what did not pass of a run again, and waits.
type retryCmd struct {
	Run_   string `arg:"" name:"run"`
	Detach bool   `help:"do not wait for the end"`
	outputFlags
	clientFlags
	Timeout      time.Duration `default:"30m" placeholder:"D" help:"the longest run on the machine"`
	QueueTimeout time.Duration `default:"30m" placeholder:"D" help:"the longest wait for a machine"`
}

func (c *retryCmd) Run(ctx context.Context, env *cli.Env) error {
	client, err := c.client(env)
	if err != nil {
		return err
	}
	out := newOutput(env, &c.outputFlags)
	run, err := open(ctx, client, c.Run_)
	if err != nil {
		return out.failed(ctx, c.Run_, err)
	}
	n, err := client.Retry(ctx, run.Build)
	if err != nil {
		err = cli.WithHint(trouble(ctx, err), "what has its verdict, or was canceled as a whole, is submitted anew, under another run id: kblaunch submit")
		return out.failed(ctx, run.ID, err)
	}
	fmt.Fprintf(env.Stderr, "kblaunch: %d jobs of build %d start again\n", n, run.Build)
	if c.Detach {
		return out.end(ctx, []*conclusion{{gpu: run.GPU, queue: run.Queue, mode: run.Mode, runID: run.ID, build: run.Build, url: run.BuildURL, detached: true}})
	}
	if run, err = client.Open(ctx, run.Build); err != nil {
		return out.failed(ctx, c.Run_, trouble(ctx, err))
	}
	run.QueueTimeout, run.RunTimeout = c.QueueTimeout, c.Timeout
	return out.follow(ctx, client, []*launcher.Run{run})
}

// compareCmd compares the times of two results, case by case.
type compareCmd struct {
	Older string `arg:"" name:"old"`
	Newer string `arg:"" name:"new"`
	JSON  bool   `name:"json" help:"print JSON (kbgen schema compare)"`
	clientFlags
}

func (c *compareCmd) Run(ctx context.Context, env *cli.Env) error {
	var sides [2]*verdict.Verdict
	var client *launcher.Client
	for i, name := range []string{c.Older, c.Newer} {
		result, err := readResult(name)
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		if result == nil {
			if client == nil {
				if client, err = c.client(env); err != nil {
					return cli.WithHint(err, "%s is no file, so it would be a build or a run; for those put a token into %s", name, tokenVar)
				}
			}
			if result, err = fetchResult(ctx, client, name); err != nil {
				return err
			}
		}
		sides[i] = verdict.Of(result)
	}
	compared, err := comparison.Compare(sides[0], sides[1])
	if err != nil {
		return &cli.ExitError{Status: exitTrouble, Err: err}
	}
	compared.Old.Name, compared.New.Name = c.Older, c.Newer
	if c.JSON {
		return cli.PrintJSON(env.Stdout, compared)
	}
	return compared.Write(env.Stdout)
}

// readResult reads a result.json, or what submit --json printed of one run; nil
// when there is no such file.
func readResult(name string) (*schema.Result, error) {
	data, err := readFile(name, schema.MaxResult)
	if os.IsNotExist(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var doc documentJSON
	if json.Unmarshal(data, &doc) == nil && len(doc.Runs) > 0 {
		if len(doc.Runs) > 1 || doc.Runs[0].Result == nil {
			return nil, fmt.Errorf("%s: got %d runs, want one with a result", name, len(doc.Runs))
		}
		data = doc.Runs[0].Result
	}
	result, err := schema.DecodeResult(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return result, nil
}

func fetchResult(ctx context.Context, client *launcher.Client, name string) (*schema.Result, error) {
	run, err := open(ctx, client, name)
	if err != nil {
		return nil, err
	}
	e := collect(ctx, client, []*launcher.Run{run}, nil)[0]
	if e.err != nil {
		return nil, trouble(ctx, e.err)
	}
	return e.report.Result, nil
}
