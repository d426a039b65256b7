package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
	"github.com/gpu-mode/kbgen/verdict"
	"github.com/gpu-mode/kbgen/verdict/view"
)

const (
	maxLines = 5_000 // of code that a page shows
	maxLog   = 400_000
)

type submissionPage struct {
	Others []option // submissions to compare it with

	*backend.Submission
	GPU               string // "" when nobody knows
	State             view.State
	Stages            []stage
	Where             string             // it stands, one sentence
	Error             string             // of the whole submission
	Verdicts          []ranking.Decision // that are shown
	Reports           []report
	Lines             []template.HTML // of its code
	CodeCut           bool
	NoCode            string
	Acts              bool           // the viewer may act upon it
	Unjudged          *store.Outcome // it ended by a fault that is not its own; nil otherwise
	BoardKnown, Ranks bool
}

// A stage is one part of a submission's way.
type stage struct {
	Name, Note string
	Tone       string // class: past, now or next
}

// A report is what one evaluation said.
type report struct {
	view.Report
	GPU      string
	LogPath  string
	Profiles []profileLink
}

// A profileLink leads to what the profiler left in one run.
type profileLink struct{ Name, Query string }

func submissionID(r *request) (int64, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id <= 0 {
		return 0, store.ErrNotFound
	}
	return id, nil
}

func (s *site) submission(r *request) error {
	id, err := submissionID(r)
	if err != nil {
		return err
	}
	sub, err := s.Backend.Submission(r.Context(), r.viewer, id)
	if err != nil {
		return err
	}
	board, err := s.Backend.Board(r.Context(), r.viewer, sub.Board)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	page := newSubmission(sub, board, r)
	if err := s.fillCompare(r, page); err != nil {
		return err
	}
	f := frame{Page: "submission", Title: fmt.Sprintf("Submission %d", id), Content: page}
	if !sub.Done {
		f.Events, f.Beats, f.Refresh = fmt.Sprintf("/events/submission/%d", id), true, 5
	}
	return s.render(r, 200, f)
}

func newSubmission(sub *backend.Submission, board *store.Board, r *request) *submissionPage {
	p := &submissionPage{
		Submission: sub, GPU: gpuOf(sub), State: stateOf(&sub.Listed, sub.Wait != nil && !sub.Wait.Running),
		Error: view.Sentence(sub.Job.Error), BoardKnown: board != nil, Acts: sub.Own || r.viewer.Admin,
	}
	if !sub.Done {
		p.Stages, p.Where = stages(sub, r.now)
	}
	if o := sub.Outcome; o != nil && !sub.Hacked && faults[o.Fault] != "" {
		p.Unjudged = o
	}
	for _, v := range sub.Verdicts {
		p.Ranks = p.Ranks || v.Ranks
		if v.Reason != "" && strings.Contains(sub.Job.Error, "does not rank") {
			p.Error = "" // the store's words for the same
		}
		if sub.Done && p.Unjudged == nil || v.Ranks {
			p.Verdicts = append(p.Verdicts, v)
		}
	}
	var builder view.Builder
	for i := range sub.Reports {
		if sub.Reports[i].Result != nil {
			p.Reports = append(p.Reports, newReport(&sub.Reports[i], &builder))
		}
	}
	p.fillCode(sub, board)
	return p
}

// gpuOf is the GPU type that a submission is for, "" when nobody knows.
func gpuOf(sub *backend.Submission) string {
	switch {
	case sub.GPU != "":
		return sub.GPU
	case len(sub.Verdicts) > 0: // Kernelbot accepted it
		return sub.Verdicts[0].GPU
	case len(sub.Runs) > 0:
		return sub.Runs[0].Runner
	}
	return ""
}

