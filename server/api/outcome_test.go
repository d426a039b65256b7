package api_test

import (
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

// Our own routes say how a submission came out and whether it may be run again; Kernelbot's
// keep its words.
func TestOutcomesInTheAPI(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	for i, c := range []struct{ outcome, want, kernelbot string }{
		{"wrong", `"outcome":{"name":"wrong","fault":"submission"`, `"status":"failed"`},
		{"ambiguous", `"outcome":{"name":"ambiguous","fault":"machine","text":"the machine was too busy to measure times that hold","next":"This was not your submission's fault, and it was not judged. Run it again."}`, `"status":"failed"`},
		{"passed", `"outcome":{"name":"passed","fault":"none"`, `"status":"succeeded"`},
	} {
		r.ask(t, "ann", "POST", "/api/v1/submissions?board=sort&gpu=H100&mode=leaderboard", upload("a.py", "x = "+c.outcome+"\n"))
		servertest.Evaluate(t, r.s, func(p store.PlannedRun) *schema.Result {
			out := servertest.Result(p.Mode, c.outcome == "passed", 1000)
			if out.Outcome = schema.NewOutcome(c.outcome, ""); out.Outcome.Retry {
				out.Success, out.Error, out.Runs = false, out.Outcome.Text, nil
			}
			return out
		})
		id := string(rune('1' + i))
		one := r.ask(t, "ann", "GET", "/api/v1/submissions/"+id, nil).body
		list := r.ask(t, "ann", "GET", "/api/v1/submissions?limit=1", nil).body
		for what, got := range map[string]string{"the submission": one, "the list": list} {
			if !strings.Contains(got, c.want) || !strings.Contains(got, c.kernelbot) {
				t.Errorf("%s that is %s: %s\nwant %s and %s", what, c.outcome, got, c.want, c.kernelbot)
			}
		}
		if !strings.Contains(one, `"can_rerun":true`) {
			t.Errorf("the submission that is %s cannot be run again: %s", c.outcome, one)
		}
		for _, path := range []string{"/user/submissions/" + id, "/user/submissions"} {
			if got := r.ask(t, "ann", "GET", path, nil).body; strings.Contains(got, "outcome") || strings.Contains(got, "can_rerun") {
				t.Errorf("%s, which is Kernelbot's, has a field of ours: %s", path, got)
			}
		}
	}
}
