package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
)

func submissionRoutes() []route {
	return []route{
		{pattern: "GET /api/v1/submissions", about: "List your submissions, newest first; an admin everybody's.", needs: known,
			query:  []param{{"board", "string", "of this board alone"}, {"gpu", "string", "for this GPU type alone"}, {"status", "string", "with this status alone"}, {"user", "string", "of this user; for admins"}, {"before", "integer", "only ids below it, for the next page"}, {"limit", "integer", "1 to 1000; 50"}},
			answer: reflect.TypeFor[submissionsJSON](), do: submissions},
		{pattern: "POST /api/v1/submissions", about: "Hand in a file. What the query leaves out, the file's !POPCORN lines say.", needs: user, upload: true, status: http.StatusAccepted,
			query:  []param{{"board", "string", "the board"}, {"gpu", "string", "the GPU type"}, {"mode", "string", "test, benchmark, profile or leaderboard"}},
			answer: reflect.TypeFor[Receipt](), do: newSubmission},
		{pattern: "GET /api/v1/submissions/{id}", about: "Read a submission: your own, or one that ranks.", answer: reflect.TypeFor[Submission](), do: withSubmission(readSubmission)},
		{pattern: "DELETE /api/v1/submissions/{id}", about: "Delete a submission of yours; what has not finished is cancelled.", needs: known, status: http.StatusNoContent, do: withID(func(c *call, id int64) (any, error) { return done(c, c.back().Delete(c.ctx(), c.viewer(), id)) })},
		{pattern: "POST /api/v1/submissions/{id}/cancel", about: "End what has not finished of a submission of yours.", needs: known, status: http.StatusNoContent, do: withID(func(c *call, id int64) (any, error) { return done(c, c.back().Cancel(c.ctx(), c.viewer(), id)) })},
		{pattern: "POST /api/v1/submissions/{id}/rerun", about: "Hand in the same code again, as a new submission.", needs: known, status: http.StatusAccepted, answer: reflect.TypeFor[Receipt](), do: withID(rerun)},
		{pattern: "GET /api/v1/submissions/{id}/log", about: "The log of an evaluation of yours.", needs: known, query: []param{{"run", "string", "a run's id; the first public one without"}}, media: "text/plain; charset=utf-8", cost: httpx.LogCost, do: withID(readLog)},
		{pattern: "GET /api/v1/submissions/{id}/profile", about: "The files that the profiler left in an evaluation of yours.", needs: known, query: []param{{"run", "string", "a run's id; default: the first one with a profile"}, {"name", "string", "a run's name in result.json, such as profile.1; default: the first one"}}, media: "application/zip", do: withID(readProfile)},
		{pattern: "GET /api/v1/submissions/{id}/reports", about: "The result.json of each public evaluation of yours.", needs: known, answer: reflect.TypeFor[reportsJSON](), do: withSubmission(reports)},
		{pattern: "GET /api/v1/submissions/{id}/events", about: "The submission again whenever it changes: events submission, then one event done.", stream: true, media: eventStream, do: withSubmission(submissionEvents)},
	}
}

// submissionsJSON is one page of a list; the next begins before its last id.
type submissionsJSON struct {
	Submissions []listedSubmissionJSON `json:"submissions"`
}

type listedSubmissionJSON struct {
	ID       int64          `json:"id"`
	Board    string         `json:"board"`
	FileName string         `json:"file_name"`
	GPU      string         `json:"gpu"`
	Mode     string         `json:"mode"`
	UserID   string         `json:"user_id"`
	User     string         `json:"user"`
	Time     time.Time      `json:"time"`
	Done     bool           `json:"done"`
	Hacked   bool           `json:"hacked"`
	Status   string         `json:"status"` // pending, running, succeeded (the machinery worked), failed, timed_out or hacked
	Error    string         `json:"error"`
	Outcome  *outcomeJSON   `json:"outcome"`  // null: it has not finished, or it is not known
	Verdicts []decisionJSON `json:"verdicts"` // of a ranked one, by GPU type
}

// An Outcome says how a submission came out, and whose fault that was. Of a secret run it
// shows only the fault.
type outcomeJSON struct {
	Name  string `json:"name"`  // one of docs/outcomes.md, such as passed, wrong or timeout
	Fault string `json:"fault"` // none, submission, task, launcher, machine, runner or operator
	Text  string `json:"text"`  // one line
	Next  string `json:"next"`  // what the submitter can do; empty: nothing
}

