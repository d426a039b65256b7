package restapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildkite/go-buildkite/v3/buildkite"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/fault"
	"github.com/gpu-mode/kbgen/local/restapi"
)

func TestCreateBuildDecodes(t *testing.T) {
	w := newRig(t, twoSteps, nil)
	for number := 1; number <= 2; number++ {
		b, resp, err := w.client.Builds.Create("gpu-mode", "eval", &buildkite.CreateBuild{
			Commit: "HEAD", Branch: "main", Message: "hello",
			Env: map[string]string{"KERNELBOT_PAYLOAD": "eJw=<&>"}, MetaData: map[string]string{"run_id": "r1"}, PullRequestID: 7,
		})
		w.ok(err)
		url := w.url + pipe + "/builds/" + fmt.Sprint(number)
		page := w.url + "/gpu-mode/eval/builds/" + fmt.Sprint(number)
		if resp.StatusCode != http.StatusCreated || *b.Number != number || *b.URL != url || *b.WebURL != page {
			t.Errorf("Create = %d, number %d, %s, %s, want 201, %d, %s, %s", resp.StatusCode, *b.Number, *b.URL, *b.WebURL, number, url, page)
		}
		if b.Env["KERNELBOT_PAYLOAD"] != "eJw=<&>" || b.MetaData["run_id"] != "r1" || *b.PullRequest.ID != "7" {
			t.Errorf("Create kept env %v, meta_data %v, pull request %v", b.Env, b.MetaData, b.PullRequest)
		}
		if b.Creator.Name != "Ada" || b.Author.Name != "Ada" || *b.Source != "api" || b.FinishedAt != nil || !b.CreatedAt.Equal(*buildkite.NewTimestamp(w.clock.Now())) {
			t.Errorf("Create = creator %v, author %v, source %s, finished %v, created %v", b.Creator, b.Author, *b.Source, b.FinishedAt, b.CreatedAt)
		}
		if len(b.Jobs) != 3 || *b.Jobs[1].Type != "waiter" || *b.Jobs[2].State != "waiting" {
			t.Errorf("Create has %d jobs, want 3 with a waiter and a waiting one", len(b.Jobs))
		}
		if *b.Pipeline.Slug != "eval" || b.Pipeline.Provider.ID != "github" || b.Pipeline.Provider.Settings == nil {
			t.Errorf("Create has the pipeline %v", b.Pipeline)
		}
	}
}

func TestCreateBuildRefuses(t *testing.T) {
	w := newRig(t, oneStep, nil)
	field := func(name, code string) []engine.FieldError { return []engine.FieldError{{Field: name, Code: code}} }
	for _, tt := range []struct {
		name, body string
		status     int
		want       []engine.FieldError
	}{
		{"steps", `{"commit":"c","branch":"b","steps":[]}`, 422, field("steps", "unknown")},
		{"no commit", `{"branch":"b"}`, 422, field("commit", "missing")},
		{"empty branch", `{"commit":"c","branch":""}`, 422, field("branch", "missing")},
		{"null branch", `{"commit":"c","branch":null}`, 422, field("branch", "missing")},
		{"commit a number", `{"commit":1,"branch":"b"}`, 422, field("commit", "invalid")},
		{"Commit in capitals", `{"commit":"c","branch":"b","Commit":"d"}`, 422, field("Commit", "unknown")},
		{"env number", `{"commit":"c","branch":"b","env":{"A":1}}`, 422, field("env", "invalid")},
		{"env null", `{"commit":"c","branch":"b","env":{"A":null}}`, 422, field("env", "invalid")},
		{"meta_data bool", `{"commit":"c","branch":"b","meta_data":{"a":true}}`, 422, field("meta_data", "invalid")},
		{"meta_data too long", `{"commit":"c","branch":"b","meta_data":{"a":"` + strings.Repeat("x", 100_001) + `"}}`, 422, field("meta_data", "too_long")},
		{"pull_request_id text", `{"commit":"c","branch":"b","pull_request_id":"7"}`, 422, field("pull_request_id", "invalid")},
		{"all at once", `{"steps":1,"agents":2}`, 422, []engine.FieldError{{Field: "commit", Code: "missing"}, {Field: "branch", Code: "missing"}, {Field: "agents", Code: "unknown"}, {Field: "steps", Code: "unknown"}}},
		{"not JSON", `commit=c&branch=b`, 400, nil},
		{"an array", `[]`, 400, nil},
		{"too large", `{"commit":"` + strings.Repeat("x", 9<<20) + `"}`, 413, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := w.send("POST", pipe+"/builds", tt.body)
			var body struct {
				Message string
				Errors  []engine.FieldError
			}
			got.decode(t, &body)
			if got.status != tt.status || !slices.Equal(body.Errors, tt.want) || body.Message == "" {
				t.Errorf("create = %d %s, want %d %v", got.status, got.body, tt.status, tt.want)
			}
		})
	}
	if n := len(w.engine.Builds(engine.BuildFilter{})); n != 0 {
		t.Errorf("refused creates made %d builds", n)
	}
	w.want(404, "POST", orgURL+"/pipelines/none/builds", `{"commit":"c","branch":"b"}`)
	w.want(404, "POST", "/v2/organizations/other/pipelines/eval/builds", `{"commit":"c","branch":"b"}`)
}

