package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/verdict"
)

const eventStream = "text/event-stream"

type stream struct{ *httpx.Stream }

// streamTime is how long a client may take to read one event.
const streamTime = 30 * time.Second

// takeStream counts one more stream of the client, until end is called.
//
// Errors: a client that has too many of them.
func (c *call) takeStream() (end func(), err error) {
	end, err = c.api.o.Streams.Take(c.ctx(), c.client())
	switch {
	case errors.Is(err, httpx.ErrClientFull):
		return nil, &slower{time.Minute}
	case err != nil:
		c.header("Retry-After", "60")
		return nil, &refusal{http.StatusServiceUnavailable, "too many streams are open at the moment; ask for the submission from time to time"}
	}
	return end, nil
}

// stream begins to answer with events.
func (c *call) stream() *stream { return &stream{httpx.NewStream(c.w, c.Request)} }

// send writes one event on one line of data, as popcorn-cli reads it.
func (s *stream) send(event string, data any) error {
	body, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return s.Send(fmt.Sprintf("event: %s\ndata: %s\n\n", event, body), streamTime)
}

// alive writes a comment, which readers pass over.
func (s *stream) alive() error { return s.Send(": alive\n\n", streamTime) }

// StreamStatus, StreamResult and StreamError are the data of Kernelbot's events.
type streamStatusJSON struct {
	Status      string  `json:"status"`       // processing
	ElapsedTime float64 `json:"elapsed_time"` // seconds
}

type streamResultJSON struct {
	Status  string            `json:"status"`  // success
	Results []json.RawMessage `json:"results"` // result.json of each evaluation, the public ones first
	Reports []string          `json:"reports"` // the same for people
}

type streamErrorJSON struct {
	Status string `json:"status"` // error
	Detail string `json:"detail"`
}

// submitAndWait submits, and sends events until there is a result. What is refused
// is answered as by the other route. The submission is the server's from then on: a
// client that leaves loses the events alone.
func submitAndWait(c *call) (any, error) {
	end, err := c.takeStream()
	if err != nil {
		return nil, err
	}
	defer end()
	receipt, err := handIn(c, c.PathValue)
	if err != nil {
		return nil, err
	}
	s := c.stream()
	begun := time.Now()
	beat := func() error {
		return s.send("status", streamStatusJSON{"processing", time.Since(begun).Round(time.Millisecond).Seconds()})
	}
	if beat() != nil {
		return nil, nil
	}
	err = c.follow(receipt.ID, beat, func(sub *backend.Submission) (bool, error) {
		if !sub.Done {
			return false, nil
		}
		return true, s.send("result", c.result(sub))
	})
	if err != nil && c.ctx().Err() == nil {
		s.send("error", streamErrorJSON{"error", fmt.Sprintf("%v; submission %d goes on, ask for it later", err, receipt.ID)})
	}
	return nil, nil
}

// errStopping ends streams.
var errStopping = &refusal{http.StatusServiceUnavailable, "this server is about to restart"}

// lookAgain is how often a stream looks for itself: signals may get lost.
const lookAgain = 5 * time.Second

// follow shows a submission whenever it changed, until show has seen enough or the
// client leaves. beat is called now and then.
func (c *call) follow(id int64, beat func() error, show func(*backend.Submission) (enough bool, err error)) error {
	changed, stop := c.back().Watch(store.Signal{Kind: store.SignalSubmission, ID: strconv.FormatInt(id, 10)})
	defer stop()
	ticker := time.NewTicker(min(lookAgain, c.api.o.Beat))
	defer ticker.Stop()
	beaten := time.Now()
	for {
		ctx, cancel := context.WithTimeout(c.ctx(), httpx.MaxTime)
		sub, err := c.back().Submission(ctx, c.viewer(), id)
		cancel()
		if err != nil {
			return err
		}
		if enough, err := show(sub); enough || err != nil {
			return err
		}
		select {
		case <-changed:
		case now := <-ticker.C:
			if now.Sub(beaten) < c.api.o.Beat-lookAgain/2 {
				continue
			}
			if beaten = now; beat() != nil {
				return nil // the client has left
			}
		case <-c.api.o.Stopping:
			return errStopping
		case <-c.ctx().Done():
			return c.ctx().Err()
		}
	}
}

