package launcher

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestDownloadFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		setup func(*fake, *fakeBuild)
		want  string // in the error; "": none
		links int    // requests for a link
	}{
		{"expired once", func(f *fake, b *fakeBuild) { f.expired = 1 }, "", 2},
		{"expired always", func(f *fake, b *fakeBuild) { f.expired = 1 << 30 }, "got 403 Forbidden, want 200", fetchAttempts},
		{"wrong hash", func(f *fake, b *fakeBuild) { b.artifacts[0].sum = strings.Repeat("0", 40) }, "want " + strings.Repeat("0", 40), fetchAttempts},
		{"cut on the way", func(f *fake, b *fakeBuild) { f.corrupt = func(d []byte) []byte { return d[:len(d)-1] } }, "bytes, want", fetchAttempts},
		{"larger than listed", func(f *fake, b *fakeBuild) { f.corrupt = func(d []byte) []byte { return append(bytes.Clone(d), ' ') } }, "more than the", fetchAttempts},
		{"oversize", func(f *fake, b *fakeBuild) { b.artifacts[0].size = 1 << 40 }, "want at most", 0},
		{"link elsewhere", func(f *fake, b *fakeBuild) { b.artifacts[0].url = f.storeURL + "/1/art-0" }, "the token goes nowhere else", 0},
		{"link on the same host, other port", func(f *fake, b *fakeBuild) {
			u, _ := url.Parse(f.storeURL)
			b.artifacts[0].url = "http://127.0.0.1:" + u.Port() + "/1/art-0"
		}, "the token goes nowhere else", 0},
		{"link by another scheme", func(f *fake, b *fakeBuild) {
			b.artifacts[0].url = strings.Replace(f.apiURL, "http://", "https://", 1) + "/x"
		}, "the token goes nowhere else", 0},
		{"link with a user", func(f *fake, b *fakeBuild) {
			b.artifacts[0].url = strings.Replace(f.apiURL, "http://", "http://me@", 1) + "/x"
		}, "the token goes nowhere else", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			f.onCreate = func(b *fakeBuild) {
				b.finish("passed")
				tt.setup(f, b)
			}
			_, err := f.client().Submit(t.Context(), submission())
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("Submit: got %v, want the result", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("Submit: got %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret-link") {
				t.Errorf("Submit: the error quotes a signed link: %v", err)
			}
			if got := f.count("/download"); got != tt.links {
				t.Errorf("got %d requests for a link, want %d", got, tt.links)
			}
		})
	}
}

// Under both names of the store, and at each step of a chain of redirects, the
// fake fails the test when it sees the token.
func TestTokenStaysWithTheAPI(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"localhost", "127.0.0.1"} {
		f := newFake(t)
		f.onCreate = func(b *fakeBuild) { b.finish("passed") }
		f.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/download") {
				return false
			}
			u, _ := url.Parse(f.storeURL)
			http.Redirect(w, r, "http://"+host+":"+u.Port()+"/1/art-0", http.StatusFound)
			return true
		}
		if _, err := f.client().Submit(t.Context(), submission()); err != nil {
			t.Errorf("store on %s: %v", host, err)
		}
	}
}

func TestResultIsChosenAmongSeveral(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.perPage = 1 // pagination too
	f.onCreate = func(b *fakeBuild) {
		own := b.meta["run_id"]
		b.finish("passed")
		second := strings.Replace(string(result(own)), `"every phase passed"`, `"second attempt"`, 1)
		b.artifacts = []fakeArtifact{
			{job: "job-0", path: "result.json", data: result("sub-foreign")},
			{job: "job-1", path: "result.json", data: []byte(second)},
			{job: "job-superseded", path: "result.json", data: result(own)},
			{job: "job-1", path: "not-result.json", data: result(own)},
		}
	}
	r, err := f.client().Submit(t.Context(), submission())
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Result.Outcome.Text; got != "second attempt" {
		t.Errorf("chosen result: got outcome %q, want the live attempt's", got)
	}
}
