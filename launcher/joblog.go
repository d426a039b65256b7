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

	"github.com/gpu-mode/kbgen/schema/text"
)

const logTailSize = 4096 // bytes

// logTail returns the last lines of a job's log without escape sequences.
func (c *Client) logTail(ctx context.Context, number int, job string) (string, error) {
	tail, err := c.rawTail(ctx, number, job, logTailSize)
	return strings.TrimSpace(text.Lines(tail)), err
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

// Spans returns where the time of a run went. Without the log of its bootstrap, such
// as without the scope read_build_logs, it is less exact.
func (c *Client) Spans(ctx context.Context, r *Report) []Span {
	var began time.Time
	if jobs := r.Timeline.Jobs; len(jobs) >= 2 {
		began, _ = c.commandAt(ctx, r.Build, jobs[0].ID)
	}
	return r.spans(began)
}

// commandAt returns when a job's command began, by the agent's clock, as its
// log says. The log must be short: only its last 64 KiB are read.
//
// Errors: the API's (the scope is read_build_logs); a log that does not say.
func (c *Client) commandAt(ctx context.Context, number int, job string) (time.Time, error) {
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
