package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/fault"
	"github.com/gpu-mode/kbgen/local/localtest"
	"github.com/gpu-mode/kbgen/schema"
)

// The fault campaign: submissions by the hundred, through real agents, while
// every call of both APIs fails now and then, agents are killed, and launchers
// die and come back. Nothing may be lost, doubled, wrong, hung or left over.

const (
	campaignSeed = "KBGEN_CAMPAIGN_SEED" // names another seed than the usual one
	campaignRuns = "KBGEN_CAMPAIGN_RUNS" // names another number of submissions
)

// campaignSteps evaluates without a bootstrap: one job for a submission. The
// retry rules are those that kbgen writes, with more patience.
const campaignSteps = `steps:
  - key: evaluate-cpu
    command: evaluator
    agents: {queue: cpu}
    retry:
      automatic:
        - {exit_status: 75, limit: 10}
        - {exit_status: -1, limit: 10}
        - {exit_status: 255, limit: 10}
        - {signal_reason: agent_stop, limit: 10}
`

// restLegs and agentLegs are the calls that fail.
var (
	restLegs = []string{
		"POST /v2/organizations/*/pipelines/*/builds",
		"GET /v2/organizations/*/pipelines/*/builds",
		"GET /v2/organizations/*/pipelines/*/builds/*",
		"PUT /v2/organizations/*/pipelines/*/builds/*/cancel",
		"GET /v2/organizations/*/pipelines/*/builds/*/artifacts",
		"GET /v2/organizations/*/artifacts/*/download",
		"GET /artifacts/*",
	}
	agentLegs = []string{
		"POST /v3/register", "POST /v3/connect", "POST /v3/heartbeat", "GET /v3/ping", "POST /*/StreamPings",
		"PUT /v3/jobs/*/accept", "PUT /v3/jobs/*/start", "POST /v3/jobs/*/chunks",
		"GET /v3/jobs/*", "PUT /v3/jobs/*/finish",
		"POST /v3/jobs/*/artifacts", "PUT /v3/jobs/*/artifacts", "POST /v3/jobs/*/data/set", "POST /upload/*",
	}
	actions = []string{"status=500", "status=502 body=<html>", "status=503", "drop", "drop_after", "cut=40", "latency=300ms"}
)

func TestCampaign(t *testing.T) {
	t.Parallel()
	campaign(t, 24)
}

func TestSlowCampaign(t *testing.T) {
	testenv.NeedSlow(t)
	campaign(t, number(t, campaignRuns, 1000))
}

// number reads a variable of the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s: got %q, want a number", name, text)
	}
	return n
}

// A campaigner is one campaign.
type campaigner struct {
	*local.Server
	t    *testing.T
	log  *slog.Logger
	dir  string
	seed uint64

	mu     sync.Mutex
	kills  int
	faults map[string]int // by rule, how often it acted
	trouble
}

// trouble counts what must not be.
type trouble struct {
	lost, doubled, wrong, hung, left []string
}

func campaign(t *testing.T, runs int) {
	seed := uint64(number(t, campaignSeed, 1))
	dir := t.TempDir()
	s := evaluators(t, dir, 20, local.Options{})
	c := &campaigner{Server: s, t: t, dir: dir, seed: seed, faults: map[string]int{}, log: slog.New(slog.DiscardHandler)}
	c.run(runs)
}

// evaluators starts a stand-in whose agents, in pairs, run the small evaluator in
// kbrun's place.
func evaluators(t *testing.T, dir string, agents int, o local.Options) *local.Server {
	t.Helper()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "bin")+"/", "./testdata/evaluator")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the evaluator: %v\n%s", err, out)
	}
	o.Dir, o.AgentBinary, o.AgentPath, o.AgentEnv = filepath.Join(dir, "state"), agent, []string{filepath.Join(dir, "bin"), bin, filepath.Dir(agent)}, os.Environ()
	o.Heartbeat, o.CancelGrace, o.LostAfter = time.Second, 2*time.Second, patience
	s := localtest.Start(t, o)
	if _, err := s.Engine.CreatePipeline(engine.Pipeline{Slug: "kernelbot", Configuration: campaignSteps, SkipCheckout: true}); err != nil {
		t.Fatal(err)
	}
	for range agents / 2 {
		if err := s.StartAgents("cpu", 2); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if err := s.AwaitAgents(ctx, agents); err != nil {
		t.Fatal(err)
	}
	return s
}