// A Decision says whether a submission ranks on a GPU type, and why not.
type decisionJSON struct {
	GPU    string   `json:"gpu"`
	Ranks  bool     `json:"ranks"`
	Reason string   `json:"reason"` // empty when it ranks
	Score  *float64 `json:"score"`  // of the public run, seconds
	Low    *float64 `json:"low"`    // 95 % interval, seconds; null: none
	High   *float64 `json:"high"`
}

func decisions(all []ranking.Decision) []decisionJSON {
	return mapped(all, func(v ranking.Decision) decisionJSON {
		return decisionJSON{v.GPU, v.Ranks, v.Reason, v.Score, v.Low, v.High}
	})
}

func submissions(c *call) (any, error) {
	limit, err := c.number("limit", 50, 1, 1000)
	if err != nil {
		return nil, err
	}
	before, err := c.number("before", 0, 0, 1<<62)
	if err != nil {
		return nil, err
	}
	all, err := c.back().Mine(c.ctx(), c.viewer(), store.Query{UserID: c.word("user"), Board: lower(c.word("board")), GPU: c.word("gpu"), Status: c.word("status"), Before: int64(before), Limit: limit})
	return submissionsJSON{mapped(all, func(l store.Listed) listedSubmissionJSON {
		return listedSubmissionJSON{l.ID, l.Board, l.FileName, l.GPU, l.Mode, l.UserID, l.User, l.Time.UTC(), l.Done, l.Hacked, l.Job.Status, l.Job.Error, (*outcomeJSON)(l.Outcome), decisions(l.Verdicts)}
	})}, err
}

// A Receipt says under which id a submission is kept, and where it stands.
type Receipt struct {
	ID   int64     `json:"id"`
	Wait *waitJSON `json:"wait"`
}

// A Wait says where a submission stands in the line of its GPU type.
type waitJSON struct {
	GPU             string   `json:"gpu"`
	Place           int      `json:"place"` // runs that go before its first; 0: none, or it runs
	Running         bool     `json:"running"`
	Check           bool     `json:"check"`            // it is in no line yet: the organizers' check comes first
	ExpectedSeconds *float64 `json:"expected_seconds"` // until its first run begins; null: not known, or it runs
}

func receipt(c *call, r *store.Accepted, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	out := Receipt{ID: r.ID}
	if s, err := c.back().Submission(c.ctx(), c.viewer(), r.ID); err == nil {
		out.Wait = waitOf(s.Wait)
	}
	return out, nil
}

func newSubmission(c *call) (any, error) {
	r, err := handIn(c, c.word)
	return receipt(c, r, err)
}

func rerun(c *call, id int64) (any, error) {
	r, err := c.back().Rerun(c.ctx(), c.viewer(), id)
	return receipt(c, r, err)
}

// done answers that there is nothing to say.
func done(c *call, err error) (any, error) {
	if err == nil {
		c.w.WriteHeader(http.StatusNoContent)
	}
	return nil, err
}

// A Submission is what you may see of one. What others may not see is empty.
type Submission struct {
	ID       int64          `json:"id"`
	Board    string         `json:"board"`
	FileName string         `json:"file_name"`
	Mode     string         `json:"mode"`
	UserID   string         `json:"user_id"`
	Own      bool           `json:"own"`
	Time     time.Time      `json:"time"`
	Done     bool           `json:"done"`
	Hacked   bool           `json:"hacked"`
	Status   string         `json:"status"` // pending, running, succeeded (the machinery worked), failed, timed_out or hacked
	Error    string         `json:"error"`
	Outcome  *outcomeJSON   `json:"outcome"`   // null: it has not finished, or it is not known
	CanRerun bool           `json:"can_rerun"` // you may run it again
	Code     *string        `json:"code"`      // null: it is not shown to you
	Wait     *waitJSON      `json:"wait"`      // null: nothing of it waits or runs
	Verdicts []decisionJSON `json:"verdicts"`
	Runs     []runJSON      `json:"runs"`
}

