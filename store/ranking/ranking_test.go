package ranking

import (
	"fmt"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

func TestDecide(t *testing.T) {
	five := 5.0
	isolated := &Judging{Harness: schema.HarnessIsolated, Sandbox: schema.SandboxFull}
	public := Run{Mode: "leaderboard", Passed: true, Score: &five, Judging: isolated}
	secret := Run{Mode: "leaderboard", Passed: true, Secret: true, Judging: isolated}
	with := func(r Run, j Judging) Run { r.Judging = &j; return r }
	failed := func(r Run) Run { r.Passed, r.Score = false, nil; return r }
	unknown := func(r Run) Run { r.Judging = nil; return r }
	runs := func(r ...Run) Facts { return Facts{Runs: r} }
	for _, tt := range []struct {
		name   string
		policy Policy
		facts  Facts
		want   string
	}{
		{"right", Policy{}, runs(public, secret), ""},
		{"rows of Kernelbot's", Policy{}, runs(unknown(public), unknown(secret)), ""},
		{"everything demanded", Policy{Harness: "isolated", Sandbox: "full", ClearTiming: true}, runs(public, secret), ""},
		{"hacked", Policy{}, Facts{Hacked: true, Runs: []Run{public, secret}}, "marked as hacked"},
		{"late", Policy{}, Facts{Late: true, Runs: []Run{public, secret}}, "after the deadline"},
		{"no secret run", Policy{}, runs(public), "no secret run that passed"},
		{"secret test alone", Policy{}, runs(public, Run{Mode: "test", Secret: true, Passed: true}), "no secret run that passed"},
		{"secret run open", Policy{}, Facts{SecretOpen: true, Runs: []Run{public}}, "secret run not finished"},
		{"one secret run failed", Policy{}, runs(public, secret, failed(Run{Mode: "test", Secret: true})), "secret run failed"},
		{"nothing yet", Policy{}, Facts{PublicOpen: true, SecretOpen: true}, "public run not finished"},
		{"public failed", Policy{}, runs(failed(public), secret), "public run failed"},
		{"public and secret failed", Policy{}, runs(failed(public), failed(secret)), "public run failed"},
		{"secret failed before public ended", Policy{}, Facts{PublicOpen: true, Runs: []Run{failed(secret)}}, "secret run failed"},
		{"nothing at all", Policy{}, Facts{}, "no public run with a score"},
		{"no proof", Policy{Harness: HarnessProved}, runs(public, secret), "no proof that the harness works on this GPU"},
		{"a proof", Policy{Harness: HarnessProved}, runs(with(public, Judging{Harness: "isolated", Proved: true}), with(secret, Judging{Harness: "isolated", Proved: true})), ""},
		{"a proof in public only", Policy{Harness: HarnessProved}, runs(with(public, Judging{Harness: "isolated", Proved: true}), secret), "no proof that the harness works on this GPU"},
		{"self-checked", Policy{Harness: "isolated"}, runs(with(public, Judging{Harness: "legacy", SelfChecked: true}), secret), "self-checked harness not admitted here"},
		{"self-checked in secret", Policy{Harness: "isolated"}, runs(public, with(secret, Judging{SelfChecked: true})), "self-checked harness not admitted here"},
		{"unknown harness", Policy{Harness: "isolated"}, runs(unknown(public), secret), "self-checked harness not admitted here"},
		{"weak sandbox", Policy{Sandbox: "full"}, runs(with(public, Judging{Sandbox: "partial"}), secret), "sandbox partial, and this board wants full"},
		{"ambiguous", Policy{ClearTiming: true}, runs(with(public, Judging{Ambiguous: true}), secret), "ambiguous timing not admitted here"},
	} {
		if got := Decide(tt.policy, tt.facts); got.Reason != tt.want || got.Ranks != (tt.want == "") {
			t.Errorf("%s: Decide = %+v, want reason %q", tt.name, got, tt.want)
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
		Number(got, tt.ties)
		var all []int
		for _, e := range got {
			all = append(all, e.Rank)
		}
		if fmt.Sprint(all) != tt.want || got[4].Tied || !got[3].Tied || got[0].Tied != tt.ties {
			t.Errorf("ranks with ties %v = %v, want %s", tt.ties, all, tt.want)
		}
	}
}