// run makes the submissions, sixty at a time, and looks at what is left.
func (c *campaigner) run(runs int) {
	begun := time.Now()
	random := rand.New(rand.NewPCG(c.seed, 0))
	slots := make(chan struct{}, 60)
	var group sync.WaitGroup
	client := c.client(0)
	for i := range runs {
		slots <- struct{}{}
		c.disturb(random)
		one := rand.New(rand.NewPCG(c.seed, uint64(i)+1))
		group.Go(func() {
			defer func() { <-slots }()
			c.submit(client, one, i)
		})
	}
	group.Wait()
	c.collectFaults(true)
	c.leftOver()
	calls := client.Calls()
	c.t.Logf("seed %d: %d submissions in %s, %d agents killed, %d faults on %d rules; %d calls of the long-lived launcher; lost %d, doubled %d, wrong %d, hung %d, left over %d",
		c.seed, runs, time.Since(begun).Round(time.Second), c.kills, c.hits(), len(c.faults), calls.Total, len(c.lost), len(c.doubled), len(c.wrong), len(c.hung), len(c.left))
	for name, all := range map[string][]string{"lost": c.lost, "doubled": c.doubled, "wrong": c.wrong, "hung": c.hung, "left over": c.left} {
		if len(all) > 0 {
			c.t.Errorf("%s: %d, such as %s", name, len(all), strings.Join(all[:min(5, len(all))], "\n  "))
		}
	}
	if n := c.Leaks(); n > 0 {
		c.t.Errorf("%d requests carried a token to the artifact host", n)
	}
	if c.hits() < runs/4 {
		c.t.Errorf("only %d faults met anything", c.hits())
	}
	if unmet := c.unmet(); runs >= 1000 && len(unmet) > 0 {
		c.t.Errorf("no fault met %q", unmet)
	}
}