// A Run is one phase of an evaluation. Of a secret one score and times are for
// admins: a submission could use them to tell what it read.
type runJSON struct {
	Mode   string    `json:"mode"`
	GPU    string    `json:"gpu"`
	Secret bool      `json:"secret"`
	Passed bool      `json:"passed"`
	Score  *float64  `json:"score"` // seconds
	Start  time.Time `json:"start"`
	End    time.Time `json:"end"`
}

func submissionOf(s *backend.Submission) Submission {
	out := Submission{ID: s.ID, Board: s.Board, FileName: s.FileName, Mode: s.Mode, UserID: s.UserID, Own: s.Own, Time: s.Time.UTC(), Done: s.Done, Hacked: s.Hacked, Status: s.Job.Status, Error: s.Job.Error, Outcome: (*outcomeJSON)(s.Outcome), CanRerun: s.CanRerun,
		Wait: waitOf(s.Wait), Verdicts: decisions(s.Verdicts), Runs: mapped(s.Runs, func(r store.PolledRun) runJSON {
			return runJSON{r.Mode, r.Runner, r.Secret, r.Passed, r.Score, r.Start.UTC(), r.End.UTC()}
		})}
	if s.ShowCode {
		out.Code = &s.Code
	}
	return out
}

func readSubmission(_ *call, s *backend.Submission) (any, error) { return submissionOf(s), nil }

func readLog(c *call, id int64) (any, error) {
	text, err := c.back().Log(c.ctx(), c.viewer(), id, c.word("run"))
	if err != nil {
		return nil, err
	}
	c.send("text/plain; charset=utf-8", []byte(text))
	return nil, nil
}

func readProfile(c *call, id int64) (any, error) {
	_, archive, err := c.back().ProfilerFiles(c.ctx(), c.viewer(), id, c.word("run"), c.word("name"))
	if err != nil {
		return nil, err
	}
	c.send("application/zip", archive)
	return nil, nil
}

// send answers with something other than JSON, which no browser shows as a page.
func (c *call) send(contentType string, body []byte) {
	c.header("Content-Type", contentType)
	c.header("X-Content-Type-Options", "nosniff")
	c.header("Cache-Control", "no-store")
	_, _ = c.w.Write(body) // the client may have left
}

type reportsJSON struct {
	Reports []reportJSON `json:"reports"`
}

// A Report is what one evaluation reported.
type reportJSON struct {
	RunID  string          `json:"run_id"`
	GPU    string          `json:"gpu"`
	Text   string          `json:"text"`   // for people
	Result json.RawMessage `json:"result"` // result.json
}

func reports(c *call, s *backend.Submission) (any, error) {
	if !s.Own && !c.who.Admin {
		return nil, &refusal{http.StatusForbidden, "the reports of a submission are its owner's"}
	}
	return reportsJSON{mapped(s.Reports, func(r store.Report) reportJSON {
		return reportJSON{r.RunID, r.GPU, report(r.GPU, s.Mode, r.Result, c.rankingBy(s.Board)), r.Raw}
	})}, nil
}

// rankingBy is how a board makes a score, "" for one that is not there.
func (c *call) rankingBy(board string) string {
	b, err := c.back().Board(c.ctx(), c.viewer(), board)
	if err != nil || b.Task == nil {
		return ""
	}
	return b.Task.RankingBy
}

// submissionEvents sends the submission whenever it changed, and ends when it is
// done.
func submissionEvents(c *call, sub *backend.Submission) (any, error) {
	end, err := c.takeStream()
	if err != nil {
		return nil, err
	}
	defer end()
	s := c.stream()
	if c.Method == http.MethodHead {
		return nil, nil
	}
	last := ""
	err = c.follow(sub.ID, s.alive, func(sub *backend.Submission) (bool, error) {
		event := "submission"
		if sub.Done && len(sub.Open) == 0 {
			event = "done"
		}
		now := submissionOf(sub)
		now.Code = nil // it does not change
		body, err := json.Marshal(now)
		if err != nil || string(body) == last && event != "done" {
			return false, err
		}
		last = string(body)
		return event == "done", s.send(event, now)
	})
	if err != nil && c.ctx().Err() == nil {
		s.send("error", streamErrorJSON{"error", "this stream has ended; ask again"})
	}
	return nil, nil
}
