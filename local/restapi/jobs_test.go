package restapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/buildkite/go-buildkite/v3/buildkite"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/restapi"
)

func TestJobShape(t *testing.T) {
	w := newRig(t, twoSteps, nil)
	b := w.build(engine.NewBuild{})
	get := func(path string) (plain map[string]any, typed buildkite.Job) {
		got := w.want(200, "GET", path, "")
		got.decode(t, &plain)
		got.decode(t, &typed)
		return plain, typed
	}
	path := pipe + "/builds/1/jobs/" + b.Jobs[0].ID
	before, _ := get(path)
	for _, name := range []string{"exit_status", "signal", "signal_reason", "agent", "started_at", "finished_at", "expired_at", "retried_in_job_id", "retry_source", "matrix", "parallel_group_index"} {
		if value, ok := before[name]; !ok || value != nil {
			t.Errorf("a scheduled job has %s = %v, %t, want null", name, value, ok)
		}
	}
	if before["state"] != "scheduled" || before["name"] != "First" || before["artifact_paths"] != "a/*;b" || before["log_url"] != w.url+path+"/log" {
		t.Errorf("job = %v", before)
	}
	a := w.agent("a")
	w.take(a)
	w.ok(w.engine.LoseAgent(a.ID))
	after, typed := get(orgURL + "/jobs/" + b.Jobs[0].ID)
	if *typed.State != "failed" || *typed.ExitStatus != -1 || typed.FinishedAt == nil || *typed.Agent.Name != "a" || typed.AgentQueryRules[0] != "queue=cpu" {
		t.Errorf("a lost job = %v", after)
	}
	if at := after["started_at"]; at != "2026-03-01T12:00:00.250Z" {
		t.Errorf("started_at = %v, want milliseconds in UTC", at)
	}
	waiter, _ := get(orgURL + "/jobs/" + b.Jobs[1].ID)
	if waiter["type"] != "waiter" || waiter["command"] != nil || waiter["log_url"] != nil || waiter["state"] != "waiting_failed" {
		t.Errorf("waiter = %v, want no command, no log", waiter)
	}
	other := w.build(engine.NewBuild{})
	for _, path := range []string{pipe + "/builds/2/jobs/" + b.Jobs[0].ID, pipe + "/builds/1/jobs/" + other.Jobs[0].ID, orgURL + "/jobs/none"} {
		if got := w.want(404, "GET", path, ""); !strings.Contains(got.body, "No job found") {
			t.Errorf("GET %s = %s, want No job found", path, got.body)
		}
	}
}

func TestRetryJob(t *testing.T) {
	w := newRig(t, oneStep, nil)
	b := w.build(engine.NewBuild{})
	a := w.agent("a")
	id := w.run(a, engine.Finish{ExitStatus: 2})
	job, _, err := w.client.Jobs.RetryJob("gpu-mode", "eval", "1", id)
	if err != nil || *job.ID == id || *job.State != "scheduled" || job.RetriesCount != 1 || job.RetrySource.JobID != id || *job.RetryType != "manual" {
		t.Fatalf("RetryJob = %v, %v, want a new scheduled job", job, err)
	}
	w.want(400, "PUT", pipe+"/builds/1/jobs/"+id+"/retry", "")
	w.want(400, "PUT", orgURL+"/jobs/"+*job.ID+"/retry", "")
	_, err = w.engine.CancelBuild(b.ID)
	w.ok(err)
	w.want(422, "PUT", orgURL+"/jobs/"+*job.ID+"/retry", "")
}

func TestReprioritizeAndUnblock(t *testing.T) {
	w := newRig(t, oneStep, nil)
	path := orgURL + "/jobs/" + w.build(engine.NewBuild{}).Jobs[0].ID
	var job buildkite.Job
	w.want(200, "PUT", path+"/reprioritize", `{"priority":-5}`).decode(t, &job)
	if *job.Priority.Number != -5 {
		t.Errorf("priority = %d, want -5", *job.Priority.Number)
	}
	for _, body := range []string{``, `{"priority":"5"}`, `{"priority":1.5}`} {
		w.want(400, "PUT", path+"/reprioritize", body)
	}
	w.want(400, "PUT", path+"/unblock", `{}`)
}

