package popcorn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const goodPoll = `{"id": 5, "leaderboard_id": 1, "leaderboard_name": "sort", "file_name": "a.py", "user_id": "7", "submission_time": "2026-07-01T10:00:00.123456+00:00", "done": true, "code": "x",
	"runs": [{"start_time": "2026-07-01T10:00:00+00:00", "end_time": "2026-07-01T10:00:01+00:00", "mode": "leaderboard", "secret": false, "runner": "H100", "score": "0.001", "passed": true}],
	"job": {"status": "succeeded", "error": null, "last_heartbeat": null}, "runner_queue": {"runner": "Buildkite", "gpu": "H100", "queued_jobs": 2, "running_jobs": null, "available_runners": null, "status": "available", "error": null}}`

const goodResult = `{"status": "success", "reports": ["fine"], "results": [{"success": true, "error": "", "system": {}, "runs": {"test": {"start": "x", "end": "y", "compilation": null, "profile": null,
	"run": {"success": true, "passed": true, "command": "", "stdout": "", "stderr": "", "exit_code": 0, "duration": 0.1, "result": {}}}}}]}`

// site answers every request with one text.
func site(t *testing.T, status int, kind, text string) *Client {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return &Client{URL: s.URL}
}

// without calls do with every member of a JSON object taken away or made a list, one
// at a time, at every depth.
func without(t *testing.T, text string, do func(path, changed string)) {
	t.Helper()
	var whole any
	if err := json.Unmarshal([]byte(text), &whole); err != nil {
		t.Fatal(err)
	}
	print := func() string {
		changed, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		return string(changed)
	}
	var walk func(v any, path string)
	walk = func(v any, path string) {
		switch v := v.(type) {
		case map[string]any:
			for name, old := range v {
				delete(v, name)
				do(path+"."+name+" missing", print())
				v[name] = []int{1}
				do(path+"."+name+" a list", print())
				v[name] = old
				walk(old, path+"."+name)
			}
		case []any:
			for i, item := range v {
				walk(item, fmt.Sprintf("%s[%d]", path, i))
			}
		}
	}
	walk(whole, "")
}

// Every member that the client reads has to be there and of its type.
func TestPollIsHeldToItsShape(t *testing.T) {
	ctx := context.Background()
	s, err := site(t, 200, "application/json", strings.Replace(goodPoll, `"code"`, `"unknown": {}, "code"`, 1)).Submission(ctx, 5)
	if err != nil || *s.Runs[0].Score != 0.001 || *s.Queue.Jobs != 2 || !s.Done {
		t.Fatalf("a good poll: %+v, %v", s, err)
	}
	tried := 0
	without(t, goodPoll, func(path, changed string) {
		tried++
		if _, err := site(t, 200, "application/json", changed).Submission(ctx, 5); err == nil {
			t.Errorf("a poll with %s is taken", path)
		}
	})
	if tried < 50 {
		t.Errorf("%d changes were tried", tried)
	}
	for name, changed := range map[string]string{
		"a secret run with its result": strings.Replace(goodPoll, `"secret": false`, `"secret": true, "result": {}`, 1),
		"a time without an offset":     strings.Replace(goodPoll, "00.123456+00:00", "00", 1),
		"another submission":           strings.Replace(goodPoll, `"id": 5`, `"id": 6`, 1),
		"half an id":                   strings.Replace(goodPoll, `"id": 5`, `"id": 5.5`, 1),
		"no JSON":                      "<html>",
	} {
		if _, err := site(t, 200, "application/json", changed).Submission(ctx, 5); err == nil {
			t.Errorf("a poll with %s is taken", name)
		}
	}
}

