package page

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/local/engine"
)

// evaluation is a pipeline with everything a build page shows.
const evaluation = `
steps:
  - {label: Render, key: bootstrap, command: kbgen upload, agents: {queue: bootstrap}}
  - wait
  - group: On CPU_BK
    steps:
      - label: Evaluate
        command: kbrun evaluate
        agents: {queue: cpu}
        retry: {automatic: [{exit_status: 75, limit: 1}]}
      - {command: "kbrun profile --payload=$KERNELBOT_PAYLOAD", agents: {queue: cpu}}
  - {label: Left out, command: "true", skip: no reason}
`

// judged is a build of that pipeline: rendered, once retried, then failed.
func judged(w *rig) engine.Build {
	w.t.Helper()
	w.pipeline("kernelbot", evaluation)
	boot, cpu := w.agent("boot-1", "bootstrap"), w.agent("cpu-1", "cpu")
	b := w.create("kernelbot", engine.NewBuild{
		Message: "vectoradd by alice\n\nsecond try", Branch: "trunk", Commit: "a24c1a7",
		Env:      map[string]string{"KERNELBOT_PAYLOAD": secret, "KERNELBOT_SEED": "4815162342"},
		MetaData: map[string]string{"run_id": "run-8f2c"},
	})
	w.finish(w.start(boot), 0)
	w.finish(w.start(cpu), 75)
	profile := w.start(cpu) // it has waited longer than the new attempt
	w.finish(profile, 0)
	j := w.start(cpu)
	w.log(j, "--- Testing\r\n\x1b[31mwrong\x1b[0m\r\n")
	w.upload(j, "out/result.json", 1240)
	w.ok(w.engine.FinishJob(j.ID, engine.Finish{ExitStatus: -1, Signal: "SIGKILL", SignalReason: "agent_stop"}))
	return must[engine.Build](w.t)(w.engine.Build("kernelbot", b.Number))
}

func job(b engine.Build, label string, attempt int) engine.Job {
	for _, j := range b.Jobs {
		if j.Label == label && j.RetriesCount == attempt {
			return j
		}
	}
	panic("no job " + label)
}

const buildOne = "/gpu-mode/kernelbot/builds/1"

func TestIndex(t *testing.T) {
	w := newRig(t)
	wants(t, "index without builds", w.get("/"), "No builds yet", "No agent is connected")
	judged(w)
	w.pipeline("image", "steps: [{command: make, agents: {queue: cpu}}]")
	w.create("image", engine.NewBuild{Message: "nightly"})
	lost := w.agent("cpu-2", "cpu")
	w.ok(w.engine.LoseAgent(lost.ID))
	busy := w.agent("cpu-3", "cpu")
	w.start(busy)
	for _, q := range w.engine.Queues() {
		if q.Key == "bootstrap" {
			must[engine.Queue](t)(w.engine.SetQueuePaused(q.ID, true, "driver update"))
		}
	}
	body := w.get("/")
	wants(t, "index", body,
		"2 builds in gpu-mode",
		`<a href="/gpu-mode/kernelbot/builds/1">#1</a>`, `<span class="state bad cross">failed</span>`, "vectoradd by alice", "trunk",
		`<a href="/gpu-mode/image/builds/1">#1</a>`, `<span class="state busy dot">running</span>`, "nightly", "data-since=",
		"cpu-1", `idle</span>`, "cpu-3", `busy</span><a class="sub" href="/gpu-mode/image/builds/1/jobs/`, "1 gone", `lost</span>`,
		`paused</span>`, "driver update", `scope="col"`, `scope="row"`, "kblocal v1.2.3",
	)
	if strings.Index(body, "nightly") > strings.Index(body, "vectoradd") {
		t.Error("the newest build is not the first")
	}
	for _, path := range []string{"/gpu-mode/image", "/gpu-mode/image/", "/gpu-mode/image/builds"} {
		one := w.get(path)
		wants(t, path, one, "nightly", "1 build")
		if strings.Contains(one, "vectoradd") {
			t.Errorf("GET %s shows another pipeline's build", path)
		}
	}
}