// A block step is answered by its job, as the service's clients do it.
func TestUnblock(t *testing.T) {
	w := newRig(t, `steps: [{block: "Go?", fields: [{text: Name, key: name}, {select: S, key: s, multiple: true, required: false, options: [{value: a}, {value: b}]}]}, {trigger: eval, async: true, if: "false"}]`, nil)
	b := w.build(engine.NewBuild{})
	path := orgURL + "/jobs/" + b.Jobs[0].ID
	var build struct {
		State   string
		Blocked bool
		Jobs    []struct {
			Type, State string
			Unblockable bool
		}
	}
	w.want(200, "GET", pipe+"/builds/1", "").decode(t, &build)
	if !build.Blocked || build.State != "passed" || build.Jobs[0].Type != "manual" || build.Jobs[0].State != "blocked" || !build.Jobs[0].Unblockable {
		t.Errorf("a blocked build is shown as %+v", build)
	}
	if got := w.want(200, "GET", pipe+"/builds?state=blocked", ""); !strings.Contains(got.body, b.ID) {
		t.Errorf("state=blocked lists %s", got.body)
	}
	for body, status := range map[string]int{
		`{}`: 422, `{"fields": {"name": 7}}`: 422, `{"fields": {"name": "x", "s": ["a", 1]}}`: 422, `{"fields": {"name": "x", "s": ["c"]}}`: 422,
		`{"fields": "x"}`: 422, `{"unblocker": "somebody", "fields": {"name": "x"}}`: 422, `{"field": {}}`: 422, `[]`: 400,
	} {
		w.want(status, "PUT", path+"/unblock", body)
	}
	got := w.want(200, "PUT", path+"/unblock", `{"fields": {"name": "x", "s": ["a", "b"]}}`)
	if !strings.Contains(got.body, `"state":"unblocked"`) || !strings.Contains(got.body, `"unblocked_by":{`) {
		t.Errorf("unblock answers %s", got.body)
	}
	w.want(422, "PUT", path+"/unblock", `{"fields": {"name": "x"}}`)
	w.want(200, "GET", pipe+"/builds/1", "").decode(t, &build)
	if end, _ := w.engine.BuildByID(b.ID); build.Blocked || end.State != engine.BuildPassed || end.MetaData["s"] != "a\nb" {
		t.Errorf("in the end the build is %+v, meta-data %v", build, end.MetaData)
	}
}

func TestJobEnv(t *testing.T) {
	w := newRig(t, oneStep, nil)
	id := w.build(engine.NewBuild{Env: map[string]string{"KERNELBOT_GPU": "CPU_BK"}}).Jobs[0].ID
	env, _, err := w.client.Jobs.GetJobEnvironmentVariables("gpu-mode", "eval", "1", id)
	w.ok(err)
	if got := *env.EnvironmentVariables; got["KERNELBOT_GPU"] != "CPU_BK" || got["BUILDKITE_JOB_ID"] != id {
		t.Errorf("env = %v", got)
	}
}

func TestListJobsByCursor(t *testing.T) {
	w := newRig(t, `steps: [{command: "x", parallelism: 7, agents: {queue: "cpu"}}]`, nil)
	b := w.build(engine.NewBuild{})
	first := w.run(w.agent("a"), engine.Finish{ExitStatus: 1})
	next, err := w.engine.RetryJob(first)
	w.ok(err)
	type page struct {
		Items []buildkite.Job
		Links map[string]string
	}
	get := func(url string) (p page) {
		w.want(200, "GET", strings.TrimPrefix(url, w.url), "").decode(t, &p)
		return p
	}
	jobs := pipe + "/builds/1/jobs"
	var ids []string
	p := get(jobs + "?per_page=3")
	for {
		for _, j := range p.Items {
			ids = append(ids, *j.ID)
		}
		if p.Links["next"] == "" {
			break
		}
		p = get(p.Links["next"])
	}
	if len(ids) != 8 || ids[0] != first || ids[1] != next.ID || ids[2] != b.Jobs[1].ID {
		t.Errorf("following next gave %v, want all 8 attempts in order", ids)
	}
	if back := get(p.Links["prev"]); *back.Items[0].ID != ids[3] || len(back.Items) != 3 {
		t.Errorf("prev of the last page begins with %s of %d, want %s of 3", *back.Items[0].ID, len(back.Items), ids[3])
	}
	for query, want := range map[string]int{"": 8, "?include_retried_jobs=false": 7, "?state[]=failed": 1, "?state=failed&include_retried_jobs=false": 0, "?state[]=failed&state[]=scheduled": 8} {
		if got := get(jobs + query); len(got.Items) != want || got.Links["next"] != "" {
			t.Errorf("jobs%s = %d items, next %q, want %d", query, len(got.Items), got.Links["next"], want)
		}
	}
	// A cursor stays good when its job has left the filter.
	if got := get(jobs + "?state[]=failed&after=" + ids[7]); len(got.Items) != 0 {
		t.Errorf("jobs?state[]=failed after the last = %d items, want 0", len(got.Items))
	}
	for _, query := range []string{"?state=done", "?per_page=x", "?per_page=0", "?after=none", "?after=" + ids[0] + "&before=" + ids[1]} {
		w.want(400, "GET", jobs+query, "")
	}
}

