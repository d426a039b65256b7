package store

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

func TestJudge(t *testing.T) {
	five := 5.0
	isolated := &Judging{Harness: schema.HarnessIsolated, Sandbox: schema.SandboxFull}
	public := RunFact{Mode: "leaderboard", Passed: true, Score: &five, Judging: isolated}
	secret := RunFact{Mode: "leaderboard", Passed: true, Secret: true, Judging: isolated}
	with := func(r RunFact, j Judging) RunFact { r.Judging = &j; return r }
	failed := func(r RunFact) RunFact { r.Passed, r.Score = false, nil; return r }
	unknown := func(r RunFact) RunFact { r.Judging = nil; return r }
	runs := func(r ...RunFact) Facts { return Facts{Runs: r} }
	for _, tt := range []struct {
		name   string
		policy Policy
		facts  Facts
		want   string
	}{
		{"right", Policy{}, runs(public, secret), ""},
		{"rows of Kernelbot's", Policy{}, runs(unknown(public), unknown(secret)), ""},
		{"everything demanded", Policy{Harness: "isolated", Sandbox: "full", ClearTiming: true}, runs(public, secret), ""},
		{"hacked", Policy{}, Facts{Hacked: true, Runs: []RunFact{public, secret}}, "marked as hacked"},
		{"late", Policy{}, Facts{Late: true, Runs: []RunFact{public, secret}}, "after the deadline"},
		{"no secret run", Policy{}, runs(public), "no secret run that passed"},
		{"secret test alone", Policy{}, runs(public, RunFact{Mode: "test", Secret: true, Passed: true}), "no secret run that passed"},
		{"secret run open", Policy{}, Facts{SecretOpen: true, Runs: []RunFact{public}}, "secret run not finished"},
		{"one secret run failed", Policy{}, runs(public, secret, failed(RunFact{Mode: "test", Secret: true})), "secret run failed"},
		{"nothing yet", Policy{}, Facts{PublicOpen: true, SecretOpen: true}, "public run not finished"},
		{"public failed", Policy{}, runs(failed(public), secret), "public run failed"},
		{"nothing at all", Policy{}, Facts{}, "no public run with a score"},
		{"self-checked", Policy{Harness: "isolated"}, runs(with(public, Judging{Harness: "legacy", SelfChecked: true}), secret), "self-checked harness not admitted here"},
		{"self-checked in secret", Policy{Harness: "isolated"}, runs(public, with(secret, Judging{SelfChecked: true})), "self-checked harness not admitted here"},
		{"unknown harness", Policy{Harness: "isolated"}, runs(unknown(public), secret), "self-checked harness not admitted here"},
		{"weak sandbox", Policy{Sandbox: "full"}, runs(with(public, Judging{Sandbox: "partial"}), secret), "sandbox partial, and this board wants full"},
		{"ambiguous", Policy{ClearTiming: true}, runs(with(public, Judging{Ambiguous: true}), secret), "ambiguous timing not admitted here"},
	} {
		if got := Judge(tt.policy, tt.facts); got.Reason != tt.want || got.Ranks != (tt.want == "") {
			t.Errorf("%s: Judge = %+v, want reason %q", tt.name, got, tt.want)
		}
	}
}

func TestRanks(t *testing.T) {
	entry := func(score, low, high float64) Entry { return Entry{Score: score, Low: &low, High: &high} }
	list := []Entry{entry(1, 0.9, 1.1), entry(1.05, 1, 1.2), entry(1.15, 1.11, 1.3), entry(1.15, 1.1, 1.2), {Score: 9}}
	for _, tt := range []struct {
		ties bool
		want string
	}{{false, "[1 2 3 3 5]"}, {true, "[1 1 3 3 5]"}} {
		got := append([]Entry(nil), list...)
		ranks(got, tt.ties)
		var all []int
		for _, e := range got {
			all = append(all, e.Rank)
		}
		if fmt.Sprint(all) != tt.want || got[4].Tied || !got[3].Tied || got[0].Tied != tt.ties {
			t.Errorf("ranks with ties %v = %v, want %s", tt.ties, all, tt.want)
		}
	}
}