func TestIndexPages(t *testing.T) {
	w := newRig(t)
	w.pipeline("p", "steps: [{label: x, command: x, skip: true}]")
	for i := range 101 {
		w.create("p", engine.NewBuild{Message: fmt.Sprintf("build-%03d.", i+1)})
	}
	shown := regexp.MustCompile(`build-\d+\.`)
	for _, tt := range []struct {
		path, first, last string
		n                 int
		links             []string
	}{
		{"/", "build-101.", "build-052.", 50, []string{`<a href="/?page=2" rel="next">`}},
		{"/?page=2", "build-051.", "build-002.", 50, []string{`<a href="/?page=1" rel="prev">`, `<a href="/?page=3" rel="next">`}},
		{"/gpu-mode/p?page=3", "build-001.", "build-001.", 1, []string{`<a href="/gpu-mode/p?page=2" rel="prev">`}},
	} {
		body := w.get(tt.path)
		got := shown.FindAllString(body, -1)
		if len(got) != tt.n || got[0] != tt.first || got[len(got)-1] != tt.last {
			t.Errorf("GET %s shows %d builds, %v; want %d from %s to %s", tt.path, len(got), got, tt.n, tt.first, tt.last)
		}
		wants(t, tt.path, body, tt.links...)
	}
}

func TestBuild(t *testing.T) {
	w := newRig(t)
	b := judged(w)
	must[engine.Annotation](t)(w.engine.Annotate(b.ID, engine.Annotation{Context: "verdict", Style: "error", Body: "**wrong**"}, false))
	body := w.get(buildOne)
	first, second := job(b, "Evaluate", 0), job(b, "Evaluate", 1)
	wants(t, "build", body,
		"<h1>vectoradd by alice</h1>", "second try", "a24c1a7", "trunk", "run_id", "run-8f2c",
		"KERNELBOT_PAYLOAD", "KERNELBOT_SEED", "Names only",
		`<article class="annotation error" aria-label="verdict">`, "<strong>wrong</strong>",
		`<th colspan="7" scope="rowgroup">On CPU_BK</th>`, `<tr class="waiter"`,
		`<tr id="`+first.ID+`" class="superseded">`, "exit 75", "retried",
		`<tr id="`+second.ID+`">`, "attempt 2, automatic retry", "exit -1 · SIGKILL · agent_stop", "cpu-1",
		"Left out", `skipped</span>`, "no reason",
		`action="`+buildOne+"/jobs/"+second.ID+`/retry"`, "Retry 1 failed job<", `action="`+buildOne+`/rebuild"`,
		"out/result.json", "1.2 KiB", `href="http://127.0.0.1:1/artifacts/`, "?a=1&amp;b=2",
	)
	if strings.Contains(body, `action="`+buildOne+`/cancel"`) {
		t.Error("a build that has ended can be canceled")
	}
	if strings.Contains(body, first.ID+`/retry"`) {
		t.Error("a job that was retried can be retried again")
	}
}

func TestJob(t *testing.T) {
	w := newRig(t)
	b := judged(w)
	first, second := job(b, "Evaluate", 0), job(b, "Evaluate", 1)
	path := buildOne + "/jobs/" + second.ID
	body := w.get(path)
	wants(t, "job", body,
		"<h1>Evaluate</h1>", "in On CPU_BK", "attempt 2, automatic retry", "exit -1 · SIGKILL · agent_stop", "queue=cpu",
		`<a href="`+buildOne+"/jobs/"+first.ID+`">attempt 1</a>`,
		"<details open>", `<summary id="L1"><span>Testing</span>`, `<div id="L2"><a href="#L2" data-n="2"`, `<span class="term-fg31">wrong</span>`,
		`href="`+path+`/log.txt"`, `action="`+path+`/retry"`, "out/result.json",
	)
	status, raw, header := w.request("GET", path+"/log.txt")
	if want := "--- Testing\r\n\x1b[31mwrong\x1b[0m\r\n"; status != 200 || raw != want || header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("GET log.txt = %d %s %q, want 200, plain text, %q", status, header.Get("Content-Type"), raw, want)
	}
	wants(t, "first attempt", w.get(buildOne+"/jobs/"+first.ID), "The job wrote nothing", ">attempt 2</a>")
}

