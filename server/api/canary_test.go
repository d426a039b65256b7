package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

const (
	canaryCode   = "canary-code-of-ann"
	canaryPublic = "canary-printed-in-public"
	canarySecret = "canary-of-a-secret-case"
)

// plant fills a rig with what must not be seen, and returns it by name.
func plant(t *testing.T, r *rig) (secrets, private map[string]string) {
	t.Helper()
	ctx := context.Background()
	for _, mode := range []string{"leaderboard", "test"} {
		if _, err := r.client("ann").Submit(ctx, "sort", "H100", mode, "a.py", []byte("# "+canaryCode+"\n")); err != nil {
			t.Fatal(err)
		}
	}
	var seed int64
	servertest.Evaluate(t, r.s, func(p store.PlannedRun) *schema.Result {
		canary := canaryPublic
		if p.Secret {
			canary = canarySecret
			e, err := r.s.Evaluation(ctx, p)
			if err != nil || e.Seed == nil {
				t.Fatal(e, err)
			}
			seed = *e.Seed
		}
		result := servertest.Result(p.Mode, true, 1000)
		for i := range result.Runs {
			run := result.Runs[i].Run
			run.Stdout, run.Stderr, run.Command = canary, canary, canary
			run.Result = append(run.Result, schema.Entry{Key: "test.0.message", Value: canary})
		}
		return result
	})
	if _, err := r.client("ann").Submit(ctx, "sort", "B200", "test", "a.py", []byte("# "+canaryCode+" again\n")); err != nil {
		t.Fatal(err)
	}
	session, err := r.s.NewSession(ctx, "7", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	invites, err := r.s.NewInvites(ctx, []string{"dark"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	r.q.Waits[3] = backend.Wait{GPU: "B200"}
	secrets = map[string]string{"a secret case": canarySecret, "the admin's token": adminToken, "a client's secret": "canary-client-secret", "a session": session}
	if seed > 1e7 { // a short one, one in two hundred, stands in other numbers too
		secrets["the seed"] = fmt.Sprint(seed)
	}
	for name, id := range r.cli {
		secrets[name+"'s CLI id"] = id
	}
	return secrets, map[string]string{"ann's code": canaryCode, "what ann's run printed": canaryPublic, "an invite": invites[0]}
}

// Nothing that is secret comes out of any route, whoever asks, or into the log; and
// what is somebody's own only to them.
func TestNothingSecretComesOut(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		secrets, private := plant(t, r)
		asked := 0
		saw := map[string]bool{}
		for _, as := range []string{"", "bob", "ann", "admin"} {
			for _, target := range targets(t, private["an invite"]) {
				got := r.ask(t, as, target.method, target.path, target.body)
				asked++
				text := got.body + fmt.Sprint(got.header)
				for what, canary := range secrets {
					if strings.Contains(text, canary) {
						t.Errorf("%s %s as %q shows %s: %d %s", target.method, target.path, as, what, got.status, text)
					}
				}
				for what, canary := range private {
					if !strings.Contains(text, canary) || strings.Contains(target.path, canary) {
						continue
					}
					if saw[as+what] = true; as == "" || as == "bob" || as == "ann" && what == "an invite" {
						t.Errorf("%s %s as %q shows %s: %d %s", target.method, target.path, as, what, got.status, text)
					}
				}
			}
		}
		if asked < 4*60 || !saw["ann"+"ann's code"] || !saw["ann"+"what ann's run printed"] || !saw["admin"+"an invite"] {
			t.Errorf("%d requests saw %v: the crawl does not reach what it should", asked, saw)
		}
		for _, canaries := range []map[string]string{secrets, private} {
			for what, canary := range canaries {
				if log := r.log.String(); strings.Contains(log, canary) {
					t.Errorf("the log has %s", what)
				}
			}
		}
	})
}

type target struct {
	method, path string
	body         any
}

// targets are all routes with values that are there, the harmless ones first.
func targets(t *testing.T, invite string) (all []target) {
	t.Helper()
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			RequestBody *struct{ Content map[string]any }
			Parameters  []struct{ Name, In string }
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			var body any
			if op.RequestBody != nil {
				body = map[string]any{}
				if op.RequestBody.Content["multipart/form-data"] != nil {
					body = upload("b.py", "x = 1\n")
				}
			}
			for _, id := range []string{"1", "2", "3", "99"} {
				for _, board := range []string{"sort", "dark"} {
					gpu := "H100"
					if path == "/{board}/{gpu}/{mode}" {
						gpu = "none" // or it streams until somebody evaluates
					}
					to := strings.NewReplacer("{id}", id, "{board}", board, "{gpu}", gpu, "{mode}", "test", "{user}", "7", "{code}", invite, "{category}", "test", "{provider}", "github").Replace(path)
					query := "?gpu=H100&provider=github"
					for _, p := range op.Parameters {
						if p.In == "query" && p.Name == "board" {
							query += "&board=" + board
						}
					}
					one := target{strings.ToUpper(method), to + query, body}
					if to == "/api/v1/submissions/3/events" {
						continue // waits for a run that nobody evaluates
					}
					if !slices.ContainsFunc(all, func(o target) bool { return o.method == one.method && o.path == one.path }) {
						all = append(all, one)
					}
				}
			}
		}
	}
	order := []string{"GET", "POST", "PUT", "DELETE"}
	slices.SortFunc(all, func(a, b target) int {
		if a.method != b.method {
			return slices.Index(order, a.method) - slices.Index(order, b.method)
		}
		return strings.Compare(a.path, b.path)
	})
	return all
}
