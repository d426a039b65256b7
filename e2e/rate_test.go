package e2e

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/localtest"
	"github.com/gpu-mode/kbgen/schema"
)

// Two hundred submissions at 4,000 an hour, through one launcher and the rate
// limit of an organization, in real time: 3 minutes. The machines are of the
// engine's own, each evaluation takes 20 to 40 s of doing nothing.
func TestSlowFourThousandAnHour(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel() // beside those through kbserve: it waits most of its time
	// With fewer submissions the polls while the last ones run weigh more.
	const perHour, machines, submissions = 4000, 60, 200
	s := localtest.Start(t, local.Options{Dir: t.TempDir(), RateLimits: true, UserLimit: 200})
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	t.Cleanup(func() {
		stop()
		group.Wait()
	})
	if _, err := s.Engine.CreatePipeline(engine.Pipeline{Slug: "kernelbot", Configuration: campaignSteps, SkipCheckout: true}); err != nil {
		t.Fatal(err)
	}
	for i := range machines {
		m := &machine{t: t, engine: s.Engine, random: rand.New(rand.NewPCG(1, uint64(i)))}
		group.Go(func() { m.work(ctx) })
	}
	client, err := launcher.New(launcher.Options{BaseURL: s.URL() + "/", Token: s.APIToken(), Org: "gpu-mode", Pipeline: "kernelbot"})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var late []time.Duration
	var launches sync.WaitGroup
	tick := time.NewTicker(time.Hour / perHour)
	defer tick.Stop()
	for i := range submissions {
		launches.Go(func() {
			sub := tinySubmission()
			sub.ID = strconv.Itoa(i)
			begun := time.Now()
			report, err := client.Submit(ctx, sub)
			took := time.Since(begun)
			if err != nil {
				t.Error(err)
				return
			}
			b, err := s.Engine.Build("kernelbot", report.Build)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			late = append(late, took-b.Jobs[0].FinishedAt.Sub(b.Jobs[0].StartedAt))
		})
		<-tick.C
	}
	launches.Wait()
	if len(late) != submissions {
		t.Fatalf("got %d results of %d submissions", len(late), submissions)
	}
	slices.Sort(late)
	calls := client.Calls()
	each := float64(calls.Total) / float64(submissions)
	t.Logf("%.2f calls each: %s; beyond the evaluation: median %s, 95th percentile %s", each, calls, late[len(late)/2], late[len(late)*95/100])
	if each > 1.3 {
		t.Errorf("%.2f calls a submission, want about 1.1", each)
	}
	if late[len(late)/2] > 5*time.Second {
		t.Errorf("median %s beyond the evaluation, want at most 5 s", late[len(late)/2])
	}
}

// A machine is an agent that evaluates nothing, and says so in the time that it
// takes.
type machine struct {
	t      *testing.T
	engine *engine.Engine
	random *rand.Rand
}

func (m *machine) work(ctx context.Context) {
	a, _, err := m.engine.Register(engine.AgentInfo{Name: "machine", Tags: []string{"queue=cpu"}})
	if err == nil {
		err = m.engine.Connect(a.ID)
	}
	poll := time.NewTicker(200 * time.Millisecond)
	defer poll.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
		var order engine.Order
		if order, err = m.engine.Ping(a.ID); err == nil && order.Action == engine.ActionJob {
			err = m.evaluate(ctx, a.ID, order.JobID)
		}
	}
	m.t.Error(err)
}

func (m *machine) evaluate(ctx context.Context, agentID, jobID string) error {
	got, err := m.engine.Accept(agentID, jobID)
	if err != nil {
		return err
	}
	if err := m.engine.Start(jobID); err != nil {
		return err
	}
	done := time.NewTimer(20*time.Second + time.Duration(m.random.IntN(20_000))*time.Millisecond)
	defer done.Stop()
	beat := time.NewTicker(5 * time.Second)
	defer beat.Stop()
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			if err := m.engine.Heartbeat(agentID); err != nil {
				return err
			}
		case <-done.C:
			waiting = false
		}
	}
	r := &schema.Result{
		Success: true, RunID: got.Env[schema.EnvRunID], System: schema.SystemInfo{DeviceCount: 1}, Outcome: schema.NewOutcome(schema.OutcomePassed, ""),
		Evidence: schema.Evidence{GPUType: got.Env[schema.EnvGPU], Queue: got.Env[schema.EnvQueue]},
	}
	raw, err := r.Encode()
	if err != nil {
		return err
	}
	value, _ := schema.InlineResult(raw, jobID)
	if err := m.engine.SetMetaData(got.Job.BuildID, map[string]string{schema.MetaResult(r.RunID): value}); err != nil {
		return err
	}
	return m.engine.FinishJob(jobID, engine.Finish{})
}
