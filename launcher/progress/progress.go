// Package progress shows a person where runs are while they are waited for.
package progress

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Pauses of what progress asks beside the polling. The first question comes
// when a run has waited for longer than most wait for an idle machine, so that
// one that finds its machine costs no request more.
const (
	firstLook = 3 * time.Second
	nextLook  = 20 * time.Second
	logPause  = 10 * time.Second // between two looks at a running job's log
)

// A Progress shows where runs are: on a terminal one line that is kept up to date,
// with the place in the queue and the last line of the log; elsewhere only that
// nobody serves a queue, which waiting does not mend.
type Progress struct {
	stderr   io.Writer
	terminal bool
	width    int
	client   *launcher.Client
	report   func(launcher.Event) // gets the changes too
	ctx      context.Context
	end      context.CancelFunc
	over     sync.WaitGroup

	mu     sync.Mutex
	runs   map[string]*seen
	order  []string
	total  int
	warned map[string]bool // queues that nobody serves
}

// seen is a run as it was last seen.
type seen struct {
	launcher.Event
	at     time.Time
	queued time.Time // since when it waits
	asked  time.Time // when somebody last asked about its queue or its log
	where  string    // what came of it
}

// New begins; [Progress.Stop] must follow, and ends its goroutine. report gets each
// event that changes something.
func New(ctx context.Context, stderr io.Writer, client *launcher.Client, report func(launcher.Event), runs int) *Progress {
	p := &Progress{stderr: stderr, client: client, report: report, total: runs, runs: map[string]*seen{}, warned: map[string]bool{}, width: 80}
	p.ctx, p.end = context.WithCancel(ctx)
	if f, ok := stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.terminal = true
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 20 {
			p.width = w
		}
	}
	p.over.Go(p.watch)
	return p
}

// watch draws the line anew each second, and looks after runs that wait.
func (p *Progress) watch() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
			p.look()
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		}
	}
}

// Event takes what the launcher saw of a run. It does not block.
func (p *Progress) Event(e launcher.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.runs[e.RunID]
	if s == nil {
		s = &seen{}
		p.runs[e.RunID] = s
		p.order = append(p.order, e.RunID)
	}
	if s.Phase != e.Phase || s.Build != e.Build || s.State != e.State {
		p.report(e)
	}
	if s.Phase != e.Phase {
		s.where = ""
		if e.Phase == launcher.PhaseQueued {
			s.queued = time.Now()
		}
	}
	s.Event, s.at = e, time.Now()
	p.draw()
}

// look asks about one run that waits, or on a terminal runs, for some time.
func (p *Progress) look() {
	p.mu.Lock()
	now := time.Now()
	var run string
	var e launcher.Event
	for _, id := range p.order {
		s := p.runs[id]
		since := now.Sub(s.asked)
		waits := s.Phase == launcher.PhaseQueued && now.Sub(s.queued) > firstLook && since > nextLook
		runs := s.Phase == launcher.PhaseRunning && p.terminal && p.total == 1 && since > logPause
		if s.Build > 0 && (waits && (p.terminal || s.asked.IsZero()) || runs) {
			s.asked = now
			run, e = id, s.Event
			break
		}
	}
	p.mu.Unlock()
	if run == "" {
		return
	}
	where, queue, unserved := p.where(e)
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.runs[run]; s.Phase == e.Phase {
		s.where = where
	}
	if unserved && !p.warned[queue] {
		p.warned[queue] = true
		p.wipe()
		fmt.Fprintf(p.stderr, "kblaunch: note: nobody serves queue %s now: build %d waits until an agent of it connects (kblaunch queues)\n", queue, e.Build)
	}
}

// where asks how a run stands beyond its state. What cannot be had is left out.
func (p *Progress) where(e launcher.Event) (where, queue string, unserved bool) {
	run, err := p.client.Open(p.ctx, e.Build)
	if err != nil {
		return "", "", false
	}
	queue = run.Queue
	if e.Phase == launcher.PhaseRunning {
		b, err := p.client.Build(p.ctx, e.Build)
		if err != nil {
			return "", queue, false
		}
		if j := b.Evaluation(queue); j != nil {
			where, _ = p.client.LastLine(p.ctx, e.Build, j.ID) // a log that cannot be read is not shown
		}
		return where, queue, false
	}
	var words []string
	if ahead, err := p.client.Ahead(p.ctx, run); err == nil && p.terminal {
		words = append(words, fmt.Sprintf("%d before it", ahead))
	}
	switch s, err := p.client.Serving(p.ctx, queue); {
	case err != nil: // as when the token may not read agents
	case s.Agents == 0 && s.Paused > 0:
		words, unserved = append(words, fmt.Sprintf("its %d agents are paused", s.Paused)), true
	case s.Agents == 0:
		words, unserved = append(words, "no agent serves it"), true
	default:
		words = append(words, fmt.Sprintf("%d of %d agents busy", s.Busy, s.Agents))
	}
	return strings.Join(words, ", "), queue, unserved
}

// draw writes the line over the one before it. p.mu is held.
func (p *Progress) draw() {
	if !p.terminal || len(p.order) == 0 {
		return
	}
	fmt.Fprintf(p.stderr, "\r\x1b[K%s", text.Line(p.words(), p.width-1))
}

// words are the line. p.mu is held.
func (p *Progress) words() string {
	if p.total > 1 {
		phases := map[launcher.Phase]int{}
		longest := time.Duration(0)
		for _, s := range p.runs {
			phases[s.Phase]++
			longest = max(longest, s.Elapsed+time.Since(s.at))
		}
		var words []string
		for _, phase := range slices.Sorted(maps.Keys(phases)) {
			words = append(words, fmt.Sprintf("%d %s", phases[phase], phase))
		}
		return fmt.Sprintf("⏳ %d runs: %s, %.0f s", p.total, strings.Join(words, ", "), longest.Seconds())
	}
	s := p.runs[p.order[0]]
	line := fmt.Sprintf("⏳ %s, %.0f s", s.Phase, (s.Elapsed + time.Since(s.at)).Seconds())
	if s.where != "" {
		line += " (" + s.where + ")"
	}
	if s.Build > 0 {
		line += fmt.Sprintf("  build %d %s", s.Build, s.BuildURL)
	}
	return line
}

func (p *Progress) wipe() {
	if p.terminal {
		fmt.Fprint(p.stderr, "\r\x1b[K")
	}
}

// Stop ends the goroutine and wipes the line.
func (p *Progress) Stop() {
	p.end()
	p.over.Wait()
	p.wipe()
}
