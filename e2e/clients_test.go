package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema"
)

// A client makes the REST calls that Kernelbot's own launchers are known to
// make, in their order, and reads of the answers what they read.
type client struct {
	*rig
	t *testing.T
}

// get fetches a URL as such a launcher does, and decodes the answer.
func (c client) get(url string, into any) {
	c.t.Helper()
	resp := c.do("GET", url, nil, true)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(resp.Body) // more than the status, if there is any
		c.t.Fatalf("GET %s: %s %s", url, resp.Status, said)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		c.t.Fatalf("GET %s: %v", url, err)
	}
}

// do makes one request and follows no redirect: these launchers do that by hand.
func (c client) do(method, url string, body any, token bool) *http.Response {
	c.t.Helper()
	var data io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			c.t.Fatal(err)
		}
		data = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(c.t.Context(), method, url, data)
	if err != nil {
		c.t.Fatal(err)
	}
	if token {
		req.Header.Set("Authorization", "Bearer "+c.APIToken())
		req.Header.Set("Content-Type", "application/json")
	}
	plain := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := plain.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// A restBuild is what these launchers read of a build.
type restBuild struct {
	ID, URL, State string
	Number         int
	Jobs           []struct {
		ArtifactsURL string `json:"artifacts_url"`
		ExitStatus   *int   `json:"exit_status"`
		StepKey      string `json:"step_key"`
	}
}

type restArtifact struct {
	Filename    string
	DownloadURL string `json:"download_url"`
}

// create makes a build.
func (c client) create(pipeline string, body map[string]any) restBuild {
	c.t.Helper()
	resp := c.do("POST", c.URL()+"/v2/organizations/gpu-mode/pipelines/"+pipeline+"/builds", body, true)
	defer resp.Body.Close()
	var b restBuild
	if err := json.NewDecoder(resp.Body).Decode(&b); err != nil || resp.StatusCode != http.StatusCreated {
		c.t.Fatalf("creating a build: %s, %v", resp.Status, err)
	}
	return b
}

// poll looks at a build, and looks again when it has ended. The launchers sleep
// in between; here the stand-in says when.
func (c client) poll(b restBuild) restBuild {
	c.t.Helper()
	c.get(b.URL, &b)
	c.wait(engine.Build{ID: b.ID})
	c.get(b.URL, &b)
	return b
}

// download gets the artifact called result.json from a list: the link with the
// token, then what it redirects to without.
func (c client) download(list string) []byte {
	c.t.Helper()
	var artifacts []restArtifact
	c.get(list, &artifacts)
	for _, a := range artifacts {
		if a.Filename != "result.json" {
			continue
		}
		resp := c.do("GET", a.DownloadURL, nil, true)
		resp.Body.Close()
		if resp.StatusCode != http.StatusFound {
			c.t.Fatalf("GET %s: %s, want a redirect", a.DownloadURL, resp.Status)
		}
		resp = c.do("GET", resp.Header.Get("Location"), nil, false)
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			c.t.Fatalf("GET %s: %s, %v", resp.Request.URL, resp.Status, err)
		}
		return data
	}
	return nil
}

// parse reads a result as strictly as the launcher's data classes: an unknown
// key within a class ends the submission there.
func (c client) parse(data []byte) *schema.Result {
	c.t.Helper()
	var raw struct {
		System map[string]any
		Runs   map[string]struct {
			Start, End  string
			Compilation map[string]any
			Run         map[string]any
		}
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		c.t.Fatalf("result.json: %v in %.300q", err, data)
	}
	known := map[string]string{
		"system": "gpu device_count cpu runtime platform torch hostname",
		"run":    "success passed command stdout stderr exit_code duration result",
	}
	check := func(class string, have map[string]any) {
		for key := range have {
			if !strings.Contains(" "+known[class]+" ", " "+key+" ") {
				c.t.Errorf("result.json: %s has the key %q, which the launcher does not know", class, key)
			}
		}
	}
	check("system", raw.System)
	for _, run := range raw.Runs {
		check("run", run.Run)
	}
	result, err := schema.DecodeResult(data)
	if err != nil {
		c.t.Fatal(err)
	}
	return result
}

