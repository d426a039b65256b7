package fault_test

import (
	"errors"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local/fault"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]fault.Rule{
		"POST /v2/*/builds status=500 count=2 latency=200ms": {Method: "POST", Path: "/v2/*/builds", Status: 500, Count: 2, Latency: fault.Latency(200 * time.Millisecond)},
		"  /x\tdrop_after  after=3":                          {Path: "/x", DropAfter: true, After: 3},
		"* duplicate=true drop=false":                        {Path: "*", Duplicate: true},
		`/x body="a \"b\" <c>\n"`:                            {Path: "/x", Body: "a \"b\" <c>\n"},
		"/x body=plain":                                      {Path: "/x", Body: "plain"},
		"/x rate_limit=rest:0":                               {Path: "/x", RateLimit: &fault.RateLimit{Scope: "rest"}},
		"GET /x cut=5":                                       {Method: "GET", Path: "/x", Cut: 5},
	} {
		got, err := fault.Parse(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "it has no path",
		"POST":                     "it has no path",
		"POST status=500":          `got "status=500", want one that begins with / or *`,
		"post /x drop":             `method: got "post", want capitals`,
		"/x":                       "it does nothing",
		"/x after=2":               "it does nothing",
		"/x status=abc":            `status: got "abc", want a whole number`,
		"/x status=700":            "status: got 700, want 200 to 599",
		"/x status=500 status=501": "status is there twice",
		"/x statsu=500":            `"statsu" is not known, want after, body, count`,
		"/x drop=maybe":            `drop: got "maybe", want true or false`,
		"/x latency=3":             `latency: got "3", want a duration such as 200ms`,
		"/x latency=11m":           "latency: got 11m0s, want 0 to 10m0s",
		"/x drop status=500":       "got 2 actions, want one of",
		"/x cut=-1":                "want at least 0",
		"/x rate_limit=rest":       "want SCOPE:SECONDS",
		"/x rate_limit=graphql:5":  `got scope "graphql", want rest or rest_user`,
		`/x body="open`:            "a double quote is not closed",
		`/x body="a"b`:             "want a string in double quotes",
		"/x drop /y":               `"/y" is not known`,
	} {
		_, err := fault.Parse(text)
		if !errors.Is(err, fault.ErrRule) || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want an error with %q", text, err, want)
		}
	}
}

// FuzzParse holds that what a rule prints is read back as the rule.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"POST /v2/*/builds status=500 count=2 latency=200ms", `/x body="a \"b\" \u00e9"`, "/x rate_limit=rest_user:30", "* cut=3 after=1", `/x body="\xff"`, "/x body==",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := fault.Parse(text)
		if err != nil {
			return
		}
		again, err := fault.Parse(r.String())
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("Parse(%q) = %+v, whose text %q is read as %+v, %v", text, r, r.String(), again, err)
		}
	})
}

func TestControl(t *testing.T) {
	var in fault.Injector
	send := func(method, path, body, kind string) (int, string) {
		req := httptest.NewRequest(method, path, strings.NewReader(body))
		req.Header.Set("Content-Type", kind)
		rec := httptest.NewRecorder()
		in.Control().ServeHTTP(rec, req)
		return rec.Code, strings.TrimSpace(rec.Body.String())
	}
	const json = "application/json; charset=utf-8"
	for _, tt := range []struct {
		method, path, body, kind string
		status                   int
		want                     string
	}{
		{"GET", "/", "", "", 200, `[]`},
		{"POST", "/", `{"rule":"/x drop count=1"}`, json, 201, `{"id":1,"text":"/x count=1 drop","rule":{"path":"/x","count":1,"drop":true},"matched":0,"hits":0}`},
		{"POST", "/", `{"method":"GET","path":"/y","latency":"1s","rate_limit":{"scope":"rest","reset":3}}`, json, 201, `{"id":2,"text":"GET /y latency=1s rate_limit=rest:3","rule":{"method":"GET","path":"/y","latency":"1s","rate_limit":{"scope":"rest","reset":3}},"matched":0,"hits":0}`},
		{"POST", "/", `{"rule":"/x drop"}`, "text/plain", 415, `{"message":"want Content-Type: application/json"}`},
		{"POST", "/", `{"rule":"/x"}`, json, 422, `it does nothing`},
		{"POST", "/", `{"rule":"/x drop","path":"/y"}`, json, 422, `rule excludes all other members`},
		{"POST", "/", `{"path":"/x","stauts":500}`, json, 422, `unknown field`},
		{"POST", "/", `{"path":"/x","latency":"5"}`, json, 422, `want a duration such as 200ms`},
		{"POST", "/", `null`, json, 422, `path`},
		{"POST", "/", `{`, json, 400, `the body is not JSON`},
		{"PUT", "/", ``, json, 405, `want GET, POST or DELETE`},
		{"DELETE", "/?id=9", ``, "", 404, `no rule has the id`},
		{"DELETE", "/?id=1", ``, "", 204, ``},
		{"GET", "/", "", "", 200, `[{"id":2,`},
		{"DELETE", "/", ``, "", 204, ``},
		{"GET", "/", "", "", 200, `[]`},
	} {
		status, got := send(tt.method, tt.path, tt.body, tt.kind)
		if status != tt.status || !strings.Contains(got, tt.want) {
			t.Errorf("%s %s %s = %d %s, want %d %s", tt.method, tt.path, tt.body, status, got, tt.status, tt.want)
		}
	}
}
