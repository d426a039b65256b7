package launcher

import (
	"net/url"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

type fakeBuild struct {
	number    int
	state     string
	blocked   bool
	env, meta map[string]string
	jobs      []map[string]any
	artifacts []fakeArtifact
	probes    int                // times its state was shown
	script    func(b *fakeBuild) // called before each probe, under the lock
	log       string             // of every job
	created   time.Time
	finished  time.Time             // once it was shown over
	hidden    func(url.Values) bool // reports whether a listing leaves it out
}

type fakeArtifact struct {
	job, path string
	data      []byte
	size      int64  // shown instead of the data's when not 0
	sum       string // shown instead of the data's when not ""
	url       string // download_url, when not the API's own
}

// probe runs the build's script. f.mu is held.
func (b *fakeBuild) probe() {
	b.probes++
	if b.script != nil {
		b.script(b)
	}
}

// finish ends b with a result of its run.
func (b *fakeBuild) finish(state string) {
	b.state = state
	b.jobs = []map[string]any{scriptJob("job-0", "upload", "bootstrap", "passed"), scriptJob("job-1", "evaluate", "cpu", state)}
	b.artifacts = []fakeArtifact{{job: "job-1", path: "out/result.json", data: result(b.meta["run_id"])}}
}

func scriptJob(id, key, queue, state string) map[string]any {
	j := map[string]any{"id": id, "type": "script", "step_key": key, "state": state, "agent_query_rules": []string{"queue=" + queue}}
	if state != "scheduled" {
		j["started_at"] = "2026-01-02T03:04:05.000Z"
	}
	switch state {
	case "passed":
		j["exit_status"] = 0
	case "failed":
		j["exit_status"] = 137
	}
	return j
}

// result returns the result.json of a run.
func result(runID string) []byte {
	return resultFor(runID, "CPU_BK", "cpu")
}

// resultFor returns one that was judged for that GPU type and queue.
func resultFor(runID, gpu, queue string) []byte {
	r := &schema.Result{Success: true, RunID: runID, Outcome: schema.NewOutcome(schema.OutcomePassed, ""),
		Evidence: schema.Evidence{GPUType: gpu, Queue: queue},
		System:   schema.SystemInfo{DeviceCount: 1},
		Runs:     schema.Runs{{Name: "test", EvalResult: schema.EvalResult{Start: time.Unix(1e9, 0), End: time.Unix(1e9+1, 0), Run: &schema.RunResult{Success: true, Passed: true, Result: schema.Report{{Key: "check", Value: "pass"}}}}}},
	}
	data, err := r.Encode()
	if err != nil {
		panic(err)
	}
	return data
}

// passes scripts a build whose bootstrap, queue and run take one probe each.
func passes(b *fakeBuild) {
	b.script = func(b *fakeBuild) {
		switch {
		case b.probes == 1:
			b.state, b.jobs = "running", []map[string]any{scriptJob("job-0", "upload", "bootstrap", "running")}
		case b.probes == 2:
			b.jobs = []map[string]any{scriptJob("job-0", "upload", "bootstrap", "passed"), scriptJob("job-1", "evaluate", "cpu", "running")}
		default:
			b.finish("passed")
		}
	}
}

func submission() Submission {
	seed := int64(7)
	return Submission{
		Payload: &schema.Payload{Main: "eval.py", Lang: schema.LangPython, Mode: schema.ModeTest, Seed: &seed,
			Sources: schema.Files{{Name: "eval.py", Text: "pass\n"}, {Name: "submission.py", Text: "x = 'private text'\n"}}},
		GPU: "CPU_BK", Queue: "cpu",
	}
}
