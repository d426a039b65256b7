package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/popcorn"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/server/servertest"
)

// Pages, their forms, the API and popcorn-cli's routes live on one address: each
// request reaches the one that it is for.
func TestEachRequestReachesItsPart(t *testing.T) {
	ctx := context.Background()
	s := servertest.SQLite(t)
	servertest.Save(t, s, servertest.Board("sort"))
	nothing := httptest.NewServer(http.NotFoundHandler()) // a Buildkite that has nothing
	defer nothing.Close()
	client, err := launcher.New(launcher.Options{BaseURL: nothing.URL, Token: "bkua_secret", Org: "gpu-mode", Pipeline: "kernelbot"})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := New(ctx, Options{Store: s, Launcher: client, PublicURL: "http://kb.test", Name: "Games", AdminToken: "token-of-the-admin"})
	if err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(srv.Handler())
	defer site.Close()
	cli, err := s.NewCLIID(ctx, "7", "ann")
	if err != nil {
		t.Fatal(err)
	}
	session, err := s.NewSession(ctx, "7", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	ann := &popcorn.Client{URL: site.URL, CLIID: cli}
	accepted, err := ann.Submit(ctx, "sort", "H100", "test", "a.py", []byte("x = 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, path, kind string, body url.Values) (int, string, string) {
		t.Helper()
		req, err := http.NewRequest(method, site.URL+path, strings.NewReader(body.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.AddCookie(&http.Cookie{Name: "kbserve_session", Value: session})
		if method == "POST" {
			req.Header.Set("Content-Type", kind)
			req.Header.Set("Sec-Fetch-Site", "same-origin")
		}
		resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header.Get("Content-Type"), string(text)
	}
	for path, want := range map[string]string{"/": "text/html", "/b/sort": "text/html", "/s/1": "text/html", "/queue": "text/html", "/nothing": "text/html", "/leaderboards": "application/json", "/api/v1/me": "application/json", "/user/submissions": "application/json"} {
		if status, kind, body := send("GET", path, "", nil); !strings.HasPrefix(kind, want) || status >= 500 {
			t.Errorf("GET %s: %d %s %.200s, want %s", path, status, kind, body, want)
		}
	}
	if status, kind, body := send("POST", "/s/1/cancel", "application/x-www-form-urlencoded", url.Values{}); status != http.StatusSeeOther {
		t.Errorf("a page's form: %d %s %.300s, want 303", status, kind, body)
	}
	if after, err := ann.Submission(ctx, accepted.ID); err != nil || !after.Done || after.JobStatus != "failed" {
		t.Errorf("after cancelling by the form: %+v, %v", after, err)
	}
}