// stages are a submission's way and where on it it is.
func stages(sub *backend.Submission, now time.Time) (way []stage, where string) {
	way = []stage{{"Accepted", newMoment(sub.Time, now).Text, "past"}, {"In line", "", "now"}, {"Running", "", "next"}, {"Judged", "", "next"}}
	w := sub.Wait
	switch {
	case w == nil && len(sub.Open) == 0:
		way[1].Tone, way[2].Tone, way[3].Tone = "past", "past", "now"
		return way, "Its results are being written."
	case w == nil:
		return way, "It waits to be looked at."
	case w.Check:
		way[1].Name = "Check"
		return way, "It waits for the organizers' check. Nothing of it has run yet."
	case w.Running:
		way[1].Tone, way[2].Tone = "past", "now"
		return way, "It runs on " + name(w.GPU) + "."
	}
	where = "It is the next to run on " + name(w.GPU) + "."
	if w.Place > 0 {
		way[1].Note = format.Count(w.Place, "run") + " ahead"
		where = format.Count(w.Place, "run") + " for " + name(w.GPU) + " go before it."
		if w.Place == 1 {
			where = "1 run for " + name(w.GPU) + " goes before it."
		}
	}
	if in := about(w.Expected); in != "" {
		where += " It is expected to begin in " + in + "."
	}
	return way, where
}

func newReport(in *store.Report, b *view.Builder) report {
	run := "?run=" + url.QueryEscape(in.RunID)
	r := report{Report: b.Report(in.Result, verdict.Of(in.Result)), GPU: name(in.GPU), LogPath: run}
	for _, one := range in.Result.Runs {
		if one.Profile != nil {
			r.Profiles = append(r.Profiles, profileLink{name(one.Name), run + "&name=" + url.QueryEscape(one.Name)})
		}
	}
	return r
}

// lasted is how long a run took; of a secret one nobody sees it.
func lasted(run store.PolledRun) string {
	if d := run.End.Sub(run.Start); d > 0 && !run.Secret {
		return format.Duration(d)
	}
	return ""
}

// machineOf reads the GPU out of what Kernelbot keeps of a machine.
func machineOf(system json.RawMessage) string {
	var m struct {
		GPU   string `json:"gpu"`
		Torch string `json:"torch"`
	}
	if len(system) == 0 || json.Unmarshal(system, &m) != nil {
		return ""
	}
	out := text.Line(m.GPU, maxName)
	if torch := text.Line(m.Torch, maxName); torch != "" {
		out += ", torch " + torch
	}
	return strings.TrimPrefix(out, ", ")
}

func (p *submissionPage) fillCode(sub *backend.Submission, board *store.Board) {
	if !sub.ShowCode {
		p.NoCode = "Only its author sees it."
		if board != nil && board.ShowCode == store.CodeAfter {
			p.NoCode = "Users who are logged in see it once the board has ended."
		}
		return
	}
	lines := highlight(strings.TrimSuffix(text.Lines(sub.Code), "\n"), sub.FileName)
	if p.CodeCut = len(lines) > maxLines; p.CodeCut {
		lines = lines[:maxLines]
	}
	p.Lines = lines
}

// code answers with a submission's file.
func (s *site) code(r *request) error {
	id, err := submissionID(r)
	if err != nil {
		return err
	}
	sub, err := s.Backend.Submission(r.Context(), r.viewer, id)
	if err != nil {
		return err
	}
	if !sub.ShowCode {
		return fmt.Errorf("code: %w", backend.ErrForbidden)
	}
	r.attach(sub.FileName, plainText, []byte(sub.Code))
	return nil
}

// profile answers with what the profiler left in one run.
func (s *site) profile(r *request) error {
	id, err := submissionID(r)
	if err != nil {
		return err
	}
	file, archive, err := s.Backend.ProfilerFiles(r.Context(), r.viewer, id, r.FormValue("run"), r.FormValue("name"))
	if err != nil {
		return err
	}
	r.attach(file, "application/zip", archive)
	return nil
}

type logPage struct {
	ID   int64
	Path string
	Text string
	Cut  bool
	Run  string
}

// log shows the log of one run of the viewer's own submission.
func (s *site) log(r *request) error {
	id, err := submissionID(r)
	if err != nil {
		return err
	}
	run := r.FormValue("run")
	out, err := s.Backend.Log(r.Context(), r.viewer, id, run)
	if err != nil {
		return err
	}
	page := logPage{ID: id, Path: submissionPath(id), Text: text.Lines(out), Run: text.Line(run, maxName)}
	if len(page.Text) > maxLog {
		page.Text, page.Cut = strings.ToValidUTF8(page.Text[len(page.Text)-maxLog:], ""), true
	}
	return s.render(r, 200, frame{Page: "log", Title: fmt.Sprintf("Log of submission %d", id), Content: page})
}

