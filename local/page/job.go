package page

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict/view"
)

// jobPage is one job with its log.
type jobPage struct {
	Label     string
	Group     string
	Path      string
	Build     link
	State     view.State
	Note      string
	Facts     []fact
	RetryPath string // empty: it cannot be retried
	Artifacts []artifactRow

	Log      logView
	LogSize  string
	LogShown string // how much of it is rendered when that is not all
	Running  bool
}

// waited is the time from the moment the job could run to its start.
func waited(j *engine.Job, now time.Time) span {
	if j.StartedAt.IsZero() {
		return between(j.RunnableAt, j.FinishedAt, now)
	}
	return between(j.RunnableAt, j.StartedAt, now)
}

func (p *pages) job(r *http.Request) (*frame, error) {
	j, b, err := p.findJob(r)
	if err != nil {
		return nil, err
	}
	log, shown, err := p.readLog(&j)
	if err != nil {
		return nil, err
	}
	artifacts, err := p.engine.JobArtifacts(j.ID)
	if err != nil {
		return nil, err
	}
	path := p.jobPath(&j)
	build := link{fmt.Sprintf("#%d", b.Number), p.buildPath(b.Pipeline, b.Number)}
	c := &jobPage{
		Label:     withEmoji(j.Name(b.Env)),
		Group:     text.Line(j.GroupLabel, 200),
		Path:      path,
		Build:     build,
		State:     jobState(&j),
		Note:      jobNote(&j),
		Facts:     p.jobFacts(&j),
		Artifacts: p.artifactRows(artifacts, &b),
		Log:       log,
		LogSize:   format.Size(j.LogSize),
		Running:   !j.State.Finished(),
	}
	if shown < j.LogSize {
		c.LogShown = format.Size(shown)
	}
	if p.mayAct(r) && canRetry(&j, &b) {
		c.RetryPath = path + "/retry"
	}
	return &frame{
		Page:    "job",
		Title:   fmt.Sprintf("%s: %s · %s #%d", c.State.Text, c.Label, b.Pipeline, b.Number),
		Events:  path + "/events",
		Refresh: !j.State.Finished(),
		Crumbs:  []link{{b.Pipeline, p.pipelinePath(b.Pipeline)}, build, {c.Label, ""}},
		Content: c,
	}, nil
}

func (p *pages) jobFacts(j *engine.Job) []fact {
	now := p.engine.Now()
	facts := []fact{
		{Name: "Duration", Span: between(j.StartedAt, j.FinishedAt, now)},
		{Name: "Waited", Span: waited(j, now)},
		{Name: "Exit", Text: exitText(j)},
		{Name: "Agent", Text: text.Line(j.AgentName, 100)},
		{Name: "Asks for", Text: text.Line(strings.Join(j.Rules, ", "), 300)},
		{Name: "Key", Text: text.Line(j.StepKey, 100)},
		{Name: "Started", Time: p.moment(j.StartedAt)},
		{Name: "Finished", Time: p.moment(j.FinishedAt)},
	}
	if j.Timeout > 0 {
		facts = append(facts, fact{Name: "Timeout", Text: format.Elapsed(j.Timeout)})
	}
	if j.Priority != 0 {
		facts = append(facts, fact{Name: "Priority", Text: strconv.Itoa(j.Priority)})
	}
	jobs := p.buildPath(j.Pipeline, j.Number) + "/jobs/"
	if j.RetryOf != "" {
		facts = append(facts, fact{Name: "Attempt before", Text: fmt.Sprintf("attempt %d", j.RetriesCount), Path: jobs + j.RetryOf})
	}
	if j.RetriedIn != "" {
		facts = append(facts, fact{Name: "Retried in", Text: fmt.Sprintf("attempt %d", j.RetriesCount+2), Path: jobs + j.RetriedIn})
	}
	return slices.DeleteFunc(facts, fact.empty)
}

// readLog renders the end of a job's log, and returns how many bytes that is.
func (p *pages) readLog(j *engine.Job) (logView, int64, error) {
	f, err := p.engine.Log(j.ID)
	if err != nil {
		return logView{}, 0, err
	}
	defer f.Close()
	shown := min(j.LogSize, maxRendered)
	if _, err := f.Seek(j.LogSize-shown, io.SeekStart); err != nil {
		return logView{}, 0, err
	}
	// LogSize and not the file's end: a missing chunk leaves a gap of zeros.
	data, err := io.ReadAll(io.LimitReader(f, shown))
	if err != nil {
		return logView{}, 0, err
	}
	if _, rest, found := bytes.Cut(data, []byte("\n")); found && shown < j.LogSize {
		data = rest // without an incomplete first line
	}
	view, err := renderLog(data, logStyle{location: p.opts.Location, openLast: j.State != engine.JobPassed, numbered: shown == j.LogSize})
	return view, int64(len(data)), err
}

// rawLog serves the log as the agent sent it.
func (p *pages) rawLog(w http.ResponseWriter, r *http.Request) error {
	j, _, err := p.findJob(r)
	if err != nil {
		return err
	}
	f, err := p.engine.Log(j.ID)
	if err != nil {
		return err
	}
	defer f.Close()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.FormatInt(j.LogSize, 10))
	if r.Method != http.MethodHead {
		_, _ = io.CopyN(w, f, j.LogSize) // the client may have left
	}
	return nil
}
