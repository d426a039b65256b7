package launcher

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/buildkite/go-buildkite/v3/buildkite"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A Build is what the launcher reads of a build. Env is left out on purpose:
// it holds the payload.
type Build struct {
	Number       int
	WebURL       string `json:"web_url"`
	State        string
	Blocked      bool                 // beside the last real state
	CancelReason string               `json:"cancel_reason"`
	MetaData     map[string]any       `json:"meta_data"`
	CreatedAt    *buildkite.Timestamp `json:"created_at"`
	StartedAt    *buildkite.Timestamp `json:"started_at"` // of its first job, so hardly ever the evaluation's
	FinishedAt   *buildkite.Timestamp `json:"finished_at"`
	Jobs         []Job                // latest attempts only; nil where the request left them out
}

// A Job is one attempt of one step.
type Job struct {
	ID              string
	Type            string // "script" for commands
	Name            string
	StepKey         string `json:"step_key"`
	State           string
	ExitStatus      *int     `json:"exit_status"`
	SignalReason    string   `json:"signal_reason"` // "agent_stop", "process_run_error", …
	AgentQueryRules []string `json:"agent_query_rules"`
	Agent           struct{ Name string }
	RetriesCount    int `json:"retries_count"`
	Retried         bool
	CreatedAt       *buildkite.Timestamp `json:"created_at"`
	RunnableAt      *buildkite.Timestamp `json:"runnable_at"`
	StartedAt       *buildkite.Timestamp `json:"started_at"`
	FinishedAt      *buildkite.Timestamp `json:"finished_at"`
}

var (
	openStates     = []string{"creating", "scheduled", "running", "failing", "canceling"}
	terminalStates = []string{"passed", "failed", "canceled", "skipped", "not_run"}
	otherStates    = []string{"waiting", "waiting_failed"} // open too; listings cannot be asked for them
)

// Over reports whether nothing more will happen. A state nobody has heard of is
// not the end.
func (b *Build) Over() bool {
	return b.FinishedAt != nil || slices.Contains(terminalStates, b.State)
}

// known reports whether the state has been heard of.
func (b *Build) known() bool {
	return b.Over() || slices.Contains(openStates, b.State) || slices.Contains(otherStates, b.State)
}

// Evaluation returns the job that judges on a queue, nil when there is none yet:
// after a dynamic upload the first job is the one that uploaded. Should no job name
// the queue, it is the last of several.
func (b *Build) Evaluation(queue string) *Job {
	var live []*Job
	for i := range b.Jobs {
		if j := &b.Jobs[i]; j.Type == "script" && !j.Retried {
			live = append(live, j)
		}
	}
	for _, j := range slices.Backward(live) {
		if slices.Contains(j.AgentQueryRules, "queue="+queue) {
			return j
		}
	}
	if len(live) > 1 {
		return live[len(live)-1]
	}
	return nil
}

// times returns when each job did what, the evaluation on queue last.
func (b *Build) times(queue string) []JobTimes {
	var out, last []JobTimes
	evaluation := b.Evaluation(queue)
	for i := range b.Jobs {
		j := &b.Jobs[i]
		t := JobTimes{
			ID: j.ID, Step: j.StepKey, Created: moment(j.CreatedAt), Runnable: moment(j.RunnableAt),
			Started: moment(j.StartedAt), Finished: moment(j.FinishedAt),
		}
		switch {
		case j == evaluation:
			last = []JobTimes{t}
		case j.Type == "script":
			out = append(out, t)
		}
	}
	return append(out, last...)
}

func moment(t *buildkite.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// describe words a job for an error: name, state and how it ended.
func (j *Job) describe() string {
	var s strings.Builder
	name := cmp.Or(j.StepKey, text.Line(j.Name, 60))
	fmt.Fprintf(&s, "%s %s", name, j.State)
	if j.ExitStatus != nil {
		fmt.Fprintf(&s, ", exit status %d", *j.ExitStatus)
	}
	if j.SignalReason != "" {
		fmt.Fprintf(&s, ", signal reason %s", j.SignalReason)
	}
	if j.RetriesCount > 0 {
		fmt.Fprintf(&s, ", attempt %d", j.RetriesCount+1)
	}
	if j.Agent.Name != "" {
		fmt.Fprintf(&s, ", on agent %s", text.Line(j.Agent.Name, 60))
	}
	return s.String()
}

// RunID is the id of the run that the build was made for, "" when it was made
// for none. Whoever may make builds writes their meta-data: what is no run id
// counts for none.
func (b *Build) RunID() string {
	if id, _ := b.MetaData[metaRunID].(string); runIDPattern.MatchString(id) {
		return id
	}
	return ""
}

// word returns what the build's meta-data say, printable, "" if they do not.
func (b *Build) word(key string) string {
	s, _ := b.MetaData[key].(string)
	return text.Line(s, 60)
}

var (
	namePattern  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,60}$`)
	runIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$`)
)