func TestStreamIsHeldToItsShape(t *testing.T) {
	ctx := context.Background()
	stream := func(events string) (*Result, error) {
		return site(t, 200, "text/event-stream", events).Stream(ctx, "sort", "H100", "test", "a.py", []byte("x"))
	}
	const status = "event: status\ndata: {\"status\":\"processing\",\"elapsed_time\":0.0}\n\n"
	event := func(result string) string {
		return status + "event: result\ndata: " + strings.ReplaceAll(result, "\n", "") + "\n\n"
	}
	if r, err := stream(": hello\n\n" + event(goodResult)); err != nil || r.Statuses != 1 || len(r.Results) != 1 || r.Reports[0] != "fine" {
		t.Fatalf("a good stream: %+v, %v", r, err)
	}
	without(t, goodResult, func(path, changed string) {
		if strings.HasPrefix(path, ".results[0].runs.test missing") || strings.HasPrefix(path, ".results[0].runs.test.run.") && strings.HasSuffix(path, "a list") {
			return // a phase more or less, and types that Kernelbot does not look at
		}
		if _, err := stream(event(changed)); err == nil {
			t.Errorf("a stream with %s is taken", path)
		}
	})
	for name, events := range map[string]string{
		"no end":              status,
		"another event":       "event: hello\ndata: {}\n\n",
		"two lines of data":   "event: result\ndata: {\ndata: }\n\n",
		"a member too many":   event(strings.Replace(goodResult, `"exit_code"`, `"more": 1, "exit_code"`, 1)),
		"a status in words":   "event: status\ndata: {\"status\":\"processing\",\"elapsed_time\":\"0\"}\n\n" + event(goodResult),
		"no JSON in an event": "event: result\ndata: x\n\n",
	} {
		if _, err := stream(events); err == nil {
			t.Errorf("a stream with %s is taken", name)
		}
	}
	var ended *Ended
	if _, err := stream("event: error\ndata: {\"status\":\"error\",\"detail\":\"no\"}\n\n"); !errors.As(err, &ended) || ended.Detail != "no" {
		t.Errorf("an error event: %v", err)
	}
	if _, err := site(t, 200, "application/json", "{}").Stream(ctx, "sort", "H100", "test", "a.py", nil); err == nil {
		t.Error("JSON in place of a stream is taken")
	}
}

// A refusal needs something that the client can print.
func TestRefusals(t *testing.T) {
	ctx := context.Background()
	for body, want := range map[string]string{`{"detail": "no such board"}`: "no such board", `{"detail": [{"msg": "x"}]}`: `{"detail": [{"msg": "x"}]}`, "Internal Server Error": "Internal Server Error"} {
		var refusal *Refusal
		if _, err := site(t, 400, "text/plain", body).Submit(ctx, "sort", "H100", "test", "a.py", nil); !errors.As(err, &refusal) || refusal.Detail != want || refusal.Status != 400 {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
	var refusal *Refusal
	if _, err := site(t, 400, "application/json", `{"detail": ""}`).Submit(ctx, "sort", "H100", "test", "a.py", nil); err == nil || errors.As(err, &refusal) {
		t.Errorf("a refusal without words: %v, want a fault of the server's", err)
	}
	if _, err := site(t, 200, "application/json", `{"details": {"id": 1, "job_status_id": 1}, "runner_queue": null, "status": "accepted"}`).Submit(ctx, "sort", "H100", "test", "a.py", nil); err == nil {
		t.Error("200 in place of 202 is taken")
	}
}

// What goes out is what the client sends: lower case where it lowers, one part without
// a content type.
func TestUploadIsTheClients(t *testing.T) {
	var got string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.Path + "\n" + r.Header.Get("X-Popcorn-Cli-Id") + "\n" + string(body)
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "no")
	}))
	defer s.Close()
	c := &Client{URL: s.URL, CLIID: "id"}
	c.Submit(context.Background(), "Sort", "B200_BK", "LEADERBOARD", "my kernel.py", []byte("x = 1"))
	if !strings.HasPrefix(got, "POST /submission/sort/B200_BK/leaderboard\nid\n--") || strings.Contains(got, "Content-Type") || !strings.Contains(got, `form-data; name="file"; filename="my kernel.py"`+"\r\n\r\nx = 1\r\n") {
		t.Errorf("it sent\n%s", got)
	}
}
