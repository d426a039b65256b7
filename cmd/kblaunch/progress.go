package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/gpu-mode/kbgen/launcher"
)

// progress keeps one line of a terminal up to date; on anything else it is
// quiet.
type progress struct {
	out  io.Writer // nil: quiet
	done chan struct{}
	over sync.WaitGroup

	mu   sync.Mutex
	last launcher.Event
	at   time.Time
}

// newProgress begins; stop must follow, and ends its goroutine.
func newProgress(stderr io.Writer) *progress {
	p := &progress{done: make(chan struct{})}
	f, ok := stderr.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return p
	}
	p.out = f
	p.over.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.mu.Lock()
				p.draw()
				p.mu.Unlock()
			case <-p.done:
				return
			}
		}
	})
	return p
}

func (p *progress) event(e launcher.Event) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.at = e, time.Now()
	p.draw()
}

// draw writes the line over the one before it. p.mu is held.
func (p *progress) draw() {
	if p.at.IsZero() {
		return
	}
	seconds := (p.last.Elapsed + time.Since(p.at)).Seconds()
	fmt.Fprintf(p.out, "\r\x1b[K⏳ %s, %.0f s", p.last.Phase, seconds)
	if p.last.Build > 0 {
		fmt.Fprintf(p.out, "  build %d %s", p.last.Build, p.last.BuildURL)
	}
}

// stop wipes the line.
func (p *progress) stop() {
	close(p.done)
	p.over.Wait()
	if p.out != nil {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
