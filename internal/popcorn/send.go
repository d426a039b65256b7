package popcorn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
)

// upload sends a form with one part, which has a file name and no content type.
func (c *Client) upload(ctx context.Context, path, fileName string, code []byte) (*http.Response, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="` + fileName + `"`}})
	if err == nil {
		part.Write(code)
		err = form.Close()
	}
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+path, &body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	return c.do(req, false)
}

func (c *Client) get(ctx context.Context, shape, path string, into any) error {
	return c.call(ctx, shape, http.MethodGet, path, nil, false, into)
}

// call sends body as JSON, unless it is nil, and reads an answer of that shape.
func (c *Client) call(ctx context.Context, shape, method, path string, body any, admin bool, into any) error {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, reader)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.do(req, admin)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return read(shape, answer, into)
}

func (c *Client) do(req *http.Request, admin bool) (*http.Response, error) {
	if admin {
		req.Header.Set("Authorization", "Bearer "+c.AdminToken)
	} else if c.CLIID != "" {
		req.Header.Set("X-Popcorn-Cli-Id", c.CLIID)
	}
	req.Header.Set("Accept", "*/*")
	req.Header.Set("User-Agent", "")
	resp, err := cmp.Or(c.HTTP, http.DefaultClient).Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	r := &Refusal{Status: resp.StatusCode, Detail: string(body), RetryAfter: resp.Header.Get("Retry-After")}
	var problem struct{ Detail any }
	if json.Unmarshal(body, &problem) == nil {
		if text, is := problem.Detail.(string); is {
			r.Detail = text
		}
	}
	if strings.TrimSpace(r.Detail) == "" {
		return nil, fmt.Errorf("status %d without a detail: the client has nothing to print", resp.StatusCode)
	}
	return nil, r
}
