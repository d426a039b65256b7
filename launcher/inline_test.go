package launcher

import (
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

// The result in the meta-data is taken when everything agrees; else the
// artifact is.
func TestResultInMetaData(t *testing.T) {
	t.Parallel()
	value := func(b *fakeBuild, raw []byte, job string) {
		v, short := schema.InlineResult(raw, job)
		if !short {
			t.Error("the result is too long")
		}
		b.meta["result:"+b.meta["run_id"]] = v
	}
	crashed := func(runID string) []byte {
		r := &schema.Result{RunID: runID, System: schema.SystemInfo{DeviceCount: 1}, Outcome: schema.NewOutcome(schema.OutcomeMachine, "no driver")}
		data, err := r.Encode()
		if err != nil {
			t.Error(err)
		}
		return data
	}
	for _, tt := range []struct {
		name  string
		set   func(*fakeBuild)
		taken bool
	}{
		{"as kbrun leaves it", func(b *fakeBuild) { value(b, b.artifacts[0].data, "job-1") }, true},
		{"none", func(*fakeBuild) {}, false},
		{"another attempt's", func(b *fakeBuild) { value(b, b.artifacts[0].data, "job-0") }, false},
		{"another run's", func(b *fakeBuild) { value(b, result("sub-other"), "job-1") }, false},
		{"of a job that says it failed", func(b *fakeBuild) { value(b, crashed(b.meta["run_id"]), "job-1") }, false},
		{"no result", func(b *fakeBuild) { value(b, []byte("{}"), "job-1") }, false},
		{"no value", func(b *fakeBuild) { b.meta["result:"+b.meta["run_id"]] = "passed, honestly" }, false},
		{"under another run's key", func(b *fakeBuild) {
			value(b, b.artifacts[0].data, "job-1")
			b.meta["result:x"] = b.meta["result:"+b.meta["run_id"]]
			delete(b.meta, "result:"+b.meta["run_id"])
		}, false},
	} {
		for _, jobs := range []bool{true, false} {
			bubble(t, func(t *testing.T, f *fake) {
				f.onCreate = func(b *fakeBuild) {
					b.finish("passed")
					tt.set(b)
				}
				c := f.client()
				s := submission()
				run, err := c.Create(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				if !jobs {
					run.seen.Jobs = nil
				}
				r, err := c.Collect(t.Context(), run)
				if err != nil {
					t.Fatalf("%s: %v", tt.name, err)
				}
				if r.Result.Outcome.Name != schema.OutcomePassed || string(r.Raw) != string(f.builds[0].artifacts[0].data) {
					t.Errorf("%s: got outcome %q", tt.name, r.Result.Outcome.Name)
				}
				// Without its jobs, a build that passed vouches for whoever wrote.
				taken := tt.taken || !jobs && tt.name == "another attempt's"
				if n := c.Calls(); taken != (n.Artifacts+n.Downloads == 0) {
					t.Errorf("%s, jobs %t: %s, want taken: %t", tt.name, jobs, n, taken)
				}
			})
		}
	}
}

// A verdict in the meta-data of a build whose evaluation was killed is not
// believed, whatever attempt it says it is of.
func TestForgedVerdictInMetaData(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		f.onCreate = func(b *fakeBuild) {
			b.finish("failed") // its job with 137
			b.inlined("job-1")
			b.artifacts = nil
		}
		_, err := f.client().Submit(t.Context(), submission())
		if err == nil || !strings.Contains(err.Error(), "left no result") {
			t.Errorf("Submit: got %v, want no result", err)
		}
	})
}