// The figures are those of the contract's example.
func TestScore(t *testing.T) {
	run := func(means ...string) *schema.RunResult {
		r := &schema.RunResult{Success: true, Passed: true, Result: schema.Report{{Key: "benchmark-count", Value: fmt.Sprint(len(means))}}}
		for i, m := range means {
			r.Result = append(r.Result, schema.Entry{Key: fmt.Sprintf("benchmark.%d.mean", i), Value: m})
		}
		return r
	}
	long := make([]string, 60)
	for i := range long {
		long[i] = "100"
	}
	for _, tt := range []struct {
		by   string
		run  *schema.RunResult
		want float64
	}{
		{"last", run("1500000.5"), 0.0015000005},
		{"mean", run("1500000.5", "6000000"), 0.00375000025},
		{"geom", run("1500000.5", "6000000"), 0.0030000005},
		{"geom", run(long...), 1e-7}, // the product underflows
		{"last", run("1", "2"), -1},
		{"mean", run("0"), -1}, {"mean", run("NaN"), -1}, {"mean", run("-1"), -1}, {"mean", run("Inf"), -1}, {"mean", run("x"), -1}, {"mean", run(), -1},
	} {
		got := score(tt.by, tt.run)
		if got == nil && tt.want >= 0 || got != nil && math.Abs(*got-tt.want) > 1e-9*tt.want+1e-15 {
			t.Errorf("score(%s) = %v, want %g", tt.by, got, tt.want)
		}
	}
	huge := run("1")
	huge.Result[0].Value = "99999999999"
	if got := score("mean", huge); got != nil {
		t.Errorf("score of a report that lacks its benchmarks = %v", *got)
	}
}

// A page says the same as the whole list, and late submissions do not rank.
func TestPage(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		board := testBoard("sort")
		board.Deadline = time.Now().Add(time.Hour)
		save(t, s, board)
		for i := range 7 {
			if _, err := s.Accept(ctx, submission("sort", "H100", fmt.Sprint(i+1))); err != nil {
				t.Fatal(err)
			}
		}
		late := submission("sort", "H100", "1")
		late.Time, late.AnyTime = late.Time.Add(2*time.Hour), true
		out, err := s.Accept(ctx, late)
		if err != nil {
			t.Fatal(err)
		}
		evaluate(t, s, func(p PlannedRun) *schema.Result {
			if p.Submission == out.ID {
				return result(true, 1)
			}
			return result(true, float64(10*((p.Submission+1)/2)))
		})
		all, total, err := s.Page(ctx, "sort", "H100", 0, 0)
		if err != nil || total != 7 || len(all) != 7 || all[0].Rank != 1 || all[1].Rank != 1 || all[2].Rank != 3 || all[0].Score != 1e-8 {
			t.Fatalf("Page = %+v, %d, %v", all, total, err)
		}
		var got []Entry
		for offset := 0; offset < 7; offset += 2 {
			page, _, err := s.Page(ctx, "sort", "H100", 2, offset)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, page...)
		}
		if fmt.Sprint(got) != fmt.Sprint(all) {
			t.Errorf("pages of two: %v\nwant %v", got, all)
		}
		p, err := s.Poll(ctx, out.ID)
		if err != nil || len(p.Verdicts) != 1 || p.Verdicts[0].Reason != "after the deadline" || p.Job.Status != StatusSucceeded {
			t.Errorf("the late submission: %+v, %v", p, err)
		}
		if _, _, err := s.Page(ctx, "sort", "H100", -1, 0); err == nil {
			t.Error("Page with a negative limit")
		}
		if _, _, err := s.Page(ctx, "none", "H100", 0, 0); err == nil {
			t.Error("Page of no board")
		}
	})
}
