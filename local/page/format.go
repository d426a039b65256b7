package page

import (
	"cmp"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict/view"
)

func newState(name, tone, mark string) view.State {
	return view.State{Text: strings.ReplaceAll(name, "_", " "), Tone: tone, Mark: mark}
}

// buildState is neutral about a build that did its work when the verdict is not
// a good one: "passed" is the machines' word, not the judge's.
func buildState(b *engine.Build, about subject) view.State {
	s := b.State
	if b.Blocked {
		return newState("blocked", "warn", "dash")
	}
	if s == engine.BuildPassed && about.Verdict.Text != "" && about.Verdict.Tone != "good" {
		return newState(string(s), "idle", "ring")
	}
	return stateOf(string(s), buildLooks[s])
}

// A look is the tone of a state and its mark.
type look struct{ tone, mark string }

// stateOf shows a state; one without a look has not begun.
func stateOf(name string, how look) view.State {
	return newState(name, cmp.Or(how.tone, "idle"), cmp.Or(how.mark, "ring"))
}

var buildLooks = map[engine.BuildState]look{
	engine.BuildPassed:    {"good", "tick"},
	engine.BuildFailed:    {"bad", "cross"},
	engine.BuildFailing:   {"bad", "dot"},
	engine.BuildRunning:   {"busy", "dot"},
	engine.BuildCanceling: {"warn", "dot"},
	engine.BuildCanceled:  {"warn", "cross"},
	engine.BuildNotRun:    {"gone", "dash"},
}

var jobLooks = map[engine.JobState]look{
	engine.JobPassed:        {"good", "tick"},
	engine.JobUnblocked:     {"good", "tick"},
	engine.JobBlocked:       {"warn", "dash"},
	engine.JobFailed:        {"bad", "cross"},
	engine.JobTimedOut:      {"bad", "cross"},
	engine.JobWaitingFailed: {"bad", "dash"},
	engine.JobCanceled:      {"warn", "cross"},
	engine.JobCanceling:     {"warn", "dot"},
	engine.JobTimingOut:     {"warn", "dot"},
	engine.JobAssigned:      {"busy", "dot"},
	engine.JobAccepted:      {"busy", "dot"},
	engine.JobRunning:       {"busy", "dot"},
	engine.JobSkipped:       {"gone", "dash"},
	engine.JobBroken:        {"gone", "dash"},
}

func jobState(j *engine.Job) view.State {
	if j.SoftFailed && (j.State == engine.JobFailed || j.State == engine.JobTimedOut) {
		return newState("soft_"+string(j.State), "warn", "cross")
	}
	return stateOf(string(j.State), jobLooks[j.State])
}

func agentState(a *engine.Agent) view.State {
	s := string(a.State)
	switch {
	case a.State == engine.AgentLost:
		return newState(s, "bad", "cross")
	case a.State == engine.AgentConnected && a.Paused:
		return newState("paused", "warn", "dash")
	case a.State == engine.AgentConnected && a.JobID != "":
		return newState("busy", "busy", "dot")
	case a.State == engine.AgentConnected:
		return newState("idle", "good", "dot")
	case a.State == engine.AgentStopping:
		return newState(s, "warn", "dot")
	}
	return newState(s, "gone", "ring")
}

// A span is a length of time. The browser counts on while it grows.
type span struct {
	Text  string // empty: not begun
	Since int64  // Unix milliseconds of the beginning while it runs, 0 else
}

// between is the span from one time to another. A zero time lies in the future.
func between(from, to, now time.Time) span {
	switch {
	case from.IsZero():
		return span{}
	case to.IsZero():
		return span{Text: format.Elapsed(now.Sub(from)), Since: from.UnixMilli()}
	}
	return span{Text: format.Duration(to.Sub(from))}
}

// moment shows a point in time: "16:04:05" today, "21 Nov 16:04" before.
func (p *pages) moment(t time.Time) view.Moment {
	if t.IsZero() {
		return view.Moment{}
	}
	local, now := t.In(p.opts.Location), p.engine.Now().In(p.opts.Location)
	layout := "2 Jan 15:04"
	if local.YearDay() == now.YearDay() && local.Year() == now.Year() {
		layout = "15:04:05"
	}
	return view.Moment{Text: local.Format(layout), ISO: t.UTC().Format(time.RFC3339Nano), Full: local.Format("2006-01-02 15:04:05.000 MST")}
}

// firstLine is the first line of s that is not blank, at most limit runes.
func firstLine(s string, limit int) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return text.Line(line, limit)
}
