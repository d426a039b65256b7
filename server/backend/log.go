package backend

import (
	"container/list"
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/gpu-mode/kbgen/store"
)

const (
	maxLogs     = 256
	maxLogBytes = 32 << 20

	// freshLog is how long the log of a run is cached that may still grow. Buildkite
	// may get the end of a log a moment after the end of its job.
	freshLog = 5 * time.Second
	settled  = time.Minute

	// A log that is not cached costs two requests. Buildkite allows an organization
	// 200 a minute, and evaluations come first.
	logInterval = 2 * time.Second
	logBurst    = 20
)

// logs caches logs of runs, those that were asked for last.
type logs struct {
	once   sync.Once
	mu     sync.Mutex
	byRun  map[string]*list.Element
	recent *list.List // of *cachedLog, the latest asked first
	bytes  int
	limit  *rate.Limiter
}

// A cachedLog is the log of one run. Its lock is held while the log is read, so that
// only one of many requests for a log asks Buildkite.
type cachedLog struct {
	runID string
	size  int // counted in logs.bytes, under its lock

	reading chan struct{} // 1 deep: a lock that a request can give up waiting for
	text    string
	err     error
	until   time.Time // zero: nothing is cached
	final   bool
}

// get returns the log of a run from the cache, or from read.
//
// Errors: a [*store.Refusal] when too many logs are read at once; those of read, which
// are cached as the log of a run that has not ended.
func (l *logs) get(ctx context.Context, run store.PlannedRun, read func(context.Context, store.PlannedRun) (string, error)) (string, error) {
	c := l.at(run.RunID)
	select {
	case c.reading <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-c.reading }()
	if c.final || time.Now().Before(c.until) {
		return c.text, c.err
	}
	if wait := l.wait(); wait > 0 {
		return "", &store.Refusal{Why: store.OverLimit, RetryAfter: wait, Text: "too many logs are asked for at the moment; try again in a few seconds"}
	}
	text, err := read(ctx, run)
	if ctx.Err() != nil {
		return text, err
	}
	c.text, c.err, c.until = text, err, time.Now().Add(freshLog)
	c.final = err == nil && run.State == store.StateFinished && time.Since(run.Changed) > settled
	l.resize(c, len(text))
	return text, err
}

func (l *logs) at(runID string) *cachedLog {
	l.once.Do(func() {
		l.byRun, l.recent = map[string]*list.Element{}, list.New()
		l.limit = rate.NewLimiter(rate.Every(logInterval), logBurst)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, found := l.byRun[runID]; found {
		l.recent.MoveToFront(e)
		return e.Value.(*cachedLog)
	}
	c := &cachedLog{runID: runID, reading: make(chan struct{}, 1)}
	l.byRun[runID] = l.recent.PushFront(c)
	l.trim()
	return c
}

func (l *logs) wait() time.Duration {
	now := time.Now()
	reserved := l.limit.ReserveN(now, 1)
	wait := reserved.DelayFrom(now)
	if wait > 0 {
		reserved.CancelAt(now)
	}
	return time.Duration(math.Ceil(wait.Seconds())) * time.Second
}

// resize counts what a log takes now, unless it has been removed meanwhile.
func (l *logs) resize(c *cachedLog, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, found := l.byRun[c.runID]; found && e.Value == c {
		l.bytes += size - c.size
		c.size = size
		l.trim()
	}
}

// trim removes what was asked for longest ago. The latest stays, whatever its size.
func (l *logs) trim() {
	for l.recent.Len() > 1 && (l.recent.Len() > maxLogs || l.bytes > maxLogBytes) {
		oldest := l.recent.Remove(l.recent.Back()).(*cachedLog)
		delete(l.byRun, oldest.runID)
		l.bytes -= oldest.size
	}
}
