package launcher

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A NoResultError is a build that ended, or cannot go on, without a result of
// this run. Log, when not empty, is the end of the failed job's log and is not
// part of Error's text.
type NoResultError struct {
	RunID    string
	Build    int
	BuildURL string
	State    string   // the build's
	Reason   string   // what the state means, where it needs saying
	Jobs     []string // each command job in words
	Foreign  []string // artifacts of the right name that are not the result
	Log      string   // printable lines
	LogOf    string   // the job it belongs to
	LogErr   error    // why there is none
}

func (e *NoResultError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "build %d (%s) is %s and left no result of run %s", e.Build, e.BuildURL, e.State, e.RunID)
	if e.Reason != "" {
		s.WriteString(": " + e.Reason)
	}
	if len(e.Jobs) > 0 {
		s.WriteString("; jobs: " + strings.Join(e.Jobs, "; "))
	}
	if len(e.Foreign) > 0 {
		s.WriteString("; found instead: " + strings.Join(e.Foreign, "; "))
	}
	if e.LogErr != nil {
		fmt.Fprintf(&s, "; no log of %s: %v", e.LogOf, e.LogErr)
	}
	return s.String()
}

// noResult explains the build as far as it can be asked about.
func (w *wait) noResult(ctx context.Context) *NoResultError {
	if w.build.Jobs == nil && ctx.Err() == nil {
		w.c.tally.others.Add(1)
		if b, err := w.c.build(ctx, w.build.Number); err == nil {
			b.WebURL = w.build.WebURL
			w.build = b
		}
	}
	b := w.build
	e := &NoResultError{RunID: w.runID, Build: b.Number, BuildURL: b.WebURL, State: b.State}
	switch {
	case b.Blocked:
		e.State = "blocked"
		e.Reason = "it waits for a person to unblock a step, which the pipeline should not have"
	case b.State == "not_run":
		e.Reason = "every step was skipped or filtered out; look at the pipeline's steps and branch filters"
	case b.State == "skipped":
		e.Reason = "another build of its branch took its place; switch off skip_queued_branch_builds for the pipeline"
	case b.State == "canceled" && b.CancelReason != "":
		e.Reason = firstLine(b.CancelReason, 200)
	}
	var failed *Job
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if j.Type != "script" {
			continue
		}
		e.Jobs = append(e.Jobs, j.describe())
		if j.State != "passed" && j.StartedAt != nil {
			failed = j
		}
	}
	if failed != nil && ctx.Err() == nil {
		e.LogOf = failed.ID
		e.Log, e.LogErr = w.c.logTail(ctx, b.Number, failed.ID)
	}
	return e
}

const logTailSize = 4096 // bytes

// logTail returns the last lines of a job's log without escape sequences.
func (c *Client) logTail(ctx context.Context, number int, job string) (string, error) {
	tail, err := c.rawTail(ctx, number, job, logTailSize)
	return printable(tail), err
}

// rawTail returns the last size bytes of a job's log as they are.
func (c *Client) rawTail(ctx context.Context, number int, job string, size int) (string, error) {
	path, err := c.buildPath(number, "jobs", job, "log")
	if err != nil {
		return "", err
	}
	req, err := c.api.NewRequest(http.MethodGet, path, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", "text/plain")
	req.Header.Set("Range", fmt.Sprintf("bytes=-%d", size))
	var buf bytes.Buffer
	c.tally.others.Add(1)
	resp, err := c.api.Do(req.WithContext(ctx), &buf)
	if err != nil {
		err = c.explain(req, resp, &buf, err)
		if status(err) == http.StatusRequestedRangeNotSatisfiable { // empty
			return "", nil
		}
		return "", err
	}
	tail := buf.String()
	return tail[max(0, len(tail)-size):], nil // a server may ignore Range
}

// commandLine is the agent's line before a job's command, behind its time stamp
// in Unix milliseconds.
var commandLine = regexp.MustCompile(`\x1b_bk;t=([0-9]+)\x07~~~ Running (?:commands|script)`)

// CommandAt returns when a job's command began, by the agent's clock, as its
// log tells. The log must be short: only its last 64 KiB are looked at.
//
// Errors: the API's (the scope is read_build_logs); a log that does not say.
func (c *Client) CommandAt(ctx context.Context, number int, job string) (time.Time, error) {
	tail, err := c.rawTail(ctx, number, job, 64<<10)
	if err != nil {
		return time.Time{}, err
	}
	found := commandLine.FindStringSubmatch(tail)
	if found == nil {
		return time.Time{}, fmt.Errorf("job %s: its log does not say when the command began", job)
	}
	ms, err := strconv.ParseInt(found[1], 10, 64)
	return time.UnixMilli(ms), err
}

var escapes = regexp.MustCompile("\x1b(\\[[0-9;?]*[A-Za-z]|_[^\x07]*\x07|\\][^\x07]*\x07)")

// printable keeps the lines of a log and drops what would move a cursor.
func printable(s string) string {
	s = escapes.ReplaceAllString(strings.ToValidUTF8(s, "\uFFFD"), "")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, s))
}
