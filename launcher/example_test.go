package launcher_test

import (
	"context"
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema"
)

// One submission, from payload to verdict. In earnest, BaseURL is left out.
func ExampleClient_Submit() {
	server := httptest.NewServer(buildkite())
	defer server.Close()
	client, err := launcher.New(launcher.Options{BaseURL: server.URL, Token: "bkua_secret", Org: "gpu-mode", Pipeline: "kernelbot"})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := client.Submit(context.Background(), launcher.Submission{
		Payload: &schema.Payload{
			Main: "eval.py", Lang: schema.LangPython, Mode: schema.ModeTest,
			Sources: schema.Files{{Name: "eval.py", Text: "…"}, {Name: "submission.py", Text: "…"}},
		},
		GPU: "CPU_BK", Queue: "cpu",
	})
	if err != nil {
		fmt.Println(err) // no verdict: the build left no result, or took too long, ...
		return
	}
	fmt.Printf("build %d: %s\n", report.Build, report.Result.Outcome.Name)
	// Output: build 7: passed
}

// A service: the run id is stored before anything is sent. After a restart it
// calls Create again, with the time of the last attempt: that finds the build, or
// makes it.
func ExampleClient_Create() {
	server := httptest.NewServer(buildkite())
	defer server.Close()
	client, err := launcher.New(launcher.Options{
		BaseURL: server.URL, Token: "bkua_secret", Org: "gpu-mode", Pipeline: "kernelbot", Installation: "backend-1",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background() // its end detaches: the build goes on
	run, err := client.Create(ctx, launcher.Submission{
		RunID: launcher.NewRunID("4711", "CPU_BK"),
		Payload: &schema.Payload{
			Main: "eval.py", Lang: schema.LangPython, Mode: schema.ModeTest,
			Sources: schema.Files{{Name: "eval.py", Text: "…"}, {Name: "submission.py", Text: "…"}},
		},
		GPU: "CPU_BK", Queue: "cpu", User: "ada",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := client.Collect(ctx, run)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("build %d: %s\n", run.Build, report.Result.Outcome.Name)
	// Output: build 7: passed
}

// buildkite is an API whose only build has passed.
func buildkite() http.Handler {
	const build = "/v2/organizations/gpu-mode/pipelines/kernelbot/builds/7"
	var result []byte
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) { json.NewEncoder(w).Encode(v) }
	mux.HandleFunc("POST /v2/organizations/gpu-mode/pipelines/kernelbot/builds", func(w http.ResponseWriter, r *http.Request) {
		var made struct{ Env map[string]string }
		json.NewDecoder(r.Body).Decode(&made)
		passed := &schema.Result{Success: true, RunID: made.Env[schema.EnvRunID], Outcome: schema.NewOutcome(schema.OutcomePassed, ""),
			Evidence: schema.Evidence{GPUType: made.Env[schema.EnvGPU], Queue: made.Env[schema.EnvQueue]}}
		result, _ = passed.Encode()
		w.WriteHeader(http.StatusCreated)
		answer(w, map[string]any{"number": 7, "state": "scheduled"})
	})
	mux.HandleFunc("GET "+build, func(w http.ResponseWriter, r *http.Request) {
		answer(w, map[string]any{"number": 7, "state": "passed", "jobs": []any{}})
	})
	mux.HandleFunc("GET "+build+"/artifacts", func(w http.ResponseWriter, r *http.Request) {
		answer(w, []any{map[string]any{
			"id": "a1", "state": "finished", "path": "result.json", "filename": "result.json", "file_size": len(result),
			"sha1sum": fmt.Sprintf("%x", sha1.Sum(result)), "download_url": "http://" + r.Host + build + "/artifacts/a1/download",
		}})
	})
	mux.HandleFunc("GET "+build+"/artifacts/a1/download", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/store", http.StatusFound) // as a rule to another host
	})
	mux.HandleFunc("GET /store", func(w http.ResponseWriter, r *http.Request) { w.Write(result) })
	return mux
}