// result is what Kernelbot sends at the end.
func (c *call) result(s *backend.Submission) streamResultJSON {
	r := streamResultJSON{Status: "success", Results: []json.RawMessage{}, Reports: []string{}}
	ranking := c.rankingBy(s.Board)
	for _, rep := range s.Reports {
		var compact bytes.Buffer
		if json.Compact(&compact, rep.Raw) != nil {
			continue
		}
		r.Results = append(r.Results, compact.Bytes())
		r.Reports = append(r.Reports, report(rep.GPU, s.Mode, rep.Result, ranking))
	}
	if len(s.Reports) == 0 { // nothing came of the evaluation
		failed := &schema.Result{Error: s.Job.Error}
		r.Results = append(r.Results, encode(failed))
		r.Reports = append(r.Reports, report("", s.Mode, failed, ""))
	}
	for _, secret := range secretResults(s.Runs) {
		r.Results = append(r.Results, encode(&secret.Result))
		r.Reports = append(r.Reports, report(secret.gpu+" (secret)", s.Mode, &secret.Result, ""))
	}
	return r
}

func encode(r *schema.Result) json.RawMessage {
	var compact bytes.Buffer
	body, err := r.Encode()
	if err == nil {
		err = json.Compact(&compact, body)
	}
	if err != nil {
		panic(err) // of our own making
	}
	return compact.Bytes()
}

// A secretResult is what may be seen of the secret runs on a GPU type: that they
// happened and whether they passed.
type secretResult struct {
	gpu string
	schema.Result
}

func secretResults(runs []store.PolledRun) (results []secretResult) {
	for _, run := range runs {
		if !run.Secret {
			continue
		}
		at := slices.IndexFunc(results, func(r secretResult) bool { return r.gpu == run.Runner })
		if at < 0 {
			at = len(results)
			results = append(results, secretResult{run.Runner, schema.Result{Success: true}})
		}
		check := "fail"
		if run.Passed {
			check = "pass"
		}
		results[at].Runs = append(results[at].Runs, schema.Run{Name: run.Mode, EvalResult: schema.EvalResult{Start: run.Start, End: run.End,
			Run: &schema.RunResult{Success: true, Passed: run.Passed, Result: schema.Report{{Key: "check", Value: check}}}}})
	}
	return results
}

// report is a result for people, in Kernelbot's order: a title, a line for each
// phase, then everything about it.
func report(gpu, mode string, r *schema.Result, ranking string) string {
	var b strings.Builder
	title := runner
	if gpu != "" {
		title = gpu + " on " + runner
	}
	if !r.Success {
		fmt.Fprintf(&b, "%s ❌ failure\n", title)
		if r.Error != "" {
			b.WriteString(text.Line(r.Error, 1000) + "\n")
		}
		return b.String()
	}
	fmt.Fprintf(&b, "%s ✅ success\n", title)
	for _, line := range phases(r.Runs, mode == schema.ModeLeaderboard) {
		b.WriteString("> " + line + "\n")
	}
	if r.Outcome.Name != "" {
		b.WriteString("\n" + verdict.OfRanked(r, ranking).Text())
	}
	return b.String()
}

// phases says how each phase went, up to the first that did not pass. A ranked
// evaluation has all but the profile.
func phases(runs schema.Runs, ranked bool) (lines []string) {
	compiled := false
	for _, run := range runs {
		if c := run.Compilation; c != nil && !c.Success {
			return []string{"❌ Compilation failed"}
		} else if c != nil {
			compiled = true
		}
	}
	if compiled {
		lines = append(lines, "✅ Compilation successful")
	}
	for _, phase := range []struct{ name, done, of, missing string }{
		{schema.ModeTest, "Testing", "tests", "Tests missing"},
		{schema.ModeBenchmark, "Benchmarking", "benchmarks", "Benchmarks missing"},
		{schema.ModeProfile, "Profiling", "profile", ""},
		{schema.ModeLeaderboard, "Leaderboard run", "leaderboard", "Leaderboard missing"},
	} {
		found := false
		for _, run := range runs {
			if run.Name != phase.name && !strings.HasPrefix(run.Name, phase.name+".") {
				continue
			}
			found = true
			switch r := run.Run; {
			case r != nil && r.Success && r.Passed:
				lines = append(lines, "✅ "+phase.done+" successful")
			case r != nil && r.Success:
				return append(lines, "❌ "+phase.done+" failed")
			default:
				return append(lines, "❌ Running "+phase.of+" failed"+reason(r))
			}
		}
		if !found && ranked && phase.missing != "" {
			return append(lines, "❌ "+phase.missing)
		}
	}
	return lines
}

// Exit statuses of a tester that Kernelbot has words for.
const (
	exitCUDA    = 110
	exitFailed  = 112
	exitTimeout = 114
)

func reason(r *schema.RunResult) string {
	switch {
	case r == nil || r.ExitCode == exitFailed:
		return ""
	case r.ExitCode == exitTimeout:
		return " (timeout)"
	case r.ExitCode == exitCUDA:
		return " (cuda api error)"
	}
	return fmt.Sprintf(" (internal error %d)", r.ExitCode)
}
