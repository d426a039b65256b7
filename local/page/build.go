package page

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict/view"
)

// buildPage is one build.
type buildPage struct {
	Number      int
	Path        string
	Pipeline    link
	Heading     string // what it is about, else the first line of the message
	Message     string // the message, or its other lines
	State       view.State
	Subject     subject
	Results     []report
	Timeline    *timeline // nil before anything has started
	Notify      []string
	Facts       []fact
	EnvNames    []string // names only: payloads and seeds are values
	MetaData    []fact
	Annotations []annotation
	Sections    []section
	JobCount    int
	Artifacts   []artifactRow

	CanCancel  bool
	CanRebuild bool
	Retryable  int // failed jobs that a button would retry
}

// A fact is a name with its value: a text, a time, a span or a link.
type fact struct {
	Name string
	Text string
	Time view.Moment
	Span span
	Path string // makes Text a link
}

type annotation struct {
	Context string
	Style   string // "info", "success", "warning", "error" or ""
	Body    template.HTML
	Updated view.Moment
}

// A section is a run of jobs that share a group, or that have none.
type section struct {
	Group string // label; empty: none
	Rows  []jobRow
}

type jobRow struct {
	Waiter    bool    // a divider, of which State and Note count only
	Manual    *manual // a block or input step
	Triggered link    // the build that a trigger step started

	ID, Path   string
	Label      string
	Note       string // what else is to be said: attempt, reason
	Superseded bool   // replaced by a retry
	State      view.State
	Duration   span
	Wait       span // from ready to started
	Agent      string
	Exit       string
	RetryPath  string // empty: it cannot be retried
}

type artifactRow struct {
	Path   string
	Page   string // where it is shown
	URL    string // empty: nothing to fetch
	Size   string
	State  view.State
	Job    link
	SHA256 string
}

func (p *pages) build(r *http.Request) (*frame, error) {
	b, err := p.findBuild(r)
	if err != nil {
		return nil, err
	}
	artifacts, err := p.engine.BuildArtifacts(b.ID, false)
	if err != nil {
		return nil, err
	}
	about := p.subjectOf(&b)
	path := p.buildPath(b.Pipeline, b.Number)
	acts := p.mayAct(r)
	c := &buildPage{
		Number:      b.Number,
		Path:        path,
		Pipeline:    link{b.Pipeline, p.pipelinePath(b.Pipeline)},
		Heading:     cmp.Or(about.Title, withEmoji(firstLine(b.Message, 200)), fmt.Sprintf("Build %d", b.Number)),
		State:       buildState(&b, about),
		Subject:     about,
		Results:     p.reports(&b),
		Timeline:    p.timeline(&b),
		Facts:       p.buildFacts(&b),
		EnvNames:    slices.Sorted(maps.Keys(b.Env)),
		MetaData:    metaData(b.MetaData),
		Annotations: p.annotations(b.Annotations, artifacts),
		Sections:    p.sections(&b, acts),
		JobCount:    count(&b, func(j *engine.Job) bool { return j.Type == engine.TypeScript && j.RetriedIn == "" }),
		Artifacts:   p.artifactRows(artifacts, &b),
		CanCancel:   acts && !b.Over() && b.State != engine.BuildCanceling,
		CanRebuild:  acts && b.Over(),
	}
	if acts {
		c.Retryable = count(&b, func(j *engine.Job) bool {
			return (j.State == engine.JobFailed || j.State == engine.JobTimedOut) && canRetry(j, &b)
		})
	}
	message := strings.TrimSpace(b.Message)
	if about.Title == "" {
		_, message, _ = strings.Cut(message, "\n")
	}
	c.Message = text.Shorten(text.Lines(strings.TrimSpace(message)), 4000)
	for _, n := range b.Notify {
		c.Notify = append(c.Notify, text.Line(n, 300))
	}
	return &frame{
		Page:    "build",
		Title:   title(c, &b),
		Events:  path + "/events",
		Refresh: !b.Over(),
		Crumbs:  []link{c.Pipeline, {fmt.Sprintf("#%d", b.Number), ""}},
		Content: c,
	}, nil
}

// title tells builds apart in a row of tabs.
func title(c *buildPage, b *engine.Build) string {
	how := c.State.Text
	if c.Subject.Verdict.Text != "" {
		how = c.Subject.Verdict.Text
		if c.Subject.Score != "" {
			how += " " + c.Subject.Score
		}
	}
	if c.Subject.Title == "" {
		return fmt.Sprintf("%s: %s #%d", how, b.Pipeline, b.Number)
	}
	return fmt.Sprintf("%s: %s · %s #%d", how, c.Subject.Title, b.Pipeline, b.Number)
}

