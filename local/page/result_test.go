package page

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema"
)

// store uploads an artifact with its bytes.
func (w *rig) store(j engine.Job, path, contentType string, data []byte) engine.Artifact {
	w.t.Helper()
	as := must[[]engine.Artifact](w.t)(w.engine.AddArtifacts(j.ID, []engine.NewArtifact{{Path: path, ContentType: contentType, Size: int64(len(data))}}))
	w.ok(os.WriteFile(w.engine.ArtifactFile(as[0].ID), data, 0o600))
	w.ok(w.engine.SetArtifactState(j.ID, as[0].ID, engine.ArtifactFinished))
	return must[engine.Artifact](w.t)(w.engine.Artifact(as[0].ID))
}

// samples are times with a slow start and one outlier.
func samples(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = 41_200 + 9_000*math.Exp(-float64(i)/6) + 300*math.Sin(float64(i)*1.7)
	}
	out[n/2] += 12_000
	return out
}

// a result of a leaderboard run that passed, and one of a test that failed.
func result(t *testing.T, runID string, passed bool) []byte {
	t.Helper()
	run := func(report schema.Report) schema.EvalResult {
		return schema.EvalResult{Run: &schema.RunResult{Success: true, Passed: passed, Duration: 1.43, Result: report}}
	}
	r := &schema.Result{Success: true, RunID: runID, System: schema.SystemInfo{GPU: "NVIDIA B200", DeviceCount: 1}}
	if passed {
		r.Outcome = schema.NewOutcome(schema.OutcomePassed, "")
		r.Runs = schema.Runs{
			{Name: "test", EvalResult: run(schema.Report{{Key: "test-count", Value: "2"}, {Key: "test.0.spec", Value: "size: 128; seed: 5"}, {Key: "test.0.status", Value: "pass"}, {Key: "test.1.spec", Value: "size: 4096; seed: 9"}, {Key: "test.1.status", Value: "pass"}, {Key: "check", Value: "pass"}})},
			{Name: "leaderboard", EvalResult: run(schema.Report{{Key: "benchmark-count", Value: "1"}, {Key: "benchmark.0.spec", Value: "size: 16777216; seed: 1"}, {Key: "benchmark.0.mean", Value: "41834.2"}, {Key: "benchmark.0.err", Value: "61.5"}, {Key: "benchmark.0.best", Value: "40911"}, {Key: "benchmark.0.worst", Value: "53900"}, {Key: "check", Value: "pass"}})},
		}
		r.Evidence = schema.Evidence{GPUType: "B200_BK", Measurements: []schema.Measurement{{Phase: "leaderboard", Case: 0, Samples: samples(100)}}}
	} else {
		r.Outcome = schema.NewOutcome(schema.OutcomeWrong, "")
		r.Runs = schema.Runs{{Name: "test", EvalResult: run(schema.Report{{Key: "test-count", Value: "2"}, {Key: "test.0.spec", Value: "size: 128; seed: 5"}, {Key: "test.0.status", Value: "pass"}, {Key: "test.1.spec", Value: "size: 4096; seed: 9"}, {Key: "test.1.status", Value: "fail"}, {Key: "test.1.error", Value: `<xss>mismatch at 17\nexpected 3.0, got 2.5`}, {Key: "check", Value: "fail"}})}}
	}
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func picture(t *testing.T) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 320, 120))
	for x := range 320 {
		for y := range 120 {
			img.Set(x, y, color.RGBA{uint8(x / 2), uint8(2 * y), 120, 255})
		}
	}
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// evaluated makes a build of a submission with its result.
func (w *rig) evaluated(a engine.Agent, runID, file string, passed bool) (engine.Build, engine.Job) {
	w.t.Helper()
	b := w.create("kernelbot", engine.NewBuild{
		Message: "Kernel eval: " + runID, Env: map[string]string{"KERNELBOT_PAYLOAD": secret},
		MetaData: map[string]string{"run_id": runID, "gpu": "B200_BK", "mode": "leaderboard", "task": "vectoradd_py", "file": file},
	})
	j := w.start(a)
	w.store(j, "result.json", "application/json", result(w.t, runID, passed))
	w.finish(j, 0)
	return must[engine.Build](w.t)(w.engine.BuildByID(b.ID)), j
}