// What the launcher writes into a build's meta-data.
const (
	metaRunID    = "run_id"
	metaGPU      = "gpu"
	metaQueue    = "queue"
	metaMode     = "mode"
	metaRanking  = "ranking"
	metaTask     = "task" // what people tell builds apart by
	metaFile     = "file"
	metaLauncher = "launcher" // the installation
)

// A Span is one stretch of the time between submission and result.
type Span struct {
	Name     string // "pick-up"; not unique
	Duration time.Duration
	Note     string // what happens in it
}

// spans says where the time of a submission went: the stretches in their order
// and the total last. Jobs are timed by Buildkite's clock, the evaluation's
// phases by the machine's, the rest by ours; only times of one clock are
// subtracted, but for the command's, which is its agent's.
//
// command is when the first job's command began, see [Client.commandAt]; zero:
// unknown.
func (r *Report) spans(command time.Time) []Span {
	var spans []Span
	add := func(name string, d time.Duration, note string) { spans = append(spans, Span{name, d, note}) }
	l := r.Timeline
	accounted := max(0, l.Created.Sub(l.Submitted)) // an adopted build was there before
	add("create", accounted, "the build, by REST")
	if len(l.Jobs) > 0 {
		evaluation := l.Jobs[len(l.Jobs)-1]
		if len(l.Jobs) > 1 {
			first := l.Jobs[0]
			add("pick-up", first.Started.Sub(first.Runnable), first.Step+": ready until an agent starts it")
			if command.After(first.Started) && command.Before(evaluation.Created) {
				add("bootstrap", command.Sub(first.Started), "agent, until the command begins")
				add("upload", evaluation.Created.Sub(command), "kbgen, agent, until "+evaluation.Step+" exists")
			} else {
				add("bootstrap", evaluation.Created.Sub(first.Started), "agent, kbgen, upload, until "+evaluation.Step+" exists")
			}
			accounted += evaluation.Created.Sub(first.Runnable)
		}
		job := evaluation.Finished.Sub(evaluation.Started)
		judged := r.judging()
		add("pick-up", evaluation.Started.Sub(evaluation.Runnable), evaluation.Step+": ready until an agent starts it")
		add("evaluation", judged, "phases of the submission")
		add("artifact", job-judged, "agent, kbrun, result.json, annotation")
		accounted += evaluation.Finished.Sub(evaluation.Created)
	}
	add("notice", max(0, l.Finished.Sub(l.Submitted)-accounted), "until a poll sees the end")
	add("fetch", l.Fetched.Sub(l.Finished), "list artifacts, download, check")
	add("total", l.Fetched.Sub(l.Submitted), "submitted until checked")
	return spans
}

// judging is how long the phases of the result took, from the first's start to
// the last's end.
func (r *Report) judging() time.Duration {
	runs := r.Result.Runs
	if len(runs) == 0 {
		return 0
	}
	return runs[len(runs)-1].End.Sub(runs[0].Start)
}

// A WrongMachineError is a result of this run for another GPU type or queue than
// was asked for, whatever its verdict: a pipeline, or an agent's tags, led the
// build to the wrong machine. The fault is not the submission's.
type WrongMachineError struct {
	RunID            string
	Build            int
	BuildURL         string
	GPU, Queue       string // that were asked for
	GotGPU, GotQueue string // that the result names
	Outcome          string // of the result, one line
}

func (e *WrongMachineError) Error() string {
	return fmt.Sprintf("build %d (%s): the result of run %s is for GPU type %s on queue %s, want %s on %s: "+
		"a pipeline or an agent serves the wrong queue, and this is no verdict on the submission (%s)",
		e.Build, e.BuildURL, e.RunID, orUnknown(e.GotGPU), orUnknown(e.GotQueue), e.GPU, e.Queue, e.Outcome)
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return text.Quote(s)
}

// right refuses a result for another GPU type or queue. What a result does not
// name, as those of older runners, is taken for right and logged.
func (w *waiter) right(r *schema.Result) error {
	if r.GPUType == "" || r.Queue == "" {
		w.c.log.Warn("the result does not name GPU type and queue, as older runners do: not compared with what was asked for",
			"build", w.build.Number, "run", w.r.ID, "gpu", w.r.GPU, "queue", w.r.Queue)
	}
	if (r.GPUType == "" || w.r.GPU == "" || strings.EqualFold(r.GPUType, w.r.GPU)) && (r.Queue == "" || w.r.Queue == "" || r.Queue == w.r.Queue) {
		return nil
	}
	o := r.Outcome
	return &WrongMachineError{
		RunID: w.r.ID, Build: w.build.Number, BuildURL: w.build.WebURL, GPU: w.r.GPU, Queue: w.r.Queue,
		GotGPU: r.GPUType, GotQueue: r.Queue, Outcome: text.Line(o.Name+": "+o.Text, 200),
	}
}
