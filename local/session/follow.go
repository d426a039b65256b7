package session

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Shown says what a follower shows.
type Shown struct {
	Logs  bool
	One   bool // one build only: lines do not name it
	Plain bool // no colours
}

// terminal reports whether w is one that shows colours.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// A Follower prints what happens to builds, one line per event.
type Follower struct {
	engine *engine.Engine
	out    io.Writer
	sub    *engine.Subscription
	show   Shown

	mu   sync.Mutex
	jobs map[string]*tail
	idle *sync.Cond      // signalled when an event has been shown
	over map[string]bool // builds whose end has been shown, by id
}

// A tail is what has been shown of one log.
type tail struct {
	offset int64
	rest   []byte // an unfinished line
}

// NewFollower subscribes at once, so that nothing from now on is missed.
func NewFollower(e *engine.Engine, out io.Writer, show Shown) *Follower {
	show.Plain = show.Plain || !terminal(out)
	f := &Follower{engine: e, out: out, sub: e.Subscribe(), show: show, jobs: map[string]*tail{}, over: map[string]bool{}}
	f.idle = sync.NewCond(&f.mu)
	return f
}

// Run prints until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	defer f.sub.Close()
	for {
		ev, err := f.sub.Next(ctx)
		if err != nil {
			return
		}
		f.mu.Lock()
		f.event(ev)
		if ev.Name == engine.EventBuildFinished || ev.Name == engine.EventBuildSkipped {
			f.over[ev.Build.ID] = true
		}
		f.idle.Broadcast()
		f.mu.Unlock()
	}
}

// Drain waits until the end of a build has been shown.
func (f *Follower) Drain(buildID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.over[buildID] {
		f.idle.Wait()
	}
}

func (f *Follower) event(ev engine.Event) {
	switch ev.Name {
	case engine.EventBuildScheduled, engine.EventBuildRunning, engine.EventBuildFailing:
		if !f.show.One {
			f.line("build %d %s", ev.Build.Number, ev.Build.State)
		}
	case engine.EventBuildFinished, engine.EventBuildSkipped:
		f.line("build %d %s after %s", ev.Build.Number, ev.Build.State, since(ev.Build.CreatedAt, ev.Build.FinishedAt))
	case engine.EventJobStarted:
		if ev.Job.HostImage != "" {
			f.line("%s WARNING: --host docker: its command runs ON THIS MACHINE, not in %s", f.name(ev), ev.Job.HostImage)
		}
		f.line("%s started on %s", f.name(ev), ev.Job.AgentName)
	case engine.EventUploadRefused:
		f.line("%s upload refused, nothing of it runs:", f.name(ev))
		f.line("%s   %s", f.name(ev), ev.Job.UploadRefused)
	case engine.EventBuildBlocked:
		f.line("%s waits for somebody to unblock it%s", f.name(ev), prompt(ev.Job))
	case engine.EventJobLog:
		if f.show.Logs {
			f.log(ev, false)
		}
	case engine.EventJobFinished:
		if ev.Job.Type != engine.TypeScript {
			return
		}
		if f.show.Logs {
			f.log(ev, true)
		}
		f.line("%s %s", f.name(ev), howEnded(ev.Job))
	case engine.EventAgentLost:
		f.line("agent %s lost", ev.Agent.Name)
	}
}

// howEnded says how a job ended.
func howEnded(j *engine.Job) string {
	s := string(j.State)
	if !j.StartedAt.IsZero() {
		s += " after " + since(j.StartedAt, j.FinishedAt)
	}
	if j.ExitStatus != nil && *j.ExitStatus != 0 {
		s += fmt.Sprintf(", exit status %d", *j.ExitStatus)
	}
	if j.SignalReason != "" {
		s += ", " + j.SignalReason
	}
	if j.SoftFailed {
		s += ", soft failed"
	}
	if j.BrokenReason != "" {
		s += ": " + j.BrokenReason
	}
	if j.RetriedIn != "" {
		s += ", retried"
	}
	return s
}

func since(from, to time.Time) string {
	return to.Sub(from).Round(time.Millisecond).String()
}

const (
	maxName = 200  // runes of a job's name
	maxLine = 2000 // runes of a line that is not a log's
)

// line shows what happened. Names and reasons in it were written by others.
func (f *Follower) line(format string, args ...any) {
	fmt.Fprintln(f.out, text.Line(fmt.Sprintf(format, args...), maxLine))
}

// name is what lines call the job of an event.
func (f *Follower) name(ev engine.Event) string {
	name := ev.Job.ShortName(ev.Build.Env)
	if f.show.One {
		return "[" + name + "]"
	}
	return fmt.Sprintf("[%d %s]", ev.Build.Number, name)
}

// log shows the new complete lines of a job's log; at its end the rest, too.
func (f *Follower) log(ev engine.Event, last bool) {
	t := f.jobs[ev.Job.ID]
	if t == nil {
		t = &tail{}
		f.jobs[ev.Job.ID] = t
	}
	if last {
		defer delete(f.jobs, ev.Job.ID)
	}
	data, err := f.engine.ReadLog(ev.Job.ID, t.offset, ev.Job.LogSize)
	if err != nil {
		f.line("%s log: %v", f.name(ev), err)
		return
	}
	t.offset += int64(len(data))
	t.rest = append(t.rest, data...)
	for {
		line, rest, found := bytes.Cut(t.rest, []byte("\n"))
		if !found {
			break
		}
		t.rest = rest
		f.logLine(ev, line)
	}
	if last && len(t.rest) > 0 {
		f.logLine(ev, t.rest)
	}
}

// logLine shows one line of a log: its text, its tabs and, on a terminal, its
// colours. Time stamps of the agent and whatever else is not text vanish.
func (f *Follower) logLine(ev engine.Event, line []byte) {
	clean := text.Coloured
	if f.show.Plain {
		clean = text.Lines
	}
	if noRepository.Match(line) && f.withoutCheckout(ev.Build.Pipeline) {
		return // there is none to ask, and nobody asked for one
	}
	fmt.Fprintf(f.out, "%s %s\n", text.Line(f.name(ev), maxName), clean(strings.TrimRight(string(line), "\r")))
}

// noRepository is what the agent says at every upload from a directory that is
// no git repository. The log on the page keeps it.
var noRepository = regexp.MustCompile(`WARN.*Error running git rev-parse "[^"]*": exit status 128`)

func (f *Follower) withoutCheckout(pipeline string) bool {
	p, err := f.engine.Pipeline(pipeline)
	return err == nil && p.SkipCheckout
}

// prompt is what a block step asks.
func prompt(j *engine.Job) string {
	if j.Step.Prompt == "" {
		return ""
	}
	return ": " + j.Step.Prompt
}