// actOnSubmission does what a button of a submission's page says.
func (s *site) actOnSubmission(r *request) error {
	ctx := r.Context()
	id, err := submissionID(r)
	if err != nil {
		return err
	}
	to := submissionPath(id)
	switch r.PathValue("act") {
	case "cancel":
		err = s.Backend.Cancel(ctx, r.viewer, id)
	case "delete":
		to, err = userPath(r.viewer.ID), s.Backend.Delete(ctx, r.viewer, id)
		if r.viewer.ID == "" {
			to = "/admin"
		}
	case "rerun":
		var receipt *store.Accepted
		if receipt, err = s.Backend.Rerun(ctx, r.viewer, id); err == nil {
			to = submissionPath(receipt.ID)
		}
	case "verify", "hacked", "unhack":
		var a *backend.Admin
		if a, err = s.Backend.Admin(r.viewer); err != nil {
			return err
		}
		switch r.PathValue("act") {
		case "verify":
			err = a.Verify(ctx, id, r.PostFormValue("gpu"))
		case "unhack":
			err = a.UnmarkHacked(ctx, id)
		default:
			err = a.MarkHacked(ctx, id, cmp.Or(text.Line(r.PostFormValue("why"), 200), "marked by an admin"))
		}
	default:
		return s.nothing(r)
	}
	if err != nil {
		return err
	}
	return r.see(to)
}

// submit takes a file from a board's form. What is refused is said above the form.
func (s *site) submit(r *request) error {
	in, err := readForm(r)
	if err != nil {
		return s.showBoard(r, http.StatusBadRequest, err.Error())
	}
	receipt, err := s.Backend.Submit(r.Context(), r.viewer, in)
	if refused, ok := errors.AsType[*store.Refusal](err); ok && refused.Why != store.UnknownBoard {
		status, words := s.explain(r, err)
		return s.showBoard(r, status, words)
	}
	if err != nil {
		return err
	}
	return r.see(submissionPath(receipt.ID))
}

func readForm(r *request) (backend.Request, error) {
	in := backend.Request{Board: r.PathValue("board"), GPU: r.PostFormValue("gpu"), Mode: r.PostFormValue("mode")}
	file, header, err := r.FormFile("file")
	if err != nil {
		return in, errNoFile
	}
	defer file.Close()
	in.FileName = header.Filename
	if in.Code, err = io.ReadAll(io.LimitReader(file, store.MaxCode+1)); err != nil {
		return in, errors.New("the file could not be read")
	}
	if len(in.Code) == 0 {
		return in, errNoFile
	}
	return in, nil
}

var modes = []option{
	{Value: schema.ModeLeaderboard, Text: "Ranked: tests, benchmarks, and a score on the board"},
	{Value: schema.ModeBenchmark, Text: "Benchmark: how fast it is, without a rank"},
	{Value: schema.ModeTest, Text: "Test: whether the answers are right"},
	{Value: schema.ModeProfile, Text: "Profile: where the time goes"},
}

// fillForm makes the form. Once the board has ended there is one for admins alone.
func (p *boardPage) fillForm(r *request, b *store.Board, gpu, problem string) {
	f := &p.Form
	f.Shown = p.IsOpen || r.viewer.Admin
	f.Path, f.Problem = boardPath(b.Name, "")+"#submit", view.Sentence(problem) // so that a refusal is in sight
	if r.viewer.ID == "" {
		f.LogIn = "/login?next=" + url.QueryEscape(boardPath(b.Name, gpu))
	}
	for _, g := range orderGPUs(b.GPUs) {
		words := name(g)
		if p.without[g] {
			words += " (no machine at the moment)"
		}
		f.GPUs = append(f.GPUs, option{g, words, g == gpu})
	}
	f.Modes = slices.Clone(modes)
	for i := range f.Modes {
		f.Modes[i].Chosen = f.Modes[i].Value == r.PostFormValue("mode")
	}
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9._:/%@+-]+$`)

// shell quotes a word for a shell where it needs that.
func shell(s string) string {
	if s = text.Line(s, 500); plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

var errNoFile = errors.New("no file was chosen")
