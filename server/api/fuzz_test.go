package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/server/identity"
	"github.com/gpu-mode/kbgen/server/servertest"
)

// answers sends a request to the handler itself and holds the answer to what every
// one must be: no fault of ours, and a reason where it says no.
func (r *rig) answers(t *testing.T, method, path, kind, as, body string) int {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("Content-Type", kind)
	r.sign(req, as)
	w := httptest.NewRecorder()
	r.Config.Handler.ServeHTTP(w, req)
	if w.Code >= 500 && w.Code != http.StatusNotImplemented {
		t.Errorf("%s %s with %q, %q: %d %s", method, path, kind, body, w.Code, w.Body)
	}
	if w.Code >= 400 && method != http.MethodHead && !strings.Contains(w.Body.String(), `"detail":`) {
		t.Errorf("%s %s with %q, %q: %d without a detail: %s", method, path, kind, body, w.Code, w.Body)
	}
	return w.Code
}

// No form makes the server fail, and nothing is taken that is no Python file.
func FuzzUpload(f *testing.F) {
	r := newRig(f, servertest.SQLite(f), nil)
	good := upload("a.py", "x = 1\n")
	f.Add(good.kind, good.body)
	f.Add("multipart/form-data; boundary=XXXX", strings.Replace(good.body, "a.py", `../../a".py`, 1))
	f.Add("multipart/form-data; boundary=\"X X\"", "--X X\r\nContent-Disposition: form-data; name=file; filename*=UTF-8''%ff.py\r\n\r\nx\r\n--X X--")
	f.Add("multipart/form-data; boundary=X", "--X\nContent-Disposition: form-data; name=\"file\"; filename=\"a.cu\"\nContent-Transfer-Encoding: quoted-printable\n\n=41\n--X--\n")
	f.Add("multipart/form-data; boundary=XXXX", "--XXXX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.py\"\r\n\r\n#!POPCORN gpus A B\n#!POPCORN leaderboard\n\r\n--XXXX--\r\n")
	f.Fuzz(func(t *testing.T, kind, body string) {
		r.answers(t, "POST", "/submission/sort/H100/test", kind, "ann", body)
		r.answers(t, "POST", "/api/v1/submissions?mode=test", kind, "ann", body)
		for len(r.woken) > 0 {
			<-r.woken
		}
	})
}

// No JSON makes the server fail.
func FuzzJSON(f *testing.F) {
	r := newRig(f, servertest.SQLite(f), nil)
	for _, body := range []string{`{"code": "x"}`, `{"leaderboards": ["dark"], "count": 2}`, `{"mode_category": "test", "max_submissions_per_hour": 5}`, `{"limits": [{"gpu": "H100", "category": "test", "per_hour": 5}]}`, `{"boards": ["dark"], "count": 1}`, `{"banned": true}`, `{"visibility": "closed"}`, `{"why": "\u0000"}`, `{"code": "\ud800"}`, `null`, `[]`, `{"count": 1e400}`} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r.answers(t, "POST", "/user/join", "application/json", "ann", body)
		r.answers(t, "POST", "/api/v1/join", "application/json", "ann", body)
		for _, target := range []string{"PUT /admin/leaderboards/sort/rate-limits", "POST /admin/leaderboards/sort/visibility", "POST /api/v1/admin/submissions/1/hacked", "POST /api/v1/admin/submissions/1/verify", "POST /api/v1/admin/submissions/1/decision",
			"PATCH /api/v1/admin/boards/sort", "PUT /api/v1/admin/users/8/banned"} {
			method, path, _ := strings.Cut(target, " ")
			r.answers(t, method, path, "application/json", "admin", body)
		}
	})
}

// No path, query or credential makes the server fail or lets anybody be an admin.
func FuzzRequest(f *testing.F) {
	r := newRig(f, servertest.SQLite(f), nil)
	for _, path := range []string{"/user/submissions?limit=5&offset=0", "/user/submissions/1", "/submissions/sort/H100", "/gpus/sort", "/leaderboards", "/api/v1/boards/sort/ranking?gpu=H100", "/api/v1/submissions/1/events", "/auth/init?provider=github", "/auth/web/github?code=x&state=a.b", "/auth/cli/github?code=x&state=AAAA", "/admin/stats", "/runner_queue/H100"} {
		f.Add(path, "Bearer x", "id", "kbserve_session=x")
	}
	f.Fuzz(func(t *testing.T, path, token, id, cookie string) {
		if strings.Contains(path, "/auth/init") && strings.Contains(path, "github") {
			return // makes a row each time, as it should
		}
		req, err := http.NewRequest("GET", "http://kb.test"+path, nil)
		if err != nil || !strings.HasPrefix(path, "/") {
			return
		}
		req.URL.Host = ""
		req.RemoteAddr = "192.0.2.1:5"
		req.Header.Set("Authorization", token)
		if token == "" {
			req.Header.Del("Authorization")
		}
		if id != "" {
			req.Header.Set(identity.HeaderCLI, id)
		}
		req.Header.Set("Cookie", cookie)
		w := httptest.NewRecorder()
		r.Config.Handler.ServeHTTP(w, req)
		if w.Code >= 500 {
			t.Errorf("GET %q: %d %s", path, w.Code, w.Body)
		}
		if strings.HasPrefix(req.URL.Path, "/admin/") && w.Code < 400 && w.Code != 301 && w.Code != 307 {
			t.Errorf("GET %q with %q: %d", path, token, w.Code)
		}
	})
}
