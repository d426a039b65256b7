package pipelines

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// matches reports whether a job that ended so would be retried. It follows
// Buildkite: the fields of a rule must all match, "*" and what is left out
// match anything, "none" matches a job without a signal reason.
func matches(rules []RetryRule, status int, reason string) bool {
	for _, r := range rules {
		statusOK := r.ExitStatus == nil || slices.Contains(r.ExitStatus, status)
		reasonOK := r.SignalReason == "" || r.SignalReason == reason || r.SignalReason == "none" && reason == ""
		if statusOK && reasonOK {
			return true
		}
	}
	return false
}

func TestOnlyInfrastructureIsRetried(t *testing.T) {
	for _, tt := range []struct {
		what   string
		status int
		reason string
		want   bool
	}{
		{"lost agent", -1, "", true},
		{"stopped agent", -1, "agent_stop", true},
		{"stopped agent, older kind", 255, "agent_stop", true},
		{"fault of the machine", 75, "", true},
		{"kbrun's own death", 2, "", true},
		{"verdict", 0, "", false},
		{"command line that cannot work", 64, "", false},
		{"payload that cannot work", 78, "", false},
		{"submission's crash", 255, "", false},
		{"out of memory", 137, "", false},
		{"failed check", 112, "", false},
		{"runner missing", 127, "", false},
		{"cancelled or timed out", -1, "cancel", false},
		{"environment too large, or docker refused", -1, "process_run_error", false},
		{"refused by the node", -1, "agent_refused", false},
		{"bad signature", -1, "signature_rejected", false},
	} {
		if got := matches(RetryMachine.Rules(Docker), tt.status, tt.reason); got != tt.want {
			t.Errorf("%s (exit status %d, signal reason %q): retried %v, want %v", tt.what, tt.status, tt.reason, got, tt.want)
		}
	}
	for _, r := range RetryMachine.Rules(Docker) {
		if r.Limit < 1 || r.Limit > 2 {
			t.Errorf("rule %+v: limit %d, want 1 or 2", r, r.Limit)
		}
	}
}

func TestRetryClasses(t *testing.T) {
	if matches(RetryLost.Rules(Docker), 75, "") || matches(RetryLost.Rules(Docker), 1, "") || !matches(RetryLost.Rules(Docker), -1, "") {
		t.Error("class lost repeats other things than lost agents")
	}
	if matches(RetryMachine.Rules(Docker), -1, "stack_error") || !matches(RetryMachine.Rules(Kubernetes), -1, "stack_error") || RetryNever.Rules(Kubernetes) != nil {
		t.Error("a pod that did not start is repeated elsewhere than on Kubernetes, or not there")
	}
	for _, tt := range []struct {
		status int
		reason string
		want   bool
	}{{-7, "", true}, {-10, "", true}, {137, "", true}, {137, "cancel", false}, {-8, "", false}, {78, "", false}} {
		for _, class := range []RetryClass{RetryLost, RetryMachine} {
			if got := matches(class.Rules(Kubernetes), tt.status, tt.reason); got != tt.want || tt.status != 78 && matches(class.Rules(Docker), tt.status, tt.reason) {
				t.Errorf("class %s, exit status %d %s on Kubernetes: retried %v, want %v, and never in docker", class, tt.status, tt.reason, got, tt.want)
			}
		}
	}
	for class, want := range map[RetryClass]int{RetryLost: 5, RetryMachine: 5, RetryNever: 1} {
		if got := class.Tries(Host); got != want {
			t.Errorf("%s.Tries() = %d, want %d", class, got, want)
		}
	}
}

func TestStepTimeout(t *testing.T) {
	docker, host := good(), good()
	host.Platform, host.Image = Host, ""
	for _, tt := range []struct {
		g      GPUType
		budget time.Duration
		want   time.Duration
	}{
		{docker, 0, 15 * time.Minute},
		{docker, time.Second, 5 * time.Minute},
		{docker, 400 * time.Second, 10 * time.Minute}, // 400 + 60 + 120 s is 9 min 40 s
		{docker, 420 * time.Second, 10 * time.Minute},
		{docker, 421 * time.Second, 11 * time.Minute},
		{docker, 3960 * time.Second, 15 * time.Minute},
		{host, 400 * time.Second, 8 * time.Minute},
		{host, 3960 * time.Second, 15 * time.Minute},
	} {
		if got := StepTimeout(tt.g, tt.budget); got != tt.want {
			t.Errorf("StepTimeout(%s, %s) = %s, want %s", tt.g.Platform, tt.budget, got, tt.want)
		}
		if got := Deadline(StepTimeout(docker, tt.budget)); tt.budget <= 12*time.Minute && got < tt.budget {
			t.Errorf("kbrun's deadline with a budget of %s is %s: it would cut a legal payload", tt.budget, got)
		}
	}
}

func TestUserGroup(t *testing.T) {
	seen := map[string]string{}
	for _, user := range []string{"alice", "Alice", "alice ", "a/b", "a-b", strings.Repeat("x", 1000), strings.Repeat("x", 999), "é", "$HOME", ""} {
		g := userGroup(user)
		if other, taken := seen[g]; taken {
			t.Errorf("users %q and %q share group %s", user, other, g)
		}
		seen[g] = user
		if len(g) > 200 || strings.Trim(g, "abcdefghijklmnopqrstuvwxyz0123456789-/") != "" {
			t.Errorf("userGroup(%q) = %q, want up to 200 of a-z, 0-9, - and /", user, g)
		}
	}
}

func TestModes(t *testing.T) {
	for _, mode := range []string{"test", "benchmark", "profile", "leaderboard", "private", ""} {
		if err := CheckMode(mode); err != nil {
			t.Errorf("CheckMode(%q) = %v, want nil", mode, err)
		}
	}
	if err := CheckMode("leaderbord"); err == nil || !strings.Contains(err.Error(), "nearest is leaderboard") {
		t.Errorf("CheckMode(leaderbord) = %v, want the nearest", err)
	}
}