func TestLenient(t *testing.T) {
	w := newRig(t, oneStep, func(o *restapi.Options) { o.Lenient = true })
	var b struct{ ID string }
	w.want(201, "POST", pipe+"/builds", `{"commit":"c","branch":"b","steps":[]}`).decode(t, &b)
	w.want(200, "GET", pipe+"/builds/"+b.ID, "")
}

func TestBuildByUUIDIsNotFound(t *testing.T) {
	w := newRig(t, oneStep, nil)
	b := w.build(engine.NewBuild{})
	w.want(404, "GET", pipe+"/builds/"+b.ID, "")
	w.want(404, "GET", pipe+"/builds/2", "")
	w.want(200, "GET", pipe+"/builds/1", "")
}

// TestListFilters has five builds, a minute apart: 1 passed, 2 failed,
// 3 canceled, 4 running, 5 scheduled.
func TestListFilters(t *testing.T) {
	w := newRig(t, oneStep, nil)
	start := w.clock.Now()
	other, err := w.engine.CreatePipeline(engine.Pipeline{Slug: "other", Configuration: oneStep})
	w.ok(err)
	a := w.agent("a")
	for i, branch := range []string{"main", "dev/1", "dev/2", "main", "main"} {
		b := w.build(engine.NewBuild{Branch: branch, Commit: fmt.Sprintf("c%d", i+1), Creator: engine.Person{ID: fmt.Sprint("u", i%2)}, MetaData: map[string]string{"run_id": fmt.Sprint("r", i+1), "gpu": "A"}})
		switch i {
		case 0:
			w.run(a, engine.Finish{})
		case 1:
			w.run(a, engine.Finish{ExitStatus: 1})
		case 2:
			_, err := w.engine.CancelBuild(b.ID)
			w.ok(err)
		case 3:
			w.take(a)
		}
		w.clock.advance(time.Minute)
	}
	_, err = w.engine.CreateBuild(other.Slug, engine.NewBuild{})
	w.ok(err)
	at := func(d time.Duration) string { return start.Add(d).Format(time.RFC3339Nano) }
	for query, want := range map[string][]int{
		"":                                  {5, 4, 3, 2, 1},
		"state=passed":                      {1},
		"state[]=running&state[]=passed":    {4, 1},
		"state=finished":                    {3, 2, 1},
		"state=skipped":                     {},
		"branch=main":                       {5, 4, 1},
		"branch[]=dev/1&branch[]=main":      {5, 4, 2, 1},
		"branch=dev*":                       {3, 2},
		"commit=c2":                         {2},
		"commit[]=c2&commit[]=c3":           {3, 2},
		"creator=u1":                        {4, 2},
		"created_from=" + at(3*time.Minute): {5, 4},
		"created_to=" + at(3*time.Minute):   {3, 2, 1},
		"finished_from=" + at(time.Minute):  {3, 2},
		"meta_data[run_id]=r2":              {2},
		"meta_data%5Brun_id%5D=r2&meta_data[gpu]=A": {2},
		"meta_data[run_id]=r2&meta_data[gpu]=B":     {},
		"meta_data[none]=":                          {},
		"per_page=2":                                {5, 4},
		"per_page=2&page=3":                         {1},
		"page=9":                                    {},
	} {
		var builds []struct{ Number int }
		w.want(200, "GET", pipe+"/builds?"+query, "").decode(t, &builds)
		got := []int{}
		for _, b := range builds {
			got = append(got, b.Number)
		}
		if !slices.Equal(got, want) {
			t.Errorf("builds?%s = %v, want %v", query, got, want)
		}
	}
	for _, path := range []string{orgURL + "/builds", "/v2/builds"} {
		var builds []struct{ Number int }
		w.want(200, "GET", path, "").decode(t, &builds)
		if len(builds) != 6 {
			t.Errorf("GET %s = %d builds, want those of both pipelines: 6", path, len(builds))
		}
	}
	for _, query := range []string{"state=done", "created_from=yesterday"} {
		w.want(422, "GET", pipe+"/builds?"+query, "")
	}
	builds, _, err := w.client.Builds.ListByPipeline("gpu-mode", "eval", &buildkite.BuildsListOptions{
		State: []string{"passed", "failed"}, Branch: []string{"main"}, CreatedFrom: start.Add(-time.Minute),
		MetaData: buildkite.MetaDataFilters{MetaData: map[string]string{"run_id": "r1"}},
	})
	if err != nil || len(builds) != 1 || *builds[0].Number != 1 {
		t.Errorf("ListByPipeline = %v, %v, want build 1", builds, err)
	}
}