// relayPipeline creates the pipeline whose first job shows the result.
func (r *rig) relayPipeline() {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "testdata", "golden", "bootstrap", "all.relay.yml"))
	if err == nil {
		_, err = r.Engine.CreatePipeline(engine.Pipeline{Slug: "relay", Configuration: string(text), SkipCheckout: true})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// kernelbotBuild is what Kernelbot's launcher sends, with its image that is
// never pinned.
func kernelbotBuild(payload, queue string) map[string]any {
	return map[string]any{
		"commit": "HEAD", "branch": "buildkite-infrastructure", "message": "Kernel eval: sub-unknown-CPU_BK",
		"env": map[string]string{
			"KERNELBOT_PAYLOAD": payload, "KERNELBOT_RUN_ID": "sub-unknown-CPU_BK", "KERNELBOT_QUEUE": queue,
			"KERNELBOT_IMAGE": "ghcr.io/gpu-mode/kernelbot:latest", "KERNELBOT_CPUS": "8", "KERNELBOT_MEMORY": "64g",
		},
		"meta_data": map[string]string{"run_id": "sub-unknown-CPU_BK", "queue": queue},
	}
}

// Kernelbot's launcher as it is gets its result from the first job, which relays
// it, although it names an image that may not be used.
func TestKernelbotLauncher(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.relayPipeline()
	c := client{r, t}
	b := c.poll(c.create("relay", kernelbotBuild(encoded(t, "leaderboard"), "cpu")))
	if b.State != "passed" || len(b.Jobs) != 2 || b.Jobs[0].StepKey != "bootstrap" {
		t.Fatalf("build %+v, want the two jobs passed, the bootstrap first", b)
	}
	data := c.download(b.Jobs[0].ArtifactsURL)
	if data == nil {
		t.Fatal("No result returned from Buildkite job")
	}
	result := c.parse(data)
	if !result.Success || result.RunID != "sub-unknown-CPU_BK" || len(result.Runs) != 3 {
		t.Errorf("result %v of run %q with %d runs: %+v", result.Success, result.RunID, len(result.Runs), result.Outcome)
	}
	if own := c.download(b.Jobs[1].ArtifactsURL); !bytes.Equal(own, data) {
		t.Error("the result that is shown is not the one of the evaluation")
	}
}

// The relayed job ends as the evaluation did, and its result says why.
func TestRelayedFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.relayPipeline()
	c := client{r, t}
	b := c.poll(c.create("relay", kernelbotBuild("nonsense", "cpu")))
	if b.State != "failed" || len(b.Jobs) != 2 {
		t.Fatalf("build %+v, want a failed one", b)
	}
	for _, j := range b.Jobs {
		if j.ExitStatus == nil || *j.ExitStatus != schema.ExitConfig {
			t.Errorf("job %s ended with %v, want %d", j.StepKey, j.ExitStatus, schema.ExitConfig)
		}
	}
	if result := c.parse(c.download(b.Jobs[0].ArtifactsURL)); result.Outcome.Name != schema.OutcomeBadPayload {
		t.Errorf("outcome %q, want %s", result.Outcome.Name, schema.OutcomeBadPayload)
	}
}

// A relay on the queue of its evaluation would wait for itself where the queue has
// one agent: it ends before anything is uploaded.
func TestRelayNeedsAQueueOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const steps = "steps: [{key: bootstrap, command: kbgen upload evaluate --relay, agents: {queue: cpu}}]\n"
	if _, err := r.Engine.CreatePipeline(engine.Pipeline{Slug: "alone", Configuration: steps, SkipCheckout: true}); err != nil {
		t.Fatal(err)
	}
	c := client{r, t}
	b := c.poll(c.create("alone", kernelbotBuild(encoded(t, "test"), "cpu")))
	if b.State != "failed" || len(b.Jobs) != 1 {
		t.Errorf("build %+v, want the one job failed", b)
	}
}

// kblaunch finds its result where the first job shows it as well.
func TestRelayAndKblaunch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.relayPipeline()
	r.relaySubmit("right.py").want(t, 0, "passed")
	if n := r.results(); n != 2 {
		t.Errorf("%d results, want the evaluation's and the one that is shown", n)
	}
}

// relaySubmit launches a submission of the tiny task to the relaying pipeline.
func (r *rig) relaySubmit(file string, args ...string) output {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return command(r.t, ctx, []string{
		"KBLAUNCH_API_URL=" + r.URL() + "/", "BUILDKITE_API_TOKEN=" + r.APIToken(), "BUILDKITE_ORG=gpu-mode", "BUILDKITE_PIPELINE=relay",
	}, "", filepath.Join(bin, "kblaunch"), append([]string{"submit", tiny, filepath.Join(tiny, file), "--gpu", "CPU_BK", "--mode", "test"}, args...)...)
}

// The agent of the evaluation dies: what is shown is the result of the next try.
func TestRelayWaitsForTheLastTry(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.relayPipeline()
	done := make(chan output, 1)
	go func() { done <- r.relaySubmit("patient.py") }()
	if err := syscall.Kill(r.awaitEvaluation().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	(<-done).want(t, 0, "passed")
	b := r.wait(r.newest())
	if got, want := r.jobs(), "bootstrap=passed evaluate-cpu=failed evaluate-cpu=passed"; got != want || b.State != engine.BuildPassed {
		t.Errorf("build %s, jobs %q, want %q", b.State, got, want)
	}
	if n := r.results(); n != 2 {
		t.Errorf("%d results, want that of the second try, twice", n)
	}
}

// A canceled build ends the job that waits as well.
func TestCanceledRelay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.relayPipeline()
	if s := r.relaySubmit("hang.py", "--timeout", "1s"); s.status != 3 {
		t.Errorf("exit status %d, want 3\n%s%s", s.status, s.stdout, s.stderr)
	}
	if b := r.wait(r.newest()); b.State != engine.BuildCanceled {
		t.Errorf("build is %s, want canceled", b.State)
	}
}

