package api_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

// stored is everything that a request could have left in the database.
func stored(t *testing.T, s *store.Store) string {
	t.Helper()
	ctx := context.Background()
	var b bytes.Buffer
	n, err := s.Export(ctx, &b, "", true)
	if err != nil {
		t.Fatal(err)
	}
	users, err := s.Users(ctx)
	if err != nil {
		t.Fatal(err)
	}
	boards, err := s.Boards(ctx)
	if err != nil {
		t.Fatal(err)
	}
	invites, err := s.Invites(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	limits, err := s.Limits(ctx, "sort")
	if err != nil {
		t.Fatal(err)
	}
	stats, err := s.Stats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	accepting, err := s.Accepting(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range boards {
		boards[i].Policy = nil // a pointer prints as its address
	}
	return fmt.Sprint(n, b.String(), users, boards, invites, limits, stats, accepting)
}

// raw is one request, byte for byte. HOST becomes the server's.
func raw(t *testing.T, r *rig, text string) answer {
	t.Helper()
	host := strings.TrimPrefix(r.URL, "http://")
	c, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, strings.ReplaceAll(text, "HOST", host)); err != nil {
		t.Logf("the server did not read all: %v", err)
	}
	if tcp, is := c.(*net.TCPConn); is {
		tcp.CloseWrite()
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("no answer to %.80q: %v", text, err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// Requests that nobody's client sends are refused as the sender's fault, and leave
// nothing behind.
func TestHostileRequests(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	if _, err := r.client("ann").Submit(context.Background(), "sort", "H100", "leaderboard", "a.py", code); err != nil {
		t.Fatal(err)
	}
	servertest.Evaluate(t, r.s, nil)
	before := stored(t, r.s)

	part := func(headers, content string) string { return "--XXXX\r\n" + headers + "\r\n\r\n" + content + "\r\n" }
	const disposition = `Content-Disposition: form-data; name="file"; filename="a.py"`
	multi := func(body string) form { return form{"multipart/form-data; boundary=XXXX", body} }
	good := part(disposition, "x = 1") + "--XXXX--\r\n"
	submit := "/submission/sort/H100/test"
	for _, c := range []struct {
		name         string
		as           string
		method, path string
		body         any
	}{
		{"a method that nobody has", "ann", "BREW", submit, multi(good)},
		{"TRACE", "ann", "TRACE", submit, nil},
		{"PUT for POST", "ann", "PUT", submit, multi(good)},
		{"a path with ..", "ann", "POST", "/submission/../submission/sort/H100/test", multi(good)},
		{"a path with escaped ..", "ann", "POST", "/submission/%2e%2e/sort/H100/test", multi(good)},
		{"a path with //", "ann", "POST", "//submission/sort/H100/test", multi(good)},
		{"a path with an escaped slash", "ann", "POST", "/submission/sort%2fx/H100/test", multi(good)},
		{"a path with U+0000", "ann", "POST", "/submission/sort%00/H100/test", multi(good)},
		{"a path with a line end", "ann", "POST", "/submission/sort%0d%0aX-A:b/H100/test", multi(good)},
		{"a path that is not UTF-8", "ann", "POST", "/submission/%ff%fe/H100/test", multi(good)},
		{"a backslash in a path", "ann", "POST", "/submission/sort%5c/H100/test", multi(good)},
		{"a very long path", "ann", "POST", "/submission/" + strings.Repeat("a", 100_000) + "/H100/test", multi(good)},
		{"a board named as SQL", "ann", "POST", "/submission/sort'%20OR%20'1'='1/H100/test", multi(good)},
		{"a GPU type with a blank", "ann", "POST", "/submission/sort/H100%20/test", multi(good)},
		{"a mode that is private", "ann", "POST", "/submission/sort/H100/private", multi(good)},
		{"a query that cannot be read", "ann", "GET", "/user/submissions?limit=%zz", nil},
		{"a query with semicolons", "ann", "GET", "/user/submissions?limit=1;offset=2", nil},
		{"a negative limit", "ann", "GET", "/user/submissions?limit=-1", nil},
		{"a negative offset", "ann", "GET", "/user/submissions?offset=-1", nil},
		{"a limit of zero", "ann", "GET", "/user/submissions?limit=0", nil},
		{"a limit beyond all numbers", "ann", "GET", "/user/submissions?limit=99999999999999999999999", nil},
		{"a limit with a fraction", "ann", "GET", "/user/submissions?limit=1e3", nil},
		{"two limits", "ann", "GET", "/user/submissions?limit=1&limit=2", nil},
		{"an id of zero", "ann", "GET", "/user/submissions/0", nil},
		{"a negative id", "ann", "GET", "/user/submissions/-1", nil},
		{"an id in hex", "ann", "GET", "/user/submissions/0x1", nil},
		{"an id with a sign", "ann", "GET", "/user/submissions/+1", nil},
		{"an id beyond 64 bits", "ann", "GET", "/user/submissions/9223372036854775808", nil},
		{"an id beyond 32 bits", "ann", "GET", "/user/submissions/9223372036854775807", nil},
		{"an id as SQL", "ann", "DELETE", "/user/submissions/1%20OR%201=1", nil},
		{"somebody else's submission", "bob", "DELETE", "/user/submissions/1", nil},
		{"an offset beyond memory", "", "GET", "/submissions/sort/H100?offset=9999999999", nil},
		{"a limit below zero of a ranking", "", "GET", "/submissions/sort/H100?limit=-5", nil},
		{"a GPU type of nobody's", "", "GET", "/submissions/sort/%00", nil},
		{"no content type", "ann", "POST", submit, good},
		{"JSON for a form", "ann", "POST", submit, map[string]string{"file": "x"}},
		{"a url-encoded form", "ann", "POST", submit, form{"application/x-www-form-urlencoded", "file=x"}},
		{"multipart/mixed", "ann", "POST", submit, form{"multipart/mixed; boundary=XXXX", good}},
		{"no boundary", "ann", "POST", submit, form{"multipart/form-data", good}},
		{"an empty boundary", "ann", "POST", submit, form{`multipart/form-data; boundary=""`, good}},
		{"a gigantic boundary", "ann", "POST", submit, form{"multipart/form-data; boundary=" + strings.Repeat("X", 5000), good}},
		{"another boundary than in the body", "ann", "POST", submit, form{"multipart/form-data; boundary=YYYY", good}},
		{"a content type that cannot be read", "ann", "POST", submit, form{"multipart/form-data; boundary=\"", good}},
		{"an empty body", "ann", "POST", submit, multi("")},
		{"a body that stops", "ann", "POST", submit, multi(part(disposition, "x = 1"))},
		{"a part without headers", "ann", "POST", submit, multi("--XXXX\r\n\r\nx\r\n--XXXX--\r\n")},
		{"a part with a header that is none", "ann", "POST", submit, multi(part("nonsense", "x") + "--XXXX--\r\n")},
		{"a part with huge headers", "ann", "POST", submit, multi(part(disposition+"\r\nX-A: "+strings.Repeat("a", 60_000), "x") + "--XXXX--\r\n")},
		{"a part with many headers", "ann", "POST", submit, multi(part(disposition+strings.Repeat("\r\nX: y", 20_000), "x") + "--XXXX--\r\n")},
		{"two files", "ann", "POST", submit, multi(part(disposition, "x = 1") + good)},
		{"a hundred parts", "ann", "POST", submit, multi(strings.Repeat(part(`Content-Disposition: form-data; name="a"`, "x"), 100) + good)},
		{"a field in place of a file", "ann", "POST", submit, multi(part(`Content-Disposition: form-data; name="file"`, "x") + "--XXXX--\r\n")},
		{"a file of another name", "ann", "POST", submit, multi(part(`Content-Disposition: form-data; name="File"; filename="a.py"`, "x") + "--XXXX--\r\n")},
		{"a file name that is not UTF-8", "ann", "POST", submit, multi(part("Content-Disposition: form-data; name=\"file\"; filename=\"\xff\xfe.py\"", "x") + "--XXXX--\r\n")},
		{"a file name with a control", "ann", "POST", submit, multi(part("Content-Disposition: form-data; name=\"file\"; filename=\"a\x1b[2J.py\"", "x") + "--XXXX--\r\n")},
		{"a file name that turns around", "ann", "POST", submit, multi(part("Content-Disposition: form-data; name=\"file\"; filename=\"\u202eyp.a.py\"", "x") + "--XXXX--\r\n")},
		{"a file name of 300 bytes", "ann", "POST", submit, multi(part(`Content-Disposition: form-data; name="file"; filename="`+strings.Repeat("a", 300)+`.py"`, "x") + "--XXXX--\r\n")},
		{"a file name without an extension", "ann", "POST", submit, multi(part(`Content-Disposition: form-data; name="file"; filename="passwd"`, "x") + "--XXXX--\r\n")},
		{"a file that is not UTF-8", "ann", "POST", submit, multi(part(disposition, "\xff\xfe") + "--XXXX--\r\n")},
		{"a file with U+0000", "ann", "POST", submit, multi(part(disposition, "a\x00b") + "--XXXX--\r\n")},
		{"a file of one byte too many", "ann", "POST", submit, multi(part(disposition, strings.Repeat("x", store.MaxCode+1)) + "--XXXX--\r\n")},
		{"a form of eight megabytes", "ann", "POST", submit, multi(part(`Content-Disposition: form-data; name="a"`, strings.Repeat("x", 8<<20)) + good)},
		{"the stream route without a file", "ann", "POST", "/sort/H100/test", multi("--XXXX--\r\n")},
		{"the stream route, unknown board", "ann", "POST", "/api/v9/test", multi(good)},
		{"JSON for Go's depth", "ann", "POST", "/user/join", form{"application/json", strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000)}},
		{"JSON of another type", "ann", "POST", "/user/join", form{"application/json", `{"code": 5}`}},
		{"JSON that is a list", "ann", "POST", "/user/join", form{"application/json", `["code"]`}},
		{"JSON that is null", "ann", "POST", "/user/join", form{"application/json", `null`}},
		{"JSON that stops", "ann", "POST", "/user/join", form{"application/json", `{"code": "x`}},
		{"two JSON values", "ann", "POST", "/user/join", form{"application/json", `{"code": "x"}{"code": "y"}`}},
		{"JSON that is too large", "ann", "POST", "/user/join", form{"application/json", `{"code": "` + strings.Repeat("x", 100_000) + `"}`}},
		{"JSON with another content type", "ann", "POST", "/user/join", form{"text/plain", `{"code": "x"}`}},
		{"JSON in UTF-16", "ann", "POST", "/user/join", form{"application/json", "\xff\xfe{\x00}\x00"}},
		{"a member that is not known", "ann", "POST", "/api/v1/join", form{"application/json", `{"code": "x", "admin": true}`}},
		{"a limit beyond all integers", "admin", "PUT", "/admin/leaderboards/sort/rate-limits", form{"application/json", `{"mode_category":"test","max_submissions_per_hour":1e99}`}},
		{"a limit with a fraction in JSON", "admin", "PUT", "/admin/leaderboards/sort/rate-limits", form{"application/json", `{"mode_category":"test","max_submissions_per_hour":1.5}`}},
		{"a limit below zero", "admin", "PUT", "/admin/leaderboards/sort/rate-limits", form{"application/json", `{"mode_category":"test","max_submissions_per_hour":-1}`}},
		{"no limit given", "admin", "PUT", "/admin/leaderboards/sort/rate-limits", form{"application/json", `{"mode_category":"test"}`}},
		{"a billion invites", "admin", "POST", "/admin/invites", form{"application/json", `{"leaderboards":["dark"],"count":1000000000}`}},
		{"invites to no board", "admin", "POST", "/admin/invites", form{"application/json", `{"leaderboards":[],"count":1}`}},
		{"invites to an unknown board", "admin", "POST", "/admin/invites", form{"application/json", `{"leaderboards":["dark","none"],"count":1}`}},
		{"a ban of nobody", "admin", "POST", "/admin/ban/none", nil},
		{"admin without the token", "ann", "POST", "/admin/stop", nil},
		{"admin of nobody", "", "POST", "/admin/stop", nil},
		{"a log-in at no provider", "", "GET", "/auth/init?provider=", nil},
		{"a log-in at another provider", "", "GET", "/auth/init?provider=../x", nil},
		{"a state that nobody signed", "", "GET", "/auth/web/github?code=x&state=AAAA.AAAA", nil},
		{"a CLI's state of nobody's", "", "GET", "/auth/cli/github?code=x&state=AAAA", nil},
		{"no code", "", "GET", "/auth/cli/github?state=eyJjbGlfaWQiOiIwMTIzNDU2Nzg5YWJjZGVmIn0", nil},
		{"confirming nothing", "", "POST", "/auth/cli/confirm", form{"application/x-www-form-urlencoded", "x=y"}},
		{"logging out nobody", "", "POST", "/auth/logout", nil},
	} {
		u, err := url.Parse(r.URL)
		if err != nil {
			t.Fatal(err)
		}
		var got answer
		if strings.ContainsAny(c.path, " \x00") || strings.Contains(c.path, "..") {
			got = raw(t, r, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nX-Popcorn-Cli-Id: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", c.method, c.path, u.Host, r.cli["ann"]))
		} else {
			got = r.ask(t, c.as, c.method, c.path, c.body)
		}
		if got.status < 400 || got.status > 499 || !strings.Contains(got.body, `"detail"`) {
			t.Errorf("%s: %d %.300s, want 4xx with a detail", c.name, got.status, got.body)
		}
	}

	head := "Host: HOST\r\nConnection: close\r\nX-Popcorn-Cli-Id: " + r.cli["ann"] + "\r\nContent-Type: multipart/form-data; boundary=XXXX\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(good))
	for name, text := range map[string]string{
		"no host":                        "POST /submission/sort/H100/test HTTP/1.1\r\nConnection: close\r\n\r\n",
		"two hosts":                      "POST /submission/sort/H100/test HTTP/1.1\r\nHost: evil\r\n" + head + length + "\r\n" + good,
		"another host in the target":     "POST http://evil.example/submission/sort/H100/test HTTP/1.1\r\n" + head + length + "\r\n" + good + "SMUGGLED",
		"two lengths":                    "POST /submission/sort/H100/test HTTP/1.1\r\n" + head + length + "Content-Length: 5\r\n\r\n" + good,
		"a negative length":              "POST /submission/sort/H100/test HTTP/1.1\r\n" + head + "Content-Length: -1\r\n\r\n" + good,
		"a length beyond all numbers":    "POST /submission/sort/H100/test HTTP/1.1\r\n" + head + "Content-Length: 99999999999999999999\r\n\r\n" + good,
		"a length that says too much":    "POST /submission/sort/H100/test HTTP/1.1\r\n" + head + "Content-Length: 999\r\n\r\n" + good[:40],
		"chunks that are none":           "POST /submission/sort/H100/test HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\nzz\r\nnonsense\r\n0\r\n\r\n",
		"a chunk beyond all numbers":     "POST /submission/sort/H100/test HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx\r\n0\r\n\r\n",
		"chunks that stop":               "POST /submission/sort/H100/test HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n5\r\n--XXX\r\n",
		"an encoding that nobody has":    "POST /submission/sort/H100/test HTTP/1.1\r\n" + head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"two encodings":                  "POST /submission/sort/H100/test HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"huge headers":                   "GET /user/submissions HTTP/1.1\r\n" + head + "X-A: " + strings.Repeat("a", 2<<20) + "\r\n\r\n",
		"a header with a blank in it":    "GET /user/submissions HTTP/1.1\r\n" + head + "X Popcorn: x\r\n\r\n",
		"a header with U+0000":           "GET /user/submissions HTTP/1.1\r\n" + head + "X-A: \x00\r\n\r\n",
		"a folded header":                "GET /user/submissions HTTP/1.1\r\n folded\r\n" + head + "\r\n",
		"two CLI ids":                    "GET /user/submissions HTTP/1.1\r\n" + head + "X-Popcorn-Cli-Id: " + r.cli["bob"] + "\r\n\r\n",
		"two tokens":                     "GET /admin/stats HTTP/1.1\r\n" + head + "Authorization: Bearer " + adminToken + "\r\nAuthorization: Bearer x\r\n\r\n",
		"a forged session":               "GET /user/submissions HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nCookie: kbserve_session=7; kbserve_session=8\r\n\r\n",
		"HTTP of another world":          "GET /user/submissions HTTP/9.9\r\n" + head + "\r\n",
		"no HTTP at all":                 "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
		"a request line with two blanks": "GET  /user/submissions HTTP/1.1\r\n" + head + "\r\n",
	} {
		if got := raw(t, r, text); got.status < 400 || got.status > 499 && got.status != 501 && got.status != 505 {
			t.Errorf("%s: %d %.300s, want 4xx", name, got.status, got.body)
		}
	}
	if after := stored(t, r.s); after != before {
		t.Errorf("the database has changed:\n%.2000s\nwas\n%.2000s", after, before)
	}
	if log := r.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("the log has errors:\n%s", log)
	}
}

// A client that says where it comes from is not believed unless a proxy of ours says
// so; a request id with odd characters is not taken over.
func TestHeadersThatLie(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	req, err := http.NewRequest("GET", r.URL+"/api/v1/me", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"X-Forwarded-For": "203.0.113.9", "X-Real-Ip": "203.0.113.9", "X-Request-Id": "<script>alert(1)</script>", "X-Http-Method-Override": "DELETE", "X-Original-Url": "/admin/stats"} {
		req.Header.Set(name, value)
	}
	got := r.send(t, req)
	if got.status != 200 || strings.Contains(got.header.Get("X-Request-Id"), "<") || !strings.Contains(got.body, `"id":""`) {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
	if log := r.log.String(); strings.Contains(log, "203.0.113.9") || strings.Contains(log, "script") {
		t.Errorf("the log believes what a client says:\n%s", log)
	}
}