func TestPaging(t *testing.T) {
	w := newRig(t, oneStep, nil)
	for range 65 {
		w.build(engine.NewBuild{})
	}
	var numbers []int
	opt := &buildkite.BuildsListOptions{}
	for pages := 0; ; pages++ {
		builds, resp, err := w.client.Builds.ListByPipeline("gpu-mode", "eval", opt)
		w.ok(err)
		for _, b := range builds {
			numbers = append(numbers, *b.Number)
		}
		if pages == 1 && (resp.PrevPage != 1 || resp.FirstPage != 1 || resp.LastPage != 3 || resp.NextPage != 3) {
			t.Errorf("page 2 links to next %d, prev %d, first %d, last %d, want 3, 1, 1, 3", resp.NextPage, resp.PrevPage, resp.FirstPage, resp.LastPage)
		}
		if resp.NextPage == 0 {
			break
		}
		opt.Page = resp.NextPage
	}
	if len(numbers) != 65 || numbers[0] != 65 || numbers[64] != 1 {
		t.Errorf("following next gave %d builds from %d to %d, want 65 from 65 to 1", len(numbers), numbers[0], numbers[len(numbers)-1])
	}
	got := w.want(200, "GET", pipe+"/builds?meta_data[x]=&per_page=200", "")
	if link := got.header.Get("Link"); link != "" {
		t.Errorf("the only page has Link %q, want none", link)
	}
	for range 40 {
		w.build(engine.NewBuild{})
	}
	got = w.want(200, "GET", pipe+"/builds?per_page=200&branch=m%2Ca%3Bin&branch=main", "")
	var builds []json.RawMessage
	got.decode(t, &builds)
	want := `<` + w.url + pipe + `/builds?branch=m%2Ca%3Bin&branch=main&page=2&per_page=100>; rel="next"`
	if link, _, _ := strings.Cut(got.header.Get("Link"), ", "); len(builds) != 100 || link != want {
		t.Errorf("%d builds, Link begins %q, want 100, %q", len(builds), link, want)
	}
	w.want(400, "GET", pipe+"/builds?page=1000", "")
	w.want(400, "GET", pipe+"/builds?page=101&per_page=100", "")
	w.want(200, "GET", pipe+"/builds?page=100&per_page=100", "")
}