func TestLog(t *testing.T) {
	w := newRig(t, oneStep, nil)
	empty := orgURL + "/jobs/" + w.build(engine.NewBuild{}).Jobs[0].ID + "/log"
	w.want(416, "GET", empty, "", "Accept", "text/plain", "Range", "bytes=-5")
	if got := w.want(200, "GET", empty+".txt", ""); got.body != "" {
		t.Errorf("an empty log = %q", got.body)
	}
	a := w.agent("a")
	id := w.take(a)
	text := "\x1b[31mred\x1b[0m <b> ü\n\xff" + strings.Repeat("é", 40_000) // runes lie across read boundaries
	w.ok(w.engine.WriteLog(id, 0, []byte(text)))
	w.ok(w.engine.WriteLog(id, int64(len(text))+10, []byte("behind a gap")))
	path := pipe + "/builds/1/jobs/" + id + "/log"

	log, _, err := w.client.Jobs.GetJobLog("gpu-mode", "eval", "1", id)
	w.ok(err)
	if want := strings.ToValidUTF8(text, "\ufffd"); *log.Content != want || *log.Size != len(text) || *log.URL != w.url+path {
		t.Errorf("JSON log of %d bytes, size %d, url %s, want %d bytes, size %d", len(*log.Content), *log.Size, *log.URL, len(want), len(text))
	}
	for _, got := range []reply{w.want(200, "GET", path+".txt", ""), w.want(200, "GET", path, "", "Accept", "text/plain")} {
		if got.body != text || got.header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("plain log = %d bytes of %s, want %d", len(got.body), got.header.Get("Content-Type"), len(text))
		}
	}
	for _, got := range []reply{w.want(200, "GET", path+".html", ""), w.want(200, "GET", path, "", "Accept", "text/html")} {
		if !strings.Contains(got.body, "&lt;b&gt;") || strings.Contains(got.body, "\x1b") {
			t.Errorf("HTML log begins %.80q, want it escaped and without ANSI codes", got.body)
		}
	}
	if got := w.want(200, "HEAD", path, ""); got.header.Get("Content-Length") != fmt.Sprint(len(text)) || got.body != "" {
		t.Errorf("HEAD = %v, want Content-Length %d", got.header, len(text))
	}
	got := w.want(206, "GET", path, "", "Accept", "text/plain", "Range", "bytes=-4")
	if want := fmt.Sprintf("bytes %d-%d/%d", len(text)-4, len(text)-1, len(text)); got.body != "éé" || got.header.Get("Content-Range") != want {
		t.Errorf("tail = %q, %s, want éé, %s", got.body, got.header.Get("Content-Range"), want)
	}
	if got := w.want(206, "GET", path+".txt", "", "Range", "bytes=-99999999"); got.body != text {
		t.Errorf("a tail longer than the log has %d bytes, want %d", len(got.body), len(text))
	}
	for _, spec := range []string{"bytes=0-4", "bytes=-0", "bytes=-1,-2", "lines=-1", "bytes=4-"} {
		w.want(400, "GET", path, "", "Accept", "text/plain", "Range", spec)
	}
	w.want(400, "GET", path, "", "Range", "bytes=-4")
}

