package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/localtest"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/secrets"
)

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds()) / 1000
}

// benchStandIn starts the stand-in for a benchmark with agents, without a log.
func benchStandIn(b *testing.B, queues map[string]int) *local.Server {
	b.Helper()
	s := localtest.Start(b, local.Options{Dir: b.TempDir(), AgentBinary: agent, AgentPath: []string{bin}, AgentEnv: os.Environ()})
	n := 0
	for queue, count := range queues {
		if err := s.StartAgents(queue, count); err != nil {
			b.Fatal(err)
		}
		n += count
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.AwaitAgents(ctx, n); err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkSubmit measures kblaunch submit from start to exit, less the time
// the evaluation's job ran. Budget: 1 s.
func BenchmarkSubmit(b *testing.B) {
	s := benchStandIn(b, map[string]int{"bootstrap": 1, "cpu": 1})
	if _, err := s.Engine.CreatePipeline(engine.Pipeline{Slug: "kernelbot", Configuration: kbgen.Bootstrap, SkipCheckout: true}); err != nil {
		b.Fatal(err)
	}
	var overhead, whole []time.Duration
	for b.Loop() {
		start := time.Now()
		cmd := exec.Command(filepath.Join(bin, "kblaunch"), "submit", tiny, filepath.Join(tiny, "right.py"), "--gpu", "CPU_BK", "--mode", "test")
		cmd.Env = append(os.Environ(), "KBLAUNCH_API_URL="+s.URL()+"/", "BUILDKITE_API_TOKEN="+s.APIToken(), "BUILDKITE_ORG=gpu-mode", "BUILDKITE_PIPELINE=kernelbot")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		took := time.Since(start)
		j := s.Engine.Builds(engine.BuildFilter{})[0].Jobs[1]
		whole = append(whole, took)
		overhead = append(overhead, took-j.FinishedAt.Sub(j.StartedAt))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(whole), "ms-whole")
	b.ReportMetric(median(overhead), "ms-overhead")
}

// BenchmarkCalls counts REST calls for one submission: alone, by a launcher that
// knows nothing yet, and with forty in flight at once. Budgets: 5, and about 1.1
// where thousands come in an hour.
func BenchmarkCalls(b *testing.B) {
	s := benchStandIn(b, map[string]int{"bootstrap": 1, "cpu": 1})
	if _, err := s.Engine.CreatePipeline(engine.Pipeline{Slug: "kernelbot", Configuration: kbgen.Bootstrap, SkipCheckout: true}); err != nil {
		b.Fatal(err)
	}
	calls := func(runs int) float64 {
		client, err := launcher.New(launcher.Options{BaseURL: s.URL() + "/", Token: s.APIToken(), Org: "gpu-mode", Pipeline: "kernelbot"})
		if err != nil {
			b.Fatal(err)
		}
		var group sync.WaitGroup
		for range runs {
			group.Go(func() {
				if _, err := client.Submit(context.Background(), tinySubmission()); err != nil {
					b.Error(err)
				}
			})
		}
		group.Wait()
		return float64(client.Calls().Total) / float64(runs)
	}
	var lone []float64
	for b.Loop() {
		lone = append(lone, calls(1))
	}
	slices.Sort(lone)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(lone[len(lone)/2], "calls-lone")
	b.ReportMetric(calls(40), "calls-each-of-40")
}

// tinySubmission passes at once.
func tinySubmission() launcher.Submission {
	return launcher.Submission{
		Payload: &schema.Payload{Main: "eval.py", Lang: schema.LangPython, Mode: schema.ModeTest, Sources: schema.Files{{Name: "eval.py",
			Text: "import os\nwith os.fdopen(int(os.environ['POPCORN_FD']), 'w') as f:\n    f.write('test-count: 1\\ntest.0.spec: n: 1\\ntest.0.status: pass\\ncheck: pass\\n')\n"}}},
		GPU: "CPU_BK", Queue: "cpu",
	}
}

// BenchmarkSealed measures what sealing adds: kblaunch submit from start to exit
// and kbrun's time for reading a payload, with and without, in turn.
func BenchmarkSealed(b *testing.B) {
	dir := b.TempDir()
	s := localtest.Start(b, local.Options{Dir: dir, AgentBinary: agent, AgentPath: []string{bin}, AgentEnv: os.Environ()})
	p, err := s.Engine.CreatePipeline(engine.Pipeline{Slug: "kernelbot", Configuration: kbgen.Bootstrap, SkipCheckout: true})
	if err != nil {
		b.Fatal(err)
	}
	key, line, err := secrets.GenerateKey(secrets.X25519)
	if err != nil {
		b.Fatal(err)
	}
	broker := startBrokerWith(b, s.URL(), line+"\n", oidcPolicy)
	recipient := secrets.Recipient{Name: "lab-2026", Added: time.Now(), Key: key.Public}.String()
	seal := filepath.Join(b.TempDir(), "seal.yml")
	files := map[string]string{
		filepath.Join(filepath.Dir(seal), "recipients.txt"): recipient + "\n",
		seal: "version: 1\norganization: " + engine.OrganizationID + "\npipeline: " + p.ID + "\nqueues: {cpu: {recipients: recipients.txt}}\n",
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for _, queue := range []string{"bootstrap", "cpu"} {
		if err := s.StartAgents(queue, 1); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.AwaitAgents(context.Background(), 2); err != nil {
		b.Fatal(err)
	}
	hook := "#!/bin/sh\nexport " + schema.EnvBroker + "=" + broker.socket + "\n"
	if err := os.WriteFile(filepath.Join(dir, "hooks", "environment"), []byte(hook), 0o700); err != nil {
		b.Fatal(err)
	}
	whole, reading := map[string][]time.Duration{}, map[string][]time.Duration{}
	for b.Loop() {
		for name, file := range map[string]string{"plain": "", "sealed": seal} {
			start := time.Now()
			cmd := exec.Command(filepath.Join(bin, "kblaunch"), "submit", tiny, filepath.Join(tiny, "right.py"), "--gpu", "CPU_BK", "--mode", "test", "--json")
			cmd.Env = append(os.Environ(), "KBLAUNCH_API_URL="+s.URL()+"/", "BUILDKITE_API_TOKEN="+s.APIToken(), "BUILDKITE_ORG=gpu-mode", "BUILDKITE_PIPELINE=kernelbot", "KBLAUNCH_SEAL="+file)
			out, err := cmd.Output()
			if err != nil {
				b.Fatalf("%v\n%s", err, out)
			}
			whole[name] = append(whole[name], time.Since(start))
			result := onlyResult(b, string(out))
			reading[name] = append(reading[name], time.Duration(result.Timing.Decode*float64(time.Second)))
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, name := range []string{"plain", "sealed"} {
		b.ReportMetric(median(whole[name]), "ms-"+name)
		b.ReportMetric(median(reading[name]), "ms-reading-"+name)
	}
}

// BenchmarkPickUp measures the time from a job being ready to its agent
// having accepted it, and from there to its end, for `true` without checkout.
func BenchmarkPickUp(b *testing.B) {
	s := benchStandIn(b, map[string]int{"default": 1})
	if _, err := s.Engine.CreatePipeline(engine.Pipeline{Slug: "p", Configuration: "steps: [{command: 'true'}]", SkipCheckout: true}); err != nil {
		b.Fatal(err)
	}
	var pickup, job []time.Duration
	for b.Loop() {
		build, err := s.Engine.CreateBuild("p", engine.NewBuild{})
		if err != nil {
			b.Fatal(err)
		}
		if build, err = s.Engine.Wait(context.Background(), build.ID); err != nil {
			b.Fatal(err)
		}
		j := build.Jobs[0]
		pickup = append(pickup, j.AcceptedAt.Sub(j.RunnableAt))
		job = append(job, j.FinishedAt.Sub(j.AcceptedAt))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(pickup), "ms-pickup")
	b.ReportMetric(median(job), "ms-job")
}

// BenchmarkManyJobs runs 300 jobs of one build on four agents.
func BenchmarkManyJobs(b *testing.B) {
	s := benchStandIn(b, map[string]int{"default": 4})
	if _, err := s.Engine.CreatePipeline(engine.Pipeline{Slug: "p", Configuration: "steps: [{command: 'true', parallelism: 300}]", SkipCheckout: true}); err != nil {
		b.Fatal(err)
	}
	var whole time.Duration
	for range 1 { // once is enough: 300 jobs
		build, err := s.Engine.CreateBuild("p", engine.NewBuild{})
		if err != nil {
			b.Fatal(err)
		}
		if build, err = s.Engine.Wait(context.Background(), build.ID); err != nil {
			b.Fatal(err)
		}
		whole = build.FinishedAt.Sub(build.CreatedAt)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(whole.Milliseconds())/300, "ms-per-job")
}