func TestBuildFields(t *testing.T) {
	w := newRig(t, twoSteps, nil)
	a := w.agent("a")
	w.build(engine.NewBuild{})
	failed := w.run(a, engine.Finish{ExitStatus: 3})
	_, err := w.engine.RetryJob(failed)
	w.ok(err)
	type build struct {
		Jobs *[]struct {
			ID, Type, State string
			Retried         bool
		}
		Pipeline *struct{ Slug string }
		Counts   *struct {
			Total  int
			States map[string]int
		} `json:"job_state_counts"`
	}
	get := func(query string) (b build) {
		w.want(200, "GET", pipe+"/builds/1"+query, "").decode(t, &b)
		return b
	}
	b := get("")
	if len(*b.Jobs) != 3 || (*b.Jobs)[0].Retried || b.Pipeline == nil {
		t.Errorf("get = %d jobs, want the 3 current ones, and the pipeline", len(*b.Jobs))
	}
	if b.Counts.Total != 4 || b.Counts.States["failed"] != 1 || b.Counts.States["scheduled"] != 1 || b.Counts.States["waiting"] != 2 {
		t.Errorf("job_state_counts = %v, want 4 jobs: 1 failed, 1 scheduled, 2 waiting", b.Counts)
	}
	if b = get("?include_retried_jobs=true"); len(*b.Jobs) != 4 || !(*b.Jobs)[0].Retried || (*b.Jobs)[0].ID != failed {
		t.Errorf("get?include_retried_jobs = %v, want the failed attempt first of 4", *b.Jobs)
	}
	if b = get("?exclude_jobs=true&exclude_pipeline=true"); b.Jobs != nil || b.Pipeline != nil || b.Counts == nil {
		t.Errorf("get?exclude_* = jobs %v, pipeline %v, want neither, and the counts", b.Jobs, b.Pipeline)
	}
	if b = get("?job_states[]=scheduled"); len(*b.Jobs) != 1 || b.Counts.Total != 4 {
		t.Errorf("get?job_states[]=scheduled = %v, counts %v, want one job and all counted", *b.Jobs, b.Counts)
	}
	var list []build
	w.want(200, "GET", pipe+"/builds?exclude_jobs=true", "").decode(t, &list)
	if list[0].Jobs != nil || list[0].Pipeline == nil || list[0].Counts != nil {
		t.Errorf("list?exclude_jobs = %+v, want the pipeline only", list[0])
	}
}

func TestCancelRebuildRetry(t *testing.T) {
	w := newRig(t, oneStep, nil)
	w.build(engine.NewBuild{Env: map[string]string{"A": "1"}, MetaData: map[string]string{"run_id": "r"}})
	b, err := w.client.Builds.Cancel("gpu-mode", "eval", "1")
	if err != nil || *b.State != "canceled" || b.FinishedAt == nil {
		t.Errorf("Cancel = %v, %v, want canceled", b, err)
	}
	w.want(422, "PUT", pipe+"/builds/1/cancel", "")
	b, err = w.client.Builds.Rebuild("gpu-mode", "eval", "1")
	if err != nil || *b.Number != 2 || b.RebuiltFrom.Number != 1 || b.Env["A"] != "1" || len(b.MetaData) != 0 {
		t.Errorf("Rebuild = %v, %v, want build 2 from 1 with its env, without its meta_data", b, err)
	}
	a := w.agent("a")
	w.run(a, engine.Finish{ExitStatus: 1})
	w.want(400, "PUT", pipe+"/builds/2/retry_failed_jobs", `{"states":["lost"]}`)
	w.want(422, "PUT", pipe+"/builds/2/retry_failed_jobs", `{"states":["soft_failed"]}`)
	var retried struct {
		State string
		Count int `json:"retried_jobs_count"`
	}
	w.want(202, "PUT", pipe+"/builds/2/retry_failed_jobs", "").decode(t, &retried)
	if retried.State != "running" || retried.Count != 1 {
		t.Errorf("retry_failed_jobs = %+v, want a running build and 1 job", retried)
	}
}

// TestLostAnswer has a create whose answer is lost: the build is there, and
// found by its run id.
func TestLostAnswer(t *testing.T) {
	w := newRig(t, oneStep, nil)
	var faults fault.Injector
	_, err := faults.Add(fault.Rule{Method: "POST", Path: "/v2/*/builds", Count: 1, DropAfter: true})
	w.ok(err)
	api := restapi.New(w.engine, restapi.Options{Tokens: []restapi.Token{{Value: token}}})
	server := httptest.NewServer(faults.Wrap(api))
	defer server.Close()
	client, err := buildkite.NewOpts(buildkite.WithBaseURL(server.URL+"/"), buildkite.WithTokenAuth(token))
	w.ok(err)
	_, resp, err := client.Builds.Create("gpu-mode", "eval", &buildkite.CreateBuild{Commit: "HEAD", Branch: "main", MetaData: map[string]string{"run_id": "r-1"}})
	if err == nil || resp != nil {
		t.Fatalf("Create = %v, %v, want a transport error", resp, err)
	}
	found, _, err := client.Builds.ListByPipeline("gpu-mode", "eval", &buildkite.BuildsListOptions{MetaData: buildkite.MetaDataFilters{MetaData: map[string]string{"run_id": "r-1"}}})
	if err != nil || len(found) != 1 {
		t.Errorf("builds of the run = %v, %v, want the one created", found, err)
	}
}