func TestArtifacts(t *testing.T) {
	w := newRig(t, oneStep, nil)
	w.build(engine.NewBuild{})
	id := w.take(w.agent("a"))
	files, err := w.engine.AddArtifacts(id, []engine.NewArtifact{
		{Path: "result.json", ContentType: "application/json", Size: 12, SHA1: "0a"}, {Path: "out/profile.json", Size: 1}, {Path: "late.txt"},
	})
	w.ok(err)
	for _, f := range files[:2] {
		w.ok(w.engine.SetArtifactState(id, f.ID, engine.ArtifactFinished))
	}
	all, _, err := w.client.Artifacts.ListByBuild("gpu-mode", "eval", "1", nil)
	w.ok(err)
	url := w.url + pipe + "/builds/1/jobs/" + id + "/artifacts/" + files[0].ID
	if a := all[0]; len(all) != 3 || *a.JobID != id || *a.URL != url || *a.DownloadURL != url+"/download" || *a.FileSize != 12 || *a.SHA1 != "0a" || *a.Filename != "result.json" || *a.Dirname != "." {
		t.Errorf("ListByBuild = %d artifacts, first %+v", len(all), all[0])
	}
	ofJob, _, err := w.client.Artifacts.ListByJob("gpu-mode", "eval", "1", id, nil)
	if err != nil || len(ofJob) != 3 {
		t.Errorf("ListByJob = %d, %v, want 3", len(ofJob), err)
	}
	for query, want := range map[string]int{
		"path=result.json&state=finished&per_page=100": 1, "path=*.json": 2, "path=*/*": 1, "path=result": 0, "state=new": 1, "state=deleted": 0, "per_page=2": 2,
	} {
		var got []buildkite.Artifact
		w.want(200, "GET", pipe+"/builds/1/artifacts?"+query, "").decode(t, &got)
		if len(got) != want {
			t.Errorf("artifacts?%s = %d, want %d", query, len(got), want)
		}
	}
	w.want(422, "GET", pipe+"/builds/1/artifacts?state=done", "")

	got := w.want(302, "GET", strings.TrimPrefix(url, w.url)+"/download", "")
	link := "http://blob.example/" + files[0].ID
	if got.header.Get("Location") != link || got.body != `{"url":"`+link+`"}` {
		t.Errorf("download = %s %s, want %s in both", got.header.Get("Location"), got.body, link)
	}
	w.want(404, "GET", orgURL+"/jobs/"+id+"/artifacts/"+files[2].ID+"/download", "")
	w.want(200, "GET", orgURL+"/jobs/"+id+"/artifacts/"+files[2].ID, "")
	w.want(404, "GET", orgURL+"/jobs/"+id+"/artifacts/none", "")
	w.want(204, "DELETE", orgURL+"/jobs/"+id+"/artifacts/"+files[0].ID, "")
	w.want(404, "GET", strings.TrimPrefix(url, w.url)+"/download", "")
	w.build(engine.NewBuild{})
	w.want(404, "GET", strings.Replace(strings.TrimPrefix(url, w.url), "builds/1", "builds/2", 1), "")
}

func TestDownloadWithoutBlob(t *testing.T) {
	w := newRig(t, oneStep, func(o *restapi.Options) { o.Blob = nil })
	w.build(engine.NewBuild{})
	id := w.take(w.agent("a"))
	files, err := w.engine.AddArtifacts(id, []engine.NewArtifact{{Path: "x"}})
	w.ok(err)
	w.ok(w.engine.SetArtifactState(id, files[0].ID, engine.ArtifactFinished))
	w.want(422, "GET", orgURL+"/jobs/"+id+"/artifacts/"+files[0].ID+"/download", "")
}

func TestAnnotations(t *testing.T) {
	w := newRig(t, oneStep, nil)
	b := w.build(engine.NewBuild{})
	text := func(s string) *string { return &s }
	a, resp, err := w.client.Annotations.Create("gpu-mode", "eval", "1", &buildkite.AnnotationCreate{Body: text("<b>"), Context: text("c"), Style: text("info")})
	if err != nil || resp.StatusCode != 201 || *a.BodyHTML != "<p>&lt;b&gt;</p>\n" || *a.Context != "c" {
		t.Fatalf("Create = %v, %v", a, err)
	}
	_, err = w.engine.Annotate(b.ID, engine.Annotation{Context: "job", Body: "x", JobID: b.Jobs[0].ID}, false)
	w.ok(err)
	all, _, err := w.client.Annotations.ListByBuild("gpu-mode", "eval", "1", nil)
	if err != nil || len(all) != 2 {
		t.Errorf("ListByBuild = %v, %v, want 2", all, err)
	}
	for _, path := range []string{pipe + "/builds/1/jobs/", orgURL + "/jobs/"} {
		var ofJob []struct{ Context string }
		w.want(200, "GET", path+b.Jobs[0].ID+"/annotations", "").decode(t, &ofJob)
		if len(ofJob) != 1 || ofJob[0].Context != "job" {
			t.Errorf("annotations of the job = %v, want one", ofJob)
		}
	}
	for _, body := range []string{`{}`, `{"body":"x","style":"loud"}`, `{"body":"x","priority":11}`, `{"body":"x","colour":"red"}`} {
		w.want(422, "POST", pipe+"/builds/1/annotations", body)
	}
	w.want(404, "DELETE", pipe+"/builds/1/annotations/c", "")
	w.want(204, "DELETE", pipe+"/builds/1/annotations/"+*a.ID, "")
	w.want(422, "POST", orgURL+"/jobs/"+b.Jobs[0].ID+"/annotations", `{"body":"x"}`)
	var left []json.RawMessage
	w.want(200, "GET", pipe+"/builds/1/annotations", "").decode(t, &left)
	if len(left) != 1 {
		t.Errorf("%d annotations are left, want 1", len(left))
	}
}