func (p *pages) buildFacts(b *engine.Build) []fact {
	facts := []fact{
		{Name: "Duration", Span: between(b.StartedAt, b.FinishedAt, p.engine.Now())},
		{Name: "Created", Time: p.moment(b.CreatedAt)},
		{Name: "Started", Time: p.moment(b.StartedAt)},
		{Name: "Finished", Time: p.moment(b.FinishedAt)},
		{Name: "Commit", Text: text.Line(b.Commit, 100)},
		{Name: "Branch", Text: text.Line(b.Branch, 100)},
		{Name: "Source", Text: b.Source},
		{Name: "Creator", Text: text.Line(cmp.Or(b.Creator.Name, b.Creator.Email), 100)},
	}
	if from := b.TriggeredFrom; from != nil {
		facts = append(facts, fact{Name: "Triggered from", Text: fmt.Sprintf("%s #%d", from.Pipeline, from.Number), Path: p.buildPath(from.Pipeline, from.Number)})
	}
	if from := b.RebuiltFrom; from != nil {
		facts = append(facts, fact{Name: "Rebuilt from", Text: fmt.Sprintf("#%d", from.Number), Path: p.buildPath(b.Pipeline, from.Number)})
	}
	return slices.DeleteFunc(facts, fact.empty)
}

func (f fact) empty() bool { return f.Text == "" && f.Time.Text == "" && f.Span.Text == "" }

func metaData(items map[string]string) []fact {
	var out []fact
	for _, key := range slices.Sorted(maps.Keys(items)) {
		out = append(out, fact{Name: key, Text: text.Shorten(text.Lines(items[key]), 300)})
	}
	return out
}

// annotations renders a build's annotations, the most important first.
func (p *pages) annotations(all []engine.Annotation, artifacts []engine.Artifact) []annotation {
	ordered := slices.Clone(all)
	slices.SortStableFunc(ordered, func(a, b engine.Annotation) int { return cmp.Compare(b.Priority, a.Priority) })
	in := func(name string) (page, image string, ok bool) { return p.findLink(artifacts, name) }
	var out []annotation
	for _, a := range ordered {
		out = append(out, annotation{Context: a.Context, Style: a.Style, Body: renderAnnotation(a.Body, in), Updated: p.moment(a.UpdatedAt)})
	}
	return out
}

// sections divides a build's jobs by group, in the order of their steps.
func (p *pages) sections(b *engine.Build, acts bool) []section {
	var out []section
	last := "none yet"
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if j.GroupID != last {
			out = append(out, section{Group: text.Line(j.GroupLabel, 200)})
			last = j.GroupID
		}
		rows := &out[len(out)-1].Rows
		*rows = append(*rows, p.jobRow(j, b, acts))
	}
	return out
}

func (p *pages) jobRow(j *engine.Job, b *engine.Build, acts bool) jobRow {
	now := p.engine.Now()
	row := jobRow{
		ID:         j.ID,
		Waiter:     j.Type == engine.TypeWaiter,
		Label:      withEmoji(j.Name(b.Env)),
		Note:       jobNote(j),
		Superseded: j.RetriedIn != "",
		State:      jobState(j),
	}
	switch j.Type {
	case engine.TypeWaiter:
		return row
	case engine.TypeManual:
		row.Manual = p.manual(j, acts)
		return row
	case engine.TypeTrigger:
		if t := j.Triggered; t != nil {
			row.Triggered = link{fmt.Sprintf("%s #%d", t.Pipeline, t.Number), p.buildPath(t.Pipeline, t.Number)}
		}
		row.Duration = between(j.StartedAt, j.FinishedAt, now)
		return row
	}
	row.Path = p.jobPath(j)
	row.Duration = between(j.StartedAt, j.FinishedAt, now)
	row.Wait = waited(j, now)
	row.Agent = text.Line(j.AgentName, 100)
	row.Exit = exitText(j)
	if acts && canRetry(j, b) {
		row.RetryPath = row.Path + "/retry"
	}
	return row
}

func jobNote(j *engine.Job) string {
	var notes []string
	if j.RetriesCount > 0 {
		notes = append(notes, fmt.Sprintf("attempt %d, %s retry", j.RetriesCount+1, j.RetryType))
	}
	if j.RetriedIn != "" {
		notes = append(notes, "retried")
	}
	if j.UploadRefused != "" {
		notes = append(notes, "upload refused: "+text.Line(j.UploadRefused, 300))
	}
	notes = append(notes, text.Line(j.BrokenReason, 300))
	if j.ChunksLost > 0 {
		notes = append(notes, fmt.Sprintf("%d log chunks lost", j.ChunksLost))
	}
	return joined(notes...)
}

// exitText says how a job's process ended, "" while it has not.
func exitText(j *engine.Job) string {
	if j.ExitStatus == nil {
		return ""
	}
	return joined(fmt.Sprintf("exit %d", *j.ExitStatus), text.Line(j.Signal, 60), text.Line(j.SignalReason, 60))
}