// Builds are told apart by what they are about and what came of it; a wrong
// answer is no green build.
func TestBuildsAreToldApart(t *testing.T) {
	w := newRig(t)
	w.pipeline("kernelbot", `steps: [{label: ":rocket: Evaluate", key: evaluate, command: kbrun}]`)
	a := w.agent("b200-1", "default")
	w.evaluated(a, "run-1", "right.py", true)
	w.evaluated(a, "run-2", "wrong.py", false)
	w.create("kernelbot", engine.NewBuild{Message: "a third"})
	index := w.get("/")
	wants(t, "index", index, "vectoradd_py · right.py · leaderboard on B200_BK", "vectoradd_py · wrong.py", `<span class="state good tick">correct</span>`,
		`<span class="state bad cross">wrong</span>`, "41.834 µs", "a third")
	right, wrong := w.get("/gpu-mode/kernelbot/builds/1"), w.get("/gpu-mode/kernelbot/builds/2")
	wants(t, "right", right, "<title>correct 41.834 µs: vectoradd_py · right.py · leaderboard on B200_BK · kernelbot #1",
		`<span class="state good tick">passed</span>`, "🚀 Evaluate", "size: 16777216; seed: 1", `<strong class="time">41.834 µs</strong> <span class="quiet">± 61.5 ns</span>`, "best 40.911 µs", `<svg class="chart strip"`, "100 samples from", "2 cases passed")
	wants(t, "wrong", wrong, "<title>wrong: vectoradd_py · wrong.py", `<span class="state idle ring">passed</span>`, "&lt;xss&gt;mismatch at 17\nexpected 3.0, got 2.5")
	if strings.Contains(wrong, `<h1>vectoradd_py · wrong.py · leaderboard on B200_BK</h1>`+"\n"+`<span class="state good`) || strings.Contains(wrong, "state good tick\">passed</span>\n<div class=\"actions\"") {
		t.Error("a wrong answer is shown in green")
	}
	for query, want := range map[string]string{
		"?q=right.py": "#1", "?q=WRONG+b200_bk": "#2", "?state=wrong": "#2", "?state=correct": "#1", "?state=running": "#3", "?q=third": "#3", "?q=run-2&state=passed": "#2",
	} {
		body := w.get("/" + query)
		for _, number := range []string{"#1", "#2", "#3"} {
			if got := strings.Contains(body, ">"+number+"</a>"); got != (number == want) {
				t.Errorf("%s shows %s: %t, want %s only", query, number, got, want)
			}
		}
	}
	wants(t, "nothing found", w.get(`/?q=%22%3Cx%3E`), "No build has all of that", "&#34;&lt;x&gt;", "Show all 3")
}

func TestResultsThatCannotBeRead(t *testing.T) {
	w := newRig(t)
	w.pipeline("p", "steps: [{label: x, command: x}]")
	w.create("p", engine.NewBuild{MetaData: map[string]string{"run_id": "r", "outcome:r": "out-of-memory"}})
	j := w.start(w.agent("a", "default"))
	for _, data := range []string{"", "{", "null", "[1]", `{"runs": 7}`, strings.Repeat("[", 100_000)} {
		w.store(j, "result.json", "", []byte(data))
	}
	w.finish(j, 0)
	wants(t, "build", w.get("/gpu-mode/p/builds/1"), `<span class="state bad cross">out of memory</span>`)
}

