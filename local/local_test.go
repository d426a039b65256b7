package local

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/fault"
	"github.com/gpu-mode/kbgen/local/notice"
)

// patience bounds every wait; only a hang reaches it.
const patience = 5 * time.Minute

func start(t *testing.T, opts Options) *Server {
	t.Helper()
	opts.Dir = t.TempDir()
	s, err := Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// status asks for a path with a bearer token and returns the status.
func status(t *testing.T, s *Server, method, path, token string) int {
	t.Helper()
	req, err := http.NewRequest(method, s.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// Every API is on its path, and asks for its token.
func TestRoutes(t *testing.T) {
	s := start(t, Options{})
	for _, tt := range []struct {
		method, path, token string
		want                int
	}{
		{"GET", "/", "", 200},
		{"GET", "/v2/access-token", s.APIToken(), 200},
		{"GET", "/v2/access-token", "", 401},
		{"GET", "/v2/access-token", s.AgentToken(), 401},
		{"GET", "/v3/ping", s.APIToken(), 401},
		{"POST", "/v3/register", "", 401},
		{"POST", "/agentedge.v1.AgentEdgeService/StreamPings", "", 401},
		{"GET", "/kblocal/faults", "", 401},
		{"GET", "/kblocal/faults", s.APIToken(), 200},
		{"POST", "/kblocal/agents/nobody/lose", s.APIToken(), 404},
		{"GET", "/nothing", "", 404},
	} {
		if got := status(t, s, tt.method, tt.path, tt.token); got != tt.want {
			t.Errorf("%s %s = %d, want %d", tt.method, tt.path, got, tt.want)
		}
	}
}

func TestScopesLimitTheToken(t *testing.T) {
	s := start(t, Options{Scopes: []string{"read_builds"}})
	if got := status(t, s, "GET", "/v2/organizations/gpu-mode/builds", s.APIToken()); got != 200 {
		t.Errorf("with its scope: %d", got)
	}
	if got := status(t, s, "GET", "/v2/organizations/gpu-mode/agents", s.APIToken()); got != 403 {
		t.Errorf("without its scope: %d", got)
	}
	if _, err := Start(Options{Dir: t.TempDir(), Scopes: []string{"read_all"}}); err == nil || !strings.Contains(err.Error(), `"read_all"`) {
		t.Errorf("an unknown scope: %v", err)
	}
}

// Faults apply to every API, but not to their own control.
func TestFaultsBefallEverything(t *testing.T) {
	s := start(t, Options{Faults: []fault.Rule{{Path: "*", Status: 503}}})
	for _, path := range []string{"/", "/v2/meta", "/v3/ping"} {
		if got := status(t, s, "GET", path, s.APIToken()); got != 503 {
			t.Errorf("GET %s = %d, want 503", path, got)
		}
	}
	if got := status(t, s, "GET", "/kblocal/faults", s.APIToken()); got != 200 {
		t.Errorf("the control of faults: %d", got)
	}
	if _, err := Start(Options{Dir: t.TempDir(), Faults: []fault.Rule{{Path: "*"}}}); err == nil {
		t.Error("a rule that does nothing is accepted")
	}
}

func TestAwaitAgentsSaysWhatIsMissing(t *testing.T) {
	s := start(t, Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err := s.AwaitAgents(ctx, 2)
	if err == nil || !strings.Contains(err.Error(), "waiting for 2 agents, 0 are there") {
		t.Errorf("AwaitAgents = %v", err)
	}
}

// The page's events do not hold up a shutdown.
func TestCloseEndsStreams(t *testing.T) {
	s, err := Start(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(s.URL() + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

// A configured webhook gets signed events.
func TestWebhook(t *testing.T) {
	got := make(chan http.Header, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	defer receiver.Close()
	s := start(t, Options{Webhook: &notice.Options{URL: receiver.URL, Token: "shared"}})
	if _, err := s.Engine.CreatePipeline(engine.Pipeline{Slug: "p", Configuration: "steps: [{command: 'true'}]"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Engine.CreateBuild("p", engine.NewBuild{}); err != nil {
		t.Fatal(err)
	}
	select {
	case h := <-got:
		if h.Get("X-Buildkite-Event") == "" || !strings.HasPrefix(h.Get("X-Buildkite-Signature"), "timestamp=") {
			t.Errorf("headers %v", h)
		}
	case <-time.After(patience):
		t.Errorf("no event within %s", patience)
	}
}