// client is a launcher of the one installation that submits here.
func (c *campaigner) client(int) *launcher.Client {
	client, err := launcher.New(launcher.Options{
		BaseURL: c.URL() + "/", Token: c.APIToken(), Org: "gpu-mode", Pipeline: "kernelbot",
		Installation: "campaign", ListingDelay: 3 * time.Second, Log: c.log,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// disturb adds a fault, and now and then kills agents.
func (c *campaigner) disturb(random *rand.Rand) {
	c.collectFaults(false)
	legs := restLegs
	if random.IntN(2) == 0 {
		legs = agentLegs
	}
	leg, action := legs[random.IntN(len(legs))], actions[random.IntN(len(actions))]
	if strings.Contains(leg, "/v2/") && random.IntN(len(actions)+1) == 0 {
		action = "rate_limit=rest:1"
	}
	text := fmt.Sprintf("%s %s after=%d count=%d", leg, action, random.IntN(4), 1+random.IntN(3))
	rule, err := fault.Parse(text)
	pending := 0
	for _, e := range c.Faults.List() {
		if err == nil && e.Rule.Method == rule.Method && e.Rule.Path == rule.Path {
			pending++
		}
	}
	if err == nil && pending < 2 { // a call that is rare would meet all of them in its turn
		_, err = c.Faults.Add(rule)
	}
	if err != nil {
		c.t.Errorf("%s: %v", text, err)
	}
	if random.IntN(25) != 0 {
		return
	}
	all := c.Engine.Agents()
	slices.SortFunc(all, func(a, b engine.Agent) int { return strings.Compare(a.Name, b.Name) })
	var pids []int
	for _, a := range all {
		if a.State == engine.AgentConnected && a.PID > 0 && !slices.Contains(pids, a.PID) {
			pids = append(pids, a.PID)
		}
	}
	if len(pids) > 0 {
		c.kills++
		_ = syscall.Kill(pids[random.IntN(len(pids))], syscall.SIGKILL) // it may have died meanwhile
	}
}

// collectFaults takes out the rules that are used up, or all.
func (c *campaigner) collectFaults(all bool) {
	for _, e := range c.Faults.List() {
		if all || e.Rule.Count > 0 && e.Hits >= e.Rule.Count {
			c.Faults.Remove(e.ID)
			c.faults[e.Rule.String()] += e.Hits
		}
	}
}

func (c *campaigner) hits() int {
	n := 0
	for _, hits := range c.faults {
		n += hits
	}
	return n
}

// unmet are the calls that no fault acted on.
func (c *campaigner) unmet() []string {
	return slices.DeleteFunc(slices.Concat(restLegs, agentLegs), func(leg string) bool {
		for rule, hits := range c.faults {
			if hits > 0 && strings.HasPrefix(rule, leg+" ") {
				return true
			}
		}
		return false
	})
}

// campaignLimit ends a submission that hangs.
const campaignLimit = 4 * time.Minute

// submit makes one submission in one of the ways that there are, and holds the
// verdict against the one that was asked for.
func (c *campaigner) submit(shared *launcher.Client, random *rand.Rand, i int) {
	outcome := []string{schema.OutcomePassed, schema.OutcomeWrong}[random.IntN(2)]
	user := outcome
	if random.IntN(5) == 0 {
		user += "-long"
	}
	s := launcher.Submission{
		Payload: &schema.Payload{Main: "eval.py", Lang: schema.LangPython, Mode: schema.ModeTest, Sources: schema.Files{{Name: "eval.py", Text: "pass\n"}}},
		ID:      strconv.Itoa(i), GPU: "CPU_BK", Queue: "cpu", User: user, RunID: launcher.NewRunID(strconv.Itoa(i), "CPU_BK"),
		QueueTimeout: campaignLimit, RunTimeout: campaignLimit,
	}
	ctx, stop := context.WithTimeout(c.t.Context(), campaignLimit)
	defer stop()
	var report *launcher.Report
	var err error
	way, begun := random.IntN(10), time.Now()
	switch {
	case way < 5: // as a person does
		report, err = shared.Submit(ctx, s)
	case way < 8: // as a service that dies in the middle, at any moment
		report, err = c.interrupted(ctx, random, s)
	case way < 9: // a service that lives
		report, err = c.createAndCollect(ctx, shared, s)
	default: // a person who changes his mind
		c.canceled(ctx, random, s)
		return
	}
	what := fmt.Sprintf("%s (way %d)", s.RunID, way)
	if took := time.Since(begun); took > 30*time.Second {
		c.t.Logf("%s took %s: %s", what, took.Round(time.Second), c.story(s.RunID))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil && ctx.Err() != nil:
		c.hung = append(c.hung, fmt.Sprintf("%s: %v", what, err))
	case err != nil:
		c.lost = append(c.lost, fmt.Sprintf("%s: %v", what, err))
	case report.Result.RunID != s.RunID || report.Result.Outcome.Name != outcome:
		c.wrong = append(c.wrong, fmt.Sprintf("%s: got %s of %s, want %s", what, report.Result.Outcome.Name, report.Result.RunID, outcome))
	}
}

// story is what became of a run's builds.
func (c *campaigner) story(runID string) string {
	var words []string
	for _, b := range c.Engine.Builds(engine.BuildFilter{MetaData: map[string]string{"run_id": runID}}) {
		words = append(words, fmt.Sprintf("build %d %s after %s", b.Number, b.State, b.FinishedAt.Sub(b.CreatedAt).Round(time.Second)))
		for _, j := range b.Jobs {
			words = append(words, fmt.Sprintf("job %s, attempt %d, assigned %s, started %s, finished %s", j.State, j.RetriesCount+1,
				j.AssignedAt.Sub(b.CreatedAt).Round(time.Second), j.StartedAt.Sub(b.CreatedAt).Round(time.Second), j.FinishedAt.Sub(b.CreatedAt).Round(time.Second)))
		}
	}
	return strings.Join(words, "; ")
}

func (c *campaigner) createAndCollect(ctx context.Context, client *launcher.Client, s launcher.Submission) (*launcher.Report, error) {
	run, err := client.Create(ctx, s)
	if err != nil {
		return nil, err
	}
	return client.Collect(ctx, run)
}

// interrupted ends launchers after a moment each, and begins anew with the run
// id and the time of the last attempt, which is all that such a service keeps.
func (c *campaigner) interrupted(ctx context.Context, random *rand.Rand, s launcher.Submission) (*launcher.Report, error) {
	for range 1 + random.IntN(3) {
		short, stop := context.WithTimeout(ctx, time.Duration(random.IntN(2500))*time.Millisecond)
		attempted := time.Now()
		report, err := c.createAndCollect(short, c.client(1), s)
		over := short.Err() != nil
		stop()
		if err == nil || !over {
			return report, err
		}
		s.Attempted = attempted
	}
	return c.createAndCollect(ctx, c.client(1), s)
}

// canceled submits and stops after a moment: nothing may go on.
func (c *campaigner) canceled(ctx context.Context, random *rand.Rand, s launcher.Submission) {
	short, stop := context.WithTimeout(ctx, time.Duration(random.IntN(2000))*time.Millisecond)
	defer stop()
	client := c.client(1)
	_, err := client.Submit(short, s)
	if err == nil {
		return // it was faster
	}
	if strings.Contains(err.Error(), "may still run") || strings.Contains(err.Error(), "may be left") {
		// It could not be cancelled in the time that a process has at its end, and
		// said so: then it is done by hand.
		if err := client.CancelRun(ctx, s.RunID); err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.left = append(c.left, fmt.Sprintf("%s: %v", s.RunID, err))
		}
	}
}

// leftOver waits for the last builds to settle, and counts builds.
func (c *campaigner) leftOver() {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	passed := map[string][]int{}
	for _, b := range c.Engine.Builds(engine.BuildFilter{}) {
		if b.State == engine.BuildCanceling {
			var err error
			if b, err = c.Engine.Wait(ctx, b.ID); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				c.t.Fatal(err)
			}
		}
		id := b.MetaData["run_id"]
		switch b.State {
		case engine.BuildPassed, engine.BuildFailed:
			passed[id] = append(passed[id], b.Number)
		case engine.BuildCanceled:
		default:
			c.left = append(c.left, fmt.Sprintf("%s: build %d is %s", id, b.Number, b.State))
		}
	}
	for id, builds := range passed {
		if len(builds) > 1 {
			c.doubled = append(c.doubled, fmt.Sprintf("%s: builds %v", id, builds))
		}
	}
}