// joined puts dots between the parts that are not empty.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), " · ")
}

// count says how many jobs of a build are of a kind.
func count(b *engine.Build, kind func(*engine.Job) bool) (n int) {
	for i := range b.Jobs {
		if kind(&b.Jobs[i]) {
			n++
		}
	}
	return n
}

// canRetry reports whether the engine would accept a manual retry of the job.
func canRetry(j *engine.Job, b *engine.Build) bool {
	if j.Type != engine.TypeScript || j.RetriedIn != "" || j.Step.Retry.ManualDenied ||
		b.State == engine.BuildCanceling || b.State == engine.BuildCanceled {
		return false
	}
	switch j.State {
	case engine.JobFailed, engine.JobTimedOut, engine.JobCanceled:
		return true
	case engine.JobPassed:
		return j.Step.Retry.PermitOnPassed
	}
	return false
}

func (p *pages) artifactRows(artifacts []engine.Artifact, b *engine.Build) []artifactRow {
	var out []artifactRow
	for i := range artifacts {
		out = append(out, p.artifactRow(&artifacts[i], b))
	}
	return out
}

func (p *pages) artifactRow(a *engine.Artifact, b *engine.Build) artifactRow {
	row := artifactRow{Path: text.Line(a.Path, 500), Page: p.artifactPath(a), Size: format.Size(a.Size), SHA256: a.SHA256, State: artifactState(a.State)}
	if a.State == engine.ArtifactFinished && p.opts.Blob != nil {
		row.URL = p.opts.Blob.DownloadURL(a.ID)
	}
	if j := jobOf(b, a.JobID); j != nil {
		row.Job = link{withEmoji(j.Name(b.Env)), p.jobPath(j)}
	}
	return row
}

// A timeline shows when the jobs of a build waited and ran.
type timeline struct {
	Rows  []timelineRow
	Total string
	Ticks []tick
	More  int // jobs that are not shown
}

type timelineRow struct {
	Label, Path string
	Tone        string // class of the bar
	Words       string // "waited 12 ms, ran 1.2 s"
	// Percent of the whole, as the attributes of the drawing want them.
	WaitAt, WaitWidth, RunAt, RunWidth string
}

type tick struct{ At, Text string }

// maxTimeline bounds the rows.
const maxTimeline = 200

// timeline draws a build from its creation to its end, or to now.
func (p *pages) timeline(b *engine.Build) *timeline {
	begin, end := b.CreatedAt, b.FinishedAt
	if !b.Over() && !b.Blocked { // a person may take any time
		end = p.engine.Now()
	}
	for i := range b.Jobs { // a retry may come after the end of a build
		if at := b.Jobs[i].FinishedAt; at.After(end) {
			end = at
		}
	}
	length := end.Sub(begin)
	if length <= 0 {
		return nil
	}
	percent := func(d time.Duration) string {
		return fmt.Sprintf("%.3f%%", min(max(100*float64(d)/float64(length), 0), 100))
	}
	out := &timeline{Total: format.Duration(length)}
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if j.Type != engine.TypeScript && j.Type != engine.TypeTrigger || j.RunnableAt.IsZero() {
			continue
		}
		if len(out.Rows) == maxTimeline {
			out.More++
			continue
		}
		started, finished := j.StartedAt, j.FinishedAt
		if finished.IsZero() {
			finished = end
		}
		if started.IsZero() {
			started = finished
		}
		row := timelineRow{
			Label: withEmoji(j.Name(b.Env)), Path: p.jobPath(j), Tone: jobState(j).Tone,
			WaitAt: percent(j.RunnableAt.Sub(begin)), WaitWidth: percent(started.Sub(j.RunnableAt)),
			RunAt: percent(started.Sub(begin)), RunWidth: percent(finished.Sub(started)),
			Words: "waited " + format.Duration(started.Sub(j.RunnableAt)),
		}
		if j.Type == engine.TypeTrigger {
			row.Path = p.buildPath(b.Pipeline, b.Number)
		}
		if !j.StartedAt.IsZero() {
			row.Words += ", ran " + format.Duration(finished.Sub(started))
		}
		out.Rows = append(out.Rows, row)
	}
	if len(out.Rows) == 0 {
		return nil
	}
	for i := range 5 {
		out.Ticks = append(out.Ticks, tick{At: fmt.Sprintf("%d%%", 25*i), Text: tickText(length * time.Duration(i) / 4)})
	}
	return out
}

// tickText is finer than duration, since a quarter of little is less.
func tickText(d time.Duration) string {
	if d > 0 && d < time.Second {
		return format.Time(float64(d))
	}
	return format.Duration(d)
}
