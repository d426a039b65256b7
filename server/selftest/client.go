package selftest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
)

// maxAnswer is how much of a server's answer is read, in bytes: a poll has the
// code and reports of a small example.
const maxAnswer = 32 << 20

// submit sends the example as popcorn-cli does, and returns the submission's id.
func (x *selftest) submit(ctx context.Context) (int64, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", x.file.Name)
	if err != nil {
		return 0, err
	}
	if _, err := io.WriteString(part, x.file.Text); err != nil {
		return 0, err
	}
	if err := form.Close(); err != nil {
		return 0, err
	}
	var answer struct {
		Details struct {
			ID int64 `json:"id"`
		} `json:"details"`
	}
	err = x.ask(ctx, "POST", "/submission/"+url.PathEscape(x.board)+"/"+url.PathEscape(x.GPU)+"/"+url.PathEscape(x.Mode), form.FormDataContentType(), &body, &answer)
	if err == nil && answer.Details.ID == 0 {
		err = fmt.Errorf("the server's answer has no submission id")
	}
	return answer.Details.ID, err
}

// wait polls as popcorn-cli does until the submission is over.
func (x *selftest) wait(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, x.Timeout)
	defer stop()
	for {
		var answer struct {
			Done bool `json:"done"`
			Job  struct {
				Status string `json:"status"`
			} `json:"job"`
		}
		err := x.ask(ctx, "GET", fmt.Sprintf("/user/submissions/%d", x.id), "", nil, &answer)
		switch {
		case ctx.Err() != nil:
			return &Error{fmt.Errorf("submission %d is not over after %v", x.id, x.Timeout), "kbserve doctor --age 1m"}
		case err != nil:
			return err
		case answer.Done:
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(x.Interval):
		}
	}
}

// ask makes one request as the test's user.
func (x *selftest) ask(ctx context.Context, method, path, contentType string, body io.Reader, into any) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	what := method + " " + path
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(x.URL, "/")+path, body)
	if err != nil {
		return fmt.Errorf("URL: got %s, want http://HOST:PORT or https://HOST", text.Quote(text.Shorten(x.URL, 200)))
	}
	request.Header.Set("X-Popcorn-Cli-Id", x.cliID)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return &Error{fmt.Errorf("%s: %s", what, text.Line(err.Error(), 300)), "kbserve serve"}
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s: %s", what, text.Line(err.Error(), 300))
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s: got status %d: %s", what, response.StatusCode, text.Line(string(data), 300))
	}
	if json.Unmarshal(data, into) != nil {
		return fmt.Errorf("%s: the answer is not what kbserve sends", what)
	}
	return nil
}