func TestLongLog(t *testing.T) {
	w := newRig(t)
	w.pipeline("p", "steps: [{label: x, command: x}]")
	w.create("p", engine.NewBuild{})
	j := w.start(w.agent("a", "default"))
	line := strings.Repeat("y", 99) + "\n"
	w.log(j, "the beginning\n"+strings.Repeat(line, 22_000)+"the end\n")
	path := "/gpu-mode/p/builds/1/jobs/" + j.ID
	body := w.get(path)
	wants(t, "long log", body, "the last 2.0 MiB of 2.1 MiB", "<div>the end</div>")
	if strings.Contains(body, "the beginning") {
		t.Error("a long log is rendered from its beginning")
	}
	if n, want := strings.Count(body, "<div>"+strings.Repeat("y", 99)+"</div>"), (maxRendered-8)/100; n != want {
		t.Errorf("%d whole lines are shown, want %d", n, want)
	}
	if _, raw, _ := w.request("GET", path+"/log.txt"); !strings.HasPrefix(raw, "the beginning\n") || len(raw) != 14+100*22_000+8 {
		t.Errorf("the raw log has %d bytes", len(raw))
	}
}

// A chunk that came too early leaves a gap in the file; nothing behind it is
// shown yet.
func TestLogGap(t *testing.T) {
	w := newRig(t)
	w.pipeline("p", "steps: [{label: x, command: x}]")
	w.create("p", engine.NewBuild{})
	j := w.start(w.agent("a", "default"))
	w.ok(w.engine.WriteLog(j.ID, 0, []byte("one\n")))
	w.ok(w.engine.WriteLog(j.ID, 8, []byte("three\n")))
	path := "/gpu-mode/p/builds/1/jobs/" + j.ID
	if body := w.get(path); !strings.Contains(body, `</a>one</div>`) || strings.Contains(body, "three") {
		t.Errorf("the page shows what lies behind a gap:\n%s", body)
	}
	if raw := w.get(path + "/log.txt"); raw != "one\n" {
		t.Errorf("log.txt = %q, want %q", raw, "one\n")
	}
}

// No page shows a value of the build's env, not even by way of a command that
// the backend has filled it in.
func TestNoEnvValues(t *testing.T) {
	w := newRig(t)
	b := judged(w)
	paths := []string{"/", "/gpu-mode/kernelbot", buildOne}
	for _, j := range b.Jobs {
		if j.Type == engine.TypeScript {
			paths = append(paths, buildOne+"/jobs/"+j.ID)
		}
	}
	wants(t, "build", w.get(buildOne), "kbrun profile --payload=…")
	for _, path := range paths {
		body := w.get(path)
		for _, value := range []string{secret, "4815162342"} {
			if strings.Contains(body, value) {
				t.Errorf("GET %s shows the env value %q", path, value)
			}
		}
	}
}

