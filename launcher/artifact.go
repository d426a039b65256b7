package launcher

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/buildkite/go-buildkite/v3/buildkite"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

const (
	resultName = "result.json"

	// fetchAttempts bounds how often a file is fetched that its store refuses, or
	// that is another than the one listed. It takes about a minute. A store that
	// is down is asked for as long as there is time.
	fetchAttempts = 8
)

// An artifact is one file a job uploaded.
type artifact struct {
	ID          string
	JobID       string `json:"job_id"`
	State       string
	Path        string
	Filename    string
	FileSize    int64  `json:"file_size"`
	SHA1        string `json:"sha1sum"`
	DownloadURL string `json:"download_url"`
}

// A noArtifactError is a build without a result of this run among its artifacts.
type noArtifactError struct {
	foreign []string // what was found instead, in words
}

func (e *noArtifactError) Error() string { return "no result of this run among the artifacts" }

// A storeError is a file that is not as it was listed, or that the store refuses
// to give.
type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

// fetch finds the result of this run among the build's artifacts, and checks
// and decodes it. Each of its steps is asked for again after answers that may be
// better next time, until ctx ends.
func (w *waiter) fetch(ctx context.Context) (*Report, error) {
	report, err := w.fetchFrom(ctx)
	if err == nil || errors.As(err, new(*noArtifactError)) || errors.As(err, new(*WrongMachineError)) {
		return report, err
	}
	return nil, fmt.Errorf("fetching the result of build %d (%s): %w", w.build.Number, w.build.WebURL, err)
}