func TestArtifactPages(t *testing.T) {
	w := newRig(t)
	w.pipeline("p", "steps: [{label: x, command: x}, {label: y, command: x}]")
	w.create("p", engine.NewBuild{})
	a := w.agent("a", "default")
	j := w.start(a)
	const build = "/gpu-mode/p/builds/1"
	page := func(path, kind string, data []byte) (string, string) {
		artifact := w.store(j, path, kind, data)
		at := build + "/artifacts/" + artifact.ID
		return w.get(at), at
	}
	body, _ := page("a/result.json", "application/json", []byte(`{"a":[1,"<b>"]}`))
	wants(t, "JSON", body, `<li id="L2"><a href="#L2" data-n="2"`, `</a>  &#34;a&#34;: [`, "&lt;b&gt;", "Download")
	body, at := page("plot.png", "text/html", picture(t))
	wants(t, "image", body, `<img class="preview" src="`+at+`/image"`)
	status, _, header := w.request("GET", at+"/image")
	if status != 200 || header.Get("Content-Type") != "image/png" || header.Get("Content-Security-Policy") != "default-src 'none'; sandbox" || header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("an image = %d %v", status, header)
	}
	for path, data := range map[string]string{"x.svg": `<svg xmlns="http://www.w3.org/2000/svg" onload="x"/>`, "x.html": "<script>x</script>", "x.png": "<script>x</script>"} {
		body, at := page(path, "image/png", []byte(data))
		if status, _, _ := w.request("GET", at+"/image"); status != http.StatusNotFound || strings.Contains(body, "<script>x") {
			t.Errorf("%s is served as an image: %d", path, status)
		}
	}
	body, _ = page("binary", "text/plain", []byte("a\x00b"))
	wants(t, "binary", body, "It is no text")
	body, _ = page("empty", "", nil)
	wants(t, "empty", body, "It is empty")
	body, _ = page("long", "", []byte(strings.Repeat("größer\n", 60_000)))
	wants(t, "long", body, "the first 256.0 KiB", "größer")
	deleted := w.store(j, "gone", "", []byte("x"))
	w.ok(w.engine.DeleteArtifact(deleted.ID))
	wants(t, "deleted", w.get(build+"/artifacts/"+deleted.ID), "Its bytes are not here", "deleted")
	w.create("p", engine.NewBuild{})
	for _, path := range []string{build + "/artifacts/nothing", "/gpu-mode/p/builds/2/artifacts/" + deleted.ID, build + "/artifacts/" + deleted.ID + "/image"} {
		if status, _, _ := w.request("GET", path); status != http.StatusNotFound {
			t.Errorf("GET %s = %d, want 404", path, status)
		}
	}
}

// A block step is answered on the page, by those who may act.
func TestUnblockOnThePage(t *testing.T) {
	w := newRig(t)
	w.pipeline("p", `steps: [{block: ":shipit: Ship?", prompt: "Really <b>?", submit: Yes, fields: [{text: Name, key: name, hint: "of the <release>"}, {select: Where, key: where, options: [{label: Here, value: h}, {value: t}]}]}]`)
	b := w.create("p", engine.NewBuild{})
	j := b.Jobs[0]
	const path = "/gpu-mode/p/builds/1"
	wants(t, "blocked", w.get(path), `<span class="state warn dash">blocked</span>`, "Really &lt;b&gt;?", `name="field.name"`, `type="radio" name="field.where" value="t"`, ">Yes</button>")
	if _, body, _ := w.request("GET", path); strings.Contains(body, "field.name") {
		t.Error("a browser that may only look is asked")
	}
	if status, body, _ := w.post(path + "/jobs/" + j.ID + "/unblock"); status != 422 || !strings.Contains(body, "an answer is required") {
		t.Errorf("without answers = %d %s", status, body)
	}
	r := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), "POST", w.server.URL+path+"/jobs/"+j.ID+"/unblock", strings.NewReader("field.name=v1&field.where=h")))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", w.server.URL)
	r.Header.Set("Cookie", w.cookie)
	resp := must[*http.Response](t)(w.server.Client().Do(r))
	resp.Body.Close()
	got := must[engine.Build](t)(w.engine.BuildByID(b.ID))
	if got.MetaData["name"] != "v1" || got.MetaData["where"] != "h" || got.Jobs[0].State != engine.JobUnblocked {
		t.Errorf("answered: %+v, meta-data %v", got.Jobs[0], got.MetaData)
	}
	wants(t, "afterwards", w.get(path), "by kblocal page", "unblocked")
}