// Text that jobs and clients choose does not come out as markup.
func TestForeignText(t *testing.T) {
	const bad = `"'><xss onerror=alert(1)>{{.}}</script>`
	w := newRig(t)
	w.pipeline("p", "env: {A: b}\nsteps: [{group: "+quote("g"+bad)+", steps: [{label: "+quote("l"+bad)+", key: k, command: x}]}]")
	b := w.create("p", engine.NewBuild{
		Message: "m" + bad + "\n" + bad, Branch: "b" + bad, Commit: "c" + bad, Source: "s" + bad, Creator: engine.Person{Name: "n" + bad},
		Env: map[string]string{"E" + strings.ReplaceAll(bad, "=", ""): "1"}, MetaData: map[string]string{"k" + bad: "v" + bad},
	})
	a := w.agent("a"+bad, "default")
	j := w.start(a)
	w.log(j, "--- h"+bad+"\n"+bad+"\n\x1b]8;;http://e/"+bad+"\x07x\x1b]8;;\x07\n")
	w.upload(j, "f"+bad, 1)
	must[engine.Annotation](t)(w.engine.Annotate(b.ID, engine.Annotation{Context: "c" + bad, Body: bad + "\n```" + bad + "\n" + bad + "\n```\n[x" + bad + "](http://e/" + bad + ")"}, false))
	job := "/gpu-mode/p/builds/1/jobs/" + j.ID
	pages := map[string]string{}
	for _, path := range []string{"/", "/gpu-mode/p/builds/1", job} {
		pages[path] = w.get(path)
	}
	w.ok(w.engine.FinishJob(j.ID, engine.Finish{ExitStatus: 1, Signal: bad, SignalReason: bad}))
	must[engine.Queue](t)(w.engine.SetQueuePaused(w.engine.Queues()[0].ID, true, bad))
	for _, path := range []string{"/", "/gpu-mode/p/builds/1", job} {
		pages[path+" at the end"] = w.get(path)
	}
	for _, path := range []string{"/%22%3E%3Cxss%3E", "/%3Cxss%3E/p", "/gpu-mode/p/builds/%22'%3E%3Cxss%3E", "/?page=%22'%3E%3Cxss%3E"} {
		_, pages[path], _ = w.request("GET", path)
	}
	for name, body := range pages {
		for _, sign := range []string{"<xss", `"'>`, "</script>{", `'><`} {
			if strings.Contains(body, sign) {
				t.Errorf("%s holds %q unescaped", name, sign)
			}
		}
		if got := strings.Count(body, "<script"); got != 1 {
			t.Errorf("%s has %d scripts, want its own only", name, got)
		}
	}
	wants(t, "build", pages["/gpu-mode/p/builds/1"], "m&#34;&#39;&gt;&lt;xss", "l&#34;", "g&#34;", "f&#34;", "a&#34;")
	wants(t, "raw log", w.get(job+"/log.txt"), bad) // as text/plain, nosniff
}

// quote writes a YAML string; "$" would be interpolated.
func quote(s string) string { return fmt.Sprintf("%q", s) }

func TestNotFound(t *testing.T) {
	w := newRig(t)
	b := judged(w)
	w.create("kernelbot", engine.NewBuild{})
	evaluate, waiter := job(b, "Evaluate", 1), b.Jobs[1]
	if waiter.Type != engine.TypeWaiter {
		t.Fatalf("job 1 is %s, want the waiter", waiter.Type)
	}
	for _, path := range []string{
		"/nothing", "/gpu-mode/nothing", "/other/kernelbot", "/other/kernelbot/builds/1",
		"/gpu-mode/kernelbot/builds/99", "/gpu-mode/kernelbot/builds/x", "/gpu-mode/kernelbot/builds/-1", "/gpu-mode/nothing/builds/1",
		buildOne + "/jobs/x", buildOne + "/jobs/" + waiter.ID, "/gpu-mode/kernelbot/builds/2/jobs/" + evaluate.ID,
		buildOne + "/jobs/x/log.txt", buildOne + "/jobs/x/events", "/gpu-mode/kernelbot/builds/99/events",
		"/?page=0", "/?page=2", "/?page=x", "/assets/nothing", "/favicon.ico",
	} {
		status, body, header := w.request("GET", path)
		if status != http.StatusNotFound {
			t.Errorf("GET %s = %d, want 404", path, status)
		}
		if !strings.HasPrefix(path, "/assets") && (!strings.Contains(body, "<h1>Not Found</h1>") || header.Get("Content-Type") != "text/html; charset=utf-8") {
			t.Errorf("GET %s answers no page: %s", path, body)
		}
	}
}

