package launcher

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestRefusalsAreFinal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status     int
		body, want string
	}{
		{401, `{"message":"Unauthorized"}`, "401 Unauthorized: Unauthorized"},
		{403, `{"message":"Forbidden"}`, "403 Forbidden: Forbidden"},
		{404, `{"message":"No pipeline found"}`, "No pipeline found"},
		{422, `{"message":"Commit is missing"}`, "Commit is missing"},
	} {
		f := newFake(t)
		f.fault = func(w http.ResponseWriter, r *http.Request) bool { return fail(w, tt.status, tt.body) }
		_, err := f.client().Submit(t.Context(), submission())
		var api *APIError
		if !errors.As(err, &api) || api.Status != tt.status || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d: got %v, want %q", tt.status, err, tt.want)
		}
		if n := f.count(""); n != 1 {
			t.Errorf("%d: got %d requests, want 1", tt.status, n)
		}
	}
}

func TestAnswersThatAreNotJSON(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := f.client()
	for _, tt := range []struct {
		name  string
		fault func(http.ResponseWriter, *http.Request) bool
		want  string
	}{
		{"HTML with 200", func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			io.WriteString(w, "<html>log in</html>")
			return true
		}, "200 OK: the body is text/html; charset=utf-8, want JSON"},
		{"HTML with 502", func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(502)
			return true
		}, "502 Bad Gateway: no message, the body is text/html"},
		{"cut", func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{"number": 4`)
			return true
		}, "the body broke off or is no JSON after 12 bytes"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "https://elsewhere.example/", http.StatusFound)
			return true
		}, "302 Found"},
	} {
		f.fault = tt.fault
		_, err := c.get(t.Context(), 1)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestListFollowsPages(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.perPage = 7
	for i := range 23 {
		f.builds = append(f.builds, &fakeBuild{number: i + 1, state: "running", meta: map[string]string{"run_id": "x"}})
	}
	c := f.client()
	got, err := c.list(t.Context(), url.Values{"exclude_pipeline": {"true"}})
	if err != nil || len(got) != 23 || f.count("GET") != 4 {
		t.Errorf("list: got %d builds, %v, in %d requests, want 23 in 4", len(got), err, f.count("GET"))
	}
}

// A page that is too large, since builds repeat their payloads, is asked for in
// smaller ones.
func TestLargePagesAreAskedForInParts(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for i := range 30 {
		f.builds = append(f.builds, &fakeBuild{number: i + 1, state: "running", meta: map[string]string{"run_id": "x"}})
	}
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("per_page") != "100" {
			return false
		}
		io.WriteString(w, "[")
		blank := []byte(strings.Repeat(" ", 1<<20))
		for range maxBody>>20 + 1 {
			if _, err := w.Write(blank); err != nil {
				break // the client has had enough
			}
		}
		io.WriteString(w, "]")
		return true
	}
	builds, err := f.client().Builds(t.Context(), Query{MetaData: map[string]string{"run_id": "x"}})
	if err != nil || len(builds) != 30 || f.count("per_page=25") != 2 {
		t.Errorf("Builds: got %d, %v after %d requests, want 30 in pages of 25", len(builds), err, f.count("GET"))
	}
	builds, err = f.client().Builds(t.Context(), Query{States: []string{"running"}, Limit: 7})
	if err != nil || len(builds) != 7 || builds[0].Number != 30 {
		t.Errorf("Builds: got %d, %v, want the newest 7", len(builds), err)
	}
}

func TestNoErrorQuotesPayloadOrToken(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		return fail(w, 422, `{"message":"Validation failed","errors":[{"field":"env","code":"too_large"}]}`)
	}
	s := submission()
	_, err := f.client().Submit(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), "Validation failed; env: too_large") {
		t.Fatalf("Submit: got %v, want the API's words", err)
	}
	encoded, _ := s.Payload.Encode()
	for _, secret := range []string{testToken, encoded, "private text"} {
		if strings.Contains(fmt.Sprintf("%+v", err), secret) {
			t.Errorf("error quotes %.20q…", secret)
		}
	}
}
