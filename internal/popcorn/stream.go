package popcorn

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// Stream hands in a file and reads events until the result.
//
// Errors: [*Refusal], [*Ended] for an error event, an answer of another shape.
func (c *Client) Stream(ctx context.Context, board, gpu, mode, fileName string, code []byte) (*Result, error) {
	resp, err := c.upload(ctx, "/"+strings.ToLower(board)+"/"+gpu+"/"+strings.ToLower(mode), fileName, code)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return nil, fmt.Errorf("the stream's content type: got %q", kind)
	}
	result := &Result{}
	event, data := "", ""
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		line := lines.Text()
		if value, found := strings.CutPrefix(line, "event:"); found {
			event = strings.TrimSpace(value)
		} else if value, found := strings.CutPrefix(line, "data:"); found {
			if data != "" {
				return nil, fmt.Errorf("an event has two lines of data, of which the client reads the last")
			}
			data = strings.TrimSpace(value)
		} else if line == "" && event != "" {
			over, err := result.read(event, data)
			if over || err != nil {
				return result, err
			}
			event, data = "", ""
		}
	}
	return nil, fmt.Errorf("the stream ended without a result or an error: %v", lines.Err())
}

func (r *Result) read(event, data string) (over bool, err error) {
	switch event {
	case "status":
		r.Statuses++
		return false, read(event, []byte(data), new(any))
	case "error":
		var answer Ended
		if err := read(event, []byte(data), &answer); err != nil {
			return true, err
		}
		return true, &answer
	case "result":
		return true, read(event, []byte(data), r)
	}
	return true, fmt.Errorf("an event %q, which the client does not know", event)
}