func TestButtons(t *testing.T) {
	w := newRig(t)
	b := judged(w)
	failed := job(b, "Evaluate", 1)
	builds := "/gpu-mode/kernelbot/builds/"
	press := func(path string, wantStatus int, wantTo string) {
		t.Helper()
		status, body, header := w.post(path)
		if to := header.Get("Location"); status != wantStatus || !strings.HasPrefix(to, wantTo) {
			t.Errorf("POST %s = %d to %q, want %d to %q\n%s", path, status, to, wantStatus, wantTo, body)
		}
	}
	state := func(number int) engine.BuildState {
		return must[engine.Build](t)(w.engine.Build("kernelbot", number)).State
	}

	press(buildOne+"/cancel", http.StatusUnprocessableEntity, "")
	press(buildOne+"/jobs/"+failed.ID+"/retry", http.StatusSeeOther, buildOne+"/jobs/")
	if got := state(1); got != engine.BuildRunning {
		t.Errorf("after a retry the build is %s, want running", got)
	}
	press(buildOne+"/jobs/"+failed.ID+"/retry", http.StatusBadRequest, "")
	press(buildOne+"/cancel", http.StatusSeeOther, buildOne)
	if got := state(1); got != engine.BuildCanceled {
		t.Errorf("after cancel the build is %s, want canceled", got)
	}
	press(buildOne+"/rebuild", http.StatusSeeOther, builds+"2")
	again := must[engine.Build](t)(w.engine.Build("kernelbot", 2))
	if again.RebuiltFrom == nil || again.RebuiltFrom.Number != 1 || again.Env["KERNELBOT_PAYLOAD"] != secret {
		t.Error("the rebuilt build does not have the first one's env")
	}
	wants(t, "rebuilt", w.get(builds+"2"), `<a href="`+buildOne+`">#1</a>`)
	boot := w.agent("boot-2", "bootstrap")
	w.finish(w.start(boot), 1)
	press(builds+"2/retry", http.StatusSeeOther, builds+"2")
	if got := state(2); got != engine.BuildRunning && got != engine.BuildScheduled {
		t.Errorf("after retrying what failed the build is %s, want running", got)
	}
	press(builds+"99/rebuild", http.StatusNotFound, "")
}

// The pages need no script: they load themselves again while something runs,
// and everything is a link or a form.
func TestWithoutScript(t *testing.T) {
	w := newRig(t)
	w.pipeline("p", "steps: [{label: x, command: x}]")
	w.create("p", engine.NewBuild{Message: "m"})
	a := w.agent("a", "default")
	j := w.start(a)
	w.log(j, "--- g\nx\n")
	paths := []string{"/", "/gpu-mode/p/builds/1", "/gpu-mode/p/builds/1/jobs/" + j.ID}
	const refresh = `<noscript><meta http-equiv="refresh" content="3"></noscript>`
	inline := regexp.MustCompile(`(?i)<script>|<script [^>]*>[^<]|<style|\sstyle=|\son[a-z]+=|javascript:`)
	for _, path := range paths {
		body := w.get(path)
		wants(t, path, body, refresh, `<main id="main"`, `<html lang="en">`)
		if bad := inline.FindString(body); bad != "" {
			t.Errorf("GET %s has %q, which its policy forbids", path, bad)
		}
	}
	wants(t, "build", w.get(paths[1]), `<form method="post" action="/gpu-mode/p/builds/1/cancel"><button>Cancel</button></form>`)
	w.finish(j, 0)
	for _, path := range paths {
		if strings.Contains(w.get(path), refresh) {
			t.Errorf("GET %s loads itself again though nothing runs", path)
		}
	}
}

func TestAssets(t *testing.T) {
	w := newRig(t)
	for path, kind := range map[string]string{
		"/assets/style.css": "text/css", "/assets/terminal.css": "text/css", "/assets/live.js": "text/javascript", "/assets/icon.svg": "image/svg+xml",
	} {
		status, body, header := w.request("GET", path)
		if status != 200 || !strings.HasPrefix(header.Get("Content-Type"), kind) || body == "" {
			t.Errorf("GET %s = %d %s, want 200 %s", path, status, header.Get("Content-Type"), kind)
		}
		if strings.Contains(strings.ReplaceAll(body, "http://www.w3.org/2000/svg", ""), "://") {
			t.Errorf("%s loads something from elsewhere", path)
		}
	}
	wants(t, "terminal.css", w.get("/assets/terminal.css"), ".term-fg31{", ".term-fgi94{", ".term-bg40{", ".term-fgx196{color:#ff0000}", ".term-bgx255{background:#eeeeee}")
}