// Kernelbot's first launcher: a vendor's own queue, its names, no run id. It
// looks for the result among the build's artifacts.
func TestFirstLauncher(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start("acme-cpu-0", 1)
	r.connected()
	c := client{r, t}
	b := c.poll(c.create("kernelbot", map[string]any{
		"commit": "HEAD", "branch": "main", "message": "Test submission",
		"env": map[string]string{"GPU_QUEUE": "acme-cpu-0", "SUBMISSION_PAYLOAD": encoded(t, "test")},
	}))
	if b.State != "passed" || len(b.Jobs) != 2 || b.Jobs[1].StepKey != "evaluate-acme-cpu-0" {
		t.Fatalf("build %+v, want an evaluation on the queue that was named", b)
	}
	result := c.parse(c.download(fmt.Sprintf("%s/artifacts", b.URL)))
	if want := "build-" + b.ID + ".CPU_BK"; !result.Success || result.RunID != want || result.Queue != "acme-cpu-0" || result.GPUType != "CPU_BK" {
		t.Errorf("result of run %q on queue %q for %q, want %q, passed: %+v", result.RunID, result.Queue, result.GPUType, want, result.Outcome)
	}
}

// The same launcher and a pasted pipeline, whose one job judges.
func TestFirstLauncherStatic(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.staticPipeline()
	c := client{r, t}
	b := c.poll(c.create("static", map[string]any{
		"commit": "HEAD", "branch": "main", "message": "Test submission",
		"env": map[string]string{"GPU_QUEUE": "cpu", "SUBMISSION_PAYLOAD": encoded(t, "test")},
	}))
	result := c.parse(c.download(b.Jobs[0].ArtifactsURL))
	if b.State != "passed" || !result.Success || !strings.HasPrefix(result.RunID, "build-"+b.ID+".") {
		t.Errorf("build %s, result of run %q: %+v", b.State, result.RunID, result.Outcome)
	}
}

func (r *rig) staticPipeline() {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "testdata", "golden", "bootstrap", "CPU_BK.static.yml"))
	if err == nil {
		_, err = r.Engine.CreatePipeline(engine.Pipeline{Slug: "static", Configuration: string(text), SkipCheckout: true})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// A push and a pull request have nothing to judge: green, no step, no result. A
// launcher's build that lost its payload is red.
func TestBuildsWithoutAPayload(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.staticPipeline()
	for _, tt := range []struct {
		name  string
		build engine.NewBuild
		state engine.BuildState
	}{
		{"push", engine.NewBuild{Source: "webhook", Branch: "main", Message: "Fix a typo"}, engine.BuildPassed},
		{"pull request", engine.NewBuild{Source: "webhook", PullRequestID: 7, Branch: "fix"}, engine.BuildPassed},
		{"launcher", engine.NewBuild{Env: map[string]string{schema.EnvGPU: "CPU_BK", schema.EnvRunID: "lost"}}, engine.BuildFailed},
	} {
		for _, pipeline := range []string{"kernelbot", "static"} {
			b, err := r.Engine.CreateBuild(pipeline, tt.build)
			if err != nil {
				t.Fatal(err)
			}
			b = r.wait(b)
			if b.State != tt.state {
				t.Errorf("%s on %s: build is %s, want %s", tt.name, pipeline, b.State, tt.state)
			}
			if tt.state != engine.BuildPassed {
				continue
			}
			all, err := r.Engine.BuildArtifacts(b.ID, true)
			if err != nil || len(b.Jobs) != 1 || len(all) != 0 {
				t.Errorf("%s on %s: %d jobs, %d artifacts, %v, want one job and nothing of it", tt.name, pipeline, len(b.Jobs), len(all), err)
			}
			if pipeline == "kernelbot" && (len(b.Annotations) != 1 || !strings.Contains(b.Annotations[0].Body, "carries no payload")) {
				t.Errorf("%s: annotations %+v, want one that says so", tt.name, b.Annotations)
			}
		}
	}
}

// What a build names as its image, and may not, is said on its page.
func TestImageIsNotUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := client{r, t} // no agent takes the step, which is for docker
	b := c.create("kernelbot", kernelbotBuild("not-a-payload", "acme-h100-0"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	events := r.Engine.Subscribe()
	defer events.Close()
	for {
		now, err := r.Engine.BuildByID(b.ID)
		if err != nil {
			t.Fatal(err)
		}
		if len(now.Annotations) > 0 {
			if body := now.Annotations[0].Body; !strings.Contains(body, "ghcr.io/gpu-mode/kernelbot:latest") || !strings.Contains(body, "is not pinned") {
				t.Errorf("annotation %q, want the image and the reason", body)
			}
			return
		}
		if _, err := events.Next(ctx); err != nil {
			t.Fatalf("waiting for an annotation: %v", err)
		}
	}
}