func (w *waiter) fetchFrom(ctx context.Context) (*Report, error) {
	var found []artifact
	err := w.c.insist(ctx, "listing artifacts", func() (err error) {
		found, err = w.candidates(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	w.timeline.Listed = time.Now()
	none := &noArtifactError{}
	for _, a := range found {
		raw, err := w.persistDownload(ctx, a)
		if err != nil {
			return nil, err
		}
		r, why := w.decode(ctx, raw)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if why != "" {
			none.foreign = append(none.foreign, a.Path+": "+why)
			continue
		}
		if err := w.right(r); err != nil {
			return nil, err
		}
		return w.report(r, raw), nil
	}
	return nil, none
}

// persistDownload downloads one artifact, by a new link each time.
func (w *waiter) persistDownload(ctx context.Context, a artifact) (raw []byte, err error) {
	refusals := 0
	err = w.c.insist(ctx, "downloading an artifact", func() (err error) {
		raw, err = w.c.download(ctx, w.build.Number, a)
		if errors.As(err, new(storeError)) {
			if refusals++; refusals == fetchAttempts {
				return permanentError{err}
			}
		}
		return err
	})
	return raw, err
}

// decode reads a result, and says why it is not this run's.
func (w *waiter) decode(ctx context.Context, raw []byte) (r *schema.Result, why string) {
	r, err := schema.DecodeResultContext(ctx, raw)
	if err != nil {
		return nil, err.Error()
	}
	if r.RunID != w.r.ID {
		return nil, fmt.Sprintf("it is of run %q", text.Line(r.RunID, 100))
	}
	return r, ""
}

func (w *waiter) report(r *schema.Result, raw []byte) *Report {
	t := w.timeline
	t.Running, t.Finished = w.life.seen()
	t.Fetched = time.Now()
	return &Report{Result: r, Raw: raw, RunID: w.r.ID, Build: w.build.Number, BuildURL: w.build.WebURL, Canceled: w.build.State == "canceled", Timeline: t}
}

// candidates lists the build's files of that name. Several jobs, or several
// attempts of one, may each have left one: latest attempts come first, newer
// jobs before older.
func (w *waiter) candidates(ctx context.Context) ([]artifact, error) {
	path, err := w.c.buildPath(w.build.Number, "artifacts")
	if err != nil {
		return nil, err
	}
	q := url.Values{"path": {"*" + resultName}, "state": {"finished"}}
	found, err := pages[artifact](withUse(ctx, useArtifacts), w.c, path, q)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(a artifact) bool { return a.Filename != resultName || a.State != "finished" })
	if len(found) < 2 {
		return found, nil
	}
	b, err := w.c.get(ctx, w.build.Number)
	if err != nil {
		return nil, err
	}
	age := func(a artifact) int { // 0: the newest job; a superseded attempt is in no list of jobs
		for i := range b.Jobs {
			if j := &b.Jobs[len(b.Jobs)-1-i]; j.ID == a.JobID && !j.Retried {
				return i
			}
		}
		return len(b.Jobs)
	}
	slices.Reverse(found) // among equals, the later upload
	slices.SortStableFunc(found, func(a, b artifact) int { return cmp.Compare(age(a), age(b)) })
	return found, nil
}

// download gets one artifact: the link from the API with the token, then the
// file from wherever it lies, without. Size and SHA-1 must be the listed ones.
func (c *Client) download(ctx context.Context, number int, a artifact) ([]byte, error) {
	if a.FileSize > schema.MaxResult {
		return nil, permanentError{fmt.Errorf("artifact %s: got %d bytes, want at most %d", a.Path, a.FileSize, schema.MaxResult)}
	}
	link, err := c.link(ctx, number, a)
	if err != nil {
		return nil, err
	}
	data, err := c.file(ctx, link, a.FileSize)
	if err != nil {
		return nil, fmt.Errorf("artifact %s from %s: %w", a.Path, link.Host, err)
	}
	if int64(len(data)) != a.FileSize {
		return nil, storeError{fmt.Errorf("artifact %s from %s: got %d bytes, want %d", a.Path, link.Host, len(data), a.FileSize)}
	}
	sum := sha1.Sum(data)
	if got := hex.EncodeToString(sum[:]); a.SHA1 != "" && !strings.EqualFold(got, a.SHA1) {
		return nil, storeError{fmt.Errorf("artifact %s from %s: got SHA-1 %s, want %s", a.Path, link.Host, got, text.Line(a.SHA1, 60))}
	}
	return data, nil
}

// link asks the API where the artifact lies. The request carries the token, so
// it goes to the base URL's own scheme and host only.
func (c *Client) link(ctx context.Context, number int, a artifact) (*url.URL, error) {
	u, err := url.Parse(a.DownloadURL)
	if err != nil || u.Scheme != c.base.Scheme || !strings.EqualFold(u.Host, c.base.Host) || u.User != nil {
		return nil, permanentError{fmt.Errorf("artifact %s: its download_url lies on %q, want %s: the token goes nowhere else", a.Path, hostOf(u), hostOf(c.base))}
	}
	req, err := c.api.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.api.Do(req.WithContext(withUse(ctx, useDownload)), io.Discard)
	var refused *buildkite.ErrorResponse
	if !errors.As(err, &refused) || refused.Response.StatusCode/100 != 3 {
		if err == nil {
			return nil, fmt.Errorf("build %d: artifact %s: got %d, want a redirect", number, a.Path, resp.StatusCode)
		}
		return nil, c.explain(req, resp, &bytes.Buffer{}, err)
	}
	to, err := refused.Response.Location()
	if err != nil {
		return nil, fmt.Errorf("build %d: artifact %s: a redirect to nowhere: %v", number, a.Path, err)
	}
	if to.Scheme != "https" && to.Scheme != c.base.Scheme {
		return nil, fmt.Errorf("build %d: artifact %s: redirected to %s://%s, want https", number, a.Path, to.Scheme, to.Host)
	}
	return to, nil
}

func hostOf(u *url.URL) string {
	if u == nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// A storeStatusError is an answer of the store that is not the file.
type storeStatusError struct {
	status     int
	retryAfter time.Duration
}

func (e *storeStatusError) Error() string {
	return fmt.Sprintf("got %d %s, want 200", e.status, http.StatusText(e.status))
}

// newStoreClient makes the client that fetches files: no token, no cookies, a
// few redirects that stay encrypted and say nothing of the signed link.
func newStoreClient(base *url.URL, transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: transport,
		Timeout:   2 * time.Minute,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > 3 {
				return errors.New("more than 3 redirects")
			}
			if req.URL.Scheme != "https" && req.URL.Scheme != base.Scheme {
				return fmt.Errorf("redirected to %s, want https", req.URL.Scheme)
			}
			req.Header.Del("Referer")
			return nil
		},
	}
}

// file fetches a file of at most size bytes. Links are signed, so no error
// quotes one.
func (c *Client) file(ctx context.Context, link *url.URL, size int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, link.String(), nil)
	if err != nil {
		return nil, errors.New("not a usable link")
	}
	resp, err := c.store.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		err := error(&storeStatusError{resp.StatusCode, retryAfter(resp.Header, time.Now())})
		if permanentStatus(resp.StatusCode) { // an expired link, mostly
			err = storeError{err}
		}
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, size+1))
	if err != nil {
		return nil, fmt.Errorf("after %d bytes: %w", len(data), err)
	}
	if int64(len(data)) > size {
		return nil, storeError{fmt.Errorf("got more than the %d bytes listed", size)}
	}
	return data, nil
}
